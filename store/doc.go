// Package store is the durable storage of fila: messages, their leases and attempts,
// dedupe ids, queues, consumers and the runtime configuration.
//
// [Store] is the contract. [Bolt], returned by [Open], implements it on one bbolt file,
// which package storefile describes. Package storetest has the suite that every
// implementation must pass, and a model in memory.
//
// Tools for a store that no process serves: [OpenFile], [CheckFile], [CompactFile], and
// [Build], which makes a store from batches.
//
// Changes are submitted as a [Batch] and committed in groups: one goroutine takes the
// waiting batches, writes them in one transaction with one sync, and starts again. A
// batch is atomic. Batches of one queue take effect in the order of submission, and Done
// is called in that order, after the sync.
//
// A [Log] can make batches durable elsewhere before the commit. Then Done is called when
// the log has the batch, and the file follows. Another store applies the batches of the
// log with [Bolt.Apply].
//
// Caveats:
//
//   - A failed commit is final. After a failed sync it is unknown what reached the disk, so
//     the store stops, [Store.Failed] is closed, and only a new Open shows the outcome.
//   - The file never shrinks while it is served. Space is reused: expect up to about 2.6
//     times the live bytes if messages finish in random order. [CompactFile] shrinks
//     the file.
//   - Reads keep a read transaction open during their callback. A slow callback keeps old
//     pages alive and makes the file grow.
//   - Times are Unix nanoseconds, weights and costs thousandths, sizes bytes.
package store
