package replog

import (
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/store"
)

// forget makes the stream forget its records behind a sequence, as servers do that come back
// with old disks.
func (f *fakeStream) forget(behind uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.records = f.records[:behind+1-f.first]
}

// An owner whose log lacks what was acked to it stops, keeps its file, and says what it has.
func TestOwnerOfAShorterLogStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeStream()
		a := newNode(t, f, t.TempDir(), "a")
		s := promote(t, a.Replica)
		require.NoError(t, put(s, "k", "v"))
		require.NoError(t, put(s, "l", "w"))
		want := contentOf(t, s)
		newest := a.Seen().Data
		f.forget(2)
		<-s.Failed() // its next heartbeat is refused
		require.ErrorIs(t, s.Err(), ErrShorter)
		require.NoError(t, s.Close())
		time.Sleep(time.Second)
		require.ErrorIs(t, a.Seen().Err, ErrShorter)
		require.Equal(t, newest, a.Seen().Data)
		c, err := a.Repair(t.Context(), Mark{}, nil)
		require.Error(t, err, "there are no snapshots")
		require.Zero(t, c)
		require.NoError(t, a.Close())
		b := newNode(t, f, filepath.Dir(a.o.Path), "a")
		synctest.Wait()
		require.ErrorIs(t, b.Seen().Err, ErrShorter)
		require.Equal(t, newest, b.Seen().Data, "also after a restart")
		require.Equal(t, want, contentOf(t, b.bolt))
	})
}

// A log may lose records that do not count. A copy that has read them lacks nothing, but must not
// wait behind the end of the log: nobody could be promoted there.
func TestALogLosesRecordsThatDoNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeStream()
		a, b := newNode(t, f, t.TempDir(), "a"), newNode(t, f, t.TempDir(), "b")
		s := promote(t, a.Replica)
		require.NoError(t, put(s, "k", "v"))
		require.NoError(t, s.Close())
		s = promote(t, b.Replica)
		require.NoError(t, s.Close())
		end := f.tail()
		f.force(encode(head{kind: kindBeat, epoch: 1, n: 3}, nil)) // of the former owner
		caughtUp(t, a.Replica)
		require.Equal(t, end+1, a.Seen().Seq)
		f.forget(end)
		time.Sleep(2 * a.o.Check)
		require.NoError(t, a.Seen().Err)
		require.Equal(t, end, a.Seen().Seq)
		s, err := a.Promote(t.Context(), a.Seen())
		require.NoError(t, err)
		require.NoError(t, s.Close())
	})
}

// A stream that is shorter for a moment ends nothing.
func TestOwnerOfALogThatIsShorterForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeStream()
		a := newNode(t, f, t.TempDir(), "a")
		s := promote(t, a.Replica)
		require.NoError(t, put(s, "k", "v"))
		f.mu.Lock()
		whole := f.records
		f.mu.Unlock()
		f.forget(1)
		time.Sleep(4 * time.Second)
		f.mu.Lock()
		f.records = whole
		f.mu.Unlock()
		time.Sleep(time.Second)
		require.NoError(t, s.Err())
		require.NoError(t, put(s, "l", "w"))
		require.NoError(t, s.Close())
	})
}

// An owner that could not read its log for long waits as long for one that is shorter.
func TestOwnerOfALogThatIsShorterAfterAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeStream()
		a := newNode(t, f, t.TempDir(), "a")
		s := promote(t, a.Replica)
		require.NoError(t, put(s, "k", "v"))
		a.e.disconnect()
		time.Sleep(time.Minute)
		f.mu.Lock()
		whole := f.records
		f.mu.Unlock()
		f.forget(1)
		a.e.connect()
		time.Sleep(4 * time.Second)
		f.mu.Lock()
		f.records = whole
		f.mu.Unlock()
		time.Sleep(time.Second)
		require.NoError(t, s.Err())
		require.NoError(t, put(s, "l", "w"))
		require.NoError(t, s.Close())
	})
}

