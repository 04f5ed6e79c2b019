// Package circuit holds the circuit breakers of a process by circuit key.
//
//   - [Registry] finds circuits, stores open ones, sets their limits, and implements what
//     operators do with them. It is a gates.Circuits.
//   - [Circuit] is shared by all queues whose messages name its key. It is a gates.Circuit.
//   - [Settings] are the limits of a circuit.
//
// The methods that queues call (Allow, Done, RetryAfter, Wait, Drop) change memory only. Their
// consequences are collected and carried out by [Circuit.Announce], outside of all locks: waiters
// are woken in the order of their arrival, events are published in the order of the transitions,
// and at most one write to the store is running. Operations of operators announce themselves.
//
// Times are Unix nanoseconds of the clock that all callers share.
package circuit
