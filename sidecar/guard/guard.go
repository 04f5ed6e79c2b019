package guard

import (
	"container/heap"
	"context"
	"log/slog"
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/filaq/fila/breaker"
	"github.com/filaq/fila/sidecar/config"
	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/sidecar/rules"
	"github.com/filaq/fila/sidecar/telemetry"
	"github.com/filaq/fila/throttle"
	"github.com/filaq/fila/wire"
)

// Circuits are the circuits by key.
type Circuits interface {
	Use(key string, now int64) queue.Circuit
	Drop(c queue.Circuit, now int64, pending []queue.Circuit) []queue.Circuit
	Full(key string, limit int64) bool
	Info(key string) (wire.CircuitInfo, bool)
}

// Options of a [Guard].
type Options struct {
	Now      func() int64 // Unix ns; it does not go back
	Gates    *throttle.Gates
	Circuits Circuits
	Rules    func() *rules.Rules
	Tables   func() []config.GuardTable // which keys may come together
	// ExpiredFails reports whether a permit with this first key that ends by itself is a
	// failure for the circuit.
	ExpiredFails func(key string) bool
	Tell         func([]*throttle.Wait) // those whose turn it is at a gate
	Metrics      Metrics
	Signer       *wire.Signer
	Caps         Caps

	// Keep has it on disk until when a call may go on under keys with a limit of
	// concurrency. It does not block; onDisk waits, nil: it is there already. ended is
	// called once when the call is over, and never if fila ends before; nil: nobody counts.
	Keep func(keys []string, until int64) (ended func(), onDisk func() *wire.Error)

	MaxPayload func() int64 // bytes of the largest reply

	Log   *slog.Logger
	Event func(typ, tail string, e wire.Event) // publishes an event; it does not block

	// Of a guard that several filas answer together. Forward tells the one that gave a
	// permit how the call went, and returns its answer; an error: there is none.
	// SharesLimits says whether the limits of a throttle key hold over all of them.
	Forward      func(issuer uint64, body []byte) (reply []byte, refused *wire.Error, err error)
	SharesLimits func(key string) bool
	Fleet        Fleet // nil: no limits are shared
}

// Fleet has the limits that several filas share, which have to be asked for before calls
// can be allowed. Its methods do not block.
type Fleet interface {
	// Outlook puts into i how the limits of its gate stand in the fleet, and says which
	// of them is to be waited for by a call of that cost, and until when (Unix ns): now,
	// if there is enough of all; throttle.Never, if nobody knows. ok is false if the gate
	// does not go by what the fleet lends.
	Outlook(i *throttle.Info, cost, now int64) (kind throttle.Kind, at int64, ok bool)
	// Answered returns a channel that is closed when the fleet has answered for a key
	// next; nil: it is not asked.
	Answered(key string) <-chan struct{}
}

// Caps bound what callers hold and name; 0 is no bound. Beyond it they are refused (429).
type Caps struct {
	Permits       int64 // live ones
	KeyPermits    int64 // of them, those with one first key
	CallerPermits int64 // of them, those of one holder
	ThrottleKeys  int64
	Circuits      int64
}

// Metrics count what the guard does.
type Metrics interface {
	GuardChecked(gate string) // a call was asked for; what refused it, "" if nothing did
	// GuardTook tells that a request of check was answered, and for whose trace.
	GuardTook(ns int64, trace wire.TraceParent)
	GuardEnded(how string, n int64) // permits ended: ok, error, expired or operator
	GuardCapped(limit string)       // a request was refused by a key of [limits]
	GuardFailed(severity string)    // a caller has told of an error
}

// How a permit ends of which its caller tells nothing.
const (
	expired    = "expired"
	byOperator = "operator"
)

// capRetryAfter is when it makes sense to try again after a refusal by a cap.
const capRetryAfter = time.Second

// maxForwards is how many calls may be on their way to the filas that gave their permits.
const maxForwards = 1000

// remembered is how long (ns) a permit is known after it was done, to tell a repetition
// of done from a permit that there never was.
const remembered = int64(10e9)

// Guard gives permits and takes them back. Its methods may be called from any
// goroutine.
type Guard struct {
	opt      Options
	run      uint64        // of this process; in its permits
	forwards chan struct{} // has room for those that are under way
	lends    chan struct{} // the same of requests that wait for a fleet
	failures *telemetry.Failures

	mu struct {
		sync.Mutex
		permits  map[uint64]*permit // by number: live ones, and those that are remembered
		ends     ends               // live ones
		done     []*permit          // those that are remembered, in the order in which they are forgotten
		number   uint64             // of the newest permit
		byKey    map[string]int     // how many are live, by first key
		byHolder map[holder]int
		listed   ledger        // live ones
		idle     chan struct{} // of Settle: closed when none is live
		timer    *time.Timer   // fires when the first of ends or done is due; nil: it is over
		rings    int64         // when it fires (Unix ns)
	}
}

