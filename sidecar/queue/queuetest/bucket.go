package queuetest

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/filaq/fila/sidecar/fleet"
	"github.com/filaq/fila/wire"
)

// bucket holds the records that filas share, on the time of a simulation: writes land late,
// their answers come late or never. Watches deliver entries late, in order, and may leave
// out entries that were overwritten since. One random source decides.
type bucket struct {
	now     int64 // of the server
	rnd     *rand.Rand
	made    int // how often it has been made
	rev     uint64
	entries map[string]fleet.Entry
	links   []*link
	plans   []plan // what is to happen, in order
}

// plan is something that happens at a time.
type plan struct {
	at int64
	do func()
}

func newBucket(rnd *rand.Rand) *bucket {
	return &bucket{now: Start, rnd: rnd, made: 1, entries: make(map[string]fleet.Entry)}
}

// after plans an action; actions planned for one time happen in the order of planning.
func (b *bucket) after(d int64, do func()) {
	at := b.now + d
	i, _ := slices.BinarySearchFunc(b.plans, at+1, func(p plan, at int64) int {
		if p.at < at {
			return -1
		}
		return 1
	})
	b.plans = slices.Insert(b.plans, i, plan{at, do})
}

// run runs the plans that are due.
func (b *bucket) run() {
	for len(b.plans) > 0 && b.plans[0].at <= b.now {
		p := b.plans[0]
		b.plans = b.plans[1:]
		p.do()
	}
}

// put writes an entry, which all watches will see.
func (b *bucket) put(id string, value []byte) uint64 {
	b.rev++
	e := fleet.Entry{Key: id, Value: value, Rev: b.rev, At: time.Unix(0, b.now)}
	b.entries[id] = e
	for _, l := range b.links {
		if l.watches {
			l.inbox = append(l.inbox, e)
			b.after(l.delay(), l.bring)
		}
	}
	return b.rev
}

// swap is put over a revision; 0 is a conflict.
func (b *bucket) swap(id string, value []byte, over uint64) uint64 {
	if b.entries[id].Rev != over {
		return 0
	}
	return b.put(id, value)
}

// clear deletes and recreates the bucket.
func (b *bucket) clear() {
	b.made++
	b.rev, b.entries = 0, make(map[string]fleet.Entry)
	for _, l := range b.links {
		l.watches, l.inbox = false, nil
		l.away()
		session := l.session
		b.after(1+b.rnd.Int64N(int64(time.Second)), func() { l.fail(session) })
	}
}

// link is one fila's way to a bucket. It does what a fleet.Sync does, step by step on
// the time of the simulation instead of in goroutines; it is a circuit.Fleet.
type link struct {
	b    *bucket
	name string
	run  int // of its processes
	kind fleet.Kind
	host func() int64 // the clock of its host
	tell func(key string, e wire.Event)
	away func() // the fila goes by itself from now on

	offset  int64
	session int // ends what was under way in the one before
	joined  bool
	made    int  // the bucket that it has joined
	down    bool // nothing passes
	slow    bool // everything takes long
	mute    int  // how many answers will be lost
	tries   int  // to join, in vain

	watches   bool
	inbox     []fleet.Entry
	entries   map[string]fleet.Entry
	keys      map[string]*linkKey
	freshest  time.Time
	began     time.Time
	strangers map[string]time.Time // as in fleet.Sync
}

// linkKey is the state of one key.
type linkKey struct {
	again   bool
	waiting bool   // for a record newer than over
	over    uint64 // a swap over it was refused
	later   int    // counts timers; only the newest counts
	timed   bool   // a timer runs
}

// Defaults of a fleet.Sync.
const (
	linkBeat    = int64(2 * time.Second)
	linkDead    = 10 * time.Second
	linkTimeout = int64(2 * time.Second)
	linkStale   = int64(8 * time.Second) // after which it notices at the latest that nothing comes
	linkRetry   = int64(250 * time.Millisecond)
)

const (
	circuitPrefix = "c."
	beatPrefix    = "i."
)

