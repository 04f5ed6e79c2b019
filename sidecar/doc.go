// Package sidecar is a fila node: it builds the rooms below it and wires them.
//
//	config     what the node was told
//	control    what can change while it runs, and who is told
//	circuit    circuits around destinations
//	shard      a store and the queues in it
//	queue      the machine of one queue
//	natsio     the NATS side: connection, embedded server, subscriptions, events
//	admin      the verbs of operators
//	telemetry  metrics and health
//
// A [Server] opens the store, embeds or connects to NATS, recovers every queue and
// serves until its context ends. docs/architecture.md has the map.
package sidecar
