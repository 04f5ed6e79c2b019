package queue

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
			q.failures = make(map[string]*failureWindow)
		}
		w = &failureWindow{}
		q.failures[key] = w
	}
	w.set(limit, span*1e6, now)
	if !w.add(now) {
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

// failureWindow counts the failures of a circuit, or of a fairness key, within a
// time, exactly: it keeps the times of those that still count, limit of them at most, 8 bytes each.
// The zero value counts nothing.
type failureWindow struct {
	limit  int   // 0: none
	window int64 // ns
	times  []int64
	head   int
	n      int
	last   int64 // the latest time
}

// set changes the limit and the window. What has been counted stays, as far as
// it still matters.
func (w *failureWindow) set(limit, window int64, now int64) {
	if int(limit) == w.limit && window == w.window {
		return
	}
	w.window = window
	w.expire(now)
	keep := min(w.n, int(limit))
	times := make([]int64, keep)
	for i := range times {
		times[i] = w.times[(w.head+w.n-keep+i)%len(w.times)]
	}
	w.limit, w.times, w.head, w.n = int(limit), times, 0, keep
}

// add counts a failure at time now and reports whether that makes more than limit
// of them in the window (now-window, now]. Then it begins anew.
func (w *failureWindow) add(now int64) bool {
	if w.limit == 0 {
		return false
	}
	if now < w.last-w.window {
		w.clear() // the clock has been set back
	}
	now = max(now, w.last)
	w.last = now
	w.expire(now)
	if w.n >= w.limit {
		w.clear()
		return true
	}
	if w.n == len(w.times) {
		w.grow()
	}
	w.times[(w.head+w.n)%len(w.times)] = now
	w.n++
	return false
}

func (w *failureWindow) expire(now int64) {
	for w.n > 0 && w.times[w.head] <= now-w.window {
		w.head = (w.head + 1) % len(w.times)
		w.n--
	}
}

func (w *failureWindow) grow() {
	times := make([]int64, min(max(2*w.n, 8), w.limit))
	for i := range w.n {
		times[i] = w.times[(w.head+i)%len(w.times)]
	}
	w.times, w.head = times, 0
}

// clear forgets all failures.
func (w *failureWindow) clear() { w.times, w.head, w.n, w.last = nil, 0, 0, 0 }
