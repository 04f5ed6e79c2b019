package sidecar

import (
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"syscall"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"

	"github.com/filaq/fila/store"
	"github.com/filaq/fila/throttle"
	"github.com/filaq/fila/wire"
)

// core is what all queues of a server share. Its methods may be called from any
// goroutine.
type core struct {
	cfg      Config
	log      *slog.Logger
	clock    clock
	store    store.Store
	nc       *nats.Conn
	subjects wire.Subjects
	signer   *wire.Signer
	metrics  *metrics
	config   *runtimeConfig
	gates    *throttle.Gates
	circuits *circuits
	rules    atomic.Pointer[rules]
	pacing   pacing
	hold     func(q *queue, key string, until int64) // max_failures_per_key is exceeded
	refusals *refusals

	leaseIDs    atomic.Uint64
	uncommitted atomic.Int64 // bytes of enqueues that wait for the disk
	serving     atomic.Bool  // the reply subjects are subscribed to
	draining    atomic.Bool
	offline     atomic.Bool // disconnected from NATS

	fatal func(error) // stops the server
}

// dispatching reports whether deliveries may go out: not before fila hears the
// acks, not while it is disconnected, since they would be lost, and not while it
// is stopping.
func (c *core) dispatching() bool {
	return c.serving.Load() && !c.offline.Load() && !c.draining.Load()
}

// nextLease returns an id that no lease of this process had. They start at a
// random point, so that no restart repeats one.
func (c *core) nextLease() uint64 {
	for {
		if id := c.leaseIDs.Add(1); id != 0 {
			return id
		}
	}
}

// publish sends data and logs what cannot be sent: whoever waits for it will
// time out and ask again.
func (c *core) publish(subject string, data []byte) {
	if subject == "" {
		return
	}
	if err := c.nc.Publish(subject, data); err != nil {
		c.log.Debug("a reply could not be published", "subject", subject, "error", err)
	}
}

// replyError answers a request with an error. Without a reply subject it does
// nothing.
func (c *core) replyError(subject string, e *wire.Error) {
	if subject == "" || c.subjects.Owns(subject) {
		return
	}
	m := &nats.Msg{Subject: subject, Header: e.Headers(), Data: e.Body()}
	if err := c.nc.PublishMsg(m); err != nil {
		c.log.Debug("an error reply could not be published", "subject", subject, "error", err)
	}
}

// refuse counts what a client sent and fila does not take, and answers it. Who
// asked for no answer is told by an event.
func (c *core) refuse(q *queue, replyTo string, e *wire.Error) {
	q.metrics.refused(e.ErrCode)
	if replyTo == "" || c.subjects.Owns(replyTo) {
		c.refusals.event(c, q.name, e)
		return
	}
	c.replyError(replyTo, e)
}

// commitError is the answer to those whose change may or may not be on disk.
func (c *core) commitError(err error) *wire.Error {
	if errors.Is(err, store.ErrClosed) {
		return wire.Draining(drainRetryAfter)
	}
	return wire.OutcomeUnknown()
}

// fail stops the server: memory and disk may disagree, and only opening the
// store again tells what is true.
func (c *core) fail(err error) {
	if errors.Is(err, store.ErrClosed) {
		return
	}
	c.fatal(storeFailed(err))
}

// storeFailed is the last word on a store that failed: what it means, what broke,
// and what to do.
func storeFailed(err error) error {
	remedy := "look at the disk and the kernel's log, then start fila again"
	switch {
	case errors.Is(err, syscall.ENOSPC):
		remedy = "make room on that disk, then start fila again"
	case errors.Is(err, syscall.EDQUOT), errors.Is(err, syscall.EFBIG):
		remedy = "raise the quota or the limit on file sizes, then start fila again"
	}
	return fmt.Errorf("the store failed, nothing more is confirmed or delivered: %w (%s; docs/operations.md says more)", err, remedy)
}

// gone is the answer of a queue whose loop has ended.
func (q *queue) gone() *wire.Error {
	if q.deleted.Load() {
		return wire.QueueNotFound(q.name)
	}
	return wire.Draining(drainRetryAfter)
}

// settleBytes takes an enqueue that will not be stored out of the accounts.
func (c *core) settleBytes(q *queue, in *incoming) {
	c.uncommitted.Add(-in.size)
	q.depth.Add(-1)
	q.bytes.Add(-in.size)
}

func appendID(b []byte, id store.ID) []byte {
	text, _ := uuid.UUID(id).MarshalText() // never fails
	return append(b, text...)
}

func formatID(id store.ID) string { return uuid.UUID(id).String() }

// commit hands b to the store and waits for the disk.
func (c *core) commit(b *store.Batch) error {
	done := make(chan error, 1)
	b.Done = func(err error) { done <- err }
	c.store.Submit(b)
	return <-done
}
