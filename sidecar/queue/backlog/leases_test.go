package backlog

import (
	"cmp"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestLeasesModel compares the table with a map: deadlines in order
// whatever the visibility timeout does, and every lease written that is open
// for long enough, none before.
func TestLeasesModel(t *testing.T) {
	type model struct {
		index              uint32
		deadline, unstored int64
		stored             bool
	}
	rapid.Check(t, func(rt *rapid.T) {
		var table Leases
		live := make(map[uint64]*model)
		now, lastID := int64(1), uint64(0)
		pick := func(rt *rapid.T) (uint64, *model) {
			if len(live) == 0 {
				return 0, nil
			}
			var known []uint64
			for id := range live {
				known = append(known, id)
			}
			slices.Sort(known)
			id := rapid.SampledFrom(known).Draw(rt, "lease")
			return id, live[id]
		}
		rt.Repeat(map[string]func(*rapid.T){
			"add": func(rt *rapid.T) {
				lastID++
				deadline := now + rapid.Int64Range(1, 100).Draw(rt, "timeout")*1e6
				i := table.Add(Lease{ID: lastID, Seq: lastID, Deadline: deadline, Consumer: &Consumer{}})
				table.ToStore(i, now)
				live[lastID] = &model{index: i, deadline: deadline, unstored: now}
			},
			"remove": func(rt *rapid.T) {
				if id, m := pick(rt); m != nil {
					table.Remove(m.index)
					delete(live, id)
				}
			},
			"extend": func(rt *rapid.T) {
				if _, m := pick(rt); m != nil {
					m.deadline = now + rapid.Int64Range(1, 100).Draw(rt, "timeout")*1e6
					table.Extend(m.index, m.deadline, now)
					if m.stored {
						m.stored, m.unstored = false, now
					}
				}
			},
			"time": func(rt *rapid.T) { now += rapid.Int64Range(0, 30).Draw(rt, "ms") * 1e6 },
			"store": func(rt *rapid.T) {
				for {
					le := table.TakeUnstored(now - LeaseWriteDelay)
					if le == nil {
						break
					}
					m := live[le.ID]
					require.NotNil(rt, m, "a lease that has ended was to be written")
					require.False(rt, m.stored)
					require.LessOrEqual(rt, m.unstored+LeaseWriteDelay, now, "written too early")
					m.stored = true
				}
				for id, m := range live {
					require.True(rt, m.stored || m.unstored+LeaseWriteDelay > now, "lease %d was forgotten", id)
				}
			},
			"": func(rt *rapid.T) {
				last := int64(0)
				for le := table.First(); le != nil; le = table.Next(le) {
					require.GreaterOrEqual(rt, le.Deadline, last, "leases in the order of their deadlines")
					last = le.Deadline
				}
				require.Equal(rt, len(live), table.Live)
				first := table.First()
				require.Equal(rt, len(live) > 0, first != nil)
				if first != nil {
					var deadlines []int64
					for _, m := range live {
						deadlines = append(deadlines, m.deadline)
					}
					require.Equal(rt, slices.MinFunc(deadlines, cmp.Compare[int64]), first.Deadline)
				}
			},
		})
	})
}

// TestUnstoredLeasesAreBounded: under load there is always a lease younger than
// LeaseWriteDelay; the list of those to be written must not grow for ever.
func TestUnstoredLeasesAreBounded(t *testing.T) {
	var table Leases
	var open []uint32
	now := int64(0)
	for id := range uint64(200_000) {
		i := table.Add(Lease{ID: id + 1, Deadline: now + 1e9})
		table.ToStore(i, now)
		open = append(open, i)
		if len(open) > 10 {
			table.Remove(open[0])
			open = open[1:]
		}
		now += 1e5
		wrote := table.TakeUnstored(now - LeaseWriteDelay)
		require.Nil(t, wrote)
	}
	require.Less(t, cap(table.unstored), 20_000)
	require.LessOrEqual(t, len(table.Items), 11)
}
