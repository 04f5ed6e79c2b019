package telemetry

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
)

const (
	// Each cause may write lineBurst lines at once, and then one per lineEvery.
	lineBurst = 20
	lineEvery = 10e9 // nanoseconds

	// Above maxCauses, all further causes of one level share a limit.
	maxCauses = 1000
)

// causeAttrs are the attributes whose values belong to the cause of a line. Clients cannot
// invent their values.
var causeAttrs = []string{"component", "queue", "change"}

// LimitLog returns a log that clients cannot flood. A cause is a level, a message and the
// values of a few attributes; each may write 20 lines at once and then one every ten seconds.
// The next line reports the number of omitted lines as "suppressed". Lines at level debug are
// not limited. now returns Unix nanoseconds.
func LimitLog(log *slog.Logger, now func() int64) *slog.Logger {
	limits := &lineLimits{now: now}
	limits.mu.byCause = make(map[cause]*lineLimit)
	return slog.New(&limitedLog{next: log.Handler(), limits: limits})
}

// Unlimited returns the log below [LimitLog], for callers that limit their lines themselves.
func Unlimited(log *slog.Logger) *slog.Logger {
	if h, ok := log.Handler().(*limitedLog); ok {
		return slog.New(h.next)
	}
	return log
}

// limitedLog is the handler of [LimitLog].
type limitedLog struct {
	next   slog.Handler
	attrs  string // causal attributes added by With
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

// causeOf returns what an attribute adds to the text of a cause.
func causeOf(a slog.Attr) string {
	if !slices.Contains(causeAttrs, a.Key) {
		return ""
	}
	return "\x00" + a.Value.String()
}

// cause is the unit that limits lines. An empty text is the shared cause of all that have no
// limit of their own.
type cause struct {
	level slog.Level
	text  string
}

// lineLimits holds the limits of recent causes.
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
	at         int64 // time at which left was computed
	suppressed int   // lines omitted since the last line
}

// allow reports whether a line may be written, and how many lines were omitted before it.
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

// add creates the limit of a cause. The caller holds mu.
func (l *lineLimits) add(c cause, now int64) *lineLimit {
	if len(l.mu.byCause) >= maxCauses {
		for old, b := range l.mu.byCause {
			if b.refill(now); b.left == lineBurst && b.suppressed == 0 {
				delete(l.mu.byCause, old) // a new limit would be the same
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

// refill adds the tokens for the elapsed time. It adds nothing if the clock was set back.
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
