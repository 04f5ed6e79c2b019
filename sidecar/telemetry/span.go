package telemetry

import (
	"encoding/hex"
	"log/slog"
	"strings"

	"github.com/filaq/fila/wire"
)

// Tracer receives finished spans. Its methods may be called from any goroutine and do not
// block.
type Tracer interface {
	Record(s *Span)
}

// Span is a timed operation in a trace. Its attributes have the keys of log lines, which
// [AttrName] translates.
type Span struct {
	Name       string
	Kind       SpanKind
	Parent     wire.TraceParent // the zero value begins a trace
	Start, End int64            // Unix ns
	Attrs      []slog.Attr
	Events     []SpanEvent
	Error      string // empty on success
}

// SpanEvent is an event during a span.
type SpanEvent struct {
	Name  string
	At    int64 // Unix ns
	Attrs []slog.Attr
}

// SpanKind tells whether a span answers a request.
type SpanKind uint8

// Kinds of spans.
const (
	SpanInternal SpanKind = iota // work that fila starts itself
	SpanServer                   // the answer to a request
)

// Attributes of every span about messages.
const (
	AttrSystem    = "messaging.system"
	AttrOperation = "messaging.operation.name"
	System        = "fila" // value of AttrSystem
)

// attrNames maps attributes to their names in the OpenTelemetry semantic conventions. All other
// attributes are specific to fila.
var attrNames = map[string]string{
	"queue":      "messaging.destination.name",
	"id":         "messaging.message.id",
	"consumer":   "messaging.consumer.group.name",
	"error":      "exception.message",
	"error_code": "error.type",
	"trace_id":   "trace_id",
	"span_id":    "span_id",
}

// AttrName returns the name that an attribute has in OpenTelemetry and in JSON logs, given its
// key in the code and in text logs.
func AttrName(key string) string {
	if name := attrNames[key]; name != "" {
		return name
	}
	if strings.Contains(key, ".") {
		return key
	}
	return "fila." + key
}

// LogAttr gives an attribute of a log line its OpenTelemetry name. It is meant for
// [slog.HandlerOptions].
func LogAttr(groups []string, a slog.Attr) slog.Attr {
	if len(groups) == 0 && (a.Key == slog.TimeKey || a.Key == slog.LevelKey || a.Key == slog.MessageKey) {
		return a
	}
	a.Key = AttrName(a.Key)
	return a
}

// TraceAttrs returns the attributes of a log line that belongs to a trace, or nil without a
// trace.
func TraceAttrs(p wire.TraceParent) []any {
	if !p.Sampled {
		return nil
	}
	return []any{slog.String("trace_id", hex.EncodeToString(p.Trace[:])), slog.String("span_id", hex.EncodeToString(p.Span[:]))}
}
