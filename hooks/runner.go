package hooks

import (
	"log/slog"
	"sync"
	"time"

	"github.com/filaq/fila/breaker"
	"github.com/filaq/fila/hooks/sandbox"
)

// CircuitChange is one transition of a hook's circuit.
type CircuitChange struct {
	Queue, Hook string
	breaker.Change
}

// RunnerOptions configure a Runner. Kind and Script are required.
type RunnerOptions struct {
	Kind    Kind
	Queue   string
	Script  *Script
	Limits  Limits         // of the queue; zero fields mean the defaults
	Breaker breaker.Config // zero fields mean the defaults: 3 failures, 10 s
	// Get is fila.get: the runtime configuration. It is called by the
	// goroutine that runs the hook and must not block. nil knows no key.
	Get func(key string) (value string, ok bool)
	// Logger receives failures, openings and what scripts log; nil drops them.
	Logger *slog.Logger
	// Now is the clock of the circuit, in Unix nanoseconds; nil is the real
	// one. The limits of a run use another clock.
	Now func() int64
	// OnChange is called for every transition of the circuit, by the goroutine
	// that caused it (a run, or Reset), with no lock held. It must not block and
	// must not run the hook.
	OnChange func(CircuitChange)
}

// Stats are the figures of a Runner since it was made.
type Stats struct {
	Hook  string
	State string // "closed", "open" or "half-open" (the next message is a probe)
	Runs  int64  // including those that failed
	// Failures is the sum of the next five counters.
	Failures                              int64
	Errors, Timeouts, Memory, Types, Gone int64
	Bypassed                              int64 // messages that found the circuit open
	Warnings                              int64 // fields that were corrected
	ConsecutiveFailures                   int
	LastError                             string
}

// Runner is one hook of one queue: the script, its VM, its circuit and its
// counters. OnEnqueue, OnFailure and Close are for one goroutine at a time. Stats,
// Reset and SetBreaker are safe for concurrent use.
type Runner struct {
	o     RunnerOptions
	vm    *sandbox.VM
	fails rateLimit // of log lines; used by the goroutine that runs the hook

	mu struct {
		sync.Mutex
		circuit breaker.Machine
		usedUp  breaker.FailureWindow // runs that used up their time limit within the last cooldown
		stats   Stats                 // without the fields that the circuit has
	}
}

// NewRunner returns a Runner with a closed circuit. The first run makes the Lua
// state.
func NewRunner(o RunnerOptions) *Runner {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = func() int64 { return time.Now().UnixNano() }
	}
	o.Logger = o.Logger.With("queue", o.Queue, "hook", string(o.Kind))
	r := &Runner{o: o, fails: rateLimit{burst: 1, every: time.Second}}
	r.mu.circuit = breaker.NewMachine(o.Breaker)
	r.mu.stats.Hook = string(o.Kind)
	r.vm = sandbox.New(o.Script.Script, string(o.Kind), o.Limits, sandbox.Env{Get: o.Get, Log: scriptLog(o.Logger, o.Now)})
	return r
}

// OnEnqueue runs the hook on a message, or returns the safe defaults if it
// fails or its circuit is open. It never panics. On a machine that is not
// overloaded it takes less than 1.5 times the time limit.
func (r *Runner) OnEnqueue(in *EnqueueInput) EnqueueDecision {
	p := r.allow()
	if p == 0 {
		return DefaultEnqueueDecision()
	}
	d, fields, err := runEnqueue(r.vm, in)
	r.done(p, err, fields.warnings)
	return d
}

// OnFailure runs the hook on a failed attempt, or returns the safe defaults
// with Decided false.
func (r *Runner) OnFailure(in *FailureInput) FailureDecision {
	p := r.allow()
	if p == 0 {
		return FailureDecision{}
	}
	d, fields, err := runFailure(r.vm, in)
	r.done(p, err, fields.warnings)
	return d
}

func (r *Runner) allow() breaker.Pass {
	now := r.o.Now()
	r.mu.Lock()
	p, c := r.mu.circuit.Allow(now)
	if p == 0 {
		r.mu.stats.Bypassed++
	} else {
		r.mu.stats.Runs++
	}
	r.mu.Unlock()
	r.notifyChange(c)
	return p
}

