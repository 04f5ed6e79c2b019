package sidecar

import (
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/filaq/fila/breaker"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
)

// circuits are the circuits around the destinations of a process, by circuit
// key. A circuit is kept as long as it is in use, or configured, or open, or has
// failures in mind; of those that only have failures in mind, or are open with
// their time over, and that no message names, about maxIdle.
//
// mu comes before the mutexes of circuits. It is needed to find a circuit and to
// give it back, not for each message that passes it.
type circuits struct {
	log *slog.Logger

	now     func() int64
	event   func(typ, tail string, e wire.Event)
	submit  func(*store.Batch)
	wake    func(*queue, *circuit)
	runtime func() []wire.ConfigEntry // entries of the runtime configuration about circuits
	maxIdle int

	mu struct {
		sync.Mutex
		defaults circuitSettings
		perKey   map[string]circuitSettings
		byKey    map[string]*circuit
		idle     []*circuit // unused and not configured
		hand     int        // the next of them to look at
	}
}

// maxIdleCircuits is about how many circuits are kept that nobody uses and that
// could be closed.
const maxIdleCircuits = 10_000

func newCircuits(c *core) *circuits {
	cs := &circuits{
		log: c.log, now: c.clock.Now, event: c.event, submit: c.store.Submit, wake: c.wakeCircuit,
		runtime: func() []wire.ConfigEntry {
			entries, _ := c.config.list(circuitPrefix, 0, int(^uint(0)>>1))
			return entries
		},
		maxIdle: maxIdleCircuits,
	}
	cs.mu.byKey = make(map[string]*circuit)
	cs.mu.defaults, cs.mu.perKey = circuitLimits(CircuitDefaults{}, nil, nil)
	return cs
}

// declare sets the limits to what the configuration file says, and to what the
// runtime configuration says now, which wins. Calls must not overlap, so that
// the latest configuration is the one that stays.
func (cs *circuits) declare(defaults CircuitDefaults, tables []CircuitTable) {
	cs.configure(circuitLimits(defaults, tables, cs.runtime()))
}

// configure sets the limits: those of circuits in perKey, and of all others.
// They act at once.
func (cs *circuits) configure(defaults circuitSettings, perKey map[string]circuitSettings) {
	cs.mu.Lock()
	cs.mu.defaults, cs.mu.perKey = defaults, perKey
	all := slices.Collect(maps.Values(cs.mu.byKey))
	settings := make([]circuitSettings, len(all))
	for i, ci := range all {
		settings[i] = cs.settings(ci.key)
		cs.place(ci)
	}
	cs.mu.Unlock()
	now := cs.now()
	for i, ci := range all {
		ci.set(settings[i], now)
	}
}

// settings returns the limits of a key. Its caller holds mu.
func (cs *circuits) settings(key string) circuitSettings {
	if s, ok := cs.mu.perKey[key]; ok {
		return s
	}
	return cs.mu.defaults
}

// use returns the circuit of a key. It must be given back with drop.
func (cs *circuits) use(key string) *circuit {
	now := cs.now()
	cs.mu.Lock()
	defer cs.mu.Unlock()
	ci := cs.get(key, now)
	ci.refs++
	cs.place(ci)
	return ci
}

// drop gives back a use, after all passes that came with it. What the circuit
// knows stays as long as it may matter.
func (cs *circuits) drop(ci *circuit) {
	now := cs.now()
	cs.mu.Lock()
	if ci.refs--; ci.refs > 0 {
		cs.mu.Unlock()
		return
	}
	var dirty [sweepSteps + 1]*circuit
	n := 0
	if cs.sweep(ci, now) {
		dirty[n] = ci
		n++
	}
	cs.place(ci)
	for range sweepSteps {
		if len(cs.mu.idle) == 0 {
			break
		}
		cs.mu.hand %= len(cs.mu.idle)
		old := cs.mu.idle[cs.mu.hand]
		cs.mu.hand++
		if cs.sweep(old, now) {
			dirty[n] = old
			n++
		}
	}
	cs.mu.Unlock()
	for _, ci := range dirty[:n] {
		ci.mu.Lock()
		ci.finish(nil)
	}
}

// sweepSteps is how many idle circuits are looked at when another one may become
// idle: more than one, so that they do not pile up.
const sweepSteps = 2

// settle looks at a circuit again after a write, before which it could not be
// forgotten.
func (cs *circuits) settle(ci *circuit) {
	now := cs.now()
	cs.mu.Lock()
	dirty := ci.refs == 0 && cs.sweep(ci, now)
	cs.mu.Unlock()
	if dirty {
		ci.mu.Lock()
		ci.finish(nil)
	}
}

// get returns the circuit of a key, which is made if need be. Its caller holds
// mu.
func (cs *circuits) get(key string, now int64) *circuit {
	ci, ok := cs.mu.byKey[key]
	if !ok {
		ci = newCircuit(cs, key, cs.settings(key), now)
		cs.mu.byKey[key] = ci
	}
	return ci
}

