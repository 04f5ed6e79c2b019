package throttle

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/filaq/fila/ordered"
	"github.com/filaq/fila/throttle/budget"
)

// ErrKeys is returned when a message has more than MaxKeys different keys.
var ErrKeys = errors.New("too many throttle keys")

// Start describes how gates without a known state begin.
type Start struct {
	// Crashed means that the usage before the start is lost, so that all of it
	// counts as used: buckets begin empty and windows full. Otherwise buckets
	// begin full and windows empty, and Restore brings back the others.
	Crashed bool
	// WindowHold is how long after a crash windows stay full, in nanoseconds, if
	// that is less than the window. With MaxWindow every limit holds across the
	// crash. With less, a window longer than that may admit up to twice its
	// limit once.
	WindowHold int64
}

// Gates is the registry of the gates of a process by throttle key. A gate exists
// while a Set has it, while its key has limits of its own or is paused, and until
// its state is the state of a new gate. A gate that only waits for the latter is
// dormant: a short text holds its state, and the registry rebuilds the gate from
// it on demand. Gates is safe for concurrent use.
type Gates struct {
	start    Start
	startAt  instant
	clock    clock
	fleet    Fleet            // nil: nothing is shared
	onCut    func(key string) // nil: there is no listener, see OnCut
	levels   sync.Map         // adapt.Level by key, until there is a gate that learns: see RestoreLevels
	bank     Bank             // nil: there are no budgets
	onEmpty  atomic.Bool      // some limits have had an OnEmpty: messages may have to be asked for
	reserved atomic.Pointer[Reservation]
	count    atomic.Int64 // gates, dormant ones included; written under mu

	mu struct {
		sync.Mutex
		gates         shrinking[*Gate]     // awake gates
		own           map[string]*Gate     // gates of keys with limits of their own
		named         map[string]bool      // keys that Page lists even without a gate, see Name
		listed        ordered.Map[dormant] // keys of all gates and of named; an empty value: awake, or no gate
		sets          shrinking[*Set]
		prefixes      prefixes
		idle          []*Gate        // awake gates without sets; sweep checks them
		idleCursor    int            // position of sweep in idle
		dormantCursor ordered.Cursor // position of sweep in listed
		awakeIdle     int            // how many idle gates stay awake
		visits        uint64         // see Visits
		buf           []byte         // scratch of sleep
		past          pastCounts
		ledgers       ordered.Map[*budget.Ledger] // of keys with budgets; the mutex of the key's gate, if it is awake, guards a ledger
		sharedLedgers uint64                      // how many ledgers of a fleet there were
		keptLedgers   map[string]budget.Record    // of the disk, without those in ledgers
	}
}

// New returns an empty registry that starts at time now. Set limits and call
// Restore before making the first Set and pausing the first key.
func New(start Start, now int64) *Gates {
	g := &Gates{start: start}
	g.start.WindowHold = max(0, start.WindowHold)
	g.startAt, _ = g.clock.tick(now)
	g.mu.named, g.mu.own = map[string]bool{}, map[string]*Gate{}
	g.mu.prefixes.limits, g.mu.prefixes.used = map[string]Limits{}, map[string]bool{}
	g.mu.awakeIdle = awakeIdle
	return g
}

