// Package queuetest drives machines of package queue without NATS, a disk or
// goroutines, for tests.
//
// A [Rig] is one machine with a [Disk] that commits when it is told to and a clock
// that the test sets. A [Fleet] is several of them that share gates, circuits, disk
// and clock. A [Sim] lets a fleet loose from a seed and holds everything that it does
// to a slow model of what must always hold. A [SharedSim] does it with several fleets,
// each a fila, that share circuits in a bucket with delays, losses and outages.
//
// A machine is stepped when it has an input, or when the time has come that it asked
// for, never otherwise: so a timer which is missing or too late shows.
package queuetest
