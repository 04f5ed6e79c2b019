package queuetest

import (
	"fmt"

	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/store"
)

func (s *Sim) enqueue() {
	n := s.anyNode()
	keys := []string{"a", "b", "c", plainKeys[0], plainKeys[1], plainKeys[2]}
	proto := message{node: n, Class: store.Class{Key: pick(s, keys), Cost: 1000, Weight: pick(s, []uint32{1000, 1000, 2500, 500})}}
	if plainKey(proto.Key) < 0 {
		for _, i := range s.rnd.Perm(throttleKeys)[:s.rnd.IntN(4)] {
			proto.ThrottleKeys = append(proto.ThrottleKeys, throttleKey(i))
		}
		switch {
		case s.learns && s.chance(2):
			proto.ThrottleKeys = []string{learning}
		case s.spends && s.chance(2):
			proto.ThrottleKeys = []string{spending}
		}
		if s.chance(4) {
			proto.CircuitKey = pick(s, []string{"c0", "c1"})
		}
		if s.routes && s.chance(2) {
			proto.Routes = s.drawRoutes()
		}
	}
	if !s.plain {
		proto.Cost = pick(s, []uint32{1, 500, 1000, 2000, 5000})
		s.largest = max(s.largest, int64(proto.Cost))
	}
	if n.priorities {
		proto.Priority = pick(s, []uint8{0, 0, 1, 5, 9})
	}
	batch := 0
	if !s.schedules && s.chance(4) {
		s.batches++
		batch = s.batches
	}
	var together []*queue.Message
	for range 1 + s.rnd.IntN(4) {
		m := proto
		m.batch = batch
		m.classify(proto.Class)
		m.id, m.enqueued, m.size = s.NewID(), s.Now, int64(s.rnd.IntN(30))
		in := &queue.Message{Size: m.size, Message: store.Message{
			Ref: store.Ref{Queue: n.IDs[queue.Main]}, ID: m.id, EnqueuedAt: s.Now, Class: proto.Class, Payload: make([]byte, m.size),
		}}
		if s.chance(5) {
			in.NotBefore = s.Now + s.rnd.Int64N(2e9)
			if in.NotBefore > s.Now {
				m.ready, m.own = in.NotBefore, true
			}
		}
		if s.chance(5) && !s.back {
			in.ExpiresAt = s.Now + 1 + s.rnd.Int64N(4e9)
			m.expires = in.ExpiresAt
		}
		if s.chance(5) {
			in.DedupeID, in.DedupeUntil, m.dedupe = fmt.Sprintf("dedupe-%x", m.id), s.Now+1e12, true
		}
		if counts, ok := n.settings.PerKey.(*keyCount); ok && s.chance(2) {
			counts.Add(m.Key, 1)
			in.Counted, m.counted = counts, counts
		}
		if batch != 0 {
			together = append(together, in)
		}
		s.accept(&m, in)
	}
	if batch != 0 {
		n.AcceptAll(together)
	}
}

func (s *Sim) accept(m *message, in *queue.Message) {
	s.byID[m.id] = m
	s.all = append(s.all, m)
	switch {
	case m.batch != 0:
		in.Confirm.Subject = s.ask(ask{kind: askEnqueue, node: m.node, m: m})
	case s.schedules && s.chance(4):
		m.scheduled = true
		m.node.Keep(queue.WriteEntries{Message: in, Put: []store.Entry{{Key: scheduledKey(m.id), Value: "made"}}})
	case !s.chance(8):
		in.Confirm.Subject = s.ask(ask{kind: askEnqueue, node: m.node, m: m})
		fallthrough
	default:
		m.node.Accept(in)
	}
	m.node.later(func() {
		m.node.sides[queue.Main].seq++
		if m.ready <= s.Now {
			m.ready = 0
		}
		m.node.arrive(m, queue.Main, m.node.sides[queue.Main].seq)
		if m.expires != 0 && m.expires <= s.Now {
			m.own = true // it goes at once
		}
	})
}

// scheduledKey is the key of the entry that a scheduled message was made.
func scheduledKey(id store.ID) string { return fmt.Sprintf("scheduled/%x", id) }

// duplicate is a message whose dedupe id is known.
func (s *Sim) duplicate() {
	if len(s.all) == 0 {
		return
	}
	m := pick(s, s.all)
	if !m.dedupe || m.place == stuck {
		return
	}
	reply := s.ask(ask{kind: askDuplicate, node: m.node, m: m})
	m.node.Post(queue.Input{Kind: queue.Duplicate, ID: m.id, Confirm: queue.Confirmation{Subject: reply}})
	m.node.later(func() {})
}
