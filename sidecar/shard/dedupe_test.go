package shard

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/filaq/fila/store"
)

func TestDedupeModel(t *testing.T) {
	type entry struct {
		id    store.ID
		until int64
	}
	rapid.Check(t, func(rt *rapid.T) {
		var d dedupe
		model := make(map[string]entry)
		now := int64(1000)
		key := rapid.SampledFrom([]string{"a", "b", "c", "d"})
		rt.Repeat(map[string]func(*rapid.T){
			"enqueue": func(rt *rapid.T) {
				k := key.Draw(rt, "key")
				d.sweep(now)
				id, ok := d.find(k, now)
				want, has := model[k]
				require.Equal(rt, has && want.until > now, ok)
				if ok {
					require.Equal(rt, want.id, id)
					return
				}
				// The window changes with the settings, so ends are not in order.
				e := entry{newID(), now + rapid.Int64Range(1, 50).Draw(rt, "window")}
				d.add(k, e.id, e.until)
				model[k] = e
			},
			"time": func(rt *rapid.T) { now += rapid.Int64Range(0, 40).Draw(rt, "passed") },
			"": func(rt *rapid.T) {
				for k, e := range model {
					id, ok := d.find(k, now)
					require.Equal(rt, e.until > now, ok, k)
					if ok {
						require.Equal(rt, e.id, id)
					}
				}
			},
		})
		now += 1000
		for range len(d.queue) + 1 {
			d.sweep(now)
		}
		require.Empty(rt, d.ids, "what has expired is forgotten")
		require.Empty(rt, d.queue)
	})
}

// TestDedupeTakesNoRoom: a steady stream of ids takes the memory of one window.
func TestDedupeTakesNoRoom(t *testing.T) {
	var d dedupe
	const window = 100
	for now := range int64(300_000) {
		d.sweep(now)
		d.add(fmt.Sprint(now), store.ID{}, now+window)
	}
	require.LessOrEqual(t, len(d.ids), window+4)
	require.Less(t, cap(d.queue), 50_000)
}
