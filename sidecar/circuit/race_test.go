package circuit

import (
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/breaker"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// TestCircuitsTogether does everything at once from many goroutines, with a slow disk: never too many
// probes, events in the order of the transitions, and in the end the disk equals memory.
func TestCircuitsTogether(t *testing.T) {
	r := newRig(t)
	limits := standard
	limits.Breaker = breaker.Config{Threshold: 3, Cooldown: 5, HalfOpenMaxCalls: 2, HalfOpenSuccesses: 2}
	limits.MaxFailures, limits.FailureWindow, limits.FailureHold = 20, 100, 10
	r.reg.Configure(limits, nil, nil)
	r.reg.maxIdle = 1
	keys := []string{"a", "b", "c", "d"}
	states := map[string]string{"a": "closed", "b": "closed", "c": "closed", "d": "closed"}
	var mu sync.Mutex
	r.event = func(typ, key string, e wire.Event) {
		mu.Lock()
		defer mu.Unlock()
		if typ == wire.EventCircuitChanged {
			require.Equal(t, states[key], e.Data["old"])
			states[key] = e.Data["new"].(string)
		}
	}
	var wakes atomic.Int64
	r.opened = func(_ *owner, c *Circuit) { wakes.Add(1); c.Admits(r.now.Load()) }

	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				r.disk.commit()
			}
		}
	}()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			q := r.owner("q")
			for range 3000 {
				key := keys[rand.IntN(len(keys))]
				c := r.use(key)
				now := r.now.Add(rand.Int64N(3))
				c.Wait(q, now)
				p, _ := c.Allow(now)
				if i := c.info(now); i.Probes > 2 {
					t.Errorf("%d probes", i.Probes)
				}
				switch rand.IntN(50) {
				case 0:
					c.RetryAfter(now, now+4)
				case 1:
					c.open(now, now+4, breaker.HalfOpen, "")
				case 2:
					c.close(now, true)
				case 3:
					r.reg.Pause(key, 0, now+4, "")
				case 4:
					r.reg.Resume(key)
				case 5:
					limits := limits
					limits.Breaker.Threshold = 1 + rand.IntN(5)
					r.reg.Configure(limits, map[string]Settings{keys[rand.IntN(len(keys))]: limits}, nil)
				case 6:
					r.reg.List(api.CircuitListRequest{KeyListRequest: api.KeyListRequest{Limit: 10}})
				case 8, 9, 10, 11, 12:
					r.reg.Past(keys[rand.IntN(len(keys))])
				case 7:
					if err := <-c.saved(); err != nil {
						t.Error(err)
					}
				}
				if c.Done(p, r.now.Load(), breaker.Outcome(rand.IntN(3))) {
					c.Announce()
				}
				c.Leave(q)
				if rand.IntN(4) > 0 {
					c.Announce()
				}
				r.reg.giveBack(c)
			}
		})
	}
	wg.Wait()
	r.reg.mu.Lock()
	left := r.reg.all()
	r.reg.mu.Unlock()
	for _, c := range left {
		c.Announce()
	}
	r.reg.Stop()
	close(stop)
	<-stopped
	require.Zero(t, r.disk.commit())
	require.Positive(t, wakes.Load())

	live := r.reg.mu.byKey
	stored := r.disk.stored()
	r.start()
	r.reg.Configure(limits, nil, nil)
	r.reg.Restore(stored)
	for _, key := range keys {
		want := "closed"
		if c := live[key]; c != nil {
			require.Zero(t, c.refs)
			require.Empty(t, c.mu.waiters)
			require.Equal(t, states[key], c.mu.m.State().String())
			want = c.info(math.MinInt64).OpenUntil
			if want == "" {
				want = c.info(r.now.Load()).State
			}
		}
		got := "closed"
		if c := r.reg.mu.byKey[key]; c != nil {
			got = c.info(math.MinInt64).OpenUntil
			if want == "half-open" {
				got = c.info(r.now.Load()).State
			}
		}
		require.Equal(t, want, got, key)
	}
}
