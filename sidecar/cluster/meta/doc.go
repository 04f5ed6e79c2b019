// Package meta stores what a cluster as a whole has to know in the JetStream key-value bucket
// FILA_<NAME>_META: the record of the cluster, the shard of each queue, and the entries of
// package control.
//
// [Open] finds or creates the bucket, checks that JetStream can serve the cluster, and reads
// everything. From then on a [Meta] follows the bucket by one watch, answers reads from memory,
// and sends writes one after the other:
//
//	cluster        record of the cluster: format, incarnation, number of shards, secret; written once
//	id             last id given to a queue
//	l.<number>     the log of a shard has been created: if the log does not exist, it is lost
//	q.<base64url>  a queue: its ids and its shard
//	c.<base64url>  an entry of package control
//
// A write of several keys is one atomic batch of JetStream, up to [maxBatch] keys; larger writes
// are several batches in order. A write that depends on earlier values compares the revision of
// each key, so that one of two concurrent nodes wins.
//
// A deletion leaves a marker that the server removes after markTTL. A node that was away for
// longer notices by reading everything again, as after every disconnection.
//
// The bucket contains the secret that signs acks: only fila's user may read it.
package meta
