package sidecar

import (
	"errors"
	"fmt"
	"math"

	"github.com/google/uuid"

	"github.com/filaq/fila/drr"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
)

// Reading must not hold a queue up: the loop is asked in pieces of so many slots,
// and walks over lists only so far.
const (
	explainSlots = 16_384
	explainWalk  = 100_000
	explainGates = 20 // gates that an explanation of a queue or key names
)

// explainVerb answers why something waits.
func (s *Server) explainVerb(_ string, body []byte) (any, *wire.Error) {
	req, err := wire.ParseExplain(body)
	if err != nil {
		return nil, err
	}
	var q *queue
	if req.Queue != "" {
		if q, err = s.queue(req.Queue); err != nil {
			return nil, err
		}
	}
	switch req.Kind {
	case "message":
		return s.explainMessage(q, req.ID)
	case "key":
		return s.explainKey(q, req.Key)
	default:
		return s.explainQueue(q)
	}
}

// found is a message as its loop has found it, with what its gates are asked for
// outside of the loop.
type found struct {
	wire.ExplainMessage
	seq     uint64
	gates   gateList
	kind    blockKind
	at      site // what its lane waits at; kind siteFree: nowhere
	readyAt int64
	paused  int64 // the queue
	credit  int
	isHead  bool
	share   float64 // of its flow among those that wait at the same gate; 0: not known
	cost    uint32
}

// explainMessage looks for a message in q and its dead letter queue, or in all
// queues.
func (s *Server) explainMessage(q *queue, text string) (any, *wire.Error) {
	id, err := uuid.Parse(text)
	if err != nil {
		return nil, wire.BadField("id", text, "a message id is a UUID, as in the reply to an enqueue and in Fila-Id")
	}
	queues := s.queues.all()
	if q != nil {
		queues = []*queue{q}
		if q.dlq != nil {
			queues = append(queues, q.dlq)
		}
	}
	for _, q := range queues {
		if f, ok := q.find(store.ID(id)); ok {
			s.finishExplanation(q, f)
			return f.ExplainMessage, nil
		}
	}
	return wire.ExplainMessage{
		ID: text, State: wire.StateUnknown,
		Reason: "No queue has this message: it was acked, or expired and was removed, or never confirmed.",
	}, nil
}

// find looks for a message by its id. It reads the queue in pieces, so that the
// queue goes on in between.
func (q *queue) find(id store.ID) (*found, bool) {
	var f *found
	var cursor uint64
	for more := true; more && f == nil; {
		ok := q.call(func(l *loop) {
			more = false
			n := 0
			l.slots.from(cursor, func(seq uint64, s *slot) bool {
				if n++; n > explainSlots {
					cursor, more = seq, true
					return false
				}
				if s.id != id {
					return true
				}
				f = l.explain(seq, s)
				return false
			})
		})
		if !ok {
			return nil, false
		}
	}
	return f, f != nil
}

// explain says what the loop knows of message seq.
func (l *loop) explain(seq uint64, s *slot) *found {
	now := l.q.core.clock.Now()
	f := &found{seq: seq, readyAt: s.readyAt, cost: s.cost, credit: l.credit()}
	f.ID, f.Queue, f.Key = formatID(s.id), l.q.name, l.keys.name(s.flow)
	f.Attempt, f.EnqueuedAt = s.attempts+1, timestamp(s.enqueuedAt)
	if l.paused(now) {
		f.paused = l.pausedTo
	}
	if s.lane != 0 {
		ln := l.lanes.at(s.lane)
		f.gates = gatesOf(ln)
	}
	switch s.state {
	case slotWriting:
		f.State = wire.StatePending
		f.Reason = "It is being written to disk."
	case slotDelayed:
		f.State, f.ReadyAt = wire.StateDelayed, timestamp(s.readyAt)
	case slotPending:
		f.State = wire.StatePending
		if l.ordered && !s.holds && l.orders[s.flow] != nil {
			f.kind = byOrder
		}
	case slotParked:
		l.explainParked(s, f)
	case slotOrdered:
		f.State, f.kind = wire.StateParked, byOrder
		f.Ahead, _ = l.ahead(s.ref)
	case slotLeased:
		le := &l.leases.items[s.ref]
		f.State, f.Consumer, f.LeaseUntil = wire.StateLeased, le.consumer.name, timestamp(le.deadline)
	case slotFailing:
		f.State, f.Reason = wire.StatePending, "on_failure is deciding about its last attempt."
	default:
		f.State, f.Reason = wire.StatePending, "It is on its way to another queue."
	}
	if l.q.isDLQ() && f.State != wire.StateLeased {
		f.State = wire.StateDead
	}
	return f
}

// explainParked says where a parked message waits.
func (l *loop) explainParked(s *slot, f *found) {
	ln := l.lanes.at(s.lane)
	f.State, f.kind = wire.StateParked, ln.kind
	f.at = *l.sites.at(ln.site)
	if f.at.kind == sitePause {
		f.at.at = l.pausedKeys[f.Key] // also when no timer ends it
	}
	if ln.since != 0 {
		f.BlockedSince = timestamp(ln.since)
	}
	f.Ahead, f.isHead = l.ahead(s.ref)
	f.share = l.shareAt(ln)
}

