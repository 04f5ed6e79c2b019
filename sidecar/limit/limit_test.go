package limit_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/filaq/fila/sidecar/e2e/natstest"
	"github.com/filaq/fila/sidecar/fleet"
	"github.com/filaq/fila/sidecar/fleet/fleettest"
	"github.com/filaq/fila/sidecar/limit"
	"github.com/filaq/fila/throttle"
	"github.com/filaq/fila/throttle/budget"
)

func TestMain(m *testing.M) {
	natstest.MoreParallel(4)
	goleak.VerifyTestMain(m)
}

const key = "vendor:x"

// slow is a bucket with slow writes; half of the time passes before the write is done.
type slow struct {
	fleet.Bucket
	most time.Duration
}

func (b slow) Swap(ctx context.Context, key string, value []byte, over uint64) (uint64, error) {
	time.Sleep(rand.N(b.most))
	rev, err := b.Bucket.Swap(ctx, key, value, over)
	time.Sleep(rand.N(b.most))
	return rev, err
}

// instance is one fila: gates and consumers.
type instance struct {
	end    *fleettest.End
	skew   time.Duration
	sync   *fleet.Sync
	gates  *throttle.Gates
	set    *throttle.Set
	wait   *throttle.Wait
	opened chan struct{}
	limits *limit.Limits
	errors atomic.Int64 // lines of the log

	setAt     atomic.Int64
	conflicts conflicts
	warnings  atomic.Int64
}

func (i *instance) KeepBooking(key string, _ budget.Booking) { panic(key + " is booked on disk") }

func (i *instance) Warn(string, int16, budget.State) { i.warnings.Add(1) }

// count is a log that counts its errors.
type count struct {
	slog.Handler
	n *atomic.Int64
}

func (c count) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelError }

func (c count) Handle(context.Context, slog.Record) error {
	c.n.Add(1)
	return nil
}

// conflicts are the conflicts that an instance reported.
type conflicts struct {
	mu  sync.Mutex
	all []limit.Conflict
}

func (c *conflicts) tell(one limit.Conflict) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = append(c.all, one)
}

func (c *conflicts) told() []limit.Conflict {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.all)
}

// GateOpened is called like the method of a queue.
func (i *instance) GateOpened(*throttle.Gate) {
	select {
	case i.opened <- struct{}{}:
	default:
	}
}

func (i *instance) now() int64 { return time.Now().Add(i.skew).UnixNano() }

func tell(waits []*throttle.Wait) {
	for _, w := range waits {
		w.Owner.(*instance).GateOpened(w.Gate())
	}
}

// start returns an instance whose clock is wrong by skew.
func start(t *testing.T, b fleet.Bucket, l throttle.Limits, skew time.Duration) *instance {
	t.Helper()
	return startNode(t, b, l, skew, "")
}

// startNode starts a node of the cluster with a subject prefix.
func startNode(t *testing.T, b fleet.Bucket, l throttle.Limits, skew time.Duration, prefix string) *instance {
	t.Helper()
	i := &instance{skew: skew, opened: make(chan struct{}, 1)}
	i.end, _ = b.(*fleettest.End)
	if s, ok := b.(slow); ok {
		i.end, _ = s.Bucket.(*fleettest.End)
	}
	i.sync = fleet.New(fleet.Options{
		Log: slog.New(slog.DiscardHandler), Bucket: b, Now: i.now, Instance: "i", Prefix: prefix, Degraded: func(error) {},
		SweepEvery: 10 * time.Minute, IdleAfter: 10 * time.Minute,
	})
	i.limits = limit.New(limit.Options{
		Log: slog.New(count{slog.DiscardHandler, &i.errors}), Now: i.now, Fleet: i.sync, Notify: tell,
		Shares: func(k string) bool { return k == key }, SetAt: func(string) int64 { return i.setAt.Load() + i.sync.Offset() },
		Conflict: i.conflicts.tell, Kin: i.sync.Kin,
	})
	i.gates = throttle.New(throttle.Start{}, i.now())
	i.limits.Attach(i.gates)
	i.gates.Bank(i, nil)
	_, err := i.gates.SetLimits(key, l, i.now(), nil)
	require.NoError(t, err)
	require.NoError(t, i.sync.Start(t.Context()))
	i.set, err = i.gates.Set([]string{key}, i.now())
	require.NoError(t, err)
	i.wait = throttle.NewWait(i.set.Gates()[0], i)
	return i
}

