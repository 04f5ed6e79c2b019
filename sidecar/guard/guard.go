package guard

import (
	"cmp"
	"container/heap"
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/filaq/fila/breaker"
	"github.com/filaq/fila/sidecar/config"
	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/sidecar/rules"
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
	Tell     func([]*throttle.Wait)     // those whose turn it is at a gate
	Metrics  Metrics
	Signer   *wire.Signer
	Caps     Caps

	// Keep has it on disk until when calls may go on under keys with a limit of
	// concurrency. It does not block; onDisk waits, nil: it is there already.
	Keep func(keys []string, until int64) (onDisk func() *wire.Error)

	MaxPayload func() int64 // bytes of the largest reply

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

// Caps bound what callers name; 0 is no bound. Beyond it they are refused (429).
type Caps struct {
	Permits      int64
	ThrottleKeys int64
	Circuits     int64
}

// Metrics count what the guard does.
type Metrics interface {
	GuardChecked(gate string)       // a call was asked for; what refused it, "" if nothing did
	GuardTook(ns int64)             // a request of check was answered
	GuardEnded(how string, n int64) // permits ended: ok, error or expired
}

// expired is how a permit ends of which nobody has heard.
const expired = "expired"

// capRetryAfter is when it makes sense to try again after a refusal by a cap.
const capRetryAfter = time.Second

// A refusal of which nobody knows when it ends names these times: until the queue has
// gone that has the turn, until a call that is under way may have ended.
const (
	turnRetryAfter = 50 * time.Millisecond
	busyRetryAfter = 200 * time.Millisecond
)

// A check waits so long for what a fleet has to lend, and then names so short a time: what
// is lent ends before long, with nobody there to use it.
const (
	lendWait       = 200 * time.Millisecond
	lendRetryAfter = 50 * time.Millisecond
)

// maxLends is how many requests may wait for what a fleet has to lend.
const maxLends = 1000

// maxForwards is how many calls may be on their way to the filas that gave their permits.
const maxForwards = 1000

// remember is how long (ns) a permit is known after it was done, to tell a repetition
// of done from a permit that there never was.
const remember = int64(10e9)

// Guard gives permits and takes them back. Its methods may be called from any
// goroutine.
type Guard struct {
	opt      Options
	run      uint64        // of this process; in its permits
	forwards chan struct{} // has room for those that are under way
	lends    chan struct{} // the same of requests that wait for a fleet

	mu struct {
		sync.Mutex
		permits map[uint64]*permit // by number: live ones, and those that are remembered
		ends    ends
		number  uint64
		live    int
		byKey   map[string]int // live ones, by first key
		idle    chan struct{}  // of Settle: closed when none is live
		timer   *time.Timer    // fires when the first of ends is due; nil: it is over
		rings   int64          // when it fires (Unix ns)
	}
}

// permit is a call under way, or one that is done.
type permit struct {
	number      uint64
	until       int64 // Unix ns: when it ends or, if it is done, is forgotten
	place       int   // in ends
	key, caller string
	held        held
	untold      bool // it waits for the disk, and its caller for the answer: it does not end by itself
	done        bool
	verdict     wire.GuardVerdict // if it is done
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
	ticket  throttle.Ticket
	circuit queue.Circuit
	pass    breaker.Pass
}

// New returns a guard without permits.
func New(o Options) *Guard {
	g := &Guard{opt: o, run: rand.Uint64(), forwards: make(chan struct{}, maxForwards), lends: make(chan struct{}, maxLends)}
	g.mu.permits = make(map[uint64]*permit)
	g.mu.byKey = make(map[string]int)
	g.mu.timer = time.AfterFunc(time.Hour, func() {
		// Now may be behind the timer, then it is set again.
		g.atTime(g.opt.Now(), func() { g.mu.rings = 0 })
	})
	return g
}

// Settle waits until no permit is live, or ctx ends. New ones may come meanwhile.
func (g *Guard) Settle(ctx context.Context) {
	g.mu.Lock()
	if g.mu.live == 0 {
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
// how the calls went. It says of how many somebody had been told. No new ones are given
// afterwards.
func (g *Guard) Stop() int {
	g.mu.Lock()
	if g.mu.timer != nil {
		g.mu.timer.Stop()
		g.mu.timer = nil
	}
	var ended []held
	told := 0
	for len(g.mu.ends) > 0 {
		if p := g.mu.ends[0]; !p.done {
			ended = append(ended, g.end(p))
			if !p.untold {
				told++
			}
		}
		g.forget()
	}
	g.mu.Unlock()
	g.settle(ended, breaker.Neutral, g.opt.Now())
	return told
}

// Check asks for calls, each by itself, in their order, and waits for the disk where it
// has to. If one of them cannot be decided, it is as if nobody had asked for any.
func (g *Guard) Check(caller string, asks ...wire.GuardAsk) ([]wire.GuardAnswer, *wire.Error) {
	d, err := g.decide(caller, asks)
	if err == nil && d.lacks != "" {
		d, err = g.lent(d, caller, asks)
	}
	if err == nil {
		err = g.onDisk(d)
	}
	if err != nil {
		return nil, err
	}
	g.count(d)
	return d.answers, nil
}

// decision is what becomes of the calls that somebody asks for at once.
type decision struct {
	began   int64 // Unix ns
	answers []wire.GuardAnswer
	given   []*permit            // for the calls that are allowed, in their order
	lacks   string               // a key of which a fleet has to lend what a call was refused for
	onDisk  []func() *wire.Error // what given has to wait for
}

// decide decides about calls. The permits are live, but nobody is to be told of them
// before what they wait for is on disk.
func (g *Guard) decide(caller string, asks []wire.GuardAsk) (*decision, *wire.Error) {
	d := &decision{began: g.opt.Now(), answers: make([]wire.GuardAnswer, len(asks))}
	var err *wire.Error
	for i := range asks {
		if err = g.check(&asks[i], caller, d, &d.answers[i]); err != nil {
			break
		}
	}
	if err == nil && !g.keep(d) {
		err = wire.Draining()
	}
	if err != nil {
		for _, p := range d.given {
			g.undo(&p.held, d.began)
		}
		return nil, err
	}
	return d, nil
}

// lent decides again as soon as a fleet has lent what was lacking, or after a while.
func (g *Guard) lent(d *decision, caller string, asks []wire.GuardAsk) (*decision, *wire.Error) {
	select {
	case g.lends <- struct{}{}:
		defer func() { <-g.lends }()
	default:
		return d, nil
	}
	began := d.began
	over := time.NewTimer(lendWait)
	defer over.Stop()
	for waits := true; waits && d.lacks != ""; {
		g.cancel(d.given, g.opt.Now())
		answered := g.opt.Fleet.Answered(d.lacks) // before it is asked
		var err *wire.Error
		if d, err = g.decide(caller, asks); err != nil {
			return nil, err
		}
		if d.lacks == "" {
			break
		}
		select {
		case <-answered:
		case <-over.C:
			waits = false
		}
	}
	d.began = began
	return d, nil
}

// check asks for a call, and makes a permit if it is allowed.
func (g *Guard) check(ask *wire.GuardAsk, caller string, d *decision, a *wire.GuardAnswer) *wire.Error {
	if err := g.pairs(ask); err != nil {
		return err
	}
	keys := ask.Keys()
	if err := g.room(keys, len(d.given), d.began); err != nil {
		return err
	}
	h, lacks, err := g.take(ask, keys, d.began, a)
	d.lacks = cmp.Or(d.lacks, lacks)
	if err != nil || !a.Allowed {
		return err
	}
	p := &permit{until: d.began + ask.TTLMs*int64(time.Millisecond), key: ask.Key, caller: caller, held: h}
	d.given = append(d.given, p)
	if keys := h.set.Concurrent(); keys != nil {
		if wait := g.opt.Keep(keys, p.until); wait != nil {
			d.onDisk = append(d.onDisk, wait)
		}
	}
	return nil
}

// onDisk waits until what the permits need is on disk, or takes all of them back.
func (g *Guard) onDisk(d *decision) *wire.Error {
	if len(d.onDisk) == 0 {
		return nil
	}
	var err *wire.Error
	for _, wait := range d.onDisk {
		err = cmp.Or(err, wait())
	}
	now := g.opt.Now()
	g.atTime(now, func() {
		for _, p := range d.given {
			switch {
			case g.mu.permits[p.number] != p:
				err = cmp.Or(err, wire.Draining())
			case p.until <= now:
				err = cmp.Or(err, wire.PermitNotFound(p.key))
			}
		}
		for _, p := range d.given {
			if err == nil {
				p.untold = false
				heap.Fix(&g.mu.ends, p.place)
			}
		}
	})
	if err != nil {
		g.cancel(d.given, now)
	}
	return err
}

// count counts calls whose answers can be told.
func (g *Guard) count(d *decision) {
	for i := range d.answers {
		g.opt.Metrics.GuardChecked(d.answers[i].Gate)
	}
	g.opt.Metrics.GuardTook(g.opt.Now() - d.began)
}

// pairs refuses keys that no table of the configuration lets come together.
func (g *Guard) pairs(ask *wire.GuardAsk) *wire.Error {
	tables := g.opt.Tables()
	if len(tables) == 0 {
		return nil
	}
	for _, key := range ask.With {
		if !slices.ContainsFunc(tables, func(t config.GuardTable) bool { return t.Allows(ask.Key, key) }) {
			return wire.GuardPair(ask.Key, key)
		}
	}
	return nil
}

// cancel takes back permits of which nobody has been told: what they took of the gates
// is there again.
func (g *Guard) cancel(given []*permit, now int64) {
	var undone []held
	g.atTime(now, func() {
		for _, p := range given {
			if g.mu.permits[p.number] == p && !p.done {
				undone = append(undone, g.end(p))
				heap.Remove(&g.mu.ends, p.place)
				delete(g.mu.permits, p.number)
			}
		}
	})
	for i := range undone {
		g.undo(&undone[i], now)
	}
}

// undo gives back what is held for a call that is not made.
func (g *Guard) undo(h *held, now int64) {
	g.opt.Tell(h.set.Undo(&h.ticket, now, nil))
	g.giveBack(h, breaker.Neutral, 0, now)
}

// room reports whether there is room for one more permit, beside those that are about
// to be given, and for its keys.
func (g *Guard) room(keys []string, given int, now int64) *wire.Error {
	caps := &g.opt.Caps
	permits := int64(given)
	g.atTime(now, func() { permits += int64(len(g.mu.permits)) })
	switch {
	case caps.Permits > 0 && permits >= caps.Permits:
		return wire.LimitReached("permits of the guard (limits.max_guard_permits)", caps.Permits, capRetryAfter)
	case caps.ThrottleKeys > 0 && g.opt.Gates.Full(keys, caps.ThrottleKeys, now):
		return wire.LimitReached("throttle keys (limits.max_throttle_keys)", caps.ThrottleKeys, capRetryAfter)
	case caps.Circuits > 0 && g.opt.Circuits.Full(keys[0], caps.Circuits):
		return wire.LimitReached("circuits (limits.max_circuits)", caps.Circuits, capRetryAfter)
	}
	return nil
}

// take takes all that the call needs, or nothing and says what refuses it, and for which
// key a fleet is asked.
func (g *Guard) take(ask *wire.GuardAsk, keys []string, now int64, a *wire.GuardAnswer) (h held, lacks string, failed *wire.Error) {
	set, err := g.opt.Gates.Set(keys, now)
	if err != nil { // there are fewer keys than it takes
		return held{}, "", wire.Internal(err.Error())
	}
	h = held{set: set, circuit: g.opt.Circuits.Use(ask.Key, now)}
	if *a, lacks = g.pass(&h, ask, now); !a.Allowed {
		g.giveBack(&h, breaker.Neutral, 0, now)
	}
	return h, lacks, nil
}

// pass goes through the circuit and the limits, all or none.
func (g *Guard) pass(h *held, ask *wire.GuardAsk, now int64) (a wire.GuardAnswer, lacks string) {
	// Not Peek: the permit for a probe of a circuit that a fleet shares has to be asked for.
	n, at := h.circuit.Admits(now)
	if n <= 0 {
		return g.byCircuit(ask.Key, at, now), ""
	}
	ticket, block, ok := h.set.Acquire(now, ask.Thousandths(), throttle.Guest)
	if !ok {
		return g.byThrottle(block, ask.Thousandths(), now)
	}
	h.ticket = ticket
	pass, pending := h.circuit.Allow(now)
	if pending {
		h.circuit.Announce()
	}
	if pass == 0 { // somebody else was faster
		g.opt.Tell(h.set.Undo(&h.ticket, now, nil))
		_, at := h.circuit.Peek(now)
		return g.byCircuit(ask.Key, at, now), ""
	}
	h.pass = pass
	return wire.GuardAnswer{Allowed: true, Probe: n < math.MaxInt64}, ""
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
	*h = held{}
}

// keep makes the permits of a decision live, unless the guard has stopped.
func (g *Guard) keep(d *decision) (kept bool) {
	g.atTime(d.began, func() {
		if kept = g.mu.timer != nil || len(d.given) == 0; !kept {
			return
		}
		for _, p := range d.given {
			p.untold = len(d.onDisk) > 0
			g.mu.number++
			p.number = g.mu.number
			g.mu.permits[p.number] = p
			g.mu.live++
			g.mu.byKey[p.key]++
			heap.Push(&g.mu.ends, p)
		}
	})
	if !kept {
		return false
	}
	next := 0
	for i := range d.answers {
		if a := &d.answers[i]; a.Allowed {
			p := d.given[next]
			a.Permit, a.ExpiresAt = g.sign(p), wire.Timestamp(p.until)
			next++
		}
	}
	return true
}

// Done takes a permit back, and says what the rules make of how the call went. The
// second time it says the same and counts nothing.
func (g *Guard) Done(r *wire.GuardDoneRequest) (wire.GuardVerdict, *wire.Error) {
	token, err := g.opt.Signer.Parse(r.Permit, signed(r.Key, r.Caller))
	if err != nil {
		return wire.GuardVerdict{}, wire.PermitRefused(r.Key)
	}
	if !g.opt.Rules().HasPolicy(r.RetryPolicy) {
		return wire.GuardVerdict{}, wire.BadField("retry_policy", `"`+r.RetryPolicy+`"`, g.opt.Rules().AllowedPolicies())
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
			p.done, p.verdict, p.until = true, verdict, now+remember
			heap.Fix(&g.mu.ends, p.place)
		}
	})
	if refused != nil {
		return wire.GuardVerdict{}, refused
	}
	if h.set != nil {
		g.opt.Metrics.GuardEnded(r.Outcome, 1)
		g.giveBack(&h, outcome, r.RetryAfterMs*int64(time.Millisecond), now)
	}
	return verdict, nil
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

// State says how a key stands, and takes nothing.
func (g *Guard) State(key string) wire.GuardStatus { return g.state(key, true, false) }

// SharedState is State by what filas share of the key alone.
func (g *Guard) SharedState(key string) wire.GuardStatus {
	return g.state(key, g.opt.SharesLimits(key), true)
}

// state says how a key stands by its limits, or without, and by its circuit or, with
// shared, only if that is a shared one.
func (g *Guard) state(key string, limits, shared bool) wire.GuardStatus {
	now := g.opt.Now()
	st := wire.GuardStatus{Key: key, Answer: wire.GuardAnswer{Allowed: true}, Limits: []wire.GuardLimit{}}
	g.atTime(now, func() { st.Permits = g.mu.byKey[key] })
	if limits {
		g.stateOfLimits(&st, now)
	}
	if info, ok := g.opt.Circuits.Info(key); ok && (info.Shared || !shared) {
		st.Circuit = &info
		c := g.opt.Circuits.Use(key, now)
		if n, at := c.Peek(now); n <= 0 {
			st.Answer = g.byCircuit(key, at, now)
		}
		for _, c := range g.opt.Circuits.Drop(c, now, nil) {
			c.Announce()
		}
	}
	return st
}

func (g *Guard) stateOfLimits(st *wire.GuardStatus, now int64) {
	set, err := g.opt.Gates.Set([]string{st.Key}, now)
	if err != nil { // one key is never too many
		return
	}
	defer g.opt.Gates.Close(set, now)
	for _, gate := range set.Gates() {
		info := gate.Info(now)
		if g.opt.Fleet != nil {
			g.opt.Fleet.Outlook(&info, throttle.One, now)
		}
		for _, kind := range []throttle.Kind{throttle.ByRate, throttle.ByWindow, throttle.ByInFlight} {
			if l := limit(&info, kind, now); l != nil {
				st.Limits = append(st.Limits, *l)
			}
		}
	}
	if block, ok := set.Check(now, throttle.One, throttle.Guest); !ok {
		if answer, lacks := g.byThrottle(block, throttle.One, now); lacks == "" {
			st.Answer = answer // otherwise there is enough, and a check would be lent it
		}
	}
}

// Known is how many permits are in memory: live ones, and those that were done a moment
// ago.
func (g *Guard) Known() int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return int64(len(g.mu.permits))
}

// Live is how many permits are held.
func (g *Guard) Live() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.mu.live
}