// Records without data that a log lacks are no loss.
func TestLogThatLacksHeartbeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, dir := newFakeStream(), t.TempDir()
		a, b := newNode(t, f, t.TempDir(), "a"), newNode(t, f, dir, "b")
		s := promote(t, a.Replica)
		require.NoError(t, put(s, "k", "v"))
		for range writtenEvery + 2 {
			time.Sleep(time.Second)
		}
		require.NoError(t, s.Close())
		require.NoError(t, a.Close())
		require.NoError(t, b.Close())
		f.forget(3)
		b = newNode(t, f, dir, "b")
		s = promote(t, b.Replica)
		require.Equal(t, uint64(2), s.Epoch())
		require.NoError(t, s.Close())
	})
}

// A copy whose last record has the same number as one of the log, and is another one, does not
// follow.
func TestAnotherRecordOfTheSameNumber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeStream()
		a, b := newNode(t, f, t.TempDir(), "a"), newNode(t, f, t.TempDir(), "b")
		s := promote(t, a.Replica)
		require.NoError(t, put(s, "k", "v"))
		require.NoError(t, s.Close())
		b.content(t)
		b.e.disconnect()
		short := f.tail()
		s = promote(t, a.Replica)
		require.NoError(t, put(s, "l", "of a"))
		require.NoError(t, s.Close())
		dir := filepath.Dir(a.o.Path)
		require.NoError(t, a.Close())
		f.forget(short)
		b.e.connect()
		s = promote(t, b.Replica)
		require.NoError(t, put(s, "l", "of b"))
		again := newNode(t, f, dir, "a")
		synctest.Wait()
		require.ErrorIs(t, again.Seen().Err, ErrShorter)
		require.NoError(t, s.Close())
	})
}

// repairRig is a log in JetStream with three replicas; the log has lost records that two of them have.
type repairRig struct {
	js      jetstream.JetStream
	dirs    map[string]string
	verdict atomic.Pointer[Verdict]
	looks   atomic.Int64 // at the verdict
}

func (g *repairRig) open(t *testing.T, node string) *Replica {
	t.Helper()
	o := options(g.js, g.dirs[node], node)
	obs, err := OpenSnapshots(t.Context(), g.js, o.Cluster, o.Incarnation, 1)
	require.NoError(t, err)
	o.Snapshots, o.Check, o.Settle, o.AckTimeout = obs, 20*time.Millisecond, 20*time.Millisecond, 200*time.Millisecond
	o.Verdict = func() (Verdict, bool) {
		g.looks.Add(1)
		if v := g.verdict.Load(); v != nil {
			return *v, true
		}
		return Verdict{}, false
	}
	return openReplica(t, o)
}

// decide stores a verdict.
func (g *repairRig) decide(v Verdict) error {
	g.verdict.Store(&v)
	return nil
}

// lose deletes the newest records of the stream.
func (g *repairRig) lose(t *testing.T, from uint64) {
	t.Helper()
	// A stream cannot be cut at its end, so it is made again with the records that remain.
	s, err := g.js.Stream(t.Context(), "FILA_test_LOG_3")
	require.NoError(t, err)
	var kept [][]byte
	for seq := uint64(1); seq < from; seq++ {
		m, err := s.GetMsg(t.Context(), seq)
		require.NoError(t, err)
		kept = append(kept, m.Data)
	}
	config := s.CachedInfo().Config
	require.NoError(t, g.js.DeleteStream(t.Context(), config.Name))
	_, err = g.js.CreateStream(t.Context(), config)
	require.NoError(t, err)
	for _, record := range kept {
		_, err := g.js.Publish(t.Context(), config.Subjects[0], record)
		require.NoError(t, err)
	}
}

// setUp returns a rig in which a has most, b less, both more than the log, and c as much as the
// log.
func setUp(t *testing.T) (g *repairRig, most []string) {
	g = &repairRig{js: jetStream(t), dirs: map[string]string{"a": t.TempDir(), "b": t.TempDir(), "c": t.TempDir()}}
	a, b, c := g.open(t, "a"), g.open(t, "b"), g.open(t, "c")
	s := promote(t, a)
	write := func(from, to int) {
		for i := from; i < to; i++ {
			require.NoError(t, put(s, fmt.Sprintf("k%02d", i), "v"))
		}
	}
	write(0, 10)
	caughtUp(t, c)
	require.NoError(t, c.Close())
	cut := a.Seen().Seq + 1
	write(10, 20)
	caughtUp(t, b)
	require.NoError(t, b.Close())
	write(20, 30)
	most = keys(contentOf(t, s))
	require.NoError(t, s.Close())
	require.NoError(t, a.Close())
	g.lose(t, cut)
	return g, most
}

