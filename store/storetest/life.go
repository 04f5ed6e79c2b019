package storetest

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/store"
)

func testDoneOrder(e *env) {
	e.must(queues(1).Batch)
	const n = 2000
	var mu sync.Mutex
	var got []int
	all := make(chan struct{})
	for i := range n {
		b := store.Batch{Add: []store.Message{message(1, uint64(i+1))}}
		if i%10 == 3 {
			b.Add[0].Queue = 99 // refused
		}
		b.Done = func(err error) {
			mu.Lock()
			defer mu.Unlock()
			if (err == nil) == (i%10 == 3) {
				got = append(got, -1)
			}
			if got = append(got, i); len(got) >= n {
				close(all)
			}
		}
		e.s.Submit(&b)
	}
	<-all
	for i := range n {
		require.Equal(e, i, got[i])
	}
	require.Len(e, e.refs(), n-n/10, "what is refused does not affect the others")
}

func testClose(e *env) {
	e.must(queues(1).Batch)
	var ok atomic.Int64
	for i := range 500 {
		e.s.Submit(&store.Batch{Add: []store.Message{message(1, uint64(i+1))}, Done: func(err error) {
			if err == nil {
				ok.Add(1)
			}
		}})
	}
	require.NoError(e, e.s.Close())
	require.Equal(e, int64(500), ok.Load())
	require.NoError(e, e.s.Close())
	require.ErrorIs(e, e.do(store.Batch{Add: []store.Message{message(1, 1000)}}), store.ErrClosed)
	e.s.Submit(&store.Batch{})
	require.ErrorIs(e, e.s.Read([]store.Ref{ref(1, 1)}, nil), store.ErrClosed)
	require.ErrorIs(e, e.s.Dead([]store.Ref{ref(1, 1)}, nil), store.ErrClosed)
	require.ErrorIs(e, e.s.History([]store.Ref{ref(1, 1)}, nil), store.ErrClosed)
	_, err := e.s.Snapshot()
	require.ErrorIs(e, err, store.ErrClosed)
	_, err = e.s.Recover(store.Visitor{})
	require.ErrorIs(e, err, store.ErrClosed)
	e.s = e.open(e, e.dir)
	require.Len(e, e.refs(), 500)
}

// testConcurrentReaders reads while messages are added, finished and carried. A reader
// sees the right bytes or ErrNotFound, and never ErrNotFound for a message that lives
// throughout.
func testConcurrentReaders(e *env) {
	e.must(queues(1).Batch)
	const n, keep = 3000, 10 // every tenth message stays
	var committed, stop atomic.Int64
	var wg sync.WaitGroup
	errs := make(chan error, 4)
	for g := range 4 {
		wg.Go(func() {
			for x := uint64(g); stop.Load() == 0; x = x*6364136223846793005 + 1 {
				top := uint64(committed.Load())
				if top < keep {
					continue
				}
				refs := []store.Ref{ref(1, (x>>20)%top+1), ref(1, (x>>30)%(top/keep)*keep+keep)}
				seen := false
				bad := false
				err := e.s.Read(refs, func(i int, _, payload []byte) {
					bad = bad || !bytes.Equal(payload, Payload(1, refs[i].Seq))
					seen = seen || i == 1
				})
				if err == nil || errors.Is(err, store.ErrNotFound) {
					seen = false
					err = e.s.Dead(refs, func(i int, d *store.Dead) {
						kept := refs[i].Seq%keep == 0
						bad = bad || (d != nil) != kept || kept && uint64(d.Attempts) != refs[i].Seq
						seen = seen || i == 1
					})
				}
				if err == nil || errors.Is(err, store.ErrNotFound) {
					seen = false
					err = e.s.History(refs, func(i int, records [][]byte) {
						kept := refs[i].Seq%keep == 0
						bad = bad || len(records) > 0 != kept || kept && string(records[0]) != fmt.Sprint(refs[i].Seq)
						seen = seen || i == 1
					})
				}
				if bad || !seen || (err != nil && !errors.Is(err, store.ErrNotFound)) {
					errs <- errors.Join(errors.New("wrong bytes, or a live message was not found"), err)
					return
				}
			}
		})
	}
	for seq := uint64(1); seq <= n; seq++ {
		b := store.Batch{Add: []store.Message{message(1, seq)}}
		if seq%keep == 0 {
			b.Add[0].Dead = &store.Dead{Attempts: uint32(seq)}
			b.History = []store.Attempt{attempt(ref(1, seq), fmt.Sprint(seq))}
		}
		if old := seq - 50; seq > 50 && old%keep != 0 {
			b.Finish = []store.Ref{ref(1, old)}
		}
		if seq%25 == 0 {
			e.must(b)
			committed.Store(int64(seq))
			continue
		}
		b.Done = func(err error) {
			if err == nil {
				committed.Store(int64(seq))
			}
		}
		e.s.Submit(&b)
	}
	stop.Store(1)
	wg.Wait()
	close(errs)
	for err := range errs {
		require.NoError(e, err)
	}
	require.Len(e, e.refs(), n/keep+45)
}

func testEmpty(e *env) {
	snap, err := e.s.Snapshot()
	require.NoError(e, err)
	require.Len(e, snap.Secret, 32)
	require.NotEqual(e, make([]byte, 32), snap.Secret)
	require.Equal(e, store.QueueID(1), snap.NextQueueID)
	require.Empty(e, snap.Queues)
	rs, err := e.s.Recover(store.Visitor{})
	require.NoError(e, err)
	require.Zero(e, rs.Messages)
	e.must(store.Batch{})
	e.reopen()
	again, err := e.s.Snapshot()
	require.NoError(e, err)
	require.Equal(e, snap.Secret, again.Secret)
	require.Equal(e, snap.CreatedAt, again.CreatedAt)
	require.NoError(e, e.s.Err())
	select {
	case <-e.s.Failed():
		require.Fail(e, "failed")
	default:
	}
}

func testVisitorErrors(e *env) {
	e.must(queues(1).Batch)
	e.must(store.Batch{
		Add:    messages(ref(1, 1), ref(1, 2)),
		Dedupe: []store.Dedupe{{Queue: 1, DedupeID: "d", Until: time.Now().Add(time.Hour).UnixNano()}},
	})
	e.reopen()
	stop := errors.New("stop")
	n := 0
	_, err := e.s.Recover(store.Visitor{Message: func(*store.Message, int, *store.State) error { n++; return stop }})
	require.ErrorIs(e, err, stop)
	require.Equal(e, 1, n)
	_, err = e.s.Recover(store.Visitor{Dedupe: func(store.Dedupe) error { return stop }})
	require.ErrorIs(e, err, stop)
	var done, total int64
	rs, err := e.s.Recover(store.Visitor{Progress: func(d, t int64) { done, total = d, t }})
	require.NoError(e, err)
	require.Equal(e, [2]int64{2, 2}, [2]int64{done, total})
	require.Equal(e, int64(2), rs.Messages)
	require.Equal(e, int64(1), rs.Dedupes)
	require.Equal(e, e.s.Stats().LiveBytes, rs.Bytes)
}