// Set returns the set of gates of a message with these keys, in any order and
// with repetitions. Close each returned Set once, since the messages that share
// it are counted. Without keys it returns the nil Set. It returns ErrKeys for
// more than MaxKeys different keys.
func (g *Gates) Set(keys []string, now int64) (*Set, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	var room [MaxKeys]string
	sorted := append(room[:0], keys...)
	slices.Sort(sorted)
	sorted = slices.Compact(sorted)
	if len(sorted) > MaxKeys {
		return nil, fmt.Errorf("%w: %d, allowed are %d", ErrKeys, len(sorted), MaxKeys)
	}
	var buf [512]byte
	name := buf[:0]
	for _, k := range sorted {
		name = binary.AppendUvarint(name, uint64(len(k)))
		name = append(name, k...)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.sweep(now, sweepSteps)
	s := g.mu.sets.all[string(name)]
	if s == nil {
		s = &Set{gates: make([]*Gate, len(sorted)), name: string(name)}
		for i, k := range sorted {
			s.gates[i] = g.gate(k, now)
			s.gates[i].refs++
		}
		g.mu.sets.put(s.name, s)
	}
	s.refs++
	return s, nil
}

// Close returns a Set of Gates.Set. Its grants must have been returned before.
func (g *Gates) Close(s *Set, now int64) {
	if s == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	steps := sweepSteps
	if s.refs--; s.refs == 0 {
		g.mu.sets.remove(s.name)
		for _, gate := range s.gates {
			if gate.refs--; gate.refs == 0 {
				g.addIdle(gate)
				steps++
			}
		}
	}
	g.sweep(now, steps)
}

// SetLimits gives a key limits of its own, which apply at once. Zero Limits
// remove them, so that the limits of the longest prefix apply (SetPrefix). Usage
// stays: a bucket keeps its level up to the new burst, a window its entries, and
// messages in flight count even if there was no limit before. SetLimits appends
// the waiters to notify to wake (see Wait.Pass). If a value is out of range it
// changes nothing and returns an error that wraps ErrLimits.
func (g *Gates) SetLimits(key string, l Limits, now int64, wake []*Wait) ([]*Wait, error) {
	if err := l.Validate(); err != nil {
		return wake, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	gate := g.awake(key)
	if l == (Limits{}) {
		if gate == nil || !gate.declared {
			return wake, nil
		}
		gate.declared = false
		delete(g.mu.own, key)
		if gate.refs == 0 {
			g.addIdle(gate)
		}
		return gate.change(g.mu.prefixes.of(key), now, wake), nil
	}
	if gate == nil {
		gate = g.newGate(key, l, now)
	} else {
		wake = gate.change(l, now, wake)
	}
	gate.declared = true
	g.mu.own[key] = gate
	return wake, nil
}

// SetPrefix gives every key that begins with prefix these limits, each key for
// itself, unless the key has limits of its own or a longer prefix fits. Zero
// Limits remove them. Otherwise it is like SetLimits. It visits every gate whose
// key begins with prefix.
func (g *Gates) SetPrefix(prefix string, l Limits, now int64, wake []*Wait) ([]*Wait, error) {
	if err := l.Validate(); err != nil {
		return wake, err
	}
	if l.OnEmpty > Hold {
		g.onEmpty.Store(true)
	}
	g.noteOnEmpty(l)
	g.mu.Lock()
	defer g.mu.Unlock()
	old := g.mu.prefixes.set(prefix, l)
	var over []string
	for key, d := range g.mu.listed.From(prefix) { // in order: so is who is woken
		other, n := g.mu.prefixes.longest(key, len(prefix))
		if n > len(prefix) {
			continue
		}
		gate := g.mu.gates.all[key]
		if gate != nil && !gate.declared {
			wake = gate.change(l.or(other), now, wake)
		}
		if l != (Limits{}) && (d != "" || gate != nil && gate.used && !gate.declared) {
			g.mu.prefixes.used[prefix] = true
		}
		if d != "" && !g.changeDormant(key, d, old.or(other), l.or(other), now) {
			over = append(over, key)
		}
	}
	for _, key := range over {
		g.drop(key)
	}
	return wake, nil
}

// Limits returns the limits of a key, its own or the limits of a prefix, whether
// or not a gate exists. A burst of 0 is not replaced by its default.
func (g *Gates) Limits(key string) Limits {
	g.mu.Lock()
	defer g.mu.Unlock()
	if gate := g.mu.gates.all[key]; gate != nil {
		gate.mu.Lock()
		defer gate.mu.Unlock()
		return gate.limitsSet()
	}
	return g.mu.prefixes.of(key)
}

// Used reports whether any Set has used the limits of this key, or of this
// prefix if prefix is true.
func (g *Gates) Used(key string, prefix bool) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if prefix {
		return g.mu.prefixes.used[key]
	}
	gate := g.mu.gates.all[key]
	return gate != nil && gate.used
}

// Find returns the gate of a key if there is one.
func (g *Gates) Find(key string) (*Gate, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	gate := g.awake(key)
	return gate, gate != nil
}

// Name sets whether Page lists a key that has no gate.
func (g *Gates) Name(key string, listed bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	d, _ := g.mu.listed.Get(key)
	if listed {
		g.mu.named[key] = true
		g.mu.listed.Put(key, d)
		return
	}
	delete(g.mu.named, key)
	if g.mu.gates.all[key] == nil && d == "" {
		g.mu.listed.Remove(key)
	}
}

// Page lists the keys that have gates or are named, a page at a time; see
// [ordered.Set.Page]. It does not check whether the gates are still needed, see
// Look.
func (g *Gates) Page(prefix, after string, offset, limit int) ordered.Page {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.mu.listed.Page(prefix, after, offset, limit)
}

// Look describes the gate of a key for a list, and drops the gate if it is not
// needed any more. gate reports whether there is one, listed whether Page lists
// the key.
func (g *Gates) Look(key string, now int64) (i Info, gate, listed bool) {
	found, listed := g.needed(key, now)
	if found == nil {
		return Info{}, false, listed
	}
	return found.Info(now), true, true
}

// needed returns the gate of a key, or nil if it is not needed any more.
func (g *Gates) needed(key string, now int64) (gate *Gate, listed bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	gate = g.mu.gates.all[key]
	if gate != nil && gate.idle != 0 && g.forget(gate, now) && !gate.declared {
		gate = nil
	} else if gate == nil {
		if d, _ := g.mu.listed.Get(key); d != "" && !g.forgetDormant(key, d, now) {
			gate = g.wake(new(body), key, d, g.mu.prefixes.of(key)) // a copy; the gate stays dormant
			g.mu.past.copyTo(gate)
		}
	}
	return gate, gate != nil || g.mu.named[key]
}

// Count is how many gates there are. It takes no lock.
func (g *Gates) Count() int64 { return g.count.Load() }

// Visits is how often the registry has checked so far whether an idle gate may be
// dropped.
func (g *Gates) Visits() uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.mu.visits
}

