package telemetry

import (
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
)

// maxTracks is how many messages have a track. A new one replaces the oldest, whose span then
// has no events.
const maxTracks = 16_384

// Messages records spans of the messages whose producers trace them. Its methods may be called
// from any goroutine; methods of nil do nothing.
type Messages struct {
	tracer Tracer

	mu struct {
		sync.Mutex
		byID   map[store.ID]*track
		ids    []store.ID // keys of byID in order of arrival, a ring
		oldest int
	}
}

// track is what a span needs to know of a message that waits or is leased.
type track struct {
	parent wire.TraceParent
	since  int64       // Unix ns: when it began to wait; 0: not known
	events []SpanEvent // decisions since then
}

// NewMessages returns nil if there is no tracer.
func NewMessages(t Tracer) *Messages {
	if t == nil {
		return nil
	}
	ts := &Messages{tracer: t}
	ts.mu.byID = make(map[store.ID]*track)
	return ts
}

// of returns the track of a message. It creates one if parent is sampled. Its caller holds mu.
func (ts *Messages) of(id store.ID, parent wire.TraceParent) *track {
	t := ts.mu.byID[id]
	if t != nil || !parent.Sampled {
		return t
	}
	if len(ts.mu.ids) < maxTracks {
		ts.mu.ids = append(ts.mu.ids, id)
	} else {
		delete(ts.mu.byID, ts.mu.ids[ts.mu.oldest])
		ts.mu.ids[ts.mu.oldest] = id
		ts.mu.oldest = (ts.mu.oldest + 1) % maxTracks
	}
	t = &track{parent: parent}
	ts.mu.byID[id] = t
	return t
}

// Enqueued records an accepted message and what on_enqueue (byHook) or its headers decided.
func (ts *Messages) Enqueued(m *queue.Message, byHook bool) {
	if ts == nil {
		return
	}
	parent, ok := wire.SampledIn(m.Headers)
	if !ok {
		return
	}
	m.Watched = true
	by := "headers"
	if byHook {
		by = "on_enqueue"
	}
	attrs := []slog.Attr{
		slog.String("decided_by", by), slog.String("key", m.Key), slog.Float64("weight", float64(m.Weight)/1000),
		slog.Float64("cost", float64(m.Cost)/1000), slog.Int("priority", int(m.Priority)),
	}
	if len(m.ThrottleKeys) > 0 {
		attrs = append(attrs, slog.Any("throttle_keys", m.ThrottleKeys))
	}
	if m.CircuitKey != "" {
		attrs = append(attrs, slog.String("circuit_key", m.CircuitKey))
	}
	if len(m.Routes) > 0 {
		names := make([]string, len(m.Routes))
		for i := range m.Routes {
			names[i] = m.Routes[i].Name
		}
		attrs = append(attrs, slog.Any("routes", names))
	}
	if m.NotBefore > 0 {
		attrs = append(attrs, slog.String("not_before", wire.Timestamp(m.NotBefore)))
	}
	ts.mu.Lock()
	defer ts.mu.Unlock()
	t := ts.of(m.ID, parent)
	t.since = m.EnqueuedAt
	t.events = append(t.events[:0], SpanEvent{Name: "enqueued", At: m.EnqueuedAt, Attrs: attrs})
}

// Failed records the verdict about a failed attempt.
func (ts *Messages) Failed(v *queue.Verdict, now int64) {
	if ts == nil {
		return
	}
	ts.mu.Lock()
	defer ts.mu.Unlock()
	t := ts.of(v.ID, wire.TraceParent{})
	if t == nil {
		return
	}
	attrs := []slog.Attr{slog.Int("attempt", int(v.Attempts)), slog.String("decided_by", v.DecidedBy), slog.Duration("delay", time.Duration(v.Delay))}
	for key, text := range map[string]string{"rule": v.Rule, "reason": v.Reason, "error": v.Error, "error_code": v.Code, "route": v.Route} {
		if text != "" {
			attrs = append(attrs, slog.String(key, text))
		}
	}
	t.since = now
	t.events = []SpanEvent{{Name: "attempt failed", At: now, Attrs: attrs}}
}

// Parent returns the trace of a message, zero if it has none or its track is gone.
func (ts *Messages) Parent(id store.ID) (p wire.TraceParent) {
	if ts == nil {
		return p
	}
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if t := ts.mu.byID[id]; t != nil {
		p = t.parent
	}
	return p
}

// Waited records the span of a message from when it began to wait until its delivery. There
// is a tracer.
func (ts *Messages) Waited(w *queue.Delivery, parent wire.TraceParent, name string, shard int) {
	ts.mu.Lock()
	t := ts.of(w.ID, parent)
	since, events := t.since, t.events
	t.since, t.events = 0, nil
	ts.mu.Unlock()
	if since == 0 || since > w.At {
		since = min(w.ReadyAt, w.At)
	}
	for i := range w.Blocked {
		h := &w.Blocked[i]
		events = append(events, SpanEvent{Name: "held by " + h.Gate(), At: max(h.From, since), Attrs: []slog.Attr{
			slog.String("gate", h.Gate()), slog.String("blocked_by", h.Kind), slog.Duration("held", time.Duration(h.For)),
		}})
	}
	ts.tracer.Record(&Span{
		Name: "wait " + name, Parent: parent, Start: since, End: w.At, Events: events,
		Attrs: append(messageAttrs("wait", name, w.ID), slog.Int("attempt", int(w.Token.Attempt)), slog.String("key", w.Key), slog.Int("shard", shard)),
	})
}

// DeadLettered records that a message moved to the dead letter queue, and why.
func (ts *Messages) DeadLettered(n *queue.Note, name string, now int64) {
	if ts == nil {
		return
	}
	ts.mu.Lock()
	t := ts.mu.byID[n.ID]
	var parent wire.TraceParent
	var events []SpanEvent
	if t != nil {
		parent, events = t.parent, t.events
		t.since, t.events = 0, nil
	}
	ts.mu.Unlock()
	if t == nil {
		return
	}
	ts.tracer.Record(&Span{
		Name: "dead_letter " + name, Parent: parent, Start: now, End: now, Events: events, Error: n.Dead.Reason,
		Attrs: append(messageAttrs("dead_letter", name, n.ID), slog.String("reason", n.Dead.Reason), slog.Int("attempts", int(n.Dead.Attempts)),
			slog.String("error", n.Dead.Error), slog.String("error_code", n.Dead.ErrorCode)),
	})
}

func messageAttrs(operation, queue string, id store.ID) []slog.Attr {
	return []slog.Attr{
		slog.String(AttrSystem, System), slog.String(AttrOperation, operation),
		slog.String("queue", queue), slog.String("id", uuid.UUID(id).String()),
	}
}
