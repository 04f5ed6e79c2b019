package bench

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/filaq/fila/bench/load"
	"github.com/filaq/fila/bench/report"
	"github.com/filaq/fila/bench/system"
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
	Workloads []string // from [Workloads]; empty is all but those that run only if they are named
	Systems   []string // from [system.Names]; empty is all
	Rounds    int      // 5, or 1 if Quick; 1 to MaxRounds; a soak and adapt have 1
	// Each measurement lasts Duration (3 s, a soak 30 min) or Count messages. At most one may be
	// set.
	Duration time.Duration
	Count    int64
	Backlog  int64 // messages (1,000,000, or 10,000 if Quick) of workloads with a backlog
	Batch    int   // messages of a batch of the systems that have batches, 1 to 1000; 0: a fourth of what is in flight
	Payload  int   // bytes (1024) of messages where the workload does not vary it
	Quick    bool  // few measurements of few messages, to see that everything works
	// Target is a running server; nil starts servers.
	Target *system.Access
	Dir    string // for data; "" is the system's temporary directory

	Executable string    // the fila binary, for child processes
	Peers      string    // the executable of bench/peers, for peers; "" is none
	Version    string    // of fila, for the report
	Progress   io.Writer // gets a line per measurement; nil is none
}

// Complete checks o and sets the defaults. The error names the option, its value and what is
// allowed.
func (o *Options) Complete() error {
	if o.Duration != 0 && o.Count != 0 {
		return fmt.Errorf("both a duration (%s) and a count (%d) are given: one of them is allowed", o.Duration, o.Count)
	}
	if err := o.checkNames(); err != nil {
		return err
	}
	if err := errors.Join(o.checkSoak(), o.checkAdapt()); err != nil {
		return err
	}
	preset := o.preset()
	if o.Duration == 0 && o.Count == 0 {
		o.Duration, o.Count = preset.Duration, preset.Count
	}
	setDefault(&o.Rounds, preset.Rounds)
	setDefault(&o.Backlog, preset.Backlog)
	setDefault(&o.Payload, 1024)
	for _, c := range []struct {
		name          string
		value, lo, hi int64
	}{
		{"rounds", int64(o.Rounds), 1, MaxRounds},
		{"backlog", o.Backlog, 10, MaxBacklog},
		{"size", int64(o.Payload), load.MinPayload, MaxPayload},
	} {
		if c.value < c.lo || c.value > c.hi {
			return fmt.Errorf("%s is %d: allowed is %d to %d", c.name, c.value, c.lo, c.hi)
		}
	}
	switch {
	case o.Batch < 0 || o.Batch > system.MaxBatch:
		return fmt.Errorf("batch is %d: allowed is 1 to %d", o.Batch, system.MaxBatch)
	case o.Count < 0:
		return fmt.Errorf("count is %d: allowed is 1 and more", o.Count)
	case o.Duration != 0 && (o.Duration < MinDuration || o.Duration > MaxDuration):
		return fmt.Errorf("duration is %s: allowed is %s to %s", o.Duration, MinDuration, MaxDuration)
	}
	return nil
}

func setDefault[T comparable](value *T, preset T) {
	var zero T
	if *value == zero {
		*value = preset
	}
}

// preset returns the defaults.
func (o *Options) preset() Options {
	p := Options{Rounds: 5, Backlog: 1_000_000, Duration: 3 * time.Second}
	if o.Quick {
		p = Options{Rounds: 1, Backlog: 10_000, Count: 1000}
	}
	if o.adapt() {
		p.Rounds, p.Count, p.Duration = 1, 0, 0
	}
	if o.soak() {
		p.Rounds, p.Count, p.Duration = 1, 0, report.SoakDuration
		if o.Quick {
			p.Duration = quickSoakDuration
		}
	}
	return p
}

func (o *Options) checkNames() error {
	known := make([]string, 0, len(workloads))
	for i := range workloads {
		known = append(known, workloads[i].Name)
	}
	for _, list := range []struct {
		what         string
		given, known []string
	}{{"workload", o.Workloads, known}, {"system", o.Systems, system.Names()}} {
		for _, name := range list.given {
			if !slices.Contains(list.known, name) {
				return fmt.Errorf("%s %q is not known: allowed is %s", list.what, name, strings.Join(list.known, ", "))
			}
		}
	}
	if err := o.checkPeers(); err != nil || o.Target == nil {
		return err
	}
	for _, name := range o.Systems {
		if !system.Name(name).IsFila() {
			return fmt.Errorf("system %q cannot be measured on a running fila: allowed is %s, %s, %s, %s", name, system.Fila, system.FilaMin, system.FilaBatch, system.FIFO)
		}
	}
	for i, name := range known {
		if workloads[i].ownServer && slices.Contains(o.Workloads, name) {
			return fmt.Errorf("workload %q needs a server of its own, which it stops or looks into: it cannot run against a running one", name)
		}
	}
	return nil
}

// checkPeers checks that there is a program for the peers that are named.
func (o *Options) checkPeers() error {
	i := slices.IndexFunc(o.Systems, func(name string) bool { return system.Name(name).IsPeer() })
	if o.Peers == "" && i >= 0 {
		return fmt.Errorf("system %q needs the program with the clients of peers: build it in a checkout of fila with "+
			"`go build -C bench/peers .` and name it with --peers bench/peers/peers", o.Systems[i])
	}
	return nil
}

// wants reports whether a system is selected.
func (o *Options) wants(s system.Name) bool {
	return (o.Target == nil || s.IsFila()) && (o.Peers != "" || !s.IsPeer()) && (len(o.Systems) == 0 || slices.Contains(o.Systems, string(s)))
}
