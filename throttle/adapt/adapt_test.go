package adapt

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

const second = int64(1_000_000_000)

// Over any history the level stays within its bounds, one generation of deliveries cuts once,
// and no second grows by more than grow_per_s and what counts at once.
func TestLevelByChance(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := Bounds{Ceiling: rapid.Int64Range(1, 200*One).Draw(t, "ceiling"), Rate: rapid.Bool().Draw(t, "rate")}
		b.Settings = Settings{
			Min: rapid.Int64Range(1, 50*One).Draw(t, "min"), Backoff: rapid.Int64Range(LeastBackoff, MostBackoff).Draw(t, "backoff"),
			Grow: rapid.Int64Range(0, 4*One).Draw(t, "grow"), GrowPerS: rapid.Int64Range(0, 20*One).Draw(t, "perSecond"),
			Start: rapid.Int64Range(0, 300*One).Draw(t, "start"),
		}
		require.NoError(t, b.Validate())
		var l Level
		now := second
		type point struct {
			at    int64
			level float64
		}
		var since []point // since the last cut
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			now += rapid.Int64Range(0, second/2).Draw(t, "gone")
			before, cuts, cutAt := l.Value(&b), l.Cuts, l.CutAt
			switch rapid.IntRange(0, 5).Draw(t, "what") {
			case 0:
				delivered := now - rapid.Int64Range(0, second).Draw(t, "took")
				cut := l.Cut(delivered, now, &b)
				if b.Rate {
					cutAt += afterglow
				}
				require.Equal(t, cuts == 0 || delivered > cutAt, cut)
				if cut {
					require.False(t, l.Cut(delivered, now, &b), "a generation cuts once")
					require.LessOrEqual(t, l.Value(&b), before)
					require.Equal(t, cuts+1, l.Cuts)
					since = nil
				}
			default:
				l.Succeed(rapid.Int64Range(1, 100*One).Draw(t, "n"), now, &b)
				require.GreaterOrEqual(t, l.Value(&b), before-1e-9)
			}
			level := l.Value(&b)
			require.GreaterOrEqual(t, level, float64(min(b.Min, b.Ceiling))/One-1e-9)
			require.LessOrEqual(t, level, float64(b.Ceiling)/One+1e-9)
			for _, p := range since {
				most := float64(b.PerSecond()) / One * (float64(now-p.at) + slack) / 1e9
				require.LessOrEqual(t, level-p.level, most+1e-6)
			}
			since = append(since, point{now, level})
		}
	})
}

// A level that only succeeds comes back to the ceiling.
func TestGrowthReachesTheCeiling(t *testing.T) {
	b := Bounds{Settings: Settings{Min: One, Backoff: DefaultBackoff}, Ceiling: 100 * One}
	var l Level
	now := second
	for range 8 {
		now += second
		require.True(t, l.Cut(now-1, now, &b))
	}
	began := now
	for l.At != 0 {
		now += 20_000_000
		l.Succeed(2*One, now, &b)
		require.Less(t, now-began, 60*second)
	}
	require.EqualValues(t, b.Ceiling, l.Thousandths(&b))
}

// The growth is fast far below the last overload, slow next to it, and fast again beyond.
func TestGrowthIsSlowNextToTheLastOverload(t *testing.T) {
	b := Bounds{Settings: Settings{Min: One, Backoff: DefaultBackoff, GrowPerS: Most}, Ceiling: 1000 * One}
	var l Level
	l.Set(40, 0, &b)
	now := second
	require.True(t, l.Cut(now-1, now, &b))
	worth := func() float64 {
		before := l.Value(&b)
		now += second
		l.Succeed(int64(before*One), now, &b)
		return l.Value(&b) - before
	}
	require.Greater(t, worth(), 5.0)
	for l.Value(&b) < l.Target(&b) {
		worth()
	}
	require.Less(t, worth(), 1.0)
	for range 20 {
		worth()
	}
	require.Greater(t, worth(), 5.0)
}

func TestASetBackClockStillCuts(t *testing.T) {
	b := Bounds{Settings: Settings{Min: One, Backoff: DefaultBackoff}, Ceiling: 100 * One}
	var l Level
	require.True(t, l.Cut(1000*second, 1001*second, &b))
	require.False(t, l.Cut(1000*second, 1001*second, &b))
	require.True(t, l.Cut(11*second, 12*second, &b) || l.Cut(13*second, 14*second, &b))
}

func TestParse(t *testing.T) {
	for _, tc := range []struct {
		text, want string
		s          Settings
	}{
		{"overload", "overload,min=1,backoff=0.7", Settings{Min: One, Backoff: 700}},
		{"overload,min=4,backoff=0.7,grow=1", "overload,min=4,backoff=0.7,grow=1", Settings{Min: 4 * One, Backoff: 700, Grow: One}},
		{"overload,grow_per_s=0.5,expired,min=0.01", "overload,min=0.01,backoff=0.7,grow_per_s=0.5,expired", Settings{Min: 10, Backoff: 700, GrowPerS: 500, Expired: true}},
		{"overload,start=10", "overload,min=1,backoff=0.7,start=10", Settings{Min: One, Backoff: 700, Start: 10 * One}},
	} {
		s, err := Parse(tc.text)
		require.NoError(t, err, tc.text)
		require.Equal(t, tc.s, s)
		require.Equal(t, tc.want, s.Text())
	}
	for text, want := range map[string]string{
		"latency":                    `signal is "latency": allowed is overload`,
		"overload,min=0":             `min is "0": allowed is a number`,
		"overload,backoff=1":         "backoff is 1: allowed is 0.1 to 0.95",
		"overload,speed=1":           `"speed" is not known: allowed is overload`,
		"overload,grow=x":            `grow is "x"`,
		"overload,min=1,min=2":       `"min" is not known`,
		"overload,min=2000000000000": "min is",
	} {
		_, err := Parse(text)
		require.ErrorIs(t, err, ErrSettings, text)
		require.ErrorContains(t, err, want)
	}
	require.Empty(t, Settings{}.Text())
}
