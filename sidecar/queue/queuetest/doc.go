// Package queuetest drives machines of package queue without NATS, a disk or
// goroutines, for tests.
//
// A [Rig] is one machine with a [Disk] that commits when the test says so and a clock
// that the test sets. A [Fleet] is several of them that share gates, circuits, disk
// and clock. A [Sim] runs a random history of a fleet from a seed and compares everything
// with a slow model of what must always hold: the order, the shares, the limits, also the ones
// that learn and the budgets, and that nothing waits without a cause. A [SharedSim] does it with several fleets,
// each a fila, that share circuits in a bucket with delays, losses and outages.
//
// A machine is stepped when it has an input, or at the time that it returned, and never
// otherwise: so a missing or late timer shows.
package queuetest
