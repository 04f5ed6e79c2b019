// Package transfer takes whole clusters in and out while none of their nodes run: [Import]
// makes a cluster of the store of a single node, [Export] makes a store of a cluster, and
// [Survey] with [Plan.Rebuild] makes a cluster again whose logs are lost, of the copies
// that nodes have.
//
// A cluster begins with a store file for each shard, the seed of its log (see
// replog.Seed). Until all of them are there, package meta has a mark that keeps nodes from
// joining, so what was interrupted is never taken for whole: the same command makes it
// again. Memory does not grow with messages; the disk needs room for what is taken, about
// three times.
//
// What is kept: messages with ids, order, attempts, delays and leases, dead letters,
// dedupe ids, queues and their ids, registrations, the key of the ack tokens, the runtime
// configuration, pauses, overrides and the audit log. Circuits and what gates have left
// are not: a cluster has them in another bucket, and they begin anew.
package transfer