// place puts a circuit among the idle ones, or takes it out. Its caller holds mu.
func (cs *circuits) place(ci *circuit) {
	_, configured := cs.mu.perKey[ci.key]
	known := cs.mu.byKey[ci.key] == ci
	idle := known && ci.refs == 0 && !configured
	switch {
	case idle && ci.idle < 0:
		ci.idle = len(cs.mu.idle)
		cs.mu.idle = append(cs.mu.idle, ci)
	case !idle && ci.idle >= 0:
		last := cs.mu.idle[len(cs.mu.idle)-1]
		cs.mu.idle[ci.idle], last.idle = last, ci.idle
		cs.mu.idle[len(cs.mu.idle)-1] = nil
		cs.mu.idle = cs.mu.idle[:len(cs.mu.idle)-1]
		ci.idle = -1
	}
}

// sweep forgets an unused circuit if there is nothing to remember, or if there
// are too many of them. It reports whether finish has something to do. Its caller
// holds mu.
func (cs *circuits) sweep(ci *circuit, now int64) (dirty bool) {
	if _, configured := cs.mu.perKey[ci.key]; configured || cs.mu.byKey[ci.key] != ci {
		return false // in the second case it has been forgotten already
	}
	ci.mu.Lock()
	defer ci.mu.Unlock()
	ci.lapse(now)
	if len(cs.mu.idle) > cs.maxIdle {
		if n, _ := ci.mu.m.Admits(now); n > 0 {
			if c := ci.mu.m.Reset(now); c.Turned() {
				ci.turned(c, causeUnused)
			}
			ci.mu.failures.clear()
		}
	}
	s := &ci.mu.save
	dirty = s.dirty || len(ci.mu.notices) > 0
	ci.mu.failures.expire(now)
	if !dirty && !ci.mu.telling && !s.saving && ci.mu.m.State() == breaker.Closed &&
		ci.mu.m.Info(now).ConsecutiveFailures == 0 && ci.mu.failures.n == 0 {
		delete(cs.mu.byKey, ci.key)
		cs.place(ci)
	}
	return dirty
}

// pause opens a circuit by hand until the given time, math.MaxInt64 being until
// resume. One that was closed is closed again then.
func (cs *circuits) pause(key string, until int64) {
	ci := cs.use(key)
	ci.open(cs.now(), until, breaker.Closed)
	cs.drop(ci)
}

// resume ends what pause has begun, and any other opening by hand.
func (cs *circuits) resume(key string) {
	if ci := cs.lookup(key); ci != nil {
		ci.release(cs.now())
		cs.drop(ci)
	}
}

// lookup is use for a circuit that exists, and nil for others.
func (cs *circuits) lookup(key string) *circuit {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	ci := cs.mu.byKey[key]
	if ci != nil {
		ci.refs++
		cs.place(ci)
	}
	return ci
}

// info describes the circuit of a key. ok is false if nothing is known of it and
// nothing is set for it.
func (cs *circuits) info(key string, now int64) (i wire.CircuitInfo, ok bool) {
	cs.mu.Lock()
	ci := cs.mu.byKey[key]
	s, configured := cs.mu.perKey[key]
	cs.mu.Unlock()
	switch {
	case ci != nil:
		return ci.info(now), true
	case configured:
		return circuitInfo(key, s.breaker), true
	}
	return wire.CircuitInfo{}, false
}

// list describes the circuits whose key begins with prefix, live and configured
// ones, in the order of their keys, and says how many there are in all.
func (cs *circuits) list(prefix string, offset, limit int, now int64) ([]wire.CircuitInfo, int) {
	var keys []string
	cs.mu.Lock()
	for key := range cs.mu.byKey {
		if strings.HasPrefix(key, prefix) {
			keys = append(keys, key)
		}
	}
	for key := range cs.mu.perKey {
		if strings.HasPrefix(key, prefix) && cs.mu.byKey[key] == nil {
			keys = append(keys, key)
		}
	}
	cs.mu.Unlock()
	slices.Sort(keys)
	infos := []wire.CircuitInfo{}
	for _, key := range page(keys, offset, limit) {
		if i, ok := cs.info(key, now); ok {
			infos = append(infos, i)
		}
	}
	return infos, len(keys)
}

// stop waits until everything is on disk, at the end, when nothing changes any
// more and before the store is closed.
func (cs *circuits) stop() {
	cs.mu.Lock()
	all := slices.Collect(maps.Values(cs.mu.byKey))
	cs.mu.Unlock()
	var wg sync.WaitGroup
	wg.Add(len(all))
	for _, ci := range all {
		ci.flush(func(error) { wg.Done() }) // what went wrong has been logged
	}
	wg.Wait()
}
