package opscmd

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/cli/clitest"
	"github.com/filaq/fila/cli/command"
	"github.com/filaq/fila/cli/terminal"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// busy is a queue with traffic, n seconds after the start.
func busy(name string, n int64) api.QueueInfo {
	return api.QueueInfo{
		QueueSummary: api.QueueSummary{Name: name, Pending: 12_345, Ready: 12_045, Blocked: 300, Delayed: 7, InFlight: 64, OldestAgeMs: 12_345, DLQ: name + ".dlq"},
		Counters:     map[string]int64{"enqueued": 850 * n, "redriven": 0, "delivered": 840 * n, "acked": 838 * n, "nacked": n, "expired": n},
		Flows:        4,
		TopFlows: []api.FlowInfo{
			{Key: "noisy", Ready: 12_000, Share: 0.25}, {Key: "quiet\x1b[2J", Ready: 20, Share: 0.25}, {Key: strings.Repeat("long", 30), Ready: 1, Share: 0.25},
		},
		ConsumerList: []api.ConsumerInfo{{Name: "w1", InFlight: 60, MaxInFlight: 64}, {Name: "", Fetch: true, InFlight: 4, MaxInFlight: 10}},
	}
}

func frameAt(n int64) *sample {
	return &sample{
		at: time.Date(2026, 1, 2, 12, 0, int(n), 0, time.UTC), server: "nats://127.0.0.1:4222", total: 3,
		queues: []api.QueueInfo{{QueueSummary: api.QueueSummary{Name: "idle", DLQ: "idle.dlq"}}, busy("orders", n)},
		blocked: map[string][]api.BlockedCount{"orders": {{
			GateState: api.GateState{Gate: "throttle:stripe", Kind: "rate", AdmitsAt: "2026-01-02T12:00:02.1Z", Limits: "10/s"}, Messages: 300,
		}}},
	}
}

// testScreen has a minute of frames; the last one is two seconds after the start.
func testScreen() *topScreen {
	env := &command.Env{Clock: func() time.Time { return time.Date(2026, 1, 2, 12, 0, 2, 0, time.UTC) }}
	t := newTopScreen(env, topFlags{interval: 2000}, 0, terminal.Style{})
	for n := range int64(59) { // a saw, and a failure now and then
		acked, failed := float64(n%10*100), float64(n%20/19)
		t.take(topFrame{Seconds: 2, Queues: []topQueue{{Name: "orders", In: 850, Acked: acked, Failed: failed}}})
	}
	t.take(frameAt(2).frame(frameAt(0)))
	return t
}

var updateFrames = flag.Bool("update", false, "write the frames in testdata anew")

// TestTopFrames compares frames of a fixed sample with those in testdata.
func TestTopFrames(t *testing.T) {
	for _, width := range []int{60, 80, 120, 200} {
		for name, change := range map[string]func(*topScreen){
			"plain": func(*topScreen) {}, "keys": func(s *topScreen) { s.live, s.all, s.sort = true, true, 1 }, "help": func(s *topScreen) { s.live, s.help = true, true },
		} {
			s := testScreen()
			change(s)
			got := strings.Join(s.lines(width), "\n") + "\n"
			file := filepath.Join("testdata", fmt.Sprintf("top-%s-%d.txt", name, width))
			if *updateFrames {
				require.NoError(t, os.WriteFile(file, []byte(got), 0o644))
			}
			want, err := os.ReadFile(file)
			require.NoError(t, err)
			require.Equal(t, string(want), got, file)
		}
	}
}

