package api

import (
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/filaq/fila/wire"
)

// Bounds of annotations and marks.
const (
	MaxAnnotation    = 200       // bytes of a text
	MaxMarksWindowMs = 3_600_000 // an hour
	DefaultMarks     = 20
)

// AnnotateRequest marks a time, such as a release, on the charts of a queue or of all.
type AnnotateRequest struct {
	Text  string `json:"text"`            // 1 to 200 bytes of printable UTF-8
	Queue string `json:"queue,omitempty"` // empty: all charts
	// At is within the last hour: RFC 3339, or the time before now, such as 15m; empty: now.
	At string `json:"at,omitempty"`
}

func (r *AnnotateRequest) check() *wire.Error {
	if err := checkOptionalQueue(r.Queue); err != nil {
		return err
	}
	hidden := func(c rune) bool { return !unicode.IsPrint(c) }
	if strings.TrimSpace(r.Text) == "" || len(r.Text) > MaxAnnotation || !utf8.ValidString(r.Text) || strings.ContainsFunc(r.Text, hidden) {
		return wire.BadField("text", wire.Quote(r.Text), "allowed are 1 to "+strconv.Itoa(MaxAnnotation)+" bytes of printable UTF-8, on one line")
	}
	return nil
}

// Time returns the time that the request marks. It refuses a time that is not within the hour
// before now.
func (r AnnotateRequest) Time(now time.Time) (time.Time, *wire.Error) {
	if r.At == "" {
		return now, nil
	}
	if err := resolve(&r.At, now)("at"); err != nil {
		return now, err
	}
	at := time.Unix(0, timeOf(r.At))
	if ago := now.Sub(at); ago < 0 || ago > MaxMarksWindowMs*time.Millisecond {
		return now, wire.BadField("at", wire.Quote(r.At), "allowed is a time within the last hour")
	}
	return at, nil
}

// Kinds of marks.
const (
	MarkAnnotation = "annotation"
	MarkPause      = "pause"
	MarkResume     = "resume"
	MarkLimits     = "limits"   // of a throttle or circuit were changed, also by an override or its end
	MarkHook       = "hook"     // a script was replaced
	MarkSettings   = "settings" // of the queue, without its hooks
	MarkConfig     = "config"   // a key of the runtime configuration that is no setting of fila, such as the release of your workers
	MarkCircuit    = "circuit"  // a circuit has opened, or an operator has closed it
)

// MarksRequest asks for what happened to a queue, a throttle or a circuit.
type MarksRequest struct {
	Queue    string `json:"queue,omitempty"`
	Throttle string `json:"throttle,omitempty"`
	Circuit  string `json:"circuit,omitempty"`
	Limit    int    `json:"limit,omitempty"`     // 1 to 1000, default 20
	WindowMs int64  `json:"window_ms,omitempty"` // only marks of this time before now: 1 to 3600000, the default
}

func (r *MarksRequest) check() *wire.Error {
	named := 0
	for _, name := range []string{r.Queue, r.Throttle, r.Circuit} {
		if name != "" {
			named++
		}
	}
	if named > 1 {
		return wire.BadField("queue", wire.Quote(r.Queue), "only one of queue, throttle and circuit is allowed")
	}
	if err := checkOptionalQueue(r.Queue); err != nil {
		return err
	}
	for _, k := range []struct {
		field string
		key   *string
	}{{"throttle", &r.Throttle}, {"circuit", &r.Circuit}} {
		if *k.key == "" {
			continue
		}
		if err := wire.NameKey(k.field, k.key); err != nil {
			return err
		}
	}
	return wire.CheckBounds(r)
}

// Bounds implements [wire.Bounded].
func (r *MarksRequest) Bounds() []wire.Bound {
	return []wire.Bound{
		{Field: "window_ms", Value: r.WindowMs, Min: 1, Max: MaxMarksWindowMs},
		{Field: "limit", Value: int64(r.Limit), Min: 1, Max: MaxListLimit},
	}
}

// Mark is something that happened at one time and that may explain a change in a chart.
type Mark struct {
	At     string `json:"at"`               // RFC 3339
	Kind   string `json:"kind"`             // one of the kinds above
	Object string `json:"object,omitempty"` // such as queue:orders or throttle:stripe; of an annotation of all charts empty
	Text   string `json:"text"`             // what happened
	By     string `json:"by,omitempty"`     // the verb, file or cause, as in the audit log
	Client string `json:"client,omitempty"` // as in the audit log
	Count  int64  `json:"count,omitempty"`  // of a circuit: how often it opened in this minute, if more than once
	// Undo is how to set back what has changed. It is left out if that has changed again since, or
	// if there is nothing to set back.
	Undo *Undo `json:"undo,omitempty"`
	// ChangedAgain is when the key of the runtime configuration or the hook was changed next, RFC
	// 3339.
	ChangedAgain string `json:"changed_again,omitempty"`
}

// Undo is the action that sets a change back.
type Undo struct {
	Text    string `json:"text"`    // what to do, such as "Set release back to 1"
	Command string `json:"command"` // of the command line
	Page    string `json:"page"`    // path and query of the page where to do it, after the base path
	// Hook is the hook whose version before is put in force: on_enqueue or on_failure.
	Hook string `json:"hook,omitempty"`
	// Key is the key of the runtime configuration that gets its value before, Old, instead of the
	// present one, New; without Old it is deleted.
	Key string  `json:"key,omitempty"`
	Old *string `json:"old,omitempty"`
	New *string `json:"new,omitempty"`
}

// BeforeWindow is the time before a problem in which changes may have caused it.
const BeforeWindow = 2 * time.Minute

// MaxBefore is how many changes before a problem are named.
const MaxBefore = 3

// Marks answers a [MarksRequest], the newest first.
type Marks struct {
	Total int    `json:"total"`
	Marks []Mark `json:"marks"`
}

// Shorten implements [Long].
func (m *Marks) Shorten(room int) { m.Marks, _ = shorten(m.Marks, room-envelope) }
