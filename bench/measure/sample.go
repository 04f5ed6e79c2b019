package measure

import (
	"maps"
	"math"
	"slices"
)

// Sample has the figures of one measurement by name. Names end in their unit: _us microseconds,
// _ms milliseconds, _s seconds, _mb MiB; names without a unit are numbers of messages, or
// messages per second if they end in rate.
type Sample map[string]float64

// DropUndefined removes figures that are not numbers, such as the time per message of no
// messages.
func (s Sample) DropUndefined() {
	maps.DeleteFunc(s, func(_ string, v float64) bool { return math.IsNaN(v) || math.IsInf(v, 0) })
}

// Summary is a figure over all rounds.
type Summary struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
	Rounds int     `json:"rounds"`
}

// Median returns the median, NaN without values. It does not change values.
func Median(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	half := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[half]
	}
	return (sorted[half-1] + sorted[half]) / 2
}

// Summarize returns the summary of values; ok is false if there are none.
func Summarize(values []float64) (s Summary, ok bool) {
	if len(values) == 0 {
		return Summary{}, false
	}
	return Summary{Median: Median(values), Min: slices.Min(values), Max: slices.Max(values), Rounds: len(values)}, true
}

// SummarizeAll returns a summary for every figure of the samples. Failed rounds have no sample.
func SummarizeAll(rounds []Sample) map[string]Summary {
	values := map[string][]float64{}
	for _, sample := range rounds {
		for name, v := range sample {
			values[name] = append(values[name], v)
		}
	}
	all := make(map[string]Summary, len(values))
	for name, v := range values {
		all[name], _ = Summarize(v)
	}
	return all
}

// PairUp combines two figures of the same round and summarizes the results; it skips rounds
// that lack one of them. Both figures of a round are from the same minute, so slow drifts
// cancel out.
func PairUp(of, to []Sample, metric, toMetric string, combine func(a, b float64) float64) (Summary, bool) {
	var values []float64
	for i := range min(len(of), len(to)) {
		a, okA := of[i][metric]
		b, okB := to[i][toMetric]
		if okA && okB {
			if v := combine(a, b); !math.IsNaN(v) && !math.IsInf(v, 0) {
				values = append(values, v)
			}
		}
	}
	return Summarize(values)
}

// Ratio returns a / b, for [PairUp].
func Ratio(a, b float64) float64 { return a / b }

// Difference returns a - b, for [PairUp].
func Difference(a, b float64) float64 { return a - b }

// Values returns a figure of the samples that have it.
func Values(samples []Sample, metric string) []float64 {
	var values []float64
	for _, s := range samples {
		if v, ok := s[metric]; ok {
			values = append(values, v)
		}
	}
	return values
}
