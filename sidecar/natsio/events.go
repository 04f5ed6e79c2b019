package natsio

import (
	"encoding/json"
	"log/slog"

	"github.com/nats-io/nats.go"

	"github.com/filaq/fila/wire"
)

// Events returns what publishes an event, whose type and time it fills in, under the
// name of its queue or key. Events are news, not records: nobody waits for them.
func Events(nc *nats.Conn, subjects wire.Subjects, now func() int64, log *slog.Logger) func(typ, tail string, e wire.Event) {
	return func(typ, tail string, e wire.Event) {
		e.Type, e.Time, e.Key = typ, wire.Timestamp(now()), wire.ShowKey(e.Key)
		data, err := json.Marshal(e)
		if err != nil {
			log.Error("an event cannot be encoded", "type", typ, "error", err)
			return
		}
		if err := nc.Publish(subjects.Event(typ, tail), data); err != nil {
			log.Debug("an event could not be published", "type", typ, "error", err)
		}
	}
}
