package shard

import (
	"errors"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"

	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
)

// Hints for clients that were refused, when there is no better estimate.
const (
	fullRetryAfter        = time.Second
	uncommittedRetryAfter = 100 * time.Millisecond
	diskLowRetryAfter     = 5 * time.Second
	logFullRetryAfter     = 5 * time.Second
)

// publish sends data and logs what cannot be sent: whoever waits for it will
// time out and ask again. A fenced shard says nothing.
func (s *Shard) publish(subject string, data []byte) {
	if subject == "" || s.silent() {
		return
	}
	if err := s.Conn.Publish(subject, data); err != nil {
		s.Log.Debug("a reply could not be published", "subject", subject, "error", err)
	}
}

// send publishes a delivery, unless the shard is fenced.
func (s *Shard) send(m *nats.Msg) error {
	if s.silent() {
		return store.ErrFenced
	}
	return s.Conn.PublishMsg(m)
}

// replyError answers a request with an error. Without a reply subject it does
// nothing, nor does a fenced shard.
func (s *Shard) replyError(subject string, e *wire.Error) {
	if !s.silent() {
		s.set.replyError(subject, e)
	}
}

func (s *Set) replyError(subject string, e *wire.Error) {
	if subject == "" {
		return
	}
	m := &nats.Msg{Subject: subject, Header: e.Headers(), Data: e.Body()}
	if err := s.Conn.PublishMsg(m); err != nil {
		s.Log.Debug("an error reply could not be published", "subject", subject, "error", err)
	}
}

// Refuse counts what a client sent, which belongs to no queue that exists, and answers
// it.
func (s *Set) Refuse(reply string, e *wire.Error) {
	s.Metrics.Refused(e.ErrCode)
	s.replyError(reply, e)
}

// answer publishes a reply. Replies that name a queue are for producers.
func (r *runner) answer(a *queue.Reply) {
	data := a.Data
	switch a.Kind {
	case queue.ReplyEnqueued, queue.ReplyDuplicate:
		if a.Subject == "" {
			return
		}
		data = enqueueReply(r.sides[queue.Main].name, a.ID, a.Kind == queue.ReplyDuplicate)
	case queue.ReplyDone, queue.ReplyData:
	}
	r.shard.publish(a.Subject, data)
}

// enqueueReply is the confirmation of an enqueue. Queue names and ids need no
// escaping in JSON.
func enqueueReply(queue string, id store.ID, duplicate bool) []byte {
	b := make([]byte, 0, 80+len(queue))
	b = append(b, `{"id":"`...)
	b = appendID(b, id)
	b = append(b, `","queue":"`...)
	b = append(b, queue...)
	if duplicate {
		return append(b, `","duplicate":true}`...)
	}
	return append(b, `"}`...)
}

func appendID(b []byte, id store.ID) []byte {
	text, _ := uuid.UUID(id).MarshalText() // never fails
	return append(b, text...)
}

func formatID(id store.ID) string { return uuid.UUID(id).String() }

// committed runs on the store's notifier when a commit is on disk, or when it is
// known that it could not be written.
func (r *runner) committed(c *queue.Commit, err error) {
	r.shard.set.uncommitted.Add(-c.Bytes)
	r.shard.set.disk.wrote(c.Bytes)
	ticket := c.Ticket // c is the machine's once it is posted
	final := false
	if err != nil {
		final = r.refuseCommit(c, err)
	} else {
		r.confirm(c)
	}
	if !final {
		r.mail.post(queue.Input{Kind: queue.Committed, Commit: c, Err: err})
	}
	switch done := ticket.(type) {
	case chan error:
		done <- err
	case func(error): // it does not block
		done(err)
	}
}

// confirm answers everybody who waits for a commit that is on disk.
func (r *runner) confirm(c *queue.Commit) {
	for i, subject := range c.Confirm {
		if subject != "" {
			r.shard.publish(subject, enqueueReply(r.sides[queue.Main].name, c.Add[i].ID, false))
		}
	}
	for i := range c.Replies {
		r.answer(&c.Replies[i])
	}
	for i := range c.Notes {
		r.note(&c.Notes[i])
	}
}

// refuseCommit tells everybody who waits for a commit that has failed. A queue that
// was deleted meanwhile is nobody's fault, and a record that is broken or gone is no
// other's; anything else is the end of the shard.
func (r *runner) refuseCommit(c *queue.Commit, err error) (final bool) {
	answer := commitError(err)
	switch {
	case errors.Is(err, store.ErrNoQueue):
		answer = r.sides[queue.Main].Gone()
	case errors.Is(err, store.ErrCorrupt), errors.Is(err, store.ErrNotFound):
	default:
		final = true
		if !errors.Is(err, store.ErrClosed) {
			r.shard.fail(err)
		}
	}
	for i := range c.Replies {
		r.shard.replyError(c.Replies[i].Subject, answer)
	}
	for _, subject := range c.Confirm {
		r.shard.replyError(subject, answer)
	}
	return final
}