func lacking(t *testing.T, all ...*Replica) {
	t.Helper()
	for _, r := range all {
		require.Eventually(t, func() bool { return errors.Is(r.Seen().Err, ErrShorter) }, 10*time.Second, time.Millisecond)
	}
}

// stay checks that replicas do not follow, after each of them has looked at the verdict.
func (g *repairRig) stay(t *testing.T, all ...*Replica) {
	t.Helper()
	looks := g.looks.Load()
	require.Eventually(t, func() bool { return g.looks.Load() >= looks+4*int64(len(all)) }, 10*time.Second, time.Millisecond)
	lacking(t, all...)
}

// has waits until a replica follows and has applied everything of the owner.
func has(t *testing.T, r *Replica, want []string) {
	t.Helper()
	st, err := r.j.state(t.Context())
	require.NoError(t, err)
	require.Eventually(t, func() bool { seen := r.Seen(); return seen.Err == nil && seen.Seq >= st.last }, 10*time.Second, time.Millisecond)
	require.Equal(t, want, keys(contentOf(t, r.mu.file)))
}

// A repair brings the records of the most advanced copy to all nodes: to one whose copy ends
// where the log ends, to one whose copy has a part of them, and to a new one.
func TestRepair(t *testing.T) {
	g, most := setUp(t)
	c := g.open(t, "c")
	caughtUp(t, c)
	a, b := g.open(t, "a"), g.open(t, "b")
	lacking(t, a, b)
	_, err := c.Repair(t.Context(), Mark{}, nil)
	require.ErrorIs(t, err, ErrNotLost)
	refused := errors.New("the verdict was not stored")
	_, err = a.Repair(t.Context(), Mark{}, func(Verdict) error { return refused })
	require.ErrorIs(t, err, refused)
	lacking(t, a, b)
	mark, err := a.Repair(t.Context(), Mark{}, func(v Verdict) error {
		require.False(t, v.GivenUp)
		return g.decide(v)
	})
	require.NoError(t, err)
	require.Equal(t, uint64(2), mark.Epoch)
	for _, r := range []*Replica{a, b, c} {
		has(t, r, most)
	}
	left, err := filepath.Glob(filepath.Join(g.dirs["b"], "*.lost-*"))
	require.NoError(t, err)
	require.Len(t, left, 1, "the copy is put aside")
	s := promote(t, c)
	require.Equal(t, uint64(3), s.Epoch())
	require.NoError(t, put(s, "later", "v"))
	most = keys(contentOf(t, s))
	has(t, a, most)
	has(t, b, most)
	g.dirs["new"] = t.TempDir()
	has(t, g.open(t, "new"), most)
	_, err = a.Repair(t.Context(), Mark{}, nil)
	require.ErrorIs(t, err, ErrNotLost)

	// The log is cut behind the repair in time, and its snapshot goes.
	for i := range 3 {
		require.NoError(t, put(s, fmt.Sprintf("snapshot %d", i), "v"))
		s.advance()
		_, err := a.Snapshot(t.Context())
		require.NoError(t, err)
		caughtUp(t, a)
	}
	all, err := a.o.Snapshots.List(t.Context())
	require.NoError(t, err)
	require.Len(t, all, 2, "no snapshot of a repair")
	require.NoError(t, s.Close())
}

// A repair that is interrupted leaves the snapshot of an earlier one alone, whose record the log may
// have again when its servers come back.
func TestRepairKeepsTheSnapshotOfAnother(t *testing.T) {
	g, most := setUp(t)
	a := g.open(t, "a")
	lacking(t, a)
	mark, err := a.Repair(t.Context(), Mark{}, g.decide)
	require.NoError(t, err)
	record, err := a.j.get(t.Context(), mark.Seq)
	require.NoError(t, err)
	g.lose(t, mark.Seq)
	require.Eventually(t, func() bool { return lacks(a.Seen().Err) }, 10*time.Second, time.Millisecond)
	died := errors.New("died")
	_, err = a.Repair(t.Context(), Mark{}, func(Verdict) error { return died })
	require.ErrorIs(t, err, died)
	_, err = a.j.append(t.Context(), record, mark.Seq-1)
	require.NoError(t, err)
	has(t, a, most)
	has(t, g.open(t, "c"), most)
}

