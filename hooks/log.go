package hooks

import (
	"context"
	"log/slog"
	"time"
)

// rateLimit admits burst events at once and then one per interval every. It is for
// one goroutine at a time.
type rateLimit struct {
	burst      int
	every      time.Duration
	left       int
	last       int64 // Unix nanoseconds
	started    bool
	suppressed int
}

// allow reports whether an event at time now (Unix nanoseconds) is admitted, and
// how many events were suppressed since the last admitted one.
func (r *rateLimit) allow(now int64) (suppressed int, ok bool) {
	switch {
	case !r.started:
		r.started, r.left, r.last = true, r.burst, now
	case now < r.last: // the clock jumped back
		r.last = now
	default:
		if n := (now - r.last) / int64(r.every); n > 0 {
			r.left = int(min(int64(r.burst), int64(r.left)+n))
			r.last += n * int64(r.every)
		}
	}
	if r.left == 0 {
		r.suppressed++
		return 0, false
	}
	r.left--
	suppressed, r.suppressed = r.suppressed, 0
	return suppressed, true
}

// scriptLog returns the log for fila.log and print. All runs of a hook share 20
// lines at once and 20 per second.
func scriptLog(log *slog.Logger, now func() int64) func(slog.Level, string) {
	r := rateLimit{burst: 20, every: time.Second / 20}
	return func(level slog.Level, line string) {
		if n, ok := r.allow(now()); ok {
			args := []any{"text", line}
			if n > 0 {
				args = append(args, "suppressed", n)
			}
			log.Log(context.Background(), level, "hook log", args...)
		}
	}
}
