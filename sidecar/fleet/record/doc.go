// Package record has what filas share of a circuit and of the limits of a throttle key, as values and
// rules: without network, clock or lock. Times are arguments, in Unix nanoseconds of the fleet's clock.
//
//   - [Circuit] is the record of a circuit: a frozen breaker.Machine, the holders of permits for
//     probes, and the last batch of each instance. Encode and Decode convert it for the bucket.
//   - [Step] is something that happened at an instance: outcomes of calls, a finished probe, a
//     request for a permit, an operation by hand. Consecutive steps are merged where the outcome is
//     the same ([Merge]).
//   - [Circuit.Apply] is the rule: a record and a [Batch] of one instance give the next record. The
//     writer runs it; compare and swap puts all writes into one order.
//   - [Replica] is one instance's side of a record: the newest one it has seen, what is on the way to
//     it, and how it goes on without it.
//
// # Generations
//
// Every transition begins a new generation. A pass, and the step with its outcome, belong to the
// generation that issued the pass, at any instance: late results count for nothing, as in package
// breaker. An opening that ends by time closes in the same way at every instance, without a write.
//
// # Permits
//
// A probe of a half-open circuit needs a permit, which is an entry in the record. So there are never
// more probes than HalfOpenMaxCalls in the whole fleet. A permit ends with its probe, when it is not
// used for a while ([UnusedFor]), with its generation, or when its holder is dead: then another
// instance takes it.
//
// # Exactly once
//
// A write whose answer is lost may have been done. A batch has a number, the record keeps the last
// number of each instance, and a batch does not change before its fate is known. So it never counts
// twice.
//
// # Without the record
//
// While the bucket cannot be reached a Replica is alone: its own machine goes on from the last known
// state, with its own probes. Afterwards, outcomes that changed no state are added to the record; of
// two different states, the one that changed later wins as a whole.
//
// # Terms
//
// If instances have different limits, those that were set last are in force ([Terms]). The record
// contains them with the time when they were set, and the writer applies them. An instance with newer
// limits writes them, even without anything else to write.
//
// # Limits
//
// [Limit] is the record of a throttle key, [Limit.Apply] its rule, and [Member] one instance's side of
// it. The only user of a key is its owner: it applies the limits itself and writes nothing. A second
// user gets nothing at first; then the owner writes the current state, and from then on all users
// lease: tokens and window slots for [ChunkLife], permits until they are given back. A lease is taken
// from the record before it is used, so
//
//   - a rate lets at most max(burst, largest cost) + rate * (t + 200 ms) through in a time t, for all
//     instances together. The content of the bucket and the leases of the last ChunkLife are together
//     at most burst + rate * ChunkLife; a rest is given back only while it could still be used, which
//     keeps this bound. The remaining 50 ms ([ClockSpread]) are for clocks: the refill follows the
//     fleet's clock, which only goes forward in the record;
//   - a window has at most its limit in any window: a leased slot counts until it has left the
//     window, whenever it was used, and an unused slot is removed from the entry that counts it. It
//     counts from the latest time at which it can have been leased, and leaves at the earliest
//     possible time ([Reading]). So badly known clocks make a window let fewer through, never more;
//   - at most the concurrency limit is in flight: permits are lowered at the gate before they are
//     lowered in the record, and raised after that. Permits of a dead instance are free, although
//     its messages may still be at consumers.
//
// The feedback of a destination lowers the bucket in the record, once and by what it was worth when it came
// ([Limit].Lowered). The reporter has lowered its leases before. Of leases that others took before, nothing
// goes back, or the bucket would rise again.
//
// A lease that is lost, with its holder or with the answer of a swap, counts as used. If an owner
// dies, everything counts as used.
//
// # Budgets
//
// [Budget] is the record of the budget of a throttle key, [Budget.Apply] its rule, and [Spender] one
// instance's side of it; what an instance has used is in its budget.Ledger. The record has what each
// instance has booked in the present account, which it uses only when it has seen it there. Parts of
// instances that are gone count as used. The known costs of an account exceed amount and top-ups by at
// most the sum, over the processes that took part, of what was underestimated of the deliveries in
// flight at the last delivery of each.
package record
