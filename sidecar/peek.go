package sidecar

import (
	"encoding/json"
	"errors"

	"github.com/filaq/fila/drr"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/throttle"
	"github.com/filaq/fila/wire"
)

// peekPieces is how many pieces of explainSlots slots one request may look
// through: about a million messages. Whoever wants more asks again.
const peekPieces = 64

// peekVerb shows messages as they are. It asks the loop in pieces, and reads the
// payloads outside of it, so that the queue goes on in between; nothing that it
// does changes anything.
func (s *Server) peekVerb(name string, body []byte) (any, *wire.Error) {
	req, err := wire.ParsePeek(body)
	if err != nil {
		return nil, err
	}
	q, err := s.queue(name)
	if err != nil {
		return nil, err
	}
	p := peek{s: s, q: q, req: req, reply: wire.PeekReply{Queue: name, Messages: []wire.PeekedMessage{}, Next: req.After}}
	p.room = int(s.core.nc.MaxPayload()) / 2
	for range peekPieces {
		more, ok := p.piece()
		if !ok {
			return nil, q.gone()
		}
		if !more {
			break
		}
	}
	return p.reply, nil
}

// peek is one request on its way.
type peek struct {
	s     *Server
	q     *queue
	req   wire.PeekRequest
	reply wire.PeekReply
	room  int // bytes of the reply that are left
	gates map[blockedBy]*wire.GateState
}

// peeked is a message as its loop has found it.
type peeked struct {
	wire.PeekedMessage
	seq uint64
	by  blockedBy // kind byNothing: it is not held back
}

// blockedBy is what holds a message back. Messages with the same one need to
// ask it only once.
type blockedBy struct {
	kind    blockKind
	at      siteKind
	gate    *throttle.Gate
	circuit *circuit
	key     string // of a pause or of an order; empty for the queue's pause
	until   int64  // of a pause
}

// piece looks through the next slots. It reports whether there are more to look
// through, and false if the queue has ended.
func (p *peek) piece() (more, ok bool) {
	var found []peeked
	from := p.reply.Next
	ok = p.q.call(func(l *loop) { found, from = l.peek(from, p.req.Key, p.req.Limit-len(p.reply.Messages)) })
	if !ok {
		return false, false
	}
	for i := range found {
		if !p.take(&found[i]) {
			p.reply.Next = found[i].seq
			return false, true
		}
	}
	p.reply.Next = from
	return from != 0 && len(p.reply.Messages) < p.req.Limit, true
}

// take completes a message and adds it to the reply, unless it is gone. It
// reports false if there is no room for it.
func (p *peek) take(m *peeked) bool {
	read := func(_ int, headers, payload []byte) {
		h, err := wire.DecodeHeaders(headers)
		if err != nil {
			m.Unreadable = err.Error()
		}
		m.SetContent(h, payload, p.req.PayloadBytes)
	}
	refs := []store.Ref{{Queue: p.q.id, Seq: m.seq}}
	err := p.s.core.store.Read(refs, read)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return true // it was finished meanwhile, or is not on disk yet
	case err != nil:
		m.Unreadable = err.Error()
	}
	if p.q.isDLQ() {
		err := p.s.core.store.Dead(refs, func(_ int, d *store.Dead) { m.Dead = deadInfo(d) })
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			m.Dead = &wire.DeadInfo{Reason: "unknown", Error: "it cannot be read: " + err.Error()}
		}
	}
	if m.by.kind != byNothing {
		m.BlockedBy = p.gate(m.by)
	}
	data, err := json.Marshal(m.PeekedMessage)
	if err != nil {
		p.s.core.log.Error("a message cannot be shown", "queue", p.q.name, "id", m.ID, "error", err)
		return true
	}
	if p.room -= len(data); p.room < 0 && len(p.reply.Messages) > 0 {
		return false
	}
	p.reply.Messages = append(p.reply.Messages, m.PeekedMessage)
	return true
}

