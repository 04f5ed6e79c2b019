package throttle

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func drawRate() *rapid.Generator[Rate] {
	return rapid.OneOf(
		rapid.SampledFrom([]Rate{
			PerSecond(500), PerSecond(1000), PerSecond(333), PerSecond(10_000),
			{1000, 3 * sec},
			PerSecond(MaxRate * One),
			{1, MaxWindow},
			{1000, 86400 * sec},
			{7, 3},
			{1_000_000_007, 999_999_937},
		}),
		rapid.Custom(func(t *rapid.T) Rate {
			return Rate{rapid.Int64Range(1, 1_000_000).Draw(t, "cost"), rapid.Int64Range(1000, 10*sec).Draw(t, "per")}
		}),
	)
}

// drawLimits draws limits; window limits up to maxLimit.
func drawLimits(maxLimit int64) *rapid.Generator[Limits] {
	return rapid.Custom(func(t *rapid.T) Limits {
		var l Limits
		if rapid.Bool().Draw(t, "bucket") {
			l.Rate = drawRate().Draw(t, "rate")
			l.Burst = rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(1, 20_000), rapid.Just(int64(MaxBurst))).Draw(t, "burst")
		}
		if rapid.Bool().Draw(t, "window") {
			l.Limit = rapid.Int64Range(1, maxLimit).Draw(t, "limit")
			l.Window = rapid.OneOf(rapid.Int64Range(1, 5*sec), rapid.Just(int64(MaxWindow))).Draw(t, "width")
		}
		if rapid.Bool().Draw(t, "concurrency") {
			l.Concurrency = rapid.Int64Range(1, 4).Draw(t, "at once")
		}
		return l
	})
}

func drawCost() *rapid.Generator[int64] {
	return rapid.OneOf(rapid.Just(int64(One)), rapid.Int64Range(1, 5000), rapid.Int64Range(1, 40_000), rapid.Just(int64(MaxCost)))
}

// drawStep draws how the clock moves: mostly a little forward, sometimes late,
// sometimes far away.
func drawStep() *rapid.Generator[int64] {
	return rapid.OneOf(
		rapid.Int64Range(0, 2*sec), rapid.Int64Range(0, 2*sec), rapid.Int64Range(0, 1000), rapid.Just(int64(0)),
		rapid.Int64Range(-sec, 0), rapid.Int64Range(-100*sec, 100*sec),
		rapid.SampledFrom([]int64{-MaxWindow, MaxWindow, 3 * MaxWindow, math.MaxInt64, -math.MaxInt64}),
	)
}

// drawPause draws the end of a pause: mostly a short one, sometimes until a resume; or a
// resume.
func drawPause(t *rapid.T, now int64) int64 {
	return rapid.OneOf(
		rapid.Just(int64(0)), rapid.Just(safeAdd(now, -sec)), rapid.Just(now), rapid.Just(int64(Never)),
		rapid.Map(rapid.Int64Range(1, 5*sec), func(d int64) int64 { return max(1, safeAdd(now, d)) }),
	).Draw(t, "until")
}