func (r *Runner) done(p breaker.Pass, err *RunError, warnings int64) {
	now, outcome, text := int64(0), breaker.Success, "" // a success needs no clock
	if err != nil {
		now, outcome, text = r.o.Now(), breaker.Failure, err.Error()
	}
	r.mu.Lock()
	r.mu.stats.Warnings += warnings
	if err != nil {
		r.mu.stats.countFailure(err.Cause)
		r.mu.stats.LastError = text
	}
	c, counted := r.mu.circuit.Done(now, p, outcome)
	if counted && err != nil && err.UsedUp {
		c = r.countRunaway(now, c)
	}
	r.mu.Unlock()
	if err == nil {
		if c.Turned() {
			c.At = r.o.Now()
		}
	} else if n, ok := r.fails.allow(now); ok {
		r.o.Logger.Warn("hook failed, the message continues with the defaults",
			"cause", string(err.Cause), "line", err.Line, "error", err.Message, "source", err.Source, "suppressed", n)
	}
	r.notifyChange(c)
}

// countRunaway counts a run that used up its time limit. The circuit opens after
// Threshold such runs within one Cooldown, even with good runs between them: every
// message behind such a run waits, so good messages must not keep the hook going.
// c is the change that the failure itself caused. r.mu is held.
func (r *Runner) countRunaway(now int64, c breaker.Change) breaker.Change {
	m, w := &r.mu.circuit, &r.mu.usedUp
	cfg := m.Config()
	w.Set(int64(cfg.Threshold-1), int64(cfg.Cooldown), now)
	switch {
	case c.Turned():
		w.Clear()
	case w.Add(now):
		return m.Open(now, now+int64(cfg.Cooldown), breaker.HalfOpen)
	}
	return c
}

func (s *Stats) countFailure(c sandbox.Cause) {
	s.Failures++
	switch c {
	case sandbox.CauseTimeout:
		s.Timeouts++
	case sandbox.CauseMemory:
		s.Memory++
	case sandbox.CauseType:
		s.Types++
	case sandbox.CauseMissing:
		s.Gone++
	default:
		s.Errors++
	}
}

// notifyChange logs and reports a transition, if c is one.
func (r *Runner) notifyChange(c breaker.Change) {
	if !c.Turned() {
		return
	}
	switch c.New {
	case breaker.Open:
		reason := "failures in a row"
		if c.Old == breaker.Closed && c.ConsecutiveFailures < r.threshold() {
			reason = "runs that used up the time limit"
		}
		r.o.Logger.Warn("hook circuit opened, the hook is bypassed until a probe succeeds",
			"reason", reason, "consecutive_failures", c.ConsecutiveFailures, "last_error", r.Stats().LastError)
	case breaker.Closed:
		r.o.Logger.Info("hook circuit closed")
	}
	if r.o.OnChange != nil {
		r.o.OnChange(CircuitChange{r.o.Queue, string(r.o.Kind), c})
	}
}

func (r *Runner) threshold() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.circuit.Config().Threshold
}

// Stats returns the current figures.
func (r *Runner) Stats() Stats {
	now := r.o.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	i, s := r.mu.circuit.Info(now), r.mu.stats
	s.State, s.ConsecutiveFailures = i.State.String(), i.ConsecutiveFailures
	return s
}

// Reset closes the circuit by hand and forgets its failures.
func (r *Runner) Reset() {
	now := r.o.Now()
	r.mu.Lock()
	c := r.mu.circuit.Reset(now)
	r.mu.Unlock()
	r.notifyChange(c)
}

// SetBreaker changes the limits of the circuit; its state stays.
func (r *Runner) SetBreaker(c breaker.Config) {
	r.mu.Lock()
	r.mu.circuit.SetConfig(c)
	r.mu.Unlock()
}

// Close drops the Lua state. Runs after Close make a new one.
func (r *Runner) Close() { r.vm.Close() }
