package store_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"
	"pgregory.net/rapid"

	"github.com/filaq/fila/store"
	"github.com/filaq/fila/store/storefile"
	"github.com/filaq/fila/store/storetest"
)

func snapshot(t require.TestingT, file string) store.Snapshot {
	f, err := store.OpenFile(file, store.Options{})
	require.NoError(t, err)
	snap, err := f.Snapshot()
	require.NoError(t, errors.Join(err, f.Close()))
	return snap
}

func names(t require.TestingT, dir string) []string {
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

func TestCompactFile(t *testing.T) {
	dir, file := variety(t, store.Options{NoSync: true}.Small())
	require.NoError(t, os.Chmod(file, 0o640))
	want, before := dump(t, file), snapshot(t, file)
	fi, err := os.Stat(file)
	require.NoError(t, err)

	r, err := store.CompactFile(file, filepath.Join(dir, "before.db"), store.Options{})
	require.NoError(t, err)
	require.Equal(t, fi.Size(), r.Before)
	require.EqualValues(t, len(want.Messages), r.Messages)
	require.Positive(t, r.Dropped)
	after, err := os.Stat(file)
	require.NoError(t, err)
	require.Equal(t, after.Size(), r.After)
	require.Equal(t, os.FileMode(0o640), after.Mode().Perm())
	require.Equal(t, []string{"before.db", "fila.db"}, names(t, dir))

	sum, found := check(t, file)
	require.Empty(t, found)
	require.Zero(t, sum.Finished)
	require.LessOrEqual(t, r.After, sum.Bytes+512*sum.Messages+64<<10, "live bytes and little more")
	require.Equal(t, want, dump(t, file))
	require.Equal(t, want, dump(t, filepath.Join(dir, "before.db")), "the old file is kept")
	require.Equal(t, before, snapshot(t, file), "the secret, the time of creation and the ids of queues, too")

	_, err = store.CompactFile(file, filepath.Join(dir, "before.db"), store.Options{})
	require.ErrorIs(t, err, os.ErrExist, "what is kept is not overwritten")
	require.Equal(t, want, dump(t, file))
	again, err := store.CompactFile(file, "", store.Options{})
	require.NoError(t, err)
	require.LessOrEqual(t, again.After, again.Before)
	require.Equal(t, []string{"before.db", "fila.db"}, names(t, dir))
}

// compact is a step of TestHistories: a rewrite preserves the content that the history left.
func (m *machine) compact(rt *rapid.T) {
	file := m.real.Path()
	require.NoError(rt, m.real.Close())
	m.down(rt)
	_, err := store.CompactFile(file, "", m.opts)
	require.NoError(rt, err)
	_, found := check(rt, file)
	require.Empty(rt, found)
	m.real = open(m.t, filepath.Dir(file), m.opts)
	m.compare(rt)
}

// backup is a step of TestHistories: it continues with a backup.
func (m *machine) backup(rt *rapid.T) {
	dir := m.newDir()
	file := filepath.Join(dir, "fila.db")
	m.commit(rt)
	_, err := m.real.BackupTo(context.Background(), file)
	require.NoError(rt, errors.Join(err, m.real.Close()))
	_, found := check(rt, file)
	require.Empty(rt, found)
	m.down(rt)
	m.real = open(m.t, dir, m.opts)
	m.compare(rt)
}

func TestCompactFileRefusesDamage(t *testing.T) {
	file := goldenFile(t, store.Options{NoSync: true})
	dir := filepath.Dir(file)
	image, err := os.ReadFile(file)
	require.NoError(t, err)
	at := bytes.Index(image, storetest.Payload(1, 2))
	image[at] ^= 1
	poke(t, file, at, image[at])
	_, err = store.CompactFile(file, "", store.Options{})
	require.ErrorIs(t, err, store.ErrCorrupt)
	now, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, image, now)
	require.Equal(t, []string{"fila.db"}, names(t, dir))

	_, err = store.CompactFile(filepath.Join(dir, "none.db"), "", store.Options{})
	require.ErrorIs(t, err, os.ErrNotExist)
	s := open(t, t.TempDir(), store.Options{})
	_, err = store.CompactFile(s.Path(), "", store.Options{Timeout: time.Millisecond})
	require.ErrorIs(t, err, store.ErrLocked)
	require.NoError(t, s.Close())
}

// steps are the points between which a rewrite may end.
var steps = []string{"begun", "added", "written", "synced", "checked", "kept", "renamed"}

// big makes a store of several batches of a rewrite.
func big(t *testing.T) string {
	var more []store.Batch
	for i := range uint64(3) {
		b := store.Batch{}
		for seq := 10 + 3000*i; seq < 3010+3000*i; seq++ {
			b.Add = append(b.Add, store.Message{Ref: store.Ref{Queue: 1, Seq: seq}, Payload: storetest.Payload(1, seq)})
			if seq%3 == 0 {
				b.Finish = append(b.Finish, store.Ref{Queue: 1, Seq: seq})
			}
		}
		more = append(more, b)
	}
	return goldenFile(t, store.Options{NoSync: true}, more...)
}

