package client

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel/trace"
)

// receive runs on the subscription's goroutine.
func (k *Consumer) receive(msg *nats.Msg) {
	h := k.hold(k.c.newMessage(msg))
	k.mu.Lock()
	drained := k.mu.drained
	if !drained {
		k.mu.waiting = append(k.mu.waiting, h)
		k.mu.work.Signal()
	}
	k.mu.Unlock()
	if drained {
		k.giveBack(h)
	}
}

// drain tells the workers that no more messages come in.
func (k *Consumer) drain() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.mu.drained = true
	k.mu.work.Broadcast()
}

// next waits for a message; nil says that there will be none.
func (k *Consumer) next() *hold {
	k.mu.Lock()
	defer k.mu.Unlock()
	for len(k.mu.waiting) == 0 {
		if k.mu.drained {
			return nil
		}
		k.mu.work.Wait()
	}
	h := k.mu.waiting[0]
	k.mu.waiting[0] = nil
	k.mu.waiting = k.mu.waiting[1:]
	return h
}

// run is a worker.
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
	k.finish(h, k.call(h))
	k.mu.Lock()
	defer k.mu.Unlock()
	k.leaveAlone(h)
}

// call runs the handler. A handler that ends its goroutine, as a failed test
// does, takes the worker with it: another one takes over.
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
			k.finish(h, err)
			k.mu.Lock()
			k.leaveAlone(h)
			k.mu.Unlock()
			k.workers.Go(k.run)
		}
	}()
	err = k.handler(ctx, h.m)
	returned = true
	return err
}

// finish settles what the handler has left open.
func (k *Consumer) finish(h *hold, err error) {
	if h.m.settled.Load() || h.ctx.Err() != nil && k.handlerCtx.Err() == nil {
		return // by the handler, or the lease is lost
	}
	switch {
	case err != nil:
		err = h.m.Nack(NackOptions{Error: err.Error()})
	case !k.o.manual:
		err = h.m.Ack()
	}
	if err != nil && !errors.Is(err, ErrSettled) {
		k.o.onError(fmt.Errorf("ack of %s: %w", h.m.ID, err))
	}
}

// giveBack nacks a message that no handler has seen, so that another consumer
// gets it before its lease ends. The delay of 0 keeps it from on_failure, which
// would have nothing to judge.
func (k *Consumer) giveBack(h *hold) {
	h.cancel(context.Canceled)
	err := h.m.settle([]byte(`-NAK {"delay":0,"error":"consumer stopped"}`))
	if err != nil && !errors.Is(err, ErrSettled) {
		k.o.onError(fmt.Errorf("give back %s: %w", h.m.ID, err))
	}
}
