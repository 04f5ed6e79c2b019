package circuit

import (
	"cmp"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/filaq/fila/breaker"
	"github.com/filaq/fila/ordered"
	"github.com/filaq/fila/sidecar/fleet"
	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
)

// Settings are the limits of one circuit.
type Settings struct {
	Breaker breaker.Config
	// More than MaxFailures within FailureWindow open the circuit for FailureHold,
	// or with 0 until it is closed by hand. 0 MaxFailures is no limit.
	MaxFailures   int64
	FailureWindow time.Duration
	FailureHold   time.Duration
}

// Options of a [Registry].
type Options struct {
	Log    *slog.Logger
	Now    func() int64
	Event  func(typ, tail string, e wire.Event) // publishes e under the circuit key
	Submit func(*store.Batch)                   // writes; store.Store.Submit
	Held   func()                               // counts a circuit that too many failures have opened; nil: nobody does

	// Fleet has the records of circuits that Shares says are shared with other filas;
	// nil: none is. It is not started yet.
	Fleet  Fleet
	Shares func(key string) bool
	// Kin reports whether an instance goes by the same settings as this one;
	// nil: none does.
	Kin func(instance string) bool
	// Conflict is told once that newer limits of another instance, which is no kin, are in
	// force for a shared circuit, on a goroutine of the fleet;
	// nil: nobody is.
	Conflict func(Conflict)
	// Node is the name of this fila among those that publish events under the same
	// subjects: of what happens to a shared circuit the one tells that has made it
	// happen. Empty: it is alone there.
	Node string
}

// Conflict is limits of a shared circuit that differ over a fleet.
type Conflict struct {
	Key          string
	Own, InForce breaker.Config
	By           string // name of the instance whose limits are in force
	At           int64  // when they were set, by the fleet's clock; 0: not known
}

// Fleet is what keeps the records that filas share: a fleet.Sync, or what stands for it
// in a simulation.
type Fleet interface {
	// Register names what the records of a letter are.
	Register(letter string, k fleet.Kind)
	// Me is this instance as records name it.
	Me() string
	// Now is the fleet's clock (Unix ns), Offset how far it is ahead of this host's.
	Now() int64
	Offset() int64
	// Live reports whether an instance is alive.
	Live(instance string) bool
	// Away returns why records cannot be read and written now; nil: they can.
	Away() error
	// Find returns the newest record of a key that has come.
	Find(letter, key string) (fleet.Entry, bool)
	// Touch has the Kind asked soon what is to be written for a key. It only notes that.
	Touch(letter, key string)
}

// maxIdle is about how many circuits are kept that nobody uses and that could be
// closed.
const maxIdle = 10_000

// Registry holds the circuits of a process. A circuit is kept as long as it is in
// use, or configured, or open, or has failures in mind; of those that only have
// failures in mind, or are open with their time over, and that no message names,
// about maxIdle. Its methods may be called from any goroutine.
//
// mu comes before the mutexes of circuits. It is needed to find a circuit and to
// give it back, not for each message that passes it.
type Registry struct {
	opt     Options
	maxIdle int          // a test has fewer
	count   atomic.Int64 // circuits; written under mu
	turns   [states][states]atomic.Int64

	onResumed atomic.Pointer[func(key string)]
	setAt     atomic.Pointer[func(key string) int64] // see Configure

	mu struct {
		sync.Mutex
		defaults Settings
		perKey   map[string]Settings
		byKey    map[string]*Circuit
		listed   ordered.Set // keys of byKey and perKey
		idle     []*Circuit  // unused and not configured
		hand     int         // the next of them to look at

		conflicts map[string]breaker.Config // limits in force of which Conflict was told, by key
	}
}