func deadInfo(d *store.Dead) *wire.DeadInfo {
	if d == nil {
		return nil
	}
	return &wire.DeadInfo{
		Reason: d.Reason, Error: d.Error, ErrorCode: d.ErrorCode,
		SourceQueue: d.SourceQueue, At: timestamp(d.At), Attempts: d.Attempts,
	}
}

// gate asks what holds a message back how it stands.
func (p *peek) gate(by blockedBy) *wire.GateState {
	if st := p.gates[by]; st != nil {
		return st
	}
	var st wire.GateState
	switch {
	case by.kind == byOrder:
		st = wire.GateState{Kind: byOrder.String(), Gate: "key:" + by.key, SetBy: "ordering of queue " + p.q.name}
	case by.kind == byPause && by.at == siteFree && by.key == "":
		st = *pausedGate("queue:"+p.q.name, by.until)
	case by.kind == byPause && by.at != siteThrottle && by.at != siteCircuit:
		st = *pausedGate("key:"+by.key, by.until)
	default:
		at := site{kind: by.at, gate: by.gate, circuit: by.circuit}
		st = p.s.siteState(&at, by.kind, by.key, p.s.core.clock.Now())
	}
	if p.gates == nil {
		p.gates = make(map[blockedBy]*wire.GateState)
	}
	p.gates[by] = &st
	return &st
}

// peek returns up to limit messages, those of one fairness key unless it is
// empty, from the sequence from on. It looks at explainSlots slots at most, and
// returns where to go on, 0 at the end. What is on its way out of the queue is
// left out.
func (l *loop) peek(from uint64, key string, limit int) (found []peeked, next uint64) {
	var only drr.Flow
	if key != "" {
		var ok bool
		if only, ok = l.keys.ids[key]; !ok {
			return nil, 0
		}
	}
	now, n := l.q.core.clock.Now(), 0
	l.slots.from(from, func(seq uint64, s *slot) bool {
		if n++; n > explainSlots || len(found) == limit {
			next = seq
			return false
		}
		if s.state != slotMoving && (key == "" || s.flow == only) {
			found = append(found, l.peeked(seq, s, now))
		}
		return true
	})
	return found, next
}

// peeked says what the loop knows of message seq. Unlike explain it costs the
// same whatever waits in front of the message.
func (l *loop) peeked(seq uint64, s *slot, now int64) peeked {
	m := peeked{seq: seq, PeekedMessage: wire.PeekedMessage{
		ID: formatID(s.id), Key: l.keys.name(s.flow), State: wire.StatePending,
		Attempt: s.attempts + 1, EnqueuedAt: timestamp(s.enqueuedAt),
	}}
	if s.ttl {
		m.ExpiresAt = timestamp(l.slots.expiresAt(seq, s))
	}
	switch s.state {
	case slotDelayed:
		m.State, m.ReadyAt = wire.StateDelayed, timestamp(s.readyAt)
	case slotParked:
		m.State, m.by = wire.StateParked, l.parkedAt(s, m.Key)
	case slotOrdered:
		m.State, m.by = wire.StateParked, blockedBy{kind: byOrder, key: m.Key}
	case slotLeased:
		le := &l.leases.items[s.ref]
		m.State, m.Consumer, m.LeaseUntil = wire.StateLeased, le.consumer.name, timestamp(le.deadline)
	}
	if s.state == slotPending || s.state == slotParked {
		if until := l.pausedKeys[m.Key]; until > now {
			m.by = blockedBy{kind: byPause, key: m.Key, until: until}
		}
		if l.pausedTo > now {
			m.by = blockedBy{kind: byPause, until: l.pausedTo}
		}
	}
	if l.q.isDLQ() && s.state != slotLeased {
		m.State = wire.StateDead
	}
	return m
}

// parkedAt is what holds a parked message back.
func (l *loop) parkedAt(s *slot, key string) blockedBy {
	ln := l.lanes.at(s.lane)
	st := l.sites.at(ln.site)
	by := blockedBy{kind: ln.kind, at: st.kind, gate: st.gate, circuit: st.circuit}
	if st.kind == sitePause {
		by.kind, by.key, by.until = byPause, key, l.pausedKeys[key]
	}
	return by
}
