package sidecar

import (
	"cmp"
	"errors"

	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
)

// What is moved in one transaction at most: so many messages, and no more after
// so many bytes.
const (
	redriveChunk      = 256
	redriveChunkBytes = 16 << 20
)

// redriveItem is a dead letter on its way back.
type redriveItem struct {
	from    uint64
	arrival arrival
	headers map[string][]string
	payload int // bytes
}

// redrive moves up to count messages (0: all that are there now) of a dead
// letter queue back to its queue, oldest first. Leased and delayed ones are
// skipped, and so are those of a fairness key that is full. It stops where the queue
// is full, and returns how many it moved.
func (s *Server) redrive(dlq *queue, count int64) (int64, *wire.Error) {
	q := dlq.source
	q.admin.Lock()
	defer q.admin.Unlock()
	if q.deleted.Load() {
		return 0, wire.QueueNotFound(dlq.name)
	}
	// What dies again during the redrive is not taken up again.
	last := dlq.seq.Load()
	var cursor uint64
	var moved int64
	var refused *wire.Error // by the limit of a fairness key
	for count == 0 || moved < count {
		n := redriveChunk
		if count > 0 {
			n = int(min(count-moved, redriveChunk))
		}
		var items []redriveItem
		if !dlq.call(func(l *loop) { items, cursor = l.pick(cursor, last, n) }) {
			return moved, dlq.gone()
		}
		if len(items) == 0 {
			break
		}
		done, full, keyFull, err := s.moveBack(q, dlq, items)
		moved += int64(done)
		refused = cmp.Or(refused, keyFull)
		switch {
		case err != nil:
			return moved, err
		case full != nil && moved == 0:
			return 0, full
		case full != nil:
			return moved, nil
		}
	}
	if moved == 0 {
		return 0, refused
	}
	return moved, nil
}

// pick takes up to n pending messages with sequences from cursor to last out of
// the scheduler, oldest first.
func (l *loop) pick(cursor, last uint64, n int) ([]redriveItem, uint64) {
	var items []redriveItem
	var bytes int64
	l.slots.from(cursor, func(seq uint64, s *slot) bool {
		if len(items) == n || bytes >= redriveChunkBytes || seq > last {
			return false
		}
		cursor = seq + 1
		switch s.state {
		case slotPending:
			l.unpend(s)
			l.unready(seq, s)
		case slotParked: // its key is paused
			l.unpark(s)
		default:
			return true
		}
		bytes += int64(s.size)
		items = append(items, redriveItem{from: seq, arrival: arrival{size: s.size, msg: store.Message{
			ID: s.id, EnqueuedAt: s.enqueuedAt, Cost: s.cost,
			Key: l.keys.name(s.flow), Weight: uint32(l.keys.weight(s.flow)),
		}}})
		return true
	})
	return items, cursor
}

// moveBack moves items to q in one transaction and puts back what cannot go. It
// returns how many went, why the rest did not fit into the queue, and which fairness
// key was full, if that was so.
func (s *Server) moveBack(q, dlq *queue, items []redriveItem) (done int, full, keyFull, failed *wire.Error) {
	c := s.core
	refs := make([]store.Ref, len(items))
	read := make([]bool, len(items))
	for i := range items {
		refs[i] = store.Ref{Queue: dlq.id, Seq: items[i].from}
	}
	err := c.store.Read(refs, func(i int, headers, payload []byte) {
		h, err := wire.DecodeHeaders(headers)
		items[i].headers, items[i].payload, read[i] = h, len(payload), err == nil
	})
	if err != nil {
		c.log.Error("dead letters cannot be read", "queue", dlq.name, "error", err)
		failed = wire.Internal(err.Error())
	}
	p := q.policy.Load()
	b := &store.Batch{}
	var moving, staying []redriveItem
	for i := range items {
		it := &items[i]
		if full == nil && read[i] {
			full = c.room(q, p, int64(it.arrival.size))
		}
		if full != nil || !read[i] {
			staying = append(staying, *it)
			continue
		}
		d := p.decide(q.name, it.headers, it.payload)
		counted, refused := q.pendingLimit(&p.settings, d.FairnessKey)
		if refused != nil { // other keys may have room
			keyFull = refused
			staying = append(staying, *it)
			continue
		}
		it.arrival.counted = counted
		m := &it.arrival.msg
		m.Ref = store.Ref{Queue: q.id, Seq: q.nextSeq()}
		m.Key, m.Weight, m.Cost = d.FairnessKey, d.Weight, d.Cost
		m.ThrottleKeys, m.CircuitKey = d.ThrottleKeys, d.CircuitKey
		q.depth.Add(1)
		q.bytes.Add(int64(it.arrival.size))
		b.Move = append(b.Move, store.Move{From: refs[i], To: *m})
		moving = append(moving, *it)
	}
	if len(moving) > 0 {
		if err := c.commit(b); err != nil {
			for i := range moving {
				q.depth.Add(-1)
				q.bytes.Add(-int64(moving[i].arrival.size))
				moving[i].arrival.counted.giveBack(moving[i].arrival.msg.Key)
			}
			failed = c.commitError(err)
			if errors.Is(err, store.ErrNoQueue) || errors.Is(err, store.ErrCorrupt) || errors.Is(err, store.ErrNotFound) {
				staying = append(moving, staying...)
			} else {
				c.fail(err)
			}
			moving = nil
		}
	}
	dlq.call(func(l *loop) { l.redriven(moving, staying) })
	q.tell(func(l *loop) {
		now := c.clock.Now()
		for i := range moving {
			l.arrive(&moving[i].arrival, now)
		}
	})
	q.metrics.redriven.Add(float64(len(moving)))
	return len(moving), full, keyFull, failed
}

// redriven forgets the dead letters that went back and makes the others pending
// again, each at its place.
func (l *loop) redriven(gone, staying []redriveItem) {
	now := l.q.core.clock.Now()
	for i := range gone {
		l.forget(gone[i].from, l.slots.get(gone[i].from), neutral, now)
	}
	for i := len(staying) - 1; i >= 0; i-- {
		s := l.slots.get(staying[i].from)
		s.state, s.front = slotPending, true
		if s.lane != 0 {
			ln := l.lanes.at(s.lane)
			l.uncall(ln)
			ln.ready++
			ln.returned++
		}
		s.ref = uint32(l.sched.Return(s.flow, l.keys.weight(s.flow), staying[i].from, int64(s.cost)))
	}
}
