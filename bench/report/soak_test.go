package report

import (
	"encoding/json"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/bench/measure"
)

func TestThirds(t *testing.T) {
	var series []measure.Sample
	for i := range 10 {
		series = append(series, measure.Sample{"rate": float64(i), "at_s": float64(i + 1)})
	}
	series[8]["files_mb"] = 7
	require.Equal(t, measure.Sample{"first_rate": 1, "last_rate": 8, "last_files_mb": 7}, Thirds(series))
	require.Empty(t, Thirds(series[:2]), "two intervals have no thirds")
	require.Empty(t, Thirds(nil))
}

// soakReport has six intervals, of which one has no latencies.
func soakReport() *Report {
	w := &Workload{Name: "soak", About: "a long load", Columns: SoakColumns, Goals: SoakGoals()}
	report := &Report{
		Settings:    Settings{Rounds: 1, DurationMs: 6000, Payload: 1024, Soak: true},
		Environment: Environment{Fila: "1.2.3", NATSServer: "2", Go: "go1", Platform: "linux/amd64", CPUs: 2, GOGC: "400"},
		Workloads:   []Group{{Name: w.Name, About: w.About, of: w, Lanes: []Lane{{Case: "70 % <&>", System: "fila"}}}},
	}
	l := &report.Workloads[0].Lanes[0]
	for i := range 6 {
		x := float64(i)
		l.Series = append(l.Series, measure.Sample{
			"at_s": x + 1, "rate": 10_000, "deliver_p50_us": 500, "deliver_p99_us": 2000 + 100*x,
			"server_rss_mb": 100 + x, "files_mb": 0.02,
		})
	}
	delete(l.Series[3], "deliver_p99_us")
	whole := measure.Sample{"rate": 10_000, "target_rate": 10_000, "max_rate": 14_000}
	maps.Copy(whole, Thirds(l.Series))
	l.Add(whole, nil, nil)
	report.Conclude()
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
	r.Conclude()
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
