package browser

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/client"
	"github.com/filaq/fila/sidecar/config"
	"github.com/filaq/fila/sidecar/e2e/natstest"
)

// TestCluster: on the pages of one of three nodes, shards are moved, and a node is drained and
// takes shards again. A queue keeps working meanwhile.
func TestCluster(t *testing.T) {
	t.Parallel()
	needBrowser(t)
	ns := natstest.Start(t, natstest.JetStream)
	member := func(name string) func(*config.Config) {
		return func(cfg *config.Config) {
			cfg.Throttles = nil
			cfg.NATS.URL = ns.ClientURL()
			cfg.Cluster = config.ClusterConfig{Enabled: true, Name: "plant", Node: name, Shards: 3, FailoverMs: 3000, Replicas: 1, AllowR1: true}
		}
	}
	f, b := run(t, member("anna"))
	start(t, member("berta"))
	start(t, member("carla"))
	b.visit("/cluster", "Cluster plant", "anna", "berta", "carla")
	node := func(name string) string {
		return fmt.Sprintf("[...document.querySelectorAll('section[aria-labelledby=nodes] tbody tr')].find(r => r.cells[0].innerText == %s)", quote(name))
	}
	b.until("document.querySelectorAll('section[aria-labelledby=shards] tbody tr').length == 3 && !document.querySelector('section[aria-labelledby=shards] .bad')")
	b.until("/^2\\.\\d+\\.\\d+/.test(document.querySelector('section[aria-labelledby=servers] tbody td')?.innerText)")
	f.queue("orders")
	f.publish("orders", "x", tenant("acme"))
	b.sound("cluster")
	b.reachable()

	b.visit("/cluster") // forms list the nodes from when the page was made
	for shard, to := range []string{"carla", "berta"} {
		b.menu("move")
		b.choose("#shard", fmt.Sprint(shard))
		b.choose("#to", to)
		b.asks("Move", fmt.Sprintf("Move shard %d to %s?", shard, to))
		b.does("Move the shard", fmt.Sprintf("Shard %d goes to %s.", shard, to))
		b.until(fmt.Sprintf("document.querySelectorAll('section[aria-labelledby=shards] tbody tr')[%d]?.cells[1].innerText.startsWith(%s)", shard, quote(to)))
	}

	b.menu("drain")
	b.choose("#node", "carla")
	b.asks("Drain", "Drain carla?")
	b.does("Continue", "carla hands over its shards.")
	b.until(node("carla") + "?.cells[2].innerText == '0' && " + node("carla") + ".cells[1].innerText == 'draining'")
	require.True(t, wait(t.Context(), func() bool { // its shard may be moving
		_, err := f.c.Publish(t.Context(), "orders", []byte("y"), tenant("acme"), client.DedupeID("y"))
		return err == nil
	}))
	f.depth("orders", 2)
	b.visit("/", "orders", "All shards are served.")
	b.visit("/cluster")
	b.menu("drain")
	b.choose("#node", "carla")
	b.asks("Cancel the drain", "Cancel the drain of carla?")
	b.does("Continue", "carla takes shards again.")
	b.until(node("carla") + "?.cells[1].innerText == 'serves'")
	b.visit("/activity/audit", "cluster-drain", "cluster-move")
}
