package measure

import (
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Latencies above maxLatency count as maxLatency. Others have three digits of precision, which
// takes 270 KB.
const (
	maxLatency = time.Hour
	digits     = 3
)

// Latencies is a histogram of latencies, safe for concurrent use. The zero value is empty.
type Latencies struct {
	mu struct {
		sync.Mutex
		histogram *hdrhistogram.Histogram // nil: empty
	}
}

// Record counts a latency in nanoseconds; a negative one counts as 0.
func (l *Latencies) Record(ns int64) {
	l.mu.Lock()
	_ = l.locked().RecordValue(min(max(ns, 0), int64(maxLatency))) // clamped to its bounds
	l.mu.Unlock()
}

// locked returns the histogram; the caller has the lock.
func (l *Latencies) locked() *hdrhistogram.Histogram {
	if l.mu.histogram == nil {
		l.mu.histogram = hdrhistogram.New(1, int64(maxLatency), digits)
	}
	return l.mu.histogram
}

// MoveTo moves all latencies to another histogram.
func (l *Latencies) MoveTo(other *Latencies) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.histogram == nil {
		return
	}
	other.mu.Lock()
	defer other.mu.Unlock()
	other.locked().Merge(l.mu.histogram)
	l.mu.histogram.Reset()
}

// Into adds the percentiles to a sample, in microseconds as NAME_p50_us and so on. They are at
// most 0.1 % above the recorded latencies, and never below. An empty histogram adds nothing.
func (l *Latencies) Into(s Sample, name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.histogram == nil || l.mu.histogram.TotalCount() == 0 {
		return
	}
	for suffix, percent := range map[string]float64{"_p50_us": 50, "_p99_us": 99, "_p999_us": 99.9, "_max_us": 100} {
		s[name+suffix] = float64(l.mu.histogram.ValueAtPercentile(percent)) / float64(time.Microsecond)
	}
}
