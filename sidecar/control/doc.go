// Package control owns the state that can change while fila runs: the limits of
// throttle keys and their gates, the limits of circuits, error rules, pauses and the
// runtime configuration, with an audit log entry for each change.
//
// [New] restores what the process before has stored. When the queues are recovered,
// call Save, Start and later DeclareQueues. From then on every other method is safe
// for concurrent use. Methods named like verbs of the admin protocol take decoded
// requests and return replies. A change is on disk when they return, and all
// refusals come before it.
//
//   - The runtime configuration is a map of texts. A change is on disk before it is in
//     force. Some keys have a meaning: settings of throttles and circuits (the table is
//     in settings.go) and weights.
//   - Every start and reload writes the tables of the configuration file into the
//     runtime configuration, where they win. A setting that a table does not have is
//     removed; keys without a table stay. A reload first makes a plan, which finds all
//     errors, and then applies it. All settings are one write: either all of them are on
//     disk, or nothing has changed.
//   - An override of limits and a pause apply at once. The reply comes when they are on
//     disk.
//   - In a cluster all nodes share the KV: each node writes its changes there and learns
//     the changes of the others ([Control.Changed]). An edit is retried if another node
//     has changed the same keys. An override or pause ends at each node; the node that
//     records the end publishes it. A change that could not be written is undone.
//   - The state in force is computed from the stored entries whenever they change, so
//     changes that arrive out of order end in the newest state.
package control
