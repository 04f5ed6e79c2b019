// Package natsio connects fila to NATS. It decodes messages and passes them to
// package shard or to the verbs of package admin.
//
//   - [Connect] makes the connection, [StartEmbedded] starts the embedded server.
//   - [Front] holds the subscriptions for enqueues, acks, nacks and requests. Requests are
//     endpoints of a NATS micro service. It is a shard.Front.
//   - [Presence] keeps a second fila away from the subject prefix.
//   - [Events] publishes events.
//   - [Peers] carries admin requests between the nodes of a cluster.
//
// A handler runs in the goroutine of its subscription, in order of arrival. Each queue has a
// subscription for enqueues; all acks share one, all nacks another; each verb has one. Only
// handlers of verbs wait for the disk. The limits of the client library are off, because it
// drops messages beyond them silently; fila refuses them with an answer.
//
// Replies go only to subjects under [Options.ReplyPrefixes]. Otherwise a client could make
// fila publish where the client may not, for instance to fila itself. The NATS library answers
// the requests of the micro service ($SRV.PING, INFO and STATS) to any subject: permissions
// decide who may send them.
package natsio