// trail records admitted messages.
type trail struct {
	mu     sync.Mutex
	limits throttle.Limits
	went   []time.Time
	by     map[*instance]int
	flying int
	most   int
}

// passes records a message of cost 1, right after it was admitted.
func (r *trail) passes(i *instance) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.went = append(r.went, time.Now())
	r.by[i]++
	r.flying++
	r.most = max(r.most, r.flying)
}

func (r *trail) ends() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.flying--
}

// check checks the trail against the bounds.
func (r *trail) check(t *testing.T) {
	t.Helper()
	r.checkWith(t, 0)
}

// checkWith is check with a larger burst.
func (r *trail) checkWith(t *testing.T, more int64) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.limits
	for to := range r.went {
		for from := to; from >= 0; from-- {
			d, n := r.went[to].Sub(r.went[from]), int64(to-from+1)
			if most := more + l.Full() + l.Rate.Gives(int64(d+200*time.Millisecond)); l.Full() > 0 && n*throttle.One > most {
				require.LessOrEqual(t, n*throttle.One, most, "in %s", d)
			}
			if int64(d) < l.Window && n > l.Limit {
				require.LessOrEqual(t, n, l.Limit, "in %s", d)
			}
			if int64(d) > max(l.Window, int64(time.Second)) {
				break
			}
		}
	}
	if l.Concurrency > 0 {
		require.LessOrEqual(t, r.most, int(l.Concurrency))
	}
}

func (r *trail) sum() (sum int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.went)
}

func newTrail(l throttle.Limits) *trail { return &trail{limits: l, by: make(map[*instance]int)} }

// want sends messages as fast as the gate admits them until ctx ends. Each is in flight for a
// while.
func (i *instance) want(ctx context.Context, r *trail, takes time.Duration) {
	var flying sync.WaitGroup
	defer flying.Wait()
	for ctx.Err() == nil {
		ticket, block, ok := i.set.Acquire(i.now(), throttle.One, i)
		if ok {
			r.passes(i)
			tell(i.wait.Leave(nil))
			flying.Go(func() {
				if takes > 0 {
					time.Sleep(takes)
				}
				r.ends()
				tell(i.set.Release(&ticket, i.now(), nil))
			})
			continue
		}
		at := min(block.At, i.wait.Join(i.now(), throttle.One))
		n, again := i.wait.Turn(i.now()) // from now on the gate notifies again
		switch {
		case n == 0:
			at = min(at, again)
		case block.Kind != throttle.ByBudget:
			continue
		default: // the turn may be for less
			at = min(at, i.wait.Join(i.now(), throttle.One))
		}
		var timer <-chan time.Time
		if at != throttle.Never {
			timer = time.After(time.Duration(max(at-i.now(), int64(time.Millisecond))))
		}
		select {
		case <-i.opened:
		case <-timer:
		case <-ctx.Done():
		}
	}
	tell(i.wait.Leave(nil))
}

// during runs want for each instance.
func during(t *testing.T, d time.Duration, r *trail, takes time.Duration, all ...*instance) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	var wg sync.WaitGroup
	for _, i := range all {
		wg.Go(func() { i.want(ctx, r, takes) })
	}
	wg.Wait()
}

// stop ends instances by an orderly stop.
func stop(all ...*instance) {
	for _, i := range all {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		i.limits.Release(ctx)
		cancel()
		i.sync.Stop()
	}
}

var (
	rate   = throttle.Limits{Rate: throttle.PerSecond(200 * throttle.One), Burst: 40 * throttle.One}
	window = throttle.Limits{Limit: 50, Window: int64(time.Second)}
	places = throttle.Limits{Concurrency: 8}
)

