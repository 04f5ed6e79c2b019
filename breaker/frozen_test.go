package breaker

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A machine that is frozen and thawed before each call behaves like one that is not.
func TestThawedGoesOnAsBefore(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 1))
		cfg := Config{
			Threshold: 1 + random.IntN(3), Cooldown: time.Duration(1+random.IntN(20)) * time.Second,
			HalfOpenMaxCalls: 1 + random.IntN(2), HalfOpenSuccesses: 1 + random.IntN(2),
		}
		a, b := NewMachine(cfg), NewMachine(cfg)
		now := int64(1e18)
		var passes []Pass
		for range 100 {
			now += random.Int64N(int64(5*time.Second)) - int64(time.Second)/2
			b = Thaw(cfg, b.Freeze())
			var x, y [2]any
			switch random.IntN(8) {
			case 0, 1, 2:
				p, c := a.Allow(now)
				q, d := b.Allow(now)
				x, y = [2]any{p, c}, [2]any{q, d}
				passes = append(passes, p)
			case 3, 4, 5:
				if len(passes) > 0 {
					i, o := random.IntN(len(passes)), Outcome(random.IntN(3))
					x[0], x[1] = a.Done(now, passes[i], o)
					y[0], y[1] = b.Done(now, passes[i], o)
				}
			case 6:
				until, after := now+random.Int64N(int64(10*time.Second)), State(2*random.IntN(2))
				x[0], y[0] = a.Open(now, until, after), b.Open(now, until, after)
				x[1], y[1] = a.RetryAfter(now, until+1), b.RetryAfter(now, until+1)
			case 7:
				switch random.IntN(2) {
				case 0:
					x[0], y[0] = a.Reset(now), b.Reset(now)
				case 1:
					x[0], y[0] = a.Release(now), b.Release(now)
				}
			}
			require.Equal(t, x, y, "seed %d", seed)
			require.Equal(t, a.Info(now), b.Info(now), "seed %d", seed)
		}
	}
}

func TestGiveUp(t *testing.T) {
	m := NewMachine(Config{Threshold: 1, Cooldown: time.Second, HalfOpenMaxCalls: 2})
	p, _ := m.Allow(0)
	m.Done(0, p, Failure)
	for range 2 {
		p, _ = m.Allow(int64(time.Second))
		require.NotZero(t, p)
	}
	n, _ := m.Admits(int64(time.Second))
	require.Zero(t, n)
	m.GiveUp(1)
	n, _ = m.Admits(int64(time.Second))
	require.EqualValues(t, 1, n)
	m.GiveUp(7)
	n, _ = m.Admits(int64(time.Second))
	require.EqualValues(t, 2, n, "never more than the limit")
}
