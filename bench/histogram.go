package bench

import (
	"math"
	"math/bits"
)

// A histogram of latencies in nanoseconds. Each power of two is divided into
// 128 buckets of the same width, so that a value is known to 0.4 %: values up to
// 255 ns exactly, and up to 4.8 hours; longer ones count as that.
const (
	subBuckets = 128
	maxLatency = 1<<44 - 1
)

// histogram belongs to one goroutine until it is merged into another one. The
// zero value is empty.
type histogram struct {
	counts []uint64
	total  uint64
	max    int64
}

// bucketOf returns the bucket of a value from 0 to maxLatency. Buckets of
// neighbouring powers of two follow each other without a gap.
func bucketOf(v int64) int {
	shift := max(bits.Len64(uint64(v))-8, 0)
	return shift*subBuckets + int(v>>shift)
}

// middleOf returns the value in the middle of a bucket.
func middleOf(bucket int) float64 {
	shift := max(bucket/subBuckets-1, 0)
	low := int64(bucket-shift*subBuckets) << shift
	return float64(low) + float64(int64(1)<<shift-1)/2
}

// record counts a latency in nanoseconds; negative ones count as 0.
func (h *histogram) record(ns int64) {
	if h.counts == nil {
		h.counts = make([]uint64, bucketOf(maxLatency)+1)
	}
	ns = min(max(ns, 0), maxLatency)
	h.counts[bucketOf(ns)]++
	h.total++
	h.max = max(h.max, ns)
}

// merge adds what o has counted.
func (h *histogram) merge(o *histogram) {
	if o.total == 0 {
		return
	}
	if h.counts == nil {
		h.counts = make([]uint64, len(o.counts))
	}
	for i, n := range o.counts {
		h.counts[i] += n
	}
	h.total += o.total
	h.max = max(h.max, o.max)
}

// reset empties h and keeps its memory.
func (h *histogram) reset() {
	clear(h.counts)
	h.total, h.max = 0, 0
}

// percentile returns the latency in nanoseconds that a share of q (0 to 1) of
// all values does not exceed, to 0.4 %; NaN if there are none.
func (h *histogram) percentile(q float64) float64 {
	if h.total == 0 {
		return math.NaN()
	}
	rank := uint64(math.Ceil(q * float64(h.total)))
	rank = min(max(rank, 1), h.total)
	var seen uint64
	for i, n := range h.counts {
		if seen += n; seen >= rank {
			return min(middleOf(i), float64(h.max))
		}
	}
	return float64(h.max)
}

// into adds the percentiles to a sample, in microseconds under NAME_p50_us and
// so on. An empty histogram adds nothing.
func (h *histogram) into(s Sample, name string) {
	if h.total == 0 {
		return
	}
	s[name+"_p50_us"] = h.percentile(0.5) / 1e3
	s[name+"_p99_us"] = h.percentile(0.99) / 1e3
	s[name+"_p999_us"] = h.percentile(0.999) / 1e3
	s[name+"_max_us"] = float64(h.max) / 1e3
}
