package report

import (
	"math"
	"strconv"
	"strings"

	"github.com/filaq/fila/bench/measure"
)

// Column is a figure in a table.
type Column struct {
	Title  string
	Metric string
	Show   func(float64) string
}

// percentiles are the columns of latencies of a kind.
func percentiles(kind string) []Column {
	return []Column{
		{kind + " p50", kind + "_p50_us", latency},
		{"p99", kind + "_p99_us", latency},
		{"p99.9", kind + "_p999_us", latency},
	}
}

// Groups of columns that workloads have in common.
var (
	RateColumn     = []Column{{"msgs/s", "rate", Thousands}}
	FillColumn     = []Column{{"filling/s", "fill_rate", Thousands}}
	ConfirmColumns = percentiles("confirm")
	DeliverColumns = percentiles("deliver")
	CostColumns    = []Column{
		{"server CPU/msg", "server_cpu_us", latency},
		{"load CPU/msg", "load_cpu_us", latency},
		{"server CPU s", "server_cpu_s", decimals},
		{"load CPU s", "load_cpu_s", decimals},
		{"server RSS", "server_rss_mb", mebibytes},
		{"load RSS", "load_rss_mb", mebibytes},
		{"others' CPUs", "others_cpus", decimals},
	}
)

// Columns of single workloads.
var (
	BacklogColumns = []Column{
		{"empty/s", "empty_rate", Thousands},
		{"filling/s", "fill_rate", Thousands},
		{"with backlog/s", "backlog_rate", Thousands},
		{"draining/s", "backlog_drain_rate", Thousands},
		{"server CPU/msg, backlog", "backlog_server_cpu_us", latency},
		{"server RSS", "backlog_server_rss_mb", mebibytes},
	}
	QuietColumns = []Column{
		{"flood/s", "flood_rate", Thousands},
		{"writing and syncing 4 MiB", "commit_us", latency},
		{"confirm p99 in these", "confirm_p99_commits", decimals},
	}
	AdaptColumns = []Column{
		{"use, all time", "use", decimals},
		{"settled", "settled_use", decimals},
		{"lowest second", "lowest_use", decimals},
		{"refused, %", "refused_percent", decimals},
		{"back after", "back_s", func(s float64) string { return latency(s * 1e6) }},
	}
	MemoryColumns = []Column{
		{"idle", "idle_rss_mb", mebibytes},
		{"a tenth", "tenth_server_rss_mb", mebibytes},
		{"all", "full_server_rss_mb", mebibytes},
		{"of it not mapped files", "full_server_anon_mb", mebibytes},
		{"peak", "full_server_peak_rss_mb", mebibytes},
		{"bytes/msg", "per_message_bytes", Thousands},
	}
	RecoveryColumns = []Column{
		{"empty start", "start_ms", milliseconds},
		{"recovery", "recovery_ms", milliseconds},
		{"RSS after", "recovered_rss_mb", mebibytes},
		{"filling/s", "fill_rate", Thousands},
	}
	LatencyChart = []Column{
		{"publish to delivery, p50", "deliver_p50_us", latency},
		{"publish to delivery, p99", "deliver_p99_us", latency},
		{"confirmation, p50", "confirm_p50_us", latency},
	}
)

// Line prints the first n of the columns that a sample has.
func Line(columns []Column, s measure.Sample, n int) string {
	var parts []string
	for _, c := range columns {
		if v, ok := s[c.Metric]; ok && len(parts) < n {
			parts = append(parts, c.Title+" "+c.Show(v))
		}
	}
	return strings.Join(parts, ", ")
}

// Thousands prints a whole number with commas: 12,345.
func Thousands(v float64) string {
	digits := strconv.FormatInt(int64(math.Round(v)), 10)
	for at := len(digits) - 3; at > 0 && digits[at-1] != '-'; at -= 3 {
		digits = digits[:at] + "," + digits[at:]
	}
	return digits
}

// Counted prints a number of things: 1 round, 1,000 rounds.
func Counted(n int64, one string) string {
	if n != 1 {
		one += "s"
	}
	return Thousands(float64(n)) + " " + one
}

// latency prints microseconds with three digits and a unit.
func latency(us float64) string {
	switch {
	case us < 999.5:
		return digits3(us) + " µs"
	case us < 999_500:
		return digits3(us/1e3) + " ms"
	}
	return digits3(us/1e6) + " s"
}

func milliseconds(ms float64) string { return latency(ms * 1e3) }
func mebibytes(mb float64) string    { return digits3(mb) + " MiB" }
func decimals(v float64) string      { return strconv.FormatFloat(v, 'f', 2, 64) }
func shortest(v float64) string      { return strconv.FormatFloat(v, 'f', -1, 64) }

// digits3 prints a number with three digits where it has decimals, and whole
// numbers beyond.
func digits3(v float64) string {
	switch a := math.Abs(v); {
	case a < 9.995:
		return strconv.FormatFloat(v, 'f', 2, 64)
	case a < 99.95:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return Thousands(v)
}
