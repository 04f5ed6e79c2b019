package hooks

import (
	"context"
	"log/slog"
	"time"
)

// rateLimit lets burst events through at once and then one per every. It is
// owned by one goroutine.
type rateLimit struct {
	burst      int
	every      time.Duration
	left       int
	last       int64
	started    bool
	suppressed int
}

// allow tells whether an event at time now (Unix nanoseconds) may pass, and
// how many have not since the last one that did.
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

// scriptLog returns what fila.log and print write to: lines of all runs of one
// hook share 20 at once and 20 per second.
func scriptLog(log *slog.Logger, now func() int64) func(slog.Level, string) {
	r := rateLimit{burst: 20, every: time.Second / 20}
	return func(level slog.Level, line string) {
		if n, ok := r.allow(now()); ok {
			args := []any{"text", line}
			if n > 0 {
				args = append(args, "suppressed", n)
			}
			log.Log(context.Background(), level, "hook says", args...)
		}
	}
}
