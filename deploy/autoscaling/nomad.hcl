# Part of a job: the Nomad Autoscaler with its prometheus plugin. target is the messages
# that one worker works on at a time.
group "orders-worker" {
  scaling {
    enabled = true
    min     = 1
    max     = 50

    policy {
      evaluation_interval = "30s"
      cooldown            = "1m"

      check "wanted" {
        source = "prometheus"
        query  = "sum(fila_queue_wanted{queue=\"orders\"}) or vector(0)"

        strategy "target-value" {
          target = 64
        }
      }
    }
  }

  task "worker" {
    driver       = "docker"
    kill_signal  = "SIGTERM"
    kill_timeout = "60s"

    config {
      image = "registry.example.com/orders-worker:1"
    }
  }
}
