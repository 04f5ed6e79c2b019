package replog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/store"
	"github.com/filaq/fila/store/storetest"
)

// withSnapshots are options with an object store.
func withSnapshots(t *testing.T, js jetstream.JetStream, dir, node string) Options {
	t.Helper()
	o := options(js, dir, node)
	obs, err := OpenSnapshots(t.Context(), js, o.Cluster, o.Incarnation, 1)
	require.NoError(t, err)
	o.Snapshots = obs
	return o
}

func mustSnapshot(t *testing.T, r *Replica) Snapshot {
	t.Helper()
	s, err := r.Snapshot(t.Context())
	require.NoError(t, err)
	return s
}

func seqs(t *testing.T, r *Replica) (out []uint64) {
	t.Helper()
	all, err := r.Snapshots(t.Context())
	require.NoError(t, err)
	for _, s := range all {
		out = append(out, s.Seq)
	}
	return out
}

// Two snapshots and the log behind the older one are kept. They are enough to start
// again, and a replica that was away for long skips the gap.
func TestSnapshotsAndTruncation(t *testing.T) {
	js := jetStream(t)
	dir := t.TempDir()
	a := openReplica(t, withSnapshots(t, js, dir, "a"))
	away := withSnapshots(t, js, dir, "b")
	b, err := Open(t.Context(), away)
	require.NoError(t, err)
	s := promote(t, a)
	write := func(n int) uint64 {
		for i := range n {
			require.NoError(t, put(s, fmt.Sprint("key", i), strings.Repeat("v", 500)))
		}
		seq := s.r.Seen().Seq
		return seq
	}
	write(10)
	caughtUp(t, b)
	require.NoError(t, b.Close())
	var made []uint64
	for range 4 {
		write(10)
		snap := mustSnapshot(t, a)
		require.Positive(t, snap.Bytes)
		made = append(made, snap.Seq)
	}
	require.Equal(t, []uint64{made[3], made[2]}, seqs(t, a))
	st, err := a.j.state(t.Context())
	require.NoError(t, err)
	require.Equal(t, made[2]+1, st.first)
	last := write(3)

	b = openReplica(t, away)
	require.NoError(t, b.Await(t.Context(), last))
	fresh := openReplica(t, withSnapshots(t, js, t.TempDir(), "c"))
	require.NoError(t, fresh.Await(t.Context(), last))
	for _, r := range []*Replica{b, fresh} {
		require.Equal(t, contentOf(t, s), contentOf(t, r.bolt))
	}
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	names = slices.DeleteFunc(names, func(name string) bool { return strings.HasSuffix(name, ".unsynced") }) // notes of both
	require.ElementsMatch(t, []string{"a.db", "b.db"}, names, "nothing is left")

	// The older one alone is good, too.
	require.NoError(t, away.Snapshots.Delete(t.Context(), a.mu.newest.name))
	older := openReplica(t, withSnapshots(t, js, t.TempDir(), "d"))
	require.NoError(t, older.Await(t.Context(), last))
	require.Equal(t, contentOf(t, s), contentOf(t, older.bolt))

	without := options(js, t.TempDir(), "e")
	_, err = Open(t.Context(), without)
	require.ErrorIs(t, err, ErrGap)
}

// slow is an object store that refuses a download with less than half of downloadTimeout left.
type slow struct{ jetstream.ObjectStore }

func (s slow) Get(ctx context.Context, name string, opts ...jetstream.GetObjectOpt) (jetstream.ObjectResult, error) {
	if until, ok := ctx.Deadline(); !ok || time.Until(until) < downloadTimeout/2 {
		return nil, context.DeadlineExceeded
	}
	return s.ObjectStore.Get(ctx, name, opts...)
}

