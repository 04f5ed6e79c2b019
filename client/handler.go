package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/filaq/fila/wire"
)

// Handler processes one message. If it does not settle the message itself, returning nil
// acks it and an error nacks it with the error's text; [Retry] and [Dead] make errors that say
// more, and a refusal by fila or its guard delays the retry until it says that one makes sense. A
// panic, or the end of the goroutine, is an error. The context ends when the context of
// Stop does, or when the lease is lost, which is then its cause: another consumer may already
// process the message.
type Handler func(ctx context.Context, m *Message) error

// Use wraps the handler in middleware, the first one outermost. Middleware sees panics as they
// are, and errors before they are sent.
func Use(middleware ...func(Handler) Handler) ConsumeOption {
	return func(o *consumeOptions) { o.middleware = append(o.middleware, middleware...) }
}

// JSONHandler returns a handler of messages whose payloads are JSON, as PublishJSON sends them. A
// payload that does not fit T makes the message a dead letter with the code "payload".
func JSONHandler[T any](handle func(ctx context.Context, m *Message, payload T) error) Handler {
	return func(ctx context.Context, m *Message) error {
		var payload T
		if err := json.Unmarshal(m.Data, &payload); err != nil {
			return Dead(fmt.Errorf("the payload is no %T: %w", payload, err), "payload")
		}
		return handle(ctx, m, payload)
	}
}

// Retry wraps the error of a [Handler], so that the message is nacked with these options. Their
// Error is by default the text of err, which may be nil.
func Retry(err error, o NackOptions) error {
	if o.Error == "" && err != nil {
		o.Error = err.Error()
	}
	return &failure{err, o.Error, func(m *Message) error { return m.Nack(o) }}
}

// Dead wraps the error of a [Handler], so that the message becomes a dead letter at once, with
// the text of err, which may be nil, and a code, which may be empty.
func Dead(err error, code string) error {
	reason := ""
	if err != nil {
		reason = err.Error()
	}
	return &failure{err, reason, func(m *Message) error { return m.Term(reason, code) }}
}

// failure is an error of a handler with the answer to send.
type failure struct {
	err    error
	text   string
	settle func(*Message) error
}

func (f *failure) Error() string { return f.text }
func (f *failure) Unwrap() error { return f.err }

// settleFailed sends the answer for the error of a handler.
func settleFailed(m *Message, err error) error {
	if f, ok := errors.AsType[*failure](err); ok {
		return f.settle(m)
	}
	// Not RetryAfter: it would open the circuit of the message's destination.
	o := NackOptions{Error: err.Error(), Delay: refusalIn(err).RetryAfter}
	if refused, ok := errors.AsType[*RefusedError](err); ok {
		o.Delay = refused.RetryAfter()
	}
	o.Delay = min(o.Delay, wire.MaxNackDelay)
	return m.Nack(o)
}
