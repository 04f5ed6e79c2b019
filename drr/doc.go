// Package drr decides which flow is served next: weighted deficit round robin over any
// number of flows, with a cost for each message; and, for the flows that wait for the
// same gate, weighted fair queueing in little memory.
//
// A [Scheduler] holds flows, and for each its weight and the cost of the message that it
// sends next, its head. The messages themselves belong to the caller. A flow is a small
// dense number that the caller gives to a fairness key while that key has messages. A
// flow is active while it can send something, and idle otherwise. The caller
//
//   - makes a flow active with [Scheduler.Join] when its first message can go;
//   - asks [Scheduler.Peek] which flow is served next, serves its head, and reports with
//     [Scheduler.Take] that it did and what the next message costs, if there is one;
//   - reports with [Scheduler.SetHead] that another message has become the head, and
//     with [Scheduler.Leave] that the flow can send nothing any more;
//   - returns with [Scheduler.Refund] the cost of a message that came back unused, and
//     reports with [Scheduler.Correct] that a message has cost more or less.
//
// Only Take charges a flow. A caller whose messages may be blocked by gates tries the
// head of the flow that Peek returns, and calls SetHead or Leave if its gates are shut.
// After many blocked heads of one flow it lets the other flows go on with
// [Scheduler.EndTurn]. Blocked messages wait in a [Line], one for each gate, which has a
// rule of its own; what follows is about the Scheduler.
//
// # The rule
//
// Shreedhar and Varghese, "Efficient Fair Queueing using Deficit Round Robin"
// (SIGCOMM 1995). The active flows form a ring and are visited in turn. A turn adds
// weight x quantum to the deficit of its flow, which is then served while its deficit
// covers the cost of its head. The rest is kept for the next turn, unless the flow
// becomes idle: then it leaves the ring and loses its deficit. A flow that joins is
// placed behind all waiting flows, just before the current one. So
//
//   - for two flows that stay active over an interval with unchanged weights,
//     |S_i/w_i - S_j/w_j| <= quantum + C_i/w_i + C_j/w_j, with S_i the cost served
//     of flow i and C_i its largest head;
//   - a flow that was idle waits for one turn of every other flow at most, if its head
//     costs no more than a turn of its own.
//
// A correction counts as service at the time of the call. A flow that is charged more
// than it has owes the rest, and is not served before its turns have paid it. So with
// corrections the bound is
//
//	|S_i/w_i - S_j/w_j| <= quantum + (C_i+D_i+R_i)/w_i + (C_j+D_j+R_j)/w_j
//
// with D_i the most that flow i has carried, and R_i the most that was returned to it and
// not yet spent. Both are bounded by the corrections of flow i since it was last served,
// which concern messages in flight at one time.
//
// The order within a flow is the caller's.
//
// A flow whose turn is ended by EndTurn has given up a part of its share: it may
// fall behind by that, but does not get ahead of any other flow.
//
// With quantum 1 and costs of 1 a turn serves a flow of weight 3 three times. A
// larger quantum serves longer runs of one flow (better locality) and makes
// the others wait for them.
//
// A head that costs more than a turn needs k turns. Its flow is filed k rounds
// ahead and not touched until then, so that the work does not depend on k; the
// result is exactly the same as of the ring above, visited step by step.
//
// # Units
//
// Weights and costs are integers in thousandths: weight 1 is 1000, cost 1 is
// 1000; both range from 1 to 1_000_000_000. The quantum is a plain number from
// 1 to 1_000_000: the cost that a flow of weight 1 may spend per turn. Values
// outside are clamped to the range; only for Take a cost of 0 says that there is
// nothing more.
//
// # Cost
//
// Every operation is O(1) whatever the number of flows and whatever k is, with two
// exceptions: among m flows whose filed turns fall into one and the same round the
// order is restored by a heap (O(log m), paid only by filed flows whose order has
// changed since), and positions in the ring are numbers that are respaced now and
// then (amortised O(log flows) per joining flow, in practice rare). Only SetQuantum
// and All take time in proportion to the active flows. In steady state nothing is
// allocated. Memory is 64 bytes for a flow, one cache line, in chunks without pointers.
// Chunks of idle flows are reused, and beyond a reserve freed.
//
// # Caveats
//
// A Scheduler is used by one goroutine at a time, and so is a Line. They have no
// clock. They do not know fairness keys: the caller maps them to flows, and may
// give a flow to another key once it is idle and no lane of it waits in a Line.
//
// The caller knows which flows are active. Join of an active flow, SetHead and Leave of
// an idle one and Take between turns panic.
//
// A flow loses its deficit when it becomes idle, even for a moment, and also what it
// owes, which a caller may remember and charge again. If a message comes back to an idle
// flow, call Join before Refund. If one head follows another, call SetHead rather than
// Leave and Join.
package drr