// If the newest snapshot is damaged, the older one is used, for a new file and for a
// file with a gap, also while the replica runs.
func TestSpoiltSnapshot(t *testing.T) {
	js := jetStream(t)
	dir := t.TempDir()
	a := openReplica(t, withSnapshots(t, js, dir, "a"))
	away, corrupt := withSnapshots(t, js, dir, "b"), withSnapshots(t, js, dir, "c")
	away.Snapshots = slow{away.Snapshots}
	corrupt.Snapshots = away.Snapshots
	corrupt.Check = 10 * time.Millisecond
	b, err := Open(t.Context(), away)
	require.NoError(t, err)
	s := promote(t, a)
	require.NoError(t, put(s, "k", "v"))
	caughtUp(t, b)
	require.NoError(t, b.Close())
	var made []Snapshot
	for i := range 3 {
		require.NoError(t, put(s, fmt.Sprint("k", i), "v"))
		s.advance() // else two snapshots may go equally far, and are one
		made = append(made, mustSnapshot(t, a))
	}
	require.NoError(t, put(s, "last", "v"))
	last := s.r.Seen().Seq
	running := openReplica(t, corrupt)
	require.NoError(t, running.Await(t.Context(), last))

	spoil := func(made Snapshot) {
		info, err := away.Snapshots.GetInfo(t.Context(), made.name)
		require.NoError(t, err)
		_, err = js.Publish(t.Context(), "$O."+info.Bucket+".C."+info.NUID, []byte("more"))
		require.NoError(t, err)
	}
	spoil(made[2])
	b = openReplica(t, away)
	fresh := openReplica(t, withSnapshots(t, js, t.TempDir(), "d"))
	running.bolt.Fail(fmt.Errorf("%w: a page", store.ErrCorrupt))
	require.NoError(t, put(s, "later", "v"))
	last = s.r.Seen().Seq
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for _, r := range []*Replica{b, fresh, running} {
		require.NoError(t, r.Await(ctx, last))
		require.Equal(t, contentOf(t, s), contentOf(t, r.bolt))
	}
	require.FileExists(t, corrupt.Path+".corrupt")

	spoil(made[1])
	_, err = Open(t.Context(), withSnapshots(t, js, t.TempDir(), "e"))
	require.ErrorIs(t, err, jetstream.ErrDigestMismatch)
}

// stuck is an object store whose objects never send data.
type stuck struct {
	jetstream.ObjectStore
	begun  chan struct{}
	goesOn chan struct{}
}

type stuckObject struct {
	jetstream.ObjectResult
	goesOn chan struct{}
}

func (s stuck) Get(ctx context.Context, name string, opts ...jetstream.GetObjectOpt) (jetstream.ObjectResult, error) {
	object, err := s.ObjectStore.Get(ctx, name, opts...)
	close(s.begun)
	return stuckObject{object, s.goesOn}, err
}

func (o stuckObject) Read([]byte) (int, error) {
	<-o.goesOn
	return 0, context.Canceled
}

func TestADownloadEndsWithItsContext(t *testing.T) {
	js := jetStream(t)
	a := openReplica(t, withSnapshots(t, js, t.TempDir(), "a"))
	require.NoError(t, put(promote(t, a), "k", "v"))
	mustSnapshot(t, a)
	o := withSnapshots(t, js, t.TempDir(), "b")
	s := stuck{o.Snapshots, make(chan struct{}), make(chan struct{})}
	defer close(s.goesOn)
	o.Snapshots = s
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-s.begun; cancel() }()
	_, err := Open(ctx, o)
	require.ErrorIs(t, err, context.Canceled)
}

// A follower can make snapshots, too. Without new records it makes none.
func TestSnapshotOfAFollower(t *testing.T) {
	js := jetStream(t)
	dir := t.TempDir()
	a, b := openReplica(t, withSnapshots(t, js, dir, "a")), openReplica(t, withSnapshots(t, js, dir, "b"))
	s := promote(t, a)
	require.NoError(t, put(s, "k", "v"))
	seq := s.r.Seen().Seq
	require.NoError(t, b.Await(t.Context(), seq))
	one := mustSnapshot(t, b)
	require.Equal(t, one.name, mustSnapshot(t, b).name)
	require.Len(t, seqs(t, a), 1)
}

// An owner cuts the log by itself.
func TestOwnerCutsTheLog(t *testing.T) {
	js := jetStream(t)
	o := withSnapshots(t, js, t.TempDir(), "a")
	o.truncateBytes, o.Check = 50<<10, 10*time.Millisecond
	a := openReplica(t, o)
	s := promote(t, a)
	cut := func() bool {
		require.NoError(t, put(s, "k", noise(5<<10)))
		st, err := a.j.state(t.Context())
		require.NoError(t, err)
		return st.first > 1
	}
	require.Eventually(t, cut, 30*time.Second, time.Millisecond)
	require.NoError(t, s.Err())
	require.NotEmpty(t, seqs(t, a))
}

