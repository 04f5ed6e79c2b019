package sidecar

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"runtime/pprof"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// BenchmarkManyQueues creates idle queues with their dead letter queues and reports the cost of one and
// of a scrape; then it deletes and creates them again for five rounds and reports what stays. Heap
// profiles go to FILA_HEAP_PROFILES. MANY_QUEUES is their number (2,000); USED=1 sends a message through
// each.
func BenchmarkManyQueues(b *testing.B) {
	queues := 2000
	if n, err := strconv.Atoi(os.Getenv("MANY_QUEUES")); err == nil {
		queues = n
	}
	x := startSite(b, b.TempDir(), nil)
	defer x.end()
	metrics := x.s.metrics.Handler()
	per := func(n int64) float64 { return float64(n) / float64(queues) }
	for b.Loop() {
		heap, goroutines := heapInUse(), runtime.NumGoroutine()
		for round := range 5 {
			x.makeQueues(queues)
			if os.Getenv("USED") != "" {
				for i := range queues {
					x.use(fmt.Sprintf("queue-%d", i))
				}
			}
			idle, running := heapInUse(), runtime.NumGoroutine()
			profile(b, fmt.Sprintf("idle%d", round))
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			w, begin := httptest.NewRecorder(), time.Now()
			w.Body = bytes.NewBuffer(nil)
			metrics.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
			took := time.Since(begin)
			runtime.ReadMemStats(&after)
			b.Logf("round %d: %.1f KB of heap and %.2f goroutines for each queue; a scrape: %d lines, %d KB, %v, %d MB allocated", round,
				per(idle-heap)/1000, per(int64(running-goroutines)), bytes.Count(w.Body.Bytes(), []byte("\n")), w.Body.Len()>>10, took, (after.TotalAlloc-before.TotalAlloc)>>20)
			w = nil
			x.deleteQueues(queues)
			b.Logf("round %d, all deleted: %d KB of heap more than at the start, %d goroutines", round, (heapInUse()-heap)>>10, runtime.NumGoroutine()-goroutines)
			profile(b, fmt.Sprintf("deleted%d", round))
		}
	}
}

func profile(b *testing.B, name string) {
	dir := os.Getenv("FILA_HEAP_PROFILES")
	if dir == "" {
		return
	}
	f, err := os.Create(dir + "/" + name)
	require.NoError(b, err)
	defer f.Close()
	require.NoError(b, pprof.Lookup("heap").WriteTo(f, 0))
}
