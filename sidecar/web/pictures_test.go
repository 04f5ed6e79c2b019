package web

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/filaq/fila/wire/api"
)

// countWaits counts waits (seconds) as fila does.
func countWaits(waits []float64) []int64 {
	n := make([]int64, len(api.WaitBounds)+1)
	for _, w := range waits {
		i, _ := slices.BinarySearch(api.WaitBounds, w)
		n[i]++
	}
	return n
}

// A quantile of counts is in the same range of waits as the exact one, does not fall with its
// part, and is never above the longest wait that was seen.
func TestQuantile(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		waits := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) float64 {
			return math.Pow(10, rapid.Float64Range(-4, 4).Draw(t, "exponent"))
		}), 1, 50).Draw(t, "waits")
		slices.Sort(waits)
		counts, longest := countWaits(waits), waits[len(waits)-1]
		before := 0.0
		for _, part := range []float64{0.01, 0.5, 0.9, 0.99, 1} {
			got := quantile(counts, part, longest)
			require.GreaterOrEqual(t, got, before)
			require.LessOrEqual(t, got, longest)
			exact := waits[min(int(math.Ceil(part*float64(len(waits))))-1, len(waits)-1)]
			i, _ := slices.BinarySearch(api.WaitBounds, exact)
			if i > 0 {
				require.GreaterOrEqual(t, got, api.WaitBounds[i-1])
			}
			if i < len(api.WaitBounds) {
				require.LessOrEqual(t, got, api.WaitBounds[i])
			}
			before = got
		}
	})
	n := make([]int64, len(api.WaitBounds)+1)
	require.Zero(t, quantile(n, 0.5, 1))
	n[len(n)-1] = 1
	require.EqualValues(t, 3600, quantile(n, 0.5, 0), "how long is not known")
	require.EqualValues(t, 7200, quantile(n, 1, 7200))
	n[16], n[len(n)-1] = 100, 0 // 60 to 300 s
	require.EqualValues(t, 118, quantile(n, 1, 118))
	require.InDelta(t, 89, quantile(n, 0.5, 118), 1e-9)

	median, high := waits(n, n, 1)
	require.Zero(t, median)
	require.Zero(t, high)
}

// The heatmap has each delivery once, in the minute of its sample, and forgets it after an
// hour.
func TestHeat(t *testing.T) {
	var h heat
	now := time.Unix(1_700_000_000, 0)
	count := make([]int64, len(api.WaitBounds)+1)
	for i := range 200 {
		before := slices.Clone(count)
		count[i%len(count)] += int64(i)
		h.add(now.Add(time.Duration(i)*time.Minute), before, count, 0.0007)
	}
	end := now.Add(199 * time.Minute)
	columns := h.last(end)
	require.Len(t, columns, heatColumns)
	p := heatPictureOf(columns, end)
	require.EqualValues(t, 199, p.Most)
	require.Len(t, p.Rows, heatColumns)
	cells := 0
	for i, r := range p.Rows {
		require.EqualValues(t, 199-i, r.Deliveries, "the newest first")
		require.LessOrEqual(t, max(r.Median, r.High), 0.7, "the longest wait that was seen")
	}
	for _, shade := range p.Shades {
		cells += strings.Count(shade, "z")
	}
	require.Equal(t, heatColumns, cells)
	require.Empty(t, h.last(end.Add(2*time.Hour)))
	require.Zero(t, heatPictureOf(nil, end).Most)
}

