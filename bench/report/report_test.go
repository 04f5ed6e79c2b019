package report

import (
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/bench/measure"
	"github.com/filaq/fila/bench/system"
)

// sampleReport has three rounds of two systems and a failure.
func sampleReport() *Report {
	w := &Workload{
		Name: "life", About: "whole lives", Columns: slices.Concat(RateColumn, DeliverColumns, CostColumns),
		Base: Base{Text: "hops", System: system.Hops},
		Goals: []Goal{
			{Text: "fila / hops", Metric: "rate", To: system.Hops, AtLeast: 0.8},
			{Text: "p50 - hops", Metric: "deliver_p50_us", To: system.Hops, Subtract: true},
			{Text: "fila", Metric: "deliver_p50_us", AtMost: 99},
			{Text: "fila / other case", Metric: "rate", To: system.Fila, ToCase: "elsewhere", AtLeast: 1},
			{Text: "other case", Fits: "elsewhere", Metric: "rate"},
		},
	}
	report := &Report{
		Settings:    Settings{Rounds: 3, DurationMs: 1500, Payload: 1024, Backlog: 1_000_000},
		Environment: Environment{Fila: "1.2.3", NATSServer: "2", Go: "go1", Platform: "linux/amd64", CPUs: 2, GOGC: "400", SyncUs: 312},
		Workloads: []Group{{Name: w.Name, About: w.About, of: w, Lanes: []Lane{
			{Case: "1 <&> 1", System: "fila"}, {Case: "1 <&> 1", System: "hops"}, {Case: "1 <&> 1", System: "jetstream"},
		}}},
	}
	lanes := report.Workloads[0].Lanes
	for i, rate := range []float64{100_000, 50_000, 20_000} {
		lanes[0].Add(measure.Sample{"rate": rate * 0.9, "deliver_p50_us": 110, "server_cpu_us": math.NaN()}, []string{"NATS: slow"}, nil)
		lanes[1].Add(measure.Sample{"rate": rate, "deliver_p50_us": 100, "others_cpus": float64(i)}, nil, nil)
	}
	lanes[2].Add(nil, nil, errors.New("it ended:\nno disk"))
	report.Conclude()
	return report
}

func TestConclude(t *testing.T) {
	r := sampleReport()
	lanes := r.Workloads[0].Lanes
	require.Equal(t, measure.Summary{Median: 45_000, Min: 18_000, Max: 90_000, Rounds: 3}, lanes[0].Figures["rate"])
	require.NotContains(t, lanes[0].Figures, "server_cpu_us", "what is no number is left out")
	require.Equal(t, []string{"NATS: slow"}, lanes[0].Notes, "said once")
	require.InDelta(t, 0.9, lanes[0].Ratio.Min, 1e-9)
	require.InDelta(t, 0.9, lanes[0].Ratio.Max, 1e-9, "the machine got slower, the ratio did not")
	require.Nil(t, lanes[1].Ratio)
	require.Nil(t, lanes[2].Ratio)
	require.Equal(t, 1, r.Failures())

	require.Len(t, r.Goals, 3, "goals without figures are left out")
	for _, g := range r.Goals {
		require.Nil(t, g.Met, "three rounds are too few to judge")
	}
	require.EqualValues(t, 10, r.Goals[1].Value.Median)

	r.Settings.Rounds = 5
	r.Conclude()
	require.True(t, *r.Goals[0].Met)
	require.Nil(t, r.Goals[1].Met, "it is only shown")
	require.False(t, *r.Goals[2].Met)
	require.Equal(t, "met", r.Goals[0].verdict())
	require.Equal(t, "missed", r.Goals[2].verdict())
}

func TestTable(t *testing.T) {
	var b strings.Builder
	require.NoError(t, sampleReport().WriteTable(&b))
	require.Equal(t, `fila 1.2.3, NATS server 2, go1, linux/amd64, 2 CPUs, GOGC 400
3 rounds of 1.5 s for each figure, messages of 1,024 bytes, backlogs of 1,000,000 messages
writing and syncing 4 KiB takes 312 µs
WARNING: other processes of this machine used 1.00 of 2 CPUs meanwhile (median): absolute figures are too low, take ratios only.
A quick run or fewer than 5 rounds: no figure of this is more than a hint.

life: whole lives
  case     system     msgs/s              of hops  deliver p50  others' CPUs
  1 <&> 1  fila       45,000  0.90 (0.90 to 0.90)       110 µs             -
  1 <&> 1  hops       50,000                    -       100 µs          1.00
  1 <&> 1  jetstream       -                    -            -             -
  note on 1 <&> 1, fila: NATS: slow
  FAILED 1 <&> 1, jetstream: it ended: no disk

Ratios and goals (median of the rounds; for goals: 2 CPUs, 1 KB, at least 5 rounds)
  workload  case     what                       value  goal
  life      1 <&> 1  fila / hops  0.90 (0.90 to 0.90)  at least 0.8
  life      1 <&> 1  p50 - hops   10.0 (10.0 to 10.0)  -
  life      1 <&> 1  fila            110 (110 to 110)  at most 99
`, b.String())
}

func TestTableOfAnInterruptedRun(t *testing.T) {
	r := &Report{Settings: Settings{Rounds: 7, Count: 5000}, Environment: Environment{InMemory: true}, Interrupted: true}
	r.Conclude()
	var b strings.Builder
	require.NoError(t, r.WriteTable(&b))
	require.Contains(t, b.String(), "7 rounds of 5,000 messages")
	require.Contains(t, b.String(), "syncs cost nothing")
	require.Contains(t, b.String(), "Interrupted")
	require.NotContains(t, b.String(), "more than a hint")
	require.NotContains(t, b.String(), "goals")
	data, err := json.Marshal(r)
	require.NoError(t, err)
	require.Contains(t, string(data), `"goals":[]`)
}

func TestChart(t *testing.T) {
	var b strings.Builder
	require.NoError(t, sampleReport().Chart(&b))
	d := readDrawing(t, b.String())
	require.Equal(t, []string{
		"fila bench: medians of 3 rounds, linux/amd64, 2 CPUs", "life: msgs/s",
		"1 <&> 1 · fila", "45,000 (0.90 of hops)", "1 <&> 1 · hops", "50,000",
	}, d.texts)
	require.Len(t, d.bars, 3, "the background and two bars; what failed has none")
	require.Equal(t, "351.0", d.bars[1])
	require.Equal(t, "390.0", d.bars[2], "the largest takes all the room")
	require.NotEqual(t, d.fills[1], d.fills[2])
}

func TestNumbersForPeople(t *testing.T) {
	for want, got := range map[string]string{
		"0": Thousands(0.2), "999": Thousands(999), "1,000": Thousands(999.6), "1,234,567": Thousands(1234567), "-12,345": Thousands(-12345),
		"0.50 µs": latency(0.5), "12.3 µs": latency(12.34), "999 µs": latency(999), "1.00 ms": latency(999.9), "23.5 ms": latency(23_456),
		"1.00 s": latency(999_900), "61.0 s": latency(61e6), "155 ms": milliseconds(155), "51.2 MiB": mebibytes(51.23), "1,024 MiB": mebibytes(1024),
	} {
		require.Equal(t, want, got)
	}
}
