package bench

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// Bounds of [Options].
const (
	MaxRounds   = 1000
	MaxPayload  = 512 << 10
	MaxBacklog  = 100_000_000
	MinDuration = 10 * time.Millisecond
	MaxDuration = 24 * time.Hour
)

// Options say what to run. The zero value of each field is its default.
type Options struct {
	Workloads []string // of [Workloads]; none is all but soak
	Systems   []string // of [Systems]; none is all
	Rounds    int      // 5, or 1 if Quick; 1 to MaxRounds; a soak has 1
	// Each measurement lasts Duration (3 s, a soak 30 min) or Count messages. One
	// of both may be given.
	Duration time.Duration
	Count    int64
	Backlog  int64 // messages (1,000,000, or 10,000 if Quick) of workloads with a backlog
	Payload  int   // bytes (1024) of messages where the workload does not vary it
	Quick    bool  // few measurements of few messages, to see that all works
	// Target is a running server; nil starts servers.
	Target *Access
	Dir    string // where to keep data meanwhile; "" is the system's directory for temporary files

	Executable string    // the fila program, for child processes
	Version    string    // of it, for the report
	Progress   io.Writer // gets a line per measurement; nil is silent
}

// Quick measurements.
const (
	quickCount   = 1000
	quickBacklog = 10_000
)

// Systems returns the names of what can be measured.
func Systems() []string { return slices.Clone(systemNames) }

// Complete checks o and puts in the defaults. The error names the option, its
// value and what is allowed.
func (o *Options) Complete() error {
	if o.Duration != 0 && o.Count != 0 {
		return fmt.Errorf("both a duration (%s) and a count (%d) are given: one of them is allowed", o.Duration, o.Count)
	}
	if err := o.checkNames(); err != nil {
		return err
	}
	if err := o.checkSoak(); err != nil {
		return err
	}
	preset := o.preset()
	if o.Duration == 0 && o.Count == 0 {
		o.Duration, o.Count = preset.duration, preset.count
	}
	if o.Rounds == 0 {
		o.Rounds = preset.rounds
	}
	if o.Backlog == 0 {
		o.Backlog = preset.backlog
	}
	if o.Payload == 0 {
		o.Payload = 1024
	}
	for _, c := range []struct {
		name          string
		value, lo, hi int64
	}{
		{"rounds", int64(o.Rounds), 1, MaxRounds},
		{"backlog", o.Backlog, 10, MaxBacklog},
		{"size", int64(o.Payload), minPayload, MaxPayload},
	} {
		if c.value < c.lo || c.value > c.hi {
			return fmt.Errorf("%s is %d: allowed is %d to %d", c.name, c.value, c.lo, c.hi)
		}
	}
	switch {
	case o.Count < 0:
		return fmt.Errorf("count is %d: allowed is 1 and more", o.Count)
	case o.Duration != 0 && (o.Duration < MinDuration || o.Duration > MaxDuration):
		return fmt.Errorf("duration is %s: allowed is %s to %s", o.Duration, MinDuration, MaxDuration)
	}
	return nil
}

// preset is what goes for what is not given.
type preset struct {
	rounds         int
	backlog, count int64
	duration       time.Duration
}

func (o *Options) preset() preset {
	p := preset{rounds: 5, backlog: 1_000_000, duration: 3 * time.Second}
	if o.Quick {
		p = preset{rounds: 1, backlog: quickBacklog, count: quickCount}
	}
	if o.soak() {
		p.rounds, p.count, p.duration = 1, 0, soakDuration
		if o.Quick {
			p.duration = quickSoakDuration
		}
	}
	return p
}

func (o *Options) checkNames() error {
	known := make([]string, 0, len(workloads))
	for i := range workloads {
		known = append(known, workloads[i].name)
	}
	for _, list := range []struct {
		what         string
		given, known []string
	}{{"workload", o.Workloads, known}, {"system", o.Systems, systemNames}} {
		for _, name := range list.given {
			if !slices.Contains(list.known, name) {
				return fmt.Errorf("%s %q is not known: allowed is %s", list.what, name, strings.Join(list.known, ", "))
			}
		}
	}
	if o.Target == nil {
		return nil
	}
	for _, name := range o.Systems {
		if !system(name).isFila() {
			return fmt.Errorf("system %q cannot be measured on a running fila: allowed is %s, %s", name, sysFila, sysFIFO)
		}
	}
	for _, name := range o.Workloads {
		i := slices.IndexFunc(workloads, func(w workload) bool { return w.name == name })
		if workloads[i].ownServer {
			return fmt.Errorf("workload %q needs a server of its own, which it stops or looks into: it cannot run against a running one", name)
		}
	}
	return nil
}

// wants reports whether a system is to be measured.
func (o *Options) wants(s system) bool {
	if o.Target != nil && !s.isFila() {
		return false
	}
	return len(o.Systems) == 0 || slices.Contains(o.Systems, string(s))
}
