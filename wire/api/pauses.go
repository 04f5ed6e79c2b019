package api

import (
	"math"
	"strconv"
	"time"

	"github.com/filaq/fila/wire"
)

// Kinds of pauses.
const (
	PauseQueue    = "queue"
	PauseKey      = "key" // a fairness key of one queue
	PauseThrottle = "throttle"
	PauseCircuit  = "circuit"
)

// PauseRequest names what to pause or to resume.
type PauseRequest struct {
	Kind  string `json:"kind"`            // queue, key, throttle or circuit
	Queue string `json:"queue,omitempty"` // of a key
	Name  string `json:"name"`            // the queue, fairness key, throttle key or circuit key
	// Until (RFC 3339) or ForMs says when the pause ends; without them only resume ends it.
	Until string `json:"until,omitempty"`
	ForMs int64  `json:"for_ms,omitempty"`
}

// PauseInfo is a pause in force.
type PauseInfo struct {
	Kind  string `json:"kind"`
	Queue string `json:"queue,omitempty"`
	Name  string `json:"name"`
	Since string `json:"since"`
	Until string `json:"until,omitempty"` // absent: until resumed
	By    string `json:"by"`              // operator, max_failures, calls (of the guard, before a crash), or fleet (an operator of another fila)
	// Client is who paused it, as in the audit log, if known.
	Client string `json:"client,omitempty"`
}

// PauseList answers pause-list.
type PauseList struct {
	Total  int         `json:"total"`
	Pauses []PauseInfo `json:"pauses"`
	Next   string      `json:"next,omitempty"` // after of the next request, if there is more
}

// checkResume checks a request to resume, which has no time.
func (r *PauseRequest) checkResume() *wire.Error {
	err := r.check()
	switch {
	case err != nil:
		return err
	case r.Until != "":
		return wire.BadField("until", wire.Quote(r.Until), "only pause has it")
	case r.ForMs != 0:
		return wire.BadField("for_ms", strconv.FormatInt(r.ForMs, 10), "only pause has it")
	}
	return nil
}

// Bounds implements [wire.Bounded].
func (r *PauseRequest) Bounds() []wire.Bound {
	return []wire.Bound{
		{Field: "kind", Text: r.Kind, OneOf: []string{PauseQueue, PauseKey, PauseThrottle, PauseCircuit}},
		boundOfTime(r.ForMs),
	}
}

// check leaves it to [PauseRequest.End] whether Until is in the future.
func (r *PauseRequest) check() *wire.Error {
	named := r.Name
	if r.Kind != PauseQueue {
		r.Name = wire.NamedKey(named)
	}
	if err := wire.CheckBounds(r); err != nil {
		return err
	}
	switch {
	case r.Kind == PauseQueue && wire.CheckQueueName(r.Name) != nil:
		return wire.BadField("name", wire.Quote(r.Name), "allowed is the name of a queue")
	case r.Kind != PauseQueue && wire.CheckNamedKey(named) != nil:
		return wire.BadKey("name", named)
	case r.Kind == PauseKey && wire.CheckQueueName(r.Queue) != nil:
		return wire.BadField("queue", wire.Quote(r.Queue), "a fairness key needs the name of its queue")
	case r.Kind != PauseKey && r.Queue != "":
		return wire.BadField("queue", wire.Quote(r.Queue), "it is only for kind key; name has the name of the object")
	}
	if r.Until == "" {
		return nil
	}
	if r.ForMs != 0 {
		return wire.BadField("until", wire.Quote(r.Until), "only one of until and for_ms is allowed")
	}
	if _, ok := parseUntil(r.Until); !ok {
		return badUntil(r.Until)
	}
	return nil
}

// End returns when the pause ends, in Unix nanoseconds, or math.MaxInt64 if only resume ends
// it. It refuses a time that is not after now, or more than 365 days away.
func (r PauseRequest) End(now int64) (int64, *wire.Error) {
	switch {
	case r.ForMs > 0:
		return now + r.ForMs*int64(time.Millisecond), nil
	case r.Until == "":
		return math.MaxInt64, nil
	}
	until, ok := parseUntil(r.Until)
	if !ok || until <= now || until-now > wire.MaxSettingMs*int64(time.Millisecond) {
		return 0, badUntil(r.Until)
	}
	return until, nil
}

func badUntil(value string) *wire.Error {
	return wire.BadField("until", wire.Quote(value), "allowed is a future time as RFC 3339, such as 2030-01-02T15:04:05Z, within 365 days")
}

// parseUntil accepts times that fit Unix nanoseconds and are not before 1970.
func parseUntil(s string) (int64, bool) {
	t, err := time.Parse(time.RFC3339, s)
	if err != nil || t.Year() < 1970 || t.Year() > 2261 {
		return 0, false
	}
	return t.UnixNano(), true
}
