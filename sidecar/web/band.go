package web

import (
	"time"

	"github.com/filaq/fila/wire/api"
)

// bandPicture is the last hour of a circuit, or the part of it that is known: its states as a band, and
// above it its failures by minute. Lengths across are percentages.
type bandPicture struct {
	Minutes int

	States   []bandState // oldest first
	Failures []bandFailures
	Sum      int64 // of Failures
	Most     int64 // failures of the minute with the most
	Marks    []markLine
}

// bandState is a time in one state.
type bandState struct {
	X, W  string
	State string
	Since string // RFC 3339; of the first state: since when it is known
	Cause string // of the change; "" of the first state
	Ms    int64  // how long it lasted
}

// bandFailures is the failures of a minute. Y and H are px.
type bandFailures struct {
	api.CircuitFailures
	X, W string
	Y, H float64
}

const (
	bandTime, bandLeast = time.Hour, 5 * time.Minute
	// bandTop is the height (px) that the bars of failures have.
	bandTop = 40.0
	// leastState is how wide (percent) a state is drawn at least.
	leastState = 0.3
)

// bandOf draws the last hour of a circuit, which has this state now.
func bandOf(h *api.CircuitHistory, state string, now time.Time) (p bandPicture) {
	if h == nil {
		return p
	}
	begin, err := time.Parse(time.RFC3339Nano, h.Since)
	if err != nil {
		return p
	}
	whole := min(max((now.Sub(begin)+time.Minute-1).Truncate(time.Minute), bandLeast), bandTime)
	from := now.Add(-whole)
	across := func(at time.Time) float64 {
		return min(max(100*at.Sub(from).Seconds()/whole.Seconds(), 0), 100)
	}
	p.Minutes = int(whole.Minutes())
	first := bandState{State: state, Since: h.Since}
	if len(h.Changes) > 0 {
		first.State = h.Changes[0].Old
	}
	p.States = append(p.States, first)
	begins := []time.Time{begin}
	for _, c := range h.Changes {
		at, err := time.Parse(time.RFC3339Nano, c.At)
		if err != nil || at.Before(begin) {
			at = begin // the clock has jumped back
		}
		begin = at
		p.States, begins = append(p.States, bandState{State: c.New, Since: c.At, Cause: c.Cause}), append(begins, at)
	}
	begins = append(begins, now)
	for i := range p.States {
		s := &p.States[i]
		x, end := across(begins[i]), across(begins[i+1])
		s.X, s.W = percentOf(min(x, 100-leastState)), percentOf(max(end-x, leastState))
		s.Ms = max(begins[i+1].Sub(begins[i]), 0).Milliseconds()
	}
	for _, f := range h.Failures {
		p.Most, p.Sum = max(p.Most, f.Failures), p.Sum+f.Failures
	}
	for _, f := range h.Failures {
		at, err := time.Parse(time.RFC3339Nano, f.Minute)
		if err != nil {
			continue
		}
		height := max(bandTop*float64(f.Failures)/float64(p.Most), 2)
		p.Failures = append(p.Failures, bandFailures{
			CircuitFailures: f, X: percentOf(across(at)), W: percentOf(max(across(at.Add(time.Minute))-across(at), leastState)), Y: bandTop - height, H: height,
		})
	}
	return p
}
