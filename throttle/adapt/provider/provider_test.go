package provider

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/throttle/adapt"
)

const seeds = 30

type summary struct {
	all, lowest, refused float64
	recovered            time.Duration
	cuts                 float64
}

// measure returns the means over the seeds, the lowest second and the longest recovery.
func measure(clients func() []Client) (s summary) {
	s.lowest = 1
	for seed := range uint64(seeds) {
		r := Run(Standard(), seed, clients()...)
		s.lowest = min(s.lowest, r.Lowest)
		s.all += r.All / seeds
		s.refused = max(s.refused, r.RefusedPart())
		s.recovered = max(s.recovered, time.Duration(r.Recovered))
		s.cuts += float64(r.Cuts) / seeds
	}
	return s
}

func (s summary) String() string {
	return fmt.Sprintf("use %.3f, lowest second %.3f, refused %.2f %%, back after %.1f s, %.0f cuts",
		s.all, s.lowest, 100*s.refused, s.recovered.Seconds(), s.cuts)
}

const growPerS = 6

func bounds(ceiling, least int64) adapt.Bounds {
	return adapt.Bounds{
		Settings: adapt.Settings{Min: least * adapt.One, Backoff: adapt.DefaultBackoff, Grow: adapt.One, GrowPerS: growPerS * adapt.One},
		Ceiling:  ceiling * adapt.One,
	}
}

// The figures of docs/adr/0041.
func TestALevelFollowsTheProvider(t *testing.T) {
	const ceiling = 60
	learned := measure(func() []Client { return []Client{&Learner{Bounds: bounds(ceiling, 4)}} })
	alone := measure(func() []Client { return []Client{&AIMD{Bounds: bounds(ceiling, 4)}} })
	three := measure(func() []Client {
		b := bounds(ceiling/3, 1)
		return []Client{&AIMD{Bounds: b}, &AIMD{Bounds: b}, &AIMD{Bounds: b}}
	})
	t.Logf("learned level:        %v", learned)
	t.Logf("one additive client:  %v", alone)
	t.Logf("three of them:        %v", three)
	require.GreaterOrEqual(t, learned.lowest, Enough)
	require.LessOrEqual(t, learned.refused, 0.02)
	require.LessOrEqual(t, learned.recovered, ceiling/growPerS*time.Second)
	require.Less(t, alone.lowest, Enough, "additive increase would do")
}
