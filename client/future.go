package client

import (
	"context"
	"time"

	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel/trace"
)

// PublishFuture is the future confirmation of a PublishAsync.
type PublishFuture struct {
	p     *publisher
	queue string
	msg   *nats.Msg
	done  chan struct{} // closed after receipt and err are set

	receipt Receipt
	err     error
	span    trace.Span // nil: no tracer

	until time.Time // the end of retries; zero: there are none

	// The publisher's mutex guards the following fields.
	tries     int      // made so far
	request   *request // the latest; nil if it waits for the first one or has a result
	size      int      // in a batch
	batchable bool
	ok        chan Receipt // nil: nobody has asked for it or for failed
	failed    chan error
}

// Queue returns the queue that it was published to.
func (f *PublishFuture) Queue() string { return f.queue }

// Msg returns the message, as it is sent unless it is in a batch. It must not be changed.
func (f *PublishFuture) Msg() *nats.Msg { return f.msg }

// Done is closed when the message is confirmed or has failed.
func (f *PublishFuture) Done() <-chan struct{} { return f.done }

// Result waits until Done and returns the receipt or the error.
func (f *PublishFuture) Result() (Receipt, error) {
	<-f.done
	return f.receipt, f.err
}

// Wait is Result with a context, which ends only the waiting.
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
		f.ok, f.failed = make(chan Receipt, 1), make(chan error, 1)
		select {
		case <-f.done:
			f.sendResult()
		default:
		}
	}
	return f.ok
}

// Err returns a channel that gets the error if it fails.
func (f *PublishFuture) Err() <-chan error {
	f.Ok()
	return f.failed
}

// sendResult sends the result to one of the channels, if the caller has asked for them. The
// publisher's mutex is held.
func (f *PublishFuture) sendResult() {
	switch {
	case f.ok == nil:
	case f.err == nil:
		f.ok <- f.receipt
	default:
		f.failed <- f.err
	}
}

// nextTry returns how long to wait before a message is sent again after an error, and whether it is.
func (f *PublishFuture) nextTry(err error, spread float64) (time.Duration, bool) {
	wait, again := retryAfter(err, f.tries, hasDedupeID(f.msg), spread)
	return wait, again && !time.Now().Add(wait).After(f.until)
}
