package store_test

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"github.com/filaq/fila/store"
	"github.com/filaq/fila/store/storetest"
)

// fakeLog counts its batches.
type fakeLog struct {
	err     error
	appends int
	batches int
}

func (l *fakeLog) Append(batches []*store.Batch) ([]byte, error) {
	if l.err != nil {
		return nil, l.err
	}
	l.appends++
	l.batches += len(batches)
	return []byte{byte(l.appends)}, nil
}

func withQueue() *store.Batch {
	return &store.Batch{PutQueues: []store.QueueRecord{{ID: 1, Name: "q"}}}
}

func adds(seq uint64, payload string) *store.Batch {
	return &store.Batch{Queue: 1, Add: []store.Message{{
		Ref: store.Ref{Queue: 1, Seq: seq}, Payload: []byte(payload), Dead: &store.Dead{Reason: "r" + payload},
	}}}
}

func positionOf(t *testing.T, s interface{ Position() ([]byte, error) }) string {
	t.Helper()
	position, err := s.Position()
	require.NoError(t, err)
	return string(position)
}

func TestConformanceWithALog(t *testing.T) {
	storetest.Run(t, func(t testing.TB, dir string) store.Store {
		s := open(t, dir, store.Options{NoSync: true}.Small())
		s.SetLog(&fakeLog{})
		return s
	})
}

// TestDoneComesWithTheLog: a batch is done when the log has it, and can be read before
// it is in the file. The submitter may then reuse the batch.
func TestDoneComesWithTheLog(t *testing.T) {
	done, read := make(chan error, 1), make(chan struct{})
	opts := store.Options{NoSync: true}.WithStep(func(name string) error {
		require.Equal(t, "logged", name)
		<-read
		return nil
	})
	s := open(t, t.TempDir(), opts)
	require.NoError(t, storetest.Do(s, withQueue()))
	log := &fakeLog{}
	s.SetLog(log)
	b := adds(1, "one")
	b.Add = append(b.Add, adds(2, "two").Add...)
	b.Finish = []store.Ref{{Queue: 1, Seq: 1}}
	b.Done = func(err error) { done <- err }
	s.Submit(b)
	require.NoError(t, <-done)
	copy(b.Add[1].Payload, "xxx")
	b.Add[1].Dead.Reason = "x"
	clear(b.Add)
	refs := []store.Ref{{Queue: 1, Seq: 2}, {Queue: 1, Seq: 1}}
	check := func() {
		var got []string
		require.ErrorIs(t, s.Read(refs, func(_ int, _, payload []byte) { got = append(got, string(payload)) }), store.ErrNotFound)
		require.ErrorIs(t, s.Dead(refs, func(_ int, d *store.Dead) { got = append(got, d.Reason) }), store.ErrNotFound)
		require.Equal(t, []string{"two", "rtwo"}, got)
	}
	check()
	require.Empty(t, positionOf(t, s), "the file is behind")
	close(read)
	_, err := s.Snapshot() // waits for the file
	require.NoError(t, err)
	check()
	require.Equal(t, "\x01", positionOf(t, s))
	require.NoError(t, s.Close())
}

// TestCrashBetweenLogAndFile: after a crash between log and file nothing is lost that
// was done, because the batches behind the position are applied again.
func TestCrashBetweenLogAndFile(t *testing.T) {
	dir := t.TempDir()
	crash := errors.New("power")
	s := open(t, dir, store.Options{NoSync: true}.WithStep(func(string) error { return crash }))
	require.NoError(t, storetest.Do(s, withQueue()))
	s.SetLog(&fakeLog{})
	require.NoError(t, storetest.Do(s, adds(1, "one")), "the log has it")
	<-s.Failed()
	require.ErrorIs(t, s.Err(), crash)
	require.ErrorIs(t, storetest.Do(s, adds(2, "two")), store.ErrFailed)
	require.NoError(t, s.Close())

	s = open(t, dir, store.Options{NoSync: true})
	require.Empty(t, positionOf(t, s))
	require.Empty(t, storetest.Dump(t, s).Messages)
	require.NoError(t, s.Apply([]*store.Batch{adds(1, "one")}, []byte{1}))
	require.Len(t, storetest.Dump(t, s).Messages, 1)
	require.Equal(t, "\x01", positionOf(t, s))
	require.NoError(t, s.Close())
}

