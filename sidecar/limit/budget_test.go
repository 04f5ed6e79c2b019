package limit_test

import (
	"context"
	"encoding/base64"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/fleet/fleettest"
	"github.com/filaq/fila/sidecar/fleet/record"
	"github.com/filaq/fila/sidecar/limit"
	"github.com/filaq/fila/throttle"
	"github.com/filaq/fila/throttle/budget"
)

// budgetOf returns a budget of n messages an hour.
func budgetOf(n int64) throttle.Limits {
	return throttle.Limits{Budget: budget.Terms{Amount: n * throttle.One, Period: budget.Period{Unit: budget.Hour}, WarnAt: [budget.MaxWarnings]int16{500}}}
}

func (i *instance) budget(t *testing.T) budget.State {
	t.Helper()
	s, ok := i.gates.Budget(key, i.now())
	require.True(t, ok)
	return s
}

// Filas with clocks that are hours wrong use a budget together, to its end and not beyond, in each
// period, and warn once in it, or within a round trip.
func TestABudgetOfAFleet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, l := range map[string]throttle.Limits{
			"alone":       budgetOf(2000),
			"with others": {Budget: budgetOf(2000).Budget, Rate: throttle.PerSecond(1000 * throttle.One), Concurrency: 20},
		} {
			b := fleettest.New()
			r := newTrail(throttle.Limits{})
			var all []*instance
			for _, skew := range []time.Duration{0, 30 * time.Hour, -30 * time.Hour} {
				all = append(all, start(t, slow{b.Of(), 4 * time.Millisecond}, l, skew))
			}
			for hour := range 3 {
				during(t, 30*time.Second, r, 5*time.Millisecond, all...)
				require.Equal(t, 2000*(hour+1), r.sum(), name)
				warned := int64(0)
				for _, i := range all {
					require.Equal(t, int64(2000*throttle.One), i.budget(t).Used)
					require.Greater(t, r.by[i], 100*(hour+1))
					warned += i.warnings.Load()
				}
				require.GreaterOrEqual(t, warned, int64(hour+1))
				require.LessOrEqual(t, warned, int64(3*(hour+1)), "two that cross it within a round trip both warn")
				time.Sleep(time.Hour)
			}
			stop(all...)
		}
	})
}

// A fila that has booked and does not use it gives it back when another one needs it, and anyway after a
// minute. The unused part of a clean stop is there for the others, the part of a fila that dies is not.
func TestAPartOfABudgetComesBack(t *testing.T) {
	for name, does := range map[string]func(*instance){
		"idle":  func(*instance) {},
		"stops": func(i *instance) { stop(i) },
		"dies":  func(i *instance) { i.end.Cut(true); i.sync.Stop() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := fleettest.New()
				r := newTrail(throttle.Limits{})
				first, second := start(t, b.Of(), budgetOf(6400), 0), start(t, b.Of(), budgetOf(6400), time.Minute)
				ctx, cancel := context.WithCancel(t.Context())
				go first.want(ctx, r, 0)
				for r.sum() == 0 {
					time.Sleep(time.Microsecond)
				}
				cancel()
				synctest.Wait()
				had := r.sum()
				does(first)
				during(t, 20*time.Second, r, 0, second)
				if name == "dies" {
					require.LessOrEqual(t, r.sum(), 6400)
					require.GreaterOrEqual(t, r.sum(), 6400-100)
				} else {
					require.Equal(t, 6400, r.sum(), had)
				}
				if name == "idle" {
					stop(first)
				} else if name == "dies" {
					first.sync.Stop()
				}
				stop(second)
			})
		})
	}
}

// versionOfBudget returns how often the record of the budget was written.
func versionOfBudget(t *testing.T, b *fleettest.Bucket) uint64 {
	t.Helper()
	rec, err := record.DecodeBudget(b.Entries()["b."+base64.RawURLEncoding.EncodeToString([]byte(key))].Value)
	require.NoError(t, err)
	return rec.Version
}

