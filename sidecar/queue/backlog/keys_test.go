package backlog

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/filaq/fila/drr"
)

// TestRecordsAreSmall: memory per pending message is what lets a backlog grow.
func TestRecordsAreSmall(t *testing.T) {
	require.EqualValues(t, 64, reflect.TypeFor[Slot]().Size())
	require.LessOrEqual(t, int(reflect.TypeFor[Key]().Size()), 64)
}

func TestKeysModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		table := newKeys()
		type live struct {
			key  string
			flow drr.Flow
		}
		var held []live
		weights, overrides := make(map[string]int64), make(map[string]int64)
		key := rapid.SampledFrom([]string{"a", "b", "c", "d", "e"})
		rt.Repeat(map[string]func(*rapid.T){
			"acquire": func(rt *rapid.T) {
				k, w := key.Draw(rt, "key"), rapid.Uint32Range(1, 9).Draw(rt, "weight")
				held = append(held, live{k, table.acquire(k, w)})
				weights[k] = int64(w)
			},
			"release": func(rt *rapid.T) {
				if len(held) == 0 {
					return
				}
				i := rapid.IntRange(0, len(held)-1).Draw(rt, "which")
				table.Release(held[i].flow)
				held = append(held[:i], held[i+1:]...)
			},
			"override": func(rt *rapid.T) {
				k, w := key.Draw(rt, "key"), rapid.Uint32Range(0, 9).Draw(rt, "weight")
				_, has := table.Override(k, w)
				found := false
				for _, h := range held {
					found = found || h.key == k
				}
				require.Equal(rt, found, has)
				overrides[k] = int64(w)
			},
			"": func(rt *rapid.T) {
				flows := make(map[string]drr.Flow)
				for _, h := range held {
					require.Equal(rt, h.key, table.Entries[h.flow].Name)
					want := weights[h.key]
					if o := overrides[h.key]; o > 0 {
						want = o
					}
					require.Equal(rt, want, table.Weight(h.flow), "the latest weight, or the override")
					if f, ok := flows[h.key]; ok {
						require.Equal(rt, f, h.flow, "one flow per key")
					}
					flows[h.key] = h.flow
				}
				require.Len(rt, table.IDs, len(flows), "keys without messages are forgotten")
				require.LessOrEqual(rt, len(table.Entries), 5, "flows are reused")
			},
		})
	})
}
