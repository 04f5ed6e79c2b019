package shard

import (
	"encoding/hex"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"

	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/sidecar/telemetry"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
)

// Retry hints for refused requests without a better estimate.
const (
	fullRetryAfter        = time.Second
	uncommittedRetryAfter = 100 * time.Millisecond
	diskLowRetryAfter     = 5 * time.Second
	logFullRetryAfter     = 5 * time.Second
)

// publish sends a reply, unless the shard is silent. Errors are only logged: the client times
// out and asks again.
func (s *Shard) publish(subject string, data []byte) {
	if s.silent() {
		return
	}
	if err := s.Conn.Publish(subject, data); err != nil {
		s.Log.Debug("a reply could not be published", "subject", subject, "error", err)
	}
}

// send publishes a delivery, unless the shard is silent.
func (s *Shard) send(m *nats.Msg) error {
	if s.silent() {
		return store.ErrFenced
	}
	return s.Conn.PublishMsg(m)
}

// refuse answers a request with an error, unless the shard is silent.
func (s *Shard) refuse(c queue.Confirmation, e *wire.Error) {
	if s.silent() {
		return
	}
	if b, ok := c.Batch.(*batch); ok {
		b.refuse(c.Index, e)
		return
	}
	s.set.replyError(c.Subject, e)
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

// Refuse counts and answers a request about a queue that does not exist.
func (s *Set) Refuse(reply string, e *wire.Error) {
	s.Metrics.Refused(e.ErrCode)
	s.replyError(reply, e)
}

// answer publishes a reply of the machine.
func (r *runner) answer(a *queue.Reply) {
	if !a.Awaited() {
		return
	}
	if b, ok := a.Batch.(*batch); ok {
		b.done(a)
		return
	}
	data := a.Data
	if a.Kind == queue.ReplyEnqueued || a.Kind == queue.ReplyDuplicate {
		data = enqueueReply(r.sides[queue.Main].name, a.ID, a.Kind == queue.ReplyDuplicate)
	}
	r.shard.publish(a.Subject, data)
}

// enqueueReply encodes the confirmation of an enqueue. Queue names and ids need no escaping
// in JSON.
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

// appendID appends an id as [uuid.UUID] writes it, without an allocation.
func appendID(b []byte, id store.ID) []byte {
	b = append(hex.AppendEncode(b, id[:4]), '-')
	b = append(hex.AppendEncode(b, id[4:6]), '-')
	b = append(hex.AppendEncode(b, id[6:8]), '-')
	b = append(hex.AppendEncode(b, id[8:10]), '-')
	return hex.AppendEncode(b, id[10:])
}

func formatID(id store.ID) string { return uuid.UUID(id).String() }

// committed handles a commit that is on disk or has failed. The notifier of the store calls
// it.
func (r *runner) committed(c *queue.Commit, err error) {
	r.shard.set.uncommitted.Add(-c.Bytes)
	r.shard.set.disk.wrote(c.Bytes)
	ticket := c.Ticket // after post, c belongs to the machine
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

// confirm sends all answers that waited for a commit, which is on disk.
func (r *runner) confirm(c *queue.Commit) {
	for i, confirm := range c.Confirm {
		r.answer(&queue.Reply{Kind: queue.ReplyEnqueued, Confirmation: confirm, ID: c.Add[i].ID})
	}
	for i := range c.Replies {
		r.answer(&c.Replies[i])
	}
	for i := range c.Notes {
		r.note(&c.Notes[i])
	}
}

// refuseCommit answers all requests that waited for a commit, which has failed. A deleted
// queue or one bad record fails this commit only; any other error fails the shard, and
// refuseCommit reports that it is final.
func (r *runner) refuseCommit(c *queue.Commit, err error) (final bool) {
	answer := queue.CommitError(err)
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
		r.shard.refuse(c.Replies[i].Confirmation, answer)
	}
	for _, confirm := range c.Confirm {
		r.shard.refuse(confirm, answer)
	}
	return final
}

// event publishes an event, unless the shard is silent.
func (s *Shard) event(typ, tail string, e wire.Event) {
	if !s.silent() {
		s.Event(typ, tail, e)
	}
}

// logAbout returns the logger for a line about a message, with its trace if it has one.
func (s *Shard) logAbout(id store.ID) *slog.Logger {
	return s.Log.With(telemetry.TraceAttrs(s.set.traces.Parent(id))...)
}

// note publishes what the machine reports.
func (r *runner) note(n *queue.Note) {
	s, name := r.shard, r.sides[n.Role].name
	event := func(typ string, data map[string]any) { s.event(typ, name, wire.Event{Queue: name, Data: data}) }
	switch n.Kind {
	case queue.NoteJoined:
		r.sides[n.Role].departures.forget(n.Consumer)
		event(wire.EventConsumerJoined, map[string]any{"consumer": n.Consumer, "max_in_flight": n.MaxInFlight})
	case queue.NoteLeft:
		r.sides[n.Role].departures.add(n.Consumer, "", s.Now())
		event(wire.EventConsumerLeft, map[string]any{"consumer": n.Consumer, "in_flight": n.InFlight})
	case queue.NoteLost:
		r.sides[n.Role].departures.add(n.Consumer, n.Reason, s.Now())
		s.Log.Info("consumer lost", "queue", name, "consumer", n.Consumer, "reason", n.Reason)
		event(wire.EventConsumerLost, map[string]any{"consumer": n.Consumer, "reason": n.Reason, "in_flight": n.InFlight})
	case queue.NoteDeadLettered:
		r.sides[n.Role].metrics.DeadLettered(n.Dead.Reason)
		r.sides[n.Role].rates.Add(n.Dead, s.Now())
		s.logAbout(n.ID).Warn("message dead-lettered", "queue", name, "id", formatID(n.ID), "key", wire.ShowKey(n.Key),
			"reason", n.Dead.Reason, "error_code", n.Dead.ErrorCode, "error", n.Dead.Error, "attempts", n.Dead.Attempts)
		s.set.traces.DeadLettered(n, name, s.Now())
		event(wire.EventDeadLettered, map[string]any{
			"id": formatID(n.ID), "reason": n.Dead.Reason, "error": n.Dead.Error, "attempts": n.Dead.Attempts,
		})
	case queue.NoteKeyPaused:
		r.sides[n.Role].metrics.KeyHeld()
		s.Control.HoldKey(name, n.Key, n.Until)
	case queue.NoteGates:
		s.logAbout(n.ID).Error("throttle keys of a message are ignored", "queue", name, "id", formatID(n.ID), "error", n.Err)
	case queue.NoteMoveFailed:
		s.logAbout(n.ID).Error("a message cannot be dead-lettered; it stays in the store, undelivered until the next start",
			"queue", name, "id", formatID(n.ID), "seq", n.Seq, "error", n.Err)
	case queue.NoteNoisy:
		r.flowEvent(wire.EventFlowNoisy, n, map[string]any{"began": n.Began, "noisy_flows": n.Flows, "in_flight": n.InFlight})
	case queue.NoteStarved:
		r.flowEvent(wire.EventFlowStarved, n, map[string]any{"began": n.Began, "starved_flows": n.Flows, "wait_ms": n.Waited / 1e6})
	}
}

// flowEvent publishes a report about a flow; when a condition ends, without its figures.
func (r *runner) flowEvent(typ string, n *queue.Note, data map[string]any) {
	name := r.sides[n.Role].name
	if !n.Began {
		delete(data, "in_flight")
		delete(data, "wait_ms")
	}
	r.shard.event(typ, name, wire.Event{Queue: name, Key: wire.ShowKey(n.Key), Data: data})
}

// refusals limits the events about refused messages without reply subject, so that a flood
// of bad messages does not become a flood of events. Each event says how many were left out
// before it; the counters count them all.
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
