package backlog

import (
	"github.com/filaq/fila/sidecar/queue/gates"
	"github.com/filaq/fila/sidecar/queue/history"
	"github.com/filaq/fila/store"
)

// Lease is a delivery that has not ended.
type Lease struct {
	ID       uint64
	Seq      uint64
	Deadline int64
	Consumer *Consumer
	Reg      uint64 // registration of the consumer at the delivery
	prev     uint32 // in the order of deadlines; index+1, 0: none
	next     uint32
	Order    int64 // number of the delivery in this process
	Stored   bool  // the store has it
	Permits  *gates.Permits
	At       int64 // when the message was delivered; 0: not known
	Blocked  []history.BlockedInterval
}

// Record is what the store keeps of a lease.
func (le *Lease) Record() store.Lease {
	r := store.Lease{ID: le.ID, Consumer: le.Consumer.Name, Deadline: le.Deadline, DeliveredAt: le.At}
	if route := le.Permits.Route(); len(le.Blocked) > 0 || route > 0 {
		r.Held = string(history.AppendBlocked(nil, le.Blocked, route))
	}
	return r
}

// Leases holds leases in the order of their deadlines. While the visibility timeout
// does not change deadlines increase, so a new lease finds its place at the end at
// once.
type Leases struct {
	Items []Lease
	free  []uint32
	head  uint32 // index+1
	tail  uint32
	Live  int
	Given int64 // leases so far, see Lease.Order

	// unstored lists leases in the order in which they were given: those that are
	// still open after LeaseWriteDelay are written.
	unstored     []unstoredLease
	unstoredHead int
}

type unstoredLease struct {
	index uint32
	id    uint64
	since int64
}

// LeaseWriteDelay is how long (ns) a lease is open before it is written: most messages
// are finished sooner, so their lease never costs a write.
const LeaseWriteDelay = 10_000_000

// Add files l and returns its index.
func (t *Leases) Add(l Lease) uint32 {
	t.Given++
	l.Order = t.Given
	var i uint32
	if n := len(t.free); n > 0 {
		i, t.free = t.free[n-1], t.free[:n-1]
		t.Items[i] = l
	} else {
		i = uint32(len(t.Items))
		t.Items = append(t.Items, l)
	}
	t.Live++
	t.link(i)
	return i
}

func (t *Leases) link(i uint32) {
	l := &t.Items[i]
	after := t.tail
	for after != 0 && t.Items[after-1].Deadline > l.Deadline {
		after = t.Items[after-1].prev
	}
	l.prev = after
	if after == 0 {
		l.next, t.head = t.head, i+1
	} else {
		l.next = t.Items[after-1].next
		t.Items[after-1].next = i + 1
	}
	if l.next == 0 {
		t.tail = i + 1
	} else {
		t.Items[l.next-1].prev = i + 1
	}
}

func (t *Leases) unlink(i uint32) {
	l := &t.Items[i]
	if l.prev == 0 {
		t.head = l.next
	} else {
		t.Items[l.prev-1].next = l.next
	}
	if l.next == 0 {
		t.tail = l.prev
	} else {
		t.Items[l.next-1].prev = l.prev
	}
}

// Remove ends lease i.
func (t *Leases) Remove(i uint32) {
	t.unlink(i)
	t.Items[i] = Lease{}
	t.free = append(t.free, i)
	t.Live--
}

// Extend moves the deadline of lease i. The new one is to be written.
func (t *Leases) Extend(i uint32, deadline, now int64) {
	t.unlink(i)
	l := &t.Items[i]
	l.Deadline = deadline
	t.link(i)
	if l.Stored {
		l.Stored = false
		t.ToStore(i, now)
	}
}

// First returns the lease that ends first, or nil.
func (t *Leases) First() *Lease { return t.item(t.head) }

// Next returns the lease that ends after le, or nil.
func (t *Leases) Next(le *Lease) *Lease { return t.item(le.next) }

func (t *Leases) item(i uint32) *Lease {
	if i == 0 {
		return nil
	}
	return &t.Items[i-1]
}

// ToStore notes that lease i is not in the store.
func (t *Leases) ToStore(i uint32, now int64) {
	t.unstored = append(t.unstored, unstoredLease{i, t.Items[i].ID, now})
}

// NextUnstored is since when the oldest lease is open that is not in the store.
func (t *Leases) NextUnstored() (int64, bool) {
	for ; t.unstoredHead < len(t.unstored); t.unstoredHead++ {
		u := t.unstored[t.unstoredHead]
		if l := &t.Items[u.index]; l.ID == u.id && !l.Stored {
			t.trimUnstored()
			return u.since, true
		}
	}
	t.unstored, t.unstoredHead = t.unstored[:0], 0
	return 0, false
}

// trimUnstored removes the entries that have been passed. Under load there is always
// a lease younger than LeaseWriteDelay, so the list is never empty.
func (t *Leases) trimUnstored() {
	if half := len(t.unstored) / 2; t.unstoredHead > 1024 && t.unstoredHead > half {
		t.unstored = append(t.unstored[:0], t.unstored[t.unstoredHead:]...)
		t.unstoredHead = 0
	}
}

// TakeUnstored returns the oldest lease that is not in the store and has been open
// since a time or longer, and marks it as stored; nil: there is none.
func (t *Leases) TakeUnstored(since int64) *Lease {
	if at, ok := t.NextUnstored(); !ok || at > since {
		return nil
	}
	l := &t.Items[t.unstored[t.unstoredHead].index]
	t.unstoredHead++
	l.Stored = true
	return l
}
