package bench

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/bench/system"
	"github.com/filaq/fila/wire"
)

func TestCompletePutsInDefaults(t *testing.T) {
	var o Options
	require.NoError(t, o.Complete())
	require.Equal(t, Options{Rounds: 5, Duration: 3 * time.Second, Backlog: 1_000_000, Payload: 1024}, o)
	again := o
	require.NoError(t, again.Complete(), "complete options stay so")
	require.Equal(t, o, again)

	quick := Options{Quick: true}
	require.NoError(t, quick.Complete())
	require.Equal(t, Options{Quick: true, Rounds: 1, Count: 1000, Backlog: 10_000, Payload: 1024}, quick)

	simulated := Options{Workloads: []string{"adapt"}}
	require.NoError(t, simulated.Complete())
	require.NoError(t, simulated.Complete(), "complete options stay so")

	chosen := Options{Quick: true, Duration: time.Second, Rounds: 3, Backlog: 50, Payload: 16}
	want := chosen
	require.NoError(t, chosen.Complete())
	require.Equal(t, want, chosen)
}

func TestCompleteNamesWhatIsWrong(t *testing.T) {
	for want, o := range map[string]Options{
		"rounds is -1: allowed is 1 to 1000":          {Rounds: -1},
		"rounds is 1001":                              {Rounds: 1001},
		"backlog is 3: allowed is 10 to":              {Backlog: 3},
		"size is 15: allowed is 16 to 524288":         {Payload: 15},
		"count is -4: allowed is 1 and more":          {Count: -4},
		"duration is 1ms: allowed is 10ms":            {Duration: time.Millisecond},
		"both a duration (1s) and a count (5)":        {Duration: time.Second, Count: 5},
		`workload "lief" is not known: allowed is e`:  {Workloads: []string{"life", "lief"}},
		`system "kafka" is not known: allowed is f`:   {Systems: []string{"kafka"}},
		`system "river" needs the program with the`:   {Systems: []string{"fila", "river"}},
		`system "hops" cannot be measured on a run`:   {Systems: []string{"hops"}, Target: &system.Access{}},
		"workload adapt is a simulation without serv": {Workloads: []string{"adapt", "life"}},
		"rounds, systems, a duration, a count and ba": {Workloads: []string{"adapt"}, Rounds: 3},
		`workload "memory" needs a server of its o`:   {Workloads: []string{"memory"}, Target: &system.Access{}},
	} {
		require.ErrorContains(t, o.Complete(), want)
	}
}

// Every lane of the catalogue can run and has its own name, and its base is a lane, too.
func TestCatalog(t *testing.T) {
	for _, o := range []Options{{}, {Quick: true}, {Count: 7, Backlog: 100}, {Target: &system.Access{}}, {Workloads: []string{"soak"}}, {Workloads: []string{"adapt"}}, {Workloads: []string{"peers"}, Peers: "peers"}} {
		require.NoError(t, o.Complete())
		for _, w := range o.selected() {
			require.NotEmpty(t, w.About)
			require.NotEmpty(t, w.Columns)
			seen := map[string]bool{}
			lanes := o.lanesOf(w)
			for i := range lanes {
				l := &lanes[i]
				name := w.Name + " / " + l.Case + " / " + string(l.spec.System)
				require.False(t, seen[name], name)
				seen[name] = true
				if l.simulate != nil {
					continue
				}
				require.NoError(t, l.spec.Check(), name)
				require.LessOrEqual(t, l.spec.Gates, 16, name)
				body, err := json.Marshal(l.spec.Queue.Settings)
				require.NoError(t, err)
				_, bad := wire.DefaultQueueSettings("q").Patch(body)
				require.Nil(t, bad, name)
			}
			if w.Base.Text == "" || o.Quick || o.Target != nil {
				continue
			}
			for i := range lanes {
				caseName, sys := w.Base.Of(lanes[i].Case, lanes[i].spec.System)
				require.True(t, seen[w.Name+" / "+caseName+" / "+string(sys)], "%s: %s", w.Name, lanes[i].Case)
			}
			for _, g := range w.Goals {
				require.True(t, slices.ContainsFunc(lanes, func(l lane) bool { return g.FitsCase(l.Case, l.spec.System) }),
					"no case of %s fits the goal %s", w.Name, g.Text)
			}
		}
	}
}

func TestChoiceOfLanes(t *testing.T) {
	count := func(o Options, name string) int {
		require.NoError(t, o.Complete())
		i := slices.IndexFunc(workloads, func(w workload) bool { return w.Name == name })
		return len(o.lanesOf(&workloads[i]))
	}
	require.Equal(t, 40, count(Options{}, "life"))
	require.Equal(t, 10, count(Options{Systems: []string{"fila", "hops"}}, "life"))
	require.Equal(t, 20, count(Options{Target: &system.Access{}}, "life"), "fila, fila-min, fila-batch and fila-fifo")
	require.Equal(t, 8, count(Options{Quick: true}, "life"))
	require.Zero(t, count(Options{Quick: true}, "keys-backlog"))
	require.Equal(t, 6, count(Options{Quick: true, Workloads: []string{"keys-backlog"}}, "keys-backlog"), "who names it gets it")

	ofNATS := len(system.Names()) - len(system.Peers())
	require.Less(t, count(Options{}, "peers"), 2*ofNATS, "no peer without its program")
	require.Equal(t, count(Options{}, "peers")+2*len(system.Peers()), count(Options{Peers: "peers"}, "peers"))
	for _, name := range system.Names() {
		require.NotEmpty(t, system.Name(name).Promise(), name)
	}

	o := Options{Workloads: []string{"recovery", "life"}}
	require.NoError(t, o.Complete())
	require.Len(t, o.selected(), 2)
	o = Options{Target: &system.Access{}}
	require.Len(t, o.selected(), len(workloads)-6, "all but those that stop servers or look into them, or need none")
	require.Len(t, Workloads(), len(workloads))
	require.Equal(t, "fila", system.Names()[0])
}
