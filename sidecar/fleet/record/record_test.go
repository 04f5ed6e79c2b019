package record

import (
	"math"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/breaker"
)

func everybody(string) bool { return true }

func env(now int64) Env { return Env{Now: now, Live: everybody, Config: modelConfig} }

// apply applies a batch that must change the record.
func apply(t *testing.T, c Circuit, by string, now int64, steps ...Step) Circuit {
	t.Helper()
	next, changed := c.Apply(Batch{by, c.Seen[by] + 1, steps}, env(now))
	require.True(t, changed)
	return next
}

// opened returns a circuit that failures have opened at 1 s, until 2 s.
func opened(t *testing.T) Circuit {
	return apply(t, Circuit{}, "a", second, Step{Kind: Outcomes, Gen: 1, Run: Run{Lead: 2}})
}

func TestFailuresOfTwoInstancesOpen(t *testing.T) {
	c := apply(t, Circuit{}, "a", second, Step{Kind: Outcomes, Gen: 1, Run: Run{Lead: 1}})
	require.Equal(t, 1, c.Failures)
	require.Zero(t, c.Turn)
	c = apply(t, c, "b", second, Step{Kind: Outcomes, Gen: 1, Run: Run{Lead: 1}})
	require.Equal(t, breaker.Open, c.State)
	require.Equal(t, 2*second, c.OpenUntil)
	require.Equal(t, []any{CauseFailures, CauseFailures, "b", uint64(1), second}, []any{c.Cause, c.Why, c.By, c.Turn, c.ChangedAt})
	_, changed := c.Apply(Batch{"a", 2, []Step{{Kind: Outcomes, Gen: 1, Run: Run{Lead: 5, Reset: true, Tail: 9}}}}, env(second))
	require.False(t, changed, "outcomes of before it opened")
}

func TestSuccessesEndRows(t *testing.T) {
	cfg := breaker.Config{Threshold: 3} // later than the limits of a
	for name, tc := range map[string]struct {
		run  Run
		want int
		open bool
	}{
		"row":             {Run{Lead: 1}, 2, false},
		"row to the end":  {Run{Lead: 2}, 3, true},
		"success":         {Run{Reset: true}, 0, false},
		"row before":      {Run{Lead: 2, Reset: true}, 3, true},
		"row between":     {Run{Reset: true, Most: 3}, 3, true},
		"row after":       {Run{Reset: true, Tail: 3}, 3, true},
		"rows too short":  {Run{Lead: 1, Reset: true, Most: 2, Tail: 2}, 2, false},
		"longer than due": {Run{Lead: 7}, 3, true}, // later steps do not count
	} {
		t.Run(name, func(t *testing.T) {
			c := apply(t, Circuit{}, "a", 1, Step{Kind: Outcomes, Gen: 1, Run: Run{Lead: 1}})
			c, _ = c.Apply(Batch{"b", 1, []Step{{Kind: Outcomes, Gen: 1, Run: tc.run}}}, Env{Now: 1, Live: everybody, Config: cfg, Set: 1})
			require.Equal(t, tc.want, c.Failures)
			require.Equal(t, tc.open, c.State == breaker.Open)
		})
	}
}

// Merged steps have the same effect as single ones: all rows of failures and successes up to a
// length, cut at every place.
func TestMergedIsTheSame(t *testing.T) {
	for n := range 9 {
		for bits := range 1 << n {
			var row Run
			for cut := range n + 1 {
				var parts [2]Run
				for i := range n {
					o := breaker.Outcome(bits >> i & 1)
					k := 0
					if i >= cut {
						k = 1
					}
					parts[k] = parts[k].then(run(o))
				}
				row = parts[0].then(parts[1])
				for threshold := 1; threshold <= 4; threshold++ {
					m := breaker.NewMachine(breaker.Config{Threshold: threshold})
					longest := 0
					for i := range n {
						m.Done(1, 1, breaker.Outcome(bits>>i&1))
						longest = max(longest, m.Info(1).ConsecutiveFailures)
					}
					c, _ := (&Circuit{}).Apply(Batch{"a", 1, []Step{{Kind: Outcomes, Gen: 1, Run: row}}},
						Env{Now: 1, Live: everybody, Config: breaker.Config{Threshold: threshold}})
					require.Equal(t, m.State(), c.State, "%b of %d cut at %d", bits, n, cut)
					require.Equal(t, m.Info(1).ConsecutiveFailures, c.Failures)
					_, most := row.after(0)
					require.Equal(t, m.State() == breaker.Open, most >= threshold)
				}
			}
		}
	}
	steps := Merge(nil, Step{Kind: Outcomes, Gen: 1, Run: Run{Lead: 1}})
	require.Len(t, Merge(steps, Step{Kind: Outcomes, Gen: 2, Run: Run{Lead: 1}}), 2, "of two generations")
	steps = Merge(Merge(nil, Step{Kind: RetryAfter, Until: 7}), Step{Kind: RetryAfter, Until: 5})
	require.Equal(t, []Step{{Kind: RetryAfter, Until: 7}}, steps)
}

