package shard

import (
	"cmp"

	"github.com/filaq/fila/hooks"
	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
)

// redriveChunk is how many messages are moved in one transaction at most.
const redriveChunk = 256

// Redrive moves up to count messages (0: all that are there now) of q, a dead
// letter queue, back to its queue, oldest first. Leased and delayed ones are
// skipped, and so are those of a fairness key that is full. It stops where the queue
// is full, and returns how many it moved.
func (q *Queue) Redrive(count int64) (moved int64, werr *wire.Error) {
	source := q.source
	source.admin.Lock()
	defer source.admin.Unlock()
	if source.deleted.Load() {
		return 0, wire.QueueNotFound(q.name)
	}
	pick := queue.Pick{}
	// What dies again during the redrive is not taken up again.
	q.View(func(m *queue.Queue, side queue.Side, _ int64) { pick.Last = m.LastSeq(side) })
	var refused *wire.Error // because of a key
	for count == 0 || moved < count {
		pick.Max = redriveChunk
		if count > 0 {
			pick.Max = int(min(count-moved, redriveChunk))
		}
		answer, ok := q.run.do(q.changed(pick))
		if !ok {
			return moved, q.Gone()
		}
		picked := answer.picked
		if len(picked.Letters) == 0 {
			break
		}
		pick.From = picked.Next
		back := redrive{q: source, dlq: q}
		back.choose(picked.Letters)
		if err := back.move(); err != nil {
			return moved, err
		}
		moved += int64(len(back.Go))
		refused = cmp.Or(refused, back.keyRefused)
		switch {
		case back.failed != nil:
			return moved, back.failed
		case back.full != nil && moved == 0:
			return 0, back.full
		case back.full != nil:
			return moved, nil
		}
	}
	if moved == 0 {
		return 0, refused
	}
	return moved, nil
}

// redrive is one transaction of a redrive.
type redrive struct {
	queue.Redrive
	q, dlq     *Queue
	full       *wire.Error // why the rest does not fit into the queue
	keyRefused *wire.Error // that a fairness key is full, or a key not legal
	failed     *wire.Error // the store could not be read
}

// choose lets letters go back as far as they are readable and there is room, with what
// the hook or the headers decide about them now.
func (b *redrive) choose(letters []queue.Letter) {
	s := b.q.shard
	refs := make([]store.Ref, len(letters))
	for i := range letters {
		refs[i] = store.Ref{Queue: b.dlq.id, Seq: letters[i].Seq}
	}
	type content struct {
		headers map[string][]string
		payload int // bytes
	}
	read := make([]*content, len(letters))
	err := s.store.Read(refs, func(i int, headers, payload []byte) {
		if h, err := wire.DecodeHeaders(headers); err == nil {
			read[i] = &content{h, len(payload)}
		}
	})
	if err != nil {
		s.Log.Error("dead letters cannot be read", "queue", b.dlq.name, "error", err)
		b.failed = wire.Internal(err.Error())
	}
	p := b.q.policy.Load()
	var bytes int64
	for i := range letters {
		l := &letters[i]
		if b.full == nil && read[i] != nil {
			b.full = b.q.room(p, int64(len(b.Go)), bytes, l.Size)
		}
		if b.full != nil || read[i] == nil {
			b.Stay = append(b.Stay, l.Seq)
			continue
		}
		d := p.decide(b.q.name, read[i].headers, read[i].payload)
		var counted queue.KeyCounts
		var refused *wire.Error
		if p.hooks[hooks.OnEnqueue] != nil { // the headers were taken when it came
			refused = checkKeys(&d)
		}
		if refused == nil {
			counted, refused = b.q.countPending(&p.settings, d.FairnessKey)
		}
		if refused != nil { // others may go
			b.keyRefused = refused
			b.Stay = append(b.Stay, l.Seq)
			continue
		}
		m := l.Message
		m.Key, m.Weight, m.Cost = d.FairnessKey, d.Weight, d.Cost
		m.ThrottleKeys, m.CircuitKey, m.Priority = d.ThrottleKeys, d.CircuitKey, d.Priority
		bytes += l.Size
		b.Go = append(b.Go, queue.Redriven{From: l.Seq, Message: m, Size: l.Size, Counted: counted})
	}
}

// move carries it out. It returns why nothing has gone back.
func (b *redrive) move() *wire.Error {
	done := make(chan error, 1)
	b.Ticket = done
	r := b.dlq.run
	if _, ok := r.do(b.dlq.changed(b.Redrive)); !ok {
		return b.dlq.Gone()
	}
	if len(b.Go) == 0 {
		return nil
	}
	err := <-done
	r.do() // what the answer says is so
	if err != nil {
		return commitError(err)
	}
	return nil
}
