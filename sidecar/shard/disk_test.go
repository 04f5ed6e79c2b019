package shard

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
)

// fakeDisk is a disk of 100 GiB whose free bytes a test sets.
type fakeDisk struct {
	free    atomic.Int64
	unknown atomic.Bool
}

func (d *fakeDisk) space() (store.Space, bool) {
	return store.Space{Free: d.free.Load(), Total: 100 << 30}, !d.unknown.Load()
}

// onDisk runs fn on a rig that serves on a disk with free bytes free.
func onDisk(t *testing.T, free, minFree int64, fn func(r *rig, d *fakeDisk)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r, d := openRig(t, newDisk()), &fakeDisk{}
		d.free.Store(free)
		r.Space, r.MinFreeBytes = d.space, minFree
		r.start()
		require.NoError(r.t, r.Serve())
		fn(r, d)
		r.end()
	})
}

// TestNearlyFullDiskRefusesMessagesAlone: stored messages are still delivered, acked, retried
// and deleted. When there is room again, new messages are accepted without any action.
func TestNearlyFullDiskRefusesMessagesAlone(t *testing.T) {
	onDisk(t, 1<<30, 256<<20, func(r *rig, d *fakeDisk) {
		q := r.create(nil)
		for range 3 {
			require.Nil(t, r.enqueue("x", "producer", nat(wire.HeaderMsgID, time.Now().String())))
			time.Sleep(10 * time.Millisecond)
		}
		first := r.conn.take("producer")
		require.Len(t, first, 3)

		d.free.Store(256<<20 - 1)
		time.Sleep(diskInterval)
		synctest.Wait()
		werr := r.enqueue("y", "producer", nil)
		require.Equal(t, wire.DiskLow(256<<20-1, 256<<20, diskLowRetryAfter), werr)
		require.Equal(t, 503, werr.Code)
		require.Positive(t, werr.RetryAfter)
		told := r.news(wire.EventDiskLow)
		require.Len(t, told, 1)
		require.Equal(t, map[string]any{"free_bytes": int64(256<<20 - 1), "min_free_bytes": int64(256 << 20)}, told[0].Data)

		r.consume(q, "w", 1)
		r.ack(r.one("w"), done, "")
		m := r.one("w")
		r.ack(m, term, "")
		r.ack(r.one("w"), done, "")
		time.Sleep(time.Second)
		synctest.Wait()
		require.Zero(t, q.Depth())
		require.EqualValues(t, 1, q.DLQ().Depth())
		_, werr = q.Delete("", true)
		require.Nil(t, werr)
		q = r.create(nil)

		d.free.Store(256 << 20) // too little to end the alarm
		time.Sleep(diskInterval)
		synctest.Wait()
		require.NotNil(t, r.enqueue("y", "producer", nil))
		require.Empty(t, r.news(wire.EventDiskRecovered))
		d.free.Store(320 << 20)
		time.Sleep(diskInterval)
		synctest.Wait()
		require.Nil(t, r.enqueue("y", "producer", nil))
		require.Len(t, r.news(wire.EventDiskRecovered), 1)
		require.Empty(t, r.news(wire.EventDiskLow))
		require.EqualValues(t, 1, q.Depth())
	})
}

// TestNearlyFullDiskAtTheStart: the first message is refused.
func TestNearlyFullDiskAtTheStart(t *testing.T) {
	onDisk(t, 10, AutoMinFree, func(r *rig, d *fakeDisk) {
		r.create(nil)
		require.Equal(t, wire.CodeDiskLow, r.enqueue("x", "", nil).ErrCode)
		require.Equal(t, &Disk{Free: 10, MinFree: 256 << 20, Low: true}, r.Disk())
		d.unknown.Store(true)
		d.free.Store(1 << 40)
		time.Sleep(diskInterval)
		require.Equal(t, wire.CodeDiskLow, r.enqueue("x", "", nil).ErrCode, "what was known stays")
	})
}

// TestDiskIsCheckedAfterWriting, not only once an interval.
func TestDiskIsCheckedAfterWriting(t *testing.T) {
	onDisk(t, 1<<30, AutoMinFree, func(r *rig, d *fakeDisk) {
		q := r.create(nil)
		d.free.Store(1)
		r.committed(q, diskBytes-1)
		require.False(t, r.Disk().Low)
		r.committed(q, 1)
		require.True(t, r.Disk().Low)
	})
}

// committed pretends that a number of bytes of q has been committed.
func (r *rig) committed(q *Queue, bytes int64) {
	r.uncommitted.Add(bytes)
	q.run.committed(&queue.Commit{Bytes: bytes}, nil)
	synctest.Wait()
}

// TestWhatWaitsForTheDiskCounts as if it were written.
func TestWhatWaitsForTheDiskCounts(t *testing.T) {
	onDisk(t, 300<<20, AutoMinFree, func(r *rig, d *fakeDisk) {
		r.uncommitted.Add(44 << 20)
		r.checkDisk()
		require.False(t, r.Disk().Low)
		r.uncommitted.Add(1)
		r.checkDisk()
		require.True(t, r.Disk().Low)
		r.uncommitted.Add(-44<<20 - 1)
	})
}

func TestMinFree(t *testing.T) {
	for _, tc := range []struct{ set, total, want int64 }{
		{AutoMinFree, 100 << 30, 256 << 20},
		{AutoMinFree, 1 << 30, 1 << 30 / 20},
		{0, 1 << 30, 0},
		{10 << 30, 1 << 30, 10 << 30},
	} {
		o := Options{MinFreeBytes: tc.set}
		require.Equal(t, tc.want, o.minFree(tc.total), "%+v", tc)
	}
}

// TestDiskAlarmIsOff if it is configured so, and if the space is not known.
func TestDiskAlarmIsOff(t *testing.T) {
	onDisk(t, 0, 0, func(r *rig, _ *fakeDisk) {
		r.create(nil)
		require.Nil(t, r.enqueue("x", "", nil))
		require.Equal(t, &Disk{}, r.Disk())
	})
	bubble(t, func(r *rig) { // without Space
		r.create(nil)
		r.MinFreeBytes = 1 << 50
		time.Sleep(diskInterval)
		require.Nil(t, r.enqueue("x", "", nats.Header{}))
		require.Nil(t, r.Disk())
	})
}
