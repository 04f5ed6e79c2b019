package bench

import (
	"math"
	"slices"
	"strconv"
	"strings"
)

// column is a figure in a table.
type column struct {
	title  string
	metric string
	show   func(float64) string
}

var (
	rateColumn     = []column{{"msgs/s", "rate", thousands}}
	fillColumn     = []column{{"filling/s", "fill_rate", thousands}}
	confirmColumns = []column{
		{"confirm p50", "confirm_p50_us", latency},
		{"p99", "confirm_p99_us", latency},
		{"p99.9", "confirm_p999_us", latency},
	}
	deliverColumns = []column{
		{"deliver p50", "deliver_p50_us", latency},
		{"p99", "deliver_p99_us", latency},
		{"p99.9", "deliver_p999_us", latency},
	}
	costColumns = []column{
		{"server CPU/msg", "server_cpu_us", latency},
		{"load CPU/msg", "load_cpu_us", latency},
		{"server CPU s", "server_cpu_s", decimals},
		{"load CPU s", "load_cpu_s", decimals},
		{"server RSS", "server_rss_mb", mebibytes},
		{"load RSS", "load_rss_mb", mebibytes},
		{"others' CPUs", "others_cpus", decimals},
	}
	backlogColumns = []column{
		{"empty/s", "empty_rate", thousands},
		{"filling/s", "fill_rate", thousands},
		{"with backlog/s", "backlog_rate", thousands},
		{"draining/s", "backlog_drain_rate", thousands},
		{"server CPU/msg, backlog", "backlog_server_cpu_us", latency},
		{"server RSS", "backlog_server_rss_mb", mebibytes},
	}
	memoryColumns = []column{
		{"idle", "idle_rss_mb", mebibytes},
		{"a tenth", "tenth_server_rss_mb", mebibytes},
		{"all", "full_server_rss_mb", mebibytes},
		{"of it not mapped files", "full_server_anon_mb", mebibytes},
		{"peak", "full_server_peak_rss_mb", mebibytes},
		{"bytes/msg", "per_message_bytes", thousands},
	}
	recoveryColumns = []column{
		{"empty start", "start_ms", milliseconds},
		{"recovery", "recovery_ms", milliseconds},
		{"RSS after", "recovered_rss_mb", mebibytes},
		{"filling/s", "fill_rate", thousands},
	}
)

func join(lists ...[]column) []column { return slices.Concat(lists...) }

// thousands prints a whole number with commas: 12,345.
func thousands(v float64) string {
	digits := strconv.FormatFloat(math.Abs(math.Round(v)), 'f', 0, 64)
	var b strings.Builder
	if v <= -0.5 {
		b.WriteByte('-')
	}
	for i, digit := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteRune(digit)
	}
	return b.String()
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

// digits3 prints a number with three digits where it has decimals, and whole
// numbers beyond.
func digits3(v float64) string {
	switch a := math.Abs(v); {
	case a < 9.995:
		return strconv.FormatFloat(v, 'f', 2, 64)
	case a < 99.95:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return thousands(v)
}
