package queue

import (
	"math"
	"slices"

	"github.com/filaq/fila/drr"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
)

// What jobs do to messages: a Pick takes those that are named out of their places, and a
// Settle says what becomes of them, in one commit with what is kept of the job. So the
// owner knows which of them it has before it writes anything, and what a job has done is
// on disk with how far it is.

func (c Claim) apply(q *side) {
	p := &Claimed{Left: make(map[MessageState]int64), Messages: make([]ClaimedMessage, 0, len(c.Messages))}
	q.m.out.Claimed = p
	for i, n := range c.Messages {
		s := q.slots.Get(n.Seq)
		switch {
		case s == nil || s.id != n.ID:
			p.Gone++
		case !c.takes(q, s):
			p.Left[q.stateOf(s)]++
		default:
			p.Messages = append(p.Messages, q.letter(n.Seq, s, i))
			q.moves(n.Seq, s)
			if s.state == slotDelayed {
				q.delays.Dropped()
				s.state = slotMoving
				continue
			}
			q.pull(s)
			s.picked = true // it waits for no time, wherever the clock is set
		}
	}
}

// moves notes that message seq is picked.
func (q *side) moves(seq uint64, s *slot) {
	if q.moving == nil {
		q.moving = make(map[uint64]drr.Flow)
	}
	q.moving[seq] = s.flow
}

// takes reports whether a pick takes s, which waits then.
func (c Claim) takes(q *side, s *slot) bool {
	switch s.state {
	case slotDelayed:
		return true
	case slotWaiting, slotOrdered:
		return !c.Delayed
	default:
		return false
	}
}

// stateOf is the state of s without what it waits for.
func (q *side) stateOf(s *slot) MessageState {
	switch s.state {
	case slotDelayed:
		return StateDelayed
	case slotWaiting, slotOrdered:
		return StatePending
	case slotLeased:
		return StateLeased
	case slotFailing:
		return StateFailing
	default:
		return StateMoving
	}
}

// letter is what is known of message seq, which waits.
func (q *side) letter(seq uint64, s *slot, i int) ClaimedMessage {
	m := store.Message{
		ID: s.id, EnqueuedAt: s.enqueuedAt, Cost: s.cost,
		Key: q.keys.name(s.flow), Weight: uint32(q.keys.weight(s.flow)),
	}
	if !q.isDead() { // a dead letter begins anew
		m.Attempts, m.ExpiresAt = s.attempts, q.expiresAt(seq, s)
		if s.state == slotDelayed {
			m.NotBefore, m.Delayed = s.readyAt, true
		}
	}
	return ClaimedMessage{Index: i, Seq: seq, Size: int64(s.size), Message: m}
}

func (c Complete) apply(q *side) {
	q.putBackPicked(c.Unclaim)
	if len(c.Move)+len(c.Finish)+len(c.Ready)+len(c.Park)+len(c.Transferred)+len(c.Unpark)+len(c.Put) == 0 {
		return
	}
	q.m.flush()
	b := q.m.journal.fresh()
	b.Ticket, b.PutConfig, b.DeleteConfig = c.Ticket, c.Put, c.Delete
	if len(c.Move) > 0 {
		b.settle, b.from = &c, q.which
	}
	b.Move = slices.Grow(b.Move, len(c.Move))
	for i := range c.Move {
		q.send(b, &c.Move[i])
	}
	q.recordMoves(b, &c)
	for _, seq := range c.Finish {
		b.Finish = append(b.Finish, q.ref(seq))
		q.moved(seq)
	}
	q.tally().Removed += int64(len(c.Finish))
	for _, seq := range c.Ready {
		s := q.slots.Get(seq)
		s.readyAt, s.stored = q.m.now, true
		b.State = append(b.State, store.State{Ref: q.ref(seq), Attempts: s.attempts, ReadyAt: s.readyAt})
		delete(q.moving, seq)
		q.pend(seq, s)
	}
	for _, seq := range c.Park {
		q.hold(b, seq)
	}
	for _, seq := range c.Transferred {
		b.Finish = append(b.Finish, q.ref(seq))
		q.moved(seq)
	}
	for _, seq := range c.Unpark {
		s := q.slots.Get(seq)
		b.State = append(b.State, store.State{Ref: q.ref(seq), Attempts: s.attempts, ReadyAt: q.pickedReadyAt(s)})
	}
	q.m.submit(b)
	q.putBackPicked(c.Unpark)
}

// pickedReadyAt is what is stored of when a message that was picked is ready. One that waits
// for no time is ready at any time to which the clock is set, and after a restart too.
func (q *side) pickedReadyAt(s *slot) int64 {
	if s.picked {
		return min(s.readyAt, q.m.now)
	}
	return s.readyAt
}

// recordMoves adds what a Settle has moved to histories: dead letters that go back to their
// queue are redriven, and what goes to another machine is moved. A message that has not
// failed yet has no history, and gets none.
func (q *side) recordMoves(b *Commit, c *Complete) {
	redriven := (&AttemptRecord{Outcome: wire.AttemptRedriven, At: q.m.now}).Append(nil)
	moved := (&AttemptRecord{Outcome: wire.AttemptMoved, At: q.m.now, From: q.name, To: c.To}).Append(nil)
	for i := range c.Move {
		g := &c.Move[i]
		switch to := q.m.sideOf(g.Message.Queue); {
		case to == q:
		case to != nil:
			b.History = append(b.History, store.Attempt{Ref: g.Message.Ref, Record: redriven})
		case q.isDead() || q.slots.Get(g.From).attempts > 0:
			b.History = append(b.History, store.Attempt{Ref: g.Message.Ref, Record: moved})
		}
	}
}