// New returns an empty registry, whose limits are those of package breaker until
// Configure is called.
func New(o Options) *Registry {
	if o.Held == nil {
		o.Held = func() {}
	}
	if o.Kin == nil {
		o.Kin = func(string) bool { return false }
	}
	if o.Conflict == nil {
		o.Conflict = func(Conflict) {}
	}
	r := &Registry{opt: o, maxIdle: maxIdle}
	r.mu.byKey = make(map[string]*Circuit)
	r.mu.conflicts = make(map[string]breaker.Config)
	if o.Fleet != nil {
		o.Fleet.Register(letter, Records{r})
	}
	return r
}

// Configure sets the limits: those of circuits in perKey, and of all others. They
// act at once. The map is the registry's from then on. setAt says when those of a key were
// set (Unix ns; 0: not known), of which a fleet goes by the newest; nil: that is never
// known. It must not call the registry.
func (r *Registry) Configure(defaults Settings, perKey map[string]Settings, setAt func(key string) int64) {
	if setAt == nil {
		setAt = func(string) int64 { return 0 }
	}
	r.setAt.Store(&setAt)
	r.mu.Lock()
	before := r.mu.perKey
	r.mu.defaults, r.mu.perKey = defaults, perKey
	for key := range before {
		r.unlist(key)
	}
	for key := range perKey {
		r.mu.listed.Add(key)
	}
	all := r.all()
	settings := make([]Settings, len(all))
	for i, c := range all {
		settings[i] = r.settings(c.key)
		r.place(c)
	}
	r.mu.Unlock()
	now := r.opt.Now()
	for i, c := range all {
		c.set(settings[i], now)
	}
}

// settings returns the limits of a key. Its caller holds mu.
func (r *Registry) settings(key string) Settings {
	if s, ok := r.mu.perKey[key]; ok {
		return s
	}
	return r.mu.defaults
}

// unlist takes a key out of the list unless there is something to say of it. Its
// caller holds mu.
func (r *Registry) unlist(key string) {
	if _, configured := r.mu.perKey[key]; !configured && r.mu.byKey[key] == nil {
		r.mu.listed.Remove(key)
	}
}

// all returns the circuits by key. Its caller holds mu.
func (r *Registry) all() []*Circuit {
	return slices.SortedFunc(maps.Values(r.mu.byKey), func(a, b *Circuit) int { return cmp.Compare(a.key, b.key) })
}

// Use returns the circuit of a key. It must be given back with Drop.
func (r *Registry) Use(key string, now int64) queue.Circuit { return r.use(key, now) }

func (r *Registry) use(key string, now int64) *Circuit {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.get(key, now)
	c.refs++
	r.place(c)
	return c
}

// Count is how many circuits there are. It takes no lock.
func (r *Registry) Count() int64 { return r.count.Load() }

