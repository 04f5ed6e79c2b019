package queue

import (
	"math"
	"slices"

	"github.com/filaq/fila/drr"
	"github.com/filaq/fila/sidecar/queue/backlog"
	"github.com/filaq/fila/sidecar/queue/history"
	"github.com/filaq/fila/sidecar/queue/inspect"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
)

// Jobs change messages in two steps: Claim takes named messages out of their places, and Complete
// says what becomes of them, in one commit with the record of the job. So the job knows
// which messages it has before it writes anything, and its effects are on disk together
// with its progress.

func (c Claim) apply(q *side) {
	out := &Claimed{Left: make(map[inspect.MessageState]int64), Messages: make([]ClaimedMessage, 0, len(c.Messages))}
	q.m.out.Claimed = out
	for i, ref := range c.Messages {
		s := q.Slots.Get(ref.Seq)
		switch {
		case s == nil || s.ID != ref.ID:
			out.Gone++
		case !c.takes(s):
			out.Left[inspect.StateOf(s)]++
		default:
			out.Messages = append(out.Messages, q.claimed(ref.Seq, s, i))
			q.markMoving(ref.Seq, s)
			if s.State == backlog.Delayed {
				q.Delays.Dropped()
				s.State = backlog.Moving
				continue
			}
			q.pull(s)
			s.Claimed = true // it is ready, whatever the clock is set to
		}
	}
}

func (q *side) markMoving(seq uint64, s *backlog.Slot) {
	if q.Moving == nil {
		q.Moving = make(map[uint64]drr.Flow)
	}
	q.Moving[seq] = s.Flow
}

// takes reports whether the claim takes s, which then waits.
func (c Claim) takes(s *backlog.Slot) bool {
	return s.State == backlog.Delayed || !c.Delayed && (s.State == backlog.Waiting || s.State == backlog.Ordered)
}

// claimed describes message seq, which waits.
func (q *side) claimed(seq uint64, s *backlog.Slot, i int) ClaimedMessage {
	m := store.Message{ID: s.ID, EnqueuedAt: s.EnqueuedAt, Class: q.Class(s)}
	if !q.isDead() { // a dead letter starts again
		m.Attempts, m.ExpiresAt = s.Attempts, q.ExpiresAt(seq, s)
		if s.State == backlog.Delayed {
			m.NotBefore, m.Delayed = s.ReadyAt, true
		}
	}
	return ClaimedMessage{Index: i, Seq: seq, Size: int64(s.Size), Message: m}
}

func (c Complete) apply(q *side) {
	q.unclaim(c.Unclaim)
	if len(c.Move)+len(c.Finish)+len(c.Ready)+len(c.Park)+len(c.Transferred)+len(c.Unpark)+len(c.Put) == 0 {
		return
	}
	q.m.flush()
	b := q.m.journal.fresh()
	b.Ticket, b.PutConfig, b.DeleteConfig = c.Ticket, c.Put, c.Delete
	if len(c.Move) > 0 {
		b.completes, b.from = &c, q.role
	}
	b.Move = slices.Grow(b.Move, len(c.Move))
	for i := range c.Move {
		q.addMove(b, &c.Move[i])
	}
	q.recordMoves(b, &c)
	for _, seq := range slices.Concat(c.Finish, c.Transferred) {
		b.Finish = append(b.Finish, q.ref(seq))
		q.forgetMoving(seq)
	}
	q.count().Removed += int64(len(c.Finish))
	for _, seq := range c.Ready {
		s := q.Slots.Get(seq)
		s.ReadyAt, s.Stored = q.m.now, true
		b.State = append(b.State, store.State{Ref: q.ref(seq), Attempts: s.Attempts, ReadyAt: s.ReadyAt})
		delete(q.Moving, seq)
		q.ready(seq, s)
	}
	for _, seq := range c.Park {
		s := q.Slots.Get(seq)
		s.Stored = true
		b.State = append(b.State, store.State{Ref: q.ref(seq), Attempts: s.Attempts, ReadyAt: q.claimedReadyAt(s), Lease: parkedLease})
	}
	for _, seq := range c.Unpark {
		s := q.Slots.Get(seq)
		b.State = append(b.State, store.State{Ref: q.ref(seq), Attempts: s.Attempts, ReadyAt: q.claimedReadyAt(s)})
	}
	q.m.submit(b)
	q.unclaim(c.Unpark)
}

// claimedReadyAt is what is stored as ReadyAt of a claimed message. One that was ready
// stays so whatever the clock is set to, and after a restart.
func (q *side) claimedReadyAt(s *backlog.Slot) int64 {
	if s.Claimed {
		return min(s.ReadyAt, q.m.now)
	}
	return s.ReadyAt
}

