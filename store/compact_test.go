package store

import (
	"bytes"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"testing"
	"time"
	"weak"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"github.com/filaq/fila/store/storefile"
)

func openTest(t testing.TB, o Options) *Bolt {
	t.Helper()
	s, err := Open(filepath.Join(t.TempDir(), "fila.db"), o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	require.NoError(t, submit(s, &Batch{PutQueues: []QueueRecord{{ID: 1, Name: "q"}}}))
	return s
}

func submit(s Store, b *Batch) error {
	done := make(chan error, 1)
	b.Done = func(err error) { done <- err }
	s.Submit(b)
	return <-done
}

// add adds a message to queue 1.
func add(t testing.TB, s Store, seq uint64, payload []byte) {
	t.Helper()
	require.NoError(t, submit(s, &Batch{Queue: 1, Add: []Message{{Ref: Ref{Queue: 1, Seq: seq}, Payload: payload}}}))
}

// submitAll submits batches while no commit can end, so that they share the next ones.
func submitAll(t *testing.T, s *Bolt, batches []*Batch) {
	t.Helper()
	done := make(chan error, len(batches))
	s.Freeze(func() {
		for _, b := range batches {
			b.Done = func(err error) { done <- err }
			s.Submit(b)
		}
	})
	for range batches {
		require.NoError(t, <-done)
	}
}

// TestSpaceIsBounded replaces a backlog many times in random order. The stored size
// stays within the ratio, and the file stops growing.
func TestSpaceIsBounded(t *testing.T) {
	s := openTest(t, Options{NoSync: true, CompactMinBytes: 1 << 16, ReadCacheBytes: -1})
	rng := rand.New(rand.NewPCG(1, 2))
	const backlog, size, rounds = 5000, 100, 3000
	var live []Ref
	seq := uint64(0)
	payload := make([]byte, 500)
	var half int64
	for round := range rounds {
		var b Batch
		for range size {
			seq++
			b.Add = append(b.Add, Message{Ref: Ref{Queue: 1, Seq: seq}, Payload: payload})
		}
		for len(live) >= backlog && len(b.Finish) < size {
			i := rng.IntN(len(live))
			b.Finish = append(b.Finish, live[i])
			live[i] = live[len(live)-1]
			live = live[:len(live)-1]
		}
		for i := range b.Add {
			live = append(live, b.Add[i].Ref)
		}
		require.NoError(t, submit(s, &b))
		if round == rounds/2 {
			half = s.Stats().FileBytes
		}
	}
	st := s.Stats()
	require.Equal(t, int64(len(live)), st.Messages)
	require.Less(t, float64(st.StoredMessages), 2.2*float64(st.Messages))
	require.Less(t, float64(st.FileBytes), 4*float64(st.LiveBytes+recordWeight*st.Messages))
	require.LessOrEqual(t, float64(st.FileBytes), 1.2*float64(half), "the file keeps growing")
	require.Less(t, float64(st.CarriedTotal), 0.5*float64(seq))
}

// TestSmallSegmentsMerge commits messages one by one. They end up in large segments,
// and each is carried a few times at most.
func TestSmallSegmentsMerge(t *testing.T) {
	s := openTest(t, Options{NoSync: true})
	const n = 3000
	for seq := uint64(1); seq <= n; seq++ {
		add(t, s, seq, make([]byte, 200))
	}
	st := s.Stats()
	require.Equal(t, int64(n), st.Messages)
	require.Less(t, st.Segments, int64(50))
	require.Less(t, st.CarriedTotal, int64(4*n))
	refs := []Ref{{Queue: 1, Seq: 1}, {Queue: 1, Seq: n / 2}, {Queue: 1, Seq: n}}
	seen := 0
	require.NoError(t, s.Read(refs, func(int, []byte, []byte) { seen++ }))
	require.Equal(t, 3, seen)
}

// TestNeverWritten finishes messages in the commit that adds them. The file gets
// nothing of them, not even a commit.
func TestNeverWritten(t *testing.T) {
	s := openTest(t, Options{})
	before := s.Stats()
	require.NoError(t, submit(s, &Batch{
		Add:    []Message{{Ref: Ref{Queue: 1, Seq: 1}, Payload: []byte("x")}, {Ref: Ref{Queue: 1, Seq: 2}}},
		State:  []State{{Ref: Ref{Queue: 1, Seq: 1}, Attempts: 1}},
		Finish: []Ref{{Queue: 1, Seq: 1}, {Queue: 1, Seq: 2}, {Queue: 1, Seq: 99}},
	}))
	after := s.Stats()
	require.Equal(t, before, after)
}

// TestReadAfterCompaction looks up a message, moves everything, and then reads the
// message.
func TestReadAfterCompaction(t *testing.T) {
	s := openTest(t, Options{NoSync: true, ReadCacheBytes: -1}.Small())
	add(t, s, 1, []byte{1})
	add(t, s, 2, []byte{2})
	refs := []Ref{{Queue: 1, Seq: 1}, {Queue: 1, Seq: 2}}
	r := &reading{s: s, refs: refs}
	defer r.endTx()
	r.locate(0)
	old := r.places[0].id
	require.NoError(t, submit(s, &Batch{Finish: []Ref{{Queue: 1, Seq: 2}}}))
	for seq := uint64(3); seq < 30; seq++ {
		add(t, s, seq, []byte{byte(seq)})
	}
	var payload []byte
	decode := func(value []byte, p place, ref Ref) (err error) {
		_, payload, err = s.decode(value, p.id, p.l.slotNo(), ref)
		return err
	}
	require.NoError(t, r.message(0, decode))
	require.Equal(t, []byte{1}, payload)
	require.NotEqual(t, old, r.places[0].id, "compaction has not moved it")
	require.ErrorIs(t, r.message(1, decode), ErrNotFound)
}

// TestCacheBudget: the cache stays within its budget and is used.
func TestCacheBudget(t *testing.T) {
	const budget = 64 << 10
	s := openTest(t, Options{NoSync: true, ReadCacheBytes: budget})
	for seq := uint64(1); seq < 2000; seq++ {
		b := &Batch{Add: []Message{{Ref: Ref{Queue: 1, Seq: seq}, Payload: make([]byte, 1000)}}}
		if seq > 200 {
			b.Finish = []Ref{{Queue: 1, Seq: seq - 200}}
		}
		require.NoError(t, submit(s, b))
		used := s.Stats().CachedBytes
		require.LessOrEqual(t, used, int64(budget))
		require.Positive(t, used)
	}
	require.Less(t, len(s.cache.fifo), 1000)
	var all []Ref
	for seq := range s.queues[1].index.all() {
		all = append(all, Ref{Queue: 1, Seq: seq})
	}
	require.NoError(t, submit(s, &Batch{Finish: all}))
	require.Zero(t, s.Stats().CachedBytes, "segments that are gone are still counted")
	// More than the budget is not cached at all.
	add(t, s, 5000, make([]byte, 2*budget))
	require.NoError(t, s.Read([]Ref{{Queue: 1, Seq: 5000}}, func(_ int, _, p []byte) { require.Len(t, p, 2*budget) }))
}

// TestCacheOfShortLivedSegments: segments that are deleted before the budget is used up
// leave nothing in the cache.
func TestCacheOfShortLivedSegments(t *testing.T) {
	s := openTest(t, Options{NoSync: true})
	add(t, s, 1, []byte{1})
	for seq := uint64(2); seq < 1000; seq++ {
		add(t, s, seq, []byte{1})
		require.NoError(t, submit(s, &Batch{Finish: []Ref{{Queue: 1, Seq: seq}}}))
		require.Less(t, len(s.cache.fifo), 200)
	}
	cached := 0
	for _, g := range s.segs.segs {
		if g != nil && g.data != nil {
			cached++
		}
	}
	require.Equal(t, cached, s.cache.segs)
	require.NoError(t, s.Read([]Ref{{Queue: 1, Seq: 1}}, func(_ int, _, p []byte) { require.Equal(t, []byte{1}, p) }))
}

// TestDedupeExpires: expired values are deleted a few at a time, and no others.
func TestDedupeExpires(t *testing.T) {
	clock := int64(1e18)
	s := openTest(t, Options{NoSync: true, Now: func() int64 { return clock }})
	for i := range int64(200) {
		require.NoError(t, submit(s, &Batch{Dedupe: []Dedupe{{Queue: 1, DedupeID: string(rune('a' + i)), Until: clock + 100e9 + i}}}))
	}
	require.NoError(t, submit(s, &Batch{Dedupe: []Dedupe{{Queue: 1, DedupeID: "late", Until: clock + 1000e9}}}))
	values := func() int64 {
		s.mu.RLock()
		defer s.mu.RUnlock()
		return s.count.dedupes
	}
	require.Equal(t, int64(201), values())
	clock += 500e9
	require.NoError(t, submit(s, &Batch{PutConfig: []Entry{{Key: "k"}}}))
	require.Less(t, values(), int64(201))
	require.Greater(t, values(), int64(150), "bounded work per commit")
	for range 100 {
		require.NoError(t, submit(s, &Batch{PutConfig: []Entry{{Key: "k"}}}))
	}
	require.Equal(t, int64(1), values())
	rs, err := s.Recover(Visitor{})
	require.NoError(t, err)
	require.Equal(t, int64(1), rs.Dedupes)
}

// TestCommitBytes: the limit bounds a group commit, but a single larger batch is
// committed.
func TestCommitBytes(t *testing.T) {
	var m mailbox
	m.init()
	big := func(n int) *Batch { return &Batch{Add: []Message{{Payload: make([]byte, n)}}} }
	for _, n := range []int{100, 40, 40, 40, 300, 0} {
		require.True(t, m.put(big(n)))
	}
	require.Len(t, m.take(100, addedBytes), 1)
	require.Len(t, m.take(100, addedBytes), 2)
	require.Len(t, m.take(100, addedBytes), 1)
	require.Len(t, m.take(100, addedBytes), 1)
	require.Len(t, m.take(100, addedBytes), 1)
	m.close()
	require.Empty(t, m.take(100, addedBytes))
	require.False(t, m.put(big(1)))
}

// TestCommitBytesOfMoves: moved messages are written again, so they count.
func TestCommitBytesOfMoves(t *testing.T) {
	const n = 8
	var most, commits int
	s := openTest(t, Options{NoSync: true, MaxCommitBytes: 2 << 20, OnCommit: func(c CommitStats) {
		most, commits = max(most, c.Batches), commits+1
		require.Positive(t, c.Duration)
	}})
	for seq := range uint64(n) {
		add(t, s, seq, make([]byte, 1<<20))
	}
	require.NoError(t, submit(s, &Batch{Queue: 1, PutQueues: []QueueRecord{{ID: 2, Name: "q.dlq"}}}))
	var moves []*Batch
	for seq := range uint64(n) {
		moves = append(moves, &Batch{Queue: 1, Move: []Move{{From: Ref{Queue: 1, Seq: seq}, To: Message{Ref: Ref{Queue: 2, Seq: seq}}}}})
	}
	require.Equal(t, n+2, commits)
	submitAll(t, s, moves)
	require.LessOrEqual(t, most, 2)
}

// TestCommitBytesOfHistories: a history is written again with each record, so it counts
// for the size of a commit and for the estimate of its cost.
func TestCommitBytesOfHistories(t *testing.T) {
	const n, records = 8, 128
	var most int
	s := openTest(t, Options{NoSync: true, MaxCommitBytes: 2 << 20, OnCommit: func(c CommitStats) { most = max(most, c.Batches) }})
	var add Batch
	for seq := range uint64(records) {
		add.Add = append(add.Add, Message{Ref: Ref{Queue: 1, Seq: seq}})
	}
	require.NoError(t, submit(s, &add))
	failures := func() *Batch {
		b := &Batch{Queue: 1}
		for seq := range uint64(records) {
			b.History = append(b.History, Attempt{Ref: Ref{Queue: 1, Seq: seq}, Record: bytes.Repeat([]byte{'e'}, 1<<10)})
		}
		return b
	}
	var all []*Batch
	for range n {
		all = append(all, failures())
	}
	submitAll(t, s, all)
	require.LessOrEqual(t, most, 2, "each batch may write 1 MiB")

	var written int64
	require.NoError(t, s.db.View(func(tx *bbolt.Tx) error {
		return tx.Bucket(storefile.BucketHistory).ForEach(func(_, v []byte) error {
			written += int64(len(v))
			return nil
		})
	}))
	require.Greater(t, written, int64(records*6<<10))
	require.LessOrEqual(t, written, s.batchBytes(failures())+records*64, "it is what it may be at most")
	s.committing.Lock()
	defer s.committing.Unlock()
	s.plan.writes = []historyPut{{value: make([]byte, 1000)}, {value: make([]byte, 500)}}
	require.EqualValues(t, 1500, s.plan.written())
	s.plan.writes = nil
}

// TestMovedSegmentsAreNotCached: many moved messages are not cached, unlike the new
// ones of the same commit. All can be read after the next commits reused the memory.
func TestMovedSegmentsAreNotCached(t *testing.T) {
	for size, cold := range map[int]bool{10 << 10: false, 100 << 10: true} {
		s := openTest(t, Options{NoSync: true})
		require.NoError(t, submit(s, &Batch{Queue: 1, PutQueues: []QueueRecord{{ID: 2, Name: "q.dlq"}}}))
		const n = 5
		payload := func(seq uint64) []byte { return bytes.Repeat([]byte{byte(seq)}, size) }
		for seq := range uint64(n) {
			add(t, s, seq, payload(seq))
		}
		for seq := range uint64(n) {
			require.NoError(t, submit(s, &Batch{
				Queue: 1, Add: []Message{{Ref: Ref{Queue: 1, Seq: n + seq}, Payload: payload(n + seq)}},
				Move: []Move{{From: Ref{Queue: 1, Seq: seq}, To: Message{Ref: Ref{Queue: 2, Seq: seq}}}},
			}))
		}
		var refs []Ref
		s.mu.RLock()
		for seq := range uint64(n) {
			refs = append(refs, Ref{Queue: 2, Seq: seq}, Ref{Queue: 1, Seq: n + seq})
			moved, _ := s.queues[2].index.get(seq)
			added, _ := s.queues[1].index.get(n + seq)
			require.Equal(t, cold, s.segs.segs[moved.seg].data == nil)
			require.NotNil(t, s.segs.segs[added.seg].data)
			require.Equal(t, cold, moved.seg != added.seg)
		}
		s.mu.RUnlock()
		require.NoError(t, s.Read(refs, func(i int, _, got []byte) {
			want := refs[i].Seq
			require.Equal(t, payload(want), got)
		}))
	}
}

// TestHistoryOfReusedNumber: a number is used again in the commit that finishes its
// first message.
func TestHistoryOfReusedNumber(t *testing.T) {
	s := openTest(t, Options{NoSync: true})
	record := func(ref Ref, text string) Attempt { return Attempt{Ref: ref, Record: []byte(text)} }
	one := Ref{Queue: 1, Seq: 1}
	require.NoError(t, submit(s, &Batch{Queue: 1, Add: []Message{{Ref: one}, {Ref: Ref{Queue: 1, Seq: 2}}}, History: []Attempt{record(one, "old"), record(Ref{Queue: 1, Seq: 2}, "other")}}))
	submitAll(t, s, []*Batch{
		{Queue: 1, History: []Attempt{record(one, "older")}, Move: []Move{{From: one, To: Message{Ref: Ref{Queue: 1, Seq: 3}}}}},
		{Queue: 1, Add: []Message{{Ref: one}}, History: []Attempt{record(one, "gone")}},
		{Queue: 1, Finish: []Ref{one, {Queue: 1, Seq: 2}}},
		{Queue: 1, Add: []Message{{Ref: one}, {Ref: Ref{Queue: 1, Seq: 2}}}, History: []Attempt{record(one, "new"), record(Ref{Queue: 1, Seq: 3}, "moved"), record(one, "newer")}},
	})
	var got []string
	require.NoError(t, s.History([]Ref{one, {Queue: 1, Seq: 2}, {Queue: 1, Seq: 3}}, func(_ int, records [][]byte) {
		got = append(got, string(bytes.Join(records, []byte(","))))
	}))
	require.Equal(t, []string{"new,newer", "", "old,moved"}, got)
}

// TestQueuesTakeTurns: a queue with many changes does not delay another one, and its
// batches stay in order.
func TestQueuesTakeTurns(t *testing.T) {
	var m mailbox
	m.init()
	put := func(queue QueueID, seq uint64, n int) {
		require.True(t, m.put(&Batch{Queue: queue, Add: []Message{{Ref: Ref{Queue: queue, Seq: seq}, Payload: make([]byte, n)}}}))
	}
	take := func() (refs []Ref) {
		for _, b := range m.take(100, addedBytes) {
			refs = append(refs, b.Add[0].Ref)
		}
		return refs
	}
	for seq := range uint64(5) {
		put(1, seq, 60)
	}
	for seq := range uint64(3) {
		put(2, seq, 30)
	}
	put(3, 0, 1)
	require.Equal(t, []Ref{{Queue: 1, Seq: 0}, {Queue: 2, Seq: 0}, {Queue: 3, Seq: 0}}, take())
	put(4, 0, 1)
	require.Equal(t, []Ref{{Queue: 1, Seq: 1}, {Queue: 2, Seq: 1}, {Queue: 4, Seq: 0}}, take())
	require.Equal(t, []Ref{{Queue: 1, Seq: 2}, {Queue: 2, Seq: 2}}, take())
	require.Equal(t, []Ref{{Queue: 1, Seq: 3}}, take())
	put(3, 1, 40)
	require.Equal(t, []Ref{{Queue: 1, Seq: 4}, {Queue: 3, Seq: 1}}, take())
	put(5, 0, 60) // does not leave room for the next one, but for that after it
	put(6, 0, 60)
	put(7, 0, 40)
	require.Equal(t, []Ref{{Queue: 5, Seq: 0}, {Queue: 7, Seq: 0}}, take())
	put(5, 1, 60)
	require.Equal(t, []Ref{{Queue: 6, Seq: 0}}, take())
	require.Equal(t, []Ref{{Queue: 5, Seq: 1}}, take())
	m.close()
	require.Empty(t, take())
	require.Empty(t, m.queues)
}

// TestWaited: a batch learns whether it waited for a commit of other queues, but not of
// its own queue.
func TestWaited(t *testing.T) {
	var s Bolt
	s.box.init()
	waited := func(queue QueueID) bool {
		b := &Batch{Queue: queue}
		s.Submit(b)
		return b.Waited
	}
	require.False(t, waited(1))
	s.box.take(1, addedBytes)
	require.False(t, waited(1))
	require.True(t, waited(2))
	require.True(t, waited(0))
	s.box.take(1, addedBytes)
	require.True(t, waited(1), "the commit of all three is running")
	require.True(t, waited(2))
	s.box.take(1, addedBytes)
	s.box.endCommit()
	require.False(t, waited(1))
	require.False(t, waited(2))
	require.False(t, waited(0))
	s.box.take(1, addedBytes)
	s.box.endCommit()
	s.Submit(&Batch{})
	s.box.take(1, addedBytes)
	require.True(t, waited(1), "a commit without a queue, for example of the configuration, is one of others")
}

// TestMailboxFreesBatches: committed batches can be garbage-collected.
func TestMailboxFreesBatches(t *testing.T) {
	var m mailbox
	m.init()
	var gone []weak.Pointer[Batch]
	for range 3 {
		b := &Batch{Queue: 1, Add: []Message{{Payload: make([]byte, 1<<20)}}}
		gone = append(gone, weak.Make(b))
		require.True(t, m.put(b))
	}
	for i := range gone {
		require.Len(t, m.take(1, addedBytes), 1)
		runtime.GC()
		require.True(t, gone[i].Value() == nil, "batch %d", i) // a failure shall not print it
	}
	runtime.KeepAlive(&m)
}

// TestPaceAfterStall: a single stall of the disk does not let commits grow.
func TestPaceAfterStall(t *testing.T) {
	p := newPace()
	before := p.limit(64 << 20)
	p.learn(4<<10, time.Minute)
	require.InEpsilon(t, before, p.limit(64<<20), .05)
}

// TestPace: the expected time bounds commits.
func TestPace(t *testing.T) {
	const most = 64 << 20
	for _, tc := range []struct {
		name        string
		sync        time.Duration
		bytesPerSec float64
		want        float64 // MiB
	}{
		{"memory", 0, 1e12, 64},
		{"fast", 100 * time.Microsecond, 1 << 30, 9.9e-3 * 1024},
		{"slow to sync", 2 * time.Millisecond, 200 << 20, 38e-3 * 200},
		{"slow", time.Millisecond, 10 << 20, 1},
	} {
		p := newPace()
		for range 1000 {
			p.learn(4<<10, tc.sync)
			n := p.limit(most)
			p.learn(n, tc.sync+time.Duration(float64(n)/tc.bytesPerSec*1e9))
			p.learn(syncBytes+1, time.Hour) // tells neither
		}
		require.InEpsilon(t, tc.want, float64(p.limit(most))/(1<<20), .02, tc.name)
	}
}
