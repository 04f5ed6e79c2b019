// Package client talks to fila over a NATS connection: it publishes with a
// confirmation, consumes with automatic registration, and makes the admin
// calls that the command line offers.
//
// A [Client] adds no connection of its own and no goroutine; a [Consumer] has a
// few, which Stop ends. Refusals by fila are of type [*Error] and carry a code,
// a stable number and, if it makes sense to try again, when:
//
//	var refused *client.Error
//	if errors.As(err, &refused) && refused.Code == 429 {
//		time.Sleep(refused.RetryAfter)
//	}
//
// [ErrNoFila] means that nobody answered on the subject. Any NATS client can
// do without this package; it saves the few rules that docs/protocol.md lists.
// One of them matters in Go: nats.Msg.AckSync returns nil on any reply, even on
// a refusal. Use [Message.AckSync], which reads it.
package client
