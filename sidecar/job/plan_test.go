package job

import (
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/queue/inspect"
	"github.com/filaq/fila/wire/api"
)

// TestBatchesFitTheQueueAndTheDisk: they grow and shrink with what the last ones took.
func TestBatchesFitTheQueueAndTheDisk(t *testing.T) {
	const ms = time.Millisecond
	disk := func(sync, each time.Duration) func(n int) time.Duration {
		return func(n int) time.Duration { return sync + time.Duration(n)*each }
	}
	steady := func(step time.Duration, commit func(n int) time.Duration) int {
		p := plan{size: batchSize}
		for i := range 50 {
			p.adapt(step, commit(p.size))
			if i < sampledBatches-1 && step < targetStep {
				require.Equal(t, batchSize, p.size, "the first batches only measure the disk")
			}
		}
		return p.size
	}
	require.Equal(t, batchSize, steady(ms, disk(ms, 2*time.Microsecond)), "a fast disk")
	require.Equal(t, 4*batchSize, steady(ms, disk(8*ms, 0)), "slow syncs")
	require.Equal(t, batchSize*maxGrowth, steady(ms, disk(50*ms, 2*time.Microsecond)), "very slow syncs")
	require.Equal(t, 1, steady(11*ms, disk(ms, 2*time.Microsecond)), "a slow queue")

	p := plan{size: batchSize}
	adapt := func(n int, step, commit time.Duration, want int) {
		t.Helper()
		for range n {
			p.adapt(step, commit)
		}
		require.Equal(t, want, p.size)
	}
	adapt(10, ms, 2*ms, batchSize)
	adapt(10, ms, time.Second, batchSize) // others use the disk
	adapt(10, 11*ms, ms, 1)
	adapt(10, ms, time.Second, 1)
	adapt(1, ms, ms, 2)
}

// TestASelectionHasTheFirstMessages in the order of a job.
func TestASelectionHasTheFirstMessages(t *testing.T) {
	s := selection{order: byArrival}
	const n = maxSelected + 1000
	for i := range n {
		at := (i*7919 + 13) % n // each once
		s.add(candidate{position: position{Seq: uint64(i), EnqueuedAt: int64(at)}})
	}
	require.True(t, s.full())
	s.reverse()
	for i := 0; i < maxSelected; {
		list := s.first(1000, nil)
		require.NotEmpty(t, list)
		for _, c := range list {
			require.EqualValues(t, i, c.EnqueuedAt)
			i++
		}
	}
	require.Empty(t, s.first(1, nil))
	require.LessOrEqual(t, maxSelected*unsafe.Sizeof(candidate{}), uintptr(3<<20), "of a job, however many messages match")
}

// TestLargeMessagesGoInSmallBatches, and a message goes however large it is.
func TestLargeMessagesGoInSmallBatches(t *testing.T) {
	p := plan{size: batchSize}
	for range 2 * batchSize {
		p.next = append(p.next, candidate{size: 64 << 10})
	}
	require.Len(t, p.batch(&spec{}, 0), batchBytes/(64<<10))
	p.next = []candidate{{size: 2 * batchBytes}, {size: 1}}
	require.Len(t, p.batch(&spec{}, 0), 1)
}

// TestAScanGoesOnBehindTheLastMessage of the job, in both orders.
func TestAScanGoesOnBehindTheLastMessage(t *testing.T) {
	found := []inspect.Member{{Seq: 4, EnqueuedAt: 10}, {Seq: 5, EnqueuedAt: 20}, {Seq: 6, EnqueuedAt: 5}, {Seq: 7, EnqueuedAt: 30}}
	for order, want := range map[string][]uint64{api.OrderArrival: {5, 7}, api.OrderDeath: {5, 6, 7}} {
		p := plan{size: batchSize}
		p.newScan(inspect.Match{}, order, position{Seq: 4, EnqueuedAt: 10})
		p.scan.add(found, 0)
		require.True(t, p.scan.over())
		p.endScan()
		p.sort()
		var seqs []uint64
		for _, c := range p.next {
			seqs = append(seqs, c.Seq)
		}
		require.Equal(t, want, seqs)
		require.False(t, p.more)
	}
}
