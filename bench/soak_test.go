package bench

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/bench/system"
)

func TestSoakOptions(t *testing.T) {
	o := Options{Workloads: []string{"soak"}}
	require.NoError(t, o.Complete())
	require.Equal(t, 30*time.Minute, o.Duration)
	require.Equal(t, 1, o.Rounds)
	again := o
	require.NoError(t, again.Complete(), "complete options stay so")
	require.Equal(t, o, again)

	quick := Options{Workloads: []string{"soak"}, Quick: true}
	require.NoError(t, quick.Complete())
	require.Equal(t, 3*time.Second, quick.Duration)
	require.Zero(t, quick.Count)

	for want, o := range map[string]Options{
		"takes the machine to itself: name it alone":    {Workloads: []string{"life", "soak"}},
		"rounds is 5: a soak is one long round":         {Rounds: 5},
		"count is 9: a soak goes by time":               {Count: 9},
		"duration is 20ms: allowed for a soak is 1s":    {Duration: 20 * time.Millisecond},
		`workload "soak" needs a server of its own, wh`: {Target: &system.Access{}},
	} {
		if o.Workloads == nil {
			o.Workloads = []string{"soak"}
		}
		require.ErrorContains(t, o.Complete(), want)
	}
}

func TestSoakRunsOnlyWhenItIsNamed(t *testing.T) {
	var o Options
	require.NoError(t, o.Complete())
	for _, w := range o.selected() {
		require.NotEqual(t, "soak", w.Name)
	}
	o = Options{Workloads: []string{"soak"}}
	require.NoError(t, o.Complete())
	require.Len(t, o.selected(), 1)
	lanes := o.lanesOf(o.selected()[0])
	require.Len(t, lanes, 1)
	require.True(t, lanes[0].ownGC, "the server runs as its users run it")
	phases := lanes[0].spec.Phases
	require.EqualValues(t, 15_000, phases[0].DurationMs)
	require.EqualValues(t, 1_800_000, phases[1].DurationMs)
	require.EqualValues(t, 10_000, phases[1].SampleMs)
}

func TestIntervalsOfASoak(t *testing.T) {
	for whole, want := range map[time.Duration]time.Duration{
		30 * time.Minute: 10 * time.Second,
		time.Minute:      time.Second,
		6 * time.Second:  time.Second,
		3 * time.Second:  500 * time.Millisecond,
	} {
		require.Equal(t, want, soakEvery(whole), whole)
	}
}
