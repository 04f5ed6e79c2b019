package guard

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/throttle"
	"github.com/filaq/fila/wire/api"
)

// With callers in many goroutines, some of which never send done, the concurrency limit
// holds, and nothing is left of the calls.
func TestManyCallers(t *testing.T) {
	r := newRig(t)
	const places = 3
	r.limit("v", throttle.Limits{Concurrency: places})
	var under, allowed, forgotten atomic.Int64
	var crew sync.WaitGroup
	for c := range 8 {
		crew.Go(func() {
			caller := fmt.Sprint(c)
			for i := range 300 {
				ttl := int64(api.DefaultPermitMs)
				forgets := i%100 == 99
				if forgets {
					ttl = 1
				}
				answers, err := r.Check(caller, api.GuardAsk{Key: "v", With: []string{caller}, Cost: 1, TTLMs: ttl})
				if err != nil {
					t.Error(err)
					return
				}
				_ = r.State("v", "me")
				switch {
				case !answers[0].Allowed:
				case forgets:
					forgotten.Add(1)
				default:
					if n := under.Add(1); n > places {
						t.Errorf("%d calls are under way", n)
					}
					allowed.Add(1)
					under.Add(-1)
					v, err := r.Done(&api.GuardDoneRequest{Key: "v", Permit: answers[0].Permit, Caller: caller, Outcome: api.GuardOK, Attempt: 1})
					if err != nil || v.Duplicate {
						t.Error(v, err)
					}
				}
			}
		})
	}
	crew.Wait()
	require.Positive(t, allowed.Load())
	require.Eventually(t, func() bool { return r.Live() == 0 }, 10*time.Second, time.Millisecond)
	require.Eventually(t, func() bool { // a permit is gone a moment before its place is back
		return r.State("v", "me").Limits[0].Remaining == places
	}, 10*time.Second, time.Millisecond)
	t.Log(allowed.Load(), "allowed,", forgotten.Load(), "forgotten")
}