// A message that waits for a place keeps its part of the budget for a minute, also after an hour without
// a delivery. When the place comes later, it gets a part again.
func TestAPartOfABudgetForWhoWaits(t *testing.T) {
	for name, holds := range map[string]time.Duration{"a moment": 100 * time.Millisecond, "minutes": 3 * time.Minute} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := fleettest.New()
				r := newTrail(throttle.Limits{})
				l := throttle.Limits{Budget: budgetOf(64).Budget, Concurrency: 1}
				first, second := start(t, b.Of(), l, 0), start(t, b.Of(), l, 0)
				for _, i := range []*instance{first, second} {
					during(t, time.Second, r, 100*time.Millisecond, i)
					require.Positive(t, r.by[i])
					time.Sleep(time.Minute)
				}
				time.Sleep(time.Hour)

				before := r.by[second]
				ctx, cancel := context.WithCancel(t.Context())
				go first.want(ctx, r, holds)
				time.Sleep(50 * time.Millisecond)
				cancel() // one message is in flight, and holds the place
				version := versionOfBudget(t, b)
				ctx, cancel = context.WithTimeout(t.Context(), holds+10*time.Second)
				defer cancel()
				go second.want(ctx, r, time.Hour)
				<-ctx.Done()
				synctest.Wait()
				require.Equal(t, before+1, r.by[second])
				require.LessOrEqual(t, versionOfBudget(t, b), version+4+4*uint64(holds/time.Minute), "it has given its part back and got one too often")
				time.Sleep(time.Hour)
				stop(first, second)
			})
		})
	}
}

// Top-ups and resets act at all filas.
func TestChangesOfASharedBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := fleettest.New()
		r := newTrail(throttle.Limits{})
		first, second := start(t, b.Of(), budgetOf(100), 0), start(t, b.Of(), budgetOf(100), 0)
		during(t, 10*time.Second, r, 0, first)
		require.Equal(t, 100, r.sum())
		require.NoError(t, second.limits.TopUpBudget(t.Context(), key, 50*throttle.One))
		synctest.Wait()
		require.Equal(t, int64(50*throttle.One), func() int64 { s := first.budget(t); return s.Left() }())
		during(t, 10*time.Second, r, 0, first, second)
		require.Equal(t, 150, r.sum())
		require.NoError(t, first.limits.ResetBudget(t.Context(), key))
		during(t, 10*time.Second, r, 0, first, second)
		require.Equal(t, 250, r.sum())
		first.end.Cut(true)
		time.Sleep(time.Minute)
		require.ErrorIs(t, first.limits.TopUpBudget(t.Context(), key, 1), limit.ErrAway)
		stop(first, second)
	})
}

// While the bucket is away a fila uses what it has booked, and nothing of the next period.
func TestABudgetWithoutTheBucket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := fleettest.New()
		r := newTrail(throttle.Limits{})
		i := start(t, b.Of(), budgetOf(64_000), 0)
		during(t, 10*time.Millisecond, r, 10*time.Millisecond, i)
		i.end.Cut(true)
		time.Sleep(time.Minute)
		before := r.sum()
		during(t, time.Minute, r, 0, i)
		require.LessOrEqual(t, r.sum()-before, 1000)
		time.Sleep(time.Hour)
		before = r.sum()
		during(t, time.Minute, r, 0, i)
		require.Equal(t, before, r.sum())
		i.end.Cut(false)
		during(t, time.Minute, r, 0, i)
		require.Greater(t, r.sum(), before)
		stop(i)
	})
}

// While the record cannot be read, nothing more is booked and nobody can change the budget; that is
// logged once. Without the record the period begins again, for messages that wait already, too.
func TestUnreadableRecordOfABudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := fleettest.New()
		r := newTrail(throttle.Limits{})
		i := start(t, b.Of(), budgetOf(6400), 0)
		s := &spending{periods: make(map[int64]int64)}
		i.spendBudget(t, 1, s)
		synctest.Wait()
		require.EqualValues(t, 10, i.spendBudget(t, 10, s))
		id := "b." + base64.RawURLEncoding.EncodeToString([]byte(key))
		require.Contains(t, b.Entries(), id)
		_, err := b.Of().Set(t.Context(), id, []byte(`{"v":99}`))
		require.NoError(t, err)
		synctest.Wait()
		require.ErrorIs(t, i.limits.TopUpBudget(t.Context(), key, 1), record.ErrVersion)
		during(t, time.Minute, r, 0, i)
		require.LessOrEqual(t, r.sum(), 6400/64, "what it had booked")
		require.Equal(t, int64(1), i.errors.Load())
		require.Equal(t, `{"v":99}`, string(b.Entries()[id].Value))
		for range 2 {
			before := r.sum()
			require.NoError(t, b.Of().Delete(t.Context(), id, 0))
			during(t, time.Second, r, 0, i)
			require.Greater(t, r.sum()-before, 6400/64)
		}
		stop(i)
	})
}

