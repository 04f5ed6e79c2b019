// Package natsio is fila's side of NATS: everything that comes from there is
// decoded here, and handed to package shard or to the verbs of package admin.
//
//   - [Connect] makes the connection, [StartEmbedded] the server inside the process,
//     if fila has one.
//   - [Front] holds the subscriptions: enqueues, acks and nacks, and the requests,
//     which are endpoints of a NATS micro service. It is a shard.Front.
//   - [Presence] keeps a second fila away from the subject prefix.
//   - [Events] publishes news.
//   - [Peers] carries requests of admin verbs from one node of a cluster to another.
//
// A handler runs in the goroutine of its subscription and takes what comes in that
// order: for enqueues each queue has a subscription, for acks and for nacks there
// is one each, and one for each verb. No handler waits for the disk, except those
// of verbs. The client library's limits are lifted, since beyond them it drops
// messages silently: what is too much is refused, with an answer.
//
// Replies go to the subjects of [Options.ReplyPrefixes] only: a client could otherwise
// have fila publish on its behalf where it may not itself, such as to fila. The
// questions of the micro service ($SRV.PING, INFO and STATS) are answered by the
// NATS library, wherever they want it: permissions decide who may ask them.
package natsio
