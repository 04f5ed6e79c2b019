package load

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/filaq/fila/bench/measure"
	"github.com/filaq/fila/bench/system"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// startNode runs a node until the end of the test and returns its URL.
func startNode(t *testing.T, name system.Name) string {
	t.Helper()
	node, err := system.StartNode(name, t.TempDir())
	require.NoError(t, err)
	t.Cleanup(node.Close)
	return node.URL()
}

func runSpec(t *testing.T, spec *Spec) Result {
	t.Helper()
	return runSpecWith(t, spec, func(measure.Sample) { t.Error("an interval nobody asked for") })
}

func runSpecWith(t *testing.T, spec *Spec, point func(measure.Sample)) Result {
	t.Helper()
	instructions, err := json.Marshal(spec)
	require.NoError(t, err)
	var out bytes.Buffer
	require.NoError(t, Run(t.Context(), bytes.NewReader(instructions), &out, system.Open))
	answers := json.NewDecoder(&out)
	for {
		var result Result
		require.NoError(t, answers.Decode(&result))
		if result.Point == nil {
			require.False(t, answers.More(), "the result is the last answer")
			return result
		}
		point(result.Point)
	}
}

func TestLifeOverBareHops(t *testing.T) {
	for _, sys := range []system.Name{system.Hops, system.HopsWire} {
		t.Run(string(sys), func(t *testing.T) { testLifeOverHops(t, sys) })
	}
}

func testLifeOverHops(t *testing.T, sys system.Name) {
	url := startNode(t, sys)
	for name, p := range map[string]Phase{
		"plain acks":     {Mode: ModeLife, Producers: 1, Consumers: 1, Window: 64, Count: 500},
		"confirmed acks": {Mode: ModeLife, Producers: 3, Consumers: 20, Window: 64, Count: 500, AckConfirmed: true},
		"paced":          {Mode: ModeLife, Producers: 2, Consumers: 1, Window: 64, Count: 100, Rate: 5000},
		"slow consumer":  {Mode: ModeLife, Producers: 1, Consumers: 1, Slow: 1, Window: 64, Count: 100},
	} {
		t.Run(name, func(t *testing.T) {
			result := runSpec(t, &Spec{System: sys, Access: system.Access{URL: url}, Payload: 64, Keys: 3, Gates: 2, Phases: []Phase{p}})
			require.Empty(t, result.Error)
			require.Empty(t, result.Notes)
			s := result.Sample
			require.GreaterOrEqual(t, s["messages"], float64(p.Count))
			require.Positive(t, s["rate"])
			require.InEpsilon(t, s["messages"]/s["seconds"], s["rate"], 1e-9)
			for _, metric := range []string{"confirm_p50_us", "confirm_p999_us", "deliver_p50_us", "deliver_p99_us"} {
				require.Positive(t, s[metric], metric)
			}
			_, late := s["late_p99_us"]
			require.Equal(t, p.Rate > 0, late, "only who has a pace can be late")
			require.NotContains(t, s, "server_cpu_us", "no server process was named")
			require.NotContains(t, s, "refused")
		})
	}
}

func TestEnqueueOverBareHops(t *testing.T) {
	url := startNode(t, system.Hops)
	result := runSpec(t, &Spec{System: system.Hops, Access: system.Access{URL: url}, Payload: 1000, Phases: []Phase{
		{Mode: ModeEnqueue, Producers: 2, Window: 32, Count: 300, DurationMs: 600_000},
		{Name: "bytes", Mode: ModeEnqueue, Producers: 1, Window: 32, DurationMs: 600_000, MaxBytes: 100_000},
	}})
	require.Empty(t, result.Error)
	require.GreaterOrEqual(t, result.Sample["messages"], 300.0)
	require.GreaterOrEqual(t, result.Sample["bytes_messages"], 100.0, "the bytes end it")
	require.NotContains(t, result.Sample, "deliver_p50_us")
}

