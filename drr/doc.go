// Package drr decides which flow is served next: weighted deficit round robin
// over any number of flows, with a cost per item; and, for those that wait for
// one and the same gate, weighted fair queueing in little memory.
//
// A [Scheduler] holds flows and their pending items. A flow is a small dense
// number that the caller gives to a fairness key for as long as that key has
// something to do; an item is a value of 64 bits (the caller's reference to a
// message) with a cost. [Scheduler.Push] adds an item to the end of a flow,
// [Scheduler.Next] takes the item that is due, [Scheduler.Remove] drops one
// that is no longer wanted and [Scheduler.Return] puts one back that could not
// be used after all.
//
// A caller whose items may be held back by gates asks [Scheduler.Peek] what is
// due, drops it uncharged with Remove if its gates are shut, puts it back with
// [Scheduler.PushFront] when they open, and lets the other flows go on with
// [Scheduler.EndTurn] when it has looked at enough items of one. What is held
// back waits in a [Line], one for each gate, which says whose turn it is there.
// It has a rule of its own, see there; what follows is about the Scheduler.
//
// # The rule
//
// Shreedhar and Varghese, "Efficient Fair Queueing using Deficit Round Robin"
// (SIGCOMM 1995). The flows stand in a ring and are visited in turn. A turn
// adds weight x quantum to the deficit of its flow, which then sends items
// while its deficit covers the cost of the next one. What is left over is kept
// for the next turn, unless the flow runs empty: then it leaves the ring and
// its deficit is gone. A flow that joins stands behind everyone who waits: just
// before the flow whose turn it is. So
//
//   - for two flows that stay backlogged over an interval with unchanged
//     weights, |S_i/w_i - S_j/w_j| <= quantum + C/w_i + C/w_j, with S the cost
//     served and C the largest cost of an item;
//   - a flow that was quiet waits for one turn of every other flow at most;
//   - within a flow the order is first in, first out.
//
// A flow whose turn is ended by EndTurn has given up a part of its share: it may
// fall behind by that, but does not get ahead of any other flow.
//
// With quantum 1 and costs of 1 a turn of a flow of weight 3 is three items. A
// larger quantum serves longer runs of one flow (better locality) and makes
// the others wait for them.
//
// An item that costs more than a turn needs k turns. Its flow is filed k rounds
// ahead and not touched until then, so that the work does not depend on k; the
// result is exactly that of the ring above, visited step by step.
//
// # Units
//
// Weights and costs are integers in thousandths: weight 1 is 1000, cost 1 is
// 1000; both range from 1 to 1_000_000_000. The quantum is a plain number from
// 1 to 1_000_000: the cost that a flow of weight 1 may spend per turn. Values
// outside are clamped to the range.
//
// # Cost
//
// Every operation is O(1) whatever the number of flows and items and whatever k
// is, with two footnotes: among m flows whose filed turns fall into one and the
// same round the order is restored by a heap (O(log m), paid only by filed
// flows whose order has changed since), and positions in the ring are numbers
// that are respaced now and then (amortised O(log flows) per joining flow, in
// practice rare). Only SetQuantum and All take time in proportion to the active
// flows. In steady state nothing is allocated. Memory is 64 bytes for a flow
// and 24 for an item, in chunks without pointers; chunks that fall empty are
// used again, and beyond a reserve given back.
//
// # Caveats
//
// A Scheduler is used by one goroutine at a time, and so is a Line. They have no
// clock. They do not know fairness keys: the caller maps them to flows, and may
// give a flow to another key once Pending of the flow is zero and no lane of it
// waits in a Line.
package drr
