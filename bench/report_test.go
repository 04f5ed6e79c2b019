package bench

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// sampleReport has three rounds of two systems and a failure.
func sampleReport() *Report {
	w := &workload{
		name: "life", about: "whole lives", columns: join(rateColumn, deliverColumns, costColumns),
		base: sameCase(sysHops), baseText: "hops",
		goals: []goal{
			{text: "fila / hops", of: figure{sysFila, "rate"}, to: figure{sysHops, "rate"}, atLeast: 0.8},
			{text: "p50 - hops", of: figure{sysFila, "deliver_p50_us"}, to: figure{sysHops, "deliver_p50_us"}, subtract: true},
			{text: "fila", of: figure{sysFila, "deliver_p50_us"}, atMost: 99},
			{text: "fila / other case", of: figure{sysFila, "rate"}, to: figure{sysFila, "rate"}, toCase: "elsewhere", atLeast: 1},
			{text: "other case", fits: ending("elsewhere"), of: figure{sysFila, "rate"}},
		},
	}
	report := &Report{
		Settings:    Settings{Rounds: 3, DurationMs: 1500, Payload: 1024, Backlog: 1_000_000},
		Environment: Environment{Fila: "1.2.3", NATSServer: "2", Go: "go1", Platform: "linux/amd64", CPUs: 2, GOGC: "400", SyncUs: 312},
		Workloads: []WorkloadReport{{Name: w.name, About: w.about, of: w, Lanes: []LaneReport{
			{Case: "1 <&> 1", System: "fila"}, {Case: "1 <&> 1", System: "hops"}, {Case: "1 <&> 1", System: "jetstream"},
		}}},
	}
	lanes := report.Workloads[0].Lanes
	for i, rate := range []float64{100_000, 50_000, 20_000} {
		lanes[0].add(Sample{"rate": rate * 0.9, "deliver_p50_us": 110, "server_cpu_us": math.NaN()}, []string{"NATS: slow"}, nil)
		lanes[1].add(Sample{"rate": rate, "deliver_p50_us": 100, "others_cpus": float64(i)}, nil, nil)
	}
	lanes[2].add(nil, nil, errors.New("it ended:\nno disk"))
	report.conclude()
	return report
}

func TestConclude(t *testing.T) {
	r := sampleReport()
	lanes := r.Workloads[0].Lanes
	require.Equal(t, Summary{Median: 45_000, Min: 18_000, Max: 90_000, Rounds: 3}, lanes[0].Figures["rate"])
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
	r.conclude()
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
	r.conclude()
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
	var rects []struct{ width, fill string }
	var texts []string
	dec := xml.NewDecoder(strings.NewReader(b.String()))
	for {
		token, err := dec.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err, "it is well-formed")
		switch token := token.(type) {
		case xml.StartElement:
			if token.Name.Local == "rect" {
				var r struct{ width, fill string }
				for _, a := range token.Attr {
					switch a.Name.Local {
					case "width":
						r.width = a.Value
					case "fill":
						r.fill = a.Value
					}
				}
				rects = append(rects, r)
			}
		case xml.CharData:
			if text := strings.TrimSpace(string(token)); text != "" {
				texts = append(texts, text)
			}
		}
	}
	require.Equal(t, []string{
		"fila bench: medians of 3 rounds, linux/amd64, 2 CPUs", "life: msgs/s",
		"1 <&> 1 · fila", "45,000 (0.90 of hops)", "1 <&> 1 · hops", "50,000",
	}, texts)
	require.Len(t, rects, 3, "the background and two bars; what failed has none")
	require.Equal(t, "351.0", rects[1].width)
	require.Equal(t, "390.0", rects[2].width, "the largest takes all the room")
	require.NotEqual(t, rects[1].fill, rects[2].fill)
}

func TestNumbersForPeople(t *testing.T) {
	for want, got := range map[string]string{
		"0": thousands(0.2), "999": thousands(999), "1,000": thousands(999.6), "1,234,567": thousands(1234567), "-12,345": thousands(-12345),
		"0.50 µs": latency(0.5), "12.3 µs": latency(12.34), "999 µs": latency(999), "1.00 ms": latency(999.9), "23.5 ms": latency(23_456),
		"1.00 s": latency(999_900), "61.0 s": latency(61e6), "155 ms": milliseconds(155), "51.2 MiB": mebibytes(51.23), "1,024 MiB": mebibytes(1024),
	} {
		require.Equal(t, want, got)
	}
}

func TestPerMessageBytes(t *testing.T) {
	s := Sample{"tenth_server_anon_mb": 100, "full_server_anon_mb": 200, "full_messages": 1 << 20, "tenth_messages": 1 << 16}
	perMessage(s, 1024)
	require.EqualValues(t, 100, s["per_message_bytes"])
	delete(s, "per_message_bytes")
	perMessage(s, 1023)
	require.NotContains(t, s, "per_message_bytes", "the caches were not full")
	s = Sample{"full_server_anon_mb": 200}
	perMessage(s, 1024)
	require.Len(t, s, 1)
}

func TestReadyURL(t *testing.T) {
	url, ok := readyURL("fila is ready: nats=nats://127.0.0.1:4222 http=off data_dir=/x")
	require.True(t, ok)
	require.Equal(t, "nats://127.0.0.1:4222", url)
	for _, line := range []string{"level=WARN msg=hm nats=nats://x", "fila is ready: http=off"} {
		_, ok := readyURL(line)
		require.False(t, ok, line)
	}
}

func TestEnvironmentOfChildren(t *testing.T) {
	require.Equal(t, []string{"HOME=/x", "GOGC=400"}, environment([]string{"HOME=/x", "FILA_LOG__LEVEL=debug"}, false))
	require.Equal(t, []string{"GOGC=50"}, environment([]string{"GOGC=50"}, false), "who names one gets it")
	require.Empty(t, environment([]string{"FILA_X=1"}, true))
}

func TestLastLines(t *testing.T) {
	var l lastLines
	require.Equal(t, "it printed nothing", l.String())
	for _, line := range strings.Split("abcdefg", "") {
		l.add(line)
	}
	require.Equal(t, "c; d; e; f; g", l.String())
}

func TestDescribe(t *testing.T) {
	env, err := describe("1.0.0", t.TempDir())
	require.NoError(t, err)
	require.Positive(t, env.SyncUs)
	require.Positive(t, env.CPUs)
	_, err = describe("1.0.0", "/does/not/exist")
	require.ErrorContains(t, err, "data directory")
}
