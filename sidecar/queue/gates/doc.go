// Package gates decides which messages of one queue may pass their gates: throttle
// keys, circuits, and pauses of their fairness key.
//
// Messages of one flow with the same gates form a [Subqueue]: only its first message
// tries, so a subqueue is blocked or not as a whole. A blocked subqueue waits in the
// [WaitList] of one gate, or, if its messages have a choice of routes, of one gate of
// each. When that gate may have opened, the wait list is rechecked
// and lets as many subqueues probe as the gate admits. [Permits] are all that a delivery
// holds of its gates.
//
// [Gates] holds all of this for one role of a queue. It does not know messages: it
// asks the [Backlog] for costs, weights and pauses, and tells it when the first
// message of a flow changes. Gates that several queues share have locks of their own;
// what follows for others is collected in [Effects].
//
//	gates, subqueue   tables; messages enter and leave subqueues
//	heap              the eligible subqueues of a flow
//	wait              wait lists: recheck, probe, end of a step
//	route             several ways through gates
//	permit            a message tries its gates; permits are returned
//	circuit, kind     the interfaces to circuits and owners; what can block
package gates
