package report

import (
	"time"

	"github.com/filaq/fila/bench/measure"
	"github.com/filaq/fila/bench/system"
)

// A soak is one long load below the maximum. It shows whether the server is as fast and as
// small in its last third as in its first.

// SoakDuration is the time that a verdict about a soak needs.
const SoakDuration = 30 * time.Minute

// Figures of a third start with its name: first_rate, last_rate.
const (
	FirstThird = "first_"
	LastThird  = "last_"
)

// Columns of a soak.
var (
	// SoakColumns are figures of the whole soak.
	SoakColumns = []Column{
		{"maximum/s", "max_rate", Thousands},
		{"asked for/s", "target_rate", Thousands},
		{"msgs/s", "rate", Thousands},
		{"messages", "accounted_messages", Thousands},
		{"nacked", "nacked_messages", Thousands},
		{"strays", "stray_deliveries", Thousands},
		{"deliver p99", "deliver_p99_us", latency},
		{"p99.9", "deliver_p999_us", latency},
		{"max", "deliver_max_us", latency},
		{"server CPU/msg", "server_cpu_us", latency},
		{"others' CPUs", "others_cpus", decimals},
	}
	// SteadyColumns are figures of intervals of a soak, compared between the first
	// and the last third.
	SteadyColumns = []Column{
		{"msgs/s", "rate", Thousands},
		{"confirm p50", "confirm_p50_us", latency},
		{"confirm p99", "confirm_p99_us", latency},
		{"deliver p50", "deliver_p50_us", latency},
		{"deliver p99", "deliver_p99_us", latency},
		{"published late, p99", "late_p99_us", latency},
		{"server RSS", "server_rss_mb", mebibytes},
		{"of it not mapped files", "server_anon_mb", mebibytes},
		{"files", "files_mb", mebibytes},
		{"live bytes", "queue_mb", mebibytes},
		{"messages in the queue", "queue_messages", Thousands},
		{"server CPUs", "server_cpus", decimals},
		{"others' CPUs", "others_cpus", decimals},
	}
)

// SoakGoals are the goals of the last third against the first.
func SoakGoals() []Goal {
	const steadiness = 1.1
	goals := []Goal{{Text: "rate / the rate asked for", Metric: "rate", To: system.Fila, ToMetric: "target_rate"}}
	for _, g := range []Goal{
		{Text: "rate", Metric: "rate"},
		{Text: "deliver p50", Metric: "deliver_p50_us"},
		{Text: "deliver p99", Metric: "deliver_p99_us", AtMost: steadiness},
		{Text: "confirm p99", Metric: "confirm_p99_us", AtMost: steadiness},
		{Text: "RSS", Metric: "server_rss_mb", AtMost: steadiness},
		{Text: "files", Metric: "files_mb", AtMost: steadiness},
	} {
		g.Text += ", last third / first third"
		g.To, g.ToMetric, g.Metric = system.Fila, FirstThird+g.Metric, LastThird+g.Metric
		goals = append(goals, g)
	}
	return goals
}

// Thirds returns the medians of the first and of the last third of the intervals.
func Thirds(series []measure.Sample) measure.Sample {
	third := len(series) / 3
	found := measure.Sample{}
	for prefix, part := range map[string][]measure.Sample{FirstThird: series[:third], LastThird: series[len(series)-third:]} {
		for _, c := range SteadyColumns {
			if s, ok := measure.Summarize(measure.Values(part, c.Metric)); ok {
				found[prefix+c.Metric] = s.Median
			}
		}
	}
	return found
}

// steadyRows returns the table of a soak's thirds.
func (l *Lane) steadyRows() [][]string {
	rows := [][]string{{"case", "median of the intervals", "first third", "last third", "last / first"}}
	for _, c := range SteadyColumns {
		first, okFirst := l.Figures[FirstThird+c.Metric]
		last, okLast := l.Figures[LastThird+c.Metric]
		if !okFirst || !okLast {
			continue
		}
		quotient := "-"
		if first.Median > 0 {
			quotient = decimals(last.Median / first.Median)
		}
		rows = append(rows, []string{l.Case, c.Title, c.Show(first.Median), c.Show(last.Median), quotient})
	}
	return rows
}