// An empty queue, a backlog, a load on top of it, and its draining: nothing is left, and
// nothing is refused.
func TestBacklogOfJetStream(t *testing.T) {
	url := startNode(t, system.JetStream)
	spec := &Spec{System: system.JetStream, Access: system.Access{URL: url}, Queue: system.Queue{Name: "q"}, Payload: 128, Keys: 10, Phases: []Phase{
		{Name: "empty", Mode: ModeLife, Producers: 1, Consumers: 1, Window: 64, Count: 200, AckConfirmed: true},
		{Name: "fill", Mode: ModeFill, Producers: 3, Window: 64, Count: 1000},
		{Name: "backlog", Mode: ModeLife, Producers: 1, Consumers: 2, Window: 64, Count: 200, Drain: true, AckConfirmed: true},
	}}
	result := runSpec(t, spec)
	require.Empty(t, result.Error)
	require.Empty(t, result.Notes)
	require.EqualValues(t, 1000, result.Sample["fill_messages"], "exactly as many as were asked for")
	require.Positive(t, result.Sample["backlog_drain_rate"])
	require.Zero(t, heldBy(t, spec))

	spec.Keep, spec.Phases = true, spec.Phases[1:2]
	require.Empty(t, runSpec(t, spec).Error, "Keep uses what is there")
	require.EqualValues(t, 1000, heldBy(t, spec))

	require.NoError(t, AllThere(t.Context(), spec))
	spec.Phases[0].Count++
	require.ErrorContains(t, AllThere(t.Context(), spec), "of 1001 confirmed messages 1000 are there")

	spec.Remove = true
	require.Empty(t, runSpec(t, spec).Error)
	nc, err := nats.Connect(url)
	require.NoError(t, err)
	defer nc.Close()
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	_, err = js.Stream(t.Context(), "q")
	require.ErrorIs(t, err, jetstream.ErrStreamNotFound)
}

// Batches are confirmed as a whole, also the last one, which is not full.
func TestBatchesOfJetStream(t *testing.T) {
	for _, sys := range []system.Name{system.JetStreamFast, system.JetStreamBatch, system.JetStreamBatchSync} {
		t.Run(string(sys), func(t *testing.T) {
			spec := &Spec{System: sys, Access: system.Access{URL: startNode(t, sys)}, Queue: system.Queue{Name: "q"}, Payload: 64, Keys: 3, Phases: []Phase{
				{Name: "lives", Mode: ModeLife, Producers: 2, Consumers: 2, Window: 64, Count: 200},
				{Name: "one", Mode: ModeLife, Producers: 1, Consumers: 1, Window: 1, Count: 5},
				{Name: "fill", Mode: ModeFill, Producers: 1, Window: 64, Count: 1001},
			}}
			result := runSpec(t, spec)
			require.Empty(t, result.Error)
			require.Empty(t, result.Notes)
			require.EqualValues(t, 1001, result.Sample["fill_messages"])
			require.EqualValues(t, 1001, heldBy(t, spec))
		})
	}
}

// A stream that refuses batches refuses all messages of each.
func TestRefusedBatches(t *testing.T) {
	for _, sys := range []system.Name{system.JetStreamFast, system.JetStreamBatch} {
		t.Run(string(sys), func(t *testing.T) {
			spec := &Spec{System: system.JetStream, Access: system.Access{URL: startNode(t, sys)}, Queue: system.Queue{Name: "q"}, Payload: 64, Phases: []Phase{
				{Mode: ModeEnqueue, Producers: 1, Window: 64, Count: 1},
			}}
			require.Empty(t, runSpec(t, spec).Error)
			spec.System, spec.Keep, spec.Phases[0].Count = sys, true, 10_000
			require.Contains(t, runSpec(t, spec).Error, "messages refused: ")
		})
	}
}

func heldBy(t *testing.T, spec *Spec) int64 {
	t.Helper()
	target, err := system.Open(spec.System, &spec.Access, spec.queue(), func(err error) { t.Error(err) })
	require.NoError(t, err)
	defer target.Close()
	held, err := target.Held(t.Context())
	require.NoError(t, err)
	return held.Messages
}

