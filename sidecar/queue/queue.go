package queue

import (
	"math"
	"time"

	"github.com/filaq/fila/sidecar/queue/gates"
	"github.com/filaq/fila/sidecar/queue/inspect"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/throttle"
	"github.com/filaq/fila/wire"
)

// Forever is the end of a pause that only a resume ends.
const Forever = math.MaxInt64

// KeyCounts counts the unfinished messages of each fairness key. It may be used by any
// goroutine.
type KeyCounts interface{ Add(key string, n int64) }

// Options of a new machine.
type Options struct {
	Name       string               // of the queue; its dead letter queue is wire.DLQ of it
	IDs        [Roles]store.QueueID // in the store
	Settings   Settings
	Gates      *throttle.Gates
	Circuits   gates.Circuits
	Owner      gates.Owner
	FirstLease uint64 // leases are numbered from here; random, so that no restart repeats a number
	Pacing     Pacing
}

// Queue is the machine. One goroutine uses it at a time.
type Queue struct {
	shared      gates.Shared
	settings    Settings
	perKey      KeyCounts // of Main; nil: messages are not counted by key
	dispatching bool
	lease       uint64 // the last one given

	sides   [Roles]side
	journal journal

	now int64    // Unix ns of this step
	out *Effects // of this step
}

// New returns an empty machine that begins at time now.
func New(o Options, now int64) *Queue {
	m := &Queue{
		shared:   gates.Shared{Throttles: o.Gates, Circuits: o.Circuits, Owner: o.Owner},
		settings: o.Settings, lease: o.FirstLease, journal: journal{pacing: o.Pacing},
	}
	m.begin(now, nil)
	m.sides[Main].init(m, Main, o.IDs[Main], o.Name)
	m.sides[Dead].init(m, Dead, o.IDs[Dead], wire.DLQ(o.Name))
	return m
}

// begin begins a step.
func (m *Queue) begin(now int64, out *Effects) {
	m.now, m.out = now, out
	m.shared.Now, m.shared.Out = now, nil
	if out != nil {
		m.shared.Out = &out.Effects
	}
}

// Step handles the inputs, advances the time to now, and adds to out what has to
// happen. It returns when to call it again even without inputs; a time that is not
// after now means at once.
func (m *Queue) Step(now int64, in []Input, out *Effects) (next int64) {
	for i := range m.sides {
		q := &m.sides[i]
		q.counted.AddBlocked(q.reader, m.now, now) // nothing has changed since the last step
	}
	m.begin(now, out)
	for i := range in {
		m.sides[in[i].Role].handle(&in[i])
	}
	next = now + int64(time.Hour)
	for i := range m.sides {
		if q := &m.sides[i]; !q.idle() {
			q.advance(now)
			next = min(next, q.next(now))
		}
	}
	m.flushIfDue(now)
	if at := m.flushAt(now); at != 0 {
		next = min(next, at)
	}
	m.out = nil
	return next
}

// Stepped is the time of the last step.
func (m *Queue) Stepped() int64 { return m.now }

// Finish is the last step. It hands all changes to the store, leases included, so that
// consumers that go on working can ack to the next process. If the queue is gone
// while others use its gates, it returns what it holds of them.
func (m *Queue) Finish(now int64, gone bool, out *Effects) {
	m.begin(now, out)
	m.flush()
	for i := range m.sides {
		q := &m.sides[i]
		q.storeLeases(math.MaxInt64)
		if gone {
			q.leaveGates(now)
		}
		for _, c := range q.Consumers.Waiting() {
			q.publishStatus(c, statusExpired)
		}
	}
	m.flush()
	m.out = nil
}

// Open counts the leases and the failures under judgement of both roles: a shutdown waits
// for them.
func (m *Queue) Open() int {
	n := 0
	for i := range m.sides {
		n += m.sides[i].Leases.Live + len(m.sides[i].failing)
	}
	return n
}

// Inspect returns the reader of a role. It is used between steps.
func (m *Queue) Inspect(r Role) *inspect.Reader { return m.sides[r].reader }

// Cumulative returns what a role has counted since the process started.
func (m *Queue) Cumulative(r Role, now int64) inspect.Cumulative {
	q := &m.sides[r]
	c := q.counted
	c.AddBlocked(q.reader, m.now, now)
	return c
}

// LastSeq is the last sequence that a role has given out.
func (m *Queue) LastSeq(r Role) uint64 { return m.sides[r].seq }

// nextLease returns an id that no lease of this process had. Ids are never zero.
func (m *Queue) nextLease() uint64 {
	if m.lease++; m.lease == 0 {
		m.lease++
	}
	return m.lease
}
