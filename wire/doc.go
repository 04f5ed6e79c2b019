// Package wire defines what travels between fila and its clients: subjects, names,
// headers, ack payloads, delivery tokens, events, the settings of queues and error codes.
// The sidecar, the Go client and the command line share it. Package api, below it, has the
// requests and replies of verbs.
//
//   - [Subjects] builds and parses every subject under the prefix.
//   - [CheckQueueName] and similar functions decide which names are legal.
//   - [ParseEnqueueHeaders], [ParseAck] and [ParseNack] parse messages of clients.
//   - [ParseConsume] and [ParseFetch] parse requests of consumers.
//   - [EncodeHeaders] and [DecodeHeaders] are the stored form of a message's
//     headers.
//   - [Signer] makes and checks the tokens of deliveries.
//   - [Error] is a refusal, with a code from the [Catalog].
//   - [DecodeStrict] decodes JSON; [QueueSettings] defines the settings of a queue.
//
// The package is pure: the standard library only, no goroutine, no clock (time
// is an argument), no log, no I/O. Everything in it is safe for concurrent use. Parse
// functions return a [*Error] that can be sent as it is. It is a concrete pointer type: assign
// it to an error variable only after comparing it with nil.
package wire