// No line is ever longer than the terminal is wide, and the most important columns stay.
func TestTopFits(t *testing.T) {
	s := testScreen()
	s.live, s.all, s.filter, s.problem, s.paused, s.typing = true, true, "", strings.Repeat("long ", 50), true, true
	s.frame.Queues[0].Name = "idle-" + strings.Repeat("注文", 30)
	for w := topNarrowest; w <= 200; w++ {
		for _, line := range s.lines(w) {
			require.LessOrEqual(t, terminal.Width(line), w, "%d: %s", w, line)
		}
	}
	s = testScreen()
	s.live = true
	for w := 60; w <= 200; w++ {
		frame := strings.Join(s.lines(w), "\n")
		for _, word := range []string{"QUEUE", " READY", " BLOCK", "ACKED", " FAIL", "OLDEST", "orders ", "12.0k", "300", "838", "12.3s", "█"} {
			require.Contains(t, frame, word, w)
		}
		require.NotContains(t, frame, "\nidle ")
	}
	for w := range topNarrowest { // narrower is not drawn
		require.Equal(t, s.lines(topNarrowest), s.lines(w))
	}
}

func TestTopColours(t *testing.T) {
	s := testScreen()
	s.paint.On = true
	lines := strings.Join(s.lines(80), "\n")
	require.Contains(t, lines, "\x1b[33m  300\x1b[0m")
	require.Contains(t, lines, "\x1b[31m    2\x1b[0m")
}

func TestTopUnknownRates(t *testing.T) {
	s := testScreen()
	s.take(frameAt(2).frame(nil))
	require.Contains(t, strings.Join(s.lines(100), "\n"), "    -     -     -     -    12.3s", "rates are not known yet")
	s.take(frameAt(0).frame(frameAt(2))) // fila was restarted, and the clock set back
	require.Contains(t, strings.Join(s.lines(100), "\n"), "    -     -     -     -    12.3s")
	s.take(topFrame{Total: 1})
	require.Contains(t, strings.Join(s.lines(80), "\n"), "--all shows idle queues")
	s.take(topFrame{})
	require.Contains(t, strings.Join(s.lines(80), "\n"), "(no queues)")
}

// typed presses keys one after the other, and reports whether the last one ended fila top.
func (t *topScreen) typed(keys string) (end bool) {
	for _, key := range keys {
		end = t.press(key)
	}
	return end
}

// shows returns the queues on a screen, in their order.
func (t *topScreen) shows() string {
	var names []string
	for _, q := range t.visible(t.frame.Queues) {
		names = append(names, q.Name)
	}
	return strings.Join(names, " ")
}

func TestTopKeys(t *testing.T) {
	fresh := func() *topScreen {
		s := testScreen()
		s.live = true
		s.take(topFrame{Total: 5, Queues: []topQueue{
			{Name: "a", Ready: 5, Blocked: 1, OldestAgeMs: 9, Acked: 2},
			{Name: "b", Ready: 1, Blocked: 9, Delayed: 3, In: 7, OldestAgeMs: 5},
			{Name: "c", Ready: 2, InFlight: 4, Failed: 3, Out: 1},
			{Name: "idle-a"},
			{Name: "moves", Acked: 1},
		}})
		return s
	}
	for keys, want := range map[string]string{ // which queues are shown then
		"":         "b a c moves",
		"s":        "a b c moves",
		"ss":       "a c b moves",
		"sss":      "b a c moves",
		"ssss":     "b a c moves",
		"sssss":    "c a b moves",
		"ssssss":   "b a c moves",
		"sssssss":  "c a b moves",
		"ssssssss": "a moves b c",
		"SS":       "a b c moves",
		"SSSS":     "c a b moves",
		"S":        "a b c moves",
		"sS":       "b a c moves",
		"a":        "b a c idle-a moves",
		"aa":       "b a c moves",
		"aSa":      "a b c moves",
		"fA\r":     "a",
		"/a\ra":    "a idle-a",
		"fax\x7f":  "a",
		"f\x7fc":   "c",
		"fa\x1b":   "b a c moves",
		"fa\r\x1b": "b a c moves",
		"fsqa?":    "",
		"?s":       "b a c moves",
		"[":        "b a c moves",
	} {
		s := fresh()
		require.False(t, s.typed(keys), "%q", keys)
		require.Equal(t, want, s.shows(), "%q", keys)
	}
	for _, keys := range []string{"q", "\x03", "fab\x03", "?\x03", "??q", "fa\rq"} {
		require.True(t, fresh().typed(keys), "%q", keys)
	}
	status := func(s *topScreen) string { return strings.Join(s.lines(200), "\n") }

	s := fresh()
	s.typed("fmo")
	require.Contains(t, status(s), "filter: mo_ (enter; esc for all)")
	s.typed("\r")
	require.Contains(t, status(s), "filter: mo (esc for all)")
	require.Contains(t, status(s), "5 queues, 1 shown")
	s.typed("s")
	require.Contains(t, status(s), "s sort: name")
	s.typed("\x1bfnone\r")
	require.Contains(t, status(s), "(no queue with none in its name is active)")

	s = fresh()
	before := status(s)
	s.typed("p")
	require.Contains(t, status(s), "PAUSED: p goes on")
	s.take(topFrame{Total: 77})
	require.NotContains(t, status(s), "77 queues", "the picture stands still")
	require.Equal(t, before, strings.Replace(status(s), "PAUSED: p goes on  ", "", 1))
	s.typed(" ")
	require.Contains(t, status(s), "77 queues")

	s = testScreen()
	require.Contains(t, status(s), "  4 flows")
	s.typed("d")
	require.NotContains(t, status(s), "  4 flows")
	s.typed("d?")
	require.Contains(t, status(s), "any key ends it")
	require.NotContains(t, status(s), "orders")
	s.typed("x")
	require.Contains(t, status(s), "orders")
}