func TestPermits(t *testing.T) {
	c := opened(t)
	want := Step{Kind: Want}
	_, changed := c.Apply(Batch{"a", 2, []Step{want}}, env(2*second-1))
	require.False(t, changed, "its time is not over")
	c = apply(t, c, "a", 2*second, want)
	require.Equal(t, breaker.HalfOpen, c.State)
	require.Equal(t, []any{CauseTime, CauseFailures}, []any{c.Why, c.Cause})
	c = apply(t, c, "b", 2*second, want)
	require.Equal(t, map[string]int{"a": 1, "b": 1}, c.Permits)
	_, changed = c.Apply(Batch{"d", 1, []Step{want}}, env(2*second))
	require.False(t, changed, "there are two")

	// A step of a dead instance.
	next, changed := c.Apply(Batch{"d", 1, []Step{want}}, Env{Now: 2 * second, Live: func(i string) bool { return i != "b" }, Config: modelConfig})
	require.True(t, changed)
	require.Equal(t, map[string]int{"a": 1, "d": 1}, next.Permits)

	_, changed = c.Apply(Batch{"d", 1, []Step{{Kind: Probe, Gen: c.Gen, Outcome: breaker.Success}}}, env(2*second))
	require.False(t, changed, "it has no permit")
	_, changed = c.Apply(Batch{"a", 3, []Step{{Kind: Probe, Gen: c.Gen - 1, Outcome: breaker.Success}}}, env(2*second))
	require.False(t, changed, "the probe of another time")
	back := apply(t, c, "a", 2*second, Step{Kind: Probe, Gen: c.Gen, Outcome: breaker.Neutral})
	require.Equal(t, map[string]int{"b": 1}, back.Permits)
	require.Equal(t, 1, back.Probes)

	closed := apply(t, c, "a", 2*second, Step{Kind: Probe, Gen: c.Gen, Outcome: breaker.Success})
	require.Equal(t, breaker.Closed, closed.State)
	require.Empty(t, closed.Permits)
	require.Equal(t, []any{CauseProbes, ""}, []any{closed.Why, closed.Cause})
	again := apply(t, c, "b", 2*second, Step{Kind: Probe, Gen: c.Gen, Outcome: breaker.Failure})
	require.Equal(t, breaker.Open, again.State)
	require.Equal(t, 3*second, again.OpenUntil)
	require.Empty(t, again.Permits)
}

func TestByHand(t *testing.T) {
	hand := func(k Kind, at, until int64, after breaker.State) Step {
		return Step{Kind: k, At: at, Until: until, After: after, Cause: CauseByHand}
	}
	c := apply(t, Circuit{}, "a", second, hand(Open, second, 9*second, breaker.Closed))
	require.Equal(t, []any{breaker.Open, 9 * second, CauseByHand, uint64(1)}, []any{c.State, c.OpenUntil, c.Cause, c.Turn})
	_, changed := c.Apply(Batch{"b", 1, []Step{hand(Open, second, 9*second, breaker.Closed)}}, env(second))
	require.False(t, changed, "a repetition")
	longer := apply(t, c, "b", second, hand(Open, second, math.MaxInt64, breaker.Closed))
	require.Equal(t, []any{uint64(2), c.Gen}, []any{longer.Turn, longer.Gen}, "worth telling, and no other state")

	_, changed = c.Apply(Batch{"b", 1, []Step{hand(Reset, second-lateAfter-1, 0, 0)}}, env(second))
	require.False(t, changed, "out of date: the state is newer")
	for _, k := range []Kind{Reset, Release} {
		closed := apply(t, c, "b", 2*second, hand(k, 2*second, 0, 0))
		require.Equal(t, []any{breaker.Closed, "", CauseByHand}, []any{closed.State, closed.Cause, closed.Why})
	}
	_, changed = opened(t).release(t)
	require.False(t, changed, "failures have opened it")

	// The circuit is closed by time, without a write; a failure after that counts.
	after := apply(t, c, "b", 9*second, Step{Kind: Outcomes, Gen: c.Gen + 1, Run: Run{Lead: 1}})
	require.Equal(t, []any{breaker.Closed, 1, ""}, []any{after.State, after.Failures, after.Cause})

	// A destination asks for a pause.
	c = apply(t, opened(t), "b", second, Step{Kind: RetryAfter, Until: 60 * second})
	require.Equal(t, []any{60 * second, uint64(1), CauseFailures}, []any{c.OpenUntil, c.Turn, c.Cause})
	c = apply(t, Circuit{}, "b", second, Step{Kind: RetryAfter, Until: 60 * second})
	require.Equal(t, []any{CauseRetryAfter, breaker.Closed}, []any{c.Cause, c.After})
}