// Full reports whether a message with these keys would make the registry exceed
// limit gates. It first drops a few gates that do not differ from new ones. Below
// the limit it takes no lock.
func (g *Gates) Full(keys []string, limit, now int64) bool {
	if len(keys) == 0 || g.count.Load()+int64(len(keys)) <= limit {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.sweep(now, fullSteps)
	n := g.count.Load()
	for i, key := range keys {
		if g.exists(key) || slices.Contains(keys[:i], key) {
			continue
		}
		if n++; n > limit {
			return true
		}
	}
	return false
}

// fullSteps is how many idle gates Full checks.
const fullSteps = 16

// The functions below need g.mu.

// gate finds or makes the gate of a key for a Set.
func (g *Gates) gate(key string, now int64) *Gate {
	gate := g.awake(key)
	if gate == nil {
		gate = g.newGate(key, g.mu.prefixes.of(key), now)
	}
	if !gate.used {
		gate.used = true
		if !gate.declared {
			g.mu.prefixes.use(key)
		}
	}
	g.removeIdle(gate)
	return gate
}

// newGate makes an idle gate.
func (g *Gates) newGate(key string, l Limits, now int64) *Gate {
	// The key of a message is a substring of a longer text, which the gate may outlive.
	key = strings.Clone(key)
	gate := &Gate{key: key, gates: g}
	gate.mu.Lock()
	g.mu.past.resume(gate)
	if l != (Limits{}) {
		v, last := g.clock.tick(now)
		gate.setLimits(l, v, true)
		gate.keepLedger(last, v)
		gate.attach(v)
	}
	gate.mu.Unlock()
	g.mu.gates.put(key, gate)
	g.count.Add(1)
	g.mu.listed.Put(key, "")
	g.addIdle(gate)
	return gate
}

// shrinking is a map that frees memory when it has become small. Go's maps never
// shrink.
type shrinking[V any] struct {
	all  map[string]V
	peak int // the largest length since the last copy
}

func (s *shrinking[V]) put(key string, value V) {
	if s.all == nil {
		s.all = map[string]V{}
	}
	s.all[key] = value
	s.peak = max(s.peak, len(s.all))
}

func (s *shrinking[V]) remove(key string) {
	delete(s.all, key)
	// Copying the few that are left costs nothing beside the removals before.
	if n := len(s.all); s.peak > 1024 && n < s.peak/64 {
		few := make(map[string]V, n)
		maps.Copy(few, s.all)
		s.all, s.peak = few, n
	}
}

// change sets limits and notifies the head of the waiters, since it has to try
// again at another time.
func (g *Gate) change(l Limits, now int64, wake []*Wait) []*Wait {
	g.mu.Lock()
	defer g.mu.Unlock()
	if s := g.mu.share; l == g.limitsSet() && s == nil || s != nil && l == s.own {
		return wake
	}
	v, last := g.gates.clock.tick(now)
	if s := g.mu.share; s != nil {
		s.own = l
	}
	g.setLimits(l, v, false)
	g.keepLedger(last, v)
	g.attach(v)
	return g.mu.waiting.notifyHead(wake)
}

// addIdle lists a gate without users for sweep.
func (g *Gates) addIdle(gate *Gate) {
	if gate.idle == 0 {
		g.mu.idle = append(g.mu.idle, gate)
		gate.idle = len(g.mu.idle)
	}
}

func (g *Gates) removeIdle(gate *Gate) {
	if gate.idle == 0 {
		return
	}
	end := len(g.mu.idle) - 1
	last := g.mu.idle[end]
	g.mu.idle[gate.idle-1] = last
	last.idle = gate.idle
	g.mu.idle[end] = nil
	g.mu.idle = g.mu.idle[:end]
	gate.idle = 0
}

// sweepSteps is how many idle gates, and how many dormant ones, Set and Close
// check, beyond the idle ones that they add. So their number shrinks.
const sweepSteps = 2

func (g *Gates) sweep(now int64, steps int) {
	for range min(steps, len(g.mu.idle)) {
		g.checkIdle(now)
	}
	for range min(steps, g.mu.listed.Len()) {
		g.checkDormant(now)
	}
}

// checkIdle drops the next idle gate if it is not needed, or makes it dormant if
// more than awakeIdle gates are idle.
func (g *Gates) checkIdle(now int64) {
	if len(g.mu.idle) == 0 {
		return
	}
	if g.mu.idleCursor >= len(g.mu.idle) {
		g.mu.idleCursor = 0
	}
	gate := g.mu.idle[g.mu.idleCursor]
	if !g.forget(gate, now) && (len(g.mu.idle) <= g.mu.awakeIdle || !g.sleep(gate, now)) {
		g.mu.idleCursor++
	}
}

// forget drops an idle gate whose state is the state of a new gate. A gate with
// limits of its own stays, without the memory of its window. forget reports
// whether the gate has left the idle list.
func (g *Gates) forget(gate *Gate, now int64) bool {
	g.mu.visits++
	gate.mu.Lock()
	fresh := gate.fresh(g.clock.tick(now))
	if fresh && gate.mu.window != nil {
		gate.mu.window.spans = nil
	}
	gate.mu.Unlock()
	if !fresh {
		return false
	}
	g.removeIdle(gate)
	if !gate.declared {
		g.drop(gate.key)
	}
	return true
}
