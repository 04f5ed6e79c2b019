// Package replog replicates the commit log of a store through a JetStream stream: one
// node owns the log and writes it, other nodes follow.
//
// A [Replica] is the copy of one node: a file that follows the log. [Replica.Promote]
// makes its node the owner and returns the [Store], a store.Store that confirms commits
// when the stream has them. The stream is lease, fence and data at the same time:
//
//   - A record counts if it opens a higher epoch, or is the next record of the open
//     epoch (rules.go). Owner, follower and restart use the same rule, and model_test.go
//     explores it.
//   - An owner confirms a record when it is in the log without a higher epoch before it.
//     After a lost or wrong answer, the owner reads the log to find out. A higher epoch
//     ends the ownership: store.ErrFenced.
//   - A new owner applies everything before its epoch record. So every later owner has
//     what was confirmed, and no two owners confirm the same record.
//
// A file applies a part of the log and its new position in one transaction. After a crash
// at any moment it continues from there.
//
// Caveats:
//
//   - Only the order of the stream decides; nodes never compare clocks. [Store.Owns] uses
//     the monotonic time of one node.
//   - A full log confirms nothing, and no other node can take it over. [Store.Full]
//     reports it early, while there is space for records that finish messages.
//   - Copies consist of whole commits: delays, leases and ids are equal on all followers,
//     except that each uses the clock of its machine to expire them.
package replog
