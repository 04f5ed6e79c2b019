// Package store keeps everything that fila must not lose: messages, their
// leases and attempts, dedupe ids, queues, consumers and the runtime
// configuration.
//
// [Store] is the contract; [Bolt], made by [Open], implements it on one bbolt
// file; store/storetest holds the suite that every implementation must pass and
// an in-memory model of it.
//
// A store that nobody serves can be read with [OpenFile], checked with
// [CheckFile], rewritten with [CompactFile], and made of batches with [Build].
//
// Changes come in as a [Batch] and are committed in groups: one goroutine takes
// whatever waits, writes it in one transaction with one sync, and starts the
// next round at once. A batch is atomic, batches take effect in the order of
// their submission, and Done is called in that order, too, after the sync.
//
// Between planning and commit a [Log] may take what is committed, so that it is
// durable elsewhere: then Done is called as soon as it is there, and the file
// follows. Another store applies what the log has by [Bolt.Apply].
//
// What to know before using it:
//
//   - A commit that fails is final. Nobody can say what reached the disk after a
//     failed sync, so the store stops, [Store.Failed] is closed, and only a new
//     Open shows the outcome.
//   - The file never shrinks while it is served. Space is reused; expect up to
//     about 2.6 times the live bytes when messages finish in random order.
//     [CompactFile] makes it small again.
//   - Reads hold a read transaction open while they call back. A slow callback
//     keeps old pages alive and makes the file grow.
//   - Everything here is kept in the units of the rest of fila: times are Unix
//     nanoseconds, weights and costs thousandths, sizes bytes.
package store