func TestSoleUserWritesOnce(t *testing.T) {
	for name, l := range map[string]throttle.Limits{"rate": rate, "window": window, "concurrency": places} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := fleettest.New()
				a := start(t, b.Of(), l, 5*time.Second)
				defer stop(a)
				synctest.Wait()
				require.Zero(t, b.Swaps(), "a key that nobody uses is not registered")
				r := newTrail(l)
				during(t, 5*time.Second, r, 10*time.Millisecond, a)
				r.check(t)
				require.Equal(t, 1, b.Swaps())
				want := map[string]int{"rate": 1030, "window": 245, "concurrency": 3900}[name]
				require.GreaterOrEqual(t, r.sum(), want)
			})
		})
	}
}

func TestLimitsHoldOverAFleet(t *testing.T) {
	for name, tc := range map[string]struct {
		limits throttle.Limits
		want   int // in 10 s
	}{
		"rate":        {rate, 1800},
		"slow rate":   {throttle.Limits{Rate: throttle.PerSecond(4 * throttle.One), Burst: 4 * throttle.One}, 36},
		"window":      {window, 350},
		"concurrency": {places, 3000},
		"all":         {throttle.Limits{Rate: rate.Rate, Burst: rate.Burst, Limit: 100, Window: int64(time.Second), Concurrency: 8}, 600},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := fleettest.New()
				b.Skew = time.Hour
				r := newTrail(tc.limits)
				var all []*instance
				for _, skew := range []time.Duration{0, 5 * time.Second, -5 * time.Second, time.Second} {
					all = append(all, start(t, slow{b.Of(), 4 * time.Millisecond}, tc.limits, skew))
				}
				defer stop(all...)
				during(t, time.Second, r, 20*time.Millisecond, all[0]) // the sole one
				alone := r.by[all[0]]
				during(t, 10*time.Second, r, 20*time.Millisecond, all...)
				r.check(t)
				t.Log(r.sum(), r.by, b.Swaps())
				require.GreaterOrEqual(t, r.sum(), tc.want)
				r.by[all[0]] -= alone
				for _, i := range all {
					require.Greater(t, r.by[i], tc.want/4/3, "an instance starves")
				}
			})
		})
	}
}

// Leases and permits of dead instances come back, and no limit is exceeded.
func TestInstancesThatDie(t *testing.T) {
	for name, l := range map[string]throttle.Limits{"rate": rate, "window": window, "concurrency": places} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := fleettest.New()
				r := newTrail(l)
				a, dies := start(t, b.Of(), l, 5*time.Second), start(t, b.Of(), l, -5*time.Second)
				during(t, time.Second, r, time.Millisecond, a, dies)
				before := r.by[a]
				for { // as many as it gets are in flight when it dies
					if _, _, ok := dies.set.Acquire(dies.now(), throttle.One, nil); !ok {
						break
					}
				}
				dies.end.Cut(true)
				dies.sync.Stop()
				defer stop(a)
				during(t, 30*time.Second, r, 5*time.Millisecond, a)
				r.check(t)
				require.Greater(t, r.by[a], before)
				sum := r.by[a]
				during(t, 2*time.Second, r, 5*time.Millisecond, a)
				got := r.by[a] - sum
				require.GreaterOrEqual(t, got, map[string]int{"rate": 390, "window": 95, "concurrency": 3000}[name], "all of it is there again")
			})
		})
	}
}

// After the death of the owner everything counts as used.
func TestOwnerThatDies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := fleettest.New()
		r := newTrail(window)
		dies := start(t, b.Of(), window, 0)
		during(t, 100*time.Millisecond, r, 0, dies)
		require.Equal(t, 50, r.sum())
		dies.end.Cut(true)
		dies.sync.Stop()
		a := start(t, b.Of(), window, 5*time.Second)
		defer stop(a)
		during(t, 9*time.Second, r, 0, a)
		require.Equal(t, 50, r.sum(), "as long as it may live it may use it")
		during(t, 10*time.Second, r, 0, a)
		r.check(t)
		require.Greater(t, r.sum(), 100)
	})
}