// commitError is the answer to those whose change may or may not be on disk.
func commitError(err error) *wire.Error {
	if errors.Is(err, store.ErrClosed) {
		return wire.Draining()
	}
	return wire.OutcomeUnknown()
}

// event tells news of the shard, unless another one may be telling them.
func (s *Shard) event(typ, tail string, e wire.Event) {
	if !s.silent() {
		s.Event(typ, tail, e)
	}
}

// note passes on news of the machine.
func (r *runner) note(n *queue.Note) {
	s, name := r.shard, r.sides[n.Role].name
	event := func(typ string, data map[string]any) { s.event(typ, name, wire.Event{Queue: name, Data: data}) }
	switch n.Kind {
	case queue.NoteJoined:
		event(wire.EventConsumerJoined, map[string]any{"consumer": n.Consumer, "max_in_flight": n.MaxInFlight})
	case queue.NoteLost:
		s.Log.Info("consumer lost", "queue", name, "consumer", n.Consumer, "reason", n.Reason)
		event(wire.EventConsumerLost, map[string]any{"consumer": n.Consumer, "reason": n.Reason, "in_flight": n.InFlight})
	case queue.NoteDeadLettered:
		r.sides[n.Role].metrics.DeadLettered(n.Dead.Reason)
		s.logAbout(n.ID).Warn("message dead-lettered", "queue", name, "id", formatID(n.ID), "key", wire.ShowKey(n.Key),
			"reason", n.Dead.Reason, "error_code", n.Dead.ErrorCode, "error", n.Dead.Error, "attempts", n.Dead.Attempts)
		s.set.traces.deadLettered(n, name, s.Now())
		event(wire.EventDeadLettered, map[string]any{
			"id": formatID(n.ID), "reason": n.Dead.Reason, "error": n.Dead.Error, "attempts": n.Dead.Attempts,
		})
	case queue.NoteKeyPaused:
		r.sides[n.Role].metrics.KeyHeld()
		s.Control.HoldKey(name, n.Key, n.Until)
	case queue.NoteGates:
		s.logAbout(n.ID).Error("throttle keys of a message are left out", "queue", name, "id", formatID(n.ID), "error", n.Err)
	case queue.NoteMoveFailed:
		s.logAbout(n.ID).Error("a message cannot be dead-lettered; it stays in the store, undelivered until the next start",
			"queue", name, "id", formatID(n.ID), "seq", n.Seq, "error", n.Err)
	case queue.NoteNoisy:
		r.flowEvent(wire.EventFlowNoisy, n, map[string]any{"began": n.Began, "noisy_flows": n.Flows, "in_flight": n.InFlight})
	case queue.NoteStarved:
		r.flowEvent(wire.EventFlowStarved, n, map[string]any{"began": n.Began, "starved_flows": n.Flows, "wait_ms": n.Waited / 1e6})
	}
}

// flowEvent tells how a flow fares, and that it does no longer without the figures of it.
func (r *runner) flowEvent(typ string, n *queue.Note, data map[string]any) {
	name := r.sides[n.Role].name
	if !n.Began {
		delete(data, "in_flight")
		delete(data, "wait_ms")
	}
	r.shard.event(typ, name, wire.Event{Queue: name, Key: wire.ShowKey(n.Key), Data: data})
}

// refusals publishes events for refused messages whose producer asked for no
// answer: at most refusalsPerSecond of them, and each says how many were left
// out before it, so that a flood of bad messages does not become two floods.
// The counters count them all.
type refusals struct {
	mu struct {
		sync.Mutex
		second  int64
		sent    int
		skipped int64
	}
}

const refusalsPerSecond = 20

func (r *refusals) event(s *Set, queue string, e *wire.Error) {
	second := s.Now() / 1e9
	r.mu.Lock()
	if r.mu.second != second {
		r.mu.second, r.mu.sent = second, 0
	}
	if r.mu.sent >= refusalsPerSecond {
		r.mu.skipped++
		r.mu.Unlock()
		return
	}
	r.mu.sent++
	skipped := r.mu.skipped
	r.mu.skipped = 0
	r.mu.Unlock()
	data := map[string]any{"code": e.Code, "err_code": e.ErrCode, "description": e.Description}
	if skipped > 0 {
		data["not_reported"] = skipped
	}
	s.Event(wire.EventRefused, queue, wire.Event{Queue: queue, Data: data})
}
