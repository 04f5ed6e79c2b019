// Package cluster keeps each shard of a cluster at one node: it knows the members, takes
// over what nobody serves, hands over what belongs elsewhere, and fences what cannot be
// written. Package ownership decides; this one asks and does.
//
//   - [Cluster] is a node of the cluster. It tells others of itself once a second, and
//     steps one machine for each shard.
//   - [Replica] and [Store] are what it needs of a shard's log: store/replog has both.
//   - [Shards] is what it does to the shards of this node: start, fence, drain and end
//     them.
//
// # Who calls what
//
// One goroutine, the turn, steps all machines, every 25 ms, whenever an action is over,
// and when an owner has resigned: nobody serves its shard then. Actions that may take long run in goroutines of their own, one for each shard at
// a time. No method of Shards is called for one shard from two goroutines, but for
// Fence, which is called by the turn, also while Drain runs.
//
// The fence that Fence sets comes up to a turn late, and a process that stood still is
// late by that. What must not be late asks [Store.Owns] itself, before each delivery and
// answer, with [Cluster.FenceAfter].
//
// # Between nodes
//
// Nodes talk on fila_node.<cluster>.> over core NATS, which nobody but fila may use:
// member (news), ping.<node> (a candidate asks whether an owner is well) and
// order.<node> (an operator drains a node). Whatever is lost there costs time, not
// safety.
package cluster
