package gates

import (
	"github.com/filaq/fila/breaker"
	"github.com/filaq/fila/throttle"
)

// Owner steps a queue. Shared gates know a queue by its owner. Its methods are called
// from any goroutine and never block: they post an input for the queue.
type Owner interface {
	GateOpened(g *throttle.Gate)
	CircuitOpened(c Circuit)
}

// Circuits finds the circuits around destinations by circuit key. Its methods may be
// called from any goroutine.
type Circuits interface {
	// Use returns the circuit of a key. The caller returns it with Drop.
	Use(key string, now int64) Circuit
	// Drop ends a use, after all its permissions were returned. It appends to pending
	// the circuits that have something to announce.
	Drop(c Circuit, now int64, pending []Circuit) []Circuit
}

// FailedCall is a failed delivery, or a failed call of the guard.
type FailedCall struct {
	ID          [16]byte // of the message; zero: a call of the guard
	Caller      string   // of a call of the guard
	Attempt     uint32
	Code, Error string
}

// Circuit is the circuit breaker around one destination that consumers call. Its
// methods may be called from any goroutine, do not block and notify nobody: if a
// method reports pending, the caller calls Announce after the step.
type Circuit interface {
	// Key is the circuit key.
	Key() string
	// Admits returns how many messages the circuit admits, math.MaxInt64 if it is
	// closed. If it admits none, at is when to ask again; math.MaxInt64 means that
	// the owner will be notified (see Wait).
	Admits(now int64) (n, at int64)
	// Peek is Admits for readers: it requests no notification.
	Peek(now int64) (n, at int64)
	// AdmitsBy returns how many messages the circuit would admit until a time if no
	// outcome changed it before: of an open one its probes, if it becomes half-open by
	// then. It requests no notification.
	AdmitsBy(now, until int64) int64
	// CountBlocked counts a message that begins to wait here.
	CountBlocked()
	// Allow requests a permission for one delivery; 0 means no. Each permission is
	// returned once, with Done or with Decided.
	Allow(now int64) (pass breaker.Pass, pending bool)
	// Done returns a permission with the outcome of the delivery.
	Done(pass breaker.Pass, now int64, o breaker.Outcome) (pending bool)
	// Failed is Done, or Decided if judged is set, with a failure: it says which call failed.
	Failed(pass breaker.Pass, now int64, f FailedCall, judged bool) (pending bool)
	// AwaitVerdict notes that the delivery failed and that the failure is being judged.
	// Until Decided returns the permission, the circuit admits nothing that it would
	// not admit if the failure counted.
	AwaitVerdict(pass breaker.Pass, now int64)
	Decided(pass breaker.Pass, now int64, o breaker.Outcome) (pending bool)
	// RetryAfter opens the circuit until a time that the destination asked for.
	RetryAfter(now, until int64) (pending bool)
	// Wait notes that messages of o wait here. o is notified once when the circuit
	// may admit more for another reason than time, and again after each Admits that
	// admitted nothing. Leave ends that.
	Wait(o Owner, now int64) (pending bool)
	Leave(o Owner)
	// Announce publishes, writes and notifies what the methods above left pending. It
	// is not called during a step.
	Announce()
}
