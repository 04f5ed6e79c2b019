// Package job changes many messages of a queue: it redrives, moves, deletes, delays,
// reprioritises or edits them.
//
// A job takes the messages that match its filter in batches. One commit has the changes of
// a batch and the progress of the job, so the next owner of the store continues there.
//
//	spec      what the store has of a job
//	plan      pure: which messages come next, how many, how fast, which are left and why
//	machine   pure: a job as a state machine; the only place that decides what happens next
//	batch     what a batch does to messages of a queue
//	transfer  messages on their way to another shard: their stored and their wire form
//	receive   the target of transfers
//	dryrun    what a job would do
//	runner    carries out what machines decide: goroutines, reads, requests, retries
//	jobs      the jobs of a shard, and the verbs about them
//
// A move offers messages to a target queue, which answers with one outcome for each. To a
// queue of the same shard it is one commit. To one of another shard it is a transfer: the
// first commit parks the messages here, the second one is the target's, with a receipt, and
// the third one ends the transfer here as the receipt says. Both kinds share what decides
// about messages (admission), what lets them arrive (arrivals), and what counts outcomes.
package job
