// Package budget counts what a key spends in a calendar period against an amount. It takes the
// time as an argument, starts no goroutine and takes no lock.
//
// A [Ledger] is the account of one key. A delivery takes its estimated cost with [Ledger.Take]; when
// it is over, [Ledger.Correct] adds the difference to the actual cost, and [Ledger.Undo] returns
// the cost of a delivery that nobody received. An amount belongs to the period of its delivery.
//
// # The bound
//
// Of the deliveries of a period, the costs that are known at its end exceed amount and top-ups by
// at most the sum of the amounts by which the deliveries in flight at one moment were
// underestimated, and, for each crash in the period, as much again. Clean stops and changes of the
// clock add nothing.
//
//  1. Take needs used + cost <= amount + added, where used is at least the actual costs of the
//     finished deliveries and the estimates of the others. After the last Take only deliveries
//     that were in flight then add to the costs, each the amount by which it was underestimated.
//  2. Take needs used + cost <= booked, where booked is on disk. The next process begins with
//     used = booked, so it knows of at least as much as there was at the last Take. A crash may
//     forget what corrections have added since then: underestimates of what was in flight.
//  3. A period never begins again. The ledger stays in its period while the clock shows an earlier
//     time, and the disk has the period.
//
// A booking is ahead of the use by up to 1/64 of the amount, so that it costs a write for each
// 1/128 of the amount and not for each delivery. A crash loses what was booked and not used, a
// clean stop loses nothing.
//
// A clock that jumps ahead into the next period begins it: every period counts by the clock.
package budget