// A repair that ended between two steps is repeated.
func TestRepairIsRepeated(t *testing.T) {
	for _, node := range []string{"the same copy", "another copy"} {
		t.Run(node, func(t *testing.T) {
			g, most := setUp(t)
			a, b := g.open(t, "a"), g.open(t, "b")
			lacking(t, a, b)
			died := errors.New("died")
			_, err := a.Repair(t.Context(), Mark{}, func(v Verdict) error {
				g.verdict.Store(&v) // as if the node died between the verdict and the record
				return died
			})
			require.ErrorIs(t, err, died)
			g.stay(t, a, b)
			by, want, newest := a, most, a.Seen().Data
			newest.Epoch++ // of an owner that is gone
			if node == "another copy" {
				require.NoError(t, a.Close())
				by, want = b, most[:20]
			}
			mark, err := by.Repair(t.Context(), newest, func(v Verdict) error {
				require.True(t, v.Covers(newest))
				return g.decide(v)
			})
			require.NoError(t, err)
			require.Equal(t, newest.Epoch+1, mark.Epoch, "later than every commit that is given up")
			has(t, b, want)
			has(t, g.open(t, "c"), want)
		})
	}
}

// An accepted loss lets the nodes without the records go on; the others put their copies aside.
func TestGivenUp(t *testing.T) {
	g, most := setUp(t)
	a, b, c := g.open(t, "a"), g.open(t, "b"), g.open(t, "c")
	lacking(t, a, b)
	g.verdict.Store(&Verdict{Copy: a.Seen().Data, GivenUp: true})
	g.stay(t, a, b) // until there is an owner
	s := promote(t, c)
	require.NoError(t, put(s, "later", "v"))
	want := keys(contentOf(t, s))
	require.Equal(t, append(append([]string{}, most[:10]...), "later"), want)
	has(t, a, want)
	has(t, b, want)
	require.NoError(t, s.Close())
}

// Copies that the log goes on without cannot be put into it any more.
func TestRepairOfABranch(t *testing.T) {
	g, _ := setUp(t)
	s := promote(t, g.open(t, "c"))
	require.NoError(t, put(s, "later", "v"))
	a := g.open(t, "a")
	lacking(t, a)
	_, err := a.Repair(t.Context(), Mark{}, nil)
	require.ErrorIs(t, err, ErrBranched)
	require.NoError(t, s.Close())
}

// A stream that was deleted is made again from the most advanced copy.
func TestRepairOfADeletedStream(t *testing.T) {
	g, most := setUp(t)
	require.NoError(t, g.js.DeleteStream(t.Context(), "FILA_test_LOG_3"))
	a, b := g.open(t, "a"), g.open(t, "b")
	for _, r := range []*Replica{a, b} {
		require.Eventually(t, func() bool { return errors.Is(r.Seen().Err, ErrGone) || errors.Is(r.Seen().Err, ErrShorter) }, 10*time.Second, time.Millisecond)
	}
	_, err := a.Repair(t.Context(), Mark{}, g.decide)
	require.NoError(t, err)
	has(t, a, most)
	has(t, b, most)
	has(t, g.open(t, "c"), most)
}

// A log that has lost a whole epoch does not get another history with the same number: the copies
// that were given up are put aside, and a verdict about them says nothing about later records.
func TestGivenUpEpoch(t *testing.T) {
	g, _ := setUp(t)
	c := g.open(t, "c")
	caughtUp(t, c)
	g.verdict.Store(&Verdict{Copy: Mark{Epoch: 2, N: 50, Seq: 80}, GivenUp: true})
	s := promote(t, c)
	require.Equal(t, uint64(3), s.Epoch())
	require.NoError(t, s.Close())
}

