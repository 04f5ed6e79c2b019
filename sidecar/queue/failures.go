package queue

import "github.com/filaq/fila/breaker"

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
	w := q.failures[key]
	if w == nil {
		if q.failures == nil || len(q.failures) >= maxFailureKeys {
			q.failures = make(map[string]*breaker.FailureWindow)
		}
		w = &breaker.FailureWindow{}
		q.failures[key] = w
	}
	w.Set(limit, span*1e6, now)
	if !w.Add(now) {
		return
	}
	delete(q.failures, key)
	until := int64(Forever)
	if settings.FailureHoldMs > 0 {
		until = now + settings.FailureHoldMs*1e6
	}
	if q.pauses.keys[key] < until { // an operator's pause may be longer
		q.pauseKey(key, until)
	}
	q.note(Note{Kind: NoteHeld, Key: key, Until: until})
}

// retryAfter shuts the circuit of a message for everybody, as its destination has
// asked for.
func (q *side) retryAfter(s *slot, d, now int64) {
	if d <= 0 || s.sub == 0 {
		return
	}
	if c := q.gating.subs.at(s.sub).circuit; c != nil {
		q.m.announce(c, c.RetryAfter(now, now+d))
	}
}
