// Package throttle holds messages back: token buckets, sliding windows and
// concurrency limits by throttle key, and the set of gates that a message has to
// pass. It takes the time as an argument, starts no goroutine, reads no clock
// and logs nothing.
//
// A [Gates] is the registry of a process. [Gates.SetLimits] and
// [Gates.SetPrefix] say what a key is limited by; any of the three kinds, or
// none. [Gates.Set] gives a message the [Set] of its gates, which all messages
// with the same keys share. [Set.Acquire] lets a message through all of its
// gates or through none; then it says in a [Block] which gate is in the way and
// when it may open. The [Grant] of a message that went is given back by
// [Set.Release] when its flight ends, or by [Set.Undo] when it turns out that it
// never began.
//
//	set, err := gates.Set(m.ThrottleKeys, now)
//	grant, block, ok := set.Acquire(now, m.Cost, queue)
//	if !ok {
//		// park the message behind block.Gate until block.At or a wake-up
//	}
//	...
//	wake = set.Release(&grant, now, wake[:0])
//
// # The rules
//
// Over every interval with unchanged limits
//
//   - a token bucket admits costs of at most max(burst, largest cost) + rate * t
//     in a time t. A cost above the burst goes when the bucket is full and
//     leaves it in debt. It is the generic cell rate algorithm (GCRA, ITU-T
//     I.371 and ATM Forum TM 4.0), kept as an exact fraction. With [Set.ReleaseCorrected] what
//     counts is what messages have cost, as far as that is known when a message goes:
//     what is learned later is a debt, and nothing goes before it is paid, or comes
//     back. A debt is 1e9 at most;
//   - a sliding window admits at most limit messages in any window. It is a
//     sliding window log: exact up to a limit of 1,024; above that the entries
//     of 1/1,024 of the window are treated as the latest of them, so that one
//     may go later than it could, by that much at most, and never earlier;
//   - a concurrency limit admits as many messages at once.
//
// Limits may change at any time and count at once for what comes next. What has
// been used stays used. Messages that were undone do not count in any of this;
// a message that is given back after the bucket has been full again gives no
// tokens, since its tokens have been replaced already.
//
// [Gates.Pause] shuts the gate of a key for everybody, whether it has limits or
// not, until a time or until it is resumed.
//
// # Waiting
//
// Queues that wait for one gate are served in turn. A queue that has something
// parked behind a gate joins with a [Wait]; the head of the round has the turn,
// and only its queue is notified of what opens the gate, by the return values of
// the calls that give something back, or sees it by its own timer. The others
// get their turn by [Wait.Pass] and [Wait.Leave]. So a gate wakes one queue for
// as many messages as it can admit, never all of them, and nobody polls. While
// queues wait, others are refused with [ByTurn] and join the end.
//
// A message that needs several gates may be starved by messages that need one of
// them. A [Reservation] lets one message in the process collect its gates one by
// one.
//
// # Sharing
//
// A [Fleet], given to [Gates.Share], has limits hold over several processes. A gate that
// is shared is in one of three conditions: it goes by what it was lent (at first nothing:
// it is shut until [Gates.AddLease]), by limits of its own, since it is the only one
// ([Gates.Own]), or by a part of the rate while nobody can be asked ([Gates.Part]). What
// is lent are leases of tokens and slots, which end, and permits for places in flight,
// which do not. Limits that were set later elsewhere are in force instead of those of
// here ([Gates.Adopt]). Acquire only notes what it lacks and says so to Fleet.Request; nothing waits for
// anybody. Such a gate is never dormant, and a Reservation does not hold it: it takes
// what is lent when all else is there.
//
// # Units
//
// Times are Unix nanoseconds, costs and tokens thousandths (cost 1 is 1000; 1 to
// 1_000_000_000). A [Rate] is a fraction of thousandths per nanoseconds, so that
// 0.5/s, 1/3 per second and one a day are exact.
//
// # The clock
//
// Callers may be up to ten seconds late: their times count as the latest one seen.
// A clock that is set back further counts as standing still at that moment and
// running on from there: nothing is admitted for it, and nothing waits for it to
// catch up. A clock that jumps ahead is believed: every limit counts by the
// clock. When it comes back afterwards nothing is shut for longer. Only the end of
// a pause is a time that somebody has named: it holds until the clock shows that
// time, set back or not.
//
// # Cost
//
// Acquire, Release and Undo take time in proportion to the number of gates of
// the message (Undo also moves up to a window's spans), whatever the number of
// keys, entries or waiting queues, and allocate nothing in steady state. A
// window takes 16 bytes for each entry up to a limit of 1,024, and 32 KiB at
// most above it; 64 KiB after its limits have been changed back and forth.
//
// A gate that nobody uses, limited by a prefix, whose bucket or window is not yet
// as at the beginning, is dormant, but for 256 that may be used again at once: it
// takes 90 bytes, its key and its place in the list among them, and less than 8 for
// each entry of the window. Gates.Set wakes it, in time in proportion to the entries,
// and no decision differs for that. Set and Close look at a few idle and dormant
// gates each time, and forget those that are as new ones would be.
//
// # Locks
//
// Each gate has a mutex. Acquire takes those of its set in the order of the keys
// and holds them together; all else takes one at a time. Within it only the
// clock's mutex is taken. The registry's mutex comes before those of gates.
package throttle
