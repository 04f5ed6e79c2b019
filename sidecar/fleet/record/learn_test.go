package record

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/throttle"
	"github.com/filaq/fila/throttle/adapt"
)

// A record keeps settings and level of limits that learn; overloads of one generation cut once,
// no matter which instance reports them; successes count only while all permits are used.
func TestALevelInARecord(t *testing.T) {
	limits := throttle.Limits{Concurrency: 20, Adapt: adapt.Settings{Min: 2000, Backoff: 500, Grow: 1000, GrowPerS: 1_000_000, Start: 12_000, Expired: true}}
	env := LimitEnv{Reading: Reading{Now: 1e9}, Live: func(string) bool { return true }, Limits: limits, Set: 5}
	var l Limit
	number := uint64(0)
	write := func(a Ask) (g Grant, changed bool) {
		number++
		env.Now += 50_000_000
		a.Number = number
		l, g, changed = l.Apply(a, env)
		var err error
		l, err = DecodeLimit(l.Encode())
		require.NoError(t, err)
		return g, changed
	}
	level := func() int64 {
		b, ok := throttle.LevelBounds(l.Terms.Limits)
		require.True(t, ok)
		return l.Learned.Thousandths(&b)
	}
	write(Ask{By: "a"})
	require.Equal(t, "a", l.Owner)
	require.Equal(t, limits, l.Terms.Limits)
	require.EqualValues(t, 12_000, level(), "the start")
	_, changed := write(Ask{By: "a", Teach: &Learned{adapt.Level{At: 16, Last: 32, Cuts: 1, CutAt: env.Now}, "429", "a"}})
	require.True(t, changed, "the owner's cut")
	write(Ask{By: "b"})
	write(Ask{By: "a", Own: &Level{}, Hold: 10})
	require.Empty(t, l.Owner)
	require.EqualValues(t, 16_000, level())

	write(Ask{By: "b", Hold: 2, Lesson: throttle.Lesson{Successes: 5000}})
	require.EqualValues(t, 16_000, level(), "12 of 16 permits are used")
	write(Ask{By: "b", Hold: 5, Lesson: throttle.Lesson{Successes: 5000}})
	require.Greater(t, level(), int64(16_000))

	for _, by := range []string{"a", "b"} {
		write(Ask{By: by, Hold: 5, Lesson: throttle.Lesson{Overload: true, Cuts: 1, Cause: "429 at " + by}})
		require.EqualValues(t, 2, l.Learned.Cuts)
	}
	require.Equal(t, "429 at a", l.Learned.Cause)
	require.Equal(t, "a", l.Learned.By)
	g, _ := write(Ask{By: "b", Hold: 1, More: 10})
	require.EqualValues(t, level()/1000-5, g.Permits, "the level is what is divided")

	env.Limits.Level, env.Set = 7000, 6
	write(Ask{By: "a", Hold: 5, Lesson: throttle.Lesson{Overload: true, Cuts: 2}})
	require.EqualValues(t, 7000, level(), "fixed by hand")
	env.Limits, env.Set = throttle.Limits{Concurrency: 20}, 7
	write(Ask{By: "a", Hold: 5})
	require.Zero(t, l.Learned)
}
