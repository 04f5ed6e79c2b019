// Package sidecar is fila at work: the NATS front and the life of a queue.
//
// A [Server] opens the store, embeds or connects to NATS, recovers every queue
// and serves until its context ends. Inside, a message passes these stations,
// each with a goroutine of its own, and each leg goes one way:
//
//	intake    NATS callback of the queue's enqueue subject: decode, refuse or
//	          accept, run on_enqueue, post to the queue loop
//	loop      owns the queue's flows, leases, timers and consumers; decides what
//	          goes next and hands batches of changes to the store
//	store     group commit; its callbacks answer producers and tell the loop
//	dispatch  reads payloads and publishes deliveries
//	acks      NATS callback of the reply subjects: checks the token, posts to
//	          the loop
//	failer    runs on_failure off the loop and posts the decision back
//
// Nothing in a loop is locked and nothing in a loop waits for the disk or the
// network. Mailboxes never block the poster; only the intake refuses work.
package sidecar
