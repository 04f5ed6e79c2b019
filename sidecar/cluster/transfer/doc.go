// Package transfer converts whole clusters while none of their nodes run: [Import] makes a cluster
// of the store of a single node, [Export] makes a store of a cluster, and [Survey] with
// [Plan.Rebuild] restores a cluster whose logs are lost from the copies of its nodes.
//
// A new cluster begins with a store file for each shard, the seed of its log (see replog.Seed).
// Until all of them are there, package meta has a mark that keeps nodes from joining, so that an
// interrupted conversion is never taken for a complete one: the same command starts it again. The
// memory used does not grow with messages; the disk needs about three times the size of the data.
//
// Conversions keep messages with ids, order, attempts, delays and leases, dead letters, dedupe
// ids, queues and their ids, registrations, the key of the ack tokens, the runtime configuration,
// pauses, overrides and the audit log. Circuits and the state of gates are not kept, since a
// cluster has them in another bucket.
package transfer
