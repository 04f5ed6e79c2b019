package provider

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A learned level uses a settled provider, is refused little, and takes a capacity that comes
// back within the time that its growth needs. docs/limits-that-learn.md has the figures.
func TestALevelFollowsTheProvider(t *testing.T) {
	ways := Ways()
	measure := func(sc Scenario, way Way) Summary {
		s := Measure(sc, way, Seeds)
		t.Logf("%s, %s: use %.3f, settled %.3f, lowest second %.3f, refused %.2f %%, back after %v, %.0f cuts",
			sc.Name, way.Name, s.All, s.Mean, s.Lowest, 100*s.Refused, time.Duration(s.Recovered), s.Cuts)
		return s
	}
	for _, sc := range Scenarios() {
		lowest, refused, back := Enough, 0.02, sc.Ceiling/sc.GrowPerS
		switch {
		case sc.Noise > 0: // a refusal without a reason cuts, also while the level comes back
			lowest, back = 0.7, 2*back
		}
		for _, way := range ways[:2] {
			s := measure(sc, way)
			require.GreaterOrEqual(t, s.Lowest, lowest, "%s, %s", sc.Name, way.Name)
			require.GreaterOrEqual(t, s.Mean, 0.95, "%s, %s", sc.Name, way.Name)
			require.LessOrEqual(t, s.Refused, refused, "%s, %s", sc.Name, way.Name)
			require.LessOrEqual(t, float64(s.Recovered)/second, back, "%s, %s", sc.Name, way.Name)
		}
	}
	alone := measure(Scenarios()[0], ways[2])
	require.Less(t, alone.Lowest, Enough, "additive increase would do")
}

// Without limits that learn, a provider admits what its scenario says.
func TestProviderAdmitsItsCapacity(t *testing.T) {
	for _, sc := range Scenarios() {
		sc.Noise = 0
		sc.Phases = []Phase{{30 * second, sc.Phases[0].Capacity}}
		fits, double := Run(sc, 1, Fixed(sc.Phases[0].Capacity*0.9)), Run(sc, 1, Fixed(sc.Phases[0].Capacity*2))
		require.InDelta(t, 0.9, fits.Mean, 0.02, sc.Name)
		require.InDelta(t, 1, double.Mean, 0.02, sc.Name)
		require.Positive(t, double.Refused, sc.Name)
		if sc.Slope == 0 {
			require.Less(t, fits.RefusedPart(), 0.001, sc.Name)
			continue
		}
		require.InDelta(t, (40*Enough-sc.Slope)/sc.Slope, float64(fits.Recovered)/second, 0.6, "s until it is used")
	}
}
