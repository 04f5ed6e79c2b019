package queuecmd

import (
	"encoding/json"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/cli/clitest"
	"github.com/filaq/fila/cli/command"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

var program = clitest.Program(Commands)

func TestQueueCreateSendsSettings(t *testing.T) {
	f := clitest.StartFake(t)
	f.Answer("fila.admin.queue-create.orders", wire.DefaultQueueSettings("orders"))
	script := clitest.WriteFile(t, "orders.lua", "function on_enqueue(msg) return {} end")
	r := program.Run(t, "function on_failure(msg) end", "queue", "create", "orders",
		"--on-enqueue", script, "--on-failure", "-", "--visibility-timeout", "1m", "--max-deliveries", "0", "--max-depth", "5",
		"--max-bytes", "6", "--dedupe-window", "30s", "--quantum", "7", "--fairness-header", "tenant", "--weight-header", "w",
		"--throttle-header", "a,b", "--throttle-header", "c", "--lua-timeout", "5ms", "--lua-memory-limit", "2048",
		"--lua-circuit-breaker-threshold", "4", "--lua-circuit-breaker-cooldown", "1s",
		"--circuit-header", "vendor", "--retry-policy", "slow", "--retry-initial", "2s",
		"--retry-max", "1h", "--retry-jitter", "0.25", "--ordering", "key", "--on-blocked", "skip", "--enqueue-schedules", "refuse", "--max-pending-per-key", "8",
		"--enqueue-rate", "0.5", "--enqueue-burst", "9", "--enqueue-rate-per-key", "1/3", "--enqueue-burst-per-key", "10",
		"--max-failures-per-key", "11", "--failure-window", "5m", "--failure-hold", "1h")
	require.Equal(t, command.ExitOK, r.Code, r.Err)
	var got wire.QueueSettings
	require.NoError(t, json.Unmarshal(f.Next().Data, &got))
	require.Equal(t, wire.QueueSettings{
		OnEnqueue: "function on_enqueue(msg) return {} end", OnFailure: "function on_failure(msg) end",
		VisibilityTimeoutMs: 60_000, MaxDeliveries: new(int64), MaxDepth: 5, MaxBytes: 6, DedupeWindowMs: 30_000, Quantum: 7,
		FairnessHeader: "tenant", WeightHeader: "w", ThrottleHeaders: []string{"a,b", "c"},
		LuaTimeoutMs: 5, LuaMemoryLimitBytes: 2048, LuaCircuitBreakerThreshold: 4, LuaCircuitBreakerCooldownMs: 1000,
		CircuitHeader: "vendor", RetryPolicy: "slow", RetryInitialMs: 2000, RetryMaxMs: 3_600_000, RetryJitter: 0.25, Ordering: "key", OnBlocked: "skip", EnqueueSchedules: "refuse", MaxPendingPerKey: 8,
		EnqueueRate: "0.5", EnqueueBurst: 9, EnqueueRatePerKey: "1/3", EnqueueBurstPerKey: 10,
		MaxFailuresPerKey: 11, FailureWindowMs: 300_000, FailureHoldMs: 3_600_000,
	}, got)
	require.Equal(t, "queue               orders created\nquantum             1\nvisibility timeout  30s\nmax deliveries      20 (default)\ndedupe window       2m\nretries             after 1s, doubling to 5m, full jitter\n", r.Out)

	r = clitest.OK(t, program.Run(t, "", "queue", "create", "orders"))
	require.JSONEq(t, "{}", string(f.Next().Data))
}

// TestQueueListOfPartOfACluster shows the available queues, and reports that some are missing.
func TestQueueListOfPartOfACluster(t *testing.T) {
	f := clitest.StartFake(t)
	list := api.QueueList{Total: 1, Queues: []api.QueueSummary{{Name: "orders", Pending: 3, Ready: 3}}, Missing: []int{2, 5}}
	f.Answer("fila.admin.queue-list", list)
	r := program.Run(t, "", "queue", "list")
	require.NotEqual(t, command.ExitOK, r.Code)
	require.Contains(t, r.Out, "orders  3")
	require.Contains(t, r.Err, "fila: the list is not whole: no node of the cluster serves the shards [2 5]")
	list.Missing = nil
	f.Answer("fila.admin.queue-list", list)
	require.Contains(t, clitest.OK(t, program.Run(t, "", "queue", "list")).Out, "orders  3")
	shard := 4
	f.Answer("fila.admin.queue-inspect.orders", api.QueueInfo{QueueSummary: api.QueueSummary{Name: "orders", Shard: &shard, Owner: "node-b"}})
	require.Regexp(t, `shard +4, owned by node-b`, clitest.OK(t, program.Run(t, "", "queue", "inspect", "orders")).Out)
}

func TestQueueUpdateSendsOnlyChanges(t *testing.T) {
	f := clitest.StartFake(t)
	f.Answer("fila.admin.queue-update.orders", wire.DefaultQueueSettings("orders"))
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"--max-depth", "0"}, `{"max_depth":0}`},
		{[]string{"--on-failure", ""}, `{"on_failure":""}`},
		{[]string{"--throttle-header", ""}, `{"throttle_headers":[]}`},
		{[]string{"--enqueue-rate", "", "--ordering", "", "--failure-hold", "0"}, `{"enqueue_rate":"","ordering":"","failure_hold_ms":0}`},
		{[]string{"--visibility-timeout", "1500ms", "--quantum", "2"}, `{"visibility_timeout_ms":1500,"quantum":2}`},
	} {
		clitest.OK(t, program.Run(t, "", append([]string{"queue", "update", "orders"}, tc.args...)...))
		require.JSONEq(t, tc.want, string(f.Next().Data))
	}
	r := program.Run(t, "", "queue", "update", "orders")
	require.Equal(t, clitest.Ended(command.ExitUsage, "", "fila: nothing to change: give the flag of at least one setting\n"), r)
}

