package measure

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// relativeError is the upwards error of a percentile.
const relativeError = 0.001

// Percentiles are exact or up to relativeError too high.
func TestPercentilesMatchSortedValues(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var parts [3]Latencies
	var all []float64
	for i := range 20_000 {
		ns := int64(math.Exp(random.Float64() * math.Log(float64(maxLatency))))
		parts[i%2].Record(ns)
		all = append(all, float64(ns))
	}
	slices.Sort(all)
	var sum Latencies
	for i := range parts {
		parts[i].MoveTo(&sum)
	}
	s := Sample{}
	sum.Into(s, "confirm")
	require.Len(t, s, 4)
	for name, q := range map[string]float64{"confirm_p50_us": 0.5, "confirm_p99_us": 0.99, "confirm_p999_us": 0.999, "confirm_max_us": 1} {
		want := all[int(math.Ceil(q*float64(len(all))))-1] / 1e3
		require.GreaterOrEqual(t, s[name], want, name)
		require.InEpsilon(t, want, s[name], relativeError, name)
	}
}

func TestLatenciesAtTheirEdges(t *testing.T) {
	var l Latencies
	s := Sample{}
	l.Into(s, "x")
	require.Empty(t, s)

	l.Record(-5)
	l.Into(s, "x")
	require.Zero(t, s["x_max_us"])
	l.Record(math.MaxInt64)
	l.Into(s, "x")
	require.InEpsilon(t, time.Hour.Microseconds(), s["x_max_us"], relativeError)
	require.Zero(t, s["x_p50_us"])
}

func TestMovedLatenciesAreGone(t *testing.T) {
	var l, first, second Latencies
	s := Sample{}
	l.Record(1_000_000)
	l.MoveTo(&first)
	l.Into(s, "x")
	require.Empty(t, s)
	l.Record(5000)
	l.MoveTo(&second)
	l.MoveTo(&second)
	second.Into(s, "x")
	require.InEpsilon(t, 5, s["x_max_us"], relativeError, "the interval before is not in it")
	require.InEpsilon(t, 5, s["x_p50_us"], relativeError)
}
