package record

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/filaq/fila/breaker"
)

// Causes of openings and closings.
const (
	CauseFailures    = "failures"
	CauseRetryAfter  = "retry_after"
	CauseByHand      = "by hand"
	CauseMaxFailures = "max_failures"
	CauseTime        = "time"    // the opening is over
	CauseProbes      = "success" // probes have succeeded
)

// Circuit is the record of a circuit. The zero Circuit is closed without failures, and equal to no
// record.
//
// Maps of a Circuit are never changed: [Circuit.Apply] makes new ones.
type Circuit struct {
	breaker.Frozen                   // its Probes is the sum of Permits
	Permits        map[string]int    // permits for probes, by holding instance
	Seen           map[string]uint64 // number of the last batch, by instance
	Cause          string            // of the opening; empty: closed
	OpenedBy       string            // instance that opened it; empty: closed
	Client         string            // that asked for it, if opened by hand and known
	Turn           uint64            // number of reported changes: transitions, and openings changed by hand
	TurnRev        uint64            // revision of the record with the last of them; 0: this one
	TurnAt         int64             // its time
	TurnBy         string            // instance that made it
	Why            string            // its cause
	ChangedAt      int64             // last change of the state or of the end of the opening
	By             string            // instance that made it
	Terms          Terms[breaker.Config]
}

// Version is the version of written records.
const Version = 1

// ErrVersion is returned for a record of a newer fila, which must not be overwritten.
var ErrVersion = errors.New("the record has a version that this fila does not know")

// Limits of decoded records.
const (
	maxRecordBytes = 64 << 10
	maxInstance    = 256 // bytes
	maxClient      = 1024
)

// encoded is the JSON form of a Circuit. Times are Unix nanoseconds; math.MaxInt64 means until closed
// by hand.
//
//	{"v":1, "state":"open", "gen":3, "failures":5, "opened_at":..., "since":...,
//	 "open_until":..., "cooling":true, "cause":"failures", "opened_by":"a/Q7", "seen":{"a/Q7":4},
//	 "turn":2, "turn_at":..., "turn_by":"a/Q7", "why":"failures", "changed_at":..., "by":"a/Q7",
//	 "limits":[5,60000000000,3,1], "limits_by":"a/Q7", "limits_at":...}
type encoded struct {
	V          int               `json:"v"`
	State      string            `json:"state"`
	Gen        uint64            `json:"gen"`
	Failures   int               `json:"failures,omitempty"`
	Successes  int               `json:"successes,omitempty"`
	OpenedAt   int64             `json:"opened_at,omitempty"`
	Since      int64             `json:"since,omitempty"`
	OpenUntil  int64             `json:"open_until,omitempty"`
	Floor      int64             `json:"floor,omitempty"`
	Cooling    bool              `json:"cooling,omitempty"`
	ThenClosed bool              `json:"then_closed,omitempty"`
	Cause      string            `json:"cause,omitempty"`
	OpenedBy   string            `json:"opened_by,omitempty"`
	Client     string            `json:"client,omitempty"`
	Permits    map[string]int    `json:"permits,omitempty"`
	Seen       map[string]uint64 `json:"seen,omitempty"`
	Turn       uint64            `json:"turn,omitempty"`
	TurnRev    uint64            `json:"turn_rev,omitempty"`
	TurnAt     int64             `json:"turn_at,omitempty"`
	TurnBy     string            `json:"turn_by,omitempty"`
	Why        string            `json:"why,omitempty"`
	ChangedAt  int64             `json:"changed_at,omitempty"`
	By         string            `json:"by,omitempty"`
	Limits     []int64           `json:"limits,omitempty"` // threshold, cooldown (ns), half-open calls and successes
	LimitsBy   string            `json:"limits_by,omitempty"`
	LimitsAt   int64             `json:"limits_at,omitempty"` // missing in older records: 0
}

// Encode encodes the record.
func (c *Circuit) Encode() []byte {
	l := &c.Terms.Limits
	data, err := json.Marshal(encoded{
		V: Version, State: c.State.String(), Gen: c.Gen, Failures: c.Failures, Successes: c.Successes,
		OpenedAt: c.OpenedAt, Since: c.Since, OpenUntil: c.OpenUntil, Floor: c.Floor, Cooling: c.Cooling,
		ThenClosed: c.State == breaker.Open && c.After == breaker.Closed,
		Cause:      c.Cause, OpenedBy: c.OpenedBy, Client: c.Client, Permits: c.Permits, Seen: c.Seen,
		Turn: c.Turn, TurnRev: c.TurnRev, TurnAt: c.TurnAt, TurnBy: c.TurnBy, Why: c.Why, ChangedAt: c.ChangedAt, By: c.By,
		Limits:   []int64{int64(l.Threshold), int64(l.Cooldown), int64(l.HalfOpenMaxCalls), int64(l.HalfOpenSuccesses)},
		LimitsBy: c.Terms.By, LimitsAt: c.Terms.At,
	})
	if err != nil {
		panic(err) // strings and numbers
	}
	return data
}

