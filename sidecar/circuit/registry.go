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
	"github.com/filaq/fila/sidecar/queue/gates"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// Settings are the limits of one circuit.
type Settings struct {
	Breaker breaker.Config
	// More than MaxFailures within FailureWindow open the circuit for FailureHold; 0: until it
	// is closed by hand. MaxFailures 0 is no limit.
	MaxFailures   int64
	FailureWindow time.Duration
	FailureHold   time.Duration
}

// Options of a [Registry].
type Options struct {
	Log    *slog.Logger
	Now    func() int64
	Event  func(typ, tail string, e wire.Event) // publishes an event under the circuit key
	Submit func(*store.Batch)                   // writes; store.Store.Submit
	Held   func()                               // counts an opening by too many failures; may be nil

	// Fleet has the records of shared circuits, those for which Shares returns true; nil: none
	// is shared. It is not started yet.
	Fleet  Fleet
	Shares func(key string) bool
	// Kin reports whether an instance has the same settings as this one; nil: none has.
	Kin func(instance string) bool
	// Conflict is called once, by a goroutine of the fleet, when newer limits of another
	// instance that is no kin are in force for a shared circuit; may be nil.
	Conflict func(Conflict)
	// Node is the name of this fila among those that publish events under the same subjects.
	// Only the fila that caused a transition of a shared circuit publishes it. Empty: it is the
	// only one.
	Node string
}

// Conflict describes limits of a shared circuit that differ between filas.
type Conflict struct {
	Key          string
	Own, InForce breaker.Config
	By           string // name of the instance whose limits are in force
	At           int64  // when they were set, by the fleet's clock; 0: not known
}

// Fleet holds the records that filas share: a fleet.Sync, or a simulation of one.
type Fleet interface {
	// Register sets the Kind of a record prefix.
	Register(kind string, k fleet.Kind)
	// Me returns the id of this instance in records.
	Me() string
	// Now returns the fleet's clock (Unix ns), Offset how far it is ahead of this host's.
	Now() int64
	Offset() int64
	// Live reports whether an instance is alive.
	Live(instance string) bool
	// Away returns why records cannot be written and read now, or nil.
	Away() error
	// Find returns the newest known record of a key.
	Find(kind, key string) (fleet.Entry, bool)
	// Touch makes the fleet call Swap of a key soon. It only records that.
	Touch(kind, key string)
}

// maxIdle is about how many unused circuits are kept that could be closed.
const maxIdle = 10_000

// Registry holds the circuits of a process. A circuit is kept while it is used, configured, open or
// has failures that count. About maxIdle unused circuits are kept that only have failures, or whose
// opening is over. Its methods may be called from any goroutine.
//
// mu is locked before the mutexes of circuits. It is needed to find and drop a circuit, not for
// each message.
type Registry struct {
	opt         Options
	maxIdle     int          // lower in tests
	count       atomic.Int64 // circuits; written under mu
	transitions [states][states]atomic.Int64

	onResumed atomic.Pointer[func(key string)]
	setAt     atomic.Pointer[func(key string) int64] // see Configure

	mu struct {
		sync.Mutex
		defaults Settings
		perKey   map[string]Settings
		byKey    map[string]*Circuit
		listed   ordered.Set // keys of byKey and perKey
		idle     []*Circuit  // unused and not configured
		hand     int         // next index in idle to sweep
		pasts    ordered.Recent[keptPast]

		conflicts map[string]breaker.Config // reported limits in force, by key
	}
}

// New returns an empty registry. Until Configure, its limits are the defaults of package breaker.
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
		o.Fleet.Register(recordKind, Records{r})
	}
	return r
}

// Configure sets the limits of the circuits in perKey and of all others. They are in force at once,
// and the registry owns the map. setAt returns when the limits of a key were set (Unix ns; 0: not
// known), since in a fleet the newest limits win; nil: never known. It must not call the registry.
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
		r.updateIdle(c)
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

// unlist removes a key from the list, unless it is configured or in use. Its caller holds mu.
func (r *Registry) unlist(key string) {
	if _, configured := r.mu.perKey[key]; !configured && r.mu.byKey[key] == nil {
		r.mu.listed.Remove(key)
	}
}

