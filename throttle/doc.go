// Package throttle limits messages by throttle key: token buckets, sliding windows
// and concurrency limits, and the set of gates that a message has to pass. It takes
// the time as an argument, starts no goroutine, reads no clock and logs nothing.
//
// A [Gates] is the registry of a process. [Gates.SetLimits] and [Gates.SetPrefix]
// set the limits of keys: any of the three kinds, or none. [Gates.Set] returns the
// [Set] of gates of a message, which messages with the same keys share.
// [Set.Acquire] admits a message at all of its gates or at none; in the latter case
// a [Block] names the gate to wait for and when it may open. A message that went has
// a [Grant], which [Set.Release] returns when its flight ends, or [Set.Undo] when no
// consumer has received it.
//
//	set, err := gates.Set(m.ThrottleKeys, now)
//	grant, block, ok := set.Acquire(now, m.Cost, queue)
//	if !ok {
//		// wait for block.Gate until block.At or a notification
//	}
//	...
//	wake = set.Release(&grant, now, wake[:0])
//
// # Guarantees
//
// Over every interval with unchanged limits
//
//   - a token bucket admits costs of at most max(burst, largest cost) + rate * t in
//     a time t. A message whose cost exceeds the burst goes when the bucket is full,
//     and leaves it in debt. The algorithm is the generic cell rate algorithm (GCRA,
//     ITU-T I.371 and ATM Forum TM 4.0), kept as an exact fraction. With
//     [Set.ReleaseCorrected] the costs that are known when a message goes count. A
//     cost that is known later becomes a debt of at most 1e9, which has to be paid
//     before another message goes, or a refund;
//   - a sliding window admits at most limit messages in any window. It is a sliding
//     window log: exact up to a limit of 1,024. Above that, entries within 1/1,024 of
//     the window count as the latest of them, so that a message may go later than it
//     could by that much at most, and never earlier;
//   - a concurrency limit admits as many messages at once.
//
// Limits may change at any time and apply at once. Usage stays. Messages that were
// undone count nowhere. A message that is undone after its bucket has been full again
// gets no refund, since the bucket has replaced the tokens already.
//
// [Gates.Pause] shuts the gate of a key, with or without limits, until a time or
// until it is resumed.
//
// # Waiting
//
// Queues that wait for one gate are served in turn. A queue with messages that a gate
// blocks joins its wait list with a [Wait]. The head of the list has the turn: only
// its queue is notified when the gate opens, by the return values of the calls that
// open it, or sees it by its own timer. The others get their turn by [Wait.Pass] and
// [Wait.Leave]. So a gate wakes one queue for as many messages as it admits, never
// all of them, and no queue polls. While queues wait, the gate refuses other queues
// with [ByTurn], and they join the end.
//
// Messages that need one gate may starve a message that needs several. A
// [Reservation] lets one message in the process collect its gates one by one.
//
// # Sharing
//
// A [Fleet], given to [Gates.Share], makes limits hold over several processes. A
// shared gate is in one of three states: it admits with leases of the fleet (at first
// it has none: it is shut until [Gates.AddLease]), it applies the limits alone, since
// it is the only one ([Gates.Own]), or it applies a part of the rate while the fleet
// cannot be reached ([Gates.Part]). Leases of tokens and slots end by time, permits
// for messages in flight do not. Limits that another process has set later replace
// the ones set here ([Gates.Adopt]). Acquire only records what is missing and calls
// Fleet.Request; it never waits. A shared gate is never dormant, and a Reservation
// does not collect it: it takes leases when it has everything else.
//
// # Units
//
// Times are Unix nanoseconds, costs and tokens thousandths (cost 1 is 1000; 1 to
// 1_000_000_000). A [Rate] is a fraction of thousandths per nanoseconds, so that
// 0.5/s, 1/3 per second and one a day are exact.
//
// # The clock
//
// Callers may be up to ten seconds late: their times count as the latest time seen. A
// clock that is set back further stands still at that moment and runs on from there:
// the gates admit nothing extra, and nothing waits for the clock to catch up. A clock
// that jumps ahead is believed, since every limit counts by the clock. When it comes
// back, no gate is shut longer. Only the end of a pause is an absolute time: it holds
// until the clock shows that time.
//
// # Cost
//
// Acquire, Release and Undo take time in proportion to the number of gates of the
// message, whatever the number of keys, entries or waiting queues, and allocate
// nothing in steady state. Undo also moves up to a window's spans. A window takes 16
// bytes for each entry up to a limit of 1,024, and at most 32 KiB above it; 64 KiB
// after its limits have been changed back and forth.
//
// An idle gate with the limits of a prefix becomes dormant until its bucket is full
// and its window empty; 256 such gates stay awake. A dormant gate takes 90 bytes,
// with its key and its place in the list, and less than 8 for each entry of the
// window. Gates.Set wakes it in time in proportion to the entries, and no decision
// differs. Set and Close check a few idle and dormant gates each time, and drop the
// ones whose state is the state of a new gate.
//
// # Locks
//
// Each gate has a mutex. Acquire locks the gates of its set in the order of the keys
// and holds them together, so two calls never deadlock. Everything else locks one gate
// at a time. While a gate is locked, only the clock's mutex may be taken. The
// registry's mutex comes before the mutexes of gates.
package throttle
