// Package shard is stores and the queues in them.
//
// A [Set] is the shards of a node: it finds queues by name, and makes them. A [Shard]
// is one store with its queues, which it fills from there at the start. Each queue and its dead letters are one machine (package
// queue), and each machine has a runner: a mailbox, a goroutine with a timer, and
// the means to have happen what a step says. A [Queue] is one side of a machine as
// everybody else sees it.
//
// The goroutines of a queue, and what each of them does:
//
//	intake      the front's, one for each queue: refuses or accepts a message, runs
//	            on_enqueue, and leaves it in the mailbox
//	runner      steps the machine when something is in the mailbox or time has come;
//	            whoever finds it idle makes the step instead, on the spot
//	dispatcher  reads payloads and publishes deliveries that are too many, or too
//	            large, for whoever made the step
//	judge       asks error rules and on_failure about failed attempts; it lives only
//	            while there are some
//	readers     two that read dead letters that are new, for who asks for their groups
//	notifier    the store's, one for all: publishes what waited for a commit, and
//	            leaves the commit in the mailbox
//
// No mailbox blocks its posters, and no step waits for the disk; only the intake
// refuses work. What comes from NATS is decoded elsewhere: the front calls
// [Queue.Accept], [Queue.Ack] and [Queue.Tell].
package shard
