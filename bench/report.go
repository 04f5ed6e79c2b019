package bench

import (
	"slices"
	"time"
)

// Report is the result of a run. It is its JSON, too.
type Report struct {
	Started     time.Time        `json:"started"`
	Seconds     float64          `json:"seconds"`
	Environment Environment      `json:"environment"`
	Settings    Settings         `json:"settings"`
	Workloads   []WorkloadReport `json:"workloads"`
	Goals       []GoalReport     `json:"goals"`
	// Interrupted: what follows was not measured.
	Interrupted bool `json:"interrupted,omitempty"`
}

// Settings are the options that a report was made with.
type Settings struct {
	Rounds     int   `json:"rounds"`
	DurationMs int64 `json:"duration_ms,omitempty"`
	Count      int64 `json:"count,omitempty"`
	Backlog    int64 `json:"backlog"`
	Payload    int   `json:"payload"`
	Quick      bool  `json:"quick,omitempty"`
	Soak       bool  `json:"soak,omitempty"`
	Running    bool  `json:"running,omitempty"` // against a running server
}

// judged reports whether the run is one that goals are about.
func (s *Settings) judged() bool {
	enough := s.Rounds >= goalRounds
	if s.Soak {
		enough = s.DurationMs >= soakDuration.Milliseconds()
	}
	return enough && !s.Quick
}

// short says why a run is not judged.
func (s *Settings) short() string {
	if s.Soak {
		return "A quick run or a soak of less than 30 minutes"
	}
	return "A quick run or fewer than 5 rounds"
}

// goalRounds is how many rounds it takes to say that a goal is met or missed. A
// soak has one, of soakDuration or more.
const goalRounds = 5

// WorkloadReport is a group of measurements.
type WorkloadReport struct {
	Name  string       `json:"name"`
	About string       `json:"about"`
	Lanes []LaneReport `json:"lanes"`

	of *workload
}

// LaneReport is one measurement over all rounds.
type LaneReport struct {
	Case    string             `json:"case"`
	System  string             `json:"system"`
	Figures map[string]Summary `json:"figures"`
	// Ratio of the rate to that of the lane Base, of the same rounds.
	Ratio *Summary `json:"ratio,omitempty"`
	Base  string   `json:"base,omitempty"`
	// Rounds are the figures of each round, null where it failed.
	Rounds []Sample `json:"rounds"`
	// Series are the figures of each interval of a soak; at_s is its end.
	Series []Sample `json:"series,omitempty"`
	Notes  []string `json:"notes,omitempty"`
	Errors []string `json:"errors,omitempty"`
}

// GoalReport is a ratio or a figure that matters, with the goal if there is one.
// Met is null where there is none, and after too few rounds.
type GoalReport struct {
	Workload string  `json:"workload"`
	Case     string  `json:"case"`
	Text     string  `json:"text"`
	Value    Summary `json:"value"`
	AtLeast  float64 `json:"at_least,omitempty"`
	AtMost   float64 `json:"at_most,omitempty"`
	Met      *bool   `json:"met,omitempty"`
}

// Failures returns how many measurements failed.
func (r *Report) Failures() int {
	n := 0
	for _, w := range r.Workloads {
		for _, l := range w.Lanes {
			n += len(l.Errors)
		}
	}
	return n
}

// lane returns a lane, nil if it was not measured.
func (w *WorkloadReport) lane(caseName string, sys system) *LaneReport {
	for i := range w.Lanes {
		if l := &w.Lanes[i]; l.Case == caseName && l.System == string(sys) {
			return l
		}
	}
	return nil
}

// add takes a round of a lane.
func (l *LaneReport) add(s Sample, notes []string, err error) {
	if err != nil {
		l.Errors = append(l.Errors, err.Error())
		s = nil
	}
	s.dropUndefined()
	l.Rounds = append(l.Rounds, s)
	for _, note := range notes {
		if !slices.Contains(l.Notes, note) {
			l.Notes = append(l.Notes, note)
		}
	}
}

// conclude computes the medians, ratios and goals from the rounds.
func (r *Report) conclude() {
	r.Goals = []GoalReport{}
	for i := range r.Workloads {
		w := &r.Workloads[i]
		for j := range w.Lanes {
			w.Lanes[j].Figures = summarizeAll(w.Lanes[j].Rounds)
		}
		if w.of == nil {
			continue
		}
		w.ratios()
		for _, g := range w.of.goals {
			r.Goals = append(r.Goals, g.check(w, r.Settings.judged())...)
		}
	}
}

func (w *WorkloadReport) ratios() {
	if w.of.base == nil {
		return
	}
	for j := range w.Lanes {
		l := &w.Lanes[j]
		base := w.lane(w.of.base(&lane{Case: l.Case, sys: system(l.System)}))
		if base == nil || base == l {
			continue
		}
		if s, ok := pairUp(l.Rounds, base.Rounds, "rate", "rate", ratio); ok {
			l.Ratio, l.Base = &s, base.Case+" / "+base.System
		}
	}
}

// check returns the goal for each case that has the figures for it.
func (g *goal) check(w *WorkloadReport, judged bool) []GoalReport {
	var list []GoalReport
	for i := range w.Lanes {
		of := &w.Lanes[i]
		if of.System != string(g.of.sys) || g.fits != nil && !g.fits(of.Case) {
			continue
		}
		value, ok := g.value(w, of)
		if !ok {
			continue
		}
		entry := GoalReport{Workload: w.Name, Case: of.Case, Text: g.text, Value: value, AtLeast: g.atLeast, AtMost: g.atMost}
		switch {
		case !judged:
		case g.atLeast != 0:
			entry.Met = new(value.Median >= g.atLeast)
		case g.atMost != 0:
			entry.Met = new(value.Median <= g.atMost)
		}
		list = append(list, entry)
	}
	return list
}

func (g *goal) value(w *WorkloadReport, of *LaneReport) (Summary, bool) {
	if g.to.metric == "" {
		s, ok := of.Figures[g.of.metric]
		return s, ok
	}
	name := g.toCase
	if name == "" {
		name = of.Case
	}
	to := w.lane(name, g.to.sys)
	if to == nil {
		return Summary{}, false
	}
	combine := ratio
	if g.subtract {
		combine = difference
	}
	return pairUp(of.Rounds, to.Rounds, g.of.metric, g.to.metric, combine)
}