func (c Circuit) release(*testing.T) (Circuit, bool) {
	return c.Apply(Batch{"b", 1, []Step{{Kind: Release, At: 2 * second}}}, env(second))
}

func TestAdopt(t *testing.T) {
	c := opened(t)
	adopt := func(at int64, s breaker.Saved) Step { return Step{Kind: Adopt, At: at, State: s, Cause: CauseFailures} }
	_, changed := c.Apply(Batch{"b", 1, []Step{adopt(second, breaker.Saved{})}}, env(5*second))
	require.False(t, changed, "not newer")
	closed := apply(t, c, "b", 5*second, adopt(second+1, breaker.Saved{Failures: 1}))
	require.Equal(t, []any{breaker.Closed, 1, c.Gen + 1, second + 1}, []any{closed.State, closed.Failures, closed.Gen, closed.ChangedAt})
	open := apply(t, closed, "b", 5*second, adopt(4*second, breaker.Saved{
		State: breaker.Open, Failures: 3, OpenedAt: 4 * second, Since: 4 * second, OpenUntil: 8 * second, After: breaker.HalfOpen,
	}))
	require.Equal(t, []any{breaker.Open, 3, 8 * second, c.Gen + 2}, []any{open.State, open.Failures, open.OpenUntil, open.Gen})
}

// Old entries of dead instances are forgotten when there are many.
func TestSeenIsBounded(t *testing.T) {
	c := Circuit{}
	cfg := breaker.Config{Threshold: 1000}
	for i := range 100 {
		name := string(rune('a'+i%26)) + string(rune('a'+i/26))
		live := func(other string) bool { return other == name || other == "aa" }
		c, _ = c.Apply(Batch{name, 1, []Step{{Kind: Outcomes, Gen: 1, Run: Run{Lead: 1}}}}, Env{Now: 1, Live: live, Config: cfg})
		require.LessOrEqual(t, len(c.Seen), maxSeen)
		require.Contains(t, c.Seen, "aa")
	}
	require.Equal(t, 100, c.Failures)
}

func TestIdle(t *testing.T) {
	require.True(t, (&Circuit{}).Idle(0))
	c := opened(t)
	require.False(t, c.Idle(99*second), "a probe is due")
	c = apply(t, Circuit{}, "b", second, Step{Kind: RetryAfter, Until: 60 * second})
	require.False(t, c.Idle(59*second))
	require.True(t, c.Idle(60*second))
	c = apply(t, Circuit{}, "b", second, Step{Kind: Outcomes, Gen: 1, Run: Run{Lead: 1}})
	require.False(t, c.Idle(0))
}

// A record of version 1, as in existing buckets.
func TestRecordOfVersion1(t *testing.T) {
	c := opened(t)
	c = apply(t, c, "b", 2*second, Step{Kind: Want})
	c = apply(t, c, "b", 2*second, Step{Kind: Want})
	golden := "testdata/circuit_v1.json"
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.JSONEq(t, string(want), string(c.Encode()))
	got, err := Decode(want)
	require.NoError(t, err)
	require.Equal(t, c.Encode(), got.Encode())
	require.Equal(t, c.Frozen, got.Frozen)
}

func TestDecodeRefuses(t *testing.T) {
	for text, want := range map[string]string{
		``:                                       "unexpected end",
		`[]`:                                     "cannot unmarshal",
		`{"v":2,"state":"closed"}`:               "a version that this fila does not know: 2",
		`{"v":0,"state":"closed"}`:               "out of its range",
		`{"v":1,"state":"ajar"}`:                 `state "ajar"`,
		`{"v":1,"state":"closed","failures":-1}`: "out of its range",
		`{"v":1,"state":"closed","gen":9223372036854775808}`:          "out of its range",
		`{"v":1,"state":"half-open","permits":{"a":0}}`:               "0 permits",
		`{"v":1,"state":"closed","permits":{"a":1}}`:                  "permits in state closed",
		`{"v":1,"state":"closed","then_closed":true}`:                 "only an open circuit",
		`{"v":1,"state":"closed","limits_at":-1}`:                     "out of its range",
		`{"v":1,"state":"closed","limits":[0,1,1,1],"limits_by":"a"}`: "limits [0 1 1 1]",
	} {
		_, err := Decode([]byte(text))
		require.ErrorContains(t, err, want, text)
	}
	_, err := Decode(make([]byte, maxRecordBytes+1))
	require.ErrorContains(t, err, "a record of")
	_, err = Decode([]byte(`{"v":3}`))
	require.ErrorIs(t, err, ErrVersion)
	_, err = Decode([]byte(`{"v":1,"state":"closed","news":1}`))
	require.NoError(t, err, "fields of later versions")
}