// TestCompactFileStops fails, or kills the process, at each step. The store is complete, and
// the next compaction succeeds.
func TestCompactFileStops(t *testing.T) {
	boom := errors.New("boom")
	at := func(step string, stop func() error) store.Options {
		return store.Options{}.WithStep(func(name string) error {
			if name == step {
				return stop()
			}
			return nil
		})
	}
	if file := os.Getenv("STORE_TEST_COMPACT"); file != "" {
		_, err := store.CompactFile(file, file+".kept", at(os.Getenv("STORE_TEST_STEP"), func() error {
			self, err := os.FindProcess(os.Getpid())
			require.NoError(t, err)
			return self.Kill()
		}))
		require.NoError(t, err)
		return
	}
	fails := func(file, step string) {
		_, err := store.CompactFile(file, file+".kept", at(step, func() error { return boom }))
		require.ErrorIs(t, err, boom, step)
		require.NotContains(t, names(t, filepath.Dir(file)), "fila.db.compact", step)
	}
	killed := func(file, step string) {
		cmd := exec.Command(os.Args[0], "-test.run=^TestCompactFileStops$", "-test.timeout=60s")
		cmd.Env = append(os.Environ(), "STORE_TEST_COMPACT="+file, "STORE_TEST_STEP="+step)
		out, err := cmd.CombinedOutput()
		var exit *exec.ExitError
		require.ErrorAs(t, err, &exit, "%s", out)
		require.Equal(t, -1, exit.ExitCode(), "%s: it was not killed: %s", step, out)
	}
	for _, step := range steps {
		for _, stop := range []func(file, step string){fails, killed} {
			file := big(t)
			dir, want := filepath.Dir(file), dump(t, file)
			stop(file, step)
			_, found := check(t, file)
			require.Empty(t, found, step)
			require.Equal(t, want, dump(t, file), step)
			require.Equal(t, step == "kept" || step == "renamed", slices.Contains(names(t, dir), "fila.db.kept"), step)
			_, err := store.CompactFile(file, "", store.Options{})
			require.NoError(t, err, step)
			require.NotContains(t, names(t, dir), "fila.db.compact", step)
			require.Equal(t, want, dump(t, file), step)
		}
	}
}

// TestOpenWaitsForCompaction opens a store during a compaction. It gets the new file,
// not the old one that lost its name.
func TestOpenWaitsForCompaction(t *testing.T) {
	file := big(t)
	opened := make(chan *store.Bolt, 1)
	o := store.Options{}.WithStep(func(name string) error {
		if name == "begun" {
			started := make(chan struct{})
			go func() {
				close(started)
				s, err := store.Open(file, store.Options{Timeout: time.Minute, NoSync: true})
				if err != nil {
					s = nil
				}
				opened <- s
			}()
			<-started
		}
		return nil
	})
	_, err := store.CompactFile(file, "", o)
	require.NoError(t, err)
	s := <-opened
	require.NotNil(t, s)
	require.NoError(t, storetest.Do(s, &store.Batch{PutConfig: []store.Entry{{Key: "after", Value: "yes"}}}))
	require.NoError(t, s.Close())
	require.Contains(t, snapshot(t, file).Config, store.Entry{Key: "after", Value: "yes"})
}

func TestBuild(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "new.db")
	require.NoError(t, os.WriteFile(file+".import", []byte("left by a crash"), 0o600))
	b, err := store.Build(file, nil, store.Options{})
	require.NoError(t, err)
	_, err = store.Build(file, nil, store.Options{Timeout: time.Millisecond})
	require.ErrorIs(t, err, store.ErrLocked, "another import is under way")
	require.NoError(t, b.Add(&store.Batch{
		PutQueues: []store.QueueRecord{{ID: 1, Name: "q"}},
		Add:       []store.Message{{Ref: store.Ref{Queue: 1, Seq: 5}, Payload: []byte("x")}},
	}))
	err = b.Add(&store.Batch{Add: []store.Message{{Ref: store.Ref{Queue: 1, Seq: 5}}}})
	require.ErrorIs(t, err, store.ErrDuplicate)
	require.NoFileExists(t, file)
	require.NoError(t, b.Finish())
	require.NoError(t, b.Discard())
	require.Equal(t, []string{"new.db"}, names(t, dir))
	require.Equal(t, []uint64{5}, seqs(dump(t, file)))
	_, err = store.Build(file, nil, store.Options{})
	require.ErrorIs(t, err, os.ErrExist)

	other := filepath.Join(dir, "other.db")
	b, err = store.Build(other, make([]byte, 32), store.Options{})
	require.NoError(t, err)
	require.NoError(t, b.Discard())
	require.Equal(t, []string{"new.db"}, names(t, dir))
	b, err = store.Build(other, make([]byte, 32), store.Options{})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(other, []byte("another process was faster"), 0o600))
	require.ErrorIs(t, b.Finish(), os.ErrExist)
	require.Equal(t, []string{"new.db", "other.db"}, names(t, dir))
	text, err := os.ReadFile(other)
	require.NoError(t, err)
	require.Equal(t, "another process was faster", string(text))
}

