package natsio

import (
	"encoding/json"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go/micro"

	"github.com/filaq/fila/sidecar/telemetry"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// traced starts the span of a guard request. answered ends it; it is nil if the request is not
// traced.
func (f *Front) traced(verb, key string, req micro.Request) (parent wire.TraceParent, answered func(reply []byte, err *wire.Error)) {
	if f.Tracer == nil {
		return parent, nil
	}
	parent, ok := wire.Sampled(req.Headers())
	if !ok {
		return parent, nil
	}
	s := &telemetry.Span{
		Name: "guard " + verb, Kind: telemetry.SpanServer, Parent: parent, Start: time.Now().UnixNano(),
		Attrs: []slog.Attr{slog.String("verb", verb)},
	}
	if key != api.KeyInBody {
		s.Attrs = append(s.Attrs, slog.String("key", wire.ShowKey(key)))
	}
	return parent, func(reply []byte, err *wire.Error) {
		s.End = time.Now().UnixNano()
		if err != nil {
			s.Error = err.Description
			s.Attrs = append(s.Attrs, slog.Int("error_code", err.ErrCode))
		} else {
			s.Attrs = append(s.Attrs, guardAttrs(verb, reply)...)
		}
		f.Tracer.Record(s)
	}
}

// guardAttrs returns the span attributes of a guard reply.
func guardAttrs(verb string, reply []byte) (attrs []slog.Attr) {
	var a struct {
		api.GuardAnswer
		Answers []api.GuardAnswer `json:"answers"`
		api.GuardVerdict
	}
	if json.Unmarshal(reply, &a) != nil {
		return nil
	}
	text := func(key, v string) {
		if v != "" {
			attrs = append(attrs, slog.String(key, v))
		}
	}
	switch verb {
	case api.GuardCheck:
		if a.Answers != nil {
			allowed := 0
			for i := range a.Answers {
				if a.Answers[i].Allowed {
					allowed++
				}
			}
			return []slog.Attr{slog.Int("calls", len(a.Answers)), slog.Int("allowed_calls", allowed)}
		}
		attrs = append(attrs, slog.Bool("allowed", a.Allowed))
		text("blocked_by", a.Gate)
		text("gate", a.GuardAnswer.Key)
		if a.RetryAfterMs > 0 {
			attrs = append(attrs, slog.Duration("retry_after", time.Duration(a.RetryAfterMs)*time.Millisecond))
		}
	case api.GuardDone:
		text("severity", a.Severity)
		text("rule", a.Rule)
		if a.Severity != "" { // only failed calls have one
			attrs = append(attrs, slog.Bool("retry", a.Retry), slog.Duration("delay", time.Duration(a.DelayMs)*time.Millisecond))
		}
	}
	return attrs
}
