// Package queue is the state machine at the heart of fila: one queue and its dead letter
// queue, from the enqueue of a message to its end.
//
// Its owner steps a [Queue] with inputs and the time:
//
//	next := q.Step(now, inputs, &effects)
//
// and carries out the [Effects]: changes for the store, deliveries and answers to
// publish, failures to judge, other owners to notify. The queue does nothing itself.
// There is no clock, goroutine, lock, log, network or random source in this package:
// time, ids and random numbers are inputs. So equal inputs give equal effects, and a
// test drives a queue through a year in a moment (package queuetest).
//
// A queue and its dead letters are two roles of one machine, [Main] and [Dead]. Each
// has messages, consumers, leases and pauses of its own; a move between them is one
// batch of changes.
//
// The parts of a role are packages:
//
//	container  lists, ranks, tables, timers
//	history    what happened to a message: attempt records, blocked intervals
//	gates      throttle keys, circuits, paused keys: which messages pass, which wait where
//	backlog    the tables: messages, keys and their schedule, leases, consumers, order
//	inspect    reads them: figures, reasons, filters, noisy and starving keys
//
// and this package changes them:
//
//	life, deliver, dead           what happens to a message
//	schedule, order               where messages wait, which is next; strict order per key
//	output                        where changes, answers, counters and notes go
//	moves, operator, consumers    jobs, operators, consumers
//	journal                       what is written to the disk, and when
//	recovery                      from the store into the tables
//
// Gates that several queues share come in through [Options]. They have locks of their
// own, and their notifications leave with the effects.
package queue
