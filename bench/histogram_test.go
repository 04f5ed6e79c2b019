package bench

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestBucketsFollowEachOther(t *testing.T) {
	last := -1
	for v := range int64(1 << 20) {
		b := bucketOf(v)
		require.True(t, b == last || b == last+1, "value %d is in bucket %d after %d", v, b, last)
		last = b
	}
	require.Equal(t, 0, bucketOf(0))
	require.InDelta(t, 255, middleOf(bucketOf(255)), 0)
}

func TestBucketsKnowAValueToOnePercent(t *testing.T) {
	for shift := range 44 {
		for _, v := range []int64{1 << shift, 1<<shift + 1<<shift/3, 1<<(shift+1) - 1} {
			require.InEpsilon(t, float64(v), middleOf(bucketOf(v)), 0.004, "value %d", v)
		}
	}
}

func TestPercentilesAreThoseOfTheSortedValues(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var h histogram
	var all []float64
	for range 20_000 {
		v := int64(math.Exp(random.Float64() * 20))
		h.record(v)
		all = append(all, float64(v))
	}
	slices.Sort(all)
	for _, q := range []float64{0.001, 0.5, 0.9, 0.99, 0.999, 1} {
		want := all[int(math.Ceil(q*float64(len(all))))-1]
		require.InEpsilon(t, want, h.percentile(q), 0.01, "q=%v", q)
	}
	require.EqualValues(t, all[len(all)-1], h.max)
}

func TestHistogramAtItsEdges(t *testing.T) {
	var h histogram
	require.True(t, math.IsNaN(h.percentile(0.5)))
	s := Sample{}
	h.into(s, "x")
	require.Empty(t, s)

	h.record(-5)
	require.Zero(t, h.percentile(1))
	h.record(math.MaxInt64)
	require.InEpsilon(t, maxLatency, h.percentile(1), 0.01)
	require.Zero(t, h.percentile(0), "the lowest rank is the first value")

	one := histogram{}
	one.record(1000)
	require.EqualValues(t, 1000, one.percentile(0.5), "no percentile is above the largest value")
}

func TestMergeAddsUp(t *testing.T) {
	var a, b, both histogram
	for i := range int64(1000) {
		both.record(i * i)
		if i%3 == 0 {
			a.record(i * i)
		} else {
			b.record(i * i)
		}
	}
	var sum histogram
	sum.merge(&a)
	sum.merge(&b)
	sum.merge(&histogram{})
	require.Equal(t, both, sum)
	s := Sample{}
	sum.into(s, "confirm")
	require.Len(t, s, 4)
	require.InEpsilon(t, 499*499/1e3, s["confirm_p50_us"], 0.01)
	require.InEpsilon(t, 999*999/1e3, s["confirm_max_us"], 1e-9)
}
