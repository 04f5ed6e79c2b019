package backlog

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// Rounds that pass pay a carried deficit back.
func TestDeficitsArePaidByRounds(t *testing.T) {
	var d Deficits
	const last = ^uint64(0) // rounds wrap around
	require.Zero(t, d.Take("a", last))
	d.Add("a", -500, 1000, last)
	require.Zero(t, d.Len(), "nothing is saved up")
	d.Add("a", 5500, 1000, last)
	d.Add("a", -500, 1000, last)
	d.Add("a", 1000, 1000, 1) // two rounds later
	require.Equal(t, carried{deficit: 4000, pays: 1000, round: 1}, d.byKey["a"])
	require.Equal(t, int64(1000), d.byKey["a"].rest(4))
	require.Zero(t, d.byKey["a"].rest(5))
	require.Zero(t, d.byKey["a"].rest(500))
	require.Equal(t, int64(1000), d.Take("a", 4))
	require.Zero(t, d.Take("a", 4), "it has been taken")
}

// Deficits that are paid back are forgotten; beyond maxDeficits, others are forgotten, too.
// So the number of keys with a carried deficit bounds the memory.
func TestDeficitsAreForgotten(t *testing.T) {
	var d Deficits
	for i := range 10_000 {
		d.Add(fmt.Sprint("key ", i), 10, 1, uint64(i))
		require.LessOrEqual(t, d.Len(), 25)
		require.Len(t, d.order, d.Len())
	}
	for i := range maxDeficits + 100 {
		d.Add(fmt.Sprint("large ", i), 1<<60, 1, 10_000)
	}
	require.LessOrEqual(t, d.Len(), maxDeficits)
	require.Len(t, d.order, d.Len())
}
