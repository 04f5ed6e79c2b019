// Package replog replicates the commit log of a store through a JetStream stream: one
// node owns it and writes, others follow.
//
// A [Replica] is one node's copy: a file that follows the log. [Replica.Promote] makes
// its node the owner and returns the [Store], a store.Store whose commits are
// confirmed once the stream has them. What is in the stream is lease, fence and data
// in one:
//
//   - A record counts if it opens a higher epoch, or is the next one of the epoch
//     that is open (rules.go). Owner, follower and restart read by the same rule, and
//     model_test.go explores it.
//   - An owner confirms a record when it lies in the log with no higher epoch before
//     it. After an answer that is lost or wrong, only the log says whether it does. A
//     higher epoch ends the owner: store.ErrFenced.
//   - A new owner serves what lies before its epoch record, all of it. So what was
//     confirmed is in the state of every later owner, and nothing is confirmed by two.
//
// How far a file has applied the log is written in the transaction of what it has
// applied. A crash at any moment is a replay from there.
//
// What to know before using it:
//
//   - The stream decides by its order alone; no clock is compared between nodes.
//     [Store.Owns] is monotonic time on one of them.
//   - A log that is full confirms nothing and takes nobody's ownership away.
//     [Store.Full] says so early, while there is room for what finishes messages.
//   - Copies are made of whole commits: no delay, lease or id that a store keeps is
//     different on a follower, except that each applies the clock of its own machine
//     to what has expired.
package replog
