package bench

import (
	"errors"
	"slices"

	"github.com/filaq/fila/bench/load"
	"github.com/filaq/fila/bench/measure"
	"github.com/filaq/fila/bench/report"
	"github.com/filaq/fila/bench/system"
	"github.com/filaq/fila/throttle/adapt/provider"
)

// adaptName is the workload of limits that learn. It is a simulation, so it runs only if it is
// named, and alone. The figures are the same on every machine.
const adaptName = "adapt"

const quickSeeds = 3

func (o *Options) adapt() bool { return slices.Contains(o.Workloads, adaptName) }

// checkAdapt refuses options that have no meaning in a simulation.
func (o *Options) checkAdapt() error {
	switch {
	case !o.adapt():
		return nil
	case o.Target != nil || slices.ContainsFunc(o.Workloads, func(name string) bool { return name != adaptName }):
		return errors.New("workload adapt is a simulation without servers: name it alone, without a running fila")
	case o.Rounds > 1 || len(o.Systems) > 0 || o.Duration != 0 || o.Count != 0 || o.Batch != 0:
		return errors.New("rounds, systems, a duration, a count and batches have no meaning for workload adapt: leave them out")
	}
	return nil
}

// adaptLanes has a lane for each way to limit calls in each scenario.
func adaptLanes(o *Options) (lanes []lane) {
	seeds := provider.Seeds
	if o.Quick {
		seeds = quickSeeds
	}
	for _, sc := range provider.Scenarios() {
		for _, way := range provider.Ways() {
			lanes = append(lanes, lane{
				Case: sc.Name, quick: true, spec: load.Spec{System: system.Name(way.Name)},
				simulate: func() measure.Sample { return adaptSample(provider.Measure(sc, way, seeds)) },
			})
		}
	}
	return lanes
}

func adaptSample(s provider.Summary) measure.Sample {
	sample := measure.Sample{
		"use": s.All, "settled_use": s.Mean, "refused_percent": 100 * s.Refused,
		"back_s": float64(s.Recovered) / 1e9, "cuts": s.Cuts,
	}
	if s.Lowest > 0 {
		sample["lowest_use"] = s.Lowest
	}
	return sample
}

// AdaptTimeline is a picture of two providers whose capacity falls and comes back: a limit that one
// fila learns, beside three clients with additive increase. It is the same on every machine.
func AdaptTimeline() *report.Timeline {
	t := &report.Timeline{
		Title:  "fila bench adapt: a limit that one fila learns, and three AIMD clients, each for itself",
		Thirds: "at the dashed lines the capacity changes",
	}
	drawn := []string{"learned", "aimd-3"}
	for _, sc := range provider.Scenarios() {
		if sc.Cost > 0 {
			continue // its refusals are too few to see
		}
		for _, way := range provider.Ways() {
			if !slices.Contains(drawn, way.Name) {
				continue
			}
			for i, p := range provider.Trace(sc, way) {
				if i == len(t.Series) {
					t.Series = append(t.Series, measure.Sample{"at_s": float64(p.At) / 1e9})
				}
				t.Series[i][sc.Name] = p.Capacity
				t.Series[i][sc.Name+way.Name] = p.Limit
				t.Series[i][sc.Name+way.Name+"refused"] = float64(p.Refused)
			}
		}
		lines := func(what string) []report.TimeLine {
			return []report.TimeLine{{Label: "fila", Metric: sc.Name + drawn[0] + what}, {Label: "three AIMD clients", Metric: sc.Name + drawn[1] + what}}
		}
		t.Panels = append(t.Panels,
			report.TimePanel{Title: sc.Name + ": limit, calls at once", Scale: 1, Lines: append(lines(""), report.TimeLine{Label: "capacity", Metric: sc.Name})},
			report.TimePanel{Title: sc.Name + ": refused calls a second", Scale: 1, Lines: lines("refused")})
	}
	return t
}

// adaptGoals are the goals of learned limits, of one fila and of three.
func adaptGoals() (goals []report.Goal) {
	for _, way := range provider.Ways()[:2] {
		of := system.Name(way.Name)
		goals = append(goals,
			report.Goal{Text: way.Name + ": lowest use of a settled second", Metric: "lowest_use", Of: of, AtLeast: provider.Enough},
			report.Goal{Text: way.Name + ": % of calls refused", Metric: "refused_percent", Of: of, AtMost: 2},
			report.Goal{Text: way.Name + ": back after, s", Metric: "back_s", Of: of, AtMost: 10})
	}
	return goals
}