// An owner without commits writes beats, which are cut, too.
func TestIdleOwnerCutsTheLog(t *testing.T) {
	js := jetStream(t)
	o := withSnapshots(t, js, t.TempDir(), "a")
	o.truncateBytes, o.Check, o.Beat = 2<<10, 10*time.Millisecond, 2*time.Millisecond
	a := openReplica(t, o)
	s := promote(t, a)
	require.NoError(t, put(s, "k", "v"))
	for from := uint64(1); from < 100; {
		require.Eventually(t, func() bool {
			st, err := a.j.state(t.Context())
			require.NoError(t, err)
			if st.first <= from {
				return false
			}
			from = st.first
			return true
		}, 10*time.Second, time.Millisecond, "the log begins at %d", from)
	}
	require.NoError(t, s.Err())
}

func TestSnapshotIsDue(t *testing.T) {
	const mb = 1 << 20
	for name, c := range map[string]struct {
		st     state
		newest uint64
		live   int64
		want   bool
	}{
		"empty":                     {state{first: 1}, 0, 0, false},
		"short":                     {state{first: 1, last: 100, bytes: 200 * mb}, 0, 0, false},
		"long":                      {state{first: 1, last: 100, bytes: 300 * mb}, 0, 0, true},
		"much lives":                {state{first: 1, last: 100, bytes: 300 * mb}, 0, 400 * mb, false},
		"longer than what lives":    {state{first: 1, last: 100, bytes: 500 * mb}, 0, 400 * mb, true},
		"most of it before the new": {state{first: 1, last: 100, bytes: 300 * mb}, 60, 0, false},
		"all of it before the new":  {state{first: 1, last: 100, bytes: 9000 * mb}, 100, 0, false},
		"a third of a small stream": {state{first: 1, last: 100, bytes: 40 * mb, most: 90 * mb}, 0, 400 * mb, true},
		"less than a third":         {state{first: 1, last: 100, bytes: 29 * mb, most: 90 * mb}, 0, 0, false},
		"large ones at the end":     {state{first: 1, last: 1000, bytes: 61 * mb, most: 90 * mb}, 990, 0, true},
		"nothing behind the newest": {state{first: 1, last: 1000, bytes: 89 * mb, most: 90 * mb}, 1000, 0, false},
		"cut before":                {state{first: 901, last: 1000, bytes: 300 * mb}, 950, 0, false},
		"purged of everything":      {state{first: 11, last: 10}, 5, 0, false},
	} {
		require.Equal(t, c.want, due(c.st, c.newest, c.live, truncateBytes), name)
	}
}

// A corrupt file is moved aside and rebuilt.
func TestCorruptFileIsMadeAgain(t *testing.T) {
	js := jetStream(t)
	dir := t.TempDir()
	a := openReplica(t, withSnapshots(t, js, dir, "a"))
	o := withSnapshots(t, js, dir, "b")
	b, err := Open(t.Context(), o)
	require.NoError(t, err)
	s := promote(t, a)
	require.NoError(t, put(s, "k", "v"))
	mustSnapshot(t, a)
	require.NoError(t, put(s, "l", "v"))
	caughtUp(t, b)
	require.NoError(t, b.Close())
	f, err := os.OpenFile(o.Path, os.O_RDWR, 0)
	require.NoError(t, err)
	info, err := f.Stat()
	require.NoError(t, err)
	junk := make([]byte, info.Size()-2*4096) // all but the meta pages
	_, err = f.WriteAt(junk, 2*4096)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	b = openReplica(t, o)
	caughtUp(t, b)
	require.Equal(t, contentOf(t, s), contentOf(t, b.bolt))
	require.FileExists(t, o.Path+".corrupt")
}

func TestSnapshotsOfAnotherCluster(t *testing.T) {
	js := jetStream(t)
	_, err := OpenSnapshots(t.Context(), js, "test", "inc", 1)
	require.NoError(t, err)
	_, err = OpenSnapshots(t.Context(), js, "test", "other", 1)
	require.ErrorIs(t, err, ErrForeign)
	_, err = OpenSnapshots(t.Context(), js, "test", "inc", 3)
	require.ErrorIs(t, err, ErrReplicas)
}

