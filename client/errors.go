package client

import (
	"errors"

	"github.com/filaq/fila/wire"
)

var (
	// ErrNoFila is returned when nobody listens on the subject of a request: no
	// fila is connected to this NATS server under this prefix, or, for
	// publishing, consuming and fetching, possibly no such queue.
	ErrNoFila = errors.New("no fila listens on the subject")
	// ErrNoReply is returned when a request got no reply in time, or when the connection
	// broke meanwhile. Whether it had an effect is unknown.
	ErrNoReply = errors.New("no reply in time; whether it was done is not known")
	// ErrWindowFull is returned by PublishAsync when [WithMaxPending] messages wait for
	// their confirmation, and either [NoWait] was given or the context ended first. The
	// message was not sent.
	ErrWindowFull = errors.New("too many published messages wait for their confirmation")
	// ErrClosed is returned by PublishAsync after [Client.Close], and for the messages that
	// Close left unconfirmed.
	ErrClosed = errors.New("the client is closed")
	// ErrSettled is returned for a second ack, nack or term of a message.
	ErrSettled = errors.New("the message is settled already")
)

// ErrLeaseLost matches, by errors.Is, the refusal of a lease that is no longer current: the
// message was settled, or the lease ended and another consumer gets the message.
var ErrLeaseLost error = &Error{Code: 409, ErrCode: wire.CodeLeaseLost, Description: "the lease is lost"}