func (b *bucket) link(name string) *link {
	l := &link{b: b, name: name}
	b.links = append(b.links, l)
	return l
}

func (l *link) delay() int64 {
	if l.slow {
		return l.b.rnd.Int64N(int64(3 * time.Second))
	}
	return int64(100*time.Microsecond) + l.b.rnd.Int64N(int64(20*time.Millisecond))
}

// present reports whether the bucket that the link has joined still exists. The link may learn of
// its end later.
func (l *link) present() bool { return l.made == l.b.made }

// Register begins a process.
func (l *link) Register(_ string, k fleet.Kind) {
	l.run++
	l.session++
	l.kind, l.joined, l.watches, l.inbox = k, false, false, nil
	l.entries, l.keys, l.tries = make(map[string]fleet.Entry), make(map[string]*linkKey), 0
}

// goodbye releases at once what the ending process holds.
func (l *link) goodbye() {
	if l.joined && !l.down {
		l.b.put(beatPrefix+l.Me(), nil)
	}
}

func (l *link) Me() string    { return fmt.Sprint(l.name, "/", l.run) }
func (l *link) Now() int64    { return l.host() + l.offset }
func (l *link) Offset() int64 { return l.offset }

func (l *link) Live(instance string) bool {
	if instance == l.Me() {
		return true
	}
	e, ok := l.entries[beatPrefix+instance]
	if !ok {
		first, asked := l.strangers[instance]
		if !asked {
			first = l.freshest
			l.strangers[instance] = first
		}
		return l.freshest.Sub(first) <= linkDead
	}
	last := e.At
	if last.Before(l.began) {
		last = l.began
	}
	return e.Value != nil && l.freshest.Sub(last) <= linkDead
}

func (l *link) Away() error {
	if l.joined {
		return nil
	}
	return errors.New("the bucket is away")
}

func (l *link) Find(_, key string) (fleet.Entry, bool) {
	e, ok := l.entries[circuitPrefix+key]
	return e, ok
}

// event takes an event of the fila.
func (l *link) event(typ, key string, e wire.Event) {
	if typ == wire.EventCircuitChanged {
		l.tell(key, e)
	}
}

// join begins a session if the bucket can be reached, or tries again later.
func (l *link) join() {
	if l.down {
		l.tries++
		l.retry()
		return
	}
	l.tries = 0
	l.session++
	session := l.session
	l.entries, l.keys = maps.Clone(l.b.entries), make(map[string]*linkKey)
	l.inbox, l.watches, l.made = nil, true, l.b.made
	l.strangers = make(map[string]time.Time)
	l.b.put(beatPrefix+l.Me(), []byte("beat"))
	l.began = time.Unix(0, l.b.now)
	l.freshest = l.began
	l.offset = l.b.now - l.host() + l.b.rnd.Int64N(int64(10*time.Millisecond)) - int64(5*time.Millisecond)
	l.b.after(l.delay(), func() {
		if session != l.session {
			return
		}
		l.joined = true
		entries := make(map[string]fleet.Entry)
		for id, e := range l.entries {
			if key, ok := strings.CutPrefix(id, circuitPrefix); ok {
				entries[key] = e
			}
		}
		l.kind.Join(entries)
		l.bringAll()
		l.b.after(linkBeat, func() { l.beat(session) })
	})
}

func (l *link) retry() {
	session := l.session
	d := linkRetry << min(l.tries, 3)
	l.b.after(d+l.b.rnd.Int64N(d/4), func() {
		if session == l.session {
			l.join()
		}
	})
}

// fail ends a session, unless that is over.
func (l *link) fail(session int) {
	if session != l.session {
		return
	}
	l.session++
	was := l.joined
	l.joined, l.watches, l.inbox = false, false, nil
	clear(l.keys)
	if was {
		l.away()
		l.kind.Away()
	}
	l.retry()
}

