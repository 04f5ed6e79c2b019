// Package sidecar is a fila node: it creates the packages below and connects them.
//
//	config     the configuration
//	control    settings that change at run time
//	circuit    circuit breakers of destinations
//	shard      a store and its queues
//	queue      the machine of one queue
//	natsio     connection, embedded server, subscriptions, events
//	admin      the verbs of operators
//	telemetry  metrics and health
//
// A [Server] opens the store, starts the embedded NATS server or connects to another one,
// recovers all queues and serves until its context ends. docs/architecture.md has the map.
package sidecar
