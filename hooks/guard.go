package hooks

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/filaq/fila/breaker"
)

// CircuitChange is one transition of a hook's circuit.
type CircuitChange struct {
	Queue, Hook string
	// Old and New are "closed", "open" or "half-open".
	Old, New            string
	ConsecutiveFailures int
	At                  int64 // Unix nanoseconds
}

// GuardOptions says what a Guard runs and with what. Kind and Script are
// required.
type GuardOptions struct {
	Kind    Kind
	Queue   string
	Script  *Script
	Limits  Limits         // of the queue; zero fields mean the defaults
	Breaker breaker.Config // zero fields mean the defaults: 3 failures, 10 s
	// Get is fila.get: the runtime configuration. It is called by the
	// goroutine that runs the hook and must not block. nil knows no key.
	Get func(key string) (value string, ok bool)
	// Logger gets failures, openings and what scripts log; nil drops it.
	Logger *slog.Logger
	// Now is the clock of the circuit, in Unix nanoseconds; nil is the real
	// one. The limits of a run have a clock of their own.
	Now func() int64
	// OnChange is told every transition of the circuit, on the goroutine that
	// caused it (a run, or Reset), with no lock held. It must not block and
	// must not call the Guard's runs.
	OnChange func(CircuitChange)
}

// GuardStats are the figures of one Guard since it was made.
type GuardStats struct {
	Hook  string
	State string // "closed", "open" or "half-open" (the next message is a probe)
	Runs  int64  // that were tried, failed ones included
	// Failures is the sum of the five kinds below.
	Failures                              int64
	Errors, Timeouts, Memory, Types, Gone int64
	Bypassed                              int64 // messages that met an open circuit
	Warnings                              int64 // fields that were corrected
	ConsecutiveFailures                   int
	LastError                             string
}

// Guard is one queue's one hook: the script, its sandbox, its circuit and its
// counters. OnEnqueue, OnFailure and Close belong to one goroutine at a time;
// Stats, Reset and SetBreaker may be called by any.
type Guard struct {
	o     GuardOptions
	vm    *vm
	br    *breaker.Breaker
	fails rateLimit // owned by the running goroutine

	runs, bypassed, warnings              atomic.Int64
	errors, timeouts, memory, types, gone atomic.Int64

	mu struct {
		sync.Mutex
		lastError string
	}
}

// NewGuard returns a Guard with a closed circuit. The sandbox itself is made
// by the first run.
func NewGuard(o GuardOptions) *Guard {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = func() int64 { return time.Now().UnixNano() }
	}
	g := &Guard{o: o, br: breaker.New(o.Breaker), fails: rateLimit{burst: 1, every: time.Second}}
	log := o.Logger.With("queue", o.Queue, "hook", string(o.Kind))
	g.o.Logger = log
	g.vm = newVM(o.Script, o.Kind, o.Limits, env{get: o.Get, log: scriptLog(log, o.Now)})
	return g
}

// OnEnqueue runs the hook on a message, or returns the safe defaults if it
// fails or its circuit is open. It never panics and never takes much longer
// than three times the time limit.
func (g *Guard) OnEnqueue(in *EnqueueInput) EnqueueDecision {
	t, ok := g.allow()
	if !ok {
		return DefaultEnqueueDecision()
	}
	var w warner
	d, err := g.vm.enqueue(in, &w)
	g.done(t, err, w)
	return d
}

// OnFailure runs the hook on a failed attempt, or returns the safe defaults
// with Decided false.
func (g *Guard) OnFailure(in *FailureInput) FailureDecision {
	t, ok := g.allow()
	if !ok {
		return FailureDecision{}
	}
	var w warner
	d, err := g.vm.failure(in, &w)
	g.done(t, err, w)
	return d
}

func (g *Guard) allow() (breaker.Ticket, bool) {
	t, ok := g.br.Allow(g.o.Now())
	if !ok {
		g.bypassed.Add(1)
		return t, false
	}
	if c, turned := t.Change(); turned {
		g.changed(c)
	}
	g.runs.Add(1)
	return t, true
}

func (g *Guard) done(t breaker.Ticket, err *RunError, w warner) {
	if w.n > 0 {
		g.warnings.Add(w.n)
	}
	now, outcome := int64(0), breaker.Success // a success looks at no clock
	if err != nil {
		now, outcome = g.o.Now(), breaker.Failure
		g.failed(now, err)
	}
	if c, changed := g.br.Done(now, t, outcome); changed {
		if err == nil {
			c.At = g.o.Now()
		}
		g.changed(c)
	}
}

func (g *Guard) failed(now int64, err *RunError) {
	switch err.Cause {
	case CauseTimeout:
		g.timeouts.Add(1)
	case CauseMemory:
		g.memory.Add(1)
	case CauseType:
		g.types.Add(1)
	case CauseMissing:
		g.gone.Add(1)
	default:
		g.errors.Add(1)
	}
	text := err.Error()
	g.mu.Lock()
	g.mu.lastError = text
	g.mu.Unlock()
	if n, ok := g.fails.allow(now); ok {
		g.o.Logger.Warn("hook failed, the message goes on with the safe defaults",
			"cause", string(err.Cause), "line", err.Line, "error", err.Message, "source", err.Source, "suppressed", n)
	}
}

func (g *Guard) changed(c breaker.Change) {
	switch c.New {
	case breaker.Open:
		g.o.Logger.Warn("hook circuit opened, the hook is bypassed until a probe succeeds",
			"consecutive_failures", c.ConsecutiveFailures, "last_error", g.lastError())
	case breaker.Closed:
		g.o.Logger.Info("hook circuit closed")
	}
	if g.o.OnChange != nil {
		g.o.OnChange(CircuitChange{
			Queue: g.o.Queue, Hook: string(g.o.Kind), Old: c.Old.String(), New: c.New.String(),
			ConsecutiveFailures: c.ConsecutiveFailures, At: c.At,
		})
	}
}

func (g *Guard) lastError() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.mu.lastError
}

// Stats returns the figures at this moment.
func (g *Guard) Stats() GuardStats {
	i := g.br.Info(g.o.Now())
	s := GuardStats{
		Hook: string(g.o.Kind), State: i.State.String(), Runs: g.runs.Load(),
		Errors: g.errors.Load(), Timeouts: g.timeouts.Load(), Memory: g.memory.Load(),
		Types: g.types.Load(), Gone: g.gone.Load(),
		Bypassed: g.bypassed.Load(), Warnings: g.warnings.Load(),
		ConsecutiveFailures: i.ConsecutiveFailures, LastError: g.lastError(),
	}
	s.Failures = s.Errors + s.Timeouts + s.Memory + s.Types + s.Gone
	return s
}

// Reset closes the circuit by hand and forgets its failures.
func (g *Guard) Reset() {
	if c, changed := g.br.Reset(g.o.Now()); changed {
		g.changed(c)
	}
}

// SetBreaker changes the limits of the circuit; its state stays.
func (g *Guard) SetBreaker(c breaker.Config) { g.br.SetConfig(c) }

// Close drops the sandbox. Runs after Close make a new one.
func (g *Guard) Close() { g.vm.drop() }