// A second load runs at a share of the first one's rate, and some of its messages fail once; all
// messages are accounted for.
func TestFollowedLifeOfJetStream(t *testing.T) {
	url := startNode(t, system.JetStream)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "store"), make([]byte, 1<<20), 0o600))
	spec := &Spec{System: system.JetStream, Access: system.Access{URL: url}, Queue: system.Queue{Name: "q"}, Payload: 64, Keys: 3, DataDir: dir, Phases: []Phase{
		{Name: "max", Mode: ModeLife, Producers: 2, Consumers: 2, Window: 32, Count: 300},
		{Mode: ModeLife, Producers: 2, Consumers: 2, Window: 32, DurationMs: 300, Share: 0.2, Follow: true, NackEvery: 10, SampleMs: 100},
	}}
	var points []measure.Sample
	result := runSpecWith(t, spec, func(p measure.Sample) { points = append(points, p) })
	require.Empty(t, result.Error)
	require.Empty(t, result.Notes)
	s := result.Sample
	require.InEpsilon(t, 0.2*s["max_rate"], s["target_rate"], 1e-9)
	require.Positive(t, s["nacked_messages"])
	require.Zero(t, s["stray_deliveries"])
	require.NotEmpty(t, points)
	sum, slowest := 0.0, 0.0
	for _, p := range points {
		sum, slowest = sum+p["messages"], max(slowest, p["deliver_p99_us"])
		require.EqualValues(t, 1, p["files_mb"])
		require.Contains(t, p, "queue_messages")
		require.Positive(t, p["seconds"])
	}
	require.LessOrEqual(t, sum, s["accounted_messages"])
	require.Positive(t, slowest) // a busy machine may deliver nothing within one point
}

func TestLoadSaysWhatWasWrong(t *testing.T) {
	url := startNode(t, system.Hops)
	life := Phase{Mode: ModeLife, Producers: 1, Consumers: 1, Window: 8, Count: 10}
	for name, tc := range map[string]struct {
		change func(s *Spec)
		want   string
	}{
		"no phases":      {func(s *Spec) { s.Phases = nil }, "no phases"},
		"small payload":  {func(s *Spec) { s.Payload = 3 }, "payload of 3 bytes"},
		"mode":           {func(s *Spec) { s.Phases[0].Mode = "dance" }, `mode "dance"`},
		"producers":      {func(s *Spec) { s.Phases[0].Producers = 0 }, "0 producers"},
		"consumers":      {func(s *Spec) { s.Phases[0].Consumers = 0 }, "0 consumers"},
		"window":         {func(s *Spec) { s.Phases[0].Producers = 9 }, "a window of 8 for 9 producers"},
		"endless":        {func(s *Spec) { s.Phases[0].Count = 0 }, "it would not end"},
		"nothing shared": {func(s *Spec) { s.Phases[0].Share = 0.5 }, "phase 1 has none before it"},
		"fills are not":  {func(s *Spec) { s.Phases[0].Mode, s.Phases[0].Follow = ModeFill, true }, "only whole lives"},
		"named points":   {func(s *Spec) { s.Phases[0].SampleMs, s.Phases[0].Name = 1, "x" }, "no phase in their names"},
		"unseen nacks":   {func(s *Spec) { s.Phases[0].NackEvery = 2 }, "must follow the messages"},
		"system":         {func(s *Spec) { s.System = "abacus" }, `system "abacus"`},
		"no server":      {func(s *Spec) { s.Access.URL = "nats://127.0.0.1:1" }, "connect to NATS"},
		"no fila":        {func(s *Spec) { s.System, s.Queue.Name = system.Fila, "q" }, "no fila listens"},
		"no jetstream":   {func(s *Spec) { s.System, s.Queue.Name = system.JetStream, "q" }, "create the stream"},
		"nobody answers": {func(s *Spec) {
			s.System, s.Queue.Name, s.Keep = system.Fila, "q", true
			s.Phases[0].Mode = ModeEnqueue
		}, "messages refused: "},
	} {
		t.Run(name, func(t *testing.T) {
			spec := &Spec{System: system.Hops, Access: system.Access{URL: url}, Payload: 64, Phases: []Phase{life}}
			tc.change(spec)
			result := runSpec(t, spec)
			require.Contains(t, result.Error, tc.want)
			require.Empty(t, result.Sample)
		})
	}
	require.Error(t, Run(t.Context(), bytes.NewReader([]byte(`{"sistem":1}`)), &bytes.Buffer{}, system.Open))
}

func TestInterruptedLoadEnds(t *testing.T) {
	url := startNode(t, system.Hops)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	spec := &Spec{System: system.Hops, Access: system.Access{URL: url}, Payload: 64, Phases: []Phase{
		{Mode: ModeLife, Producers: 1, Consumers: 1, Window: 8, DurationMs: 3_600_000},
	}}
	require.Contains(t, newEngine(spec, system.Open).result(ctx).Error, "context canceled")
}

