// Package queue is the machine at the heart of fila: one queue and its dead
// letter queue, from the enqueue of a message to the end of it.
//
// A [Queue] is stepped by its owner with what came in and the time:
//
//	next := q.Step(now, inputs, &effects)
//
// and answers with [Effects], what has to happen: changes for the store,
// deliveries and answers to publish, failures to be judged, others to be woken.
// It does nothing itself. There is no clock, goroutine, lock, log, network or
// random source in this package; time, ids and random numbers come in, so that
// equal inputs give equal effects, and a test can drive a queue through a year in
// a moment (package queuetest).
//
// A queue and its dead letters are two roles of one machine: each has messages,
// consumers, leases and pauses of its own, and what moves between them is one
// batch of changes.
//
// Inside, a side is a few tables (package container) and what moves messages
// between them:
//
//	backlog, leases                      where messages, fairness keys, lists, delays and leases are
//	life, deliver, dead                  what happens to a message
//	subqueue, wait, permit               gates: who has to pass which, who waits where, what is held
//	order, pause, consumers              strict order per key, pauses (automatic ones, too), who may be given messages
//	journal                              what goes to the disk, and when
//	view                                 what others may know
//	recovery                             from the store into the tables
//
// Gates that several queues share (throttle keys, circuits) come in through
// [Options]: they have locks of their own, and what they want to tell others
// leaves with the effects.
package queue
