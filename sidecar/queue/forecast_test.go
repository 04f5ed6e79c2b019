package queue_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/sidecar/queue/gates"
	"github.com/filaq/fila/sidecar/queue/inspect"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/throttle"
)

// forecast is a queue with a random history that is forecast, and then delivers.
type forecast struct {
	*rig
	t     *rapid.T
	costs []uint32
	limit map[string]throttle.Limits
	with  []delivery // at consumers
}

// newForecast makes a queue whose messages pass one of some gates, or none.
func newForecast(t *rapid.T, limits ...throttle.Limits) *forecast {
	f := &forecast{t: t, limit: make(map[string]throttle.Limits), costs: []uint32{1000, 1000, 1000, 250, 3000, 7500}}
	f.rig = newRig(t, func(s *queue.Settings) {
		s.Quantum = rapid.Int64Range(1, 3).Draw(t, "quantum")
		s.VisibilityTimeoutMs, s.StarveAfterMs = 1e9, 0
	})
	for i, l := range limits {
		key := fmt.Sprint("gate-", i)
		f.limit[key] = l
		if l.Rate != (throttle.Rate{}) {
			f.costs = []uint32{1000} // see Forecast
		}
		f.LimitNow(key, l)
	}
	return f
}

func (f *forecast) enqueue(n int, free bool) {
	weights := []uint32{1000, 1000, 500, 2500, 4000}
	for range n {
		key := rapid.IntRange(0, len(weights)-1).Draw(f.t, "key")
		f.Accept(f.Message(fmt.Sprint("key-", key), func(m *store.Message) {
			m.Weight = weights[key]
			m.Cost = rapid.SampledFrom(f.costs).Draw(f.t, "cost")
			m.Priority = rapid.SampledFrom([]uint8{0, 0, 0, 1, 5}).Draw(f.t, "priority")
			if g := rapid.IntRange(0, len(f.limit)).Draw(f.t, "gate"); g < len(f.limit) {
				m.ThrottleKeys = []string{fmt.Sprint("gate-", g)}
			} else if !free {
				m.ThrottleKeys = []string{"gate-0"}
			}
		}))
	}
	f.Run()
	f.Commit()
}

// history delivers and finishes some messages, with little credit or with much.
func (f *forecast) history(free bool) {
	credit := rapid.SampledFrom([]int{0, 1, 4, 1000}).Draw(f.t, "credit")
	if credit > 0 {
		f.Consume(queue.Main, "before", credit, 0)
	}
	for range rapid.IntRange(1, 6).Draw(f.t, "rounds") {
		f.enqueue(rapid.IntRange(1, 15).Draw(f.t, "messages"), free)
		f.with = append(f.with, f.Deliveries()...)
		for len(f.with) > 0 && rapid.Bool().Draw(f.t, "ack") {
			f.Finished(f.with[0])
			f.with = append(f.with[1:], f.Deliveries()...)
		}
		f.Pass(time.Duration(rapid.IntRange(0, 700).Draw(f.t, "ms")) * time.Millisecond)
		f.with = append(f.with, f.Deliveries()...)
	}
}

const forecasts = 20

// compare lets the queue deliver to a consumer with much credit, and compares. A forecast
// that waits for the end of a message comes true by the end of one that passed its gate.
func (f *forecast) compare(want []inspect.NextDelivery) {
	began, ends := f.Now, false
	f.Consume(queue.Main, "after", 1000, 0)
	for i := range want {
		w := &want[i]
		for ended := false; len(f.Sent) == 0; {
			switch {
			case w.Opens == 0 && w.By == gates.ByInFlight && !ended:
				f.endOne(w.At.Throttle.Key())
				ended, ends = true, true
			case w.Opens == 0:
				require.True(f.t, ends, "delivery %d, %+v, needs nothing but a consumer", i, w)
				f.Pass(f.Next())
			default:
				require.Greater(f.t, w.Opens, f.Now, "delivery %d, %+v", i, w)
				f.Pass(min(f.Next(), time.Duration(w.Opens-f.Now)))
			}
		}
		d := f.Sent[0]
		f.Sent = f.Sent[1:]
		f.with = append(f.with, d)
		require.Equal(f.t, w.ID, d.ID, "delivery %d: expected %+v, delivered %s", i, w, d.Key)
		require.Equal(f.t, w.Key, d.Key)
		if w.Opens != 0 {
			require.Equal(f.t, f.Now, w.Opens)
		} else if w.By == gates.ByNothing && !ends {
			require.Equal(f.t, began, f.Now)
		}
	}
	if len(want) < forecasts {
		f.Pass(f.Next())
		require.Empty(f.t, f.Sent, "a delivery that was not forecast")
	}
}

// endOne acks a message that has passed a gate.
func (f *forecast) endOne(gate string) {
	i := slices.IndexFunc(f.with, func(d delivery) bool { return f.gateOf(d) == gate })
	require.GreaterOrEqual(f.t, i, 0, "a message in flight at %s", gate)
	f.Finished(f.with[i])
	f.with = slices.Delete(f.with, i, i+1)
}

func (f *forecast) gateOf(d delivery) string {
	v := f.Find(queue.Main, d.ID)
	if v == nil || len(v.Throttles) == 0 {
		return ""
	}
	return v.Throttles[0].Key()
}

// The forecast is what the machine then does, if nothing else happens.
func TestForecastComesTrue(t *testing.T) {
	for name, limits := range map[string][]throttle.Limits{
		"no gates":    nil,
		"rate":        {{Rate: throttle.PerSecond(5000), Burst: 2000}},
		"window":      {{Limit: 3, Window: int64(2 * time.Second)}},
		"concurrency": {{Concurrency: 2}},
		"both":        {{Rate: throttle.PerSecond(3000), Concurrency: 3}},
		"two rates":   {{Rate: throttle.PerSecond(5000), Burst: 1000}, {Rate: throttle.PerSecond(777), Burst: 3000}},
	} {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				free := rapid.Bool().Draw(t, "free")
				f := newForecast(t, limits...)
				f.history(free || len(limits) == 0)
				before, left := f.M.Inspect(queue.Main).Forecast(forecasts, f.Now)
				require.Zero(t, left)
				again, _ := f.M.Inspect(queue.Main).Forecast(forecasts, f.Now)
				require.Equal(t, before, again, "a forecast changes nothing")
				check(f.rig)
				f.compare(before)
			})
		})
	}
}
