package opscmd

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/cli/clitest"
	"github.com/filaq/fila/cli/command"
	"github.com/filaq/fila/cli/terminal"
	"github.com/filaq/fila/client"
	"github.com/filaq/fila/wire"
)

// busy is a queue at work, n seconds after the start.
func busy(name string, n int64) client.QueueInfo {
	return client.QueueInfo{
		QueueSummary: wire.QueueSummary{Name: name, Pending: 12_345, Parked: 300, Delayed: 7, InFlight: 64, OldestAgeMs: 12_345, DLQ: name + ".dlq"},
		Counters:     map[string]int64{"enqueued": 850 * n, "redriven": 0, "delivered": 840 * n, "acked": 838 * n, "nacked": n, "expired": n},
		Flows:        4,
		TopFlows: []wire.FlowInfo{
			{Key: "noisy", Pending: 12_000, Share: 0.25}, {Key: "quiet\x1b[2J", Pending: 20, Share: 0.25}, {Key: strings.Repeat("long", 30), Pending: 1, Share: 0.25},
		},
		ConsumerList: []wire.ConsumerInfo{{Name: "w1", InFlight: 60, MaxInFlight: 64}, {Name: "", Fetch: true, InFlight: 4, MaxInFlight: 10}},
	}
}

func frameAt(n int64) *sample {
	return &sample{
		at: time.Date(2026, 1, 2, 12, 0, int(n), 0, time.UTC), server: "nats://127.0.0.1:4222", total: 3,
		queues: []client.QueueInfo{{QueueSummary: wire.QueueSummary{Name: "idle", DLQ: "idle.dlq"}}, busy("orders", n)},
		blocked: map[string][]client.BlockedCount{"orders": {{
			GateState: wire.GateState{Gate: "throttle:stripe", Kind: "rate", OpensAt: "2026-01-02T12:00:02.1Z", Limits: "rate 10 per second"}, Messages: 300,
		}}},
	}
}

func topTestView() *topView {
	return &topView{env: &command.Env{Clock: func() time.Time { return time.Date(2026, 1, 2, 12, 0, 2, 0, time.UTC) }}}
}

func TestTopFrame(t *testing.T) {
	v := topTestView()
	f := frameAt(2).frame(frameAt(0))
	require.Equal(t, []string{
		"fila at nats://127.0.0.1:4222  12:00:02 UTC  3 queues",
		"QUEUE                READY PARKED  DELAY FLIGHT    IN   OUT ACKED  FAIL   OLDEST",
		"orders               12.0k    300      7     64   850   840   838     2    12.3s",
		"  4 flows    noisy 12.0k (25%), quiet?[2J 20 (25%), longlonglonglonglonglonglon~",
		"  parked     300 by throttle:stripe (rate), opens in 100ms; rate 10 per second",
		"  2 workers  w1 60/64, fetch 4/10",
		"idle                     0      0      0      0     0     0     0     0        -",
	}, v.lines(f, 80))
	for w := range 200 {
		for _, line := range v.lines(f, w) {
			require.LessOrEqual(t, terminal.Width(line), max(w, 73), w)
		}
	}
	f = frameAt(2).frame(nil)
	require.Contains(t, v.lines(f, 80)[2], "   -     -     -     -", "rates are not known yet")
	f = frameAt(0).frame(frameAt(2)) // fila was restarted, and the clock set back
	require.Contains(t, v.lines(f, 80)[2], "   -     -     -     -")
	require.Contains(t, v.lines(topFrame{Total: 1}, 80)[2], "--all shows idle queues")

	v.paint.On = true
	painted := v.lines(frameAt(2).frame(frameAt(0)), 80)
	require.Contains(t, painted[2], "\x1b[33m   300\x1b[0m")
	require.Contains(t, painted[2], "\x1b[31m    2\x1b[0m")
}