// permit is a call under way, or one that is done.
type permit struct {
	asker
	number  uint64
	given   int64 // Unix ns
	until   int64 // Unix ns: when it ends or, if it is done, is forgotten
	place   int   // in ends
	key     string
	held    held
	probe   bool
	untold  bool // it waits for the disk, and its caller for the answer: it does not end by itself
	done    bool
	verdict wire.GuardVerdict // if it is done
}

// due is when something happens to it by itself.
func (p *permit) due() int64 {
	if p.untold {
		return math.MaxInt64
	}
	return p.until
}

// held is what a permit holds of gates.
type held struct {
	set     *throttle.Set
	ticket  throttle.Grant
	circuit queue.Circuit
	pass    breaker.Pass
	ended   func() // of Options.Keep, or nil
}

// New returns a guard without permits.
func New(o Options) *Guard {
	g := &Guard{opt: o, run: rand.Uint64(), forwards: make(chan struct{}, maxForwards), lends: make(chan struct{}, maxLends)}
	g.failures = telemetry.NewFailures(o.Now, o.Event)
	g.mu.permits = make(map[uint64]*permit)
	g.mu.byKey, g.mu.byHolder = make(map[string]int), make(map[holder]int)
	g.mu.timer = time.AfterFunc(time.Hour, func() {
		// Now may be behind the timer, then it is set again.
		g.atTime(g.opt.Now(), func() { g.mu.rings = 0 })
	})
	return g
}

// Settle waits until no permit is live, or ctx ends. New ones may come meanwhile.
func (g *Guard) Settle(ctx context.Context) {
	g.mu.Lock()
	if len(g.mu.ends) == 0 {
		g.mu.Unlock()
		return
	}
	idle := make(chan struct{})
	g.mu.idle = idle
	g.mu.Unlock()
	select {
	case <-idle:
	case <-ctx.Done():
	}
}

// Stop ends all permits: what they hold is given back, and a circuit hears nothing of
// how the calls went. It says of how many somebody had been told: these calls may go on, so
// their keys stay kept. No new ones are given afterwards.
func (g *Guard) Stop() int {
	g.mu.Lock()
	if g.mu.timer != nil {
		g.mu.timer.Stop()
		g.mu.timer = nil
	}
	var ended []ending
	told := 0
	for len(g.mu.ends) > 0 {
		p := g.mu.ends[0]
		e := ending{held: g.end(p), outcome: breaker.Neutral}
		if !p.untold {
			told++
			e.held.ended = nil
		}
		ended = append(ended, e)
	}
	for len(g.mu.done) > 0 {
		g.forgetDone()
	}
	g.mu.Unlock()
	g.settle(ended, g.opt.Now())
	return told
}

// giveBack gives back what is held. The circuit hears how the call went, and for how
// long (ns) its destination wants to be left alone.
func (g *Guard) giveBack(h *held, o breaker.Outcome, retryAfter, now int64) {
	g.opt.Tell(h.set.Release(&h.ticket, now, nil))
	pending := h.circuit.Done(h.pass, now, o)
	if retryAfter > 0 {
		pending = h.circuit.RetryAfter(now, now+retryAfter) || pending
	}
	if pending {
		h.circuit.Announce()
	}
	for _, c := range g.opt.Circuits.Drop(h.circuit, now, nil) {
		c.Announce()
	}
	g.opt.Gates.Close(h.set, now)
	if h.ended != nil {
		h.ended()
	}
	*h = held{}
}

// Done takes a permit back, and says what the rules make of how the call went. The
// second time it says the same and counts nothing.
func (g *Guard) Done(r *wire.GuardDoneRequest) (wire.GuardVerdict, *wire.Error) {
	token, err := g.opt.Signer.Parse(r.Permit, signed(r.Key, r.Caller))
	if err != nil {
		return wire.GuardVerdict{}, wire.PermitRefused(r.Key)
	}
	if err := g.knownPolicy(r.RetryPolicy); err != nil {
		return wire.GuardVerdict{}, err
	}
	verdict, outcome := g.judge(r)
	now := g.opt.Now()
	var h held
	var refused *wire.Error
	g.atTime(now, func() {
		p := g.mu.permits[token.Seq]
		switch {
		case p == nil || token.Lease != g.run:
			refused = wire.PermitNotFound(r.Key)
		case p.done:
			verdict = p.verdict
			verdict.Duplicate = true
		default:
			h = g.end(p)
			p.done, p.verdict, p.until = true, verdict, now+remembered
			g.remember(p)
		}
	})
	if refused != nil {
		return wire.GuardVerdict{}, refused
	}
	if h.set != nil {
		g.opt.Metrics.GuardEnded(r.Outcome, 1)
		g.giveBack(&h, outcome, r.RetryAfterMs*int64(time.Millisecond), now)
		if r.Outcome == wire.GuardError {
			g.reportFailure(r, &verdict)
		}
	}
	return verdict, nil
}

// reportFailure counts and reports a failure of a call as those of messages.
func (g *Guard) reportFailure(r *wire.GuardDoneRequest, v *wire.GuardVerdict) {
	g.opt.Metrics.GuardFailed(v.Severity)
	g.failures.Report(telemetry.Unlimited(g.opt.Log), &telemetry.Failure{
		Key: r.Key, Caller: r.Caller, Attempts: r.Attempt, Error: r.Error, Code: r.ErrorCode, Severity: v.Severity, Rule: v.Rule,
	})
}