// TestFileMessages visits all messages in the order of the file, and those beside a
// broken one.
func TestFileMessages(t *testing.T) {
	_, file := variety(t, store.Options{NoSync: true}.Small())
	want := dump(t, file)
	read := func(broken func(*store.CorruptError)) (*storetest.Content, error) {
		f, err := store.OpenFile(file, store.Options{})
		require.NoError(t, err)
		c := &storetest.Content{}
		err = f.Messages(broken, func(m *store.Message, st *store.State, history [][]byte) error {
			c.Messages = append(c.Messages, storetest.Keep(m, st, history))
			return nil
		})
		require.NoError(t, f.Close())
		return c.Normalise(), err
	}
	got, err := read(nil)
	require.NoError(t, err)
	require.ElementsMatch(t, want.Messages, got.Messages)

	var broken []string
	tell := func(e *store.CorruptError) { broken = append(broken, e.Part) }

	t.Log("A message counts for more than its history.")
	var past []byte
	history := func(change func(v []byte) []byte) {
		edit(t, file, func(tx *bbolt.Tx) error {
			b := tx.Bucket([]byte("history"))
			k, v := b.Cursor().First()
			return b.Put(bytes.Clone(k), change(bytes.Clone(v)))
		})
	}
	history(func(v []byte) []byte { past = v; return v[:len(v)-1] })
	_, err = read(nil)
	require.ErrorIs(t, err, store.ErrCorrupt)
	got, err = read(tell)
	require.NoError(t, err)
	require.Len(t, broken, 1)
	require.Contains(t, broken[0], "history")
	require.Equal(t, len(want.Messages), len(got.Messages))
	without := 0
	for i := range want.Messages {
		w, g := want.Messages[i], got.Messages[slices.IndexFunc(got.Messages, func(m storetest.Stored) bool { return m.Ref == want.Messages[i].Ref })]
		if len(w.History) > len(g.History) {
			without++
			w.History = nil
		}
		require.Equal(t, w, g)
	}
	require.Equal(t, 1, without)
	history(func([]byte) []byte { return past })

	broken = nil
	edit(t, file, func(tx *bbolt.Tx) error {
		// One payload is broken, one state, and one bitmap.
		states, bitmaps := tx.Bucket([]byte("state")), tx.Bucket([]byte("bitmaps"))
		k, v := states.Cursor().First()
		b, bv := bitmaps.Cursor().Last()
		return errors.Join(states.Put(k, v[:len(v)-1]), bitmaps.Put(b, bv[:len(bv)-1]))
	})
	_, err = read(nil)
	require.ErrorIs(t, err, store.ErrCorrupt)
	got, err = read(tell)
	require.NoError(t, err)
	require.Len(t, broken, 2)
	require.Less(t, len(got.Messages), len(want.Messages)-1)
	require.Subset(t, want.Messages, got.Messages)

	stop := errors.New("stop")
	f, err := store.OpenFile(file, store.Options{})
	require.NoError(t, err)
	require.ErrorIs(t, f.Messages(func(*store.CorruptError) {}, func(*store.Message, *store.State, [][]byte) error { return stop }), stop)
	require.NoError(t, f.Close())
}

func TestFileStats(t *testing.T) {
	file := goldenFile(t, store.Options{NoSync: true}, store.Batch{
		State: []store.State{{Ref: store.Ref{Queue: 1, Seq: 1}, Attempts: 3, ReadyAt: 1_900_000_000_000_000_000}},
		Add:   []store.Message{{Ref: store.Ref{Queue: 1, Seq: 9}, EnqueuedAt: 1_600_000_000_000_000_000, Payload: []byte("12345")}},
	})
	f, err := store.OpenFile(file, store.Options{Now: func() int64 { return 1_800_000_000_000_000_000 }})
	require.NoError(t, err)
	st, err := f.Stats()
	require.NoError(t, errors.Join(err, f.Close()))
	require.EqualValues(t, 4, st.Messages)
	require.EqualValues(t, 3, st.Commits)
	require.EqualValues(t, 2, st.States)
	require.EqualValues(t, 1, st.DedupeIDs)
	require.EqualValues(t, 4096, st.PageBytes)
	require.Less(t, st.UsedPages, st.Pages)
	require.GreaterOrEqual(t, st.StoredMessages, st.Messages)
	require.Len(t, st.Queues, 2)
	orders := st.Queues[0]
	size := int64(5 + 4 + len(storetest.Payload(1, 1)) + 4 + len(storetest.Payload(1, 2)))
	require.Equal(t, storefile.QueueStats{
		ID: 1, Name: "orders", Messages: 3, Bytes: size, Leased: 1, Delayed: 1, Retried: 1,
		OldestAt: 1_600_000_000_000_000_000, Consumers: 1, DedupeIDs: 1,
	}, orders)
	require.EqualValues(t, 1, st.Queues[1].Messages)
}