// signed is what a permit's id is bound to. No queue has a name with a NUL in it, so
// that no id passes for the token of a delivery.
func signed(key, caller string) string { return "\x00guard\x00" + caller + "\x00" + key }

func (g *Guard) sign(p *permit) string {
	return string(g.opt.Signer.Append(nil, signed(p.key, p.caller), wire.Token{Seq: p.number, Lease: g.run}))
}

// atTime does something under mu after what is due at now has ended. A call of which
// nobody has heard counts as failed: its caller may be hanging in it.
func (g *Guard) atTime(now int64, do func()) {
	g.mu.Lock()
	var ended []held
	for len(g.mu.ends) > 0 && g.mu.ends[0].due() <= now {
		if p := g.mu.ends[0]; !p.done {
			ended = append(ended, g.end(p))
		}
		g.forget()
	}
	do()
	if len(g.mu.ends) > 0 && g.mu.timer != nil && g.mu.ends[0].due() != g.mu.rings {
		g.mu.rings = g.mu.ends[0].due()
		g.mu.timer.Reset(time.Duration(max(g.mu.rings-now, 0)))
	}
	g.mu.Unlock()
	if len(ended) > 0 {
		g.opt.Metrics.GuardEnded(expired, int64(len(ended)))
		g.settle(ended, breaker.Failure, now)
	}
}