func TestRefusedIsNotLogged(t *testing.T) {
	s := open(t, t.TempDir(), store.Options{NoSync: true})
	log := &fakeLog{}
	s.SetLog(log)
	require.NoError(t, storetest.Do(s, withQueue()))
	require.NoError(t, storetest.Do(s, adds(1, "one")))
	require.ErrorIs(t, storetest.Do(s, adds(1, "again")), store.ErrDuplicate)
	require.NoError(t, storetest.Do(s, &store.Batch{Finish: []store.Ref{{Queue: 1, Seq: 7}}}), "nothing to write, nothing to log")
	require.Equal(t, []int{2, 2}, []int{log.appends, log.batches})
	require.Len(t, storetest.Dump(t, s).Messages, 1)
	require.NoError(t, s.Close())
}

func TestFailedAppendFailsTheStore(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, store.Options{NoSync: true})
	require.NoError(t, storetest.Do(s, withQueue()))
	s.SetLog(&fakeLog{err: store.ErrFenced})
	err := storetest.Do(s, adds(1, "one"))
	require.ErrorIs(t, err, store.ErrFenced)
	require.ErrorIs(t, err, store.ErrFailed)
	<-s.Failed()
	s.Fail(errors.New("later"))
	require.ErrorIs(t, s.Err(), store.ErrFenced, "the first cause counts")
	require.NoError(t, s.Close())
	s = open(t, dir, store.Options{NoSync: true})
	require.Empty(t, storetest.Dump(t, s).Messages)
	require.NoError(t, s.Close())
}

func TestFailFailsTheStore(t *testing.T) {
	s := open(t, t.TempDir(), store.Options{NoSync: true})
	s.Fail(store.ErrFenced)
	<-s.Failed()
	require.ErrorIs(t, storetest.Do(s, withQueue()), store.ErrFenced)
	require.NoError(t, s.Close())
}

// TestApplyOfRefusedBatchFailsTheStore: a store that refuses a batch of its log has
// diverged. Nothing of the transaction is in the file.
func TestApplyOfRefusedBatchFailsTheStore(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, store.Options{NoSync: true})
	require.NoError(t, s.Apply([]*store.Batch{withQueue(), adds(1, "one")}, []byte("a")))
	require.ErrorIs(t, s.Apply([]*store.Batch{adds(2, "two"), adds(1, "again")}, []byte("b")), store.ErrDuplicate)
	<-s.Failed()
	require.ErrorIs(t, s.Apply(nil, []byte("c")), store.ErrFailed)
	require.NoError(t, s.Close())
	require.ErrorIs(t, s.Apply(nil, []byte("c")), store.ErrClosed)
	s = open(t, dir, store.Options{NoSync: true})
	require.Len(t, storetest.Dump(t, s).Messages, 1)
	require.Equal(t, "a", positionOf(t, s))
	require.NoError(t, s.Close())
}

// TestApplyOfReusedNumber: after a takeover the numbers of finished messages are used
// again. One transaction applies the batches of several owners.
func TestApplyOfReusedNumber(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, store.Options{NoSync: true})
	ref := store.Ref{Queue: 1, Seq: 1}
	leased := &store.Batch{Queue: 1, State: []store.State{{Ref: ref, Attempts: 1}}}
	finished := &store.Batch{Queue: 1, Finish: []store.Ref{ref}}
	require.NoError(t, s.Apply([]*store.Batch{withQueue(), adds(1, "one"), leased}, []byte("a")))
	require.NoError(t, s.Apply([]*store.Batch{finished, adds(1, "other"), leased, finished}, []byte("b")))
	require.NoError(t, s.Close())
	s = open(t, dir, store.Options{NoSync: true}) // it would find a state that nobody has counted
	require.Empty(t, storetest.Dump(t, s).Messages)
	require.NoError(t, s.Close())
}

func TestPositionIsPartOfTheFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "fila.db")
	s := open(t, dir, store.Options{NoSync: true})
	require.NoError(t, s.Apply(nil, []byte("here")))
	copied := filepath.Join(dir, "copy.db")
	_, err := s.BackupTo(t.Context(), copied)
	require.NoError(t, err)
	require.NoError(t, s.Close())
	_, err = store.CompactFile(path, "", store.Options{})
	require.NoError(t, err)
	for _, name := range []string{path, copied} {
		f, err := store.OpenFile(name, store.Options{})
		require.NoError(t, err)
		require.Equal(t, "here", positionOf(t, f))
		require.NoError(t, f.Close())
	}
	edit(t, path, func(tx *bbolt.Tx) error { return tx.Bucket([]byte("meta")).Put([]byte("position"), []byte("junk")) })
	sum, err := store.CheckFile(path, store.Options{}, func(e *store.CorruptError) { require.Equal(t, "position", e.Part) })
	require.NoError(t, err)
	require.Equal(t, int64(1), sum.Problems)
	s = open(t, dir, store.Options{NoSync: true})
	_, err = s.Position()
	require.ErrorIs(t, err, store.ErrCorrupt)
	require.NoError(t, s.Close())
}