func TestSnapshotsThatExpire(t *testing.T) {
	for name, change := range map[string]func(*jetstream.StreamConfig){
		"age":    func(c *jetstream.StreamConfig) { c.MaxAge = time.Hour },
		"number": func(c *jetstream.StreamConfig) { c.MaxMsgs = 10 },
		"old":    func(c *jetstream.StreamConfig) { c.Discard = jetstream.DiscardOld },
		"TTL":    func(c *jetstream.StreamConfig) { c.AllowMsgTTL = true },
	} {
		t.Run(name, func(t *testing.T) {
			js := jetStream(t)
			_, err := OpenSnapshots(t.Context(), js, "test", "inc", 1)
			require.NoError(t, err)
			s, err := js.Stream(t.Context(), "OBJ_"+snapshotsOf("test"))
			require.NoError(t, err)
			c := s.CachedInfo().Config
			change(&c)
			_, err = js.UpdateStream(t.Context(), c)
			require.NoError(t, err)
			_, err = OpenSnapshots(t.Context(), js, "test", "inc", 1)
			require.ErrorIs(t, err, ErrForeign)
		})
	}
}

// made is a JetStream in which another node creates everything first, while the servers do not
// know it yet.
type made struct{ jetstream.JetStream }

func (made) ObjectStore(context.Context, string) (jetstream.ObjectStore, error) {
	return nil, jetstream.ErrBucketNotFound
}

func (made) CreateObjectStore(context.Context, jetstream.ObjectStoreConfig) (jetstream.ObjectStore, error) {
	return nil, jetstream.ErrBucketExists
}

func (made) Stream(context.Context, string) (jetstream.Stream, error) {
	return nil, jetstream.ErrStreamNotFound
}

func (made) CreateStream(context.Context, jetstream.StreamConfig) (jetstream.Stream, error) {
	return nil, jetstream.ErrStreamNameAlreadyInUse
}

// Nodes that start together create the same stream and bucket. A node waits for those
// that another node created.
func TestWhatAnotherNodeMakesIsWaitedFor(t *testing.T) {
	js := made{jetStream(t)}
	_, err := OpenSnapshots(t.Context(), js, "test", "inc", 1)
	require.Error(t, err)
	require.True(t, Busy(err), err)
	o := options(js, t.TempDir(), "a")
	_, err = Open(t.Context(), o)
	require.Error(t, err)
	require.True(t, Busy(err), err)
	require.NotErrorIs(t, err, ErrGone)
	o.Create = false
	_, err = Open(t.Context(), o)
	require.ErrorIs(t, err, ErrGone)
	require.False(t, Busy(err), err)
}

// A snapshot may be larger than the data that a server accepts before it has written
// it. It is sent in parts with a wait for each, and no object remains of that.
func TestALargeSnapshotIsPaced(t *testing.T) {
	const most = 2 * paceBytes
	js := jetStream(t, func(o *server.Options) { o.StreamMaxBufferedSize = most })
	o := withSnapshots(t, js, t.TempDir(), "a")
	text := noise(4 * most)
	path := filepath.Join(t.TempDir(), "large")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	for _, seq := range []uint64{7, 8} {
		made, err := o.upload(t.Context(), path, o.slot(0), Mark{Seq: seq})
		require.NoError(t, err)
		require.EqualValues(t, len(text), made.Bytes)
	}
	have, err := o.list(t.Context())
	require.NoError(t, err)
	require.Len(t, have, 1)
	bucket, err := js.Stream(t.Context(), "OBJ_FILA_test_SNAP")
	require.NoError(t, err)
	waited, err := bucket.GetLastMsgForSubject(t.Context(), "$O.FILA_test_SNAP.C.pace.3")
	require.NoError(t, err)
	require.Empty(t, waited.Data)
	objects, err := o.Snapshots.List(t.Context())
	require.NoError(t, err)
	require.Len(t, objects, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute) // without a deadline the client library has one of five seconds
	defer cancel()
	got, err := o.Snapshots.GetBytes(ctx, o.slot(0))
	require.NoError(t, err)
	require.True(t, text == string(got))

	refused := errors.New("refused")
	_, err = io.Copy(io.Discard, &paced{r: strings.NewReader(text), pace: func() error { return refused }, left: paceBytes})
	require.ErrorIs(t, err, refused)
}