// settle gives back what permits held that have ended by themselves.
func (g *Guard) settle(ended []held, o breaker.Outcome, now int64) {
	for i := range ended {
		g.giveBack(&ended[i], o, 0, now)
	}
}

// forget forgets the permit that ends first. Its caller holds mu.
func (g *Guard) forget() {
	p := heap.Pop(&g.mu.ends).(*permit)
	delete(g.mu.permits, p.number)
}

// end takes from a permit what it holds. Its caller holds mu.
func (g *Guard) end(p *permit) held {
	h := p.held
	p.held = held{}
	if g.mu.live--; g.mu.live == 0 && g.mu.idle != nil {
		close(g.mu.idle)
		g.mu.idle = nil
	}
	if g.mu.byKey[p.key]--; g.mu.byKey[p.key] == 0 {
		delete(g.mu.byKey, p.key)
	}
	return h
}

// ends are permits by the time at which they end.
type ends []*permit

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

// byCircuit is the refusal by a circuit that looks again at a time.
func (g *Guard) byCircuit(key string, at, now int64) wire.GuardAnswer {
	a := wire.GuardAnswer{Gate: "circuit", Key: key}
	if at == math.MaxInt64 {
		if info, _ := g.opt.Circuits.Info(key); info.OpenUntil == "closed" {
			return a // only a hand closes it
		}
		at = now + int64(busyRetryAfter) // probes are under way
	}
	a.RetryAfterMs = millis(at - now)
	return a
}