func FuzzDecode(f *testing.F) {
	golden, err := os.ReadFile("testdata/circuit_v1.json")
	require.NoError(f, err)
	f.Add(golden)
	f.Add([]byte(`{"v":1,"state":"open","then_closed":true,"open_until":9223372036854775807}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := Decode(data)
		if err != nil {
			return
		}
		again, err := Decode(c.Encode())
		require.NoError(t, err)
		require.Equal(t, c.Encode(), again.Encode())
		// Whatever the bucket contains, the rules leave a readable record.
		for _, s := range []Step{
			{Kind: Outcomes, Gen: max(c.Gen, 1), Run: Run{Lead: 1}},
			{Kind: Want},
			{Kind: Probe, Gen: c.Gen, Outcome: breaker.Failure},
			{Kind: RetryAfter, Until: math.MaxInt64},
			{Kind: Open, At: math.MaxInt64 / 2, Until: 5, Cause: CauseByHand},
			{Kind: Reset, At: math.MaxInt64 / 2},
		} {
			next, _ := c.Apply(Batch{"a", 1, []Step{s}}, Env{Now: int64(time.Hour), Live: everybody, Config: modelConfig})
			_, err := Decode(next.Encode())
			require.NoError(t, err, "%+v", s)
		}
	})
}

// A permit requested from an opening that closes meanwhile is none, and the record stays
// readable.
func TestWantOfAnOpeningThatEndsClosed(t *testing.T) {
	c := apply(t, Circuit{}, "a", 5*second,
		Step{Kind: Open, At: 5 * second, Until: 4 * second, After: breaker.Closed, Cause: CauseByHand}, Step{Kind: Want})
	_, err := Decode(c.Encode())
	require.NoError(t, err)
	require.Equal(t, breaker.Closed, c.State)
}

// A record has the newest limits. Limits of older versions count as set at time zero.
func TestNewestLimitsOfARecord(t *testing.T) {
	limits := func(threshold int, set int64) Env {
		return Env{Now: 1, Rev: 1, Live: everybody, Config: breaker.Config{Threshold: threshold}, Set: set}
	}
	failure := []Step{{Kind: Outcomes, Gen: 1, Run: Run{Lead: 1}}}
	c := Circuit{}
	_, changed := c.Apply(Batch{"a", 1, nil}, limits(5, 10))
	require.False(t, changed, "limits alone make no record")
	c, _ = c.Apply(Batch{"a", 1, failure}, limits(5, 10))
	for _, older := range []Env{limits(1, 9), limits(1, 10)} {
		require.False(t, c.Older("b", older.Config, older.Set))
		_, changed = c.Apply(Batch{"b", 1, nil}, older)
		require.False(t, changed)
		next, _ := c.Apply(Batch{"b", 1, failure}, older)
		require.Equal(t, breaker.Closed, next.State)
		require.Equal(t, c.Terms, next.Terms)
	}
	require.True(t, c.Older("b", breaker.Config{Threshold: 3}, 11))
	c, changed = c.Apply(Batch{"b", 1, nil}, limits(3, 11))
	require.True(t, changed)
	require.Equal(t, []any{3, int64(11), "b", 1}, []any{c.Terms.Limits.Threshold, c.Terms.At, c.Terms.By, c.Failures})
	decoded, err := Decode(c.Encode())
	require.NoError(t, err)
	require.Equal(t, c.Terms, decoded.Terms)

	before, err := Decode([]byte(`{"v":1,"state":"closed","gen":1,"limits":[5,60000000000,3,1],"limits_by":"a/1"}`))
	require.NoError(t, err)
	require.Equal(t, Terms[breaker.Config]{breaker.Config{Threshold: 5, Cooldown: time.Minute, HalfOpenMaxCalls: 3, HalfOpenSuccesses: 1}, 0, "a/1"}, before.Terms)
	require.True(t, before.Older("b", breaker.Config{Threshold: 6}, 1))
	require.False(t, before.Older("b", breaker.Config{Threshold: 6}, 0))
}
