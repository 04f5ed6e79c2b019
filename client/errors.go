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
	// ErrNoReply is returned when a request got no answer in time, or when the
	// connection broke meanwhile. Whether it had an effect is not known. What NATS
	// permissions refuse is known and is a [PermissionError].
	ErrNoReply = errors.New("no reply in time; whether it was done is not known")
	// ErrWindowFull is returned by PublishAsync when as many messages as
	// [WithMaxPending] allows wait for their confirmation, and either [NoWait]
	// was given or the context ended first. The message was not sent.
	ErrWindowFull = errors.New("too many published messages wait for their confirmation")
	// ErrClosed is returned for what [Client.Close] has ended.
	ErrClosed = errors.New("the client is closed")
	// ErrSettled is returned when a message is acked, nacked or terminated that
	// was so already.
	ErrSettled = errors.New("the message is settled already")
)

// ErrLeaseLost is a refusal for errors.Is: the lease of a message is not the
// current one any more. It was settled already, or the lease has ended and the
// message is, or will be, somebody else's.
var ErrLeaseLost error = &Error{Code: 409, ErrCode: wire.CodeLeaseLost, Description: "the lease is lost"}
