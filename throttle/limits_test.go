package throttle

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParseRate(t *testing.T) {
	for s, want := range map[string]Rate{
		"10": PerSecond(10 * One), "0.5": {One, 2 * sec}, "1/3": {One, 3 * sec}, "2.50": {5 * One, 2 * sec},
		"1000000000": PerSecond(MaxRate * One), "1/31536000": {One, MaxWindow}, "100/86400": {One, 864 * sec},
		"0.000001": {One, 1_000_000 * sec}, ".5": {One, 2 * sec},
	} {
		r, err := ParseRate(s)
		require.NoError(t, err, s)
		require.Equal(t, want, r, s)
		again, err := ParseRate(r.String())
		require.NoError(t, err, s)
		require.Equal(t, r, again)
	}
	_, err := ParseRate("1/0")
	require.ErrorIs(t, err, ErrLimits)
	require.ErrorContains(t, err, `rate "1/0": allowed is a number per second`)
	require.Equal(t, "none", Rate{}.String())
	require.Equal(t, "0.5", Rate{One, 2 * sec}.String())
	require.Equal(t, "0.333", PerSecond(333).String())
	require.Equal(t, "7/3ns", Rate{7, 3}.String())
}

func TestValidate(t *testing.T) {
	for want, l := range map[string]Limits{
		"burst: needs":       {Burst: 1},
		"burst: -1":          {Rate: PerSecond(1), Burst: -1},
		"burst: 1000000000":  {Rate: PerSecond(1), Burst: MaxBurst + 1},
		"rate: 0":            {Rate: Rate{0, 1}},
		"rate: -5":           {Rate: PerSecond(-5)},
		"rate: per 0":        {Rate: Rate{1, 0}},
		"rate: 100000000000": {Rate: PerSecond(MaxRate*One + 1)},
		"limit: -1":          {Limit: -1, Window: 1},
		"limit: 1000000001":  {Limit: MaxLimit + 1, Window: 1},
		"window: 3":          {Limit: 1, Window: MaxWindow + 1},
		"limit and window":   {Limit: 1},
		"concurrency: -1":    {Concurrency: -1},
	} {
		err := l.Validate()
		require.ErrorIs(t, err, ErrLimits)
		require.ErrorContains(t, err, want)
		g := newGates()
		_, err = g.SetLimits("k", l, start, nil)
		require.ErrorContains(t, err, want)
		_, err = g.SetPrefix("k", l, start, nil)
		require.ErrorContains(t, err, want)
		require.Empty(t, g.Keys())
	}
	require.NoError(t, Limits{}.Validate())
	for _, tc := range []struct {
		l    Limits
		want int64
	}{
		{Limits{Rate: PerSecond(500)}, One},
		{Limits{Rate: PerSecond(2500)}, 2500},
		{Limits{Rate: Rate{7, 3}}, 2_333_333_333},
		{Limits{Rate: PerSecond(MaxRate * One)}, MaxBurst},
		{Limits{Rate: PerSecond(5000), Burst: 1}, 1},
	} {
		require.Equal(t, tc.want, tc.l.burst())
	}
}

func TestRateGivesAndTakes(t *testing.T) {
	for _, tc := range []struct {
		rate            string
		d, gives, takes int64 // takes: for what it gives
	}{
		{"10", 100_000_000, 1000, 100_000_000},
		{"10", 99_999, 0, 0},
		{"1/3", 1_000_000_000, 333, 999_000_000},
		{"0.5", second, 500, second},
		{"1000000000", Never, MaxBurst, second},
		{"1", -5, 0, 0},
	} {
		r, err := ParseRate(tc.rate)
		require.NoError(t, err)
		require.Equal(t, tc.gives, r.Gives(tc.d), tc)
		require.Equal(t, tc.takes, r.Takes(tc.gives), tc)
		require.LessOrEqual(t, r.Takes(r.Gives(tc.d)), max(0, tc.d), tc)
	}
	require.Zero(t, Rate{}.Gives(second))
	require.Equal(t, int64(Never), Rate{}.Takes(1))
	require.Equal(t, int64(Never), Rate{Cost: 1, Per: maxPer}.Takes(math.MaxInt64))
	require.Equal(t, int64(7000), Limits{Rate: PerSecond(7000)}.Full())
	require.Equal(t, int64(9), Limits{Rate: PerSecond(7000), Burst: 9}.Full())
	require.Zero(t, Limits{Limit: 5, Window: 1}.Full())
}
