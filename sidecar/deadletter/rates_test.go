package deadletter

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire/api"
)

var began = time.Date(2026, 1, 2, 12, 0, 30, 0, time.UTC)

// read returns the counts of some minutes that end with one.
func (r *Rates) read(minutes int, at time.Time) api.DeadRates {
	reply := api.DeadRates{Groups: []api.DeadRate{}, Other: make([]int64, minutes)}
	r.AddTo(&reply, at.UnixNano())
	return reply
}

func died(text string) *store.Dead {
	return &store.Dead{SourceQueue: "orders", Error: text, Reason: "max_deliveries"}
}

// TestRatesCountByMinuteAndGroup for an hour; a group has the name and text that Index gives it.
func TestRatesCountByMinuteAndGroup(t *testing.T) {
	var r Rates
	require.Empty(t, r.read(10, began).Groups)
	at := func(minute int) time.Time { return began.Add(time.Duration(minute) * time.Minute) }
	for minute := range 3 {
		for i := range minute + 1 {
			r.Add(died(fmt.Sprintf("order %d is gone", i)), at(minute).UnixNano())
		}
	}
	r.Add(died("card declined"), at(2).UnixNano())
	got := r.read(4, at(2))
	Largest(&got, 1)
	require.Equal(t, api.DeadRates{
		Messages: 7, Total: 2, Other: []int64{0, 0, 0, 1},
		Groups: []api.DeadRate{{Group: GroupID(died("order 1 is gone")), SourceQueue: "orders", Error: "order # is gone", Messages: 6, Minutes: []int64{0, 1, 2, 3}}},
	}, got)
	got = r.read(60, at(61))
	require.EqualValues(t, 4, got.Messages, "minutes 2 to 61")
	require.Empty(t, r.read(60, at(62)).Groups)
	require.EqualValues(t, 3, r.read(2, at(1)).Messages, "a clock that was set back by a minute")
	r.Add(died("order 5 is gone"), at(-120).UnixNano())
	require.EqualValues(t, 1, r.read(60, at(-120)).Messages, "a clock that was set back by hours")
	require.EqualValues(t, 1, r.read(60, at(3)).Messages, "the group counts anew, others do not")
}

// TestRatesAreBounded: groups beyond the limit count as others, until one of the others has had no
// dead letter for an hour.
func TestRatesAreBounded(t *testing.T) {
	var r Rates
	distinct := func(i int) *store.Dead {
		return &store.Dead{SourceQueue: "orders", ErrorCode: fmt.Sprint("E", i), Error: "x"}
	}
	for i := range 3 * ratedGroups {
		r.Add(distinct(i), began.UnixNano())
	}
	got := r.read(1, began)
	require.EqualValues(t, 3*ratedGroups, got.Messages)
	require.Len(t, got.Groups, ratedGroups)
	require.Equal(t, []int64{2 * ratedGroups}, got.Other)
	for i := range 500 {
		r.Add(&store.Dead{SourceQueue: "orders", Error: fmt.Sprintf("text %d", i)}, began.UnixNano())
		require.LessOrEqual(t, len(r.texts), ratedTexts)
	}
	later := began.Add(2 * time.Hour)
	r.Add(distinct(1_000_000), later.UnixNano())
	require.Len(t, r.groups, 1)
	require.Len(t, r.read(60, later).Groups, 1)
}

// TestRatesOfNodesAreJoined: minutes of nodes whose clocks differ are the same minutes.
func TestRatesOfNodesAreJoined(t *testing.T) {
	node := func(group string, counts ...int64) *api.DeadRates {
		d := &api.DeadRates{Total: 3, Other: []int64{0, 1, 0}, Groups: []api.DeadRate{{Group: group, Minutes: counts}}}
		for _, n := range counts {
			d.Groups[0].Messages += n
		}
		d.Messages = d.Groups[0].Messages + 1
		return d
	}
	all := api.DeadRates{Other: make([]int64, 3)}
	Join(&all, node("a", 1, 2, 3), 0)
	Join(&all, node("b", 4, 5, 6), 1)
	Join(&all, node("c", 7, 8, 9), -1)
	Largest(&all, 2)
	require.Equal(t, 9, all.Total)
	require.EqualValues(t, 6+15+24+3, all.Messages)
	require.Equal(t, []string{"c", "b"}, []string{all.Groups[0].Group, all.Groups[1].Group})
	require.Equal(t, []int64{0, 7, 8}, all.Groups[0].Minutes)
	require.Equal(t, []int64{5, 6, 0}, all.Groups[1].Minutes)
	require.Equal(t, []int64{1 + 1, 2 + 1, 3 + 1}, all.Other, "group a and the others of each node")
}

// BenchmarkRates counts dead letters whose texts all differ.
func BenchmarkRates(b *testing.B) {
	var r Rates
	var all []*store.Dead
	for i := range 10_000 {
		all = append(all, died(fmt.Sprintf("dial tcp 10.0.0.%d:5432: i/o timeout after %d ms for customer cust-%d", i%250, i, i)))
	}
	b.ReportAllocs()
	for i := range b.N {
		r.Add(all[i%len(all)], began.UnixNano())
	}
}
