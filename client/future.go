package client

import (
	"context"
	"time"

	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel/trace"
)

// PublishFuture is the confirmation of a PublishAsync that is still to come.
type PublishFuture struct {
	p     *publisher
	queue string
	msg   *nats.Msg
	id    uint64        // names it in the reply subject
	done  chan struct{} // closed after receipt and err are set

	receipt Receipt
	err     error
	span    trace.Span // nil: no tracer

	retry bool      // until says for how long
	until time.Time // no try after this

	// The publisher's mutex guards the rest.
	tries   int // made so far
	attempt int // changes whenever no reply is awaited any more
	ok      chan Receipt
	failed  chan error
}

// Queue returns the queue that it was published to.
func (f *PublishFuture) Queue() string { return f.queue }

// Msg returns the message as it was sent. It must not be changed.
func (f *PublishFuture) Msg() *nats.Msg { return f.msg }

// Done is closed when the message is confirmed or has failed.
func (f *PublishFuture) Done() <-chan struct{} { return f.done }

// Result returns the receipt, or why there is none. It waits until Done.
func (f *PublishFuture) Result() (Receipt, error) {
	<-f.done
	return f.receipt, f.err
}

// Wait is Result with a context, which ends the waiting, not the publishing.
func (f *PublishFuture) Wait(ctx context.Context) (Receipt, error) {
	select {
	case <-f.done:
		return f.receipt, f.err
	case <-ctx.Done():
		return Receipt{}, ctx.Err()
	}
}

// Ok returns a channel that gets the receipt if there will be one.
func (f *PublishFuture) Ok() <-chan Receipt {
	f.p.mu.Lock()
	defer f.p.mu.Unlock()
	if f.ok == nil {
		f.ok = make(chan Receipt, 1)
		f.tell(f.ok, nil)
	}
	return f.ok
}

// Err returns a channel that gets the error if it fails.
func (f *PublishFuture) Err() <-chan error {
	f.p.mu.Lock()
	defer f.p.mu.Unlock()
	if f.failed == nil {
		f.failed = make(chan error, 1)
		f.tell(nil, f.failed)
	}
	return f.failed
}

// tell sends the result, if there is one, to the channels given. They have
// room. It runs under the publisher's mutex.
func (f *PublishFuture) tell(ok chan Receipt, failed chan error) {
	select {
	case <-f.done:
	default:
		return
	}
	switch {
	case f.err == nil && ok != nil:
		ok <- f.receipt
	case f.err != nil && failed != nil:
		failed <- f.err
	}
}