func TestSeed(t *testing.T) {
	js := jetStream(t)
	dir := t.TempDir()
	single := filepath.Join(dir, "single.db")
	bolt, err := store.Open(single, store.Options{})
	require.NoError(t, err)
	require.NoError(t, storetest.Do(bolt, &store.Batch{
		PutQueues: []store.QueueRecord{{ID: 1, Name: "q"}}, Add: []store.Message{{Ref: store.Ref{Queue: 1, Seq: 5}, Payload: []byte("p")}},
		PutConfig: []store.Entry{{Key: "k", Value: "v"}},
	}))
	want := contentOf(t, bolt)
	require.NoError(t, bolt.Close())

	o := withSnapshots(t, js, dir, "a")
	o.Create = false
	_, err = Open(t.Context(), o)
	require.ErrorIs(t, err, ErrGone)
	require.NoFileExists(t, o.Path, "it does not begin with nothing")
	require.NoError(t, Seed(t.Context(), o, single))
	require.ErrorIs(t, Seed(t.Context(), o, single), ErrForeign, "the stream is there")
	without := options(js, t.TempDir(), "c")
	without.Create = false
	_, err = Open(t.Context(), without)
	require.ErrorIs(t, err, ErrGap, "nobody begins without the seed")
	a, b := openReplica(t, o), openReplica(t, withSnapshots(t, js, dir, "b"))
	s := promote(t, a)
	require.Equal(t, want, contentOf(t, s))
	require.NoError(t, storetest.Do(s, &store.Batch{Finish: []store.Ref{{Queue: 1, Seq: 5}}}))
	require.NoError(t, s.Close())
	caughtUp(t, b)
	require.Empty(t, contentOf(t, b.bolt).Messages)
	require.NoError(t, b.Close())

	other := options(js, t.TempDir(), "a")
	other.Cluster, other.Incarnation = "other", "new"
	other.Snapshots, err = OpenSnapshots(context.Background(), js, "other", "new", 1)
	require.NoError(t, err)
	require.NoError(t, Seed(t.Context(), other, filepath.Join(dir, "b.db")))
	r := openReplica(t, other)
	require.Equal(t, []string{"k"}, keys(contentOf(t, promote(t, r))))
}

// If an owner finds its file corrupt, the file is moved aside when the store is closed, and
// rebuilt.
func TestCorruptFileOfAnOwnerIsMadeAgain(t *testing.T) {
	js := jetStream(t)
	o := withSnapshots(t, js, t.TempDir(), "a")
	a := openReplica(t, o)
	_, owns := a.LogState()
	require.False(t, owns)
	s := promote(t, a)
	require.NoError(t, put(s, "k", "v"))
	made := mustSnapshot(t, a)
	require.NoError(t, put(s, "l", "v"))
	st, owns := a.LogState()
	require.True(t, owns)
	require.Equal(t, made.At, st.SnapshotAt)
	require.Positive(t, st.Bytes)
	before := contentOf(t, s)
	s.Discard(store.ErrCorrupt)
	require.NoError(t, s.Close())
	require.Eventually(t, func() bool { return a.Seen().Seq > 0 }, time.Minute, 10*time.Millisecond)
	require.FileExists(t, o.Path+".corrupt")
	require.Equal(t, before, contentOf(t, promote(t, a)))
}