// Decode is the inverse of Encode. It refuses invalid records, and newer versions with [ErrVersion]; it
// ignores unknown fields.
func Decode(data []byte) (Circuit, error) {
	if len(data) > maxRecordBytes {
		return Circuit{}, fmt.Errorf("a record of %d bytes", len(data))
	}
	var e encoded
	if err := json.Unmarshal(data, &e); err != nil {
		return Circuit{}, err
	}
	if e.V > Version {
		return Circuit{}, fmt.Errorf("%w: %d", ErrVersion, e.V)
	}
	c := Circuit{
		Permits: e.Permits, Seen: e.Seen, Cause: e.Cause, OpenedBy: e.OpenedBy, Client: e.Client,
		Turn: e.Turn, TurnRev: e.TurnRev, TurnAt: e.TurnAt, TurnBy: e.TurnBy, Why: e.Why, ChangedAt: e.ChangedAt, By: e.By,
	}
	if len(e.Limits) == 4 {
		c.Terms = Terms[breaker.Config]{At: e.LimitsAt, By: e.LimitsBy, Limits: breaker.Config{
			Threshold: int(e.Limits[0]), Cooldown: time.Duration(e.Limits[1]),
			HalfOpenMaxCalls: int(e.Limits[2]), HalfOpenSuccesses: int(e.Limits[3]),
		}}
	}
	c.Failures, c.OpenedAt, c.Since, c.OpenUntil = e.Failures, e.OpenedAt, e.Since, e.OpenUntil
	c.Floor, c.Cooling, c.Gen, c.Successes, c.After = e.Floor, e.Cooling, e.Gen, e.Successes, breaker.HalfOpen
	if e.ThenClosed {
		c.After = breaker.Closed
	}
	switch e.State {
	case "closed":
		c.State = breaker.Closed
	case "open":
		c.State = breaker.Open
	case "half-open":
		c.State = breaker.HalfOpen
	default:
		return Circuit{}, fmt.Errorf("state %q", e.State)
	}
	for holder, n := range e.Permits {
		if n <= 0 || n > 1<<30 || len(holder) > maxInstance {
			return Circuit{}, fmt.Errorf("%d permits of %q", n, holder)
		}
		c.Probes += n
	}
	if c.Terms.By != "" && c.Terms.Limits != normal(c.Terms.Limits) {
		return Circuit{}, fmt.Errorf("limits %v", e.Limits)
	}
	switch {
	case e.V < 1, e.Gen >= aloneGen, e.Failures < 0, e.Successes < 0, e.LimitsAt < 0, len(e.By) > maxInstance, len(e.LimitsBy) > maxInstance,
		len(e.OpenedBy) > maxInstance, len(e.TurnBy) > maxInstance, len(e.Client) > maxClient:
		return Circuit{}, errors.New("a field is out of its range")
	case e.ThenClosed && c.State != breaker.Open:
		return Circuit{}, errors.New("only an open circuit says what follows")
	case c.Probes > 0 && c.State != breaker.HalfOpen:
		return Circuit{}, fmt.Errorf("permits in state %s", e.State)
	}
	return c, nil
}

// Older reports whether the record's limits predate those that instance by set at time set.
func (c *Circuit) Older(by string, limits breaker.Config, set int64) bool {
	own := Terms[breaker.Config]{normal(limits), set, by}
	return c.Terms.By != "" && own.Newer(&c.Terms)
}

// Idle reports whether a sweep may delete the record: the circuit is closed, or would be at time now,
// and has no failures. The record has to be so old that no batch for it is on its way.
func (c *Circuit) Idle(now int64) bool {
	m := breaker.Thaw(breaker.Config{}, c.Frozen)
	m.Advance(now)
	return m.State() == breaker.Closed && m.Info(now).ConsecutiveFailures == 0
}

// clone returns a copy whose maps may be changed.
func (c *Circuit) clone() Circuit {
	n := *c
	n.Permits, n.Seen = maps.Clone(c.Permits), maps.Clone(c.Seen)
	if n.Permits == nil {
		n.Permits = make(map[string]int)
	}
	if n.Seen == nil {
		n.Seen = make(map[string]uint64)
	}
	return n
}