// TestTopLive presses keys while fila top draws, and reads the screen.
func TestTopLive(t *testing.T) {
	f := clitest.StartFake(t)
	scripted(f)
	t.Setenv("COLUMNS", "100")
	t.Setenv("LINES", "40")
	env := &command.Env{}
	root := env.Root()
	require.NoError(t, root.ParseFlags(nil))
	s, err := env.Conn.Open()
	require.NoError(t, err)
	defer s.Close()
	flags := topFlags{interval: 50}
	v := &topView{env: env, flags: flags, s: s, screen: newTopScreen(env, flags, 0, terminal.Style{})}
	v.before, err = takeSample(t.Context(), s, flags)
	require.NoError(t, err)
	v.screen.live = true
	keys, out, ended := make(chan rune), clitest.Buffer{}, make(chan error, 1)
	go func() { ended <- v.follow(t.Context(), &out, true, keys) }()
	sees := func(text string) {
		t.Helper()
		require.Eventually(t, func() bool {
			screens := strings.Split(out.String(), "\x1b[H")
			return strings.Contains(screens[len(screens)-1], text)
		}, 20*time.Second, time.Millisecond, text)
	}
	sees("\norders ")
	keys <- 's'
	sees("s sort: name")
	keys <- '?'
	sees("any key ends it")
	keys <- 'x'
	keys <- 'p'
	sees("PAUSED")
	f.Answer("fila.admin.queue-list", wire.Draining())
	sees("fila does not answer: fila is shutting down")
	scripted(f)
	keys <- 'p'
	sees("\norders ")
	keys <- 'q'
	require.NoError(t, <-ended)
}

