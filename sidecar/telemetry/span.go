package telemetry

import (
	"encoding/hex"
	"log/slog"
	"strings"

	"github.com/filaq/fila/wire"
)

// Tracer takes spans that are over. Its methods may be called from any goroutine and do
// not block.
type Tracer interface {
	Record(s *Span)
}

// Span is something that took time, as part of a trace. Its attributes have the keys of
// log lines, which [AttrName] translates.
type Span struct {
	Name       string
	Kind       SpanKind
	Parent     wire.TraceParent // the zero value: it begins a trace
	Start, End int64            // Unix ns
	Attrs      []slog.Attr
	Events     []SpanEvent
	Error      string // empty: it went well
}

// SpanEvent is something that happened meanwhile.
type SpanEvent struct {
	Name  string
	At    int64 // Unix ns
	Attrs []slog.Attr
}

// SpanKind says which end of a conversation a span is.
type SpanKind uint8

// Kinds of spans.
const (
	SpanInternal SpanKind = iota // what fila does by itself
	SpanServer                   // a request is answered
)

// Attributes that every span about messages has.
const (
	AttrSystem    = "messaging.system"
	AttrOperation = "messaging.operation.name"
	System        = "fila" // value of AttrSystem
)

// attrNames are the names of attributes for which the semantic conventions of
// OpenTelemetry have one. All others are of fila's own.
var attrNames = map[string]string{
	"queue":      "messaging.destination.name",
	"id":         "messaging.message.id",
	"consumer":   "messaging.consumer.group.name",
	"error":      "exception.message",
	"error_code": "error.type",
	"trace_id":   "trace_id",
	"span_id":    "span_id",
}

// AttrName is the name of an attribute, in OpenTelemetry and in a log of JSON, that has a
// key in the code and in a log of text.
func AttrName(key string) string {
	if name := attrNames[key]; name != "" {
		return name
	}
	if strings.Contains(key, ".") {
		return key
	}
	return "fila." + key
}

// LogAttr gives an attribute of a log its name in OpenTelemetry. It is for
// [slog.HandlerOptions].
func LogAttr(groups []string, a slog.Attr) slog.Attr {
	if len(groups) == 0 && (a.Key == slog.TimeKey || a.Key == slog.LevelKey || a.Key == slog.MessageKey) {
		return a
	}
	a.Key = AttrName(a.Key)
	return a
}

// TraceAttrs are the attributes of a log line about what is part of a trace; none if it
// is part of none.
func TraceAttrs(p wire.TraceParent) []any {
	if !p.Sampled {
		return nil
	}
	return []any{slog.String("trace_id", hex.EncodeToString(p.Trace[:])), slog.String("span_id", hex.EncodeToString(p.Span[:]))}
}
