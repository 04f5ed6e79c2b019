// Package meta keeps what a cluster as a whole has to know, in the key-value bucket
// FILA_<NAME>_META of JetStream: what the cluster is, which queues there are and in which
// shard, and what package control keeps.
//
// [Open] finds the bucket or makes it, checks what the cluster needs of JetStream, and
// reads all that is there; a [Meta] follows it from then on by one watch. Reads are
// answered from memory. Writes go out one after the other:
//
//	cluster        what the cluster is: format, incarnation, number of shards, secret; made once
//	id             the last id given to a queue
//	l.<number>     the log of a shard was made: if it is not there, it is lost
//	q.<base64url>  a queue: its ids and its shard
//	c.<base64url>  an entry of package control
//
// A write of several keys is one atomic batch of JetStream, so all of them are there or
// none (up to [maxBatch] keys; beyond it, several batches in order). A write that depends
// on what was there is a compare and swap of each key over the revision that is known
// here, in the batch: of two nodes one wins.
//
// What is deleted leaves a mark, which the server forgets after markTTL. A node that was
// away for longer finds out by reading everything again, as it does whenever it has been
// disconnected.
//
// The bucket has the secret by which acks are signed: only fila's user may read it.
package meta