// Without undo and reservations every decision equals the decision of exact models, all or
// none, and the time of a Block is the first at which the set admits.
func TestDecisionsAreExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := start
		g := New(Start{}, now)
		clock := newModelClock(now)
		keys := []string{"a", "b", "c"}
		models := map[string]*modelGate{}
		var sets []*Set
		wake := func() {
			if sets != nil {
				return
			}
			clock.tick(now)
			for _, ks := range [][]string{{"a"}, {"b"}, {"c"}, {"b", "a"}, {"c", "a", "b", "a"}} {
				s, err := g.Set(ks, now)
				require.NoError(t, err)
				sets = append(sets, s)
			}
		}
		for _, k := range keys {
			models[k] = &modelGate{at: clock.tick(now)}
		}
		wake()
		setLimits := g.SetLimits
		if rapid.Bool().Draw(t, "limits by prefix") { // gates can be dormant then
			setLimits = g.SetPrefix
		}
		g.mu.awakeIdle = rapid.IntRange(0, 3).Draw(t, "awake")
		type flight struct {
			s *Set
			t Grant
		}
		var flights []flight
		t.Repeat(map[string]func(*rapid.T){
			"time": func(t *rapid.T) { now = safeAdd(now, drawStep().Draw(t, "step")) },
			"limits": func(t *rapid.T) {
				k := rapid.SampledFrom(keys).Draw(t, "key")
				l := drawLimits(5).Draw(t, "limits")
				if l != models[k].limits { // the same limits again are no event for either
					at := clock.tick(now)
					models[k].setLimits(l, at)
					if _, exists, _ := g.Look(k, now); !exists { // it was full and empty, and will be new
						models[k].level, models[k].entries = full(l), nil
					}
				}
				_, err := setLimits(k, l, now, nil)
				require.NoError(t, err)
			},
			"sleep": func(t *rapid.T) {
				if len(flights) > 0 || sets == nil {
					return
				}
				clock.tick(now)
				for _, s := range sets {
					g.Close(s, now)
				}
				sets = nil
				g.sleepAll(now)
			},
			"acquire": func(t *rapid.T) {
				wake()
				s := rapid.SampledFrom(sets).Draw(t, "set")
				cost := drawCost().Draw(t, "cost")
				at := clock.tick(now)
				want := true
				for _, gate := range s.Gates() {
					want = models[gate.Key()].admits(at, cost) && want
					want = !models[gate.Key()].pausedAt(clock.last) && want
				}
				checked, ok := s.Check(now, cost, nil)
				require.Equal(t, want, ok)
				grant, block, ok := s.Acquire(now, cost, nil)
				require.Equal(t, want, ok, "%+v", block)
				require.Equal(t, checked, block)
				require.Equal(t, want, grant.Active())
				if !ok {
					require.NotEqual(t, Open, block.Kind)
					require.True(t, block.At > now || now == math.MaxInt64, "%+v", block)
					return
				}
				flights = append(flights, flight{s, grant})
				for _, gate := range s.Gates() {
					models[gate.Key()].take(cost)
				}
			},
			"pause": func(t *rapid.T) {
				k := rapid.SampledFrom(keys).Draw(t, "key")
				until := drawPause(t, now)
				clock.tick(now)
				models[k].pause(until, clock.last)
				require.Empty(t, g.Pause(k, until, now, nil), "no queue waits")
			},
			"release": func(t *rapid.T) {
				if len(flights) == 0 {
					return
				}
				i := rapid.IntRange(0, len(flights)-1).Draw(t, "flight")
				f := flights[i]
				flights = append(flights[:i], flights[i+1:]...)
				delta := rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(0, 10_000)).Draw(t, "more")
				at := clock.tick(now)
				f.s.ReleaseCorrected(&f.t, delta, now, nil)
				f.s.ReleaseCorrected(&f.t, delta, now, nil) // returned: nothing
				for _, gate := range f.s.Gates() {
					models[gate.Key()].inFlight--
					models[gate.Key()].charge(at, delta)
				}
			},
			"": func(t *rapid.T) {
				clock.tick(now)
				g.clock.tick(now) // both see every time, also where there is no gate to look at
				for _, k := range keys {
					info, ok, _ := g.Look(k, now)
					require.True(t, ok || sets == nil)
					models[k].pausedAt(clock.last)
					require.Equal(t, models[k].inFlight, info.InFlight)
					require.Equal(t, models[k].paused, info.PausedUntil)
				}
			},
		})
	})
}

// full is the level of a full bucket.
func full(l Limits) *big.Rat {
	if l.Rate == (Rate{}) {
		return nil
	}
	return new(big.Rat).SetInt64(l.burst())
}

// The time of a Block is the first at which the gates admit.
func TestBlockTimeIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := start
		g := New(Start{}, now)
		for _, k := range []string{"a", "b"} {
			l := drawLimits(20).Draw(t, "limits of "+k)
			l.Concurrency = 0
			_, err := g.SetLimits(k, l, now, nil)
			require.NoError(t, err)
			g.Pause(k, rapid.Int64Range(now-sec, now+20*sec).Draw(t, "pause of "+k), now, nil)
		}
		s, err := g.Set([]string{"a", "b"}, now)
		require.NoError(t, err)
		for i := range 30 {
			now += rapid.Int64Range(0, sec).Draw(t, fmt.Sprint("step ", i))
			cost := drawCost().Draw(t, "cost")
			_, block, ok := s.Acquire(now, cost, nil)
			if ok {
				continue
			}
			if block.At > math.MaxInt64-farAhead || block.At-now > farAhead {
				return
			}
			require.False(t, open(s, block.At-1, cost), "%+v", block)
			require.True(t, open(s, block.At, cost), "%+v", block)
			now = block.At
		}
	})
}

