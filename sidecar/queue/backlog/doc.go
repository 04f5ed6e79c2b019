// Package backlog holds the tables of one role of a queue, the queue itself or its
// dead letters: messages, fairness keys with their schedule, leases, consumers,
// pauses and the strict order of keys.
//
// The tables keep themselves consistent but have no effects: package queue changes
// them in its steps, package inspect reads them.
//
// Invariants:
//
//  1. Every live message has exactly one [Slot], and its State says where else the
//     message is: a waiting one is in the list of its subqueue or key, an ordered one in
//     the order of its key, a leased one in Leases, a delayed one in Delays.
//  2. A message is in at most one of these places. Whatever takes it out of one puts
//     it into another, or removes the slot, in the same step.
package backlog
