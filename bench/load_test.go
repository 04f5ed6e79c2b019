package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/wire"
)

func runSpec(t *testing.T, spec *loadSpec) loadResult {
	t.Helper()
	return runSpecWith(t, spec, func(Sample) { t.Error("an interval nobody asked for") })
}

func runSpecWith(t *testing.T, spec *loadSpec, point func(Sample)) loadResult {
	t.Helper()
	instructions, err := json.Marshal(spec)
	require.NoError(t, err)
	var out bytes.Buffer
	require.NoError(t, RunLoad(t.Context(), bytes.NewReader(instructions), &out))
	result, err := readAnswers(&out, point)
	require.NoError(t, err)
	return result
}

func TestLifeOverBareHops(t *testing.T) {
	for _, sys := range []system{sysHops, sysHopsWire} {
		t.Run(string(sys), func(t *testing.T) { testLifeOverHops(t, sys) })
	}
}

func testLifeOverHops(t *testing.T, sys system) {
	url := startNode(t, sys)
	for name, p := range map[string]phase{
		"plain acks":     {Mode: modeLife, Producers: 1, Consumers: 1, Window: 64, Count: 500},
		"confirmed acks": {Mode: modeLife, Producers: 3, Consumers: 20, Window: 64, Count: 500, AckConfirmed: true},
		"paced":          {Mode: modeLife, Producers: 2, Consumers: 1, Window: 64, Count: 100, Rate: 5000},
		"slow consumer":  {Mode: modeLife, Producers: 1, Consumers: 1, Slow: 1, Window: 64, Count: 100},
	} {
		t.Run(name, func(t *testing.T) {
			result := runSpec(t, &loadSpec{System: sys, Access: Access{URL: url}, Payload: 64, Keys: 3, Gates: 2, Phases: []phase{p}})
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
	url := startNode(t, sysHops)
	result := runSpec(t, &loadSpec{System: sysHops, Access: Access{URL: url}, Payload: 1000, Phases: []phase{
		{Mode: modeEnqueue, Producers: 2, Window: 32, Count: 300, DurationMs: 600_000},
		{Name: "bytes", Mode: modeEnqueue, Producers: 1, Window: 32, DurationMs: 600_000, MaxBytes: 100_000},
	}})
	require.Empty(t, result.Error)
	require.GreaterOrEqual(t, result.Sample["messages"], 300.0)
	require.GreaterOrEqual(t, result.Sample["bytes_messages"], 100.0, "the bytes end it")
	require.NotContains(t, result.Sample, "deliver_p50_us")
}

// An empty queue, a backlog, whole lives on top of it, and its draining: nothing
// is left in the end, and nothing was refused.
func TestBacklogOfJetStream(t *testing.T) {
	url := startNode(t, sysJS)
	spec := &loadSpec{System: sysJS, Access: Access{URL: url}, Queue: "q", Payload: 128, Keys: 10, Phases: []phase{
		{Name: "empty", Mode: modeLife, Producers: 1, Consumers: 1, Window: 64, Count: 200, AckConfirmed: true},
		{Name: "fill", Mode: modeFill, Producers: 3, Window: 64, Count: 1000},
		{Name: "backlog", Mode: modeLife, Producers: 1, Consumers: 2, Window: 64, Count: 200, Drain: true, AckConfirmed: true},
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

	require.NoError(t, allThere(t.Context(), spec))
	spec.Phases[0].Count++
	require.ErrorContains(t, allThere(t.Context(), spec), "of 1001 confirmed messages 1000 are there")

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

func heldBy(t *testing.T, spec *loadSpec) int64 {
	t.Helper()
	nc, err := spec.Access.connect("test")
	require.NoError(t, err)
	defer nc.Close()
	target, err := newTarget(spec, nc)
	require.NoError(t, err)
	held, err := target.held(t.Context())
	require.NoError(t, err)
	return held.messages
}

// A load whose rate is a share of what was reached before, some of whose messages
// fail once, and all of which are accounted for.
func TestFollowedLifeOfJetStream(t *testing.T) {
	url := startNode(t, sysJS)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "store"), make([]byte, 1<<20), 0o600))
	spec := &loadSpec{System: sysJS, Access: Access{URL: url}, Queue: "q", Payload: 64, Keys: 3, DataDir: dir, Phases: []phase{
		{Name: "max", Mode: modeLife, Producers: 2, Consumers: 2, Window: 32, Count: 300},
		{Mode: modeLife, Producers: 2, Consumers: 2, Window: 32, DurationMs: 300, Share: 0.2, Follow: true, NackEvery: 10, SampleMs: 100},
	}}
	var points []Sample
	result := runSpecWith(t, spec, func(p Sample) { points = append(points, p) })
	require.Empty(t, result.Error)
	require.Empty(t, result.Notes)
	s := result.Sample
	require.InEpsilon(t, 0.2*s["max_rate"], s["target_rate"], 1e-9)
	require.Positive(t, s["nacked_messages"])
	require.Zero(t, s["stray_deliveries"])
	require.NotEmpty(t, points)
	sum := 0.0
	for _, p := range points {
		sum += p["messages"]
		require.EqualValues(t, 1, p["files_mb"])
		require.Contains(t, p, "queue_messages")
		require.Positive(t, p["seconds"])
	}
	require.LessOrEqual(t, sum, s["accounted_messages"])
	require.Positive(t, points[0]["deliver_p99_us"])
}

func TestLoadSaysWhatWasWrong(t *testing.T) {
	url := startNode(t, sysHops)
	life := phase{Mode: modeLife, Producers: 1, Consumers: 1, Window: 8, Count: 10}
	for name, tc := range map[string]struct {
		change func(s *loadSpec)
		want   string
	}{
		"no phases":      {func(s *loadSpec) { s.Phases = nil }, "no phases"},
		"small payload":  {func(s *loadSpec) { s.Payload = 3 }, "payload of 3 bytes"},
		"mode":           {func(s *loadSpec) { s.Phases[0].Mode = "dance" }, `mode "dance"`},
		"producers":      {func(s *loadSpec) { s.Phases[0].Producers = 0 }, "0 producers"},
		"consumers":      {func(s *loadSpec) { s.Phases[0].Consumers = 0 }, "0 consumers"},
		"window":         {func(s *loadSpec) { s.Phases[0].Producers = 9 }, "a window of 8 for 9 producers"},
		"endless":        {func(s *loadSpec) { s.Phases[0].Count = 0 }, "it would not end"},
		"nothing shared": {func(s *loadSpec) { s.Phases[0].Share = 0.5 }, "phase 1 has none before it"},
		"fills are not":  {func(s *loadSpec) { s.Phases[0].Mode, s.Phases[0].Follow = modeFill, true }, "only whole lives"},
		"named points":   {func(s *loadSpec) { s.Phases[0].SampleMs, s.Phases[0].Name = 1, "x" }, "no phase in their names"},
		"unseen nacks":   {func(s *loadSpec) { s.Phases[0].NackEvery = 2 }, "must follow the messages"},
		"system":         {func(s *loadSpec) { s.System = "abacus" }, `system "abacus"`},
		"no server":      {func(s *loadSpec) { s.Access.URL = "nats://127.0.0.1:1" }, "connect to NATS"},
		"no fila":        {func(s *loadSpec) { s.System, s.Queue = sysFila, "q" }, "no fila listens"},
		"no jetstream":   {func(s *loadSpec) { s.System, s.Queue = sysJS, "q" }, "create the stream"},
		"nobody answers": {func(s *loadSpec) {
			s.System, s.Queue, s.Keep = sysFila, "q", true
			s.Phases[0].Mode = modeEnqueue
		}, "messages were refused"},
	} {
		t.Run(name, func(t *testing.T) {
			spec := &loadSpec{System: sysHops, Access: Access{URL: url}, Payload: 64, Phases: []phase{life}}
			tc.change(spec)
			result := runSpec(t, spec)
			require.Contains(t, result.Error, tc.want)
			require.Empty(t, result.Sample)
		})
	}
	require.Error(t, RunLoad(t.Context(), bytes.NewReader([]byte(`{"sistem":1}`)), &bytes.Buffer{}))
}

func TestInterruptedLoadEnds(t *testing.T) {
	url := startNode(t, sysHops)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	spec := &loadSpec{System: sysHops, Access: Access{URL: url}, Payload: 64, Phases: []phase{
		{Mode: modeLife, Producers: 1, Consumers: 1, Window: 8, DurationMs: 3_600_000},
	}}
	require.Contains(t, newEngine(spec).result(ctx).Error, "context canceled")
}

func TestNodeRefusesUnknownKinds(t *testing.T) {
	require.ErrorContains(t, RunNode(t.Context(), "fila", t.TempDir(), &bytes.Buffer{}), `node "fila" is not known`)
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

func TestPaceSpreadsMessagesOfAllProducers(t *testing.T) {
	var due []int64
	for index := range 4 {
		p := newPace(1000, 4, index, 0)
		for n := range int64(3) {
			due = append(due, p.due(n))
		}
	}
	require.ElementsMatch(t, []int64{0, 1e6, 2e6, 3e6, 4e6, 5e6, 6e6, 7e6, 8e6, 9e6, 10e6, 11e6}, due)
	require.Zero(t, newPace(0, 1, 0, 5).due(7))
}

func TestPhaseEndsByWhatComesFirst(t *testing.T) {
	p := phase{Mode: modeLife, Count: 100, DurationMs: 1000, MaxBytes: 5000}
	require.False(t, p.over(0, 10, 10))
	require.True(t, p.over(0, 100, 10))
	require.True(t, p.over(1e9, 10, 10))
	require.True(t, p.over(0, 50, 100))
	warm := p.warmUp(10)
	require.False(t, warm(1, 19))
	require.True(t, warm(1, 20))
	require.True(t, warm(2e8, 1))
	require.True(t, p.warmUp(100)(1, 10))
	tiny := phase{Mode: modeLife, Count: 3}
	require.True(t, tiny.warmUp(10)(0, 1), "a warm-up of less than one message would never end")
	fill := phase{Mode: modeFill, Count: 100, DurationMs: 1}
	require.False(t, fill.over(1e12, 99, 10), "a backlog is filled, however long it takes")
	require.Nil(t, fill.warmUp(10))
}

// What hops-wire sends looks like a delivery of fila.
func TestImitationIsAsLongAsADelivery(t *testing.T) {
	nc, err := nats.Connect(startNode(t, sysHopsWire))
	require.NoError(t, err)
	defer nc.Close()
	sub, err := nc.SubscribeSync(hopsDeliver)
	require.NoError(t, err)
	m := nats.NewMsg(hopsEnqueue)
	m.Header.Set(keyHeader, "7")
	m.Data = []byte("payload")
	_, err = nc.RequestMsgWithContext(t.Context(), m)
	require.NoError(t, err)
	got, err := sub.NextMsgWithContext(t.Context())
	require.NoError(t, err)
	require.Equal(t, "payload", string(got.Data))
	require.Equal(t, "7", got.Header.Get(keyHeader))
	require.Len(t, got.Header.Get(wire.HeaderID), 36)
	require.Len(t, got.Header, 7)
	token := strings.Split(got.Reply, ".")[3]
	signer, err := wire.NewSigner(make([]byte, 32))
	require.NoError(t, err)
	require.Len(t, token, len(signer.Append(nil, "q", wire.Token{Seq: 1})))
	reply, err := nc.RequestWithContext(t.Context(), got.Reply, nil)
	require.NoError(t, err)
	require.Empty(t, reply.Data)
}
