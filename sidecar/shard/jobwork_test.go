package shard

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
)

// TestPiecesOfJobs: pieces are as large as the machine and the disk are soon done with.
func TestPiecesOfJobs(t *testing.T) {
	const ms = time.Millisecond
	disk := func(sync, each time.Duration) func(n int) time.Duration {
		return func(n int) time.Duration { return sync + time.Duration(n)*each }
	}
	steady := func(took time.Duration, wrote func(n int) time.Duration) int {
		w := worker{size: jobPiece}
		for i := range 50 {
			w.adapt(took, wrote(w.size))
			if i < jobFirst-1 && took < jobTurn {
				require.Equal(t, jobPiece, w.size, "the first ones say what the disk is like")
			}
		}
		return w.size
	}
	require.Equal(t, jobPiece, steady(ms, disk(ms, 2*time.Microsecond)), "a quick disk")
	require.Equal(t, 4*jobPiece, steady(ms, disk(8*ms, 0)), "one that syncs slowly")
	require.Equal(t, jobPiece*jobGrowth, steady(ms, disk(50*ms, 2*time.Microsecond)), "one that does so very slowly")
	require.Equal(t, 1, steady(11*ms, disk(ms, 2*time.Microsecond)), "a machine that is slow")

	w := worker{size: jobPiece}
	for range 10 {
		w.adapt(ms, 2*ms)
	}
	for range 10 {
		w.adapt(ms, time.Second)
	}
	require.Equal(t, jobPiece, w.size, "somebody else has the disk")
	for range 10 {
		w.adapt(11*ms, ms)
	}
	require.Equal(t, 1, w.size)
	for range 10 {
		w.adapt(ms, time.Second)
	}
	require.Equal(t, 1, w.size)
	w.adapt(ms, ms)
	require.Equal(t, 2, w.size)
}

// TestTurnsOfJobs: whatever a job does, it keeps the machine from its queue for no more than
// so many messages at a time, and what it remembers of them is bounded.
func TestTurnsOfJobs(t *testing.T) {
	bubble(t, func(r *rig) {
		q := r.create(nil)
		const n = jobSlots + jobLooks
		for range n {
			require.Nil(t, r.enqueue("", "", nil))
		}
		time.Sleep(time.Second)
		looked := func(f wire.Filter, order string, most int) (looks int) {
			j := newJob(q, jobSpec{JobCreateRequest: wire.JobCreateRequest{Filter: &f, Order: order}}, jobProgress{}, parcel{})
			w := worker{job: j}
			var werr *wire.Error
			w.finder, werr = q.Finder(f, 0)
			require.Nil(t, werr)
			l := w.newLook()
			for {
				from := max(l.from, 1)
				require.True(t, l.next())
				require.LessOrEqual(t, len(l.found), jobLooks)
				if looks++; l.from == 0 {
					return looks
				}
				require.EqualValues(t, most, l.from-from, "sequences are without gaps here")
			}
		}
		require.Equal(t, n/jobLooks, looked(*everything(), wire.OrderArrival, jobLooks))
		require.Equal(t, n/jobLooks, looked(*everything(), wire.OrderDeath, jobLooks))
		require.Equal(t, n/jobSlots+1, looked(wire.Filter{AttemptsMin: 1}, wire.OrderArrival, jobSlots), "of none that it is about")

		// Dry runs, and what came later.
		fd, werr := q.Finder(*everything(), 0)
		require.Nil(t, werr)
		for from, more := uint64(0), true; more; more = from != 0 {
			var found []queue.MessageView
			found, from, werr = fd.Find(from, jobLooks, jobLooks)
			require.Nil(t, werr)
			require.LessOrEqual(t, len(found), jobLooks)
		}

		// Pieces.
		most := 0
		r.store.refuse(func(b *store.Batch) error {
			most = max(most, len(b.Finish))
			return nil
		})
		done := r.run(wire.JobCreateRequest{Queue: "orders", Op: wire.JobCancel, Filter: everything()})
		require.EqualValues(t, n, done.Done)
		require.Equal(t, jobPiece, most)
	})
	require.LessOrEqual(t, jobSelection*unsafe.Sizeof(candidate{}), uintptr(3<<20), "of a job, however many messages it is about")
}

// TestPiecesAreFull but for the last one, however the selection is handed out.
func TestPiecesAreFull(t *testing.T) {
	bubble(t, func(r *rig) {
		r.create(nil)
		const n = 3*jobNear + 7
		for i := range n {
			require.Nil(t, r.enqueue("x", fmt.Sprint(i), nil))
		}
		synctest.Wait()
		var pieces []int
		r.store.refuse(func(b *store.Batch) error {
			if len(b.Finish) > 0 {
				pieces = append(pieces, len(b.Finish))
			}
			return nil
		})
		require.EqualValues(t, n, r.run(wire.JobCreateRequest{Queue: "orders", Op: wire.JobCancel, Filter: everything()}).Done)
		for _, of := range pieces[:len(pieces)-1] {
			require.Equal(t, jobPiece, of)
		}
		require.Len(t, pieces, (n+jobPiece-1)/jobPiece)
	})
}

// TestAFilterByTheLastError of messages that are alive is asked when they are picked: one
// that fails otherwise while the job rests is not meant any more.
func TestAFilterByTheLastError(t *testing.T) {
	bubble(t, func(r *rig) {
		q := r.create(nil)
		for _, delay := range []time.Duration{time.Hour, 500 * time.Millisecond} { // the first is the older one
			require.Nil(t, r.enqueue("x", delay.String(), nil))
			r.consume(q, "w", 1)
			for _, m := range r.conn.take("w") {
				r.ack(m, wire.Ack{Kind: wire.AckNack, Error: "meant", Delay: delay, HasDelay: true}, "")
			}
			require.True(t, q.Tell(queue.Leave{Consumer: "w"}))
		}
		synctest.Wait()
		job := r.begin(wire.JobCreateRequest{Queue: "orders", Op: wire.JobCancel, Filter: &wire.Filter{ErrorContains: "meant"}, Rate: 1})
		time.Sleep(600 * time.Millisecond) // the first has gone, and the job rests
		require.EqualValues(t, 1, q.Depth())
		r.consume(q, "w", 1)
		for _, m := range r.conn.take("w") {
			r.ack(m, wire.Ack{Kind: wire.AckNack, Error: "other", Delay: time.Hour, HasDelay: true}, "")
		}
		require.EqualValues(t, 1, r.over(job.ID).Done)
		require.EqualValues(t, 1, q.Depth())
	})
}

// TestLargeMessagesOfAJob go in pieces of few.
func TestLargeMessagesOfAJob(t *testing.T) {
	w := worker{job: newJob(nil, jobSpec{}, jobProgress{}, parcel{}), size: jobPiece}
	for range 2 * jobPiece {
		w.queue = append(w.queue, candidate{size: 64 << 10})
	}
	require.Len(t, w.next(), jobBytes/(64<<10))
	w.queue = []candidate{{size: 2 * jobBytes}, {size: 1}}
	require.Len(t, w.next(), 1, "one goes, however large")
}
