package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/filaq/fila/wire"
)

// retryRegister is how soon a failed registration is tried again.
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
		Consumer:    k.o.name,
		MaxInFlight: k.reg.maxInFlight,
		TTLMs:       k.o.ttl.Milliseconds(),
	}
	if err := k.c.call(ctx, k.c.subjects.Consume(k.queue), body, &reply); err != nil {
		return err
	}
	k.visibility.Store(reply.VisibilityTimeoutMs)
	return nil
}

// SetMaxInFlight changes how many unfinished messages the consumer may have.
// Those that it has already stay, even if they are more.
func (k *Consumer) SetMaxInFlight(ctx context.Context, n int) error {
	o := k.o
	o.maxInFlight = n
	if err := o.check(k.queue); err != nil {
		return err
	}
	k.reg.Lock()
	k.reg.maxInFlight = n
	k.reg.Unlock()
	return k.register(ctx)
}

// Leave ends the registration: when it returns nil, fila sends no more. What
// has been received is still handled; Stop waits for it. For a shared name it
// ends the name for all.
func (k *Consumer) Leave(ctx context.Context) error {
	k.stopKeeping() // a renewal that waits for its reply gives way
	k.reg.Lock()
	defer k.reg.Unlock()
	if k.reg.left {
		return nil
	}
	body := wire.ConsumeRequest{Consumer: k.o.name, Leave: true}
	if err := k.c.call(ctx, k.c.subjects.Consume(k.queue), body, nil); err != nil {
		return fmt.Errorf("leave %s: %w", k.queue, err)
	}
	k.reg.left = true
	return nil
}

// keepRegistered renews the registration at a third of its life, at once after
// a reconnect, and soon after a failure: that heals a restart of fila or NATS.
func (k *Consumer) keepRegistered(ctx context.Context) {
	connected := k.c.nc.StatusChanged(nats.CONNECTED)
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
		case <-timer.C:
		}
		next := period
		if err := k.register(ctx); err != nil && ctx.Err() == nil {
			k.o.onError(fmt.Errorf("renew consumer %s of %s: %w", k.o.name, k.queue, err))
			next = min(period, retryRegister)
		}
		timer.Reset(next)
	}
}

// keepLeases extends the leases of all messages held, three times per
// visibility timeout.
func (k *Consumer) keepLeases(ctx context.Context) {
	for {
		wait := max(time.Duration(k.visibility.Load())*time.Millisecond/3, time.Millisecond)
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		for _, m := range k.heldMessages() {
			if err := m.Extend(); err != nil {
				k.o.onError(fmt.Errorf("extend lease of %s: %w", m.ID, err))
				break // the connection is gone: the others would say the same
			}
		}
	}
}

func (k *Consumer) heldMessages() []*Message {
	k.mu.Lock()
	defer k.mu.Unlock()
	held := make([]*Message, 0, len(k.mu.held))
	for m := range k.mu.held {
		held = append(held, m)
	}
	return held
}

// Stop leaves the queue, lets the handlers finish what has been received, and
// ends all goroutines. When ctx ends first, the handlers' context is cancelled,
// messages that no handler has begun are nacked, and Stop returns the context's
// error without waiting for handlers that go on. Later calls return the result
// of the first.
func (k *Consumer) Stop(ctx context.Context) error {
	k.stopOnce.Do(func() { k.stopErr = k.stop(ctx) })
	return k.stopErr
}

func (k *Consumer) stop(ctx context.Context) error {
	k.stopKeeping()
	var problems []error
	if !k.o.shared {
		problems = append(problems, k.Leave(ctx))
	}
	// What fila sent before the leave is in the subscription by now; Drain
	// hands it to the workers before it closes.
	if err := k.sub.Drain(); err != nil {
		problems = append(problems, fmt.Errorf("drain: %w", err), unsubscribe(k.sub))
	} else {
		select {
		case <-k.closed:
		case <-ctx.Done():
		}
	}
	close(k.drained)

	done := make(chan struct{})
	go func() {
		k.workers.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
		k.stopHandler()
		problems = append(problems, ctx.Err())
	}
	k.stopHandler()
	k.keepers.Wait()
	if ctx.Err() == nil && k.c.nc.IsConnected() {
		problems = append(problems, k.flush(ctx))
	}
	return errors.Join(problems...)
}

// flush sees the last acks off; nats.go insists on a deadline.
func (k *Consumer) flush(ctx context.Context) error {
	ctx, cancel := k.c.withTimeout(ctx)
	defer cancel()
	return k.c.nc.FlushWithContext(ctx)
}
