// Package circuit keeps the circuit breakers around the destinations that
// consumers call, by circuit key.
//
//   - [Registry] finds them, remembers those that matter, sets their limits, and
//     has what operators do with them. It is a queue.Circuits.
//   - [Circuit] is one of them, shared by all queues whose messages name its key.
//     It is a queue.Circuit.
//   - [Settings] are its limits.
//
// What queues call (Allow, Done, RetryAfter, Wait, Drop) changes memory only. What
// follows of it is collected in the circuit and carried out by [Circuit.Announce],
// outside of all locks: those who wait are told in the order in which they came,
// events go out in the order of the transitions, and at most one write to the
// store is under way. What operators do announces itself.
//
// Times are Unix nanoseconds of the one clock that all callers share.
package circuit