// byThrottle is the refusal by the gate of a throttle key. lacks is the key, if a fleet
// has to lend what there is.
func (g *Guard) byThrottle(b throttle.Block, cost, now int64) (a wire.GuardAnswer, lacks string) {
	info, kind, at := b.Gate.Info(now), b.Kind, b.At
	if g.opt.Fleet != nil && (kind == throttle.ByRate || kind == throttle.ByWindow || kind == throttle.ByInFlight) {
		if k, t, ok := g.opt.Fleet.Outlook(&info, cost, now); ok {
			kind, at = k, t
			if at <= now {
				lacks, at = info.Key, now+int64(lendRetryAfter)
			}
		}
	}
	a = wire.GuardAnswer{Gate: kind.String(), Key: info.Key}
	switch {
	case at != throttle.Never:
	case kind == throttle.ByTurn, kind == throttle.ByRate, kind == throttle.ByWindow:
		// What a fleet lends of the last two it lends for less than busyRetryAfter.
		at = now + int64(turnRetryAfter)
	case kind != throttle.ByPause:
		at = now + int64(busyRetryAfter)
	}
	if at != throttle.Never {
		a.RetryAfterMs = millis(at - now)
	}
	a.Limit = limit(&info, kind, now)
	return a, lacks
}

// limit says how a limit of a gate stands; nil: there is none of that kind.
func limit(i *throttle.Info, kind throttle.Kind, now int64) *wire.GuardLimit {
	l := &wire.GuardLimit{Key: i.Key, Gate: kind.String()}
	var reset int64
	switch {
	case kind == throttle.ByRate && i.Limits.Rate != (throttle.Rate{}):
		l.Limit, l.Remaining, reset = i.Limits.Burst/throttle.One, max(i.Tokens/throttle.One, 0), i.BucketFull
	case kind == throttle.ByWindow && i.Limits.Limit > 0:
		l.Limit, l.Remaining, reset = i.Limits.Limit, max(i.Limits.Limit-i.InWindow, 0), i.WindowEmpty
		l.WindowMs = i.Limits.Window / int64(time.Millisecond)
	case kind == throttle.ByInFlight && i.Limits.Concurrency > 0:
		l.Limit, l.Remaining = i.Limits.Concurrency, max(i.Limits.Concurrency-i.InFlight, 0)
	default:
		return nil
	}
	if reset > 0 {
		l.ResetS = up(reset, time.Second)
		l.ResetEpoch = up(now+reset, time.Second)
	}
	return l
}

func millis(ns int64) int64 { return up(max(ns, 0), time.Millisecond) }

// up rounds nanoseconds up to whole units.
func up(ns int64, unit time.Duration) int64 {
	n := ns / int64(unit)
	if ns%int64(unit) > 0 {
		n++
	}
	return n
}
