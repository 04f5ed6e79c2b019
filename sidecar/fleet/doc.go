// Package fleet lets independent filas share what their gates know, by records in one
// JetStream key-value bucket. It is about records as such: what is in them is the
// business of those who have a [Kind].
//
//   - [Bucket] is where records lie; [JetStream] is the real one.
//   - [Sync] keeps a cache of all records, fed by one watch, and writes changes by
//     compare and swap: one swap of a key is under way at a time, what comes meanwhile
//     goes with the next.
//   - [Kind] is what the records of one prefix are. It says what to write, and learns
//     what is there.
//
// # Who owns what
//
// The bucket has the truth. A Kind has what this instance makes of it, and what is on
// its way; it decides alone and from memory, so no message ever waits for the network.
// Sync has the cache, the clock and who is alive. Its mutex is never held while a Kind
// or the bucket is called, so a Kind may call [Sync.Touch] under a lock of its own.
//
// # One reader
//
// Records are read by the watch alone. A swap that was refused waits for the newer
// record to come that way: a read of its own could be answered by a replica that is
// behind, and take a circuit back to what it was.
//
// # Life
//
// A session begins with all records that are there, and a beat of this instance that
// has come back through the watch; then every Kind is told by Join. It ends with the
// first error that is no conflict, or when beats do not come back: then every Kind is
// told by Away, and the next session is tried. Revisions of two sessions have nothing
// to do with each other, since the bucket may have been made anew.
//
// # The clock
//
// Times in records are those of the fleet's clock ([Sync.Now]): that of the NATS
// server, which every message in the bucket has on it, learned from the own beats. A
// beat tells it to half of its round trip, and of several beats the best counts, over
// sessions too: so [Sync.Read] knows how far off the clock may be, also when the bucket
// is slow or stalls. Who is alive is known by the server's clock alone: an instance is
// dead when the watch has brought something that is so much newer than its last beat, so
// a watch that stands still kills nobody.
//
// # How another kind of record joins
//
// Give it a letter, a pure package for its record and rules, as record is for circuits,
// and a Kind that is registered with [Sync.Register] before Start:
//
//   - Swap returns the next record over the revision that was learned last, with all
//     that has come up since in it, and changes nothing that cannot be asked for again:
//     a swap may be refused or lost. A write whose answer is lost may have been done, so
//     what must not count twice needs a number in the record (record.Circuit.Seen).
//   - Learn takes what is there now, whoever wrote it; it ignores revisions that are not
//     newer. It touches the key if there is more to write.
//   - Permits, chunks and shares in a record carry the instance ([Sync.Me]); those of
//     instances that are not [Sync.Live] are free to be taken.
//   - Bounds that depend on time use Sync.Read, and must hold when it is wrong by as much
//     as it says. What holds when nobody can be asked is decided between Away and Join.
//   - Idle tells the daily sweep which records say nothing that no record says.
package fleet