// The error about an existing queue names the settings that differ.
func TestQueueCreateNamesDifferences(t *testing.T) {
	f := clitest.StartFake(t)
	f.Answer("fila.admin.queue-create.orders", wire.QueueExists("orders", []string{"quantum is 1, not 7", "on_enqueue is another script"}))
	require.Equal(t, clitest.Ended(command.ExitConflict, "",
		"fila: queue \"orders\" exists with other settings: quantum is 1, not 7; on_enqueue is another script: `fila queue update` changes them [err_code 11409]\n"),
		program.Run(t, "", "queue", "create", "orders"))
}

// The error names the flag, not the field of the protocol.
func TestQueueDeleteNamesForce(t *testing.T) {
	f := clitest.StartFake(t)
	f.Answer("fila.admin.queue-delete.orders", wire.QueueNotEmpty("orders", 1))
	require.Equal(t, clitest.Ended(command.ExitConflict, "",
		"fila: queue \"orders\" has 1 message, dead letters included, and force is not set: --force deletes them, too [err_code 12409]\n"),
		program.Run(t, "", "queue", "delete", "orders"))
}

func TestQueueList(t *testing.T) {
	f := clitest.StartFake(t)
	list := api.QueueList{Total: 2, Queues: []api.QueueSummary{
		{Name: "orders", Pending: 1268, Ready: 1234, Blocked: 34, Delayed: 5, InFlight: 7, Consumers: 2, Bytes: 1 << 20, OldestAgeMs: 90_000, DLQ: "orders.dlq"},
		{Name: "orders.dlq"},
	}}
	clitest.Shows(f, program, "queue list", "fila.admin.queue-list", list,
		"QUEUE       READY  BLOCKED  DELAYED  IN FLIGHT  CONSUMERS  SIZE     OLDEST",
		"orders      1234   34       5        7          2          1.0 MiB  1m30s",
		"orders.dlq  0      0        0        0          0          0 B      -",
	)
}

