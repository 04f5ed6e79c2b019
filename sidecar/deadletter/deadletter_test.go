package deadletter

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestGroupsAndKeysAreBounded: dead letters beyond the limits are counted, but in no group.
func TestGroupsAndKeysAreBounded(t *testing.T) {
	var x Index
	x.reset()
	for i := range maxKeys + 5 {
		l := deadLetter{seq: uint64(i), group: x.groupNumber(key{"orders", "", fmt.Sprint(i)}), key: x.keyNumber(fmt.Sprint(i))}
		require.Equal(t, i >= maxGroups, l.group == 0)
		require.Equal(t, i >= maxKeys, l.key == 0)
		x.add(l)
		x.dead = append(x.dead, l)
	}
	require.EqualValues(t, maxKeys+5-maxGroups, x.stats[0].count)
	for _, l := range x.dead {
		x.remove(l)
	}
	require.Empty(t, x.groups.number)
	require.NotZero(t, x.groupNumber(key{"orders", "", "another"}), "empty groups make room")
	require.Len(t, x.stats, maxGroups+1)
	require.Empty(t, x.keys.number)
	require.Empty(t, x.stats[0].keys)
}

// TestRedriveCountsAreBounded: the counts of the groups whose last redrive is longest ago go.
func TestRedriveCountsAreBounded(t *testing.T) {
	var r Redrives
	group := func(i int) *Group { return &Group{key{"orders", "", fmt.Sprint(i)}, fmt.Sprint(i), false} }
	for i := range maxRedriven {
		c := r.Count([]*Group{group(i), group(i), nil}, int64(i))
		require.Empty(t, c.drop)
		r.Commit(c)
	}
	r.Commit(r.Count([]*Group{group(0)}, maxRedriven))
	require.EqualValues(t, 3, r.recent(0)["0"].Count)
	again := &Group{key{"orders", "", "0"}, "0", true}
	r.Commit(r.Count([]*Group{again}, maxRedriven))
	require.EqualValues(t, 3, r.recent(0)["0"].Count, "it has been counted before")
	c := r.Count([]*Group{group(maxRedriven), group(maxRedriven + 1)}, maxRedriven+1)
	require.Equal(t, []string{"1", "2"}, c.drop)
	require.Len(t, c.put, 2)
	require.Contains(t, r.recent(0), "1", "the change is not on disk yet")
	r.Commit(c)
	require.Len(t, r.recent(0), maxRedriven)

	var many []*Group
	for i := range 2 * maxRedriven {
		many = append(many, group(i+1000))
	}
	c = r.Count(many, maxRedriven+2)
	require.Len(t, c.put, maxRedriven)
	require.Len(t, c.drop, maxRedriven)
	r.Commit(c)
	require.Len(t, r.recent(0), maxRedriven)
}
