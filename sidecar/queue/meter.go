package queue

import "github.com/filaq/fila/wire"

// Outcome is how an attempt that somebody received has ended.
type Outcome uint8

// The outcomes.
const (
	OutcomeAck Outcome = iota
	OutcomeNack
	OutcomeTerm
	OutcomeExpired
	Outcomes // the number of them
)

var outcomeNames = [Outcomes]string{"ack", wire.AttemptNack, wire.AttemptTerm, wire.AttemptExpired}

func (o Outcome) String() string { return outcomeNames[o] }

// AttemptBounds are the times (ns) by which attempts are counted.
var AttemptBounds = [...]int64{1e6, 5e6, 25e6, 1e8, 25e7, 1e9, 25e8, 1e10, 3e10, 6e10, 3e11, 9e11, 36e11}

// Attempts is how long attempts have taken that ended in one way, from the delivery on.
type Attempts struct {
	Count [len(AttemptBounds) + 1]uint64 // of those that took no longer than the bound, and longer than the one before
	Took  float64                        // seconds, of all
}

// Totals is what a side has counted since the machine was made.
type Cumulative struct {
	Attempts [Outcomes]Attempts
	Blocked  [BlockKinds]float64 // seconds for which messages have been blocked, of all together
}

// Totals reads what a side has counted. Messages count as blocked as the machine has
// found them last, which tries while consumers have credit; behind a pause of the queue
// all do that are ready.
func (m *Queue) Totals(s Role, now int64) Cumulative {
	q := &m.sides[s]
	t := q.totals
	t.blocked(q, m.now, now)
	return t
}

// meter counts the time since the step before, in which nothing has changed.
func (m *Queue) meter(now int64) {
	for i := range m.sides {
		q := &m.sides[i]
		q.totals.blocked(q, m.now, now)
	}
}

// blocked adds a stretch of time in which a side stood as it does.
func (t *Cumulative) blocked(q *side, from, to int64) {
	pending := q.links.Len()
	if pending == 0 || to <= from {
		return
	}
	seconds := float64(to-from) / 1e9
	if q.pauses.until > from {
		t.Blocked[ByPause] += float64(pending) * seconds
		return
	}
	for kind, n := range q.gating.blockedBy {
		if n != 0 {
			t.Blocked[kind] += float64(n) * seconds
		}
	}
	t.Blocked[ByOrder] += float64(q.order.waiting) * seconds
}

// ended counts the attempt of the leased message s, which ends now. When one began that
// an older fila has written is not known.
func (q *side) ended(s *slot, o Outcome, now int64) {
	at := q.leases.items[s.ref].at
	if at == 0 {
		return
	}
	a, took := &q.totals.Attempts[o], max(now-at, 0)
	i := 0
	for i < len(AttemptBounds) && took > AttemptBounds[i] {
		i++
	}
	a.Count[i]++
	a.Took += float64(took) / 1e9
	if s.watched {
		q.m.out.Ended = append(q.m.out.Ended, Ended{Role: q.which, Outcome: o, ID: s.id, Took: took})
	}
}
