package inspect

import (
	"github.com/filaq/fila/sidecar/queue/gates"
	"github.com/filaq/fila/wire"
)

// Outcome is the end of an attempt that a consumer received.
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

// AttemptBounds are the upper bounds (ns) of the histogram of attempts.
var AttemptBounds = [...]int64{1e6, 5e6, 25e6, 1e8, 25e7, 1e9, 25e8, 1e10, 3e10, 6e10, 3e11, 9e11, 36e11}

// Attempts is a histogram of how long attempts took, from the delivery on.
type Attempts struct {
	Count [len(AttemptBounds) + 1]uint64 // per bucket, not cumulative
	Took  float64                        // seconds, of all
}

// Cumulative is what a queue has counted since the process started.
type Cumulative struct {
	Attempts [Outcomes]Attempts
	Blocked  [gates.BlockKinds]float64 // seconds that messages were blocked, of all together
}

// CountAttempt counts an attempt and the time that it took (ns).
func (c *Cumulative) CountAttempt(o Outcome, took int64) {
	a, i := &c.Attempts[o], 0
	for i < len(AttemptBounds) && took > AttemptBounds[i] {
		i++
	}
	a.Count[i]++
	a.Took += float64(took) / 1e9
}

// AddBlocked adds a period in which the queue did not change. A message counts as blocked
// if the queue found it blocked when it last tried; the queue tries while consumers have
// credit. While the whole queue is paused, all messages count that are ready.
func (c *Cumulative) AddBlocked(r *Reader, from, to int64) {
	pending := r.t.Links.Len()
	if pending == 0 || to <= from {
		return
	}
	seconds := float64(to-from) / 1e9
	if r.t.Pauses.Until > from {
		c.Blocked[gates.ByPause] += float64(pending) * seconds
		return
	}
	for kind, n := range r.g.BlockedBy {
		if n != 0 {
			c.Blocked[kind] += float64(n) * seconds
		}
	}
	c.Blocked[gates.ByOrder] += float64(r.t.Order.Waiting) * seconds
}
