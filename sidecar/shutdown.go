package sidecar

import (
	"context"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// settleInterval is how often a shutdown looks whether leases have settled.
const settleInterval = 10 * time.Millisecond

// closeTimeout bounds the last steps of a shutdown, which have no reason to
// wait.
const closeTimeout = 5 * time.Second

// stop takes the server down: stop taking, let leases settle if it is asked to
// be graceful, write the rest, close.
func (s *Server) stop(graceful bool) error {
	c := s.core
	s.admin.Lock() // a queue that is just being made must be ended, too
	c.draining.Store(true)
	s.admin.Unlock()
	deadline, cancel := context.WithTimeout(context.Background(), time.Duration(s.cfg.DrainTimeoutMs)*time.Millisecond)
	defer cancel()
	if graceful {
		c.log.Info("stopping: no new messages, waiting for leases", "drain_timeout_ms", s.cfg.DrainTimeoutMs)
		s.stopIntake(deadline.Done())
		s.settleLeases(deadline.Done())
	}
	for _, sub := range s.replies {
		if err := sub.Unsubscribe(); err != nil {
			c.log.Debug("unsubscribe", "subject", sub.Subject, "error", err)
		}
	}
	var ended sync.WaitGroup
	for _, q := range s.queues.all() {
		ended.Go(q.end)
	}
	ended.Wait()
	if c.circuits != nil {
		c.circuits.stop()
	}
	s.stopThrottles()
	s.close()
	c.log.Info("stopped")
	return nil
}

// stopIntake unsubscribes from enqueues and waits until what had arrived has
// been taken.
func (s *Server) stopIntake(deadline <-chan struct{}) {
	select {
	case <-s.drainIntake(s.queues.all()...):
	case <-deadline:
	case <-s.killed:
	}
}

// drainIntake unsubscribes from the enqueues of queues. What it returns is
// closed when everything that had arrived has been taken or answered: a plain
// Unsubscribe would drop it without an answer.
func (s *Server) drainIntake(queues ...*queue) <-chan struct{} {
	var closed sync.WaitGroup
	for _, q := range queues {
		if q.sub == nil {
			continue
		}
		closed.Add(1)
		q.sub.SetClosedHandler(func(string) { closed.Done() })
		if err := q.sub.Drain(); err != nil {
			s.core.log.Debug("drain", "queue", q.name, "error", err)
			closed.Done()
		}
	}
	done := make(chan struct{})
	go func() { closed.Wait(); close(done) }()
	return done
}

// settleLeases waits until no message is with a consumer. Those that still are
// when the time is over stay leased: their consumers can ack to the next
// process.
func (s *Server) settleLeases(deadline <-chan struct{}) {
	for _, q := range s.queues.all() {
		// A turn that has just given leases has not counted them yet.
		q.call((*loop).countOpen)
	}
	tick := time.NewTicker(settleInterval)
	defer tick.Stop()
	for {
		var open int64
		for _, q := range s.queues.all() {
			open += q.open.Load()
		}
		if open == 0 {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			s.core.log.Info("leases that did not settle in time are kept for the next start", "leases", open)
			return
		case <-s.killed:
			return
		}
	}
}

// close ends what open has opened, in the opposite order, as far as it is open.
func (s *Server) close() {
	c := s.core
	if s.service != nil {
		if err := s.service.Stop(); err != nil {
			c.log.Debug("micro service", "error", err)
		}
	}
	// The last commit sends the last replies, so it comes before the flush.
	if c.store != nil {
		if err := c.store.Close(); err != nil {
			c.log.Error("close the store", "error", err)
		}
	}
	if c.nc != nil {
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		if c.nc.Status() == nats.CONNECTED {
			if err := c.nc.FlushWithContext(ctx); err != nil {
				c.log.Debug("last flush", "error", err)
			}
		}
		cancel()
		c.nc.Close()
	}
	if s.embedded != nil {
		s.embedded.Shutdown()
		s.embedded.WaitForShutdown()
	}
	if s.http != nil {
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		defer cancel()
		s.http.stop(ctx)
	}
}
