package measure

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Usage is the resource usage of a process so far. Unknown fields are 0.
type Usage struct {
	CPU  time.Duration // user and system
	RSS  int64         // bytes of memory now, pages of mapped files included
	Anon int64         // of these, not backed by a file
	Peak int64         // the largest RSS so far
}

// MemoryInto adds the memory of a process to a sample, in MiB.
func (u Usage) MemoryInto(s Sample, prefix string) {
	for name, bytes := range map[string]int64{"rss_mb": u.RSS, "anon_mb": u.Anon, "peak_rss_mb": u.Peak} {
		if bytes > 0 {
			s[prefix+name] = float64(bytes) / (1 << 20)
		}
	}
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// parsePS reads the line of `ps -o rss=,time= -p PID`: KiB, and CPU time as
// [[days-]hours:]minutes:seconds, on some systems with fractions.
func parsePS(line string) (Usage, error) {
	fields := strings.FieldsFunc(line, func(r rune) bool { return strings.ContainsRune(" \n:-", r) })
	units := []float64{1, 60, 3600, 24 * 3600}
	if len(fields) < 2 || len(fields) > 1+len(units) {
		return Usage{}, fmt.Errorf("ps printed %q, not memory and time", line)
	}
	slices.Reverse(fields[1:])
	var values [5]float64
	for i, field := range fields {
		var err error
		if values[i], err = strconv.ParseFloat(field, 64); err != nil {
			return Usage{}, fmt.Errorf("ps printed %q, not memory and time: %w", line, err)
		}
	}
	u := Usage{RSS: int64(values[0]) << 10}
	for i, unit := range units {
		u.CPU += seconds(values[1+i] * unit)
	}
	return u, nil
}