// all returns the circuits by key. Its caller holds mu.
func (r *Registry) all() []*Circuit {
	return slices.SortedFunc(maps.Values(r.mu.byKey), func(a, b *Circuit) int { return cmp.Compare(a.key, b.key) })
}

// Use returns the circuit of a key, for a Drop later.
func (r *Registry) Use(key string, now int64) gates.Circuit { return r.use(key, now) }

func (r *Registry) use(key string, now int64) *Circuit {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.get(key, now)
	c.refs++
	r.updateIdle(c)
	return c
}

// Count returns how many circuits there are. It takes no lock.
func (r *Registry) Count() int64 { return r.count.Load() }

// Full reports whether a message with a key would create a circuit beyond limit. It takes no lock
// below the limit.
func (r *Registry) Full(key string, limit int64) bool {
	if r.Count() < limit {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	_, known := r.mu.byKey[key]
	return !known && int64(len(r.mu.byKey)) >= limit
}

// lookup is use for an existing circuit; nil if there is none.
func (r *Registry) lookup(key string) *Circuit {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.mu.byKey[key]
	if c != nil {
		c.refs++
		r.updateIdle(c)
	}
	return c
}

// Drop ends a use, after all passes that came with it. State that may matter is kept. It appends to
// pending the circuits with something to announce, including unused ones that it has swept.
func (r *Registry) Drop(dropped gates.Circuit, now int64, pending []gates.Circuit) []gates.Circuit {
	c := dropped.(*Circuit)
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.refs--; c.refs > 0 {
		return pending
	}
	if r.sweep(c, now) {
		pending = append(pending, c)
	}
	r.updateIdle(c)
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

// sweepSteps is how many idle circuits are swept when one more may become idle: more than one, so
// that they do not accumulate.
const sweepSteps = 2

// giveBack is Drop with the announcements.
func (r *Registry) giveBack(c *Circuit) {
	for _, c := range r.Drop(c, r.opt.Now(), nil) {
		c.Announce()
	}
}

// revisit sweeps a circuit after a write, which had to end first.
func (r *Registry) revisit(c *Circuit) {
	now := r.opt.Now()
	r.mu.Lock()
	pending := c.refs == 0 && r.sweep(c, now)
	r.mu.Unlock()
	if pending {
		c.Announce()
	}
}

// get returns the circuit of a key, creating it if necessary. Its caller holds mu.
func (r *Registry) get(key string, now int64) *Circuit {
	if c, ok := r.mu.byKey[key]; ok {
		return c
	}
	var e fleet.Entry
	if r.opt.Fleet != nil {
		e, _ = r.opt.Fleet.Find(recordKind, key)
	}
	return r.getWith(key, now, e)
}

// getWith is get with the record for a new circuit.
func (r *Registry) getWith(key string, now int64, e fleet.Entry) *Circuit {
	c, ok := r.mu.byKey[key]
	if !ok {
		c = newCircuit(r, key, r.settings(key), now, e)
		if k, ok := r.mu.pasts.Get(key); ok {
			r.mu.pasts.Remove(key)
			c.since, c.mu.past = k.since, k.past
		}
		r.mu.byKey[key] = c
		r.count.Store(int64(len(r.mu.byKey)))
		r.mu.listed.Add(key)
	}
	return c
}

// updateIdle adds a circuit to the idle ones or removes it. Its caller holds mu.
func (r *Registry) updateIdle(c *Circuit) {
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

// sweep forgets an unused circuit if it has nothing to remember, or little while there are too many
// idle ones. It reports whether the circuit has something to announce. Its caller holds mu.
func (r *Registry) sweep(c *Circuit, now int64) (pending bool) {
	if _, configured := r.mu.perKey[c.key]; configured || r.mu.byKey[c.key] != c {
		return false // configured, or forgotten already
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
		if c.mu.past != nil {
			r.mu.pasts.Put(c.key, keptPast{c.since, c.mu.past}, maxPasts)
			c.mu.past = nil
		}
		r.count.Store(int64(len(r.mu.byKey)))
		r.unlist(c.key)
		r.updateIdle(c)
	}
	return pending
}

// Open opens a circuit by hand until a time, creating it if necessary; math.MaxInt64 means until it
// is closed. Afterwards probes decide. client is the client that asks, empty if not known. saved gets
// one value when the opening is on disk.
func (r *Registry) Open(key string, until int64, client string) (i api.CircuitInfo, saved <-chan error) {
	now := r.opt.Now()
	c := r.use(key, now)
	defer r.giveBack(c)
	c.open(now, until, breaker.HalfOpen, client)
	return c.info(now), c.saved()
}

// Close closes a circuit, whatever has opened it, and clears its consecutive failures; with forget
// also the failures that MaxFailures counts. saved is as in Open, nil if the circuit is not known and
// so closed; ok is as in Info.
func (r *Registry) Close(key string, forget bool) (i api.CircuitInfo, saved <-chan error, ok bool) {
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

// Pause opens a circuit by hand until a time; math.MaxInt64 means until Resume. A circuit that was
// closed is closed again afterwards. since is when the pause was requested, possibly before a
// restart, and client the client that asked.
func (r *Registry) Pause(key string, since, until int64, client string) {
	now := r.opt.Now()
	c := r.use(key, now)
	defer r.giveBack(c)
	c.openSince(now, since, until, breaker.Closed, client)
}

// Resume ends a Pause or any other opening by hand or by MaxFailures.
func (r *Registry) Resume(key string) {
	if c := r.known(key); c != nil {
		defer r.giveBack(c)
		c.release(r.opt.Now())
	}
}

// Info describes the circuit of a key. ok is false if it is neither known, here or in the record of
// a fleet, nor configured.
func (r *Registry) Info(key string) (i api.CircuitInfo, ok bool) {
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
	return api.CircuitInfo{}, false
}

// known is use for a circuit that exists or is not closed in its shared record; nil for others.
func (r *Registry) known(key string) *Circuit {
	if c := r.lookup(key); c != nil || r.opt.Fleet == nil {
		return c
	}
	e, _ := r.opt.Fleet.Find(recordKind, key)
	return Records{r}.meet(key, e, true)
}

// List describes a page of the known and configured circuits by key, or of the circuits that are
// not closed. It returns how many there are in all, and the key after which the next page begins.
func (r *Registry) List(req api.CircuitListRequest) (infos []api.CircuitInfo, total int, next string) {
	var page ordered.Page
	if after := wire.NamedKey(req.After); req.NotClosed {
		found := r.notClosed(req.Prefix, req.Opened)
		page = found.Page(req.Prefix, after, req.Offset, req.Limit)
	} else {
		r.mu.Lock()
		page = r.mu.listed.Page(req.Prefix, after, req.Offset, req.Limit)
		r.mu.Unlock()
	}
	infos = []api.CircuitInfo{}
	for _, key := range page.Keys {
		if i, ok := r.Info(key); ok {
			infos = append(infos, i)
		}
	}
	return infos, page.Total, wire.ShowKey(page.Next)
}

// notClosed returns the keys with a prefix of circuits that are open or half-open or, if opened is
// set, have been open lately. It checks all circuits.
func (r *Registry) notClosed(prefix string, opened bool) (found ordered.Set) {
	now := r.opt.Now()
	r.mu.Lock()
	circuits := slices.Collect(maps.Values(r.mu.byKey))
	r.mu.Unlock()
	for _, c := range circuits {
		if !strings.HasPrefix(c.key, prefix) {
			continue
		}
		if state, _ := c.state(now); state != breaker.Closed || opened && c.wasOpen(now) {
			found.Add(c.key)
		}
	}
	return found
}

// Stop waits until everything is on disk. It is called when nothing changes any more, before the
// store is closed.
func (r *Registry) Stop() {
	r.mu.Lock()
	all := r.all()
	r.mu.Unlock()
	var saved []<-chan error
	for _, c := range all {
		saved = append(saved, c.saved())
	}
	for i, done := range saved {
		<-done //nolint:errcheck // errors have been logged
		saved[i] = all[i].stored()
	}
	for _, done := range saved {
		<-done //nolint:errcheck // errors have been logged
	}
}
