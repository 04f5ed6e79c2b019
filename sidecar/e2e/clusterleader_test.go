//go:build unix

package e2e

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestLeaderOfALogDies prints how long nothing is confirmed when the NATS server is killed that
// leads the log of a shard, and how long the server that takes over took to lead it. It runs with
// -fila.measure; -fila.kills is the number of kills, -fila.bin another binary.
func TestLeaderOfALogDies(t *testing.T) {
	if !*flagMeasure {
		t.Skip("-fila.measure runs it")
	}
	r := startLossRig(t)
	stop := make(chan struct{})
	var mu sync.Mutex
	last, longest := map[string]time.Time{}, map[string]time.Duration{}
	var sending sync.WaitGroup
	for _, queue := range r.queues {
		last[queue] = time.Now()
		sending.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				case <-time.After(2 * time.Millisecond):
				}
				reply, err := r.c.nc.RequestMsg(message(queue, "m"), 250*time.Millisecond)
				if err != nil || errorOf(t, reply) != nil {
					continue
				}
				mu.Lock()
				longest[queue] = max(longest[queue], time.Since(last[queue]))
				last[queue] = time.Now()
				mu.Unlock()
			}
		})
	}
	var silent, elected, rest []time.Duration
	for range *flagKills {
		leader := r.nats.Leader("FILA_loss_LOG_0")
		mu.Lock()
		clear(longest)
		mu.Unlock()
		r.nats.Kill(leader)
		begin := time.Now()
		for r.nats.leaderNow("FILA_loss_LOG_0") < 0 || r.nats.leaderNow("FILA_loss_LOG_1") < 0 {
			time.Sleep(20 * time.Millisecond)
		}
		took := time.Since(begin)
		pause(t.Context(), 8*time.Second)
		mu.Lock()
		most := time.Duration(0)
		for _, d := range longest {
			most = max(most, d)
		}
		mu.Unlock()
		silent, elected, rest = append(silent, most), append(elected, took), append(rest, most-took)
		t.Logf("nothing confirmed for %v, a new leader after %v", most.Round(time.Millisecond), took.Round(time.Millisecond))
		r.nats.start(leader)
		r.nats.WaitHealthy()
		r.settle()
	}
	close(stop)
	sending.Wait()
	for name, all := range map[string][]time.Duration{"nothing confirmed": silent, "elections": elected, "the rest": rest} {
		slices.Sort(all)
		fmt.Printf("%s: median %v, at most %v\n", name, all[len(all)/2].Round(time.Millisecond), all[len(all)-1].Round(time.Millisecond))
	}
	require.NotEmpty(t, silent)
}