// Without the bucket, instances go on with their leases and a part of the rate, so that no
// limit is exceeded. Afterwards they are one fleet again.
func TestAway(t *testing.T) {
	for name, tc := range map[string]struct {
		limits      throttle.Limits
		most, least int // in 4 s, while it is away
		after       int // in 4 s
	}{
		"rate":        {rate, 4*200 + 40, 700, 700},
		"window":      {window, 0, 0, 140},
		"concurrency": {places, 1 << 30, 1000, 1000},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := fleettest.New()
				r := newTrail(tc.limits)
				a, c := start(t, b.Of(), tc.limits, 5*time.Second), start(t, b.Of(), tc.limits, -5*time.Second)
				defer stop(a, c)
				during(t, 3*time.Second, r, 10*time.Millisecond, a, c)
				a.end.Cut(true)
				c.end.Cut(true)
				during(t, 15*time.Second, r, 10*time.Millisecond, a, c) // the longest that it takes to see it
				before := r.sum()
				during(t, 4*time.Second, r, 10*time.Millisecond, a, c)
				n := r.sum() - before
				require.LessOrEqual(t, n, tc.most)
				require.GreaterOrEqual(t, n, tc.least)
				a.end.Cut(false)
				c.end.Cut(false)
				during(t, 15*time.Second, r, 10*time.Millisecond, a, c)
				before = r.sum()
				during(t, 4*time.Second, r, 10*time.Millisecond, a, c)
				require.GreaterOrEqual(t, r.sum()-before, tc.after)
				const apart = 2 * time.Second // at most, until the last one is back
				r.checkWith(t, tc.limits.Full()+tc.limits.Rate.Gives(int64(apart)))
			})
		})
	}
}

// A rate without known users is divided, too: each instance could be the first user.
func TestAwayUnused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := fleettest.New()
		a, c := start(t, b.Of(), rate, 5*time.Second), start(t, b.Of(), rate, -5*time.Second)
		defer stop(a, c)
		time.Sleep(5 * time.Second) // until each has seen a beat of the other
		a.end.Cut(true)
		c.end.Cut(true)
		time.Sleep(15 * time.Second)
		r := newTrail(rate)
		during(t, 4*time.Second, r, 0, a, c)
		r.check(t)
		require.Greater(t, r.sum(), 700)
	})
}

// An instance that starts without the bucket uses nothing that others count, and goes on when
// the bucket is there.
func TestStartWithoutTheBucket(t *testing.T) {
	for name, tc := range map[string]struct {
		limits throttle.Limits
		most   int // in 2 s
	}{
		"rate":        {rate, 440},
		"window":      {window, 0},
		"concurrency": {places, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := fleettest.New()
				end := b.Of()
				end.Cut(true)
				a := start(t, end, tc.limits, 5*time.Second)
				defer stop(a)
				r := newTrail(tc.limits)
				ctx, cancel := context.WithTimeout(t.Context(), 12*time.Second)
				defer cancel()
				var wg sync.WaitGroup
				wg.Go(func() { a.want(ctx, r, 10*time.Millisecond) })
				time.Sleep(2 * time.Second)
				require.LessOrEqual(t, r.sum(), tc.most)
				end.Cut(false)
				wg.Wait()
				r.check(t)
				require.Greater(t, r.sum(), tc.most+200)
			})
		})
	}
}