// A repair from a copy that lacks the newest epoch begins a later one, so that nobody waits for
// what was given up.
func TestRepairGivesUpAnEpoch(t *testing.T) {
	g, most := setUp(t)
	a := g.open(t, "a")
	lacking(t, a)
	newest := Mark{Epoch: 2, N: 50, Seq: 80}
	mark, err := a.Repair(t.Context(), newest, func(v Verdict) error {
		require.Equal(t, newest, v.Copy)
		return g.decide(v)
	})
	require.NoError(t, err)
	require.Equal(t, uint64(3), mark.Epoch)
	has(t, a, most)
	require.Equal(t, mark, a.Seen().Data, "the newest commit is in the log, with its number there")
	c := g.open(t, "c")
	has(t, c, most)
	require.Equal(t, mark, c.Seen().Data)
}

// A request to repair a log that lacks nothing any more ends.
func TestRepairOfALogThatComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeStream()
		a := newNode(t, f, t.TempDir(), "a")
		a.change(func(s *Seen) { s.Err = ErrShorter })
		done := make(chan error, 1)
		go func() {
			_, err := a.Repair(t.Context(), Mark{}, nil)
			done <- err
		}()
		synctest.Wait()
		a.change(func(s *Seen) { s.Err = nil })
		require.ErrorIs(t, <-done, ErrNotLost)
	})
}

// A snapshot from before the loss that has records which the log lacks is no beginning for a copy
// that is made again: after a repair it goes, and after an accepted loss it is passed over.
func TestSnapshotBeyondTheLog(t *testing.T) {
	for _, givenUp := range []bool{false, true} {
		t.Run(fmt.Sprintf("given up %v", givenUp), func(t *testing.T) {
			g := &repairRig{js: jetStream(t), dirs: map[string]string{"a": t.TempDir(), "b": t.TempDir(), "c": t.TempDir(), "d": t.TempDir()}}
			a, b, c := g.open(t, "a"), g.open(t, "b"), g.open(t, "c")
			s := promote(t, a)
			require.NoError(t, put(s, "k", "v"))
			caughtUp(t, c)
			require.NoError(t, c.Close())
			cut := a.Seen().Seq + 1
			for i := range 20 {
				require.NoError(t, put(s, fmt.Sprintf("k%02d", i), "v"))
			}
			s.advance()
			made := mustSnapshot(t, a)
			require.NoError(t, put(s, "last", "v"))
			want := keys(contentOf(t, s))
			caughtUp(t, b)
			require.NoError(t, b.Close())
			require.NoError(t, s.Close())
			require.NoError(t, a.Close())
			g.lose(t, cut)
			a, b, c = g.open(t, "a"), g.open(t, "b"), g.open(t, "c")
			lacking(t, a, b)
			caughtUp(t, c)
			if givenUp {
				g.verdict.Store(&Verdict{Copy: a.Seen().Data, GivenUp: true})
				want = []string{"k"}
			} else {
				_, err := a.Repair(t.Context(), Mark{}, g.decide)
				require.NoError(t, err)
				has(t, c, want)
			}
			s = promote(t, c)
			for _, r := range []*Replica{a, b, g.open(t, "d")} {
				has(t, r, want)
			}
			require.NoError(t, put(s, "later", "v"))
			s.advance()
			if !givenUp {
				require.Less(t, mustSnapshot(t, c).Seq, made.Seq)
			}
			require.NoError(t, s.Close())
		})
	}
}

// An owner that was silent does not write into a log that has lost what was acked to it and is as
// long again with records of another owner.
func TestOwnerOfALogThatIsAsLongAgain(t *testing.T) {
	for name, during := range map[string]func(*end){
		"idle":        func(*end) {},
		"no leader":   func(e *end) { e.f.leaderless(true) },
		"unreachable": func(e *end) { e.disconnect() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFakeStream()
				a := nodeOf(f, t.TempDir(), "a", "boot")
				a.o.Beat = time.Hour
				require.NoError(t, a.start(t.Context()))
				b := newNode(t, f, t.TempDir(), "b")
				s := promote(t, a.Replica)
				b.content(t)
				require.NoError(t, put(s, "k", "v"))
				during(a.e)
				done := make(chan error, 1)
				if name != "idle" {
					go func() { done <- put(s, "l", "v") }()
				}
				time.Sleep(4 * time.Second)
				f.forget(1)
				f.force(encode(head{kind: kindEpoch, epoch: 2, n: 1}, beginning{owner: "b"}.append(nil, false)))
				f.leaderless(false)
				switch name {
				case "idle":
					done <- put(s, "l", "v")
				case "unreachable":
					a.e.connect()
				}
				require.ErrorIs(t, <-done, store.ErrFenced)
				require.Equal(t, uint64(2), f.tail(), "nothing was written behind the record of another owner")
				require.NoError(t, s.Close())
				require.NoError(t, a.Close())
			})
		})
	}
}

