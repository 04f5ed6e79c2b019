package limit_test

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/fleet/fleettest"
	"github.com/filaq/fila/throttle"
	"github.com/filaq/fila/throttle/adapt"
)

// provider refuses calls beyond a number at once.
type provider struct {
	mu              sync.Mutex
	capacity, calls int
	sum, refused    int
	counts          bool
}

func (p *provider) call() (ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.counts {
		p.sum++
	}
	if p.calls >= p.capacity {
		if p.counts {
			p.refused++
		}
		return false
	}
	p.calls++
	return true
}

func (p *provider) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls--
}

// calls makes calls for a while, as many as the gate admits, and tells the gate how they end.
func (i *instance) calls(until time.Time, p *provider) {
	var flying sync.WaitGroup
	defer flying.Wait()
	for time.Now().Before(until) {
		grant, _, ok := i.set.Acquire(i.now(), throttle.One, i)
		if !ok {
			i.wait.Join(i.now(), throttle.One)
			select {
			case <-i.opened:
			case <-time.After(10 * time.Millisecond):
			}
			if n, _ := i.wait.Turn(i.now()); n == 0 {
				continue
			}
			continue
		}
		tell(i.wait.Leave(nil))
		flying.Go(func() {
			began := i.now()
			if p.call() {
				time.Sleep(200 * time.Millisecond)
				p.end()
				tell(i.set.Succeeded(&grant, 0, i.now(), nil))
			} else {
				time.Sleep(20 * time.Millisecond)
				i.set.Overloaded(throttle.Overload{Delivered: began, Cause: "429"}, i.now())
			}
			tell(i.set.Release(&grant, i.now(), nil))
		})
	}
	tell(i.wait.Leave(nil))
}

// Three filas with clocks that differ learn one level: each cut reaches all of them, once and
// within 50 ms, and the provider is used.
func TestAFleetLearnsOneLevel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limits := throttle.Limits{Concurrency: 60, Adapt: adapt.Settings{Min: 6 * throttle.One, Backoff: 700, Grow: throttle.One, GrowPerS: 6 * throttle.One}}
		b := fleettest.New()
		var all []*instance
		var mu sync.Mutex
		cuts := make([][]time.Time, 3)
		for n, skew := range []time.Duration{0, 5 * time.Second, -5 * time.Second} {
			i := start(t, slow{b.Of(), 4 * time.Millisecond}, limits, skew)
			i.gates.OnCut(func(string) {
				mu.Lock()
				defer mu.Unlock()
				cuts[n] = append(cuts[n], time.Now())
			})
			all = append(all, i)
		}
		defer stop(all...)
		p := &provider{capacity: 24}
		var wg sync.WaitGroup
		until := time.Now().Add(40 * time.Second)
		for _, i := range all {
			wg.Go(func() { i.calls(until, p) })
		}
		time.Sleep(2 * time.Second) // the ceiling is far above the provider
		p.mu.Lock()
		p.counts = true
		p.mu.Unlock()
		wg.Wait()
		time.Sleep(time.Second)
		synctest.Wait()

		mu.Lock()
		defer mu.Unlock()
		require.NotEmpty(t, cuts[0])
		var took []time.Duration
		for n := range cuts[0] {
			var at []time.Time
			for i := range cuts {
				require.Len(t, cuts[i], len(cuts[0]), "a cut reaches each fila once")
				at = append(at, cuts[i][n])
			}
			took = append(took, slices.MaxFunc(at, time.Time.Compare).Sub(slices.MinFunc(at, time.Time.Compare)))
		}
		slices.Sort(took)
		t.Logf("%d cuts, known everywhere after %v (p50), %v (most); %d of %d calls refused", len(took), took[len(took)/2], took[len(took)-1], p.refused, p.sum)
		require.Less(t, took[len(took)-1], 50*time.Millisecond)
		require.Less(t, float64(p.refused)/float64(p.sum), 0.02)
		require.Greater(t, float64(p.sum-p.refused)*0.2/38, 0.8*24) // the schedule of goroutines makes it 0.85 to 0.91
		levels := make(map[int64]bool)
		for _, i := range all {
			info := i.set.Gates()[0].Info(i.now())
			levels[info.Learned.Level] = true
			require.EqualValues(t, len(took), info.Learned.Cuts)
		}
		require.Len(t, levels, 1)
	})
}

// Feedback at one fila holds for all: with nothing remaining, none sends anything until the reset, whatever
// it has leased.
func TestFeedbackOverAFleet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limits := throttle.Limits{Rate: throttle.PerSecond(100 * throttle.One), Burst: 1000 * throttle.One, Adapt: adapt.Settings{Min: throttle.One, Backoff: 500}}
		b := fleettest.New()
		all := []*instance{
			start(t, slow{b.Of(), 4 * time.Millisecond}, limits, 0),
			start(t, slow{b.Of(), 4 * time.Millisecond}, limits, 5*time.Second),
			start(t, slow{b.Of(), 4 * time.Millisecond}, limits, -5*time.Second),
		}
		defer stop(all...)
		until := time.Now().Add(10 * time.Second)
		var mu sync.Mutex
		var went []time.Time
		var wg sync.WaitGroup
		for _, i := range all {
			wg.Go(func() {
				for time.Now().Before(until) {
					if grant, _, ok := i.set.Acquire(i.now(), throttle.One, nil); ok {
						mu.Lock()
						went = append(went, time.Now())
						mu.Unlock()
						tell(i.set.Release(&grant, i.now(), nil))
					}
					time.Sleep(5 * time.Millisecond) // 600 a second, so much is left of the burst
				}
			})
		}
		time.Sleep(time.Second)
		synctest.Wait()
		told := time.Now()
		all[1].set.Feedback(throttle.Feedback{Reset: int64(3 * time.Second)}, all[1].now())
		wg.Wait()
		before, shut, after := 0, 0, 0
		for _, at := range went {
			switch d := at.Sub(told); {
			case d <= 0:
				before++
			case d < 3*time.Second-50*time.Millisecond: // its clock
				shut++
				require.Less(t, d, 20*time.Millisecond, "the others know when it is written")
			default:
				after++
			}
		}
		t.Log(before, shut, after)
		require.Greater(t, before, 400)
		require.LessOrEqual(t, shut, 8)
		require.InDelta(t, 600, after, 40)
	})
}
