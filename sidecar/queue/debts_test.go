package queue

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// A debt is paid by the turns that go by.
func TestDebtsArePaidByRounds(t *testing.T) {
	var d debts
	const last = ^uint64(0) // rounds wrap around
	require.Zero(t, d.take("a", last))
	d.add("a", -500, 1000, last)
	require.Empty(t, d.byKey, "nothing is saved up")
	d.add("a", 5500, 1000, last)
	d.add("a", -500, 1000, last)
	d.add("a", 1000, 1000, 1) // two rounds later
	require.Equal(t, debt{owed: 4000, turn: 1000, round: 1}, d.byKey["a"])
	require.Equal(t, int64(1000), d.byKey["a"].rest(4))
	require.Zero(t, d.byKey["a"].rest(5))
	require.Zero(t, d.byKey["a"].rest(500))
	require.Equal(t, int64(1000), d.take("a", 4))
	require.Zero(t, d.take("a", 4), "it is somebody else's now")
}

// Who has paid is forgotten, and beyond a number somebody is, so that memory is bounded
// by those who owe something.
func TestDebtsAreForgotten(t *testing.T) {
	var d debts
	for i := range 10_000 {
		d.add(fmt.Sprint("key ", i), 10, 1, uint64(i))
		require.LessOrEqual(t, len(d.byKey), 25)
		require.Len(t, d.order, len(d.byKey))
	}
	for i := range maxDebts + 100 {
		d.add(fmt.Sprint("large ", i), 1<<60, 1, 10_000)
	}
	require.LessOrEqual(t, len(d.byKey), maxDebts)
	require.Len(t, d.order, len(d.byKey))
}
