package sidecar

import (
	"math/rand/v2"

	"github.com/filaq/fila/wire"
)

// judge asks the rules about a failure, and says what it means for the circuit.
func (l *loop) judge(s *slot, f *failure) ending {
	if l.q.isDLQ() {
		return neutral
	}
	if r := l.q.core.rules.Load(); r != nil {
		f.verdict = r.judge(l.q.name, l.q.policy.Load().settings.RetryPolicy, f.code, f.err, s.attempts, rand.Float64)
	}
	l.q.metrics.failure(f.verdict.severity)
	if f.verdict.messageFault {
		return neutral
	}
	return failed
}

// deadReason says why a message shall not be retried, or is empty if it shall.
func (v *verdict) deadReason() string {
	switch {
	case v.severity == severityCritical:
		return wire.ReasonCritical
	case !v.retry:
		return wire.ReasonRetryPolicy
	}
	return ""
}

// report publishes the failures that somebody should look at, when the rules
// have decided about them.
func (l *loop) report(s *slot, f *failure) {
	typ := ""
	switch f.verdict.severity {
	case severityCritical:
		typ = wire.EventFailureCritical
	case severityHigh:
		typ = wire.EventFailureHigh
	default:
		return
	}
	l.q.core.event(typ, l.q.name, wire.Event{Queue: l.q.name, Key: l.keys.name(s.flow), Data: map[string]any{
		"id": formatID(s.id), "error": f.err, "error_code": f.code, "rule": f.verdict.rule, "attempts": s.attempts,
	}})
}

const (
	// maxFailureKeys bounds for how many fairness keys failures are counted.
	maxFailureKeys = 65_536

	defaultFailureWindowMs = 60_000
)

// countFailure holds a fairness key that has failed too often.
func (l *loop) countFailure(s *slot, now int64) {
	settings := &l.q.policy.Load().settings
	limit := settings.MaxFailuresPerKey
	if limit <= 0 || l.q.isDLQ() {
		return
	}
	window := settings.FailureWindowMs
	if window == 0 {
		window = defaultFailureWindowMs
	}
	key := l.keys.name(s.flow)
	w := l.failures[key]
	if w == nil {
		if l.failures == nil || len(l.failures) >= maxFailureKeys {
			l.failures = make(map[string]*failureWindow)
		}
		w = &failureWindow{}
		l.failures[key] = w
	}
	w.set(limit, window*1e6, now)
	if !w.add(now) {
		return
	}
	delete(l.failures, key)
	until := int64(byHand)
	if settings.FailureHoldMs > 0 {
		until = now + settings.FailureHoldMs*1e6
	}
	if l.pausedKeys[key] < until { // an operator's pause may be longer
		l.pauseKey(key, until)
	}
	l.q.core.hold(l.q, key, until)
}

// retryAfter shuts the circuit of a message for everybody, as its destination has
// asked for.
func (l *loop) retryAfter(s *slot, d, now int64) {
	if d <= 0 || s.lane == 0 {
		return
	}
	if ci := l.lanes.at(s.lane).circuit; ci != nil {
		ci.retryAfter(now, now+d)
	}
}