// recordMoves adds the moves of c to the histories: dead letters that return to their
// queue are redriven, messages that go to another machine are moved. A message that has
// never failed has no history, and gets none.
func (q *side) recordMoves(b *Commit, c *Complete) {
	redriven := (&history.AttemptRecord{Outcome: wire.AttemptRedriven, At: q.m.now}).Append(nil)
	moved := (&history.AttemptRecord{Outcome: wire.AttemptMoved, At: q.m.now, From: q.name, To: c.To}).Append(nil)
	for i := range c.Move {
		g := &c.Move[i]
		switch to := q.m.sideOf(g.Message.Queue); {
		case to == q:
		case to != nil:
			b.History = append(b.History, store.Attempt{Ref: g.Message.Ref, Record: redriven})
		case q.isDead() || q.Slots.Get(g.From).Attempts > 0:
			b.History = append(b.History, store.Attempt{Ref: g.Message.Ref, Record: moved})
		}
	}
}

// forgetMoving forgets a claimed message that has left.
func (q *side) forgetMoving(seq uint64) {
	delete(q.Moving, seq)
	q.forget(seq, q.Slots.Get(seq), neutral, q.m.now)
}

// parkedLease is the lease that the store has of a parked message: its consumer has a
// name that no consumer can have, and it ends in the year 2200. A fila that does not
// know parked messages does not deliver them.
var parkedLease = store.Lease{ID: 1, Consumer: "\x00job", Deadline: 7_258_118_400_000_000_000}

// isParked reports whether a lease in the store belongs to a parked message.
func isParked(l *store.Lease) bool { return l.Consumer == parkedLease.Consumer }

// addMove adds the move of a message to a commit. A message that stays in this machine
// is counted here; a message for another machine has been counted there.
func (q *side) addMove(b *Commit, g *Moved) {
	if to := q.m.sideOf(g.Message.Queue); to != nil {
		g.Message.Ref = to.ref(to.nextSeq())
		to.countMessage(1, g.Size)
	}
	if !g.Edited {
		b.Move = append(b.Move, store.Move{From: q.ref(g.From), To: g.Message})
		return
	}
	b.Add, b.Confirm = append(b.Add, g.Message), append(b.Confirm, Confirmation{})
	b.Finish = append(b.Finish, q.ref(g.From))
	for _, record := range g.History {
		b.History = append(b.History, store.Attempt{Ref: g.Message.Ref, Record: record})
	}
}

// sideOf is the side with that id; nil: the id belongs to another machine.
func (m *Queue) sideOf(id store.QueueID) *side {
	for i := range m.sides {
		if m.sides[i].id == id {
			return &m.sides[i]
		}
	}
	return nil
}

// completed handles the outcome of the moves of c, which left this side. If the commit
// was refused all of its messages stay.
func (q *side) completed(c *Commit, err error) {
	moves := c.completes.Move
	if err != nil {
		stay := make([]uint64, len(moves))
		for i := range moves {
			g := &moves[i]
			stay[i] = g.From
			if to := q.m.sideOf(g.Message.Queue); to != nil {
				to.countMessage(-1, g.Size)
				if g.Counted != nil {
					g.Counted.Add(g.Message.Key, -1)
				}
			}
		}
		q.unclaim(stay)
		return
	}
	for i := range moves {
		g := &moves[i]
		q.forgetMoving(g.From)
		to := q.m.sideOf(g.Message.Queue)
		if to == nil {
			continue
		}
		if to != q {
			to.count().Redriven++
		}
		to.arrive(&g.Message, g.Size, g.Counted, q.m.now)
	}
}

// unclaimedStamp is where claimed messages return to: in front of all others, in the
// order of their sequences.
const unclaimedStamp = math.MinInt64 / 2

// unclaim makes claimed messages wait again, each at its place.
func (q *side) unclaim(seqs []uint64) {
	for _, seq := range seqs {
		s := q.Slots.Get(seq)
		delete(q.Moving, seq)
		switch {
		case q.Expired(seq, s, q.m.now): // its timer has fired already
			q.deadLetterExpired(seq, s, q.m.now)
		case !s.Claimed:
			q.wait(seq, s, q.m.now)
		case q.Order.On:
			q.ready(seq, s)
		default:
			q.insert(seq, s, unclaimedStamp+int64(seq))
		}
		s.Claimed = false
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
	if c.Confirm.Awaited() {
		j.reply(q.m.now, Reply{Kind: ReplyData, Confirmation: c.Confirm, Data: c.Answer})
	}
	q.m.flush()
}

func (c EnqueueAll) apply(q *side) {
	q.m.flush()
	for _, m := range c.Messages {
		q.enqueue(m, q.m.now)
	}
	q.m.journal.open.whole = true
	q.m.flush()
}

func (c Reserve) apply(q *side) {
	q.m.out.Handled = &Handled{Next: q.seq + 1}
	q.seq += uint64(c.Count)
}

func (c Accept) apply(q *side) {
	for i := range c.Messages {
		g := &c.Messages[i]
		q.arrive(&g.Message, g.Size, g.Counted, q.m.now)
	}
}
