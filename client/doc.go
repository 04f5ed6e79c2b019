// Package client talks to fila over a NATS connection: it publishes with a
// confirmation, one by one or thousands at a time, consumes with automatic
// registration and lease extension, fetches, and makes the admin calls that the
// command line offers.
//
// A [Client] adds no connection of its own, and no goroutine but one for the
// confirmations of [Client.PublishAsync], which ends with the connection or with
// Close. A [Consumer] has a few, which Stop ends. All can be used from many
// goroutines at once.
//
// Refusals by fila are of type [*Error] and carry a code, a stable number and,
// if it makes sense to try again, when:
//
//	var refused *client.Error
//	if errors.As(err, &refused) && refused.Code == 429 {
//		time.Sleep(refused.RetryAfter)
//	}
//
// [RetryFor] does so by itself. [ErrNoFila] means that nobody answered on the
// subject, [ErrNoReply] that the outcome is not known, and a [*PermissionError]
// that NATS did not let the request in.
//
// # What survives
//
// Connect with nats.MaxReconnects(-1). A Consumer then lives through restarts
// of fila and of NATS: it registers again, repeats the acks that nobody has
// confirmed, and goes on to extend leases. A handler whose lease is lost all the
// same, since the outage took longer than the visibility timeout, has its
// context cancelled with [ErrLeaseLost] as the cause. A message can always come
// twice: its handler may have ended in the moment in which its ack could not.
//
// Any NATS client can do without this package; it saves the few rules that
// docs/clients.md lists. One of them matters in Go: nats.Msg.AckSync returns nil
// on any reply, even on a refusal. Use [Message.AckSync], which reads it.
package client
