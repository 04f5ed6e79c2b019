// Package cluster keeps each shard of a cluster at one node. It tracks the members, takes over
// shards that nobody serves, hands over shards that belong elsewhere, and fences shards that
// cannot be written. Package ownership makes the decisions, this package carries them out.
//
//   - [Cluster] is this node. It announces itself once a second and steps one machine per shard.
//   - [Replica] and [Store] are a shard's log as the Cluster needs it; store/replog implements
//     both.
//   - [Shards] starts, fences, drains and ends the shards of this node.
//
// # Goroutines
//
// One goroutine steps all machines: every 25 ms, when an action has ended, and when an owner has
// resigned, since nobody serves its shard from then on. Actions that may take long run in
// goroutines of their own, one per shard at a time. So the methods of Shards are not called
// concurrently for one shard, except Fence, which the stepping goroutine calls, also during
// Drain.
//
// A fence that is set by Fence comes up to a step late, and later in a process that stood still.
// Deliveries and answers must not be late, so each of them asks [Store.Owns] with
// [Cluster.FenceAfter].
//
// # Messages between nodes
//
// Nodes use core NATS subjects fila_node.<cluster>.>, for which nobody else may have
// permissions: member (announcements), ping.<node> (a candidate asks whether an owner is well)
// and order.<node> (an operator drains a node). Losing one of these messages costs time, not
// safety.
package cluster
