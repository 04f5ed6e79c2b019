package admin

import (
	"cmp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// Merged pages of several nodes are one sorted list: each item is on exactly one page, also
// if two nodes have it, and if a node's page is shorter than the limit.
func TestMergedPagesAreOneList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		item := rapid.StringMatching("[a-z]{1,2}")
		nodes := rapid.SliceOfN(rapid.SliceOfNDistinct(item, 0, 20, rapid.ID[string]), 1, 4).Draw(t, "nodes")
		limit := rapid.IntRange(1, 30).Draw(t, "limit")
		var want, got []string
		for _, items := range nodes {
			slices.Sort(items)
			want = append(want, items...)
		}
		slices.Sort(want)
		want = slices.Compact(want)
		for after, more := "", true; more; more = after != "" {
			var pages []api.PageOf[string]
			for _, items := range nodes {
				from, found := slices.BinarySearch(items, after)
				if found {
					from++
				}
				rest := items[from:]
				n := min(len(rest), rapid.IntRange(1, limit).Draw(t, "length of a page"))
				page, next := rest[:n], rest[n:]
				pages = append(pages, api.PageOf[string]{Items: &page, Next: new(strings.Join(next, ""))})
			}
			var merged []string
			after = ""
			merge(api.PageOf[string]{Items: &merged, Next: &after, Cursor: func(s *string) string { return *s }}, pages, limit, cmp.Compare[string])
			require.LessOrEqual(t, len(merged), limit)
			got = append(got, merged...)
		}
		require.Equal(t, want, got)
	})
}

// A node that does not know the failures of a circuit gets them from the others.
func TestPastOfACircuitAtSeveralNodes(t *testing.T) {
	minute := func(n int) string { return wire.Timestamp(int64(n) * 60e9) }
	to := api.CircuitInfo{History: &api.CircuitHistory{Since: minute(2), Failures: []api.CircuitFailures{{Minute: minute(3), Failures: 1}}, Openings: []api.CircuitOpened{{Minute: minute(4), Openings: 2}}}}
	from := api.CircuitInfo{
		LastFailure: &api.CircuitFailure{At: minute(4), Error: "boom"},
		History: &api.CircuitHistory{
			Since: minute(1), Changes: []api.CircuitChange{{At: minute(4), New: "open"}},
			Failures: []api.CircuitFailures{{Minute: minute(2), Failures: 7}, {Minute: minute(3), Failures: 4}},
			Openings: []api.CircuitOpened{{Minute: minute(2), Openings: 3}, {Minute: minute(4), Openings: 1}},
		},
		Openings: &api.CircuitOpenings{Count: 4, Last: minute(4), Cause: api.CauseFailures},
	}
	addCircuit(&to, &from)
	require.Equal(t, from.LastFailure, to.LastFailure)
	require.Equal(t, &api.CircuitHistory{
		Since: minute(1), Changes: from.History.Changes, Failures: []api.CircuitFailures{{Minute: minute(2), Failures: 7}, {Minute: minute(3), Failures: 5}},
		Openings: []api.CircuitOpened{{Minute: minute(2), Openings: 3}, {Minute: minute(4), Openings: 2}},
	}, to.History)
	require.Equal(t, from.Openings, to.Openings)
	addCircuit(&to, &api.CircuitInfo{LastFailure: &api.CircuitFailure{At: minute(1), Error: "an older one"}})
	require.Equal(t, "boom", to.LastFailure.Error)
	to = api.CircuitInfo{}
	addCircuit(&to, &from)
	require.Equal(t, from, to)
}

// A prefix has the waiting keys of all nodes, the most first.
func TestWaitingKeysOfAPrefixAtSeveralNodes(t *testing.T) {
	to := api.ThrottleInfo{
		Waiting: 1, WaitingMessages: 4, WaitingQueues: []api.WaitingQueue{{Queue: "a", Messages: 4, Flows: 2}},
		WaitingKeys: []api.WaitingKey{{Key: "t:1", Messages: 3}, {Key: "t:2", Messages: 1}},
	}
	addThrottle(&to, &api.ThrottleInfo{
		Waiting: 1, WaitingMessages: 9, WaitingQueues: []api.WaitingQueue{{Queue: "b", Messages: 9, Flows: 2}},
		WaitingKeys: []api.WaitingKey{{Key: "t:2", Messages: 7}, {Key: "t:3", Messages: 2}},
	})
	require.Equal(t, api.ThrottleInfo{
		Waiting: 2, WaitingMessages: 13, WaitingQueues: []api.WaitingQueue{{Queue: "b", Messages: 9, Flows: 2}, {Queue: "a", Messages: 4, Flows: 2}},
		WaitingKeys: []api.WaitingKey{{Key: "t:2", Messages: 8}, {Key: "t:1", Messages: 3}, {Key: "t:3", Messages: 2}},
	}, to)
}
