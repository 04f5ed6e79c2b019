// Package ownership decides which node of a cluster serves a shard, and when it moves. It only
// computes: the time and what a node has seen come in, actions go out.
//
//   - [Machine] is one shard at one node. It campaigns when the log of the shard has been silent
//     for too long, serves while it owns, is fenced when its writes are not acked, and hands over
//     on request.
//   - [Members] are the nodes, by their announcements ([News]).
//   - [Mover] decides which shard of this node to move where, one at a time in the whole cluster;
//     [Plan] and [Rank] decide where shards belong and who campaigns first.
//
// # Safety
//
// Safety rests on the log alone: a node owns a shard when its epoch record is in the log, and
// nothing that an earlier owner writes is confirmed. A wrong decision here costs an interruption
// only. In addition, this package keeps two nodes from delivering at once: an owner is fenced when
// its last acked write was sent [Config.Fence] ago, and a candidate takes over when it has seen
// nothing new for [Config.Silence], which is longer. A record cannot be seen before it is sent, so
// the fence comes first, whatever the two clocks show: each duration is measured by one clock. A
// process that was suspended checks its fence when it goes on; the only gap is between that check
// and what it then publishes.
//
// # Times
//
// All times are nanoseconds of a clock of this process that never goes back, with an arbitrary
// zero.
package ownership
