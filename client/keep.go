package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/filaq/fila/wire"
)

// retryRegister is when to retry a failed registration.
const retryRegister = time.Second

// register makes or renews the registration. After Leave it does nothing.
func (k *Consumer) register(ctx context.Context) error {
	k.reg.Lock()
	defer k.reg.Unlock()
	if k.reg.left {
		return nil
	}
	var reply wire.ConsumeReply
	body := wire.ConsumeRequest{
		MaxInFlight: k.reg.maxInFlight,
		TTLMs:       k.o.ttl.Milliseconds(),
		Headers:     k.o.headers,
	}
	if k.reg.batch > 1 {
		body.Batch = k.reg.batch
	}
	err := k.c.call(ctx, k.c.subjects.Consumer(k.o.name, k.queue), body, &reply)
	if body.Batch > 0 && refusalIn(err).ErrCode == wire.CodeUnknownField { // by a fila from before batches
		k.reg.batch, body.Batch = 1, 0
		err = k.c.call(ctx, k.c.subjects.Consumer(k.o.name, k.queue), body, &reply)
	}
	if err != nil {
		return err
	}
	k.setVisibility(reply.VisibilityTimeoutMs)
	return nil
}

// registerFirst registers. It retries until ctx ends while no node owns the queue, or its
// owner does not answer.
func (k *Consumer) registerFirst(ctx context.Context) error {
	for {
		try, cancel := k.c.limited(ctx, 0)
		err := k.register(try)
		cancel()
		again := refusalIn(err).ErrCode == wire.CodeNoOwner || errors.Is(err, ErrNoReply)
		if !again || !wait(ctx, time.After(retryRegister)) {
			return err
		}
	}
}

// SetMaxInFlight changes how many unfinished messages the consumer may have.
// It keeps the messages that it has, even if they are more.
func (k *Consumer) SetMaxInFlight(ctx context.Context, n int) error {
	o := k.o
	o.maxInFlight = &n
	if err := o.check(k.queue); err != nil {
		return err
	}
	k.reg.Lock()
	k.reg.maxInFlight = n
	k.reg.Unlock()
	return k.register(ctx)
}

// keepRegistered renews the registration after a third of its TTL, at once after a reconnect,
// and soon after a failure. So the consumer survives restarts of fila and NATS.
func (k *Consumer) keepRegistered(ctx context.Context, connected chan nats.Status) {
	defer k.c.nc.RemoveStatusListener(connected)
	period := k.o.ttl / 3
	timer := time.NewTimer(period)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case _, ok := <-connected:
			if !ok { // the connection is closed for good
				connected = nil
				continue
			}
			k.resend()
		case <-timer.C:
		}
		next := period
		if err := k.register(ctx); err != nil && ctx.Err() == nil {
			k.o.onError(fmt.Errorf("renew consumer %s of %s: %w", k.o.name, k.queue, err))
			if errors.Is(err, nats.ErrConnectionClosed) {
				return
			}
			next = min(period, retryRegister)
		}
		timer.Reset(next)
	}
}
