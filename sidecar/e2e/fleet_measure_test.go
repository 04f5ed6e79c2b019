//go:build unix

package e2e

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
)

// quantile sorts the durations.
func quantile(all []time.Duration, q float64) time.Duration {
	slices.Sort(all)
	return all[min(len(all)-1, int(q*float64(len(all))))]
}

// spread formats durations.
func spread(all []time.Duration) string {
	return fmt.Sprintf("p50 %v, p99 %v, max %v", quantile(all, .5).Round(10*time.Microsecond), quantile(all, .99).Round(10*time.Microsecond), quantile(all, 1).Round(10*time.Microsecond))
}

// machine describes the machine of the figures.
func machine() string {
	load, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		load = []byte("load not known")
	}
	return fmt.Sprintf("%s/%s, %d cores, load %s", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), strings.TrimSpace(string(load)))
}

// beside makes each fila deliver rate messages a second without a circuit until stop, which
// returns the acks per second.
func (f *fleet) beside(rate int) (stop func() float64) {
	t := f.t
	t.Helper()
	nc, err := nats.Connect(f.nc.ConnectedUrl())
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	var acked atomic.Int64
	for i := range f.procs {
		_, err := nc.Subscribe(fmt.Sprintf("%s.deliver.w.q1", fleetPrefix(i)), func(m *nats.Msg) {
			acked.Add(1)
			_ = nc.Publish(m.Reply, []byte("+ACK"))
		})
		require.NoError(t, err)
	}
	require.NoError(t, nc.Flush())
	for i := range f.procs {
		f.register(i, 1)
	}
	begin := time.Now()
	over := make(chan struct{})
	var sending sync.WaitGroup
	for i := range f.procs {
		sending.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-over:
					return
				case <-time.After(time.Until(begin.Add(time.Duration(n) * time.Second / time.Duration(rate)))):
					_ = nc.Publish(fleetPrefix(i)+".enqueue.q1", []byte("beside"))
				}
			}
		})
	}
	return func() float64 {
		close(over)
		sending.Wait()
		return float64(acked.Load()) / time.Since(begin).Seconds()
	}
}

// TestFleetMeasure prints how fast four filas share on three NATS servers, beside other
// messages. It asserts only what holds on every machine.
func TestFleetMeasure(t *testing.T) {
	if !*flagMeasure {
		t.Skip("prints figures; -fila.measure")
	}
	// No failure follows the opening of a circuit, so its record does not change and the watch
	// of the test sees it.
	const circuits, failures, filas, others = 300, 5, 4, 500
	start := func(t *testing.T, limits string) *fleet {
		t.Helper()
		c := startCluster(t, 3)
		return startFleetOn(t, filas, fleetOptions{nats: c.URL(), shared: "replicas = 3", limits: limits})
	}
	t.Run("openings", func(t *testing.T) {
		f := start(t, "threshold = 5\ncooldown_ms = 600000")
		js, err := f.nc.JetStream()
		require.NoError(t, err)
		var swaps sync.Map // revision: the server's time
		_, err = js.Subscribe("$KV.FILA_GATES.c.*", func(m *nats.Msg) {
			if meta, err := m.Metadata(); err == nil {
				swaps.Store(meta.Sequence.Stream, meta.Timestamp)
			}
		}, nats.OrderedConsumer())
		require.NoError(t, err)
		stop := f.beside(others)
		begun, openings := f.race(circuits, failures)
		load := machine()
		beside := stop()
		var recorded, first, all []time.Duration
		for key, told := range openings {
			var swapped any
			eventually(t, func() (ok bool) { swapped, ok = swaps.Load(told[0].version); return ok }, "the opening's record")
			at := swapped.(time.Time)
			slices.SortFunc(told, func(a, b opening) int { return a.at.Compare(b.at) })
			recorded = append(recorded, at.Sub(begun[key]))
			first, all = append(first, told[0].at.Sub(at)), append(all, told[len(told)-1].at.Sub(at))
		}
		require.Len(t, all, circuits)
		t.Logf("%d circuits, %d filas, three servers, %.0f other messages/s; %s", circuits, filas, beside, load)
		t.Logf("from the first nack to the swap that opens, by the server's clock: %s", spread(recorded))
		t.Logf("from that swap to the event of the first fila: %s", spread(first))
		t.Logf("from that swap to the events of all filas: %s", spread(all))
	})
	t.Run("failures", func(t *testing.T) {
		f := start(t, "threshold = 1000000")
		stop := f.beside(others)
		f.fail(10_000, 2000)
		load := machine()
		t.Logf("8,000 failures/s of one circuit, %d filas, three servers, %.0f other messages/s; %s", filas, stop(), load)
	})
}