// An orderly stop writes the usage to the record, from which the next instance goes on.
func TestStop(t *testing.T) {
	daily := throttle.Limits{Limit: 50, Window: int64(24 * time.Hour)}
	slow := throttle.Limits{Rate: throttle.PerSecond(1), Burst: 50 * throttle.One}
	for name, tc := range map[string]struct {
		limits throttle.Limits
		users  int
	}{
		"window of one": {daily, 1}, "window of two": {daily, 2},
		"rate of one": {slow, 1}, "rate of two": {slow, 2},
		"concurrency": {places, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := fleettest.New()
				skew := time.Duration(0)
				come := func(n int) (all []*instance) {
					for range n {
						skew = 5*time.Second - skew
						all = append(all, start(t, b.Of(), tc.limits, skew))
					}
					return all
				}
				got := 0
				for range 5 { // lives, each of which uses a fifth
					all := come(tc.users)
					for n := 0; n < 10; {
						for _, i := range all {
							if n == 10 {
								break
							}
							if _, _, ok := i.set.Acquire(i.now(), throttle.One, i); ok {
								n, got = n+1, got+1
							}
						}
						time.Sleep(time.Millisecond)
						if tc.limits.Concurrency > 0 && n == int(tc.limits.Concurrency) {
							break
						}
					}
					stop(all...)
					time.Sleep(time.Minute)
				}
				all := come(1)
				r := newTrail(tc.limits)
				during(t, 10*time.Second, r, time.Millisecond, all...)
				switch {
				case tc.limits.Concurrency > 0:
					require.Greater(t, r.sum(), 100, "permits of those who have stopped are free")
				default:
					require.Equal(t, 50, got)
					require.LessOrEqual(t, r.sum(), 1)
				}
				stop(all...)
			})
		})
	}
}

// While a record is unreadable every instance applies a part of the rate, writes nothing over
// it and logs that once.
func TestUnreadableRecord(t *testing.T) {
	id := "r." + base64.RawURLEncoding.EncodeToString([]byte(key))
	for _, met := range []string{"at the start", "with the gate", "in use"} {
		t.Run(met, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := fleettest.New()
				newer := func() {
					_, err := b.Of().Set(t.Context(), id, []byte(`{"v":99}`))
					require.NoError(t, err)
					synctest.Wait()
				}
				at := rate
				switch met {
				case "at the start":
					newer()
				case "with the gate":
					at = throttle.Limits{}
				}
				all := []*instance{start(t, b.Of(), at, 0), start(t, b.Of(), at, 5*time.Second)}
				time.Sleep(5 * time.Second)
				if met == "in use" {
					during(t, 5*time.Second, newTrail(rate), 0, all...)
				}
				newer()
				for _, i := range all {
					_, err := i.gates.SetLimits(key, rate, i.now(), nil)
					require.NoError(t, err)
				}
				half := func() {
					t.Helper()
					r := newTrail(rate)
					during(t, 10*time.Second, r, 0, all...)
					for _, i := range all {
						require.InDelta(t, 1000, r.by[i], 50)
						st, ok := i.limits.Status(key)
						require.True(t, ok)
						require.True(t, st.Away)
						require.Equal(t, int64(1), i.errors.Load())
					}
				}
				half()
				cut := func(cut bool) {
					for _, i := range all {
						i.end.Cut(cut)
					}
					time.Sleep(15 * time.Second) // the longest that it takes to see it
				}
				cut(true)
				half()
				cut(false)
				newer()
				half()
				require.Equal(t, `{"v":99}`, string(b.Entries()[id].Value))

				require.NoError(t, b.Of().Delete(t.Context(), id, 0))
				time.Sleep(time.Second)
				r := newTrail(rate)
				during(t, 10*time.Second, r, 0, all[0])
				r.check(t)
				require.InDelta(t, 2000, r.sum(), 100, "one alone has all of it again")
				r = newTrail(rate)
				during(t, 10*time.Second, r, 0, all...)
				r.check(t)
				require.InDelta(t, 2000, r.sum(), 200)
				stop(all...)
			})
		})
	}
}