func (g *Guard) knownPolicy(name string) *wire.Error {
	if g.opt.Rules().HasPolicy(name) {
		return nil
	}
	return wire.BadField("retry_policy", `"`+name+`"`, g.opt.Rules().AllowedPolicies())
}

// judge says what the rules make of a call, and what its circuit is to hear.
func (g *Guard) judge(r *wire.GuardDoneRequest) (wire.GuardVerdict, breaker.Outcome) {
	if r.Outcome == wire.GuardOK {
		return wire.GuardVerdict{}, breaker.Success
	}
	ruled := g.opt.Rules().Judge("", r.RetryPolicy, r.ErrorCode, r.Error, r.Attempt, rand.Float64)
	v := wire.GuardVerdict{Severity: ruled.Severity, Rule: ruled.Rule, Description: ruled.Description, Retry: ruled.Retry}
	if v.Severity == "" {
		v.Severity = rules.Medium
	}
	delay := ruled.Delay
	if ruled.Policy == "" && ruled.Retry {
		settings := wire.DefaultQueueSettings("")
		delay = rules.Backoff(&settings, r.Attempt, rand.Float64)
	}
	v.DelayMs = millis(delay)
	if !v.Retry || ruled.MaxRetries > 0 {
		left := int64(0)
		if v.Retry {
			left = ruled.MaxRetries - int64(r.Attempt) + 1
		}
		v.RetriesLeft = &left
	}
	if ruled.MessageFault {
		return v, breaker.Neutral
	}
	return v, breaker.Failure
}

// Issuer is this process as the permits that it gives name it.
func (g *Guard) Issuer() uint64 { return g.run }

// Live is how many permits are held.
func (g *Guard) Live() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.mu.ends)
}

// signed is what a permit's id is bound to. No queue has a name with a NUL in it, so
// that no id passes for the token of a delivery.
func signed(key, caller string) string { return "\x00guard\x00" + caller + "\x00" + key }

func (g *Guard) sign(p *permit) string {
	return string(g.opt.Signer.Append(nil, signed(p.key, p.caller), wire.Token{Seq: p.number, Lease: g.run}))
}

// ending is what a permit held that has ended without a done, and what its circuit hears.
type ending struct {
	key     string
	held    held
	outcome breaker.Outcome
}

// atTime does something under mu after what is due at now has ended. Nobody knows how such
// a call went, or whether it was made: its caller may hang in it, have waited for the answer
// in vain, or tell nothing ever.
func (g *Guard) atTime(now int64, do func()) {
	g.mu.Lock()
	var ended []ending
	for len(g.mu.ends) > 0 && g.mu.ends[0].due() <= now {
		p := g.mu.ends[0]
		ended = append(ended, ending{p.key, g.end(p), breaker.Neutral})
	}
	for len(g.mu.done) > 0 && g.mu.done[0].until <= now {
		g.forgetDone()
	}
	do()
	if due := g.due(); due != math.MaxInt64 && g.mu.timer != nil && due != g.mu.rings {
		g.mu.rings = due
		g.mu.timer.Reset(time.Duration(max(due-now, 0)))
	}
	g.mu.Unlock()
	if len(ended) > 0 {
		for i := range ended {
			if g.opt.ExpiredFails(ended[i].key) {
				ended[i].outcome = breaker.Failure
			}
		}
		g.opt.Metrics.GuardEnded(expired, int64(len(ended)))
		g.settle(ended, now)
	}
}

// settle gives back what permits held that have ended without a done.
func (g *Guard) settle(ended []ending, now int64) {
	for i := range ended {
		g.giveBack(&ended[i].held, ended[i].outcome, 0, now)
	}
}

// due is when the first permit ends or is forgotten; math.MaxInt64: none does by itself. Its
// caller holds mu.
func (g *Guard) due() int64 {
	due := int64(math.MaxInt64)
	if len(g.mu.ends) > 0 {
		due = g.mu.ends[0].due()
	}
	if len(g.mu.done) > 0 {
		due = min(due, g.mu.done[0].until)
	}
	return due
}

// ends are permits by the time at which they end.
type ends []*permit

func (e *ends) add(p *permit)    { heap.Push(e, p) }
func (e *ends) remove(p *permit) { heap.Remove(e, p.place) }

func (e ends) Len() int           { return len(e) }
func (e ends) Less(i, j int) bool { return e[i].due() < e[j].due() }
func (e ends) Swap(i, j int)      { e[i], e[j] = e[j], e[i]; e[i].place, e[j].place = i, j }
func (e *ends) Push(p any)        { p.(*permit).place = len(*e); *e = append(*e, p.(*permit)) }
func (e *ends) Pop() any {
	last := len(*e) - 1
	p := (*e)[last]
	(*e)[last] = nil
	*e = (*e)[:last]
	return p
}
