// Package fleet lets independent filas share the state of their gates by records in one JetStream
// key-value bucket. It does not know what records mean; each [Kind] does for its own.
//
//   - [Bucket] stores records; [JetStream] is the real one.
//   - [Sync] caches all records, fed by one watch, and writes changes by compare and swap. One
//     swap of a key runs at a time; changes that come meanwhile go into the next.
//   - [Kind] is the kind of records with one prefix. It decides what to write, and learns what is
//     there.
//
// # Ownership
//
// The bucket has the truth. A Kind has this instance's view of it and its pending changes. It
// decides from memory, so no message ever waits for the network. Sync has the cache, the clock
// and the live instances. It holds its mutex during no call of a Kind or of the bucket, so a Kind
// may call [Sync.Touch] under its own lock.
//
// # One reader
//
// Only the watch reads records. A refused swap waits until the watch brings the newer record: a
// separate read could be answered by a replica that is behind, and set a circuit back.
//
// # Sessions
//
// A session begins when all existing records have been read and a heartbeat of this instance has
// come back through the watch; then every Kind gets Join. It ends with the first error that is no
// conflict, or when heartbeats do not come back; then every Kind gets Away, and the next session
// is tried. Revisions of two sessions cannot be compared, since the bucket may have been made
// again.
//
// # The clock
//
// Times in records are times of the fleet's clock ([Sync.Now]): the clock of the NATS server,
// which stamps every message in the bucket. It is learned from the own heartbeats, each of which
// shows it to half of a round trip; the best of them counts, over sessions, too. So [Sync.Read]
// knows the maximum error even if the bucket is slow or stalls. Only the server's clock decides who
// is alive: an instance is dead when the watch has brought an entry that is so much newer than its
// last heartbeat. A watch that stalls kills nobody.
//
// # Adding a kind of record
//
// A kind of record needs a prefix of its own, a pure package for its record and rules, as record is
// for circuits, and a Kind that is registered by [Sync.Register] before Start:
//
//   - Swap returns the next record over the last learned revision, with all pending changes. It
//     must not consume them, because the swap may be refused or lost. A write whose answer is lost
//     may have been done, so what must not count twice needs a number in the record
//     (record.Circuit.Seen).
//   - Learn takes the current record, by whichever instance, and ignores revisions that are not newer.
//     It touches the key if there is more to write.
//   - Permits, leases and shares in a record carry the instance ([Sync.Me]); the ones of instances
//     that are not [Sync.Live] are free.
//   - Bounds that depend on time use Sync.Read and must hold within its error. The Kind decides
//     what holds between Away and Join.
//   - Idle tells the daily sweep which records are equal to none.
package fleet
