package report

import (
	"cmp"
	"strings"

	"github.com/filaq/fila/bench/measure"
	"github.com/filaq/fila/bench/system"
)

// Workload says which figures a group of measurements shows.
type Workload struct {
	Name, About string
	Columns     []Column
	// Charted are the columns of the chart; empty means the first one.
	Charted []Column
	// Base is the lane that rates are compared with. An empty case or system means the same one.
	// Without a name there is no comparison.
	Base  Base
	Goals []Goal
}

// Base names a lane to compare with.
type Base struct {
	Text   string
	Case   string
	System system.Name
}

// Of returns the case and the system that a lane is compared with.
func (b *Base) Of(caseName string, sys system.Name) (string, system.Name) {
	return cmp.Or(b.Case, caseName), cmp.Or(b.System, sys)
}

// Goal is a goal for a ratio or a figure, for every case of a workload with Fits in its name.
type Goal struct {
	Text   string
	Fits   string
	Metric string
	// Of is the measured system, by default fila.
	Of system.Name
	// To is the system to compare with, in the same case and figure unless ToMetric and ToCase
	// name others; without a system the figure itself counts.
	To               system.Name
	ToMetric, ToCase string
	// At most one of both is set. Without any the figure is only shown.
	AtLeast, AtMost float64
	// Subtract shows the difference instead of the ratio.
	Subtract bool
}

// FitsCase reports whether the goal applies to a lane.
func (g *Goal) FitsCase(caseName string, sys system.Name) bool {
	return sys == cmp.Or(g.Of, system.Fila) && strings.Contains(caseName, g.Fits)
}

// check returns the goal for each case that has the figures for it.
func (g *Goal) check(w *Group, judged bool) []GoalReport {
	var list []GoalReport
	for i := range w.Lanes {
		of := &w.Lanes[i]
		if !g.FitsCase(of.Case, system.Name(of.System)) {
			continue
		}
		value, ok := g.value(w, of)
		if !ok {
			continue
		}
		entry := GoalReport{Workload: w.Name, Case: of.Case, Text: g.Text, Value: value, AtLeast: g.AtLeast, AtMost: g.AtMost}
		switch {
		case !judged:
		case g.AtLeast != 0:
			entry.Met = new(value.Median >= g.AtLeast)
		case g.AtMost != 0:
			entry.Met = new(value.Median <= g.AtMost)
		}
		list = append(list, entry)
	}
	return list
}

func (g *Goal) value(w *Group, of *Lane) (measure.Summary, bool) {
	if g.To == "" {
		s, ok := of.Figures[g.Metric]
		return s, ok
	}
	to := w.lane(cmp.Or(g.ToCase, of.Case), g.To)
	if to == nil {
		return measure.Summary{}, false
	}
	combine := measure.Ratio
	if g.Subtract {
		combine = measure.Difference
	}
	return measure.PairUp(of.Rounds, to.Rounds, g.Metric, cmp.Or(g.ToMetric, g.Metric), combine)
}