// The stack names the keys with the most deliveries, and all deliveries of a point are in it.
func TestStack(t *testing.T) {
	h := &history{}
	h.mu.rings = map[string]*ring{"orders": {}}
	now := time.Unix(1_700_000_000, 0)
	var all int64
	for i := range 31 {
		all = 0
		var list []api.EndedCount
		for k := range api.SampledTenants {
			n := int64(i * 10 * (k + 1))
			list = append(list, api.EndedCount{Key: fmt.Sprint("key-", k), Ended: n})
			all += n
		}
		all += int64(i * 50) // of keys that the sample does not name
		h.keepTenants(h.mu.rings["orders"], now.Add(time.Duration(i)*historyStep), &api.QueueDetail{Tenants: list, Ended: all})
	}
	end := now.Add(30 * historyStep)
	s := h.tenants("orders", end, 10)
	require.Len(t, s.At, 30)
	require.Equal(t, "key-7", s.Keys[0])
	require.Len(t, s.Keys, stackKeys)
	require.Len(t, s.Means, stackKeys+1)
	require.InDelta(t, 8, s.Means[0], 1e-3)
	require.InDelta(t, 1+5, s.Means[stackKeys], 1e-3, "one named key too many, and the others")
	require.InDelta(t, 41, s.All, 1e-3)
	require.InDelta(t, 41, s.Top, 1e-3)
	for i := range s.At {
		sum := 0.0
		for _, v := range s.Values {
			sum += v[i]
		}
		require.InDelta(t, 41, sum, 1e-3)
	}
	require.Len(t, s.areas(end, 10), stackKeys+1)
	require.Len(t, h.tenants("orders", end, 1).At, 6)
	require.Empty(t, h.tenants("none", end, 10).Keys)
}

// A ring of fairness keys is bounded however many keys come and go, and its points keep their
// keys when it forgets others.
func TestTenantRingIsBounded(t *testing.T) {
	var r tenantRing
	r.number = make(map[string]int)
	now := time.Unix(1_700_000_000, 0)
	for i := range 3 * historyPoints {
		list := []api.EndedCount{{Key: "stays", Ended: int64(i) * 100}}
		for k := range api.SampledTenants - 1 {
			key := fmt.Sprint("key-", (i/2)*api.SampledTenants+k)
			list = append(list, api.EndedCount{Key: key, Ended: int64(i%2) * 10})
		}
		r.add(now.Add(time.Duration(i)*historyStep), list, int64(i)*1000)
		require.LessOrEqual(t, len(r.keys), maxTenantKeys)
		require.LessOrEqual(t, len(r.points), historyPoints)
	}
	for i := range r.points {
		p := &r.points[i]
		require.Equal(t, "stays", r.keys[p.key[0]])
		require.EqualValues(t, 10, p.rate[0])
	}
}

// The picture of lanes shows what the verb says: bars in proportion, and each delivery once,
// in the lane of its key, at its place.
func TestLanesPicture(t *testing.T) {
	reply := api.LanesReply{Quantum: 2, Keys: 4, Lanes: []api.Lane{
		{Key: "a", Weight: 1, Ready: 300, Blocked: 100, Deficit: 1},
		{Key: "b", Weight: 2, Blocked: 200, Deficit: -3},
		{Key: "c", Weight: 1, Ready: 1},
		{Key: "idle", Weight: 1},
	}}
	for i, key := range []string{"a", "b", "b", "c", "elsewhere", "a"} {
		reply.Next = append(reply.Next, api.NextDelivery{Key: key, ID: strconv.Itoa(i)})
	}
	p := pictureOf(&reply, map[string]int{"a": 1, "b": 2})
	require.Len(t, p.Lanes, 4, "three, and the lane of others")
	require.True(t, p.Lanes[3].Others)
	require.Equal(t, 1, p.Hidden)
	width := func(text string) float64 {
		v, err := strconv.ParseFloat(strings.TrimSuffix(text, "%"), 64)
		require.NoError(t, err)
		return v
	}
	a, b, c := &p.Lanes[0], &p.Lanes[1], &p.Lanes[2]
	require.InDelta(t, 3*width(a.BlockedW), width(a.ReadyW), 0.02)
	require.InDelta(t, backlogLength, width(a.ReadyW)+width(a.BlockedW), 0.02)
	require.InDelta(t, backlogLength/2, width(b.BlockedW), 0.02)
	require.Greater(t, width(c.ReadyW), 0.5, "one message can be seen")
	require.InDelta(t, deficitLength/2, width(a.DeficitW), 0.02)
	require.True(t, b.Owes)
	require.InDelta(t, deficitLength*3/4, width(b.DeficitW), 0.02)
	require.Empty(t, c.DeficitW)
	seen := make(map[int]string)
	for _, l := range p.Lanes {
		for _, m := range l.Marks {
			require.Empty(t, seen[m.N], "one mark for each")
			seen[m.N] = m.Key
			require.Equal(t, m.Key, reply.Next[m.N-1].Key)
			require.True(t, l.Others || l.Key == m.Key)
		}
	}
	require.Len(t, seen, len(reply.Next))
}
