package sidecar

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
)

const typicalHook = `function on_enqueue(msg)
  return { fairness_key = msg.headers["tenant"], weight = msg.headers["plan"] == "gold" and 3 or 1, cost = 1 }
end`

// BenchmarkHookThroughput runs whole lives of messages through a queue with a typical on_enqueue and one
// without, alternating every 20,000, and reports the ratio of the median throughputs.
func BenchmarkHookThroughput(b *testing.B) {
	const turn, rounds = 20_000, 5
	x := startSite(b, b.TempDir(), nil)
	defer x.end()
	plain := newLifeLine(b, x, "plain", `{"fairness_header":"tenant"}`)
	hooked := newLifeLine(b, x, "hooked", jsonOf(b, map[string]any{"on_enqueue": typicalHook}))
	n := 0
	header := func() nats.Header {
		n++
		return nats.Header{"tenant": {fmt.Sprint("tenant-", n%10)}, "plan": {"silver"}}
	}
	plain.run(turn, header) // warm-up
	hooked.run(turn, header)
	b.ResetTimer()
	for range b.N {
		var off, on []time.Duration
		for range rounds {
			off = append(off, plain.run(turn, header))
			on = append(on, hooked.run(turn, header))
		}
		b.ReportMetric(median(off).Seconds()/median(on).Seconds(), "ratio")
		b.ReportMetric(turn/median(off).Seconds(), "msgs/s-off")
		b.ReportMetric(turn/median(on).Seconds(), "msgs/s-on")
	}
}

func jsonOf(b *testing.B, v any) string {
	data, err := json.Marshal(v)
	require.NoError(b, err)
	return string(data)
}

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}

// BenchmarkAmongHostileHooks measures the delivery latency of a healthy queue with a hook (500 messages
// a second) beside 100 other queues with 5 messages a second each: first with the same hook, then with
// hostile scripts of the corpus. It reports both p99 and their ratio.
func BenchmarkAmongHostileHooks(b *testing.B) {
	const samples = 3000
	x := startSite(b, b.TempDir(), nil)
	defer x.end()
	latency := watchDeliveries(b, x, "healthy", jsonOf(b, map[string]any{"on_enqueue": typicalHook}))
	friendly := make([]string, 100)
	for i := range friendly {
		friendly[i] = fmt.Sprintf("friendly-%d", i)
		x.must("fila.admin.queue-create."+friendly[i], jsonOf(b, map[string]any{"on_enqueue": typicalHook}), nil)
	}
	hostile := hostileQueues(b, x, len(friendly))

	measure := func(others []string) time.Duration {
		stop := make(chan struct{})
		var load sync.WaitGroup
		load.Go(func() {
			// 5 a second to each queue, evenly spread.
			tick := time.NewTicker(time.Second / time.Duration(5*len(others)))
			defer tick.Stop()
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				case <-tick.C:
					if err := x.nc.Publish("fila.enqueue."+others[i%len(others)], []byte("x")); err != nil {
						b.Error(err)
						return
					}
				}
			}
		})
		p99 := latency(samples)[samples*99/100]
		close(stop)
		load.Wait()
		return p99
	}
	b.ResetTimer()
	for range b.N {
		var among, beside []time.Duration
		for range 3 {
			beside = append(beside, measure(friendly))
			among = append(among, measure(hostile))
			for _, q := range hostile { // so that the next round begins with closed breakers
				x.must("fila.admin.hook-reset."+q, ``, nil)
			}
		}
		b.ReportMetric(float64(median(beside).Microseconds()), "p99-friendly-µs")
		b.ReportMetric(float64(median(among).Microseconds()), "p99-hostile-µs")
		b.ReportMetric(median(among).Seconds()/median(beside).Seconds(), "ratio")
	}
}

// hostileQueues creates n queues whose on_enqueue is a hostile script that loads, reusing the corpus.
func hostileQueues(b *testing.B, x *testSite, n int) []string {
	files, err := filepath.Glob("../hooks/sandbox/testdata/hostile/*.lua")
	require.NoError(b, err)
	var scripts []string
	for _, f := range files {
		text, err := os.ReadFile(f)
		require.NoError(b, err)
		if strings.Contains(string(text), "function on_enqueue") && !strings.Contains(string(text), "--@hook 1") {
			scripts = append(scripts, string(text))
		}
	}
	require.NotEmpty(b, scripts)
	var queues []string
	for i := 0; len(queues) < n; i++ {
		require.Less(b, i, 10*n, "too few hostile scripts load")
		name := fmt.Sprintf("hostile-%d", i)
		settings := jsonOf(b, map[string]any{"on_enqueue": scripts[i%len(scripts)]})
		if x.request("fila.admin.queue-create."+name, settings, nil, nil) == nil {
			queues = append(queues, name)
		}
	}
	return queues
}
