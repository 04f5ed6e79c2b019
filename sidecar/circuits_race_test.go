package sidecar

import (
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/breaker"
	"github.com/filaq/fila/wire"
)

// TestCircuitsTogether lets many goroutines do everything at once, with a disk
// that is slow: no two probes too many, events in the order of the transitions,
// and in the end the disk says what memory says.
func TestCircuitsTogether(t *testing.T) {
	r := newCircuitRig(t)
	limits := r.cs.mu.defaults
	limits.breaker = breaker.Config{Threshold: 3, Cooldown: 5, HalfOpenMaxCalls: 2, HalfOpenSuccesses: 2}
	limits.maxFailures, limits.failureWindow, limits.failureHold = 20, 100, 10
	r.cs.configure(limits, nil)
	r.cs.maxIdle = 1
	keys := []string{"a", "b", "c", "d"}
	states := map[string]string{"a": "closed", "b": "closed", "c": "closed", "d": "closed"}
	var mu sync.Mutex
	r.cs.event = func(typ, key string, e wire.Event) {
		mu.Lock()
		defer mu.Unlock()
		if typ == wire.EventCircuitChanged {
			require.Equal(t, states[key], e.Data["old"])
			states[key] = e.Data["new"].(string)
		}
	}
	var wakes atomic.Int64
	r.cs.wake = func(q *queue, ci *circuit) { wakes.Add(1); ci.admits(r.now.Load()) }

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
			q := &queue{name: "q"}
			for range 3000 {
				key := keys[rand.IntN(len(keys))]
				ci := r.cs.use(key)
				now := r.now.Add(rand.Int64N(3))
				ci.wait(q)
				p, ok := ci.allow(now)
				if i := ci.info(now); i.Probes > 2 {
					t.Errorf("%d probes", i.Probes)
				}
				switch rand.IntN(50) {
				case 0:
					ci.retryAfter(now, now+4)
				case 1:
					ci.open(now, now+4, breaker.HalfOpen)
				case 2:
					ci.close(now, true)
				case 3:
					r.cs.pause(key, now+4)
				case 4:
					r.cs.resume(key)
				case 5:
					limits := limits
					limits.breaker.Threshold = 1 + rand.IntN(5)
					r.cs.configure(limits, map[string]circuitSettings{keys[rand.IntN(len(keys))]: limits})
				case 6:
					r.cs.list("", 0, 10, now)
				case 7:
					if err := ci.sync(); err != nil {
						t.Error(err)
					}
				}
				if ok {
					ci.done(&p, r.now.Load(), breaker.Outcome(rand.IntN(3)))
				}
				ci.leave(q)
				r.cs.drop(ci)
			}
		})
	}
	wg.Wait()
	r.cs.stop()
	close(stop)
	<-stopped
	require.Zero(t, r.disk.commit())
	require.Positive(t, wakes.Load())

	live := r.cs.mu.byKey
	stored := r.disk.stored()
	r.start()
	r.cs.configure(limits, nil)
	r.cs.restore(stored, r.now.Load())
	for _, key := range keys {
		want := "closed"
		if ci := live[key]; ci != nil {
			require.Zero(t, ci.refs)
			require.Empty(t, ci.mu.waiters)
			require.Equal(t, states[key], ci.mu.m.State().String())
			want = ci.info(math.MinInt64).OpenUntil
			if want == "" {
				want = ci.info(r.now.Load()).State
			}
		}
		got := "closed"
		if ci := r.cs.mu.byKey[key]; ci != nil {
			got = ci.info(math.MinInt64).OpenUntil
			if want == "half-open" {
				got = ci.info(r.now.Load()).State
			}
		}
		require.Equal(t, want, got, key)
	}
}
