package queue

import "github.com/filaq/fila/store"

// lease is one delivery that has not ended.
type lease struct {
	id       uint64
	seq      uint64
	deadline int64
	consumer *consumer
	reg      uint64 // registration of the consumer that the delivery was sent under
	prev     uint32 // order of deadlines; index+1, 0: none
	next     uint32
	order    int64             // of the delivery, among all of this process
	stored   bool              // the store has it
	permit   *permit           // what it holds of its gates; nil: nothing
	at       int64             // when the message was delivered; 0: not known
	held     []BlockedInterval // what held it before
}

// leaseTable holds the leases of a queue in the order of their deadlines.
// Deadlines are given out in increasing order while the visibility timeout does
// not change, so a new lease finds its place at the tail at once.
type leaseTable struct {
	items []lease
	free  []uint32
	head  uint32 // index+1
	tail  uint32
	live  int
	given int64 // leases so far, see lease.order

	// unstored lists leases in the order in which they were given, for writing
	// those that are still open after leaseWriteDelay.
	unstored     []unstoredLease
	unstoredHead int
}

type unstoredLease struct {
	index uint32
	id    uint64
	since int64
}

// leaseWriteDelay is how long a lease must be open before it is written (10 ms):
// most messages are finished sooner, and then their lease never costs a write.
const leaseWriteDelay = 10_000_000

// add files l and returns its index.
func (t *leaseTable) add(l lease) uint32 {
	t.given++
	l.order = t.given
	var i uint32
	if n := len(t.free); n > 0 {
		i, t.free = t.free[n-1], t.free[:n-1]
		t.items[i] = l
	} else {
		i = uint32(len(t.items))
		t.items = append(t.items, l)
	}
	t.live++
	t.link(i)
	return i
}

func (t *leaseTable) link(i uint32) {
	l := &t.items[i]
	after := t.tail
	for after != 0 && t.items[after-1].deadline > l.deadline {
		after = t.items[after-1].prev
	}
	l.prev = after
	if after == 0 {
		l.next, t.head = t.head, i+1
	} else {
		l.next = t.items[after-1].next
		t.items[after-1].next = i + 1
	}
	if l.next == 0 {
		t.tail = i + 1
	} else {
		t.items[l.next-1].prev = i + 1
	}
}

func (t *leaseTable) unlink(i uint32) {
	l := &t.items[i]
	if l.prev == 0 {
		t.head = l.next
	} else {
		t.items[l.prev-1].next = l.next
	}
	if l.next == 0 {
		t.tail = l.prev
	} else {
		t.items[l.next-1].prev = l.prev
	}
}

// remove ends lease i.
func (t *leaseTable) remove(i uint32) {
	t.unlink(i)
	t.items[i] = lease{}
	t.free = append(t.free, i)
	t.live--
}

// extend moves the deadline of lease i; the new one must be written.
func (t *leaseTable) extend(i uint32, deadline, now int64) {
	t.unlink(i)
	l := &t.items[i]
	l.deadline = deadline
	t.link(i)
	if l.stored {
		l.stored = false
		t.toStore(i, now)
	}
}

// first returns the lease that ends first.
func (t *leaseTable) first() (*lease, bool) {
	if t.head == 0 {
		return nil, false
	}
	return &t.items[t.head-1], true
}

// toStore notes that lease i is not in the store.
func (t *leaseTable) toStore(i uint32, now int64) {
	t.unstored = append(t.unstored, unstoredLease{i, t.items[i].id, now})
}

// nextUnstored is when the next lease must be looked at for writing.
func (t *leaseTable) nextUnstored() (int64, bool) {
	for ; t.unstoredHead < len(t.unstored); t.unstoredHead++ {
		u := t.unstored[t.unstoredHead]
		if l := &t.items[u.index]; l.id == u.id && !l.stored {
			t.trimUnstored()
			return u.since + leaseWriteDelay, true
		}
	}
	t.unstored, t.unstoredHead = t.unstored[:0], 0
	return 0, false
}

// trimUnstored gives the room of entries that have been passed back. Under load
// there is always a lease that is younger than leaseWriteDelay, so the list is
// never empty.
func (t *leaseTable) trimUnstored() {
	if half := len(t.unstored) / 2; t.unstoredHead > 1024 && t.unstoredHead > half {
		t.unstored = append(t.unstored[:0], t.unstored[t.unstoredHead:]...)
		t.unstoredHead = 0
	}
}

// takeUnstored returns the next lease open since before now-leaseWriteDelay
// that the store does not have, and marks it as stored.
func (t *leaseTable) takeUnstored(now int64) (*lease, bool) {
	due, ok := t.nextUnstored()
	if !ok || due > now {
		return nil, false
	}
	l := &t.items[t.unstored[t.unstoredHead].index]
	t.unstoredHead++
	l.stored = true
	return l, true
}

// storeLeases writes the leases that have been open for leaseWriteDelay. Those of
// messages that the store does not have yet wait for them: it would have to be told
// of both, for an ack that may be on its way.
func (q *side) storeLeases(now int64) {
	for {
		le, ok := q.leases.takeUnstored(now)
		if !ok {
			return
		}
		if s := q.slots.Get(le.seq); s.open {
			le.stored = false
			q.leases.toStore(s.ref, now)
			continue
		}
		q.storeLease(le)
	}
}

// record is what is stored of the lease.
func (le *lease) record() store.Lease {
	r := store.Lease{ID: le.id, Consumer: le.consumer.name, Deadline: le.deadline, DeliveredAt: le.at}
	if len(le.held) > 0 {
		r.Held = string(appendHolds(nil, le.held, maxPastGate))
	}
	return r
}

func (q *side) storeLease(le *lease) {
	le.stored = true
	s := q.slots.Get(le.seq)
	s.stored = true
	c := q.m.journal.change(q.m.now)
	c.State = append(c.State, store.State{
		Ref:      q.ref(le.seq),
		Attempts: s.attempts,
		ReadyAt:  s.readyAt,
		Lease:    le.record(),
	})
}
