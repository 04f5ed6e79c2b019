package guard

import (
	"cmp"
	"container/heap"
	"context"
	"log/slog"
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/filaq/fila/breaker"
	"github.com/filaq/fila/sidecar/config"
	"github.com/filaq/fila/sidecar/queue/gates"
	"github.com/filaq/fila/sidecar/rules"
	"github.com/filaq/fila/sidecar/telemetry"
	"github.com/filaq/fila/throttle"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// Circuits are the circuits by key.
type Circuits interface {
	Use(key string, now int64) gates.Circuit
	Drop(c gates.Circuit, now int64, pending []gates.Circuit) []gates.Circuit
	Full(key string, limit int64) bool
	Info(key string) (api.CircuitInfo, bool)
}

// Options of a [Service].
type Options struct {
	Now      func() int64 // Unix ns; it does not go back
	Gates    *throttle.Gates
	Circuits Circuits
	Rules    func() *rules.Rules
	Tables   func() []config.GuardTable // which keys may come together
	// ExpiredFails reports whether the expiry of a permit with this first key is a failure
	// for the circuit.
	ExpiredFails func(key string) bool
	Notify       func([]*throttle.Wait) // waiters that have the turn at a gate
	Metrics      Metrics
	Signer       *wire.Signer
	Caps         Caps

	// Keep stores until when a call may go on under keys with a concurrency limit. It does
	// not block. onDisk waits for the disk, and is nil if that is not necessary. ended is
	// called once when the call is over, and never if fila ends before; it may be nil.
	Keep func(keys []string, until int64) (ended func(), onDisk func() *wire.Error)

	MaxPayload func() int64 // bytes of the largest reply

	Log   *slog.Logger
	Event func(typ, tail string, e wire.Event) // publishes an event; it does not block

	// For a guard that several filas serve together: Forward sends a done to the fila that
	// gave the permit and returns its reply, or an error if there is none. SharesLimits
	// reports whether the limits of a throttle key are shared.
	Forward      func(issuer uint64, body []byte) (reply []byte, refused *wire.Error, err error)
	SharesLimits func(key string) bool
	Fleet        Fleet // nil: no limits are shared
}

// Fleet has the limits that several filas share. They have to be requested before calls
// can be allowed. Its methods do not block.
type Fleet interface {
	// Outlook fills i with the state of the limits in the fleet. It returns the kind of
	// limit that a call of this cost has to wait for, and until when (Unix ns): now if
	// nothing is missing, throttle.Never if the time is unknown. ok is false if the gate
	// does not depend on leases.
	Outlook(i *throttle.Info, cost, now int64) (kind throttle.Kind, at int64, ok bool)
	// Answered returns a channel that is closed at the next answer of the fleet about a
	// key; nil if the fleet is not asked.
	Answered(key string) <-chan struct{}
	// BudgetComes reports whether the fleet keeps the budget of a key, and may give more of it within
	// milliseconds.
	BudgetComes(key string) bool
}

// Caps bound permits and keys; 0 means no bound. Beyond a cap checks are refused (429).
type Caps struct {
	Permits       int64 // live ones
	KeyPermits    int64 // live ones with the same first key
	CallerPermits int64 // live ones of the same holder
	ThrottleKeys  int64
	Circuits      int64
}

// Metrics count what the guard does.
type Metrics interface {
	GuardChecked(gate string) // a check of one call; gate has refused it, or is ""
	// GuardTook counts a check request, its time and its trace.
	GuardTook(ns int64, trace wire.TraceParent)
	GuardEnded(how string, n int64) // permits ended: ok, error, expired or operator
	GuardCapped(limit string)       // a key of [limits] has refused a request
	GuardFailed(severity string)    // a done with an error
}

// How a permit ends without a done.
const (
	expired    = "expired"
	byOperator = "operator"
)

// capRetryAfter is the retry time of a refusal by a cap.
const capRetryAfter = time.Second

// maxForwards is how many done requests may be under way to other filas.
const maxForwards = 1000

// doneLife is how long (ns) a permit is known after done, so that a repeated done differs
// from an unknown permit.
const doneLife = int64(10e9)

// Service gives permits and takes them back. It is safe for concurrent use.
type Service struct {
	opt      Options
	run      uint64        // identifies this process in its permits
	forwards chan struct{} // one element for each done under way to another fila
	waiting  chan struct{} // one element for each request that waits for leases
	failures *telemetry.Failures

	mu struct {
		sync.Mutex
		permits  map[uint64]*permit // by number: live and done ones
		ends     ends               // live ones
		done     []*permit          // done ones, in the order in which they are forgotten
		number   uint64             // of the newest permit
		byKey    map[string]int     // number of live ones by first key
		byHolder map[holder]int     // number of live ones by holder
		listed   givenList          // live ones
		idle     chan struct{}      // of Drain: closed when none is live
		timer    *time.Timer        // fires when the first of ends or done is due; nil: stopped
		firesAt  int64              // Unix ns
	}
}

// permit is a call under way, or one that is done.
type permit struct {
	origin
	number     uint64
	given      int64 // Unix ns
	until      int64 // Unix ns: when it ends or, if it is done, is forgotten
	index      int   // in ends
	key        string
	resources  resources
	probe      bool
	unanswered bool // it waits for the disk, so its caller has no reply: it does not expire
	done       bool
	verdict    api.GuardVerdict // if it is done
}

// due is when the permit ends or is forgotten by itself.
func (p *permit) due() int64 {
	if p.unanswered {
		return math.MaxInt64
	}
	return p.until
}

// resources are what a permit holds.
type resources struct {
	set        *throttle.Set
	grant      throttle.Grant
	circuit    gates.Circuit
	permission breaker.Pass
	ended      func() // of Options.Keep, or nil
}

// New returns a guard without permits.
func New(o Options) *Service {
	g := &Service{opt: o, run: rand.Uint64(), forwards: make(chan struct{}, maxForwards), waiting: make(chan struct{}, maxWaiting)}
	g.failures = telemetry.NewFailures(o.Now, o.Event)
	g.mu.permits = make(map[uint64]*permit)
	g.mu.byKey, g.mu.byHolder = make(map[string]int), make(map[holder]int)
	g.mu.timer = time.AfterFunc(time.Hour, func() {
		// If Now is behind the timer, atTime sets it again.
		g.atTime(g.opt.Now(), func() { g.mu.firesAt = 0 })
	})
	return g
}

// Drain waits until no permit is live, or ctx ends. New ones may come meanwhile.
func (g *Service) Drain(ctx context.Context) {
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

// Stop ends all permits and releases what they hold, without an outcome for circuits. It
// returns the number of permits whose callers had their reply: these calls may go on, so
// their keys stay stored. No check is allowed afterwards.
func (g *Service) Stop() int {
	g.mu.Lock()
	if g.mu.timer != nil {
		g.mu.timer.Stop()
		g.mu.timer = nil
	}
	var ended []ending
	told := 0
	for len(g.mu.ends) > 0 {
		p := g.mu.ends[0]
		e := ending{resources: g.end(p), outcome: breaker.Neutral}
		if !p.unanswered {
			told++
			e.resources.ended = nil
		}
		ended = append(ended, e)
	}
	for len(g.mu.done) > 0 {
		g.forgetDone()
	}
	g.mu.Unlock()
	g.release(ended, g.opt.Now())
	return told
}

// giveBack releases resources of a call that has ended, and tells its circuit for how long (ns)
// the destination wants no calls.
func (g *Service) giveBack(h *resources, e gates.Ending, retryAfter, now int64) {
	g.opt.Notify(h.set.ReleaseCorrected(&h.grant, e.Delta, now, nil))
	if e.Feedback != nil {
		h.set.Feedback(*e.Feedback, now)
	}
	var pending bool
	if e.Outcome == breaker.Failure {
		pending = h.circuit.Failed(h.permission, now, *e.Failed, false)
	} else {
		pending = h.circuit.Done(h.permission, now, e.Outcome)
	}
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
	*h = resources{}
}

// Done ends a permit and returns the verdict of the rules about the outcome. Repeating it
// returns the same verdict and counts nothing.
func (g *Service) Done(r *api.GuardDoneRequest) (api.GuardVerdict, *wire.Error) {
	token, err := g.opt.Signer.Parse(r.Permit, signed(r.Key, r.Caller))
	if err != nil {
		return api.GuardVerdict{}, wire.PermitRefused(r.Key)
	}
	if err := g.knownPolicy(r.RetryPolicy); err != nil {
		return api.GuardVerdict{}, err
	}
	verdict, outcome, overload := g.judge(r)
	now := g.opt.Now()
	var h resources
	var given int64
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
			h, given = g.end(p), p.given
			p.done, p.verdict, p.until = true, verdict, now+doneLife
			g.remember(p)
		}
	})
	if refused != nil {
		return api.GuardVerdict{}, refused
	}
	if h.set != nil {
		g.opt.Metrics.GuardEnded(r.Outcome, 1)
		e := gates.Ending{
			Outcome: outcome, Failed: &gates.FailedCall{Caller: r.Caller, Attempt: r.Attempt, Code: r.ErrorCode, Error: r.Error},
			Delta: r.Thousandths(h.grant.Cost()) - h.grant.Cost(),
		}
		if f, _ := wire.NewFeedback(r.Remaining, r.ResetMs); f != nil {
			e.Feedback = &throttle.Feedback{Remaining: f.Remaining, Reset: int64(f.Reset)}
		}
		if h.set.Learns() {
			g.teach(&h, r, verdict.Rule, overload, given, e.Delta, now)
		}
		g.giveBack(&h, e, r.RetryAfterMs*int64(time.Millisecond), now)
		if r.Outcome == api.GuardError {
			g.reportFailure(r, &verdict)
		}
	}
	return verdict, nil
}

