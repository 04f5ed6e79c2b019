package hooks

import (
	"log/slog"
	"sync"
	"time"

	"github.com/filaq/fila/breaker"
)

// CircuitChange is one transition of a hook's circuit.
type CircuitChange struct {
	Queue, Hook string
	breaker.Change
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
	fails rateLimit // owned by the running goroutine

	mu struct {
		sync.Mutex
		circuit breaker.Machine
		usedUp  breaker.FailureWindow // runs that used up their time limit, of the last cooldown
		stats   GuardStats            // what the circuit does not know
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
	o.Logger = o.Logger.With("queue", o.Queue, "hook", string(o.Kind))
	g := &Guard{o: o, fails: rateLimit{burst: 1, every: time.Second}}
	g.mu.circuit = breaker.NewMachine(o.Breaker)
	g.mu.stats.Hook = string(o.Kind)
	g.vm = newVM(o.Script, o.Kind, o.Limits, env{get: o.Get, log: scriptLog(o.Logger, o.Now)})
	return g
}

// OnEnqueue runs the hook on a message, or returns the safe defaults if it
// fails or its circuit is open. It never panics. On a machine that is not
// overloaded it takes less than 1.5 times the time limit.
func (g *Guard) OnEnqueue(in *EnqueueInput) EnqueueDecision {
	p := g.allow()
	if p == 0 {
		return DefaultEnqueueDecision()
	}
	var w warner
	d, err := g.vm.enqueue(in, &w)
	g.done(p, err, w)
	return d
}

// OnFailure runs the hook on a failed attempt, or returns the safe defaults
// with Decided false.
func (g *Guard) OnFailure(in *FailureInput) FailureDecision {
	p := g.allow()
	if p == 0 {
		return FailureDecision{}
	}
	var w warner
	d, err := g.vm.failure(in, &w)
	g.done(p, err, w)
	return d
}

func (g *Guard) allow() breaker.Pass {
	now := g.o.Now()
	g.mu.Lock()
	p, c := g.mu.circuit.Allow(now)
	if p == 0 {
		g.mu.stats.Bypassed++
	} else {
		g.mu.stats.Runs++
	}
	g.mu.Unlock()
	g.changed(c)
	return p
}

func (g *Guard) done(p breaker.Pass, err *RunError, w warner) {
	now, outcome, text := int64(0), breaker.Success, "" // a success looks at no clock
	if err != nil {
		now, outcome, text = g.o.Now(), breaker.Failure, err.Error()
	}
	g.mu.Lock()
	g.mu.stats.Warnings += w.n
	if err != nil {
		g.mu.stats.failed(err.Cause)
		g.mu.stats.LastError = text
	}
	c, counted := g.mu.circuit.Done(now, p, outcome)
	if counted && err != nil && err.usedUp {
		c = g.ranAway(now, c)
	}
	g.mu.Unlock()
	if err == nil {
		if c.Turned() {
			c.At = g.o.Now()
		}
	} else if n, ok := g.fails.allow(now); ok {
		g.o.Logger.Warn("hook failed, the message goes on with the safe defaults",
			"cause", string(err.Cause), "line", err.Line, "error", err.Message, "source", err.Source, "suppressed", n)
	}
	g.changed(c)
}

// ranAway counts a run that used up its time limit. The circuit opens after
// Threshold of them within one Cooldown, whatever runs end between them: good
// messages between the bad ones must not keep a hook going that takes its whole
// limit again and again, for every message behind them waits. c is what the
// failure itself changed. g.mu is held.
func (g *Guard) ranAway(now int64, c breaker.Change) breaker.Change {
	m, w := &g.mu.circuit, &g.mu.usedUp
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

func (s *GuardStats) failed(c Cause) {
	s.Failures++
	switch c {
	case CauseTimeout:
		s.Timeouts++
	case CauseMemory:
		s.Memory++
	case CauseType:
		s.Types++
	case CauseMissing:
		s.Gone++
	default:
		s.Errors++
	}
}

// changed tells of a transition, if there was one.
func (g *Guard) changed(c breaker.Change) {
	if !c.Turned() {
		return
	}
	switch c.New {
	case breaker.Open:
		reason := "failures in a row"
		if c.Old == breaker.Closed && c.ConsecutiveFailures < g.threshold() {
			reason = "runs that used up the time limit"
		}
		g.o.Logger.Warn("hook circuit opened, the hook is bypassed until a probe succeeds",
			"reason", reason, "consecutive_failures", c.ConsecutiveFailures, "last_error", g.Stats().LastError)
	case breaker.Closed:
		g.o.Logger.Info("hook circuit closed")
	}
	if g.o.OnChange != nil {
		g.o.OnChange(CircuitChange{g.o.Queue, string(g.o.Kind), c})
	}
}

func (g *Guard) threshold() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.mu.circuit.Config().Threshold
}

// Stats returns the figures at this moment.
func (g *Guard) Stats() GuardStats {
	now := g.o.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	i, s := g.mu.circuit.Info(now), g.mu.stats
	s.State, s.ConsecutiveFailures = i.State.String(), i.ConsecutiveFailures
	return s
}

// Reset closes the circuit by hand and forgets its failures.
func (g *Guard) Reset() {
	now := g.o.Now()
	g.mu.Lock()
	c := g.mu.circuit.Reset(now)
	g.mu.Unlock()
	g.changed(c)
}

// SetBreaker changes the limits of the circuit; its state stays.
func (g *Guard) SetBreaker(c breaker.Config) {
	g.mu.Lock()
	g.mu.circuit.SetConfig(c)
	g.mu.Unlock()
}

// Close drops the sandbox. Runs after Close make a new one.
func (g *Guard) Close() { g.vm.drop() }