// A window of more than exactLimit entries is late by a part at most, and never
// early.
func TestLargeWindow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := Limits{
			Limit:  rapid.Int64Range(exactLimit+1, 2500).Draw(t, "limit"),
			Window: rapid.OneOf(rapid.Int64Range(1, 5000), rapid.Int64Range(1, sec)).Draw(t, "width"),
		}
		part := uint64(l.Window / exactLimit)
		w := &window{changed: ^instant(0)}
		w.setLimits(l)
		var at instant
		var times []instant
		count := func(width uint64) (n int64) {
			for i := len(times) - 1; i >= 0 && at.since(times[i]) < width; i-- {
				n++
			}
			return n
		}
		pace := rapid.Int64Range(0, max(1, 3*l.Window/l.Limit)).Draw(t, "pace")
		seed := rapid.Uint64().Draw(t, "seed")
		for range 4 * l.Limit {
			seed = seed*6364136223846793005 + 1442695040888963407
			at += instant(int64(seed>>33) % (pace + 1))
			w.advance(at)
			if seed>>20%97 == 0 {
				w.setLimits(l) // joins spans
			}
			wait := w.wait(at, 0)
			if wait == 0 {
				require.Less(t, count(uint64(l.Window)), l.Limit)
				w.add(at)
				times = append(times, at)
				if seed>>20%5 == 0 { // taken back
					w.remove(at)
					times = times[:len(times)-1]
				}
			} else {
				require.GreaterOrEqual(t, count(uint64(l.Window)+part), l.Limit)
			}
			require.LessOrEqual(t, w.n, exactLimit+4)
			require.LessOrEqual(t, len(w.spans), 2048)
		}
	})
}

// After an undo a bucket never has more than without the undone takes.
func TestPutBackAgainstReplay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		type event struct {
			at     instant
			cost   int64
			undone bool
		}
		var events []event
		var at instant
		b := &bucket{rate: PerSecond(One), burst: 10 * One, tokens: 10 * One, changed: at - 1}
		replay := func() int64 {
			o := &bucket{rate: b.rate, burst: b.burst, tokens: b.burst}
			for _, e := range events {
				if o.advance(e.at, 0); !e.undone {
					o.take(e.cost, 0)
				}
			}
			o.advance(at, 0)
			return o.tokens
		}
		for range 40 {
			at += instant(r.IntN(4)) * instant(r.Int64N(sec))
			b.advance(at, 0)
			if cost := 1 + r.Int64N(5*One); r.IntN(2) == 0 && b.wait(cost, 0) == 0 {
				b.take(cost, 0)
				events = append(events, event{at: at, cost: cost})
			} else if len(events) > 0 {
				if e := &events[r.IntN(len(events))]; !e.undone {
					before := b.tokens
					b.putBack(e.at, e.cost, 0)
					e.undone = true
					require.GreaterOrEqual(t, b.tokens, before)
				}
			}
			require.LessOrEqual(t, b.tokens, replay(), "%v", events)
		}
	})
}

// A single undo refunds exactly as much as a replay.
func TestPutBackIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		var at instant
		b := &bucket{rate: PerSecond(One), burst: 10 * One, tokens: 10 * One, changed: at - 1}
		with := *b
		cost := 1 + r.Int64N(15*One)
		b.take(cost, 0)
		for range r.IntN(len(lows{}.entries)) {
			at += instant(1+r.IntN(3000)) * instant(sec/One) // whole thousandths
			b.advance(at, 0)
			with.advance(at, 0)
			if c := 1 + r.Int64N(5*One); b.wait(c, 0) == 0 {
				b.take(c, 0)
				with.take(c, 0)
			}
		}
		b.putBack(0, cost, 0)
		require.Equal(t, with.tokens, b.tokens)
	})
}
