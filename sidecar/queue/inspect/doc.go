// Package inspect reads one role of a queue: figures, views of messages and keys for
// people, why a message waits, which messages match a filter, and which fairness keys
// are noisy or starve. It reads the tables of package backlog and the gates, and
// changes neither.
//
// A [Reader] answers requests. Its methods are called between steps by the goroutine
// that owns the queue; walks over lists are bounded, so that reading does not hold the
// queue up. A [Monitor] and the [Cumulative] counters follow the queue from step to
// step.
//
//	view, select    figures, messages, keys, consumers; messages that match a filter
//	reason, blocked why messages wait, decided in one place; sums of it
//	lanes           fairness keys with backlog, share, and what they were served lately
//	forecast        the next deliveries, computed on copies of the schedule and the gates
//	wanted, fill    how many messages could be worked on, for autoscaling
//	noisy, monitor  noisy and starving flows: the report, and events about them
//	meter           what telemetry reads: times of attempts, blocked time
package inspect