func TestQueueListByPattern(t *testing.T) {
	f := clitest.StartFake(t)
	pages := map[string]api.QueueList{ // the end of one is the beginning of the next
		"":       {Total: 4, Queues: []api.QueueSummary{{Name: "mail"}, {Name: "orders"}}, Next: "orders"},
		"orders": {Total: 4, Queues: []api.QueueSummary{{Name: "orders-1"}, {Name: "orders-22.dlq"}}},
	}
	f.Handle("fila.admin.queue-list", func(msg *nats.Msg) any {
		req, bad := api.VerbPauseList.Parse("", msg.Data)
		require.Nil(t, bad)
		return pages[req.After]
	})
	for pattern, want := range map[string][]string{
		"*": {"mail", "orders", "orders-1", "orders-22.dlq"}, "orders": {"orders"}, "orders*": {"orders", "orders-1", "orders-22.dlq"},
		"orders-?": {"orders-1"}, "*.dlq": {"orders-22.dlq"}, "[a-m]*": {"mail"}, "order": {},
	} {
		list := clitest.JSON[api.QueueList](t, program.Run(t, "", "queue", "list", pattern, "--json"))
		names := []string{}
		for _, q := range list.Queues {
			names = append(names, q.Name)
		}
		require.Equal(t, want, names, pattern)
		require.Equal(t, len(want), list.Total)
	}
	require.Equal(t, "no queue matches x*; `fila queue list` shows all\n", program.Run(t, "", "queue", "list", "x*").Out)
	program.Mistakes(t, map[string]string{"queue list [": `PATTERN "[": allowed are`, "queue list a b": `unexpected argument "b"`})
}

func TestQueueInspect(t *testing.T) {
	f := clitest.StartFake(t)
	info := api.QueueInfo{
		QueueSummary: api.QueueSummary{Name: "orders", Pending: 3, Ready: 3, InFlight: 1, Consumers: 2, DLQ: "orders.dlq"},
		Settings:     wire.DefaultQueueSettings("orders"), Quantum: 1, Flows: 2,
		ConsumerList: []api.ConsumerInfo{{Name: "w1", MaxInFlight: 64, InFlight: 1, Credit: 63}, {Fetch: true, MaxInFlight: 5, Credit: 5}},
		TopFlows:     []api.FlowInfo{{Key: "acme\x1b[31m", Weight: 3, Deficit: 0.5, Ready: 2, Share: 0.75}},
		Hooks:        []api.HookInfo{{Hook: "on_enqueue", State: "open", Runs: 10, Failures: 3, ConsecutiveFailures: 3, LastError: "a\nb"}},
		Counters:     map[string]int64{"enqueued": 10, "acked": 6},
		Sources:      api.Sources{"max_depth": {By: "operator", Client: "maria@ops"}, "quantum": {By: "default"}, "fairness_header": {By: "file"}},
	}
	f.Answer("fila.admin.queue-inspect.orders", info)
	r := clitest.OK(t, program.Run(t, "", "queue", "inspect", "orders", "--flows", "5"))
	require.JSONEq(t, `{"flows":5}`, string(f.Next().Data))
	require.Contains(t, r.Out, "ready               3\n")
	require.Contains(t, r.Out, "w1        1          63      64   -\n")
	require.Contains(t, r.Out, "(fetch)   0          5       5    -\n")
	require.Contains(t, r.Out, "acme?[31m  3       0.5      2      75.0%\n", "foreign text does not reach the terminal raw")
	require.Contains(t, r.Out, "on_enqueue  open     10    3         3         0         0         a?b\n")
	require.Contains(t, r.Out, "acked     6\nenqueued  10\n")
	require.Contains(t, r.Out, "SETTING          SET BY    CLIENT     AT\nfairness_header  file      -          -\nmax_depth        operator  maria@ops  -\n\n", "no defaults")

	require.NotContains(t, r.Out, "blocked", "none is")

	info.Blocked = 2
	info.Settings.CircuitHeader, info.Settings.RetryPolicy, info.Settings.Ordering = "vendor", "slow", "key"
	info.Settings.EnqueueRate, info.Settings.EnqueueBurst, info.Settings.EnqueueRatePerKey = "0.5", 7, "1/3"
	info.Settings.MaxPendingPerKey, info.Settings.MaxFailuresPerKey, info.Settings.FailureHoldMs = 9, 5, 600_000
	f.Answer("fila.admin.queue-inspect.strict", info)
	r = clitest.OK(t, program.Run(t, "", "queue", "inspect", "strict"))
	for _, line := range []string{
		"blocked               2 (`fila explain queue orders` says by what)", "max pending per key   9",
		"max failures per key  5 in 1m, then held for 10m", "circuit header        vendor", "retries               policy slow",
		"ordering              by key, on_blocked wait", "enqueue rate          0.5/s, burst 7", "enqueue rate per key  1 every 3 s",
	} {
		require.Contains(t, r.Out, line+"\n")
	}
	for want, change := range map[string]func(*wire.QueueSettings){
		"at once":                               func(s *wire.QueueSettings) { s.RetryInitialMs = 0 },
		"after 1s, doubling to 1m":              func(s *wire.QueueSettings) { s.RetryMaxMs, s.RetryJitter = 60_000, 0 },
		"after 1s, doubling to 5m, jitter 0.25": func(s *wire.QueueSettings) { s.RetryJitter = 0.25 },
		"after 1s, doubling to 5m, full jitter": func(*wire.QueueSettings) {},
	} {
		s := wire.DefaultQueueSettings("orders")
		change(&s)
		require.Equal(t, want, retries(s))
	}
	info.Settings, info.Blocked = wire.DefaultQueueSettings("orders"), 0

	require.Equal(t, info, clitest.JSON[api.QueueInfo](t, program.Run(t, "", "queue", "inspect", "orders", "--json")))
}