// moved forgets a message that was picked.
func (q *side) moved(seq uint64) {
	delete(q.moving, seq)
	q.forget(seq, q.slots.Get(seq), neutral, q.m.now)
}

// heldBy is who leases messages that are held, in the store. It is no name of a consumer.
const heldBy = "\x00job"

// heldUntil is when that lease ends: in the year 2200. A fila that does not know what it is
// about delivers none of them.
const heldUntil = 7_258_118_400_000_000_000

// isHeld reports whether a lease in the store is that of a message that is held.
func isHeld(l *store.Lease) bool { return l.Consumer == heldBy }

// hold has a message that was picked stay so over a restart.
func (q *side) hold(b *Commit, seq uint64) {
	s := q.slots.Get(seq)
	s.stored = true
	b.State = append(b.State, store.State{
		Ref: q.ref(seq), Attempts: s.attempts, ReadyAt: q.pickedReadyAt(s),
		Lease: store.Lease{ID: 1, Consumer: heldBy, Deadline: heldUntil},
	})
}

// send adds the move of a message to a commit. One that comes to this machine is
// counted there, one that goes to another has been.
func (q *side) send(b *Commit, g *Moved) {
	if to := q.m.sideOf(g.Message.Queue); to != nil {
		g.Message.Ref = to.ref(to.nextSeq())
		t := to.tally()
		t.Messages++
		t.Bytes += g.Size
	}
	if g.Edited {
		b.Add, b.Confirm = append(b.Add, g.Message), append(b.Confirm, "")
		b.Finish = append(b.Finish, q.ref(g.From))
		for _, record := range g.History {
			b.History = append(b.History, store.Attempt{Ref: g.Message.Ref, Record: record})
		}
		return
	}
	b.Move = append(b.Move, store.Move{From: q.ref(g.From), To: g.Message})
}

// sideOf is the side of that id; nil: it is another machine's.
func (m *Queue) sideOf(id store.QueueID) *side {
	for i := range m.sides {
		if m.sides[i].id == id {
			return &m.sides[i]
		}
	}
	return nil
}

// settled is told the outcome of the moves of c, which left this side. If it was refused
// all of its messages stay.
func (q *side) settled(c *Commit, err error) {
	gone := c.settle.Move
	if err != nil {
		stay := make([]uint64, len(gone))
		for i := range gone {
			g := &gone[i]
			stay[i] = g.From
			if to := q.m.sideOf(g.Message.Queue); to != nil {
				t := to.tally()
				t.Messages--
				t.Bytes -= g.Size
				if g.Counted != nil {
					g.Counted.Add(g.Message.Key, -1)
				}
			}
		}
		q.putBackPicked(stay)
		return
	}
	for i := range gone {
		g := &gone[i]
		q.moved(g.From)
		to := q.m.sideOf(g.Message.Queue)
		if to == nil {
			continue
		}
		if to.which != q.which {
			to.tally().Redriven++
		}
		to.arrive(&arrival{msg: g.Message, size: uint32(g.Size), counted: g.Counted}, q.m.now)
	}
}

// pickedStamp is where messages that were picked go back to: in front of all, in the
// order of their sequences.
const pickedStamp = math.MinInt64 / 2

// putBackPicked makes messages that were picked wait again, each at its place.
func (q *side) putBackPicked(seqs []uint64) {
	for _, seq := range seqs {
		s := q.slots.Get(seq)
		delete(q.moving, seq)
		switch {
		case q.expired(seq, s, q.m.now): // its timer is over
			q.deadLetter(seq, s, cause{reason: wire.ReasonExpired}, q.m.now)
		case !s.picked:
			q.wait(seq, s, q.m.now)
		case q.order.on:
			q.pend(seq, s)
		default:
			q.enter(seq, s, pickedStamp+int64(seq))
		}
		s.picked = false
	}
}

func (c WriteEntries) apply(q *side) {
	j := &q.m.journal
	q.m.flush()
	if c.Message != nil {
		q.enqueue(c.Message, q.m.now)
	}
	b := j.change(q.m.now)
	b.PutConfig, b.DeleteConfig, b.Ticket = c.Put, c.Delete, c.Ticket
	if c.Reply != "" {
		j.reply(q.m.now, Reply{Kind: ReplyData, Subject: c.Reply, Data: c.Answer})
	}
	q.m.flush()
}

func (c Reserve) apply(q *side) {
	q.m.out.Handled = &Handled{Next: q.seq + 1}
	q.seq += uint64(c.Count)
}

func (c Accept) apply(q *side) {
	for i := range c.Messages {
		g := &c.Messages[i]
		q.arrive(&arrival{msg: g.Message, size: uint32(g.Size), counted: g.Counted}, q.m.now)
	}
}