// With many tokens left, a slow rate with a large burst takes one swap for many messages.
func TestSlowRateWithALargeBurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := throttle.Limits{Rate: throttle.PerSecond(throttle.One), Burst: 1000 * throttle.One}
		b := fleettest.New()
		r := newTrail(l)
		// Swaps take time: in a bucket without delay the two could do any number of swaps at one
		// moment.
		way := func() fleet.Bucket { return slow{b.Of(), 2 * time.Millisecond} }
		a, c := start(t, way(), l, 0), start(t, way(), l, time.Second)
		defer stop(a, c)
		during(t, 10*time.Millisecond, newTrail(l), 0, a) // the owner takes what it can
		time.Sleep(1100 * time.Second)
		during(t, 5*time.Second, r, 0, a, c)
		first := r.sum()
		require.GreaterOrEqual(t, first, 900)
		before := b.Swaps()
		time.Sleep(1100 * time.Second)
		burst := make(chan int, 1)
		go func() {
			for end := time.Now().Add(5 * time.Second); r.sum() < first+900 && time.Now().Before(end); {
				time.Sleep(time.Millisecond)
			}
			burst <- b.Swaps() - before
		}()
		during(t, 5*time.Second, r, 0, a, c)
		r.check(t)
		n := <-burst
		require.GreaterOrEqual(t, r.sum(), first+900)
		require.Less(t, n, 100)
		// While there is next to nothing left, two who want it may swap up to some 50
		// times a second each.
		require.Less(t, b.Swaps()-before, n+500)
	})
}

// Records without usage are swept, including ones that no instance could clear. Others stay.
func TestRecordsAreSwept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := fleettest.New()
		l := throttle.Limits{Limit: 5, Window: int64(3 * time.Hour)}
		dies, ends := start(t, b.Of(), l, 0), start(t, b.Of(), throttle.Limits{}, 0)
		during(t, time.Second, newTrail(l), 0, dies)
		dies.end.Cut(true)
		dies.sync.Stop()
		records := func() (n int) {
			for k := range b.Entries() {
				if strings.HasPrefix(k, "r.") {
					n++
				}
			}
			return n
		}
		require.Equal(t, 1, records())
		time.Sleep(2 * time.Hour)
		require.Equal(t, 1, records(), "what the dead has used counts")
		time.Sleep(5 * time.Hour)
		require.Zero(t, records())
		stop(ends)

		a := start(t, b.Of(), l, 0)
		during(t, time.Second, newTrail(l), 0, a)
		stop(a)
		a = start(t, b.Of(), throttle.Limits{}, 0)
		defer stop(a)
		time.Sleep(2 * time.Hour)
		require.Equal(t, 1, records())
		time.Sleep(3 * time.Hour)
		require.Zero(t, records())
	})
}

// The newest limits are in force at all instances, and each other instance reports the
// conflict once.
func TestNewestLimitsAreInForce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := fleettest.New()
		few := throttle.Limits{Concurrency: 2}
		at := func(i *instance) int64 { return i.now() }
		a := start(t, b.Of(), few, 5*time.Second)
		a.setAt.Store(at(a))
		during(t, time.Second, newTrail(few), time.Millisecond, a)
		c := start(t, b.Of(), places, -5*time.Second)
		c.setAt.Store(at(c) - int64(2*time.Second)) // before the limits of a
		defer func() { stop(a, c) }()
		r := newTrail(few)
		during(t, 2*time.Second, r, 5*time.Millisecond, a, c)
		r.check(t)
		require.Empty(t, a.conflicts.told())
		require.Len(t, c.conflicts.told(), 1)
		told := c.conflicts.told()[0]
		require.Equal(t, []any{key, places, few, "i"}, []any{told.Key, told.Own, told.InForce, told.By})
		require.Equal(t, few, c.gates.Limits(key))

		c.setAt.Store(at(c)) // now they are set again, and newer
		_, err := c.gates.SetLimits(key, throttle.Limits{Concurrency: 5}, c.now(), nil)
		require.NoError(t, err)
		r = newTrail(throttle.Limits{Concurrency: 5})
		during(t, 2*time.Second, r, 5*time.Millisecond, a, c)
		r.check(t)
		require.Equal(t, 5, r.most)
		require.Len(t, a.conflicts.told(), 1)
		require.Len(t, c.conflicts.told(), 1)
		stop(c)
		before := b.Swaps()
		during(t, 2*time.Second, newTrail(places), 5*time.Millisecond, a)
		require.Less(t, b.Swaps()-before, 10)
		require.Equal(t, int64(5), a.gates.Limits(key).Concurrency, "they are still the newest")
		c = start(t, b.Of(), few, 0)
		c.setAt.Store(a.setAt.Load() - int64(a.skew)) // by the clock of c; of an old file
		during(t, 2*time.Second, newTrail(places), 5*time.Millisecond, a, c)
		require.Equal(t, int64(5), c.gates.Limits(key).Concurrency)
	})
}