func TestShareDividesEvenly(t *testing.T) {
	for _, tc := range []struct{ n, parts int }{{1024, 1}, {1024, 8}, {1024, 1000}, {10, 3}} {
		sum := 0
		for i := range tc.parts {
			one := share(tc.n, tc.parts, i)
			require.Contains(t, []int{tc.n / tc.parts, tc.n/tc.parts + 1}, one)
			sum += one
		}
		require.Equal(t, tc.n, sum)
	}
	require.Equal(t, 1, share(2, 5, 4), "nobody goes without")
}

func TestMessagesAreDueOneAfterTheOther(t *testing.T) {
	p := &Phase{Rate: 1000}
	require.EqualValues(t, 5, p.due(5, 0))
	require.EqualValues(t, 7e6+5, p.due(5, 7))
	require.EqualValues(t, 24*3600e9, p.due(0, 24*3600*1000), "without drift")
	require.Zero(t, (&Phase{}).due(5, 7))
}

func TestPhaseEndsByWhatComesFirst(t *testing.T) {
	start := time.Now()
	over := func(p *Phase, after time.Duration, n int64, payload int) bool {
		return p.over(counts{at: start}, counts{at: start.Add(after), confirmed: n, finished: n}, payload)
	}
	p := &Phase{Mode: ModeLife, Count: 100, DurationMs: 1000, MaxBytes: 5000}
	require.False(t, over(p, 0, 10, 10))
	require.True(t, over(p, 0, 100, 10))
	require.True(t, over(p, 1e9, 10, 10))
	require.True(t, over(p, 0, 50, 100))
	require.False(t, over(p.warmUp(), 1, 19, 10))
	require.True(t, over(p.warmUp(), 1, 20, 10))
	require.True(t, over(p.warmUp(), 2e8, 1, 10))
	require.True(t, over(p.warmUp(), 1, 10, 100))
	tiny := &Phase{Mode: ModeLife, Count: 3}
	require.True(t, over(tiny.warmUp(), 0, 1, 10), "a warm-up of less than one message would never end")
	fill := &Phase{Mode: ModeFill, Count: 100, DurationMs: 1}
	require.False(t, over(fill, 1e12, 99, 10), "a backlog is filled, however long it takes")
	require.Nil(t, fill.warmUp())
}

func TestLedgerSeesALossBesideADuplicate(t *testing.T) {
	var l ledger
	for n := range int64(5) {
		l.open(n)
	}
	require.Equal(t, turnToNack, l.delivered(0, 4))
	require.Equal(t, turnNacked, l.delivered(0, 4), "nacked once only")
	require.Equal(t, turnOnly, l.delivered(1, 4))
	require.Equal(t, turnStray, l.delivered(1, 4))
	require.Equal(t, turnStray, l.delivered(77, 4))
	require.Equal(t, turnOnly, l.delivered(4, 0), "0 is no nacks")
	require.Equal(t, ledgerSums{opened: 5, nacked: 1, strays: 2, open: 2}, l.sums())
}

func TestAccountOfALoss(t *testing.T) {
	c := newCrew(newEngine(&Spec{}, nil), &Phase{Follow: true})
	var err error
	c.e.target, err = system.Open(system.Hops, &system.Access{URL: startNode(t, system.Hops)}, &system.Queue{}, func(error) {})
	require.NoError(t, err)
	defer c.e.target.Close()
	c.ledger.open(1)
	into := measure.Sample{}
	require.ErrorContains(t, c.account(t.Context(), 0, into), "messages: 1, refused: 0, not come to their end: 1")
	require.NoError(t, c.account(t.Context(), 1, into), "what was refused need not come")
	require.Zero(t, into["accounted_messages"])
}

func TestSizeOfADirectory(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "a", "b"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "x"), make([]byte, 100), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a", "b", "y"), make([]byte, 23), 0o600))
	size, err := sizeOf(dir)
	require.NoError(t, err)
	require.EqualValues(t, 123, size)
	_, err = sizeOf(filepath.Join(dir, "nothing"))
	require.ErrorIs(t, err, os.ErrNotExist)
}
