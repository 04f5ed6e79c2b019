// Package shard runs queues on the stores that hold their messages.
//
// A [Set] is all shards of a node and finds queues by name. A [Shard] is one store with its
// queues, which it recovers from there at the start. A queue and its dead letter queue are
// the two roles of one machine (package queue). A runner steps the machine and carries out
// its effects. A [Queue] is one role of a machine as other packages see it.
//
// The goroutines of a queue:
//
//	intake      one goroutine of the front for each queue: accepts or refuses messages, runs
//	            on_enqueue, and puts accepted messages into the mailbox
//	runner      steps the machine when there is mail or a timer fires; a goroutine that
//	            posts to an idle runner makes the step itself
//	dispatcher  publishes deliveries that are too many or too large for the goroutine that
//	            made the step, and those whose payload has to be read
//	judge       runs error rules and on_failure for failed attempts, while there are some
//	notifier    one goroutine of the store: publishes confirmations after a commit and puts
//	            the commit into the mailbox
//
// A mailbox never blocks its posters, and a step never waits for the disk; only the intake
// refuses work. The front decodes what comes from NATS and calls [Queue.Accept],
// [Queue.Ack] and [Queue.Tell].
package shard
