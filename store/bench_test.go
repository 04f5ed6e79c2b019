package store_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/store"
	"github.com/filaq/fila/store/storetest"
)

// loader keeps a store supplied with messages of 1 KB in one queue.
type loader struct {
	s       store.Store
	payload []byte
	keys    []string
	next    uint64
}

func newLoader(b testing.TB, s store.Store) *loader {
	l := &loader{s: s, payload: make([]byte, 1000), next: 1}
	for i := range 1000 {
		l.keys = append(l.keys, fmt.Sprintf("tenant-%04d", i))
	}
	snap, err := s.Snapshot()
	require.NoError(b, err)
	if len(snap.Queues) == 0 {
		require.NoError(b, storetest.Do(s, &store.Batch{PutQueues: []store.QueueRecord{{ID: 1, Name: "bench"}}}))
	}
	return l
}

// batch makes a batch of n new messages.
func (l *loader) batch(n int) *store.Batch {
	b := &store.Batch{Add: make([]store.Message, n)}
	for i := range b.Add {
		b.Add[i] = store.Message{
			Ref: store.Ref{Queue: 1, Seq: l.next}, ID: store.ID{1}, EnqueuedAt: 1,
			Class:   store.Class{Weight: 1000, Cost: 1000, Key: l.keys[l.next%uint64(len(l.keys))]},
			Headers: []byte("some: header"), Payload: l.payload,
		}
		l.next++
	}
	return b
}

// fill adds n messages in batches of 1000.
func (l *loader) fill(b testing.TB, n int) {
	for n > 0 {
		k := min(n, 1000)
		require.NoError(b, storetest.Do(l.s, l.batch(k)))
		n -= k
	}
}

// BenchmarkCommit inserts and finishes messages in every commit; one operation is one
// message. Messages finish in the order of arrival, or in random order over a backlog.
func BenchmarkCommit(b *testing.B) {
	for _, mode := range []struct {
		name    string
		backlog int
	}{{"ordered", 0}, {"random/backlog=100k", 100_000}} {
		for _, size := range []int{1, 10, 100, 1000} {
			b.Run(fmt.Sprintf("%s/batch=%d", mode.name, size), func(b *testing.B) {
				benchCommit(b, mode.backlog, size)
			})
		}
	}
}

func benchCommit(b *testing.B, backlog, size int) {
	s := open(b, b.TempDir(), store.Options{KeepConfirmed: true})
	defer s.Close()
	l := newLoader(b, s)
	l.fill(b, backlog)
	live := make([]store.Ref, 0, backlog+2*size)
	for seq := uint64(1); seq < l.next; seq++ {
		live = append(live, store.Ref{Queue: 1, Seq: seq})
	}
	rng := rand.New(rand.NewPCG(1, 2))
	before := s.Stats()
	b.ReportAllocs()
	b.SetBytes(1000)
	b.ResetTimer()
	for done := 0; done < b.N; done += size {
		batch := l.batch(size)
		for range min(size, len(live)) {
			if backlog > 0 {
				i := rng.IntN(len(live))
				live[0], live[i] = live[i], live[0]
			}
			batch.Finish = append(batch.Finish, live[0])
			live = live[1:]
		}
		for i := range batch.Add {
			live = append(live, batch.Add[i].Ref)
		}
		require.NoError(b, storetest.Do(s, batch))
	}
	b.StopTimer()
	st := s.Stats()
	b.ReportMetric(float64(st.CarriedTotal-before.CarriedTotal)/float64(b.N), "carried/op")
	b.ReportMetric(float64(st.FileBytes)/float64(max(st.LiveBytes, 1)), "file/live")
	b.ReportMetric(float64(st.Segments), "segments")
}

// BenchmarkSubmit keeps 1024 batches of one message in flight, so that the store
// decides the size of its commits.
func BenchmarkSubmit(b *testing.B) {
	s := open(b, b.TempDir(), store.Options{KeepConfirmed: true})
	defer s.Close()
	l := newLoader(b, s)
	slots := make(chan struct{}, 1024)
	b.ReportAllocs()
	b.SetBytes(1000)
	b.ResetTimer()
	for range b.N {
		slots <- struct{}{}
		batch := l.batch(1)
		if seq := batch.Add[0].Seq; seq > 2000 {
			batch.Finish = []store.Ref{{Queue: 1, Seq: seq - 2000}}
		}
		batch.Done = func(error) { <-slots }
		s.Submit(batch)
	}
	for range cap(slots) {
		slots <- struct{}{}
	}
}

func BenchmarkRead(b *testing.B) {
	for _, c := range []struct {
		name  string
		cache int64
	}{{"cached", 1 << 30}, {"file", -1}} {
		for _, size := range []int{1, 100} {
			b.Run(fmt.Sprintf("%s/refs=%d", c.name, size), func(b *testing.B) {
				s := open(b, b.TempDir(), store.Options{ReadCacheBytes: c.cache, NoSync: true})
				defer s.Close()
				l := newLoader(b, s)
				l.fill(b, 100_000)
				rng := rand.New(rand.NewPCG(1, 2))
				refs := make([]store.Ref, size)
				b.ReportAllocs()
				b.SetBytes(1000)
				b.ResetTimer()
				for done := 0; done < b.N; done += size {
					for i := range refs {
						refs[i] = store.Ref{Queue: 1, Seq: rng.Uint64N(100_000) + 1}
					}
					require.NoError(b, s.Read(refs, func(int, []byte, []byte) {}))
				}
			})
		}
	}
}

// BenchmarkOpen opens and recovers a store in one operation. It also reports the memory
// of the location index per message.
func BenchmarkOpen(b *testing.B) {
	for _, c := range []struct{ n, histories int }{{100_000, 0}, {1_000_000, 0}, {1_000_000, 1_000_000}} {
		n := c.n
		b.Run(fmt.Sprintf("messages=%d/histories=%d", n, c.histories), func(b *testing.B) {
			if n > 100_000 && testing.Short() {
				b.Skip("large")
			}
			dir := b.TempDir()
			s := open(b, dir, store.Options{NoSync: true})
			newLoader(b, s).fill(b, n)
			past(b, s, c.histories)
			require.NoError(b, s.Close())
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N {
				s := open(b, dir, store.Options{})
				seen := 0
				_, err := s.Recover(store.Visitor{Message: func(*store.Message, int, *store.State) error { seen++; return nil }})
				require.NoError(b, err)
				require.Equal(b, n, seen)
				b.StopTimer()
				runtime.GC()
				b.ReportMetric(float64(s.Stats().IndexBytes)/float64(n), "index-B/msg")
				require.NoError(b, s.Close())
				b.StartTimer()
			}
			b.ReportMetric(float64(b.N*n)/b.Elapsed().Seconds(), "msg/s")
		})
	}
}

// past gives the first n messages histories of 300 bytes.
func past(b *testing.B, s *store.Bolt, n int) {
	record := bytes.Repeat([]byte{1}, 100)
	for from := 0; from < n; from += 1000 {
		var batch store.Batch
		for i := from; i < min(from+1000, n); i++ {
			for range 3 {
				batch.History = append(batch.History, store.Attempt{Ref: store.Ref{Queue: 1, Seq: uint64(i + 1)}, Record: record})
			}
		}
		require.NoError(b, storetest.Do(s, &batch))
	}
}
