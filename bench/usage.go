package bench

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// usage is what a process has used so far. Fields that the system does not tell
// are 0.
type usage struct {
	cpu  time.Duration // user and system
	rss  int64         // bytes of memory now, pages of mapped files included
	anon int64         // of these, not backed by a file
	peak int64         // the largest rss so far
}

// clockTick is the unit of CPU times in /proc: USER_HZ is 100 on every Linux
// that Go runs on.
const clockTick = 10 * time.Millisecond

// parseProc reads /proc/PID/stat and /proc/PID/status.
func parseProc(stat, status string) (usage, error) {
	var u usage
	// The name in the second field may hold spaces and parentheses.
	end := strings.LastIndexByte(stat, ')')
	if end < 0 {
		return u, fmt.Errorf("/proc stat %q: no process name", stat)
	}
	fields := strings.Fields(stat[end+1:])
	if len(fields) < 13 {
		return u, fmt.Errorf("/proc stat %q: %d fields after the name, need 13", stat, len(fields))
	}
	for _, field := range fields[11:13] { // utime and stime, fields 14 and 15 of all
		ticks, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return u, fmt.Errorf("/proc stat: CPU time: %w", err)
		}
		u.cpu += time.Duration(ticks) * clockTick
	}
	for line := range strings.Lines(status) {
		name, value, _ := strings.Cut(line, ":")
		into := map[string]*int64{"VmRSS": &u.rss, "RssAnon": &u.anon, "VmHWM": &u.peak}[name]
		if into == nil {
			continue
		}
		kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
		if err != nil {
			return u, fmt.Errorf("/proc status: %s: %w", name, err)
		}
		*into = kib << 10
	}
	return u, nil
}

// parseMachine reads the first line of /proc/stat: how long all processors
// together were busy since the machine started, with what other virtual machines
// took of them.
func parseMachine(stat string) (time.Duration, error) {
	line, _, _ := strings.Cut(stat, "\n")
	fields := strings.Fields(line)
	if len(fields) < 9 || fields[0] != "cpu" {
		return 0, fmt.Errorf("/proc/stat begins with %q", line)
	}
	var busy time.Duration
	for i, field := range fields[1:9] { // user nice system idle iowait irq softirq steal
		ticks, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("/proc/stat: %w", err)
		}
		if i != 3 && i != 4 {
			busy += time.Duration(ticks) * clockTick
		}
	}
	return busy, nil
}

// parsePS reads the line of `ps -o rss=,time= -p PID`: KiB, and CPU time as
// [[days-]hours:]minutes:seconds, on some systems with fractions.
func parsePS(line string) (usage, error) {
	fields := strings.Fields(line)
	if len(fields) != 2 {
		return usage{}, fmt.Errorf("ps printed %q, not memory and time", line)
	}
	kib, err := strconv.ParseInt(fields[0], 10, 64)
	if err != nil {
		return usage{}, fmt.Errorf("ps: memory: %w", err)
	}
	clock, days := fields[1], 0.0
	if d, rest, ok := strings.Cut(clock, "-"); ok {
		if days, err = strconv.ParseFloat(d, 64); err != nil {
			return usage{}, fmt.Errorf("ps: days: %w", err)
		}
		clock = rest
	}
	seconds := 0.0
	for part := range strings.SplitSeq(clock, ":") {
		v, err := strconv.ParseFloat(part, 64)
		if err != nil {
			return usage{}, fmt.Errorf("ps: time: %w", err)
		}
		seconds = seconds*60 + v
	}
	seconds += days * 24 * 3600
	return usage{cpu: time.Duration(seconds * float64(time.Second)), rss: kib << 10}, nil
}

// memoryInto adds the memory of a process to a sample, in MiB.
func (u usage) memoryInto(s Sample, prefix string) {
	for name, bytes := range map[string]int64{"rss_mb": u.rss, "anon_mb": u.anon, "peak_rss_mb": u.peak} {
		if bytes > 0 {
			s[prefix+name] = float64(bytes) / (1 << 20)
		}
	}
}
