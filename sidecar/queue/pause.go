package queue

import (
	"github.com/filaq/fila/breaker"
	"github.com/filaq/fila/drr"
)

// pauses say what operators and safety limits hold of a side.
type pauses struct {
	stalls   stalls                            // by pauses of the side
	until    int64                             // it delivers nothing until then; 0: it does
	keys     map[string]int64                  // fairness keys, until when
	failures map[string]*breaker.FailureWindow // of fairness keys, if they are limited
}

func (p PauseQueue) apply(q *side) {
	q.pauses.until = p.Until
	if p.Until == 0 {
		q.pauses.stalls.end(q.m.now)
	} else {
		q.pauses.stalls.begin(ByPause, placeQueue, q.name, q.m.now)
		q.cancelReservation(q.gating.reserving) // nothing is kept from others for a pause
	}
}

// paused reports whether the queue is paused, and ends a pause whose time is
// over.
func (q *side) paused(now int64) bool {
	if q.pauses.until == 0 {
		return false
	}
	if q.pauses.until <= now {
		q.pauses.stalls.end(q.pauses.until)
		q.pauses.until = 0
		return false
	}
	return true
}

func (p PauseKey) apply(q *side) { q.pauseKey(p.Key, p.Until) }

// pauseKey holds a fairness key until a time; 0 resumes it. It acts on the
// backlog of the key at once.
func (q *side) pauseKey(key string, until int64) {
	if until == 0 {
		delete(q.pauses.keys, key)
	} else {
		if q.pauses.keys == nil {
			q.pauses.keys = make(map[string]int64)
		}
		q.pauses.keys[key] = until
	}
	if f, ok := q.keys.ids[key]; ok {
		if r := q.gating.reserving; r != 0 && until != 0 && q.gating.subs.at(r).flow == f {
			q.cancelReservation(r)
		}
		q.lookAnew(q.gating.waits.byFlow[f])
	}
}

// keyPaused returns until when a flow is held, or 0.
func (q *side) keyPaused(f drr.Flow, now int64) int64 {
	if len(q.pauses.keys) == 0 {
		return 0
	}
	until := q.pauses.keys[q.keys.name(f)]
	if until == 0 || until > now {
		return until
	}
	delete(q.pauses.keys, q.keys.name(f))
	return 0
}

const (
	// maxFailureKeys bounds for how many fairness keys failures are counted.
	maxFailureKeys = 65_536

	defaultFailureWindowMs = 60_000
)

// countFailure pauses a fairness key that has failed too often.
func (q *side) countFailure(s *slot, now int64) {
	settings := &q.m.settings
	limit := settings.MaxFailuresPerKey
	if limit <= 0 || q.isDead() {
		return
	}
	span := settings.FailureWindowMs
	if span == 0 {
		span = defaultFailureWindowMs
	}
	key := q.keys.name(s.flow)
	w := q.pauses.failures[key]
	if w == nil {
		if q.pauses.failures == nil || len(q.pauses.failures) >= maxFailureKeys {
			q.pauses.failures = make(map[string]*breaker.FailureWindow)
		}
		w = &breaker.FailureWindow{}
		q.pauses.failures[key] = w
	}
	w.Set(limit, span*1e6, now)
	if !w.Add(now) {
		return
	}
	delete(q.pauses.failures, key)
	until := int64(Forever)
	if settings.FailureHoldMs > 0 {
		until = now + settings.FailureHoldMs*1e6
	}
	if q.pauses.keys[key] < until { // an operator's pause may be longer
		q.pauseKey(key, until)
	}
	q.note(Note{Kind: NoteKeyPaused, Key: key, Until: until})
}
