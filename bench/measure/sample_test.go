package measure

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMedian(t *testing.T) {
	require.True(t, math.IsNaN(Median(nil)))
	require.EqualValues(t, 7, Median([]float64{7}))
	require.EqualValues(t, 2.5, Median([]float64{4, 1, 3, 2}))
	values := []float64{9, 1, 5}
	require.EqualValues(t, 5, Median(values))
	require.Equal(t, []float64{9, 1, 5}, values, "the order of the rounds stays")
}

func TestSummarizeAll(t *testing.T) {
	all := SummarizeAll([]Sample{{"rate": 10, "x_us": 1}, nil, {"rate": 30}, {"rate": 20}})
	require.Equal(t, map[string]Summary{
		"rate": {Median: 20, Min: 10, Max: 30, Rounds: 3},
		"x_us": {Median: 1, Min: 1, Max: 1, Rounds: 1},
	}, all)
	_, ok := Summarize(nil)
	require.False(t, ok)
}

// The machine slows down from round to round; fila is always twice as fast.
func TestRatiosArePairedByRound(t *testing.T) {
	fila := []Sample{{"rate": 200}, {"rate": 100}, {"rate": 20}}
	other := []Sample{{"rate": 100}, {"rate": 50}, {"rate": 10}}
	s, ok := PairUp(fila, other, "rate", "rate", Ratio)
	require.True(t, ok)
	require.Equal(t, Summary{Median: 2, Min: 2, Max: 2, Rounds: 3}, s)
}

func TestPairUpLeavesOutWhatIsMissing(t *testing.T) {
	of := []Sample{{"a": 1}, nil, {"a": 8}, {"a": 5}, {"a": 1}}
	to := []Sample{{"b": 2}, {"b": 2}, {}, {"b": 0}}
	s, ok := PairUp(of, to, "a", "b", Ratio)
	require.True(t, ok)
	require.Equal(t, Summary{Median: 0.5, Min: 0.5, Max: 0.5, Rounds: 1}, s)
	s, ok = PairUp(of, to, "a", "b", Difference)
	require.True(t, ok)
	require.Equal(t, Summary{Median: 2, Min: -1, Max: 5, Rounds: 2}, s)
	_, ok = PairUp(of, nil, "a", "b", Ratio)
	require.False(t, ok)
}

func TestUndefinedFiguresAreDropped(t *testing.T) {
	s := Sample{"a": math.NaN(), "b": math.Inf(1), "c": 1}
	s.DropUndefined()
	require.Equal(t, Sample{"c": 1}, s)
	Sample(nil).DropUndefined()
}
