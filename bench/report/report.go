package report

import (
	"slices"
	"time"

	"github.com/filaq/fila/bench/measure"
	"github.com/filaq/fila/bench/system"
)

// Report is the result of a run, and its JSON.
type Report struct {
	Started     time.Time    `json:"started"`
	Seconds     float64      `json:"seconds"`
	Environment Environment  `json:"environment"`
	Settings    Settings     `json:"settings"`
	Workloads   []Group      `json:"workloads"`
	Goals       []GoalReport `json:"goals"`
	// Interrupted says that the run ended early.
	Interrupted bool `json:"interrupted,omitempty"`
	// Timeline is what Chart draws in place of bars; nil: bars.
	Timeline *Timeline `json:"-"`
}

// Environment describes the machine and the versions of a report.
type Environment struct {
	Fila       string `json:"fila"`        // version
	NATSServer string `json:"nats_server"` // version of the embedded server, which all systems run
	Go         string `json:"go"`
	Platform   string `json:"platform"`
	CPUs       int    `json:"cpus"`
	GOGC       string `json:"gogc"` // of all processes except the servers of memory, recovery and soak
	// SyncUs is the median time in microseconds to write 4 KiB and sync them, in
	// the directory of the data.
	SyncUs float64 `json:"sync_us,omitempty"`
	// InMemory says that the data is on a file system in memory, where syncs are free and
	// durable systems look faster than they are.
	InMemory bool `json:"in_memory,omitempty"`
}

// Settings are the options of a report.
type Settings struct {
	Rounds     int   `json:"rounds"`
	DurationMs int64 `json:"duration_ms,omitempty"`
	Count      int64 `json:"count,omitempty"`
	Backlog    int64 `json:"backlog"`
	Payload    int   `json:"payload"`
	Batch      int   `json:"batch,omitempty"` // most messages of a batch; 0: a fourth of what is in flight
	Quick      bool  `json:"quick,omitempty"`
	Soak       bool  `json:"soak,omitempty"`
	Simulated  bool  `json:"simulated,omitempty"` // in simulated time: the machine does not matter
	Running    bool  `json:"running,omitempty"`   // against a running server
}

// goalRounds is the number of rounds that a verdict about a goal needs. A soak has one round,
// of SoakDuration or more.
const goalRounds = 5

// judged reports whether the run is long enough for verdicts about goals.
func (s *Settings) judged() bool {
	enough := s.Rounds >= goalRounds || s.Simulated
	if s.Soak {
		enough = s.DurationMs >= SoakDuration.Milliseconds()
	}
	return enough && !s.Quick
}

// Group is the measurements of a workload.
type Group struct {
	Name  string `json:"name"`
	About string `json:"about"`
	Lanes []Lane `json:"lanes"`

	of *Workload // nil if read from JSON
}

// NewGroup returns a group without lanes.
func NewGroup(w *Workload) Group { return Group{Name: w.Name, About: w.About, of: w} }

// Lane is one measurement over all rounds.
type Lane struct {
	Case   string `json:"case"`
	System string `json:"system"`
	// Promise is what a confirmed publish of the system promises.
	Promise string                     `json:"promise"`
	Figures map[string]measure.Summary `json:"figures"`
	// Ratio is the ratio of the rate to the rate of the lane Base, by round.
	Ratio *measure.Summary `json:"ratio,omitempty"`
	Base  string           `json:"base,omitempty"`
	// Rounds are the figures of each round, null for a failed one.
	Rounds []measure.Sample `json:"rounds"`
	// Series are the figures of each interval of a soak; at_s is its end.
	Series []measure.Sample `json:"series,omitempty"`
	Notes  []string         `json:"notes,omitempty"`
	Errors []string         `json:"errors,omitempty"`
}

// GoalReport is an important ratio or figure, with its goal if it has one. Met is null without
// a goal and after too few rounds.
type GoalReport struct {
	Workload string          `json:"workload"`
	Case     string          `json:"case"`
	Text     string          `json:"text"`
	Value    measure.Summary `json:"value"`
	AtLeast  float64         `json:"at_least,omitempty"`
	AtMost   float64         `json:"at_most,omitempty"`
	Met      *bool           `json:"met,omitempty"`
}

// lanes returns the lanes of all workloads.
func (r *Report) lanes() []Lane {
	var all []Lane
	for _, w := range r.Workloads {
		all = append(all, w.Lanes...)
	}
	return all
}

// Failures returns how many measurements failed.
func (r *Report) Failures() int {
	n := 0
	for _, l := range r.lanes() {
		n += len(l.Errors)
	}
	return n
}

// lane returns a lane, or nil.
func (w *Group) lane(caseName string, sys system.Name) *Lane {
	for i := range w.Lanes {
		if l := &w.Lanes[i]; l.Case == caseName && l.System == string(sys) {
			return l
		}
	}
	return nil
}

// Add adds a round. Its sample does not count if err is set.
func (l *Lane) Add(s measure.Sample, notes []string, err error) {
	if err != nil {
		l.Errors = append(l.Errors, err.Error())
		s = nil
	}
	s.DropUndefined()
	l.Rounds = append(l.Rounds, s)
	for _, note := range notes {
		if !slices.Contains(l.Notes, note) {
			l.Notes = append(l.Notes, note)
		}
	}
}

// Conclude computes the medians, ratios and goals from the rounds.
func (r *Report) Conclude() {
	r.Goals = []GoalReport{}
	for i := range r.Workloads {
		w := &r.Workloads[i]
		for j := range w.Lanes {
			w.Lanes[j].Figures = measure.SummarizeAll(w.Lanes[j].Rounds)
		}
		if w.of == nil {
			continue
		}
		w.ratios()
		for _, g := range w.of.Goals {
			r.Goals = append(r.Goals, g.check(w, r.Settings.judged())...)
		}
	}
}

func (w *Group) ratios() {
	if w.of.Base.Text == "" {
		return
	}
	for j := range w.Lanes {
		l := &w.Lanes[j]
		base := w.lane(w.of.Base.Of(l.Case, system.Name(l.System)))
		if base == nil || base == l {
			continue
		}
		if s, ok := measure.PairUp(l.Rounds, base.Rounds, "rate", "rate", measure.Ratio); ok {
			l.Ratio, l.Base = &s, base.Case+" / "+base.System
		}
	}
}
