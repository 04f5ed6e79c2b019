package sidecar

import (
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/wire"
)

// heapInUse returns the heap after two collections, since pools survive the first.
func heapInUse() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// makeQueues creates idle queues with their dead letter queues.
func (x *testSite) makeQueues(n int) {
	x.t.Helper()
	for i := range n {
		_, werr := x.s.parts.shards.Create(wire.DefaultQueueSettings(fmt.Sprintf("queue-%d", i)))
		require.Nil(x.t, werr)
	}
}

// deleteQueues deletes the queues of makeQueues.
func (x *testSite) deleteQueues(n int) {
	x.t.Helper()
	for i := range n {
		_, werr := x.s.parts.shards.Queue(fmt.Sprintf("queue-%d", i)).Delete("", true)
		require.Nil(x.t, werr)
	}
}

// TestIdleQueueCostsLittle: an idle queue and its dead letter queue have two goroutines, the intake and
// the runner. They take little memory, the embedded NATS server's share included.
func TestIdleQueueCostsLittle(t *testing.T) {
	bubble(t, func(t *testing.T, x *testSite) {
		const queues = 200
		x.makeQueues(1) // everything that is shared by all queues
		x.deleteQueues(1)
		synctest.Wait()
		heap, goroutines := heapInUse(), runtime.NumGoroutine()
		x.makeQueues(queues)
		synctest.Wait()
		require.LessOrEqual(t, runtime.NumGoroutine()-goroutines, 2*queues+1, "one refuses enqueues to all dead letter queues")
		each := (heapInUse() - heap) / queues
		t.Log(each)
		require.Less(t, each, int64(22_000))
	})
}

// TestDeletedQueuesLeaveNothing that grows with each round.
func TestDeletedQueuesLeaveNothing(t *testing.T) {
	bubble(t, func(t *testing.T, x *testSite) {
		const queues = 100
		var first int64
		goroutines := 0
		for round := range 6 {
			x.makeQueues(queues)
			for i := range queues {
				x.use(fmt.Sprintf("queue-%d", i))
			}
			x.deleteQueues(queues)
			time.Sleep(time.Second) // the library still checks drained subscriptions
			synctest.Wait()
			heap := heapInUse()
			switch {
			case round == 0: // everything that is shared by all queues
				goroutines = runtime.NumGoroutine()
				continue
			case round == 1:
				first = heap
			}
			t.Log(heap - first)
			require.Less(t, heap-first, int64(queues*2000), "round %d", round)
			require.LessOrEqual(t, runtime.NumGoroutine(), goroutines, "round %d", round)
		}
	})
}

// use sends a message through a queue.
func (x *testSite) use(queue string) {
	x.t.Helper()
	x.must("fila.enqueue."+queue, "hello", nil)
	m, err := x.nc.Request("fila.fetch."+queue, nil, time.Minute)
	require.NoError(x.t, err)
	require.Nil(x.t, x.ack(m, "+ACK"))
}
