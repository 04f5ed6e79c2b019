package bench

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSoakOptions(t *testing.T) {
	o := Options{Workloads: []string{"soak"}}
	require.NoError(t, o.Complete())
	require.Equal(t, 30*time.Minute, o.Duration)
	require.Equal(t, 1, o.Rounds)
	again := o
	require.NoError(t, again.Complete(), "complete options stay so")
	require.Equal(t, o, again)

	quick := Options{Workloads: []string{"soak"}, Quick: true}
	require.NoError(t, quick.Complete())
	require.Equal(t, 3*time.Second, quick.Duration)
	require.Zero(t, quick.Count)

	for want, o := range map[string]Options{
		"takes the machine to itself: name it alone":    {Workloads: []string{"life", "soak"}},
		"rounds is 5: a soak is one long round":         {Rounds: 5},
		"count is 9: a soak goes by time":               {Count: 9},
		"duration is 20ms: allowed for a soak is 1s":    {Duration: 20 * time.Millisecond},
		`workload "soak" needs a server of its own, wh`: {Target: &Access{}},
	} {
		if o.Workloads == nil {
			o.Workloads = []string{"soak"}
		}
		require.ErrorContains(t, o.Complete(), want)
	}
}

func TestSoakRunsOnlyWhenItIsNamed(t *testing.T) {
	var o Options
	require.NoError(t, o.Complete())
	for _, w := range o.selected() {
		require.NotEqual(t, "soak", w.name)
	}
	o = Options{Workloads: []string{"soak"}}
	require.NoError(t, o.Complete())
	require.Len(t, o.selected(), 1)
	lanes := o.lanesOf(o.selected()[0])
	require.Len(t, lanes, 1)
	require.True(t, lanes[0].ownGC, "the server runs as its users run it")
	phases := lanes[0].spec.Phases
	require.EqualValues(t, 15_000, phases[0].DurationMs)
	require.EqualValues(t, 1_800_000, phases[1].DurationMs)
	require.EqualValues(t, 10_000, phases[1].SampleMs)
}

func TestIntervalsOfASoak(t *testing.T) {
	for whole, want := range map[time.Duration]time.Duration{
		30 * time.Minute: 10 * time.Second,
		time.Minute:      time.Second,
		6 * time.Second:  time.Second,
		3 * time.Second:  500 * time.Millisecond,
	} {
		require.Equal(t, want, soakEvery(whole), whole)
	}
}

func TestThirds(t *testing.T) {
	var series []Sample
	for i := range 10 {
		series = append(series, Sample{"rate": float64(i), "at_s": float64(i + 1)})
	}
	series[8]["files_mb"] = 7
	require.Equal(t, Sample{"first_rate": 1, "last_rate": 8, "last_files_mb": 7}, thirds(series))
	require.Empty(t, thirds(series[:2]), "two intervals have no thirds")
	require.Empty(t, thirds(nil))
}

// soakReport has six intervals, of which one has no latencies.
func soakReport() *Report {
	w := &workload{name: "soak", about: "a long load", columns: soakColumns, goals: soakGoals()}
	report := &Report{
		Settings:    Settings{Rounds: 1, DurationMs: 6000, Payload: 1024, Soak: true},
		Environment: Environment{Fila: "1.2.3", NATSServer: "2", Go: "go1", Platform: "linux/amd64", CPUs: 2, GOGC: "400"},
		Workloads:   []WorkloadReport{{Name: w.name, About: w.about, of: w, Lanes: []LaneReport{{Case: "70 % <&>", System: "fila"}}}},
	}
	l := &report.Workloads[0].Lanes[0]
	for i := range 6 {
		x := float64(i)
		l.Series = append(l.Series, Sample{
			"at_s": x + 1, "rate": 10_000, "deliver_p50_us": 500, "deliver_p99_us": 2000 + 100*x,
			"server_rss_mb": 100 + x, "files_mb": 0.02,
		})
	}
	delete(l.Series[3], "deliver_p99_us")
	l.add(mergeSamples(Sample{"rate": 10_000, "target_rate": 10_000, "max_rate": 14_000}, thirds(l.Series)), nil, nil)
	report.conclude()
	return report
}