// A fila adopts the budget that another one has set later.
func TestTheNewestBudgetIsInForce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := fleettest.New()
		r := newTrail(throttle.Limits{})
		rated := throttle.Limits{Rate: throttle.PerSecond(1000 * throttle.One)}
		both := rated
		both.Budget = budgetOf(100).Budget
		without, with := start(t, b.Of(), rated, 0), start(t, b.Of(), both, 0)
		with.setAt.Store(int64(time.Second))
		during(t, 10*time.Second, r, 0, with)
		require.Equal(t, 100, r.sum())
		during(t, 10*time.Second, r, 0, without)
		require.LessOrEqual(t, r.sum(), 100+1000, "until it knows")
		before := r.sum()
		during(t, 10*time.Second, r, 0, without, with)
		require.Equal(t, before, r.sum())
		stop(without, with)
	})
}

// spending counts what goes by the period in which it goes.
type spending struct {
	mu      sync.Mutex
	periods map[int64]int64
}

// spendBudget admits as many messages as it can.
func (i *instance) spendBudget(t *testing.T, most int, s *spending) (n int64) {
	for range most {
		s.mu.Lock()
		period := i.budget(t).Start
		grant, _, ok := i.set.Acquire(i.now(), throttle.One, nil)
		if ok {
			s.periods[period] += throttle.One
			n++
		}
		s.mu.Unlock()
		if !ok {
			return n
		}
		tell(i.set.Release(&grant, i.now(), nil))
	}
	return n
}

// However filas die, freeze, lose the bucket, and clocks are set, no period gets more than its budget.
func TestABudgetHoldsByChance(t *testing.T) {
	spent, histories := 0, 16
	if testing.Short() {
		histories = 3
	}
	for seed := range uint64(histories) {
		synctest.Test(t, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 3))
			amount := 1 + rnd.Int64N(300)
			b := fleettest.New()
			s := &spending{periods: make(map[int64]int64)}
			come := func() *instance {
				return start(t, slow{b.Of(), 3 * time.Millisecond}, budgetOf(amount), time.Duration(rnd.Int64N(int64(time.Hour))))
			}
			all := []*instance{come(), come(), come()}
			for range 60 {
				k := rnd.IntN(len(all))
				i := all[k]
				for range 1 + rnd.IntN(4) {
					all[rnd.IntN(len(all))].spendBudget(t, 1+rnd.IntN(20), s)
					time.Sleep(time.Duration(rnd.IntN(8)) * time.Millisecond)
				}
				switch rnd.IntN(14) {
				case 0:
					i.end.Mute(true)
					i.spendBudget(t, 20, s)
					time.Sleep(10 * time.Millisecond)
					i.end.Mute(false)
				case 1:
					i.end.Cut(true)
					i.spendBudget(t, 20, s)
					time.Sleep(time.Duration(rnd.IntN(12)) * time.Second)
				case 2, 3:
					i.end.Cut(false)
					time.Sleep(2 * time.Second)
				case 4:
					i.end.Cut(true)
					i.sync.Stop()
					all[k] = come()
				case 5:
					stop(i)
					i.spendBudget(t, 20, s)
					all[k] = come()
				case 6:
					b.Stall(true)
					i.spendBudget(t, 20, s)
					time.Sleep(time.Duration(rnd.IntN(3000)) * time.Millisecond)
					b.Stall(false)
				case 7:
					if rnd.IntN(8) == 0 {
						time.Sleep(70 * time.Second)
					}
				case 8:
					if rnd.IntN(4) == 0 {
						b.SetClock(time.Duration(rnd.Int64N(int64(3*time.Hour))) - time.Hour)
						time.Sleep(10 * time.Second)
					}
				}
			}
			stop(all...)
			for period, n := range s.periods {
				require.LessOrEqual(t, n, amount*throttle.One, "history %d, period %s", seed, time.Unix(0, period))
				if n*10 >= 8*amount*throttle.One {
					spent++
				}
			}
		})
	}
	t.Logf("%d budgets used to 80%%", spent)
	require.Greater(t, spent, histories/4)
}
