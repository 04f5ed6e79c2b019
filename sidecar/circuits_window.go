package sidecar

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
