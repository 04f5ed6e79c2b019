package breaker

// FailureWindow counts failures within a time, exactly. It keeps the times of the failures that
// still count, at most limit of them, 8 bytes each. The zero value counts nothing. It is not safe
// for concurrent use.
type FailureWindow struct {
	limit  int   // 0: none
	window int64 // ns
	times  []int64
	head   int
	n      int
	last   int64 // the latest time
}

// Set changes the limit, 0 being none, and the window (ns). Failures
// counted so far stay, as far as they still matter.
func (w *FailureWindow) Set(limit, window, now int64) {
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

// Add counts a failure at time now and reports whether the window (now-window, now] has more than
// limit failures. If it has, they are forgotten.
func (w *FailureWindow) Add(now int64) bool {
	if w.limit == 0 {
		return false
	}
	if now < w.last-w.window {
		w.Clear() // the clock has been set back
	}
	now = max(now, w.last)
	w.last = now
	w.expire(now)
	if w.n >= w.limit {
		w.Clear()
		return true
	}
	if w.n == len(w.times) {
		w.grow()
	}
	w.times[(w.head+w.n)%len(w.times)] = now
	w.n++
	return false
}

// Count returns how many failures count at time now.
func (w *FailureWindow) Count(now int64) int {
	w.expire(now)
	return w.n
}

func (w *FailureWindow) expire(now int64) {
	for w.n > 0 && w.times[w.head] <= now-w.window {
		w.head = (w.head + 1) % len(w.times)
		w.n--
	}
}

func (w *FailureWindow) grow() {
	times := make([]int64, min(max(2*w.n, 8), w.limit))
	for i := range w.n {
		times[i] = w.times[(w.head+i)%len(w.times)]
	}
	w.times, w.head = times, 0
}

// Clear forgets all failures.
func (w *FailureWindow) Clear() { w.times, w.head, w.n, w.last = nil, 0, 0, 0 }
