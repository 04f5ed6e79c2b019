package client

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel/trace"
)

// receive queues a delivery for the workers. It runs on the subscription's goroutine.
func (k *Consumer) receive(msg *nats.Msg) {
	messages, err := k.c.parseDelivery(k.queue, msg)
	if err != nil {
		k.o.onError(err) // fila delivers them again when their leases end
		return
	}
	holds := k.hold(messages)
	k.mu.Lock()
	drained := k.mu.drained
	if !drained {
		k.mu.waiting = append(k.mu.waiting, holds...)
		for range holds {
			k.mu.work.Signal()
		}
	}
	k.mu.Unlock()
	if drained {
		for _, h := range holds {
			k.giveBack(h)
		}
	}
}

// drain makes the workers end when no message waits.
func (k *Consumer) drain() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.mu.drained = true
	k.mu.work.Broadcast()
}

// next waits for a message. It returns nil after drain, when no message is left.
func (k *Consumer) next() *hold {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.mu.waiting) == 0 {
		k.mu.Unlock()
		k.rest(nil)
		k.mu.Lock()
		for len(k.mu.waiting) == 0 {
			if k.mu.drained {
				return nil
			}
			k.mu.work.Wait()
		}
		k.mu.free--
	}
	h := k.mu.waiting[0]
	k.mu.waiting[0] = nil
	k.mu.waiting = k.mu.waiting[1:]
	return h
}

// run is the goroutine of a worker.
func (k *Consumer) run() {
	for h := k.next(); h != nil; h = k.next() {
		k.handle(h)
	}
}

func (k *Consumer) handle(h *hold) {
	if k.handlerCtx.Err() != nil {
		k.giveBack(h)
		return
	}
	if h.ctx.Err() != nil {
		return // the lease was lost while the message waited
	}
	h.handling.Store(true)
	k.endHandler(h, k.call(h))
}

// endHandler notes that the handler of a message has ended.
func (k *Consumer) endHandler(h *hold, err error) {
	k.finish(h, err)
	h.handling.Store(false)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.releaseContext(h)
}

// call runs the handler. A handler that ends its goroutine, as a failed test does, ends the
// worker; call then starts another one.
func (k *Consumer) call(h *hold) (err error) {
	ctx := h.ctx
	if k.c.tracer != nil {
		var span trace.Span
		ctx, span = k.processing(ctx, h.m)
		defer func() { endSpan(span, err) }()
	}
	returned := false
	defer func() {
		if returned {
			return
		}
		p := recover()
		err = &PanicError{Value: p, Stack: debug.Stack()}
		k.o.onError(fmt.Errorf("handler of %s: %w", h.m.ID, err))
		if p == nil {
			k.endHandler(h, err)
			k.workers.Go(k.run)
		}
	}()
	err = k.handler(ctx, h.m)
	returned = true
	return err
}

// finish settles a message that the handler did not settle.
func (k *Consumer) finish(h *hold, err error) {
	if h.m.settled.Load() || h.ctx.Err() != nil && k.handlerCtx.Err() == nil {
		return // the handler settled it, or the lease is lost
	}
	switch {
	case err != nil:
		err = settleFailed(h.m, err)
	case !k.o.manual:
		err = h.m.Ack()
	}
	if err != nil && !errors.Is(err, ErrSettled) {
		k.o.onError(fmt.Errorf("ack of %s: %w", h.m.ID, err))
	}
}

// giveBack nacks a message that no handler has seen, so that another consumer gets it before
// its lease ends. The delay is 0, so that it is retried at once.
func (k *Consumer) giveBack(h *hold) {
	h.cancel(context.Canceled)
	err := h.m.settle([]byte(`-NAK {"delay":0,"error":"consumer stopped"}`), nil)
	if err != nil && !errors.Is(err, ErrSettled) {
		k.o.onError(fmt.Errorf("give back %s: %w", h.m.ID, err))
	}
}
