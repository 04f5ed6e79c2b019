package client

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/filaq/fila/wire"
)

// Leave ends the registration: after it returns nil, fila sends no more messages. The
// consumer still handles received messages; Stop waits for them. For a shared name it ends the
// registration of all processes.
func (k *Consumer) Leave(ctx context.Context) error {
	k.stopKeeping() // cancels a waiting renewal
	k.reg.Lock()
	defer k.reg.Unlock()
	if k.reg.left {
		return nil
	}
	body := wire.ConsumeRequest{Leave: true}
	if err := k.c.call(ctx, k.c.subjects.Consumer(k.o.name, k.queue), body, nil); err != nil {
		return fmt.Errorf("leave %s: %w", k.queue, err)
	}
	k.reg.left = true
	return nil
}

// Stop leaves the queue, lets the handlers finish the received messages, waits until their
// acks are confirmed, and ends all goroutines. If ctx ends first, it cancels the handlers'
// context, nacks the messages that no handler has begun, and returns the context's error
// without waiting for handlers. Later calls return the result of the first.
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
	// The subscription now has all messages that fila sent. Drain passes them to the
	// workers before it closes.
	if err := k.sub.Drain(); err != nil {
		problems = append(problems, fmt.Errorf("drain: %w", err), unsubscribe(k.sub))
	} else {
		wait(ctx, k.closed)
	}
	k.drain()

	done := make(chan struct{})
	go func() {
		k.workers.Wait()
		close(done)
	}()
	if !wait(ctx, done) || !wait(ctx, k.confirmed()) {
		problems = append(problems, ctx.Err())
		k.giveBackAll()
	}
	k.stopHandler()
	k.keepers.Wait()
	k.mu.gatherTimer.Stop()
	k.sendGathered()
	problems = append(problems, unsubscribe(k.replies))
	k.forget()
	if ctx.Err() == nil && k.c.nc.IsConnected() {
		problems = append(problems, flush(ctx, k.c.nc))
	}
	return errors.Join(problems...)
}

// wait returns false if ctx ends before ch is closed or has a value.
func wait[T any](ctx context.Context, ch <-chan T) bool {
	select {
	case <-ch:
		return true
	case <-ctx.Done():
		return false
	}
}

// confirmed returns a channel that is closed when every answer is confirmed or
// refused.
func (k *Consumer) confirmed() <-chan struct{} {
	k.mu.Lock()
	defer k.mu.Unlock()
	ch := make(chan struct{})
	if k.mu.unsettled == 0 {
		close(ch)
	} else {
		k.mu.idle = ch
	}
	return ch
}

// giveBackAll cancels the handlers and nacks the messages that no handler has begun.
func (k *Consumer) giveBackAll() {
	k.stopHandler()
	k.mu.Lock()
	waiting := k.mu.waiting
	k.mu.waiting = nil
	k.mu.Unlock()
	for _, h := range waiting {
		k.giveBack(h)
	}
	k.sendGathered()
}

// forget releases all messages: the leases of unsettled ones run out.
func (k *Consumer) forget() {
	k.mu.Lock()
	held := slices.Collect(maps.Values(k.mu.held))
	k.mu.Unlock()
	for _, h := range held {
		k.release(h, ErrNoReply)
	}
}
