package limit_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/fleet/fleettest"
	"github.com/filaq/fila/throttle"
)

// costs are the final costs of messages, by the time at which they were known.
type costs struct {
	mu  sync.Mutex
	all []cost
	by  map[*instance]int64
}

type cost struct {
	at time.Time
	n  int64
}

func (s *costs) note(i *instance, n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, cost{time.Now(), n})
	s.by[i] += n
}

// spend keeps up to n messages of an instance in flight until ctx ends. Each is admitted with
// one cost, and its final cost differs.
func (i *instance) spend(ctx context.Context, s *costs, most int, takes time.Duration, taken, real int64) {
	var flying sync.WaitGroup
	defer flying.Wait()
	places := make(chan struct{}, most)
	for ctx.Err() == nil {
		places <- struct{}{}
		ticket, _, ok := i.set.Acquire(i.now(), taken, nil)
		if !ok {
			<-places
			time.Sleep(time.Millisecond)
			continue
		}
		flying.Go(func() {
			time.Sleep(takes)
			s.note(i, real)
			tell(i.set.ReleaseCorrected(&ticket, real-taken, i.now(), nil))
			<-places
		})
	}
}

// In a fleet a rate admits final costs, whatever the estimates. It is exceeded by at most the
// amount by which the messages in flight were underestimated.
func TestCorrectedCostsOverAFleet(t *testing.T) {
	const inFlight = 6
	for name, tc := range map[string]struct{ taken, real, want, messages int64 }{
		"more": {throttle.One, 4 * throttle.One, 1800, 450},
		"less": {4 * throttle.One, throttle.One, 1400, 1400},
		"none": {4 * throttle.One, 0, 0, 1400}, // 510 if nothing came back
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := fleettest.New()
				all := []*instance{
					start(t, slow{b.Of(), 4 * time.Millisecond}, rate, 0),
					start(t, slow{b.Of(), 4 * time.Millisecond}, rate, 5*time.Second),
				}
				defer stop(all...)
				s := &costs{by: make(map[*instance]int64)}
				began := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				var wg sync.WaitGroup
				for _, i := range all {
					wg.Go(func() { i.spend(ctx, s, inFlight, 30*time.Millisecond, tc.taken, tc.real) })
				}
				wg.Wait()
				under := max(0, tc.real-tc.taken) * inFlight * int64(len(all))
				sum := int64(0)
				for _, c := range s.all {
					sum += c.n
					d := int64(c.at.Sub(began) + 200*time.Millisecond)
					require.LessOrEqual(t, sum, rate.Full()+rate.Rate.Gives(d)+under, "in %s", c.at.Sub(began))
				}
				t.Log(len(s.all), sum/throttle.One, b.Swaps())
				require.GreaterOrEqual(t, sum, tc.want*throttle.One)
				require.GreaterOrEqual(t, int64(len(s.all)), tc.messages)
				for _, i := range all {
					require.GreaterOrEqual(t, s.by[i], tc.want*throttle.One/5, "an instance starves")
				}
			})
		})
	}
}

// A debt stays in the record when its instance is gone.
func TestADebtIsLeftBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := fleettest.New()
		l := throttle.Limits{Rate: throttle.PerSecond(throttle.One), Burst: 5 * throttle.One}
		a, other := start(t, b.Of(), l, 0), start(t, b.Of(), l, 0)
		acquire := func(i *instance) throttle.Grant {
			for {
				ticket, _, ok := i.set.Acquire(i.now(), throttle.One, nil)
				if ok {
					return ticket
				}
				time.Sleep(10 * time.Millisecond)
			}
		}
		first := acquire(other)
		ticket := acquire(a)
		tell(a.set.ReleaseCorrected(&ticket, 20*throttle.One, a.now(), nil))
		synctest.Wait()
		stop(a)
		tell(other.set.Release(&first, other.now(), nil))
		before := time.Now()
		acquire(other)
		stop(other)
		require.Greater(t, time.Since(before), 14*time.Second)
	})
}