func (l *link) beat(session int) {
	if session != l.session {
		return
	}
	l.b.after(linkBeat, func() { l.beat(session) })
	if l.down {
		l.b.after(linkTimeout, func() { l.fail(session) })
		return
	}
	l.b.after(l.delay(), func() {
		if session == l.session {
			l.b.put(beatPrefix+l.Me(), []byte("beat"))
		}
	})
}

// cut breaks the connection; the fila notices that after a while.
func (l *link) cut() {
	l.down = true
	session := l.session
	l.b.after(l.b.rnd.Int64N(linkStale), func() {
		if l.down {
			l.fail(session)
		}
	})
}

func (l *link) mend() {
	l.down, l.slow, l.mute = false, false, 0
	l.bringAll()
}

func (l *link) bringAll() {
	for range l.inbox {
		l.b.after(l.delay(), l.bring)
	}
}

// bring delivers the next entry of the watch.
func (l *link) bring() {
	if l.down || !l.joined || len(l.inbox) == 0 {
		return
	}
	e := l.inbox[0]
	l.inbox = l.inbox[1:]
	newer := func(n fleet.Entry) bool { return n.Key == e.Key }
	if slices.ContainsFunc(l.inbox, newer) && l.b.rnd.IntN(2) == 0 {
		l.bring() // the newer entry is left
		return
	}
	if old := l.entries[e.Key]; old.Rev > e.Rev || old.Rev == e.Rev && !old.At.IsZero() {
		return // an own write was known before
	}
	l.entries[e.Key] = e
	if e.At.After(l.freshest) {
		l.freshest = e.At
	}
	key, ok := strings.CutPrefix(e.Key, circuitPrefix)
	if !ok {
		return
	}
	l.kind.Learn(key, e)
	if st := l.keys[key]; st != nil && st.waiting && e.Rev > st.over {
		l.start(key, st)
	}
}

// Touch requests a recheck of a key.
func (l *link) Touch(_, key string) {
	if !l.joined {
		return
	}
	st := l.keys[key]
	switch {
	case st == nil:
		st = &linkKey{}
		l.keys[key] = st
		l.start(key, st)
	case st.timed:
		l.start(key, st)
	default:
		st.again = true
	}
}

func (l *link) start(key string, st *linkKey) {
	st.waiting, st.again, st.timed = false, false, false
	st.later++
	session := l.session
	l.b.after(0, func() { l.swap(session, key, st) })
}

// swap writes the pending change of a key.
func (l *link) swap(session int, key string, st *linkKey) {
	if session != l.session {
		return
	}
	value, over, again, ok := l.kind.Swap(key)
	if ok {
		l.send(key, st, value, over)
		return
	}
	switch {
	case st.again:
		st.again = false
		l.start(key, st)
	case again > 0:
		st.later++
		timer := st.later
		st.timed = true
		l.b.after(int64(again), func() {
			if session == l.session && st.timed && timer == st.later {
				l.start(key, st)
			}
		})
	default:
		delete(l.keys, key)
	}
}

// send writes over a revision, and handles the answer.
func (l *link) send(key string, st *linkKey, value []byte, over uint64) {
	session := l.session
	late := func() { l.b.after(linkTimeout, func() { l.fail(session) }) }
	if l.down {
		late()
		return
	}
	l.b.after(l.delay(), func() {
		rev := l.b.swap(circuitPrefix+key, value, over)
		if l.mute > 0 {
			l.mute--
			late()
			return
		}
		l.b.after(l.delay(), func() {
			switch {
			case session != l.session:
			case l.down:
				late()
			default:
				l.answered(key, st, value, over, rev)
			}
		})
	})
}

func (l *link) answered(key string, st *linkKey, value []byte, over, rev uint64) {
	id := circuitPrefix + key
	switch {
	case rev == 0 && l.entries[id].Rev <= over:
		st.waiting, st.over = true, over
		return
	case rev > l.entries[id].Rev:
		e := fleet.Entry{Key: id, Value: value, Rev: rev}
		l.entries[id] = e
		l.kind.Learn(key, e)
	}
	l.swap(l.session, key, st)
}
