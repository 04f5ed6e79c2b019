package provider

import (
	"runtime"
	"sync"

	"github.com/filaq/fila/throttle/adapt"
)

// Seeds is how many runs the figures of docs/limits-that-learn.md are from.
const Seeds = 30

// Scenarios returns the scenarios of docs/limits-that-learn.md: a provider at 40 at once that
// falls to 15 and comes back; one at 600,000 tokens a minute, enforced by the second, that
// falls to a half and comes back, with calls of random size and one refusal without a reason
// in 10,000; and the first one with a bound of its growth, which is cold at the begin and for
// which limits start low.
func Scenarios() []Scenario {
	standard := Scenario{
		Name:    "capacity",
		Phases:  []Phase{{60 * second, 40}, {60 * second, 15}, {60 * second, 40}},
		Latency: second / 2, Spread: 0.25, Refusal: second / 25,
		Ceiling: 60, GrowPerS: 6,
	}
	tokens, slope := standard, standard
	tokens.Name = "tokens"
	tokens.Phases = []Phase{{60 * second, 10_000}, {60 * second, 5_000}, {60 * second, 10_000}}
	tokens.Cost, tokens.CostSpread, tokens.Noise = 100, 0.5, 0.0001
	tokens.Ceiling, tokens.GrowPerS = 20_000, 2_000
	slope.Name = "slope"
	slope.Slope, slope.Start = 8, 10
	return []Scenario{standard, tokens, slope}
}

// Way is a way to limit the calls of a service.
type Way struct {
	Name, About string
	Limits      func(sc *Scenario) []Limit // of each process
}

// fleetLate is after what time all filas of a fleet know of a cut.
const fleetLate = second / 100

// Ways returns the ways to limit calls that are compared.
func Ways() []Way {
	return []Way{
		{"learned", "a level that one fila learns", func(sc *Scenario) []Limit {
			return []Limit{&Learned{Bounds: sc.bounds(1)}}
		}},
		{"learned-3", "a level that three filas share; all know of a cut after 10 ms", func(sc *Scenario) []Limit {
			return []Limit{&Learned{Bounds: sc.bounds(1), Late: fleetLate}}
		}},
		{"aimd", "one client with additive increase", func(sc *Scenario) []Limit {
			return []Limit{&AIMD{Bounds: sc.bounds(1)}}
		}},
		{"aimd-3", "three clients with additive increase, each for itself", func(sc *Scenario) []Limit {
			b := sc.bounds(3)
			return []Limit{&AIMD{Bounds: b}, &AIMD{Bounds: b}, &AIMD{Bounds: b}}
		}},
		{"fixed-high", "a fixed limit at the highest capacity", func(sc *Scenario) []Limit {
			return []Limit{Fixed(sc.Phases[0].Capacity)}
		}},
		{"fixed-low", "a fixed limit at the lowest capacity", func(sc *Scenario) []Limit {
			return []Limit{Fixed(sc.Phases[1].Capacity)}
		}},
	}
}

// bounds returns the bounds of one of several processes.
func (sc *Scenario) bounds(processes float64) adapt.Bounds {
	of := func(n float64) int64 { return int64(n * adapt.One / processes) }
	b := adapt.Bounds{
		Settings: adapt.Settings{Min: of(sc.Ceiling / 15), Backoff: adapt.DefaultBackoff, Grow: adapt.One, GrowPerS: of(sc.GrowPerS), Start: of(sc.Start)},
		Ceiling:  of(sc.Ceiling),
		Rate:     sc.Cost > 0,
	}
	if b.Rate {
		b.Grow = b.Ceiling / 50
	}
	return b
}

// Summary is what the runs of a scenario with several seeds have measured.
type Summary struct {
	All       float64 // use of the capacity, mean of the runs
	Mean      float64 // the same outside of settling
	Lowest    float64 // lowest second of all runs outside of settling; 0: a run has none
	Refused   float64 // part of the calls that was refused in the worst run
	Recovered int64   // ns: longest time until 85 % of a capacity was used
	Cuts      float64 // mean of the runs
}

// Measure runs a scenario with each of the seeds from 0 on.
func Measure(sc Scenario, way Way, seeds int) (s Summary) {
	results := make([]Result, seeds)
	var group sync.WaitGroup
	free := make(chan struct{}, runtime.GOMAXPROCS(0))
	for seed := range results {
		free <- struct{}{}
		group.Go(func() {
			results[seed] = Run(sc, uint64(seed), way.Limits(&sc)...)
			<-free
		})
	}
	group.Wait()
	n := float64(seeds)
	for seed, r := range results {
		if seed == 0 || r.Lowest < s.Lowest {
			s.Lowest = r.Lowest
		}
		s.All += r.All / n
		s.Mean += r.Mean / n
		s.Refused = max(s.Refused, r.RefusedPart())
		s.Recovered = max(s.Recovered, r.Recovered)
		s.Cuts += float64(r.Cuts) / n
	}
	return s
}
