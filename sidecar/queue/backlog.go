package queue

import (
	"github.com/filaq/fila/drr"
	"github.com/filaq/fila/sidecar/queue/container"
	"github.com/filaq/fila/store"
)

// backlog is the messages of a side and the schedule that says which goes next.
type backlog struct {
	slots  container.Table[slot] // by sequence
	keys   keyTable
	links  container.Lists  // of messages that wait: those of keys and subqueues, in the order of their stamps, and ordered ones
	costly int64            // messages that do not cost 1
	stamp  int64            // the last one given, see nextStamp; what is redelivered gets one below 0
	sched  *drr.Scheduler   // of the flows that can send something
	debts  debts            // of those that cannot
	delays container.Timers // delayed messages, by readyAt
	ttls   container.Timers // messages with a TTL, by the end of it
	ends   map[uint64]int64 // of these; most messages have none
}

// slotState says where a message is.
//
//	new     -> ready | delayed
//	delayed -> ready                       its time has come
//	ready: waiting | ordered               or its key is taken
//	ordered -> waiting                     its predecessors are done
//	waiting -> leased                      delivered
//	leased  -> waiting                     taken back: nobody received it
//	leased  -> failing | ready | delayed   nack or expiry, to be judged or not
//	failing -> ready | delayed             the verdict is there
//	any     -> moving                      on its way to the other side, or gone
//	waiting -> moving -> waiting           a redrive that had to stop
//
// A waiting message is blocked or not as its subqueue is.
type slotState uint8

const (
	slotMoving slotState = iota // in no place: it is just being put into one, or on its way
	slotDelayed
	slotWaiting
	slotOrdered
	slotLeased
	slotFailing
)

// slot is what is kept in memory of one message. It has no pointers, so
// that the garbage collector never walks a backlog.
type slot struct {
	id         store.ID
	enqueuedAt int64
	readyAt    int64 // when it became, or becomes, pending; see readySince
	size       uint32
	attempts   uint32 // ended ones
	cost       uint32 // thousandths
	flow       drr.Flow
	sub        subID
	ref        uint32 // waiting, ordered: its link; leased: index of the lease
	state      slotState
	priority   uint8
	stored     bool // the store has a State of it that differs from "fresh"
	open       bool // its Add is in the open commit
	owns       bool // it owns its fairness key, see keyOrder
	ttl        bool // it has a TTL, see backlog.ends
	watched    bool // its attempts are told of; not known of what comes from the store
	picked     bool // it was pending when a job took it out of its place
}

// setTTL notes when message seq expires.
func (b *backlog) setTTL(seq uint64, s *slot, at int64) {
	s.ttl = true
	b.ends[seq] = at
	b.ttls.Add(at, seq)
}

// endTTL forgets when message seq, which is gone, would expire.
func (b *backlog) endTTL(seq uint64) {
	delete(b.ends, seq)
	if len(b.ends) == 0 {
		b.ends = make(map[uint64]int64) // a map keeps the size that it once had
	}
	b.ttls.Dropped()
}

// expiresAt is when message seq expires; 0: never.
func (b *backlog) expiresAt(seq uint64, s *slot) int64 {
	if !s.ttl {
		return 0
	}
	return b.ends[seq]
}

// expired reports whether the TTL of message seq is over.
func (b *backlog) expired(seq uint64, s *slot, now int64) bool {
	return s.ttl && b.ends[seq] <= now
}

func (b *backlog) ttlCounts(it container.Timer) bool {
	s := b.slots.Get(it.ID)
	return s != nil && s.ttl && b.expiresAt(it.ID, s) == it.At
}

func (b *backlog) delayCounts(it container.Timer) bool {
	s := b.slots.Get(it.ID)
	return s != nil && s.state == slotDelayed && s.readyAt == it.At
}

// keyTable gives the fairness keys of a queue's live messages small dense
// numbers, which are the flows of its scheduler. A key without messages is
// forgotten and its number used again.
type keyTable struct {
	ids       map[string]drr.Flow
	entries   []keyEntry
	free      []drr.Flow
	overrides map[string]uint32 // weights set at run time, by key, in thousandths

	heaps     [][]subID // of eligible subqueues, by keyEntry.ready; heaps[0] is not used
	freeHeaps []uint32
}

type keyEntry struct {
	name   string
	weight uint32          // of the latest enqueue, in thousandths
	known  uint32          // the weight that the schedule and wait lists know; 0: none yet
	refs   int32           // live messages
	plain  container.Ranks // messages without gates that wait, by priority
	sub    subID           // the subqueue of the latest message, to find it without a look-up; 0: none
	bare   subID           // the subqueue that plain has become while the key was paused; 0: none
	ready  uint32          // the heap of eligible subqueues; 0: there are none
	active bool            // in the schedule

	// See watch: looks since something was delivered of it, or it came into the schedule;
	// or that it starves.
	unserved uint8

	work uint16 // a row of side.work that was its own; 0: none
}

func newKeyTable() keyTable {
	return keyTable{ids: make(map[string]drr.Flow), overrides: make(map[string]uint32), heaps: make([][]subID, 1)}
}

// acquire counts one more live message of key, whose weight is now weight.
func (t *keyTable) acquire(key string, weight uint32) drr.Flow {
	f, ok := t.ids[key]
	if !ok {
		if n := len(t.free); n > 0 {
			f, t.free = t.free[n-1], t.free[:n-1]
		} else {
			f = drr.Flow(len(t.entries))
			t.entries = append(t.entries, keyEntry{})
		}
		t.entries[f].name = key
		t.ids[key] = f
	}
	e := &t.entries[f]
	e.refs++
	e.weight = weight
	return f
}

// release counts one live message of f less.
func (t *keyTable) release(f drr.Flow) {
	e := &t.entries[f]
	if e.refs--; e.refs > 0 {
		return
	}
	delete(t.ids, e.name)
	*e = keyEntry{}
	t.free = append(t.free, f)
}

func (t *keyTable) name(f drr.Flow) string { return t.entries[f].name }

// weight is the weight in force: the run-time override or the latest enqueue's.
func (t *keyTable) weight(f drr.Flow) int64 {
	e := &t.entries[f]
	if len(t.overrides) > 0 {
		if w, ok := t.overrides[e.name]; ok {
			return int64(w)
		}
	}
	return int64(e.weight)
}

// override sets (weight > 0) or lifts (0) a run-time weight and returns the
// flow that it concerns, if the key has messages.
func (t *keyTable) override(key string, weight uint32) (drr.Flow, bool) {
	if weight > 0 {
		t.overrides[key] = weight
	} else {
		delete(t.overrides, key)
	}
	f, ok := t.ids[key]
	return f, ok
}

// heap returns the heap of a flow, which is made if need be.
func (t *keyTable) heap(f drr.Flow) *[]subID {
	e := &t.entries[f]
	if e.ready == 0 {
		if n := len(t.freeHeaps); n > 0 {
			e.ready, t.freeHeaps = t.freeHeaps[n-1], t.freeHeaps[:n-1]
		} else {
			e.ready = uint32(len(t.heaps))
			t.heaps = append(t.heaps, nil)
		}
	}
	return &t.heaps[e.ready]
}

// dropHeap gives the heap of a flow back, which is empty.
func (t *keyTable) dropHeap(f drr.Flow) {
	const keep = 64
	e := &t.entries[f]
	if cap(t.heaps[e.ready]) > keep {
		t.heaps[e.ready] = nil
	}
	t.freeHeaps = append(t.freeHeaps, e.ready)
	e.ready = 0
}