// teach tells the limits that learn how a call ended, before its permit is returned. delta is how much
// more (thousandths) the call cost than estimated.
func (g *Service) teach(h *resources, r *api.GuardDoneRequest, rule string, overload bool, given, delta, now int64) {
	switch {
	case overload:
		cause := cmp.Or(r.ErrorCode, rule, "overload") + " of a call"
		if r.Caller != "" {
			cause += " of " + r.Caller
		}
		h.set.Overloaded(throttle.Overload{Delivered: given, Cause: cause}, now)
	case r.Outcome == api.GuardOK:
		g.opt.Notify(h.set.Succeeded(&h.grant, delta, now, nil))
	}
}

// reportFailure counts and reports a failure of a call like a failure of a message.
func (g *Service) reportFailure(r *api.GuardDoneRequest, v *api.GuardVerdict) {
	g.opt.Metrics.GuardFailed(v.Severity)
	g.failures.Report(telemetry.Unlimited(g.opt.Log), &telemetry.Failure{
		Key: r.Key, Caller: r.Caller, Attempts: r.Attempt, Error: r.Error, Code: r.ErrorCode, Severity: v.Severity, Rule: v.Rule,
	})
}

func (g *Service) knownPolicy(name string) *wire.Error {
	if g.opt.Rules().HasPolicy(name) {
		return nil
	}
	return wire.BadField("retry_policy", `"`+name+`"`, g.opt.Rules().AllowedPolicies())
}

