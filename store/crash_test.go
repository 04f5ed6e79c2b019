package store_test

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/store"
	"github.com/filaq/fila/store/storetest"
)

// witness knows what a caller of the store knows: the submitted and the confirmed
// batches.
type witness struct {
	mu        sync.Mutex
	submitted map[uint64]bool
	added     map[uint64]bool // confirmed
	finishing map[uint64]bool // handed in
	finished  map[uint64]bool // confirmed
}

func (w *witness) snapshot() *witness {
	w.mu.Lock()
	defer w.mu.Unlock()
	return &witness{
		submitted: maps.Clone(w.submitted), added: maps.Clone(w.added),
		finishing: maps.Clone(w.finishing), finished: maps.Clone(w.finished),
	}
}

// check compares a reopened copy with the batches that were confirmed before the copy was made,
// and with the batches that were submitted until after it.
func (w *witness) check(t *testing.T, after *witness, file string, o store.Options) {
	t.Helper()
	s, err := store.Open(file, o)
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	c := storetest.Dump(t, s)
	found := make(map[uint64]bool)
	for _, m := range c.Messages {
		require.True(t, after.submitted[m.Seq], "message %d was never submitted", m.Seq)
		require.False(t, w.finished[m.Seq], "message %d came back", m.Seq)
		require.Equal(t, storetest.Payload(1, m.Seq), m.Payload)
		found[m.Seq] = true
	}
	for seq := range w.added {
		require.True(t, found[seq] || after.finishing[seq], "message %d is lost", seq)
	}
}

// load submits random batches until stop is closed.
func (w *witness) load(s store.Store, seed uint64, stop chan struct{}) {
	rng := rand.New(rand.NewPCG(seed, 1))
	slots := make(chan struct{}, 20)
	var live []uint64
	for seq := uint64(1); ; {
		select {
		case <-stop:
			for range cap(slots) {
				slots <- struct{}{}
			}
			return
		case slots <- struct{}{}:
		}
		var b store.Batch
		var adds, ends []uint64
		for range rng.IntN(8) {
			b.Add = append(b.Add, store.Message{Ref: store.Ref{Queue: 1, Seq: seq}, Payload: storetest.Payload(1, seq)})
			adds = append(adds, seq)
			seq++
		}
		for len(live) > 50 && rng.IntN(8) > 0 {
			i := rng.IntN(len(live))
			ends = append(ends, live[i])
			b.Finish = append(b.Finish, store.Ref{Queue: 1, Seq: live[i]})
			live[i] = live[len(live)-1]
			live = live[:len(live)-1]
		}
		live = append(live, adds...)
		w.mu.Lock()
		set(w.submitted, adds)
		set(w.finishing, ends)
		w.mu.Unlock()
		b.Done = func(err error) {
			if err == nil {
				w.mu.Lock()
				set(w.added, adds)
				set(w.finished, ends)
				w.mu.Unlock()
			}
			<-slots
		}
		s.Submit(&b)
	}
}

func set(m map[uint64]bool, keys []uint64) {
	for _, k := range keys {
		m[k] = true
	}
}

// TestCrash copies the file while it is used, as a crash would leave it, between
// commits and in the middle of one, and opens the copies.
func TestCrash(t *testing.T) {
	rounds, copies := 3, 8
	if testing.Short() {
		rounds = 1
	}
	for round := range rounds {
		o := store.Options{NoSync: true}.Small()
		s := open(t, t.TempDir(), o)
		require.NoError(t, storetest.Do(s, &store.Batch{PutQueues: []store.QueueRecord{{ID: 1, Name: "q"}}}))
		w := &witness{
			submitted: map[uint64]bool{}, added: map[uint64]bool{}, finishing: map[uint64]bool{}, finished: map[uint64]bool{},
		}
		stop, done := make(chan struct{}), make(chan struct{})
		go func() { defer close(done); w.load(s, uint64(round), stop) }()
		dir := t.TempDir()
		for i := range copies {
			file := filepath.Join(dir, fmt.Sprint(i))
			waitCommits(s, 20)
			before := w.snapshot()
			if i%2 == 0 {
				s.Freeze(func() { copyFile(t, s.Path(), file) })
			} else {
				for !copyTorn(t, s, file) {
					before = w.snapshot()
				}
			}
			before.check(t, w.snapshot(), file, o)
		}
		close(stop)
		<-done
		require.Positive(t, s.Stats().CarriedTotal)
		require.NoError(t, s.Close())
	}
}

// waitCommits waits for n more commits.
func waitCommits(s *store.Bolt, n int64) {
	for end := s.Stats().Commits + n; s.Stats().Commits < end; {
		// The load on the store wakes the committer; this only looks.
		_ = s.Read(nil, nil)
	}
}

// copyTorn copies the file during commits, the meta pages first. It returns false if a
// commit ended meanwhile: then the pages of the copied meta pages may have been reused,
// which cannot happen in a crash.
func copyTorn(t *testing.T, s *store.Bolt, to string) bool {
	start := s.Stats().Commits
	in, err := os.Open(s.Path())
	require.NoError(t, err)
	out, err := os.Create(to)
	require.NoError(t, err)
	_, err = io.Copy(out, in) // from the beginning to the end
	require.NoError(t, errors.Join(err, in.Close(), out.Close()))
	return s.Stats().Commits == start
}

// TestFailedCommit limits the size of the file, like a full disk.
func TestFailedCommit(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, store.Options{})
	newLoader(t, s).fill(t, 10)
	require.NoError(t, s.Close())

	s = open(t, dir, store.Options{})
	s.LimitSize(8 << 20)
	l := newLoader(t, s)
	l.next = 11
	var n int
	for {
		b := l.batch(1000)
		err := storetest.Do(s, b)
		if err != nil {
			require.ErrorIs(t, err, store.ErrFailed)
			break
		}
		n += 1000
		require.Less(t, n, 100_000)
	}
	<-s.Failed()
	require.ErrorIs(t, s.Err(), store.ErrFailed)
	require.ErrorContains(t, s.Err(), s.Path())
	require.ErrorIs(t, storetest.Do(s, &store.Batch{}), store.ErrFailed)
	require.ErrorIs(t, s.Read([]store.Ref{{Queue: 1, Seq: 1}}, nil), store.ErrFailed)
	require.NoError(t, s.Close())

	s = open(t, dir, store.Options{})
	c := storetest.Dump(t, s)
	require.Len(t, c.Messages, n+10)
	require.NoError(t, s.Close())
}

// TestFileCutWhileOpen truncates the file of an open store. An access to the mapping is
// a fault, which must become an error and not a crash.
func TestFileCutWhileOpen(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("a mapped file cannot be cut there")
	}
	s := open(t, t.TempDir(), store.Options{NoSync: true, ReadCacheBytes: -1})
	newLoader(t, s).fill(t, 5000)
	require.NoError(t, os.Truncate(s.Path(), 2*4096))
	var ce *store.CorruptError
	require.ErrorAs(t, s.Read([]store.Ref{{Queue: 1, Seq: 1}}, nil), &ce)
	require.ErrorAs(t, s.Dead([]store.Ref{{Queue: 1, Seq: 1}}, nil), &ce)
	require.Equal(t, s.Path(), ce.File)
	_, err := s.Snapshot()
	require.ErrorAs(t, err, &ce)
	_, err = s.Recover(store.Visitor{})
	require.ErrorAs(t, err, &ce)
	require.ErrorIs(t, storetest.Do(s, &store.Batch{Finish: []store.Ref{{Queue: 1, Seq: 1}}}), store.ErrFailed)
	<-s.Failed()
	require.NoError(t, s.Close())
}
