// Package control keeps what can change while fila runs: the limits of throttle
// keys and their gates, the limits of circuits, rules of failures, pauses, and the
// runtime configuration, each change with its entry in the audit log.
//
// A [Control] begins with [New], which takes over what a process before has kept,
// and goes on when the queues are recovered: Save, Start, later DeclareQueues. Its
// other methods may be called from any goroutine then. Those named like verbs of
// the admin protocol take decoded requests and return replies; a change is on disk
// when they return, and what it can be refused for has been refused before.
//
//   - The runtime configuration is texts by key. A change is on disk before it is in
//     force. Some keys have a meaning: the settings of throttles and circuits
//     (settings.go is the table of them) and weights.
//   - The tables of the configuration file are written into the runtime
//     configuration at every start and reload, where they win; what a table does not
//     say is taken away, and keys without a table stay. A reload makes a plan, which
//     finds whatever is wrong, and applies it; its settings are one write: on disk
//     all of them, or nothing has changed.
//   - An override of limits and a pause count at once, and are answered when they are
//     on disk.
//   - In a cluster the KV is shared: each node keeps its changes there and is told of
//     those of the others ([Control.Changed]). An edit is made over what it has seen, or
//     again; what ends by time ends at each node, and the one that notes it tells of it.
//     A change that cannot be kept does not count any more.
//   - What the file, operators and time have set is worked out afresh from what is
//     stored whenever it changes: changes that are told in another order than they
//     were made end in the newest state.
package control
