package telemetry

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
)

const (
	// Lines of one cause go through at once up to lineBurst, and then one in lineEvery.
	lineBurst = 20
	lineEvery = 10e9 // nanoseconds

	// More causes than maxCauses at a time share one limit for each level.
	maxCauses = 1000
)

// causeAttrs are the attributes that make a line one of another cause. Clients cannot
// make up their values.
var causeAttrs = []string{"component", "queue", "change"}

// LimitLog returns a log that clients cannot flood: of one cause, which is a level, a
// message and the values of a few attributes, 20 lines at once and then one in ten
// seconds. The next line tells in suppressed how many were not written. Lines at level
// debug are not limited. now is in Unix nanoseconds.
func LimitLog(log *slog.Logger, now func() int64) *slog.Logger {
	limits := &lineLimits{now: now}
	limits.mu.byCause = make(map[cause]*lineLimit)
	return slog.New(&limitedLog{next: log.Handler(), limits: limits})
}

// Unlimited returns log as it was before [LimitLog], for those who limit themselves.
func Unlimited(log *slog.Logger) *slog.Logger {
	if h, ok := log.Handler().(*limitedLog); ok {
		return slog.New(h.next)
	}
	return log
}

// limitedLog is the handler of [LimitLog].
type limitedLog struct {
	next   slog.Handler
	attrs  string // of the cause, as far as With has said them
	limits *lineLimits
}

func (h *limitedLog) Enabled(ctx context.Context, level slog.Level) bool {
	return h.next.Enabled(ctx, level)
}

func (h *limitedLog) Handle(ctx context.Context, r slog.Record) error {
	if r.Level <= slog.LevelDebug {
		return h.next.Handle(ctx, r)
	}
	attrs := h.attrs
	r.Attrs(func(a slog.Attr) bool {
		attrs += causeOf(a)
		return true
	})
	suppressed, ok := h.limits.allow(cause{level: r.Level, text: r.Message + attrs})
	if !ok {
		return nil
	}
	if suppressed > 0 {
		r = r.Clone()
		r.AddAttrs(slog.Int("suppressed", suppressed))
	}
	return h.next.Handle(ctx, r)
}

func (h *limitedLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	var own strings.Builder
	own.WriteString(h.attrs)
	for _, a := range attrs {
		own.WriteString(causeOf(a))
	}
	return &limitedLog{next: h.next.WithAttrs(attrs), attrs: own.String(), limits: h.limits}
}

func (h *limitedLog) WithGroup(name string) slog.Handler {
	return &limitedLog{next: h.next.WithGroup(name), attrs: h.attrs, limits: h.limits}
}

// causeOf is what an attribute adds to the text of a cause.
func causeOf(a slog.Attr) string {
	if !slices.Contains(causeAttrs, a.Key) {
		return ""
	}
	return "\x00" + a.Value.String()
}

// cause is why a line is written. An empty text stands for all that have no limit of
// their own.
type cause struct {
	level slog.Level
	text  string
}

// lineLimits has the limits of causes that have written lines lately.
type lineLimits struct {
	now func() int64

	mu struct {
		sync.Mutex
		byCause map[cause]*lineLimit
	}
}

// lineLimit is a token bucket.
type lineLimit struct {
	left       int
	at         int64 // when left was what it is
	suppressed int   // lines since the last one that was written
}

// allow reports whether a line may be written, and how many were not before it.
func (l *lineLimits) allow(c cause) (suppressed int, ok bool) {
	now := l.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.mu.byCause[c]
	if b == nil {
		b = l.add(c, now)
	}
	b.refill(now)
	if b.left == 0 {
		b.suppressed++
		return 0, false
	}
	b.left--
	suppressed, b.suppressed = b.suppressed, 0
	return suppressed, true
}

// add gives a cause a limit. It needs mu.
func (l *lineLimits) add(c cause, now int64) *lineLimit {
	if len(l.mu.byCause) >= maxCauses {
		for old, b := range l.mu.byCause {
			if b.refill(now); b.left == lineBurst && b.suppressed == 0 {
				delete(l.mu.byCause, old) // a new one would be the same
			}
		}
	}
	if len(l.mu.byCause) >= maxCauses {
		c.text = ""
	}
	b := l.mu.byCause[c]
	if b == nil {
		b = &lineLimit{left: lineBurst, at: now}
		l.mu.byCause[c] = b
	}
	return b
}

// refill adds what time has brought. A clock that was set back brings nothing.
func (b *lineLimit) refill(now int64) {
	n := (now - b.at) / lineEvery
	switch {
	case now < b.at:
		b.at = now
	case n >= int64(lineBurst-b.left):
		b.left, b.at = lineBurst, now
	default:
		b.left += int(n)
		b.at += n * lineEvery
	}
}