// Nodes of a cluster learn limits and their set times separately, in any order. They report no
// conflict, and agree in the end.
func TestNodesOfAClusterAgree(t *testing.T) {
	old, next := throttle.Limits{Concurrency: 2}, throttle.Limits{Concurrency: 5}
	for name, timeFirst := range map[string]bool{"the time first": true, "the limits first": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := fleettest.New()
				a, c := startNode(t, b.Of(), old, 0, "fila"), startNode(t, b.Of(), old, 0, "fila")
				defer stop(a, c)
				before := time.Now().UnixNano()
				a.setAt.Store(before)
				c.setAt.Store(before)
				run := func() { during(t, time.Second, newTrail(next), time.Millisecond, a, c) }
				set := func(i *instance) {
					_, err := i.gates.SetLimits(key, next, i.now(), nil)
					require.NoError(t, err)
					run()
				}
				run()
				at := time.Now().UnixNano()
				if timeFirst {
					c.setAt.Store(at)
					run() // c says that the old ones were set now
					a.setAt.Store(at)
					set(a)
				} else {
					a.setAt.Store(at)
					set(a)
					require.Equal(t, next, c.gates.Limits(key))
				}
				set(c)
				c.setAt.Store(at)
				run()
				for _, i := range []*instance{a, c} {
					require.Equal(t, next, i.gates.Limits(key))
					require.Empty(t, i.conflicts.told())
					st, ok := i.limits.Status(key)
					require.True(t, ok)
					require.Empty(t, st.By)
				}
			})
		})
	}
}

// When the others leave, the last instance applies the limits alone again.
func TestOthersLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := fleettest.New()
		r := newTrail(rate)
		a, c := start(t, b.Of(), rate, 0), start(t, b.Of(), rate, 0)
		during(t, time.Second, r, 0, a, c)
		c.sync.Stop()
		defer stop(a)
		during(t, time.Second, r, 0, a)
		before := b.Swaps()
		during(t, 5*time.Second, r, 0, a)
		require.Equal(t, before, b.Swaps(), "a sole user pays nothing")
		r.check(t)
		require.GreaterOrEqual(t, r.sum(), 6*200)
	})
}

// Instances start, die and are cut off at random, and answers are lost.
func TestAllOfItAtOnce(t *testing.T) {
	for seed := range uint64(5) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := throttle.Limits{Rate: throttle.PerSecond(300 * throttle.One), Burst: 30 * throttle.One, Limit: 250, Window: int64(time.Second), Concurrency: 12}
				if seed%2 == 0 {
					l.Rate, l.Burst = throttle.Rate{}, 0
				}
				rnd := rand.New(rand.NewPCG(seed, 1))
				b := fleettest.New()
				r := newTrail(l)
				come := func() *instance {
					return start(t, slow{b.Of(), 3 * time.Millisecond}, l, time.Duration(rnd.Int64N(10_000)-5000)*time.Millisecond)
				}
				all := []*instance{come(), come(), come()}
				for range 12 {
					during(t, time.Duration(200+rnd.IntN(1000))*time.Millisecond, r, 5*time.Millisecond, all...)
					k := rnd.IntN(len(all))
					if rnd.IntN(2) == 0 {
						all[k].end.Mute(true) // the next write is done, and that is not heard
						during(t, 100*time.Millisecond, r, time.Millisecond, all[k])
					}
					all[k].end.Cut(true)
					all[k].sync.Stop()
					all[k] = come()
				}
				stop(all...)
				r.check(t)
				require.Greater(t, r.sum(), 500)
			})
		})
	}
}
