package api

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/filaq/fila/throttle/adapt"
	"github.com/filaq/fila/wire"
)

// ThrottleAdapt makes concurrency, or the rate if there is no concurrency, the ceiling of a
// level that is learned. Numbers are of that limit's unit and have up to three digits after
// the point.
type ThrottleAdapt struct {
	Signal   string   `json:"signal"`               // overload: failures of class overload, or with the codes 429, 503 and 529
	Min      *float64 `json:"min,omitempty"`        // the lowest level, from 0.001; default 1
	Backoff  *float64 `json:"backoff,omitempty"`    // what a cut leaves of the level, 0.1 to 0.95; default 0.7
	Grow     *float64 `json:"grow,omitempty"`       // step next to the level of the last cut, for a limit's worth of successes; default 1, or a fiftieth of a rate
	GrowPerS *float64 `json:"grow_per_s,omitempty"` // most growth in a second; default a tenth of the ceiling
	Start    *float64 `json:"start,omitempty"`      // the level at which it begins; default the ceiling
	Expired  bool     `json:"expired,omitempty"`    // expired leases count as overloads, too
}

// Text returns the settings in the form of the runtime configuration, such as
// "overload,min=4,backoff=0.7".
func (a *ThrottleAdapt) Text() string {
	t := a.Signal
	for _, f := range a.fields() {
		if *f.value != nil {
			t += "," + f.name + "=" + strconv.FormatFloat(**f.value, 'f', -1, 64)
		}
	}
	if a.Expired {
		t += ",expired"
	}
	return t
}

func (a *ThrottleAdapt) fields() []adaptField {
	return []adaptField{{"min", &a.Min}, {"backoff", &a.Backoff}, {"grow", &a.Grow}, {"grow_per_s", &a.GrowPerS}, {"start", &a.Start}}
}

type adaptField struct {
	name  string
	value **float64
}

// AdaptOf returns settings in the form of the protocol; nil for the zero Settings.
func AdaptOf(s adapt.Settings) *ThrottleAdapt {
	if s == (adapt.Settings{}) {
		return nil
	}
	a := &ThrottleAdapt{Signal: "overload", Expired: s.Expired}
	for i, n := range []int64{s.Min, s.Backoff, s.Grow, s.GrowPerS, s.Start} {
		if n > 0 {
			*a.fields()[i].value = new(float64(n) / adapt.One)
		}
	}
	return a
}

// ReadAdapt reads the form of [ThrottleAdapt.Text].
func ReadAdapt(text string) (*ThrottleAdapt, error) {
	s, err := adapt.Parse(text)
	return AdaptOf(s), err
}

// ThrottleLearned is the state of a limit that learns. Levels are messages at once or, of a
// rate, cost per second.
type ThrottleLearned struct {
	Of      string  `json:"of"` // concurrency or rate
	Level   float64 `json:"level"`
	Ceiling float64 `json:"ceiling"`
	Min     float64 `json:"min"`
	Fixed   bool    `json:"fixed,omitempty"` // the limit level fixes it
	Next    float64 `json:"next,omitempty"`  // the next step of its growth; absent at the ceiling and while it is fixed
	Cuts    uint64  `json:"cuts"`            // since it began to learn
	// Steps are the last 20 cuts and times of growth, the oldest first.
	Steps []ThrottleStep `json:"steps,omitempty"`
}

// ThrottleStep is a cut of a learned level, or its growth between two cuts.
type ThrottleStep struct {
	From  float64 `json:"from"`
	To    float64 `json:"to"`
	Began string  `json:"began"`           // RFC 3339
	At    string  `json:"at"`              // RFC 3339: its end; of a cut the same
	Cause string  `json:"cause,omitempty"` // of a cut; absent: the level grew
}

// Names of the limits that can be learned, in ThrottleLearned.Of.
const (
	LearnedConcurrency = "concurrency"
	LearnedRate        = "rate"
)

// Number returns a level with its unit.
func (l *ThrottleLearned) Number(level float64) string {
	text := strconv.FormatFloat(level, 'f', -1, 64)
	if l.Of == LearnedRate {
		return text + "/s"
	}
	return text + " at once"
}

// LastCut returns the last cut that is remembered, or nil.
func (l *ThrottleLearned) LastCut() *ThrottleStep {
	for i := len(l.Steps) - 1; i >= 0; i-- {
		if l.Steps[i].Cause != "" {
			return &l.Steps[i]
		}
	}
	return nil
}

// Text says where the level is and why: "12 at once of 60, cut from 24 at
// 2026-01-02T10:03:07Z by 429 of message 01J..., next step at 13".
func (l *ThrottleLearned) Text() string {
	var t strings.Builder
	t.WriteString(l.Number(l.Level))
	if l.Level < l.Ceiling {
		t.WriteString(" of " + strconv.FormatFloat(l.Ceiling, 'f', -1, 64))
	} else {
		t.WriteString(", the ceiling")
	}
	if l.Fixed {
		return t.String() + ", fixed by hand"
	}
	if c := l.LastCut(); c != nil && l.Level < l.Ceiling {
		fmt.Fprintf(&t, ", cut from %s at %s by %s", strconv.FormatFloat(c.From, 'f', -1, 64), c.At, c.Cause)
	}
	if l.Next > 0 {
		t.WriteString(", next step at " + strconv.FormatFloat(l.Next, 'f', -1, 64))
	}
	return t.String()
}

// checkAdapt checks the fields adapt and level.
func (l ThrottleLimits) checkAdapt(none bool) *wire.Error {
	if l.Adapt != nil && !(none && *l.Adapt == (ThrottleAdapt{})) {
		if _, err := ReadAdapt(l.Adapt.Text()); err != nil {
			return wire.BadThrottle(strings.Replace(err.Error(), ": ", ".", 1))
		}
	}
	if v := l.Level; v != nil && !(none && *v == 0) && !(*v >= 0.001 && *v <= MaxGateValue) {
		return wire.BadThrottle("level is " + strconv.FormatFloat(*v, 'g', -1, 64) + ": allowed are 0.001 to " + strconv.Itoa(MaxGateValue))
	}
	return nil
}
