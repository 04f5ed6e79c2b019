package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/cli/clitest"
	"github.com/filaq/fila/cli/command"
	"github.com/filaq/fila/sidecar"
	"github.com/filaq/fila/sidecar/config"
	"github.com/filaq/fila/wire/api"
)

// startReal starts a sidecar in this process and points NATS_URL at it.
func startReal(t *testing.T, change ...func(*config.Config)) {
	t.Helper()
	if testing.Short() {
		t.Skip("runs a server")
	}
	clitest.Isolate(t)
	var log clitest.Buffer
	cfg := config.Default()
	cfg.DataDir, cfg.HTTP.Addr, cfg.NATS.Embedded.Port, cfg.DrainTimeoutMs = t.TempDir(), "", -1, 0
	for _, change := range change {
		change(&cfg)
	}
	server, err := sidecar.New(cfg, newLogger(config.LogConfig{Level: "error"}, &log), "test")
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-ended)
		require.Empty(t, log.String())
	})
	<-server.Ready()
	t.Setenv("NATS_URL", server.ClientURL())
}

func must(t *testing.T, in string, args ...string) string {
	t.Helper()
	return clitest.OK(t, program.Run(t, in, args...)).Out
}

// The commands work together with a real fila.
func TestCommandsWithARealFila(t *testing.T) {
	startReal(t)
	watched := make(chan string)
	go func() {
		watched <- program.Run(t, "", "watch", "--type", "queue-created", "--queue", "last", "--count", "1").Out
	}()

	must(t, "", "queue", "create", "orders", "--fairness-header", "tenant", "--throttle-header", "api", "--max-deliveries", "1")
	must(t, "", "throttle", "set", "stripe", "--rate", "0.001", "--burst", "1")
	var lines strings.Builder
	for i := range 300 {
		fmt.Fprintf(&lines, `{"payload":"m%d","headers":{"tenant":"t%d"}}`+"\n", i, i%3)
	}
	require.Contains(t, must(t, lines.String(), "publish", "orders", "--jsonl", "--window", "50"), "300 messages published to orders")
	must(t, "a\nb\n", "publish", "orders", "--lines", "-H", "tenant=held", "-H", "api=stripe")
	must(t, "", "publish", "orders", "later", "-H", "tenant=later", "--delay", "1h")

	var peeked api.PeekReply
	require.NoError(t, json.Unmarshal([]byte(must(t, "", "peek", "orders", "--limit", "1000", "--json")), &peeked))
	require.Len(t, peeked.Messages, 303)
	require.Contains(t, must(t, "", "peek", "orders", "--key", "later"), "  delayed  ")
	require.Contains(t, must(t, "", "peek", "orders", "--key", "t1", "--limit", "3"), "there are more")

	require.Len(t, strings.Split(strings.TrimSpace(must(t, "", "consume", "orders", "--count", "201")), "\n"), 201)
	must(t, "", "consume", "orders", "--timeout", "300ms")
	require.Regexp(t, `throttle:stripe \(rate\), may go in .*  b\n`, must(t, "", "peek", "orders", "--key", "held"))
	top := must(t, "", "top", "--once", "--interval", "50ms")
	require.Contains(t, top, "blocked    1 by throttle:stripe (rate), admits in ")

	must(t, "", "throttle", "clear", "stripe")
	must(t, "", "consume", "orders", "--count", "1", "--exec", `test "$(cat)" = b && echo 'no money' >&2; exit 3`)
	require.Eventually(t, func() bool {
		return strings.Contains(must(t, "", "peek", "orders.dlq"), "a redrive: max_deliveries [exit-3]: no money")
	}, 10*time.Second, 10*time.Millisecond)
	back := must(t, "", "consume", "orders.dlq", "--json", "--count", "1")
	must(t, back, "publish", "orders", "--jsonl")
	require.Equal(t, "b\n", must(t, "", "consume", "orders", "--count", "1"))

	var event string
	require.Eventually(t, func() bool { // there is no telling when watch listens
		must(t, "", "queue", "create", "last")
		must(t, "", "queue", "delete", "last")
		select {
		case event = <-watched:
			return true
		default:
			return false
		}
	}, 20*time.Second, 10*time.Millisecond)
	require.Contains(t, event, "queue last was created")
}

// publish waits for a full queue.
func TestPublishWaitsForARealQueue(t *testing.T) {
	startReal(t)
	must(t, "", "queue", "create", "orders", "--max-depth", "5")
	done := make(chan clitest.Result)
	go func() { done <- program.Run(t, "", "publish", "orders", "x", "--count", "30") }()
	out := must(t, "", "consume", "orders", "--count", "30")
	require.Equal(t, 30, strings.Count(out, "x\n"))
	r := <-done
	require.Equal(t, command.ExitOK, r.Code, r.Err)
	clitest.Complains(t, program.Run(t, "", "publish", "orders", "x", "--count", "30", "--no-retry"), command.ExitRefused, "max_depth is 5")
}
