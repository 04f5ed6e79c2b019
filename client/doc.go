// Package client talks to fila over a NATS connection: it publishes with a
// confirmation, one by one or thousands at a time, works on the messages of a queue with
// leases that are extended, fetches, and makes admin requests.
//
// A producer and a worker:
//
//	fila, err := client.Connect(os.Getenv("NATS_URL"))
//	...
//	receipt, err := fila.PublishJSON(ctx, "mails", mail, client.DedupeID("order-1"))
//	...
//	err = fila.Work(ctx, "mails", client.JSONHandler(send), client.Concurrency(20))
//
// docs/clients.md has the whole program, and package filatest starts a fila for its tests.
//
// A [Client] adds no goroutine but one for the confirmations of [Client.PublishAsync], which
// ends with the connection or with Close. A [Consumer] has a few, which Stop ends. All can be
// used from many goroutines at once.
//
// Refusals by fila are of type [*Error] and carry a code, a stable number and,
// if a retry makes sense, when:
//
//	var refused *client.Error
//	if errors.As(err, &refused) && refused.Code == 429 {
//		time.Sleep(refused.RetryAfter)
//	}
//
// [RetryFor] retries by itself. [ErrNoFila] means that nobody listens on the subject,
// [ErrNoReply] that the outcome is unknown, and a [*PermissionError] that NATS permissions
// do not allow the request. [Call] makes the request of any admin verb; most verbs have a
// method as well. Their requests and replies are types of package wire/api.
//
// # What survives
//
// [Connect] reconnects for ever; give [New] a connection with nats.MaxReconnects(-1). A Consumer
// then survives restarts of fila and of NATS: it registers again, repeats unconfirmed acks,
// and keeps extending leases. If an outage takes longer than the visibility timeout, the lease
// is lost, and the handler's context is cancelled with the cause [ErrLeaseLost]. A message can
// always come twice, because its ack may be lost.
//
// Any NATS client works without this package, by the rules in docs/clients.md. One of them
// matters in Go: nats.Msg.AckSync returns nil on any reply, even a refusal. Use
// [Message.AckSync], which reads the reply.
package client