// Full reports whether a message with that key would bring a circuit more than limit.
// Short of the limit it takes no lock.
func (r *Registry) Full(key string, limit int64) bool {
	if r.Count() < limit {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	_, known := r.mu.byKey[key]
	return !known && int64(len(r.mu.byKey)) >= limit
}

// lookup is use for a circuit that exists, and nil for others.
func (r *Registry) lookup(key string) *Circuit {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.mu.byKey[key]
	if c != nil {
		c.refs++
		r.place(c)
	}
	return c
}

// Drop gives back a use, after all passes that came with it. What the circuit
// knows stays as long as it may matter. It appends to pending the circuits that
// have something to announce: also others, which nobody uses.
func (r *Registry) Drop(dropped queue.Circuit, now int64, pending []queue.Circuit) []queue.Circuit {
	c := dropped.(*Circuit)
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.refs--; c.refs > 0 {
		return pending
	}
	if r.sweep(c, now) {
		pending = append(pending, c)
	}
	r.place(c)
	for range min(sweepSteps, len(r.mu.idle)) {
		if len(r.mu.idle) == 0 {
			break
		}
		r.mu.hand %= len(r.mu.idle)
		old := r.mu.idle[r.mu.hand]
		r.mu.hand++
		if r.sweep(old, now) {
			pending = append(pending, old)
		}
	}
	return pending
}

// sweepSteps is how many idle circuits are looked at when another one may become
// idle: more than one, so that they do not pile up.
const sweepSteps = 2

// giveBack is Drop for those who announce at once.
func (r *Registry) giveBack(c *Circuit) {
	for _, c := range r.Drop(c, r.opt.Now(), nil) {
		c.Announce()
	}
}

// revisit looks at a circuit again after a write, before which it could not be
// forgotten.
func (r *Registry) revisit(c *Circuit) {
	now := r.opt.Now()
	r.mu.Lock()
	pending := c.refs == 0 && r.sweep(c, now)
	r.mu.Unlock()
	if pending {
		c.Announce()
	}
}

// get returns the circuit of a key, which is made if need be. Its caller holds mu.
func (r *Registry) get(key string, now int64) *Circuit {
	if c, ok := r.mu.byKey[key]; ok {
		return c
	}
	var e fleet.Entry
	if r.opt.Fleet != nil {
		e, _ = r.opt.Fleet.Find(letter, key)
	}
	return r.getWith(key, now, e)
}

// getWith is get, with the record that one that is made begins with.
func (r *Registry) getWith(key string, now int64, e fleet.Entry) *Circuit {
	c, ok := r.mu.byKey[key]
	if !ok {
		c = newCircuit(r, key, r.settings(key), now, e)
		r.mu.byKey[key] = c
		r.count.Store(int64(len(r.mu.byKey)))
		r.mu.listed.Add(key)
	}
	return c
}

// place puts a circuit among the idle ones, or takes it out. Its caller holds mu.
func (r *Registry) place(c *Circuit) {
	_, configured := r.mu.perKey[c.key]
	known := r.mu.byKey[c.key] == c
	idle := known && c.refs == 0 && !configured
	switch {
	case idle && c.idle < 0:
		c.idle = len(r.mu.idle)
		r.mu.idle = append(r.mu.idle, c)
	case !idle && c.idle >= 0:
		end := len(r.mu.idle) - 1
		last := r.mu.idle[end]
		r.mu.idle[c.idle], last.idle = last, c.idle
		r.mu.idle[end] = nil
		r.mu.idle = r.mu.idle[:end]
		c.idle = -1
	}
}

// sweep forgets an unused circuit if there is nothing to remember, or if there are
// too many of them. It reports whether the circuit has something to announce. Its
// caller holds mu.
func (r *Registry) sweep(c *Circuit, now int64) (pending bool) {
	if _, configured := r.mu.perKey[c.key]; configured || r.mu.byKey[c.key] != c {
		return false // in the second case it has been forgotten already
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lapse(now)
	if len(r.mu.idle) > r.maxIdle {
		c.forgive(now)
	}
	pending = c.pending()
	if !pending && c.forgettable(now) {
		delete(r.mu.byKey, c.key)
		r.count.Store(int64(len(r.mu.byKey)))
		r.unlist(c.key)
		r.place(c)
	}
	return pending
}

// Open opens a circuit by hand until the given time, math.MaxInt64 being until it
// is closed, also one of which nothing is known yet. When the time is over, probes
// decide. client is who asks for it, empty if that is not known. saved gets one value,
// when that is on disk.
func (r *Registry) Open(key string, until int64, client string) (i wire.CircuitInfo, saved <-chan error) {
	now := r.opt.Now()
	c := r.use(key, now)
	defer r.giveBack(c)
	c.open(now, until, breaker.HalfOpen, client)
	return c.info(now), c.saved()
}

// Close closes a circuit now, whatever has opened it, with no failures in a row. forget
// forgets the failures that MaxFailures counts as well. saved is as in Open, and
// nil if nothing is known of the circuit, which is closed then; ok is as in Info.
func (r *Registry) Close(key string, forget bool) (i wire.CircuitInfo, saved <-chan error, ok bool) {
	c := r.known(key)
	if c == nil {
		i, ok = r.Info(key)
		return i, nil, ok
	}
	defer r.giveBack(c)
	now := r.opt.Now()
	c.close(now, forget)
	return c.info(now), c.saved(), true
}

// Pause opens a circuit by hand until the given time, math.MaxInt64 being until
// Resume. One that was closed is closed again then. since is when that was asked for,
// which may be before a restart, and client who did.
func (r *Registry) Pause(key string, since, until int64, client string) {
	now := r.opt.Now()
	c := r.use(key, now)
	defer r.giveBack(c)
	c.openSince(now, since, until, breaker.Closed, client)
}

// Resume ends what Pause has begun, and any other opening by hand or by
// MaxFailures.
func (r *Registry) Resume(key string) {
	if c := r.known(key); c != nil {
		defer r.giveBack(c)
		c.release(r.opt.Now())
	}
}

// Info describes the circuit of a key. ok is false if nothing is known of it, here or in
// the record of a fleet, and nothing is set for it.
func (r *Registry) Info(key string) (i wire.CircuitInfo, ok bool) {
	if c := r.known(key); c != nil {
		defer r.giveBack(c)
		return c.info(r.opt.Now()), true
	}
	r.mu.Lock()
	s, configured := r.mu.perKey[key]
	r.mu.Unlock()
	if configured {
		return closedInfo(key, &s), true
	}
	return wire.CircuitInfo{}, false
}

// known is use for a circuit that exists or that is not closed by the newest record of a
// fleet, and nil for others.
func (r *Registry) known(key string) *Circuit {
	if c := r.lookup(key); c != nil || r.opt.Fleet == nil {
		return c
	}
	e, _ := r.opt.Fleet.Find(letter, key)
	return Records{r}.meet(key, e, true)
}

// List describes the circuits, live and configured ones, that a page is about, in
// the order of their keys. It says how many there are in all, and, if more follow,
// the key after which they do.
func (r *Registry) List(req wire.CircuitListRequest) (infos []wire.CircuitInfo, total int, next string) {
	if req.NotClosed {
		return r.listNotClosed(&req.KeyListRequest)
	}
	r.mu.Lock()
	page := r.mu.listed.Page(req.Prefix, wire.NamedKey(req.After), req.Offset, req.Limit)
	r.mu.Unlock()
	infos = []wire.CircuitInfo{}
	for _, key := range page.Keys {
		if i, ok := r.Info(key); ok {
			infos = append(infos, i)
		}
	}
	return infos, page.Total, wire.ShowKey(page.Next)
}

// listNotClosed is List of the circuits that are open or half-open, for which it looks at
// all of them.
func (r *Registry) listNotClosed(req *wire.KeyListRequest) (infos []wire.CircuitInfo, total int, next string) {
	var found ordered.Set
	now := r.opt.Now()
	r.mu.Lock()
	circuits := make([]*Circuit, 0, len(r.mu.byKey))
	for _, c := range r.mu.byKey {
		circuits = append(circuits, c)
	}
	r.mu.Unlock()
	for _, c := range circuits {
		if !strings.HasPrefix(c.key, req.Prefix) {
			continue
		}
		if state, _ := c.stands(now); state != breaker.Closed {
			found.Add(c.key)
		}
	}
	page := found.Page(req.Prefix, wire.NamedKey(req.After), req.Offset, req.Limit)
	infos = []wire.CircuitInfo{}
	for _, key := range page.Keys {
		if i, ok := r.Info(key); ok {
			infos = append(infos, i)
		}
	}
	return infos, page.Total, wire.ShowKey(page.Next)
}

// Stop waits until everything is on disk, at the end, when nothing changes any more
// and before the store is closed.
func (r *Registry) Stop() {
	r.mu.Lock()
	all := r.all()
	r.mu.Unlock()
	var saved []<-chan error
	for _, c := range all {
		saved = append(saved, c.saved())
	}
	for i, done := range saved {
		<-done //nolint:errcheck // what went wrong has been logged
		saved[i] = all[i].stored()
	}
	for _, done := range saved {
		<-done //nolint:errcheck // the same
	}
}