// A follower notices that the log is another one, although it is not shorter.
func TestFollowerOfALogThatIsAnotherOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeStream()
		b := newNode(t, f, t.TempDir(), "b")
		owner := func(name string) []byte { return beginning{owner: name}.append(nil, false) }
		old := [][]byte{encode(head{kind: kindEpoch, epoch: 1, n: 1}, owner("a"))}
		for n := range uint64(5) {
			old = append(old, encode(head{kind: kindBeat, epoch: 1, n: n + 2}, nil))
		}
		f.force(old[0])
		f.force(encode(head{kind: kindEpoch, epoch: 2, n: 1}, owner("c")))
		f.force(encode(head{kind: kindCommit, epoch: 2, n: 2}, appendBatches(nil, []*store.Batch{{PutConfig: []store.Entry{{Key: "k"}}}})))
		require.Equal(t, []string{"k"}, keys(b.content(t)))
		f.become(1, old)
		time.Sleep(6 * time.Second)
		require.ErrorIs(t, b.Seen().Err, ErrShorter)
	})
}

// An owner that begins an epoch after another record than the log has is not followed, unless nothing was
// written before.
func TestEpochAfterAnotherHistory(t *testing.T) {
	epoch := func(number, before uint64, after place) []byte {
		h := head{kind: kindEpoch, epoch: number, n: 1, chained: true, before: before}
		return encode(h, beginning{owner: "a", after: after}.append(nil, true))
	}
	commit := appendBatches(nil, []*store.Batch{{PutConfig: []store.Entry{{Key: "k"}}}})
	for name, writes := range map[string]bool{"empty": false, "written": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFakeStream()
				b := newNode(t, f, t.TempDir(), "b")
				first, after := epoch(1, 0, place{}), place{1, 1}
				f.force(first)
				if writes {
					after.n = 2
					f.force(encode(head{kind: kindCommit, epoch: 1, n: 2, chained: true, before: sumOf(first)}, commit))
				}
				f.force(epoch(2, 12345, after))
				time.Sleep(6 * time.Second)
				if writes {
					require.ErrorIs(t, b.Seen().Err, ErrBroken)
					return
				}
				require.NoError(t, b.Seen().Err)
				s := promote(t, b.Replica)
				require.Equal(t, uint64(3), s.Epoch())
				require.NoError(t, put(s, "k", "v"))
				require.NoError(t, s.Close())
			})
		})
	}
}

// A node whose file is not open again after it was an owner is not promoted, and neither is one
// that has not noticed that the log ends with another record.
func TestPromotionOverAnotherLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeStream()
		a := newNode(t, f, t.TempDir(), "a")
		s := promote(t, a.Replica)
		a.e.disconnect()
		require.NoError(t, s.Close())
		f.become(1, nil)
		a.e.connect()
		_, err := a.Promote(t.Context(), a.Seen())
		require.ErrorIs(t, err, ErrLost)

		f = newFakeStream()
		b, c := newNode(t, f, t.TempDir(), "b"), newNode(t, f, t.TempDir(), "c")
		s = promote(t, b.Replica)
		caughtUp(t, c.Replica)
		require.NoError(t, s.Close())
		time.Sleep(4 * time.Second) // its next look at the stream comes after five
		seen := c.Seen()
		f.become(1, nil)
		for range seen.Seq {
			f.force(encode(head{kind: kindEpoch, epoch: 1, n: 1}, beginning{owner: "d"}.append(nil, false)))
		}
		_, err = c.Promote(t.Context(), seen)
		require.ErrorIs(t, err, ErrLost)
		require.Equal(t, seen.Seq, f.tail())
	})
}
