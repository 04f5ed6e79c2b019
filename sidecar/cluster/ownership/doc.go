// Package ownership decides which node of a cluster serves a shard, and when it moves.
// It computes: the time and what a node has seen come in, what to do goes out.
//
//   - [Machine] is one shard at one node. It campaigns when the log of the shard has
//     been silent for too long, serves while it owns, is fenced when its writes are not
//     acked, and hands over when it is told to.
//   - [Members] is who else is there, by what nodes tell of themselves ([News]).
//   - [Mover] decides which shard of this node goes where, one in the whole cluster at a
//     time; [Plan] and [Rank] say where shards belong and who campaigns first.
//
// # What safety rests on
//
// The log alone: a node owns when its epoch record is in the log, and an owner that is
// not the last one cannot have anything confirmed. Nothing here can break that; a wrong
// decision costs an interruption. What this package adds is that two nodes do not
// deliver at once: an owner is fenced when the sending of its last acked write lies
// [Config.Fence] back, and a candidate takes over when it has seen nothing new for
// [Config.Silence], which is longer. A record cannot be seen before it is sent, so the
// fence comes first, whatever the clocks of the two say: both are durations of one
// machine. A process that is suspended checks its fence when it goes on; between that
// check and what it then publishes lies the only gap.
//
// # Times
//
// All times are nanoseconds of a clock of this process that never goes back; its zero
// means nothing.
package ownership
