package api

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPage(t *testing.T) {
	items := []int{1, 2, 3}
	require.Equal(t, []int{2, 3}, Page(items, 1, 2))
	require.Equal(t, []int{3}, Page(items, 2, 100))
	require.Empty(t, Page(items, 4, 1))
	require.Empty(t, Page(items, 0, 0))
	require.Equal(t, []int{2, 3}, Page(items, 1, math.MaxInt))
}

// TestACutPageSaysWhereItGoesOn: the next page begins after the last entry that was kept, not
// after one that was cut.
func TestACutPageSaysWhereItGoesOn(t *testing.T) {
	long := strings.Repeat("x", 1000)
	const last = "the last of the page"
	for name, tt := range map[string]struct {
		list Long
		next string // after the first
	}{
		"queues":    {&QueueList{Next: last, Queues: []QueueSummary{{Name: "a" + long}, {Name: "b"}}}, "a" + long},
		"config":    {&ConfigList{Next: last, Entries: []ConfigEntry{{Key: "a", Value: long}, {Key: "b", Value: long}}}, "a"},
		"log":       {&ConfigLog{Next: last, Entries: []ConfigLogEntry{{Seq: 7, Key: long}, {Seq: 6, Key: long}}}, "7"},
		"throttles": {&ThrottleList{Next: last, Throttles: []ThrottleInfo{{Key: "a" + long}, {Key: "b"}}}, "a" + long},
		"circuits":  {&CircuitList{Next: last, Circuits: []CircuitInfo{{Key: "a" + long}, {Key: "b"}}}, "a" + long},
		"pauses":    {&PauseList{Next: last, Pauses: []PauseInfo{{Kind: PauseKey, Queue: "q", Name: "a" + long}, {Kind: PauseKey}}}, "key/q/a" + long},
	} {
		t.Run(name, func(t *testing.T) {
			next := func(room int) string {
				tt.list.Shorten(room)
				data, err := json.Marshal(tt.list)
				require.NoError(t, err)
				var page struct{ Next string }
				require.NoError(t, json.Unmarshal(data, &page))
				return page.Next
			}
			require.Equal(t, last, next(1<<20), "nothing is cut")
			require.Equal(t, tt.next, next(envelope+1100))
			require.Equal(t, tt.next, next(1), "a page has one entry at least")
		})
	}
}
