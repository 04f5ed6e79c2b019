// Package record is what a fleet of filas shares of a circuit and of the limits of a
// throttle key, as values and rules: no network, no clock, no lock. Times are Unix
// nanoseconds of the fleet's clock and come in.
//
//   - [Circuit] is the record: a frozen breaker.Machine, who holds permits for probes,
//     and what each instance has last put into it. Encode and Decode are its form in
//     the bucket.
//   - [Step] is something that happened at an instance: outcomes of calls, a probe that
//     ended, one that is wanted, what an operator has done. Steps that follow each other
//     are merged as far as the outcome is the same ([Merge]).
//   - [Circuit.Apply] is the rule: a record and a [Batch] of one instance give the next
//     record. It runs at whoever writes; compare and swap makes it one order.
//   - [Replica] is one instance's side of a record: the newest that it has seen, what is
//     on the way to it, and how it goes on without it.
//
// # Generations
//
// Every transition begins a new generation. A pass, and a step that tells its outcome,
// belong to the generation that handed the pass out, whichever instance asks: late
// results count for nothing, as in package breaker. An opening that ends by time alone
// closes the same way at every instance, without a write.
//
// # Permits
//
// Probes of a half-open circuit need a permit, which is an entry in the record; so
// there are never more of them than HalfOpenMaxCalls, in the whole fleet. A permit
// ends when its probe does, when it was not used for a while ([UnusedFor]), with its
// generation, or when its holder is not alive: then whoever wants one takes it.
//
// # Twice and never
//
// A write whose answer is lost may have been done. A batch has a number, the record
// keeps the last number of each instance, and a batch is not changed before its fate
// is known: so it is never counted twice.
//
// # Without the record
//
// While the bucket cannot be reached a Replica is alone: a machine of its own goes on
// from what was known, with a budget of probes of its own. When it is back, outcomes
// that changed no state are added, and of two states the one that changed later wins
// as a whole.
//
// # Terms
//
// Of limits that differ those that were set last are in force ([Terms]). They are in the
// record, with when they were set, and judge it at whoever writes. An instance whose own
// are newer than those of a record writes them, with whatever else it has to write or
// without.
//
// # Limits
//
// [Limit] is the record of a throttle key, [Limit.Apply] its rule, and [Member] one
// instance's side of it. An instance that uses a key alone is its owner: it goes by
// limits of its own and writes nothing. When a second one comes, which gets nothing at
// first, the owner writes what it has come to; from then on all of them lease: tokens
// and slots of a window for [ChunkLife], permits until they are given back. What is
// leased is taken from the record before it is used, so
//
//   - a rate lets at most max(burst, largest cost) + rate * (t + 200 ms) through in a
//     time t, all instances together. What a bucket has in it and what was leased in the
//     last ChunkLife are together at most burst + rate * ChunkLife; a rest is given back
//     only while it could be used, so that this stays so. The remaining 50 ms
//     ([ClockSpread]) are for clocks: the refill is by the fleet's clock, which only
//     goes forward in the record;
//   - a window has at most its limit in any window: a leased slot counts until it has
//     left the window whenever it was used, and a slot that was not used is taken out of
//     the very entry that counts it. It counts from the latest time at which it can have
//     been leased, and has left at the earliest that it can be ([Reading]), so clocks that
//     are known badly make a window let fewer through, never more;
//   - at most as many are in flight as there may be: permits are lowered at the gate
//     before they are in the record, and raised after that. Those of an instance that
//     is dead are free, although its messages may be at a consumer still.
//
// A chunk that is lost, with its holder or with the answer of a swap, is used up. Of an
// owner that is dead all counts as used.
package record
