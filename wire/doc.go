// Package wire holds what both ends of NATS must agree on: subjects, names,
// headers, ack payloads, delivery tokens, error codes and the JSON of requests
// and replies. The sidecar, the Go client and the command line share it, so
// that none of them spells a subject or a header by hand.
//
//   - [Subjects] builds and takes apart every subject under the prefix.
//   - [CheckQueueName] and its like decide which names are legal.
//   - [ParseEnqueueHeaders], [ParseAck] and [ParseNack] read what clients send.
//   - [EncodeHeaders] and [DecodeHeaders] are the stored form of a message's
//     headers.
//   - [Signer] makes and checks the tokens of deliveries.
//   - [Error] is a refusal, with a code from the [Catalog].
//   - [DecodeStrict] and the Parse functions of the requests read JSON;
//     [QueueSettings] is the one definition of a queue's settings.
//
// The package is pure: the standard library only, no goroutine, no clock (time
// is an argument), no log, no I/O. Everything in it may be used by several
// goroutines at once. Parse functions return a [*Error] that can be sent as it
// is; because that is a concrete pointer type, assign it to an error variable
// only after comparing it with nil.
package wire
