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

// couple returns two members of a key with a rate of 10 and 40 in its bucket, which both use, and a
// function by which one of them writes; it reports what the member learns.
func couple(t *testing.T) (members map[string]*Member, write func(by string, a Ask, wants bool) (Limit, Landed), now *int64) {
	limits := throttle.Limits{Rate: throttle.PerSecond(10 * throttle.One), Burst: 50 * throttle.One, Adapt: adapt.Settings{Min: 1000, Backoff: 500}}
	now, rev := new(1000*ms), uint64(1)
	rec := Limit{
		Users: map[string]User{"a": {}, "b": {}}, Terms: Terms[throttle.Limits]{limits, 1, "a"},
		Level: Level{Used: true, Tokens: 40 * throttle.One, At: *now},
	}
	members = map[string]*Member{"a": NewMember("a"), "b": NewMember("b")}
	for _, m := range members {
		m.Join(*now, 0, rev, rec)
	}
	write = func(by string, a Ask, wants bool) (Limit, Landed) {
		next, over, _, ok := members[by].Swap(*now, Reading{Now: *now}, a, everybody, limits, 1)
		require.Equal(t, wants, ok)
		if ok {
			require.Equal(t, rev, over)
			var err error
			rec, err = DecodeLimit(next.Encode())
			require.NoError(t, err)
			rev++
		}
		landed, _ := members[by].Learn(*now, rev, rec)
		return rec, landed
	}
	return members, write, now
}

// Feedback lowers the bucket of a record once, by what it was worth when it came, and never raises it.
func TestFeedbackLowersARecord(t *testing.T) {
	limits := throttle.Limits{Rate: throttle.PerSecond(10 * throttle.One)}
	members, write, now := couple(t)
	a := members["a"]
	a.Lower(60*throttle.One, *now, limits.Rate)
	rec, _ := write("a", Ask{}, false)
	require.Zero(t, rec.Lowered, "it raises nothing")

	a.Lower(30*throttle.One, *now, limits.Rate)
	a.Lower(35*throttle.One, *now, limits.Rate)
	*now += 500 * ms
	a.Swap(*now, Reading{Now: *now}, Ask{}, everybody, limits, 0) // a write that is refused
	*now += 500 * ms
	a.GiveBack(Rest{Tokens: 9 * throttle.One, Until: *now + 1})
	rec, landed := write("a", Ask{}, true)
	require.EqualValues(t, 40*throttle.One, rec.Tokens, "and what the rate brought in a second")
	require.Equal(t, *now, rec.Lowered)
	require.False(t, landed.Lowered, "its own leases were not lowered by another")
	write("a", Ask{}, false)

	a.Lower(5*throttle.One, *now, limits.Rate)
	rec, _ = write("a", Ask{}, true)
	require.Equal(t, *now+1, rec.Lowered, "each time is later")
}

// Feedback that comes while an instance uses the key alone waits until that has handed over.
func TestFeedbackOutlivesAnOwner(t *testing.T) {
	limits := throttle.Limits{Rate: throttle.PerSecond(10 * throttle.One)}
	const now = int64(1_000_000_000_000)
	m := NewMember("a")
	record := func(owner string, seen uint64) Limit {
		return Limit{
			Owner: owner, Users: map[string]User{"a": {Seen: seen}, "b": {}}, Level: Level{Tokens: 9 * throttle.One, At: now},
			Terms: Terms[throttle.Limits]{limits, 1, "b"},
		}
	}
	swap := func(hold int64) (Limit, bool) {
		next, _, _, ok := m.Swap(now, Reading{Now: now}, Ask{Cost: throttle.One, Tokens: true, Hold: hold}, everybody, limits, 0)
		return next, ok
	}
	m.Learn(now, 1, record("b", 0))
	m.Lower(2*throttle.One, now, limits.Rate)
	_, ok := swap(1)
	require.True(t, ok)
	_, landed := m.Learn(now, 2, record("b", m.number))
	require.True(t, landed)
	m.Learn(now, 3, record("", m.number))
	next, ok := swap(0)
	require.True(t, ok)
	require.LessOrEqual(t, next.Tokens, int64(2*throttle.One))
	require.Equal(t, now, next.Lowered)
}

// Of leases from before the bucket was lowered nothing goes back; if nothing is left, they are not used.
func TestLeasesOfARecordThatWasLowered(t *testing.T) {
	rate := throttle.PerSecond(10 * throttle.One)
	for _, left := range []int64{20 * throttle.One, 0} {
		members, write, now := couple(t)
		a, b := members["a"], members["b"]
		b.GiveBack(Rest{Tokens: 9 * throttle.One, Until: *now + 1}, Rest{Tokens: -throttle.One, Until: throttle.Never})
		lost, over, g, ok := b.Swap(*now, Reading{Now: *now}, Ask{Tokens: true, Waits: true}, everybody, throttle.Limits{}, 0)
		require.True(t, ok && g.Tokens > 0)
		require.EqualValues(t, 1, over)
		a.Lower(left, *now, rate)
		rec, _ := write("a", Ask{}, true)
		require.Equal(t, left, rec.Tokens)
		landed, ok := b.Learn(*now, 2, rec)
		require.False(t, ok, "its own write was refused")
		require.True(t, landed.Lowered)
		rec, landed = write("b", Ask{Tokens: true, Waits: true}, true)
		require.Equal(t, left-throttle.One-landed.Tokens, rec.Tokens, "debts count")
		require.False(t, landed.Lowered)

		// Another member's view: its write was done, and the bucket was lowered after it.
		c := NewMember("b")
		c.Join(*now, 0, 1, Limit{Users: rec.Users, Level: Level{Used: true, Tokens: 40 * throttle.One, At: *now}, Terms: rec.Terms})
		_, _, g, _ = c.Swap(*now, Reading{Now: *now}, Ask{Tokens: true, Waits: true}, everybody, throttle.Limits{}, 0)
		lost.Lowered, lost.Tokens = *now, left
		lost.Users["b"] = User{Seen: 1000}
		landed, ok = c.Learn(*now, 3, lost)
		require.True(t, ok && landed.Lowered)
		if left == 0 {
			g.Tokens = 0
		}
		require.Equal(t, g.Tokens, landed.Tokens)
	}
}

// A version of fila without feedback leaves the time out. Its leases are as before, and a later lowering
// counts.
func TestARecordWithoutTheTimeOfFeedback(t *testing.T) {
	members, write, now := couple(t)
	rate := throttle.PerSecond(10 * throttle.One)
	members["a"].Lower(throttle.One, *now, rate)
	rec, _ := write("a", Ask{}, true)
	b := members["b"]
	landed, _ := b.Learn(*now, 2, rec)
	require.True(t, landed.Lowered)
	require.Contains(t, string(rec.Encode()), `"v":1,`)
	rec.Lowered = 0
	landed, _ = b.Learn(*now, 3, rec)
	require.False(t, landed.Lowered)
	rec.Lowered = *now + 5
	landed, _ = b.Learn(*now, 4, rec)
	require.True(t, landed.Lowered)
}
