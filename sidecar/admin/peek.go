package admin

import (
	"encoding/json"
	"errors"
	"time"

	"github.com/google/uuid"

	"github.com/filaq/fila/sidecar/finder"
	"github.com/filaq/fila/sidecar/queue/gates"
	"github.com/filaq/fila/sidecar/queue/inspect"
	"github.com/filaq/fila/sidecar/shard"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// peekPieces is how many pieces of a queue one request reads: about a million messages.
const peekPieces = 64

// peek returns messages without leasing them. It reads the queue in pieces, and the payloads
// afterwards, so that the queue keeps working meanwhile.
func (a *Admin) peek(q *shard.Queue, req api.PeekRequest) (reply api.PeekReply, _ *wire.Error) {
	p := peeking{
		Admin: a, queue: q.Name(), id: q.ID(), store: q.Store(), req: req, room: int(a.shards.Conn.MaxPayload()) / 2,
		reply: api.PeekReply{Queue: q.Name(), Messages: []api.PeekedMessage{}, Next: req.After},
	}
	f, err := a.filter(req.Filter)
	if err != nil {
		return reply, err
	}
	if req.Key != "" {
		f.Keys = []string{wire.ShowKey(req.Key)}
	}
	fd, err := q.Finder(f, 0)
	if err != nil {
		return reply, err
	}
	for range peekPieces {
		found, next, err := fd.Find(p.reply.Next, req.Limit-len(p.reply.Messages), a.piece, nil)
		if err != nil {
			return reply, err
		}
		if more := p.take(found, next); !more {
			break
		}
	}
	return p.reply, nil
}

// filter returns the resolved filter of a request; nil selects all messages.
func (a *Admin) filter(asked *api.Filter) (api.Filter, *wire.Error) {
	if asked == nil {
		return api.Filter{All: true}, nil
	}
	f := *asked
	return f, f.Resolve(time.Unix(0, a.shards.Now()))
}

// peeking is the state of one request.
type peeking struct {
	*Admin
	queue string
	id    store.QueueID
	store store.Store
	req   api.PeekRequest
	reply api.PeekReply
	room  int // remaining bytes of the reply
	asked map[blockedBy]*api.GateState
}

// blockedBy is the cause that blocks a message. Its state is read once for all messages with
// the same cause.
type blockedBy struct {
	inspect.WaitReason
	key string // "" for a gate, which blocks many keys
}

// take adds the messages of a piece to the reply, and reports whether to read more, from next
// on.
func (p *peeking) take(found []inspect.MessageView, next uint64) (more bool) {
	histories := p.histories(found)
	for i := range found {
		if !p.add(&found[i], histories[i]) {
			p.reply.Next = found[i].Seq
			return false
		}
	}
	p.reply.Next = next
	return next != 0 && len(p.reply.Messages) < p.req.Limit
}

// histories returns the history of each message of a piece of a dead letter queue.
func (p *peeking) histories(found []inspect.MessageView) [][]api.AttemptInfo {
	if !wire.IsDLQ(p.queue) {
		return make([][]api.AttemptInfo, len(found))
	}
	refs := make([]store.Ref, len(found))
	for i := range found {
		refs[i] = store.Ref{Queue: p.id, Seq: found[i].Seq}
	}
	return histories(p.store, refs)
}

// add completes a message and adds it to the reply, unless it is gone. It reports
// false if there is no room for it.
func (p *peeking) add(v *inspect.MessageView, history []api.AttemptInfo) bool {
	m := p.peeked(v)
	m.History = history
	if !p.read(v.Seq, &m) {
		return true
	}
	m.BlockedBy = p.blockedBy(v)
	data, _ := json.Marshal(m) // texts and numbers: it never fails
	if p.room -= len(data); p.room < 0 && len(p.reply.Messages) > 0 {
		return false
	}
	p.reply.Messages = append(p.reply.Messages, m)
	return true
}

// peeked returns a message without what only the store has.
func (p *peeking) peeked(v *inspect.MessageView) api.PeekedMessage {
	m := api.PeekedMessage{
		ID: uuid.UUID(v.ID).String(), Key: wire.ShowKey(v.Key), State: finder.StateName(v.State, wire.IsDLQ(p.queue)),
		Attempt: v.Attempt, Priority: v.Priority, EnqueuedAt: wire.Timestamp(v.EnqueuedAt),
	}
	if v.ExpiresAt != 0 {
		m.ExpiresAt = wire.Timestamp(v.ExpiresAt)
	}
	switch v.State {
	case inspect.StateDelayed:
		m.ReadyAt = wire.Timestamp(v.ReadyAt)
	case inspect.StateLeased:
		m.Consumer, m.LeaseUntil = v.Consumer, wire.Timestamp(v.LeaseUntil)
	case inspect.StateFailing:
		m.WaitsFor = api.WaitsForVerdict
	case inspect.StatePending:
		if !wire.IsDLQ(p.queue) { // a dead letter waits for a redrive
			m.WaitsFor = waitsFor(v.By)
		}
	default:
	}
	return m
}

// waitsFor returns what a pending message waits for.
func waitsFor(by gates.BlockKind) string {
	switch by {
	case gates.ByNoConsumer:
		return api.WaitsForConsumer
	case gates.ByNoCredit:
		return api.WaitsForCredit
	default:
		return api.WaitsForTurn
	}
}

// read adds the part of a message in the store. It returns false if the message is not on
// disk, because it was finished meanwhile or is not committed yet.
func (p *peeking) read(seq uint64, m *api.PeekedMessage) bool {
	refs := []store.Ref{{Queue: p.id, Seq: seq}}
	err := p.store.Read(refs, func(_ int, headers, payload []byte) {
		h, err := wire.DecodeHeaders(headers)
		if err != nil {
			m.Unreadable = err.Error()
		}
		m.SetContent(h, payload, p.req.PayloadBytes)
	})
	switch {
	case errors.Is(err, store.ErrNotFound):
		return false
	case err != nil:
		m.Unreadable = err.Error()
	}
	if !wire.IsDLQ(p.queue) {
		return true
	}
	err = p.store.Dead(refs, func(_ int, d *store.Dead) {
		if d != nil {
			m.Dead = &api.DeadInfo{
				Reason: d.Reason, Error: d.Error, ErrorCode: d.ErrorCode,
				SourceQueue: d.SourceQueue, At: wire.Timestamp(d.At), Attempts: d.Attempts,
			}
		}
	})
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		m.Dead = &api.DeadInfo{Reason: "unknown", Error: "it cannot be read: " + err.Error()}
	}
	return true
}

// blockedBy returns the gate or pause that blocks a message; nil: none.
func (p *peeking) blockedBy(v *inspect.MessageView) *api.GateState {
	if v.State != inspect.StateBlocked && v.State != inspect.StateOrdered {
		return nil
	}
	by := blockedBy{WaitReason: v.WaitReason}
	if by.At.Throttle == nil && by.At.Circuit == nil && !by.At.Queue {
		by.key = v.Key
	}
	st := p.asked[by]
	if st == nil {
		now := p.gates.state(by.WaitReason, p.queue, v.Key)
		st = &now
		if p.asked == nil {
			p.asked = make(map[blockedBy]*api.GateState)
		}
		p.asked[by] = st
	}
	return st
}