// judge returns the verdict of the rules about a call, the outcome for its circuit, and whether
// it is an overload for limits that learn.
func (g *Service) judge(r *api.GuardDoneRequest) (v api.GuardVerdict, o breaker.Outcome, overload bool) {
	if r.Outcome == api.GuardOK {
		return api.GuardVerdict{}, breaker.Success, false
	}
	ruled := g.opt.Rules().Judge("", r.RetryPolicy, r.ErrorCode, r.Error, r.Attempt, rand.Float64)
	v = api.GuardVerdict{Severity: ruled.Severity, Rule: ruled.Rule, Description: ruled.Description, Retry: ruled.Retry}
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
		return v, breaker.Neutral, false
	}
	return v, breaker.Failure, ruled.Overload
}

// Issuer identifies this process in its permits.
func (g *Service) Issuer() uint64 { return g.run }

// Live is the number of live permits.
func (g *Service) Live() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.mu.ends)
}

// signed returns the text that a permit's id is signed with. No queue name has a NUL, so no
// permit id is a valid delivery token.
func signed(key, caller string) string { return "\x00guard\x00" + caller + "\x00" + key }

func (g *Service) sign(p *permit) string {
	return string(g.opt.Signer.AppendPermit(nil, signed(p.key, p.caller), wire.Token{Seq: p.number, Lease: g.run}))
}

// ending is a permit that has ended without a done, and the outcome for its circuit.
type ending struct {
	key       string
	resources resources
	outcome   breaker.Outcome
}

// atTime calls do under mu after ending what is due at now. The outcome of an expired call is
// unknown: its caller may hang in it, have lost the reply, or never send done.
func (g *Service) atTime(now int64, do func()) {
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
	if due := g.due(); due != math.MaxInt64 && g.mu.timer != nil && due != g.mu.firesAt {
		g.mu.firesAt = due
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
		g.release(ended, now)
	}
}

// release returns the resources of permits that have ended without a done.
func (g *Service) release(ended []ending, now int64) {
	for i := range ended {
		g.giveBack(&ended[i].resources, gates.Ending{Outcome: ended[i].outcome, Failed: &gates.FailedCall{Error: "the permit has expired"}}, 0, now)
	}
}

// due is when the first permit ends or is forgotten; math.MaxInt64: none does by itself. Its
// caller holds mu.
func (g *Service) due() int64 {
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
func (e *ends) remove(p *permit) { heap.Remove(e, p.index) }

func (e ends) Len() int           { return len(e) }
func (e ends) Less(i, j int) bool { return e[i].due() < e[j].due() }
func (e ends) Swap(i, j int)      { e[i], e[j] = e[j], e[i]; e[i].index, e[j].index = i, j }
func (e *ends) Push(p any)        { p.(*permit).index = len(*e); *e = append(*e, p.(*permit)) }
func (e *ends) Pop() any {
	last := len(*e) - 1
	p := (*e)[last]
	(*e)[last] = nil
	*e = (*e)[:last]
	return p
}