// scripted answers as a fila whose queue has traffic.
func scripted(f *clitest.Fake) {
	var mu sync.Mutex
	n := int64(0)
	f.Answer("fila.admin.queue-list", api.QueueList{Total: 5, Queues: []api.QueueSummary{
		{Name: "empty.dlq"}, {Name: "idle", DLQ: "idle.dlq"}, {Name: "dead.dlq", Pending: 1, Ready: 1}, busy("orders", 0).QueueSummary, {Name: "gone", DLQ: "gone.dlq"},
	}})
	f.Answer("fila.admin.queue-inspect.idle", api.QueueInfo{QueueSummary: api.QueueSummary{Name: "idle", DLQ: "idle.dlq"}, Counters: map[string]int64{"acked": 7}})
	f.Answer("fila.admin.queue-inspect.gone", wire.QueueNotFound("gone"))
	f.Answer("fila.admin.queue-inspect.dead.dlq", api.QueueInfo{QueueSummary: api.QueueSummary{Name: "dead.dlq", Pending: 1, Ready: 1}})
	f.Answer("fila.admin.queue-inspect.orders.dlq", api.QueueInfo{QueueSummary: api.QueueSummary{Name: "orders.dlq"}})
	f.Handle("fila.admin.queue-inspect.orders", func(*nats.Msg) any {
		mu.Lock()
		defer mu.Unlock()
		n++
		return busy("orders", n)
	})
	f.Answer("fila.admin.explain", api.ExplainQueue{Queue: "orders", BlockedBy: frameAt(0).blocked["orders"]})
}

func TestTopOnce(t *testing.T) {
	f := clitest.StartFake(t)
	scripted(f)
	frame := clitest.JSON[topFrame](t, program.Run(t, "", "top", "--once", "--interval", "50ms", "--json"))
	require.Len(t, frame.Queues, 2, "neither idle queues nor the deleted one")
	require.Equal(t, 5, frame.Total)
	q := frame.Queues[0]
	require.Equal(t, "orders", q.Name)
	require.EqualValues(t, 12_045, q.Ready)
	require.InEpsilon(t, 850/frame.Seconds, q.In, 1e-9)
	require.Equal(t, "throttle:stripe", q.BlockedBy[0].Gate)
	require.Equal(t, "dead.dlq", frame.Queues[1].Name)

	frame = clitest.JSON[topFrame](t, program.Run(t, "", "top", "--once", "--interval", "50ms", "--json", "--all", "--sort", "name"))
	var names []string
	for _, q := range frame.Queues {
		names = append(names, q.Name)
	}
	require.Equal(t, []string{"dead.dlq", "empty.dlq", "idle", "orders"}, names)

	r := clitest.OK(t, program.Run(t, "", "top", "--once", "--interval", "50ms", "--queue", "orders"))
	require.NotContains(t, r.Out, "\x1b", "no terminal")
	require.NotContains(t, r.Out, "█", "a bar of one interval says nothing")
	require.NotContains(t, r.Out, "LAST")
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
	program.Mistakes(t, map[string]string{"top --interval 10ms": "allowed is 50ms", "top --sort size": `--sort "size": allowed are messages, name`})
}

func TestTopOfWideNames(t *testing.T) {
	s := testScreen()
	s.take(topFrame{Queues: []topQueue{{Name: "注文🚀", Ready: 7}, {Name: "orders", Ready: 6}}})
	lines := s.lines(80)
	at := func(line, text string) int {
		before, _, found := strings.Cut(line, text)
		require.True(t, found, line)
		return terminal.Width(before)
	}
	require.Equal(t, at(lines[4], "6"), at(lines[3], "7"), "the ready ones stand in their column")
}

func TestCoarse(t *testing.T) {
	for ms, want := range map[int64]string{0: "-", 99: "99ms", 100: "0.1s", 59_999: "60.0s", 61_000: "1m1s", 3_600_000: "1h", 400 * 3_600_000: "16d16h"} {
		require.Equal(t, want, coarse(ms))
	}
}

func TestTopNoisyAndStarved(t *testing.T) {
	s := testScreen()
	frame := strings.Join(s.lines(100), "\n")
	require.NotContains(t, frame, "starved")
	at := frameAt(2)
	at.queues[1].NoisyFlows, at.queues[1].StarvedFlows = []string{"acme\x1b[2J", "globex"}, 3
	s.take(at.frame(frameAt(0)))
	frame = strings.Join(s.lines(100), "\n")
	require.Contains(t, frame, "  noisy      acme?[2J, globex\n  starved    3 flows: fila noisy orders\n")
}
