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

// heapInUse is the heap after collections: two, since what is in pools takes the second.
func heapInUse() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// makeQueues makes queues that are idle, each with its dead letter queue.
func (x *testSite) makeQueues(n int) {
	x.t.Helper()
	for i := range n {
		_, werr := x.s.parts.shards.Create(wire.DefaultQueueSettings(fmt.Sprintf("queue-%d", i)))
		require.Nil(x.t, werr)
	}
}

// deleteQueues deletes what makeQueues has made.
func (x *testSite) deleteQueues(n int) {
	x.t.Helper()
	for i := range n {
		_, werr := x.s.parts.shards.Queue(fmt.Sprintf("queue-%d", i)).Delete(true)
		require.Nil(x.t, werr)
	}
}

// An idle queue with its dead letter queue has two goroutines, one that takes messages in and
// one that works by the clock, and little memory, that of the NATS server inside included.
func TestIdleQueueCostsLittle(t *testing.T) {
	bubble(t, func(t *testing.T, x *testSite) {
		const queues = 200
		x.makeQueues(1) // what all of them need
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

// What queues leave behind when they are deleted does not grow with each round.
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
			time.Sleep(time.Second) // the library goes on to look whether subscriptions are drained
			synctest.Wait()
			heap := heapInUse()
			switch {
			case round == 0: // what the first ones of all need
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