func TestTableOfASoak(t *testing.T) {
	var b strings.Builder
	require.NoError(t, soakReport().WriteTable(&b))
	require.Equal(t, `fila 1.2.3, NATS server 2, go1, linux/amd64, 2 CPUs, GOGC 400
a soak of 6 s with messages of 1,024 bytes; the server collects garbage as it does by default
A quick run or a soak of less than 30 minutes: no figure of this is more than a hint.

soak: a long load
  case      system  maximum/s  asked for/s  msgs/s
  70 % <&>  fila       14,000       10,000  10,000

  case      median of the intervals  first third  last third  last / first
  70 % <&>  msgs/s                        10,000      10,000          1.00
  70 % <&>  deliver p50                   500 µs      500 µs          1.00
  70 % <&>  deliver p99                  2.05 ms     2.45 ms          1.20
  70 % <&>  server RSS                   101 MiB     105 MiB          1.04
  70 % <&>  files                       0.02 MiB    0.02 MiB          1.00

Ratios and goals (of medians; for goals: 2 CPUs, 1 KB, at least 30 minutes)
  workload  case      what                                   value  goal
  soak      70 % <&>  rate / the rate asked for               1.00  -
  soak      70 % <&>  rate, last third / first third          1.00  -
  soak      70 % <&>  deliver p50, last third / first third   1.00  -
  soak      70 % <&>  deliver p99, last third / first third   1.20  at most 1.1
  soak      70 % <&>  RSS, last third / first third           1.04  at most 1.1
  soak      70 % <&>  files, last third / first third         1.00  at most 1.1
`, b.String())
}

func TestLongSoaksAreJudged(t *testing.T) {
	r := soakReport()
	r.Settings.DurationMs = (30 * time.Minute).Milliseconds()
	r.conclude()
	verdicts := map[string]string{}
	for _, g := range r.Goals {
		verdicts[g.Text] = g.verdict()
	}
	require.Equal(t, "missed", verdicts["deliver p99, last third / first third"])
	require.Equal(t, "met", verdicts["RSS, last third / first third"])
	require.Empty(t, verdicts["rate / the rate asked for"])
	r.Settings.Quick = true
	require.False(t, r.Settings.judged())
}

func TestSeriesAreInTheJSON(t *testing.T) {
	data, err := json.Marshal(soakReport())
	require.NoError(t, err)
	var r Report
	require.NoError(t, json.Unmarshal(data, &r))
	require.Len(t, r.Workloads[0].Lanes[0].Series, 6)
	require.EqualValues(t, 105, r.Workloads[0].Lanes[0].Series[5]["server_rss_mb"])
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
	c := &crew{e: newEngine(&loadSpec{}), p: &phase{Follow: true}}
	c.e.target = hopsTarget{}
	c.ledger.open(1)
	into := Sample{}
	require.ErrorContains(t, c.account(t.Context(), 0, into), "of 1 messages 0 were refused and 1 have not come to their end")
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

func TestHistogramResetKeepsNothing(t *testing.T) {
	l := latencies{}
	var first, second histogram
	l.record(1000)
	l.moveTo(&first)
	l.record(5)
	l.moveTo(&second)
	require.EqualValues(t, 1, first.total)
	require.EqualValues(t, 1, second.total)
	require.EqualValues(t, 5, second.max)
	require.EqualValues(t, 5, second.percentile(1), "the interval before is not in it")
	l.moveTo(&second)
	require.EqualValues(t, 1, second.total)
}

func TestUndefinedFiguresAreDropped(t *testing.T) {
	s := Sample{"a": math.NaN(), "b": math.Inf(1), "c": 1}
	s.dropUndefined()
	require.Equal(t, Sample{"c": 1}, s)
	Sample(nil).dropUndefined()
}
