package queue

import (
	"math"
	"time"

	"github.com/filaq/fila/breaker"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/throttle"
	"github.com/filaq/fila/wire"
)

// Forever is the end of a pause that only a resume ends.
const Forever = math.MaxInt64

// Owner steps a machine. Gates, which several machines share, name it to those who
// open them.
type Owner interface {
	// GateOpened and CircuitOpened have the machine told so by an input. They are
	// called from any goroutine and never block.
	GateOpened(g *throttle.Gate)
	CircuitOpened(c Circuit)
}

// Circuits finds the circuits around destinations, by circuit key. Its methods may
// be called from any goroutine.
type Circuits interface {
	// Use returns the circuit of a key. It must be given back with Drop.
	Use(key string, now int64) Circuit
	// Drop gives back a use, after all passes that came with it. It appends to
	// pending the circuits that have something to announce.
	Drop(c Circuit, now int64, pending []Circuit) []Circuit
}

// Circuit is the circuit breaker around one destination that consumers call. Its
// methods may be called from any goroutine, do not block, and tell nobody: a result
// that is called pending says that somebody has to call Announce, after the step.
type Circuit interface {
	// Key is the circuit key.
	Key() string
	// Admits says how many messages could go: math.MaxInt64 when closed. If it is 0,
	// at is when to look again; math.MaxInt64 is when told (see Wait).
	Admits(now int64) (n, at int64)
	// Peek is Admits for those who only look: nobody has to be told afterwards.
	Peek(now int64) (n, at int64)
	// CountHeld counts a message that begins to wait here.
	CountBlocked()
	// Allow asks to deliver one message; 0 is no. A pass that is granted must be
	// given to Done.
	Allow(now int64) (pass breaker.Pass, pending bool)
	// Done takes a pass back, with how the delivery ended.
	Done(pass breaker.Pass, now int64, o breaker.Outcome) (pending bool)
	// Undecided notes that the delivery of a pass has failed, and that whether this counts
	// is still being judged: Decided takes the pass back then, in place of Done. Until
	// then nothing is admitted that must not be if the failure counts.
	Undecided(pass breaker.Pass, now int64)
	Decided(pass breaker.Pass, now int64, o breaker.Outcome) (pending bool)
	// RetryAfter shuts the circuit until a time, since the destination has asked for
	// it.
	RetryAfter(now, until int64) (pending bool)
	// Wait notes that o has messages blocked here: o is told when the circuit may
	// admit more other than by time, once until somebody has looked with Admits in
	// vain. Leave ends that.
	Wait(o Owner, now int64) (pending bool)
	Leave(o Owner)
	// Announce publishes, writes and wakes what the methods above have left. It is
	// not called during a step.
	Announce()
}

// KeyCounts counts the unfinished messages of each fairness key. It may be used by
// any goroutine.
type KeyCounts interface{ Add(key string, n int64) }

// Options of a new machine.
type Options struct {
	Name       string               // of the queue; its dead letter queue is wire.DLQ of it
	IDs        [Roles]store.QueueID // in the store
	Settings   Settings
	Gates      *throttle.Gates
	Circuits   Circuits
	Owner      Owner
	FirstLease uint64 // leases are numbered from here on; random, so that no restart repeats one
	Pacing     Pacing
}

// Queue is the machine. It is used by one goroutine at a time.
type Queue struct {
	owner       Owner
	gates       *throttle.Gates
	circuits    Circuits
	settings    Settings
	perKey      KeyCounts // of Main; nil: messages are not counted by key
	dispatching bool
	lease       uint64 // the last one given

	sides   [Roles]side
	journal journal

	now int64    // of this step
	out *Effects // of this step
}

// New returns an empty machine that begins at time now.
func New(o Options, now int64) *Queue {
	m := &Queue{
		owner: o.Owner, gates: o.Gates, circuits: o.Circuits, settings: o.Settings, lease: o.FirstLease,
		journal: journal{pacing: o.Pacing}, now: now,
	}
	m.sides[Main].init(m, Main, o.IDs[Main], o.Name)
	m.sides[Dead].init(m, Dead, o.IDs[Dead], wire.DLQ(o.Name))
	return m
}

// Step handles what came in, lets time pass until now, and adds to out what has to
// happen. It returns when it must be called again even if nothing comes in; a time
// that is not after now is at once.
func (m *Queue) Step(now int64, in []Input, out *Effects) (next int64) {
	m.meter(now)
	m.now, m.out = now, out
	for i := range in {
		m.sides[in[i].Role].handle(&in[i])
	}
	next = now + int64(time.Hour)
	for i := range m.sides {
		if q := &m.sides[i]; !q.idle() {
			q.pass(now)
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

// Stepped is when the last step was.
func (m *Queue) Stepped() int64 { return m.now }

// Finish is the last step: it hands in everything, leases included, so that
// consumers which go on working can ack to the next process. A queue that is
// gone here, while others use its gates, gives back what it holds of them.
func (m *Queue) Finish(now int64, gone bool, out *Effects) {
	m.now, m.out = now, out
	m.flush()
	for i := range m.sides {
		q := &m.sides[i]
		q.storeLeases(math.MaxInt64 - leaseWriteDelay)
		if gone {
			q.leaveGates(now)
		}
		for _, c := range q.consumers.waiting() {
			q.status(c, statusExpired)
		}
	}
	m.flush()
	m.out = nil
}

// Open counts leases and undecided failures of both sides: what a shutdown waits
// for.
func (m *Queue) Open() int {
	n := 0
	for i := range m.sides {
		n += m.sides[i].leases.live + len(m.sides[i].failing)
	}
	return n
}

// LastSeq is the last sequence that a side has given out.
func (m *Queue) LastSeq(s Role) uint64 { return m.sides[s].seq }

// nextLease returns an id that no lease of this process had. Ids are never zero.
func (m *Queue) nextLease() uint64 {
	if m.lease++; m.lease == 0 {
		m.lease++
	}
	return m.lease
}

// announce keeps a circuit that has something to announce, for after the step.
func (m *Queue) announce(c Circuit, pending bool) {
	if pending {
		m.out.Circuits = append(m.out.Circuits, c)
	}
}