// explainDead adds why a message is in the dead letter queue, if it still is.
func (s *Server) explainDead(q *queue, f *found) {
	err := s.core.store.Dead([]store.Ref{{Queue: q.id, Seq: f.seq}}, func(_ int, d *store.Dead) {
		if d == nil {
			return
		}
		f.Reason = fmt.Sprintf("It was dead-lettered from %s at %s after %s: %s.", d.SourceQueue, timestamp(d.At), plural(int64(d.Attempts), "attempt"), d.Reason)
		if d.Error != "" {
			f.Reason += " Last error: " + d.Error
		}
	})
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		f.Reason = "Why it is a dead letter cannot be read: " + err.Error()
	}
}

// ahead counts the messages in front of a link, as far as is reasonable.
func (l *loop) ahead(i uint32) (n int64, first bool) {
	for i = l.links.items[i].prev; i != 0 && n < explainWalk; i = l.links.items[i].prev {
		n++
	}
	return n, n == 0
}

// shareAt is the part of a gate that the lane's flow gets among the flows that
// wait there with it, or 0 if there are too many to look at.
func (l *loop) shareAt(ln *lane) float64 {
	line := &l.sites.at(ln.site).line
	if line.Len() > explainWalk/10 {
		return 0
	}
	var mine, all int64
	seen := make(map[drr.Flow]bool)
	for lane := range line.All() {
		f := l.lanes.at(laneID(lane)).flow
		if seen[f] {
			continue
		}
		seen[f] = true
		w := l.keys.weight(f)
		all += w
		if f == ln.flow {
			mine = w
		}
	}
	if all == 0 {
		return 0
	}
	return float64(mine) / float64(all)
}

// credit is how many more messages the consumers take.
func (l *loop) credit() int {
	n := 0
	add := func(c *consumer) { n += max(c.credit(), 0) }
	for _, c := range l.consumers.byName {
		add(c)
	}
	for c := range l.consumers.fetches {
		add(c)
	}
	return n
}

// finishExplanation asks the gates, and puts the reason into a sentence.
func (s *Server) finishExplanation(q *queue, f *found) {
	now := s.core.clock.Now()
	f.Gates = s.gateStates(f.gates, now)
	if q.isDLQ() {
		s.explainDead(q, f)
	}
	if f.Reason != "" {
		return
	}
	switch f.State {
	case wire.StateLeased:
		f.Reason = fmt.Sprintf("Consumer %s works on it until %s.", f.Consumer, f.LeaseUntil)
	case wire.StateDelayed:
		f.Reason, f.Estimate = "It waits for its time, "+f.ReadyAt+".", f.ReadyAt
	case wire.StateParked:
		s.explainBlock(f, now)
	default:
		f.Reason = pendingReason(f)
	}
	if f.paused != 0 && f.State != wire.StateLeased {
		f.Reason = "Queue " + q.name + " is paused" + untilText(f.paused) + ". " + f.Reason
		f.BlockedBy = pausedGate("queue:"+q.name, f.paused)
	}
}

func pendingReason(f *found) string {
	if f.credit == 0 {
		return "It waits for a consumer: none is registered with room for another message."
	}
	return "It is ready and goes when the turn of its key comes."
}

// explainBlock says which gate holds a parked message back.
func (s *Server) explainBlock(f *found, now int64) {
	st := s.siteState(&f.at, f.kind, "key:"+f.Key, now)
	f.BlockedBy = &st
	what := blockedText(&st)
	switch {
	case f.kind == byOrder:
		f.Reason = fmt.Sprintf("Another message of key %q is being worked on, and the queue keeps the order of a key.", f.Key)
	case !f.isHead:
		f.Reason = plural(f.Ahead, "message") + " of the same key and gates in front of it; the first of them is held back by " + what + "."
	default:
		f.Reason = "It is held back by " + what + "."
	}
	f.Estimate = estimate(f, now)
}

// estimate says when a parked message may go, if nothing changes: the time that
// the gate needs for what is in front of it, at its flow's share.
func estimate(f *found, now int64) string {
	at := max(f.at.opens(now), now)
	if at == math.MaxInt64 {
		return ""
	}
	if f.Ahead > 0 && f.at.kind == siteThrottle {
		perMessage := f.at.interval(int64(f.cost), now)
		if perMessage == 0 || f.share == 0 || f.Ahead >= explainWalk {
			return ""
		}
		wait := float64(f.Ahead) * perMessage / f.share
		if wait > math.MaxInt64/4 {
			return ""
		}
		at += int64(wait)
	}
	return timestamp(at)
}

// interval is how many nanoseconds a throttle key needs for a message of that
// cost in the long run, 0 if that is not known.
func (st *site) interval(cost, now int64) float64 {
	i := st.gate.Info(now).Limits
	var rate, window float64
	if i.Rate.Cost > 0 {
		rate = float64(cost) * float64(i.Rate.Per) / float64(i.Rate.Cost)
	}
	if i.Limit > 0 {
		window = float64(i.Window) / float64(i.Limit)
	}
	return max(rate, window)
}

// plural counts things in words.
func plural(n int64, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
