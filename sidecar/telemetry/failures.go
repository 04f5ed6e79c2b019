package telemetry

import (
	"cmp"
	"context"
	"log/slog"
	"sync"

	"github.com/filaq/fila/sidecar/rules"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// Failure is a failed attempt at a message, or a failed call of the guard.
type Failure struct {
	Queue    string // empty for a call of the guard
	ID       string // of the message
	Key      string // fairness key of the message, or first key of the call
	Caller   string // of the call
	Attempts uint32 // including this one
	Error    string
	Code     string
	Route    string // by which the message went; empty: it had no choice
	Severity string // set by the error rules; empty is medium
	Rule     string // matching error rule; empty if none matches
}

// Failures logs the failures that the error rules classify, and publishes the severe ones as
// events. Its methods may be called from any goroutine.
type Failures struct {
	now   func() int64 // Unix ns
	event func(typ, tail string, e wire.Event)

	mu    sync.Mutex
	lines map[failureKind]failureLine // at most one for each rule and severity of a queue
}

// failureKind is the unit that limits log lines.
type failureKind struct{ queue, severity, rule string }

// failureLine records the last log line about a kind of failures.
type failureLine struct {
	at         int64 // Unix ns
	suppressed int   // failures since then that were not logged
}

// failureLineEvery is the minimum time (ns) between two lines about one kind of failures.
const failureLineEvery = int64(10e9)

// failureEvents maps severities to events.
var failureEvents = map[string]string{rules.Critical: wire.EventFailureCritical, rules.High: wire.EventFailureHigh}

// NewFailures returns a Failures that has reported nothing.
func NewFailures(now func() int64, event func(typ, tail string, e wire.Event)) *Failures {
	return &Failures{now: now, event: event}
}

// Report logs the failure unless a line about its kind is recent, and publishes an event if it
// is severe. It limits the lines itself, so log must be [Unlimited].
func (r *Failures) Report(log *slog.Logger, f *Failure) {
	r.logFailure(log, f)
	typ, severe := failureEvents[f.Severity]
	if !severe {
		return
	}
	data := map[string]any{"error": f.Error, "error_code": f.Code, "rule": f.Rule, "attempts": f.Attempts}
	tail := f.Queue
	if f.Queue == "" {
		tail = f.Key
		data["kind"], data["caller"] = api.FailureOfCall, f.Caller
	} else {
		data["id"] = f.ID
		if f.Route != "" {
			data["route"] = f.Route
		}
	}
	r.event(typ, tail, wire.Event{Queue: f.Queue, Key: f.Key, Data: data})
}

func (r *Failures) logFailure(log *slog.Logger, f *Failure) {
	kind := failureKind{f.Queue, cmp.Or(f.Severity, rules.Medium), f.Rule}
	suppressed, due := r.takeLine(kind)
	if !due {
		return
	}
	level := slog.LevelWarn
	if kind.severity == rules.Low {
		level = slog.LevelInfo
	}
	attrs := []any{"attempts", f.Attempts, "error", f.Error, "error_code", f.Code, "severity", kind.severity, "rule", kind.rule, "suppressed", suppressed}
	if f.Queue == "" {
		log.Log(context.Background(), level, "call failed", append([]any{"key", wire.ShowKey(f.Key), "caller", f.Caller}, attrs...)...)
		return
	}
	if f.Route != "" {
		attrs = append(attrs, "route", f.Route)
	}
	log.Log(context.Background(), level, "attempt failed", append([]any{"queue", f.Queue, "id", f.ID, "key", f.Key}, attrs...)...)
}

// takeLine reports whether a line about a kind of failures is due, and how many failures were
// not logged since the last line.
func (r *Failures) takeLine(kind failureKind) (suppressed int, due bool) {
	now := r.now()
	r.mu.Lock()
	defer r.mu.Unlock()
	last, again := r.lines[kind]
	if again && now >= last.at && now-last.at < failureLineEvery {
		last.suppressed++
		r.lines[kind] = last
		return 0, false
	}
	if r.lines == nil {
		r.lines = make(map[failureKind]failureLine) // most queues never need one
	}
	r.lines[kind] = failureLine{at: now}
	return last.suppressed, true
}
