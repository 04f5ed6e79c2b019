package bench

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// A soak is one long load below the maximum, and the question whether the server
// is as fast and as small in its last third as in its first.

// soakName is the workload. It runs when it is named, and alone: it takes as
// long as all others together.
const soakName = "soak"

const (
	soakDuration      = 30 * time.Minute
	quickSoakDuration = 3 * time.Second
	minSoakDuration   = time.Second
	// soakShare is the load, of the maximum.
	soakShare = 0.7
	// soakNackEvery lets one message in so many fail once.
	soakNackEvery = 100
	// soakIntervals is how many there are at most; none is shorter than
	// soakInterval, unless there would be fewer than soakFewest.
	soakIntervals = 180
	soakFewest    = 6
	soakInterval  = time.Second
	// soakMaximum is how long the maximum is looked for, in a soak that is not
	// shorter than four times that.
	soakMaximum = 15 * time.Second
)

func (o *Options) soak() bool { return slices.Contains(o.Workloads, soakName) }

// checkSoak refuses what has no meaning in a soak.
func (o *Options) checkSoak() error {
	switch {
	case !o.soak():
		return nil
	case slices.ContainsFunc(o.Workloads, func(name string) bool { return name != soakName }):
		return errors.New("workload soak takes the machine to itself: name it alone")
	case o.Rounds > 1:
		return fmt.Errorf("rounds is %d: a soak is one long round: allowed is 1", o.Rounds)
	case o.Count != 0:
		return fmt.Errorf("count is %d: a soak goes by time: give it a duration", o.Count)
	case o.Duration != 0 && o.Duration < minSoakDuration:
		return fmt.Errorf("duration is %s: allowed for a soak is %s to %s", o.Duration, minSoakDuration, MaxDuration)
	}
	return nil
}

func soakLanes(o *Options) []lane {
	maximum, steady := o.life(8, window), o.life(8, window)
	maximum.Name = "max"
	maximum.DurationMs = min(soakMaximum, o.Duration/4).Milliseconds()
	steady.Share, steady.SampleMs = soakShare, soakEvery(o.Duration).Milliseconds()
	steady.Follow, steady.NackEvery = true, soakNackEvery
	return []lane{{
		Case: "70 % of maximum", sys: sysFila, quick: true, ownGC: true,
		spec: o.load(sysFila, maximum, steady),
	}}
}

// soakEvery is how long an interval of a soak is.
func soakEvery(whole time.Duration) time.Duration {
	return max(whole/soakIntervals, min(soakInterval, whole/soakFewest))
}

// soakColumns are figures of the whole soak.
var soakColumns = []column{
	{"maximum/s", "max_rate", thousands},
	{"asked for/s", "target_rate", thousands},
	{"msgs/s", "rate", thousands},
	{"messages", "accounted_messages", thousands},
	{"nacked", "nacked_messages", thousands},
	{"strays", "stray_deliveries", thousands},
	{"deliver p99", "deliver_p99_us", latency},
	{"p99.9", "deliver_p999_us", latency},
	{"max", "deliver_max_us", latency},
	{"server CPU/msg", "server_cpu_us", latency},
	{"others' CPUs", "others_cpus", decimals},
}

// steadyColumns are figures of intervals, compared between the first and the last
// third.
var steadyColumns = []column{
	{"msgs/s", "rate", thousands},
	{"confirm p50", "confirm_p50_us", latency},
	{"confirm p99", "confirm_p99_us", latency},
	{"deliver p50", "deliver_p50_us", latency},
	{"deliver p99", "deliver_p99_us", latency},
	{"published late, p99", "late_p99_us", latency},
	{"server RSS", "server_rss_mb", mebibytes},
	{"of it not mapped files", "server_anon_mb", mebibytes},
	{"files", "files_mb", mebibytes},
	{"live bytes", "queue_mb", mebibytes},
	{"messages in the queue", "queue_messages", thousands},
	{"server CPUs", "server_cpus", decimals},
	{"others' CPUs", "others_cpus", decimals},
}

// Figures of a third are named after it: first_rate, last_rate.
const (
	firstThird = "first_"
	lastThird  = "last_"
)

func soakGoals() []goal {
	steady := func(text, metric string, atMost float64) goal {
		return goal{
			text: text + ", last third / first third", atMost: atMost,
			of: figure{sysFila, lastThird + metric}, to: figure{sysFila, firstThird + metric},
		}
	}
	const steadiness = 1.1
	return []goal{
		{text: "rate / the rate asked for", of: figure{sysFila, "rate"}, to: figure{sysFila, "target_rate"}},
		steady("rate", "rate", 0),
		steady("deliver p50", "deliver_p50_us", 0),
		steady("deliver p99", "deliver_p99_us", steadiness),
		steady("confirm p99", "confirm_p99_us", steadiness),
		steady("RSS", "server_rss_mb", steadiness),
		steady("files", "files_mb", steadiness),
	}
}

// thirds returns the medians of the first and of the last third of the intervals.
func thirds(series []Sample) Sample {
	third := len(series) / 3
	found := Sample{}
	for prefix, part := range map[string][]Sample{firstThird: series[:third], lastThird: series[len(series)-third:]} {
		for _, c := range steadyColumns {
			if s, ok := summarize(valuesOf(part, c.metric)); ok {
				found[prefix+c.metric] = s.Median
			}
		}
	}
	return found
}

// valuesOf returns a figure of those samples that have it.
func valuesOf(samples []Sample, metric string) []float64 {
	var values []float64
	for _, s := range samples {
		if v, ok := s[metric]; ok {
			values = append(values, v)
		}
	}
	return values
}

// steadyRows is the table of what became of the figures of a soak.
func (l *LaneReport) steadyRows() [][]string {
	rows := [][]string{{"case", "median of the intervals", "first third", "last third", "last / first"}}
	for _, c := range steadyColumns {
		first, okFirst := l.Figures[firstThird+c.metric]
		last, okLast := l.Figures[lastThird+c.metric]
		if !okFirst || !okLast {
			continue
		}
		quotient := "-"
		if first.Median > 0 {
			quotient = decimals(last.Median / first.Median)
		}
		rows = append(rows, []string{l.Case, c.title, c.show(first.Median), c.show(last.Median), quotient})
	}
	return rows
}
