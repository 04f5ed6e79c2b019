package sidecar

import (
	"encoding/json"
	"sync"

	"github.com/filaq/fila/hooks"
	"github.com/filaq/fila/wire"
)

// event publishes e, whose type and time it fills in, under the subject of its
// queue or key. Events are news, not records: nobody waits for them.
func (c *core) event(typ, tail string, e wire.Event) {
	e.Type, e.Time = typ, timestamp(c.clock.Now())
	data, err := json.Marshal(e)
	if err != nil {
		c.log.Error("an event cannot be encoded", "type", typ, "error", err)
		return
	}
	if err := c.nc.Publish(c.subjects.Event(typ, tail), data); err != nil {
		c.log.Debug("an event could not be published", "type", typ, "error", err)
	}
}

func (c *core) circuitChanged(ch hooks.CircuitChange) {
	c.event(wire.EventHookCircuitChanged, ch.Queue, wire.Event{Queue: ch.Queue, Data: map[string]any{
		"hook": ch.Hook, "old": ch.Old, "new": ch.New,
		"consecutive_failures": ch.ConsecutiveFailures, "at": timestamp(ch.At),
	}})
}

// refusals publishes events for refused messages whose producer asked for no
// answer: at most refusalsPerSecond of them, and each says how many were left
// out before it, so that a flood of bad messages does not become two floods.
// The counters count them all.
type refusals struct {
	mu struct {
		sync.Mutex
		second  int64
		sent    int
		skipped int64
	}
}

const refusalsPerSecond = 20

func (r *refusals) event(c *core, queue string, e *wire.Error) {
	second := c.clock.Now() / 1e9
	r.mu.Lock()
	if r.mu.second != second {
		r.mu.second, r.mu.sent = second, 0
	}
	if r.mu.sent >= refusalsPerSecond {
		r.mu.skipped++
		r.mu.Unlock()
		return
	}
	r.mu.sent++
	skipped := r.mu.skipped
	r.mu.skipped = 0
	r.mu.Unlock()
	data := map[string]any{"code": e.Code, "err_code": e.ErrCode, "description": e.Description}
	if skipped > 0 {
		data["not_reported"] = skipped
	}
	c.event(wire.EventRefused, queue, wire.Event{Queue: queue, Data: data})
}