// Streams of a former incarnation are deleted, and no others.
func TestDiscard(t *testing.T) {
	js := jetStream(t)
	o := withSnapshots(t, js, t.TempDir(), "a")
	r := openReplica(t, o)
	s := promote(t, r)
	require.NoError(t, put(s, "k", "v"))
	seq := s.r.Seen().Seq
	_, err := r.Snapshot(t.Context())
	require.NoError(t, err)
	require.NoError(t, r.Close())

	f, err := store.OpenFile(o.Path, store.Options{})
	require.NoError(t, err)
	at, ok, err := CopyOf(f)
	require.NoError(t, errors.Join(err, f.Close()))
	require.True(t, ok)
	require.NotZero(t, at.Chain)
	require.Equal(t, Copy{o.Incarnation, o.Shard, Mark{1, seq, seq, at.Chain}}, at)
	for _, behind := range []Mark{{Epoch: 0, N: 9, Seq: 99}, {Epoch: 1, N: seq - 1, Seq: 99}, {Epoch: 1, N: seq, Seq: seq - 1}} {
		require.Positive(t, at.Compare(behind))
		require.Negative(t, behind.Compare(at.Mark))
	}

	shards := o.Shard + 2 // the last one has no log
	require.ErrorIs(t, Discard(t.Context(), js, o.Cluster, shards, "another"), ErrForeign)
	require.NoError(t, openReplica(t, o).Close(), "nothing was deleted")
	require.NoError(t, Discard(t.Context(), js, o.Cluster, shards, "another", o.Incarnation))
	require.NoError(t, Discard(t.Context(), js, o.Cluster, shards, "another", o.Incarnation), "there is nothing left")
	_, err = js.Stream(t.Context(), streamOf(o.Cluster, o.Shard))
	require.ErrorIs(t, err, jetstream.ErrStreamNotFound)
	_, err = js.ObjectStore(t.Context(), snapshotsOf(o.Cluster))
	require.ErrorIs(t, err, jetstream.ErrBucketNotFound)
}

// A log with large records behind many small ones is cut, although almost only beats
// are written.
func TestLogFullOfLargeRecords(t *testing.T) {
	js := jetStream(t)
	o := withSnapshots(t, js, t.TempDir(), "a")
	o.MaxBytes, o.Check, o.Beat = 1<<20, 10*time.Millisecond, 20*time.Millisecond
	a := openReplica(t, o)
	s := promote(t, a)
	for i := range 2000 {
		require.NoError(t, put(s, "k", fmt.Sprint(i)))
	}
	mustSnapshot(t, a)
	for range 7 {
		require.NoError(t, put(s, "k", noise(100<<10)))
	}
	require.Eventually(t, func() bool {
		st, err := a.j.state(t.Context())
		require.NoError(t, err)
		return st.bytes < o.MaxBytes/3
	}, time.Minute, 10*time.Millisecond)
	require.False(t, s.Full())
}

// NATS servers that have lost records may keep others in their place for good, since they compare
// numbers alone when they catch up. A copy that reads such records continues from a snapshot of the
// owner.
func TestAReplicaOfTheStreamHasOtherRecords(t *testing.T) {
	for name, record := range map[string]func(h head) []byte{
		"a beat":              func(h head) []byte { h.kind = kindBeat; return encode(h, nil) },
		"of an earlier epoch": func(h head) []byte { h.kind, h.epoch = kindBeat, 0; return encode(h, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, kept := newFakeStream(), &objects{all: map[string]object{}}
				open := func(name string) *node {
					n := nodeOf(f, t.TempDir(), name, "boot")
					n.o.Snapshots = kept
					require.NoError(t, n.start(context.Background()))
					t.Cleanup(func() { require.NoError(t, n.Close()) })
					return n
				}
				a, b := open("a"), open("b")
				s := promote(t, a.Replica)
				require.NoError(t, put(s, "first", "v"))
				seen := caughtUp(t, b.Replica)
				b.e.mu.Lock()
				b.e.other = map[uint64][]byte{seen.Seq + 1: record(head{epoch: seen.Epoch, n: seen.N + 1, chained: true, before: seen.Chain})}
				b.e.mu.Unlock()
				require.NoError(t, put(s, "second", "v"))
				require.NoError(t, put(s, "third", "v"))
				time.Sleep(time.Minute)
				seen = b.Seen()
				require.ErrorIs(t, seen.Err, ErrBroken)
				require.Positive(t, seen.Unread)
				s.SnapshotBehind(seen.Unread)
				time.Sleep(time.Minute)
				require.NoError(t, b.Seen().Err)
				require.Zero(t, b.Seen().Unread)
				require.NoError(t, put(s, "fourth", "v"))
				require.Equal(t, contentOf(t, a.bolt), b.content(t))
				require.Len(t, kept.all, 1)
				require.NoError(t, s.Close())
			})
		})
	}
}