// Without --force nothing is purged; with it all pages are.
func TestQueuePurge(t *testing.T) {
	f := clitest.StartFake(t)
	f.Answer("fila.admin.queue-inspect.orders", api.QueueInfo{QueueSummary: api.QueueSummary{Pending: 2, Delayed: 1, InFlight: 4}})
	r := program.Run(t, "", "queue", "purge", "orders")
	require.Equal(t, clitest.Ended(command.ExitConflict, "", "fila: 3 messages in queue orders; --force removes the pending and delayed ones\n"), r)
	f.Answer("fila.admin.queue-inspect.orders", api.QueueInfo{})
	require.Equal(t, "0 messages removed from orders\n", clitest.OK(t, program.Run(t, "", "queue", "purge", "orders")).Out)

	f.Handle("fila.admin.queue-purge.orders", func(msg *nats.Msg) any {
		if string(msg.Data) == "{}" {
			return api.QueuePurgeReply{Purged: 3, Next: "4-9"}
		}
		return api.QueuePurgeReply{Purged: 2}
	})
	require.Equal(t, "5 messages removed from orders\n", clitest.OK(t, program.Run(t, "", "queue", "purge", "orders", "--force")).Out)
	f.Handle("fila.admin.queue-purge.orders", func(msg *nats.Msg) any {
		if string(msg.Data) == "{}" {
			return api.QueuePurgeReply{Purged: 3, Next: "4-9"}
		}
		return wire.Draining()
	})
	r = program.Run(t, "", "queue", "purge", "orders", "--force")
	require.Equal(t, command.ExitRefused, r.Code)
	require.Contains(t, r.Err, "3 messages removed before an error: ")
}

// TestQueueWanted counts workers as /scale does, and refuses what that refuses.
func TestQueueWanted(t *testing.T) {
	f := clitest.StartFake(t)
	f.Answer("fila.admin.queue-wanted.orders", api.QueueWanted{Queue: "orders", Wanted: 300, Pending: 1000, InFlight: 20, AttemptMs: 15_000})
	r := clitest.OK(t, program.Run(t, "", "queue", "wanted", "orders", "--per-worker", "64", "--horizon", "30s"))
	require.JSONEq(t, `{"horizon_ms":30000}`, string(f.Next().Data))
	require.Equal(t, "wanted   300\nworkers  3\nwhy      orders: 20 in flight and 280 of 1000 pending can be worked on within 30s; an attempt takes 15s\n", r.Out)
	for arg, want := range map[string]string{
		"--per-worker=0": "per_worker is 0: allowed are 1 to 1000000", "--target-wait=1ms": "target_wait is 1ms", "--horizon=2m": "horizon is 2m0s: allowed are 0s, 30s, 1m, 5m",
	} {
		r := program.Run(t, "", "queue", "wanted", "orders", arg)
		require.Equal(t, command.ExitUsage, r.Code)
		require.Contains(t, r.Err, want)
	}
}
