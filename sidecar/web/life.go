package web

import (
	"fmt"
	"slices"
	"time"

	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// life is the life of a message as a line to scale: waits, what blocked it, attempts and the
// delays before their retries, from its enqueue until now or until it became a dead letter.
type life struct {
	Parts []lifePart // in the order in which they are drawn
	Whole string     // how long all of it is
	End   string     // "now" or "dead"
}

// lifePart is a part of the line: lengths are percentages of the width.
type lifePart struct {
	Kind string // wait, blocked, attempt, failed, backoff or dead
	X, W string
	Text string
	at   int64 // Unix ns
	ns   int64
}

// lifeParts bounds the parts of a picture.
const lifeParts = 200

// lifeOf draws the life of a message that was enqueued at a time and has a history, oldest
// first. dead is when it became a dead letter; empty: it did not.
func lifeOf(enqueued, dead string, history []api.AttemptInfo, now time.Time) (l life) {
	from, err := time.Parse(time.RFC3339Nano, enqueued)
	if err != nil {
		return l
	}
	end := now
	l.End = "now"
	if t, err := time.Parse(time.RFC3339Nano, dead); err == nil {
		end, l.End = t, "dead"
	}
	for i := range history {
		l.attempt(&history[i])
		if first, ok := l.first(); ok && first < from.UnixNano() {
			from = time.Unix(0, first)
		}
	}
	for i := range l.Parts {
		if p := &l.Parts[i]; p.Kind != "backoff" && p.at+p.ns > end.UnixNano() {
			end = time.Unix(0, p.at+p.ns)
		}
	}
	all := end.Sub(from)
	if all <= 0 || len(l.Parts) == 0 {
		return life{}
	}
	if l.End == "dead" {
		l.add("dead", end.UnixNano(), 0, "became a dead letter")
	}
	l.Whole = wire.Span(all)
	l.scale(from.UnixNano(), int64(all))
	return l
}

// first is when the part that was added last began.
func (l *life) first() (at int64, ok bool) {
	if len(l.Parts) == 0 {
		return 0, false
	}
	return slices.MinFunc(l.Parts, func(a, b lifePart) int { return int(min(max(a.at-b.at, -1), 1)) }).at, true
}

func (l *life) add(kind string, at, ns int64, text string) {
	if len(l.Parts) < lifeParts {
		l.Parts = append(l.Parts, lifePart{Kind: kind, at: at, ns: ns, Text: text})
	}
}

// attempt adds an attempt with the wait before it and the delay after it. How long gates
// blocked the message is known, and not when: these parts stand at the beginning of the wait.
func (l *life) attempt(a *api.AttemptInfo) {
	at, err := time.Parse(time.RFC3339Nano, a.At)
	if err != nil || a.Attempt == 0 {
		return
	}
	const ms = int64(time.Millisecond)
	began := at.UnixNano()
	ready := began - a.WaitedMs*ms
	if a.WaitedMs > 0 {
		l.add("wait", ready, a.WaitedMs*ms, fmt.Sprintf("waited %s", spanMs(a.WaitedMs)))
	}
	for _, h := range a.Held {
		ns := min(h.Ms*ms, began-ready)
		l.add("blocked", ready, ns, fmt.Sprintf("blocked by %s (%s) for %s", h.Gate, h.Kind, spanMs(h.Ms)))
		ready += ns
	}
	kind := "attempt"
	if a.Outcome != "ack" {
		kind = "failed"
	}
	text := fmt.Sprintf("attempt %d", a.Attempt)
	if a.Route != "" {
		text += " by route " + a.Route
	}
	text += ": " + a.EndText(spanMs)
	if a.Times > 1 {
		text += fmt.Sprintf(", the first of %d in a row", a.Times)
	}
	l.add(kind, began, a.TookMs*ms, text)
	if a.DelayMs > 0 {
		l.add("backoff", began+a.TookMs*ms, a.DelayMs*ms, fmt.Sprintf("retry after %s", spanMs(a.DelayMs)))
	}
}

// leastPart is how wide (percent) an attempt is drawn at least.
const leastPart = 0.5

// scale computes the places of all parts.
func (l *life) scale(from, all int64) {
	for i := range l.Parts {
		p := &l.Parts[i]
		x := 100 * float64(p.at-from) / float64(all)
		w := 100 * float64(p.ns) / float64(all)
		switch p.Kind {
		case "attempt", "failed", "dead":
			w = max(w, leastPart)
			x = min(x, 100-leastPart)
		}
		x = min(max(x, 0), 100)
		p.X, p.W = percentOf(x), percentOf(min(w, 100-x))
	}
}