// scripted answers as a fila whose queue is at work.
func scripted(f *clitest.Fake) {
	var mu sync.Mutex
	n := int64(0)
	f.Answer("fila.admin.queue-list", wire.QueueList{Total: 4, Queues: []wire.QueueSummary{
		{Name: "empty.dlq"}, {Name: "dead.dlq", Pending: 1}, busy("orders", 0).QueueSummary, {Name: "gone", DLQ: "gone.dlq"},
	}})
	f.Answer("fila.admin.queue-inspect.gone", wire.QueueNotFound("gone"))
	f.Answer("fila.admin.queue-inspect.dead.dlq", client.QueueInfo{QueueSummary: wire.QueueSummary{Name: "dead.dlq", Pending: 1}})
	f.Answer("fila.admin.queue-inspect.orders.dlq", client.QueueInfo{QueueSummary: wire.QueueSummary{Name: "orders.dlq"}})
	f.Handle("fila.admin.queue-inspect.orders", func(*nats.Msg) any {
		mu.Lock()
		defer mu.Unlock()
		n++
		return busy("orders", n)
	})
	f.Answer("fila.admin.explain", wire.ExplainQueue{Queue: "orders", BlockedBy: frameAt(0).blocked["orders"]})
}

func TestTopOnce(t *testing.T) {
	f := clitest.StartFake(t)
	scripted(f)
	frame := clitest.JSON[topFrame](t, program.Run(t, "", "top", "--once", "--interval", "50ms", "--json"))
	require.Len(t, frame.Queues, 2, "neither the empty dead letter queue nor the deleted queue")
	require.Equal(t, 4, frame.Total)
	q := frame.Queues[0]
	require.Equal(t, "orders", q.Name)
	require.EqualValues(t, 12_045, q.Ready)
	require.InEpsilon(t, 850/frame.Seconds, q.In, 1e-9)
	require.Equal(t, "throttle:stripe", q.ParkedBy[0].Gate)
	require.Equal(t, "dead.dlq", frame.Queues[1].Name)

	r := clitest.OK(t, program.Run(t, "", "top", "--once", "--interval", "50ms", "--queue", "orders"))
	require.NotContains(t, r.Out, "\x1b", "no terminal")
	require.Contains(t, r.Out, "\norders ")
	require.Contains(t, r.Out, "\norders.dlq ")
}

func TestTopGoesOn(t *testing.T) {
	f := clitest.StartFake(t)
	scripted(f)
	r := program.Start(t, nil, "top", "-i", "50ms")
	require.Eventually(t, func() bool { return strings.Count(r.Out.String(), "\norders ") == 3 }, 20*time.Second, time.Millisecond)
	r.Stop()
	require.Equal(t, command.ExitOK, <-r.Code)
	require.Empty(t, r.Err.String())
}

func TestTopMistakes(t *testing.T) {
	f := clitest.StartFake(t)
	require.Equal(t, command.ExitConnect, program.Run(t, "", "top", "--once").Code)
	f.Answer("fila.admin.queue-inspect.nosuch", wire.QueueNotFound("nosuch"))
	require.Equal(t, command.ExitNotFound, program.Run(t, "", "top", "--queue", "nosuch").Code)
	require.Equal(t, command.ExitUsage, program.Run(t, "", "top", "--interval", "10ms").Code)
}

func TestTopOfWideNames(t *testing.T) {
	q := topQueue{Name: "注文🚀", Ready: 7}
	for _, name := range []int{12, 8, 6, 5} {
		line := topTestView().queueLines(&q, name)[0]
		before, _, _ := strings.Cut(line, "7")
		require.Equal(t, name+len(" READY"), terminal.Width(before), "the ready ones stand in their column: %q", line)
	}
}

func TestCoarse(t *testing.T) {
	for ms, want := range map[int64]string{0: "-", 99: "99ms", 100: "0.1s", 59_999: "60.0s", 61_000: "1m1s", 3_600_000: "1h", 400 * 3_600_000: "16d16h"} {
		require.Equal(t, want, coarse(ms))
	}
}
