package client

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"
)

// StopWithin is how long [Client.Work] waits for handlers and confirmations after its context
// has ended; the default is 25 seconds.
func StopWithin(d time.Duration) ConsumeOption { return func(o *consumeOptions) { o.stopWithin = d } }

// Work consumes a queue as [Client.Consume] does until ctx ends, and then stops as
// [Consumer.Stop] does, within the time of [StopWithin]. It returns nil after a complete stop.
// Make ctx with signal.NotifyContext to stop on SIGTERM. Work also ends, with an error, when the
// connection is closed.
func (c *Client) Work(ctx context.Context, queue string, handler Handler, opts ...ConsumeOption) error {
	closed := c.nc.StatusChanged(nats.CLOSED)
	defer c.nc.RemoveStatusListener(closed)
	registering := ctx
	if c.timeout > 0 { // which bounds it, so that a stop meanwhile is complete as well
		registering = context.WithoutCancel(ctx)
	}
	k, err := c.Consume(registering, queue, handler, opts...)
	if err != nil {
		return err
	}
	select {
	case <-ctx.Done():
	case <-closed:
		err = nats.ErrConnectionClosed
	}
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), k.o.stopWithin)
	defer cancel()
	return errors.Join(err, k.Stop(stopping))
}
