package replog

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/store"
	"github.com/filaq/fila/store/storetest"
)

// The hard cases of a log, by name. Time passes in a bubble.

func TestLostPubAckIsConfirmedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeStream()
		a, b := newNode(t, f, t.TempDir(), "a"), newNode(t, f, t.TempDir(), "b")
		s := promote(t, a.Replica)
		a.e.next(mute)
		require.NoError(t, put(s, "k", "v"))
		require.Equal(t, 1, f.commits(t), "it is in the log once")
		require.NoError(t, put(s, "l", "v"))
		require.Equal(t, []string{"k", "l"}, keys(b.content(t)))
	})
}

func TestLostRecordIsSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeStream()
		a, b := newNode(t, f, t.TempDir(), "a"), newNode(t, f, t.TempDir(), "b")
		s := promote(t, a.Replica)
		a.e.next(lost, refused, lost, mute)
		require.NoError(t, put(s, "k", "v"))
		require.Equal(t, 1, f.commits(t))
		require.Equal(t, []string{"k"}, keys(b.content(t)))
	})
}

// An owner notices a new leader of the stream by sending, within a twentieth of a second, and not
// by questions that nobody answers.
func TestNewLeaderIsNoticedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeStream()
		a, b := newNode(t, f, t.TempDir(), "a"), newNode(t, f, t.TempDir(), "b")
		s := promote(t, a.Replica)
		a.e.mu.Lock()
		a.e.blind = true
		a.e.mu.Unlock()
		a.e.next(nobody, nobody, nobody, arrives)
		begin := time.Now()
		require.NoError(t, put(s, "k", "v"))
		require.Equal(t, 3*leaderRetry, time.Since(begin))
		// The answer is lost before: what was written is found, and not written twice.
		a.e.mu.Lock()
		a.e.blind = false
		a.e.mu.Unlock()
		a.e.next(lost, nobody, mute, nobody, arrives)
		require.NoError(t, put(s, "l", "v"))
		require.Equal(t, 2, f.commits(t))
		require.Equal(t, []string{"k", "l"}, keys(b.content(t)))
		require.NoError(t, s.Close())
	})
}

func TestPartOfALongCommitThenANewEpochIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeStream()
		a, b, c := newNode(t, f, t.TempDir(), "a"), newNode(t, f, t.TempDir(), "b"), newNode(t, f, t.TempDir(), "c")
		sa := promote(t, a.Replica)
		require.NoError(t, put(sa, "whole", noise(5000)))
		require.Equal(t, 6, f.commits(t))

		a.e.next(arrives, arrives, lost)
		part := make(chan error, 1)
		go func() { part <- put(sa, "part", noise(5000)) }()
		synctest.Wait()
		require.Equal(t, 8, f.commits(t))
		sb := promote(t, b.Replica)
		require.NoError(t, put(sb, "next", "v"))
		require.ErrorIs(t, <-part, store.ErrFenced)
		require.Equal(t, []string{"next", "whole"}, keys(contentOf(t, sb)))
		require.Equal(t, contentOf(t, sb), c.content(t))
		require.NoError(t, sa.Close())
		require.NoError(t, a.Await(t.Context(), f.tail()), "the old owner follows")
		require.Equal(t, contentOf(t, sb), a.content(t))
	})
}

// The log has the commit, and the file does not.
func TestCrashBetweenPubAckAndLocalCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeStream()
		dir, later := t.TempDir(), t.TempDir()
		a := newNode(t, f, dir, "a")
		s := promote(t, a.Replica)
		message := func(seq uint64) store.Message {
			return store.Message{Ref: store.Ref{Queue: 1, Seq: seq}, Payload: []byte("p")}
		}
		require.NoError(t, storetest.Do(s, &store.Batch{PutQueues: []store.QueueRecord{{ID: 1, Name: "q"}}, Add: []store.Message{message(1)}}))
		_, err := s.BackupTo(t.Context(), filepath.Join(later, "a.db"))
		require.NoError(t, err)
		require.NoError(t, storetest.Do(s, &store.Batch{Add: []store.Message{message(2)}, Finish: []store.Ref{{Queue: 1, Seq: 1}}}))
		want := contentOf(t, s)
		require.NoError(t, s.Close())

		again := newNode(t, f, later, "a")
		require.Equal(t, want, again.content(t))
		s = promote(t, again.Replica)
		require.Equal(t, want, contentOf(t, s))
		require.NoError(t, storetest.Do(s, &store.Batch{Add: []store.Message{message(3)}}))
		require.NoError(t, s.Close())
	})
}

func TestTwoCandidatesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeStream()
		nodes := []*node{newNode(t, f, t.TempDir(), "a"), newNode(t, f, t.TempDir(), "b")}
		type outcome struct {
			s   *Store
			err error
		}
		outcomes := make(chan outcome)
		for _, n := range nodes {
			go func() {
				s, err := n.Promote(t.Context(), Seen{})
				outcomes <- outcome{s, err}
			}()
		}
		one, two := <-outcomes, <-outcomes
		if one.err != nil {
			one, two = two, one
		}
		require.NoError(t, one.err)
		require.ErrorIs(t, two.err, ErrLost)
		require.NoError(t, put(one.s, "k", "v"))
		require.Equal(t, uint64(1), one.s.Epoch())
		_, err := one.s.r.Promote(t.Context(), one.s.r.Seen())
		require.ErrorIs(t, err, ErrLost, "it is the owner")
	})
}

// A promotion whose answer is lost appears in the log. One whose record is lost does
// not, and may be repeated.
func TestPromotionInDoubt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeStream()
		a := newNode(t, f, t.TempDir(), "a")
		seen := a.Seen()
		a.e.disconnect()
		start := time.Now()
		ctx := deadline(t)
		_, err := a.Promote(ctx, seen)
		require.ErrorContains(t, err, "not known")
		require.Equal(t, 30*time.Second, time.Since(start))
		a.e.connect()
		s, err := a.Promote(t.Context(), seen)
		require.NoError(t, err)
		require.NoError(t, s.Close())
	})
}

// A promotion continues until its outcome is known. While the log has no leader,
// records are lost. A node that gave up, or waited for a lost record, would leave the
// shard without an owner.
func TestPromotionIsTriedAgain(t *testing.T) {
	for name, fates := range map[string][]fate{
		"lost": {lost, lost}, "unanswered": {mute}, "lost and unanswered": {lost, mute}, "refused": {lost, refused},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFakeStream()
				a := newNode(t, f, t.TempDir(), "a")
				a.e.begin = fates
				s, err := a.Promote(deadline(t), a.Seen())
				if name == "refused" {
					require.ErrorIs(t, err, errRefused)
					return
				}
				require.NoError(t, err)
				require.NoError(t, put(s, "k", "v"))
				require.Equal(t, uint64(1), s.Epoch())
			})
		})
	}
}

// While a candidate tries, the owner may come back.
func TestPromotionEndsWhenTheOwnerIsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeStream()
		a, b := newNode(t, f, t.TempDir(), "a"), newNode(t, f, t.TempDir(), "b")
		s := promote(t, a.Replica)
		seen := caughtUp(t, b.Replica)
		b.e.begin = []fate{lost}
		ended := make(chan error, 1)
		go func() {
			_, err := b.Promote(deadline(t), seen)
			ended <- err
		}()
		require.NoError(t, put(s, "k", "v"))
		require.ErrorIs(t, <-ended, ErrLost)
		require.NoError(t, put(s, "k", "w"))
	})
}

// An idle owner writes beats even if the state of the stream is unknown.
func TestBeatsWaitForNothingElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newNode(t, newFakeStream(), t.TempDir(), "a")
		s := promote(t, a.Replica)
		a.e.mu.Lock()
		a.e.blind = true
		a.e.mu.Unlock()
		for range 200 {
			time.Sleep(100 * time.Millisecond)
			require.True(t, s.Owns(time.Second))
		}
		require.NoError(t, s.Close())
	})
}

func TestStaleOwnerIsFenced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeStream()
		a, b := newNode(t, f, t.TempDir(), "a"), newNode(t, f, t.TempDir(), "b")
		sa := promote(t, a.Replica)
		require.NoError(t, put(sa, "k", "v"))
		a.e.disconnect()
		sb := promote(t, b.Replica)
		doubt := make(chan error, 1)
		go func() { doubt <- put(sa, "stale", "v") }()
		time.Sleep(3 * time.Second)
		require.False(t, sa.Owns(2*time.Second))
		require.True(t, sb.Owns(2*time.Second))
		a.e.connect()
		err := <-doubt
		require.ErrorIs(t, err, store.ErrFenced)
		<-sa.Failed()
		require.False(t, sa.Owns(time.Hour))
		require.NoError(t, put(sb, "l", "v"))
		require.NoError(t, sa.Close())
		require.NoError(t, a.Await(t.Context(), f.tail()))
		require.Equal(t, "b", a.Seen().Owner)
		require.Equal(t, []string{"k", "l"}, keys(a.content(t)))
	})
}

// An idle owner learns of a new epoch by its beat.
func TestIdleStaleOwnerIsFenced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeStream()
		a, b := newNode(t, f, t.TempDir(), "a"), newNode(t, f, t.TempDir(), "b")
		sa := promote(t, a.Replica)
		promote(t, b.Replica)
		<-sa.Failed()
		require.ErrorIs(t, sa.Err(), store.ErrFenced)
	})
}

// The stream accepts a record of a former owner. No node confirms it, all skip it, and
// the new owner continues.
func TestStalePipelinedRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeStream()
		dir := t.TempDir()
		a, b, c := newNode(t, f, t.TempDir(), "a"), newNode(t, f, t.TempDir(), "b"), newNode(t, f, dir, "c")
		sa := promote(t, a.Replica)
		require.NoError(t, put(sa, "k", "v"))
		a.e.disconnect()
		n := f.tail() + 1 // of the record that it would write next
		sb := promote(t, b.Replica)
		stale := encode(head{kind: kindCommit, epoch: 1, n: n}, appendBatches(nil, []*store.Batch{{PutConfig: []store.Entry{{Key: "stale"}}}}))
		f.force(stale)
		require.NoError(t, put(sb, "l", "v"))
		a.e.connect()
		<-sa.Failed()
		require.ErrorIs(t, sa.Err(), store.ErrFenced)
		require.Equal(t, []string{"k", "l"}, keys(contentOf(t, sb)))
		require.Equal(t, []string{"k", "l"}, keys(c.content(t)))
		f.force(stale)
		require.NoError(t, c.Await(t.Context(), f.tail()))
		require.NoError(t, c.Close())
		require.Equal(t, []string{"k", "l"}, keys(newNode(t, f, dir, "c").content(t)), "a restart reads by the same rule")
	})
}

// A nearly full log reports it while there is space for records that finish messages. A
// full log confirms nothing, and no owner is fenced.
func TestLogFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeStream()
		f.most = 20_000
		a := newNode(t, f, t.TempDir(), "a")
		s := promote(t, a.Replica)
		require.NoError(t, storetest.Do(s, &store.Batch{PutQueues: []store.QueueRecord{{ID: 1, Name: "q"}}}))
		seq := uint64(0)
		for !s.Full() {
			seq++
			require.NoError(t, storetest.Do(s, &store.Batch{Add: []store.Message{{Ref: store.Ref{Queue: 1, Seq: seq}, Payload: make([]byte, 300)}}}))
		}
		require.Greater(t, seq, uint64(20))
		for range 5 {
			require.NoError(t, storetest.Do(s, &store.Batch{Finish: []store.Ref{{Queue: 1, Seq: seq}}}), "acks go on")
			seq--
		}

		waits := make(chan error, 1)
		go func() { waits <- put(s, "large", strings.Repeat("x", 3000)) }()
		time.Sleep(time.Minute)
		require.False(t, s.Owns(2*time.Second))
		require.NoError(t, s.Err(), "nobody is fenced")
		require.Empty(t, waits, "nothing is confirmed")
		require.NoError(t, a.e.purge(t.Context(), 21))
		require.NoError(t, <-waits)
		require.True(t, s.Owns(2*time.Second))
		time.Sleep(10 * time.Second) // it looks at times
		require.False(t, s.Full())
	})
}

func TestLogThatDoesNotFit(t *testing.T) {
	setup := func(t *testing.T) (*fakeStream, string) {
		f, dir := newFakeStream(), t.TempDir()
		a, err := tryNode(f, dir, "a")
		require.NoError(t, err)
		s := promote(t, a.Replica)
		require.NoError(t, put(s, "k", "v"))
		require.NoError(t, a.Close())
		return f, dir
	}
	for name, c := range map[string]struct {
		change func(f *fakeStream)
		want   error
	}{
		"as it was": {func(*fakeStream) {}, nil},
		"shorter":   {func(f *fakeStream) { f.records = f.records[:1] }, ErrShorter},
		"empty":     {func(f *fakeStream) { f.records = nil }, ErrShorter},
		"another":   {func(f *fakeStream) { f.records[1] = encode(head{kind: kindBeat, epoch: 7, n: 2}, nil) }, ErrShorter},
		"purged": {func(f *fakeStream) {
			f.first, f.records = 9, [][]byte{encode(head{kind: kindBeat, epoch: 1, n: 8}, nil)}
		}, ErrGap},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, dir := setup(t)
				c.change(f)
				n, err := tryNode(f, dir, "a")
				require.NoError(t, err, "its file may have the only copies")
				synctest.Wait()
				seen := n.Seen()
				require.ErrorIs(t, seen.Err, c.want)
				require.Equal(t, uint64(2), seen.Data.N)
				require.NoError(t, n.Close())
			})
		})
	}
}

// A new leader may not have applied all acked records yet. A replica goes on when the log is
// whole again.
func TestLogThatIsShorterForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, dir := newFakeStream(), t.TempDir()
		a, err := tryNode(f, dir, "a")
		require.NoError(t, err)
		s := promote(t, a.Replica)
		require.NoError(t, put(s, "k", "v"))
		want := a.content(t)
		require.NoError(t, a.Close())
		f.mu.Lock()
		whole := f.records
		f.records = whole[:1]
		f.mu.Unlock()
		time.AfterFunc(10*time.Second, func() {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.records = whole
		})
		a, err = tryNode(f, dir, "a")
		require.NoError(t, err)
		require.Equal(t, want, a.content(t))
		require.NoError(t, a.Close())
	})
}

// A follower stops at an unknown record.
func TestUnknownKindStopsAFollower(t *testing.T) {
	for name, record := range map[string][]byte{
		"kind":    encode(head{kind: 99, epoch: 1, n: 3}, nil),
		"section": encode(head{kind: kindCommit, epoch: 1, n: 3}, []byte{1, 99, 1, 0}),
		"version": func() []byte {
			r := encode(head{kind: kindBeat, epoch: 1, n: 3}, nil)
			r[2] += 2
			return r
		}(),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFakeStream()
				a, b := newNode(t, f, t.TempDir(), "a"), newNode(t, f, t.TempDir(), "b")
				s := promote(t, a.Replica)
				require.NoError(t, put(s, "k", "v"))
				caughtUp(t, b.Replica)
				f.force(record)
				f.force(encode(head{kind: kindCommit, epoch: 1, n: 4}, appendBatches(nil, []*store.Batch{{PutConfig: []store.Entry{{Key: "l"}}}})))
				ctx := deadline(t)
				require.Error(t, b.Await(ctx, f.tail()))
				require.ErrorIs(t, b.Seen().Err, ErrUnknown)
				require.Equal(t, uint64(2), b.Seen().Seq)
			})
		})
	}
}

func TestBrokenRecordStopsAFollower(t *testing.T) {
	for name, record := range map[string][]byte{
		"bytes":    []byte("hello"),
		"checksum": append(encode(head{kind: kindBeat, epoch: 1, n: 3}, nil), 'x'),
		"gap":      encode(head{kind: kindBeat, epoch: 1, n: 4}, nil),
		"cut":      encode(head{kind: kindCommit, epoch: 1, n: 3}, []byte{1, sectionFinish, 7}),
		"refused": encode(head{kind: kindCommit, epoch: 1, n: 3}, appendBatches(nil, []*store.Batch{
			{PutConfig: []store.Entry{{Key: "l"}}}, {Add: []store.Message{{Ref: store.Ref{Queue: 9, Seq: 9}}}},
		})),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFakeStream()
				dir := t.TempDir()
				a, b := newNode(t, f, t.TempDir(), "a"), newNode(t, f, dir, "b")
				s := promote(t, a.Replica)
				require.NoError(t, put(s, "k", "v"))
				caughtUp(t, b.Replica)
				f.force(record)
				time.Sleep(time.Minute)
				require.ErrorIs(t, b.Seen().Err, ErrBroken)
				require.NoError(t, b.Close())
				bolt, err := store.Open(filepath.Join(dir, "b.db"), store.Options{})
				require.NoError(t, err)
				require.Equal(t, []string{"k"}, keys(contentOf(t, bolt)))
				require.NoError(t, bolt.Close())
			})
		})
	}
}

// A lost file is rebuilt from the log.
func TestLocalFileLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeStream()
		dir := t.TempDir()
		a, b := newNode(t, f, t.TempDir(), "a"), newNode(t, f, dir, "b")
		s := promote(t, a.Replica)
		require.NoError(t, put(s, "k", noise(5000)))
		caughtUp(t, b.Replica)
		require.NoError(t, b.Close())
		require.NoError(t, os.Remove(filepath.Join(dir, "b.db")))
		require.NoError(t, put(s, "l", "v"))
		b = newNode(t, f, dir, "b")
		require.Equal(t, contentOf(t, s), b.content(t))
	})
}

func TestResign(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeStream()
		a, b := newNode(t, f, t.TempDir(), "a"), newNode(t, f, t.TempDir(), "b")
		sa := promote(t, a.Replica)
		require.NoError(t, put(sa, "k", "v"))
		require.NoError(t, sa.Resign(t.Context(), "b"))
		require.ErrorIs(t, put(sa, "l", "v"), store.ErrFenced)
		require.NoError(t, sa.Close())
		seen := caughtUp(t, b.Replica)
		require.Equal(t, []any{true, "b", "a"}, []any{seen.Ended, seen.To, seen.Owner})
		sb := promote(t, b.Replica)
		require.NoError(t, put(sb, "m", "v"))
		seen = caughtUp(t, a.Replica)
		require.Equal(t, []any{false, "", "b"}, []any{seen.Ended, seen.To, seen.Owner})
		require.Equal(t, []string{"k", "m"}, keys(a.content(t)))
	})
}

// The successor learns at once that the owner resigned, and the end of the log. A
// promotion with an older end would fail, and would be repeated half a second later.
func TestResignationIsSeenWhenItIsApplied(t *testing.T) {
	f := newFakeStream()
	a := newNode(t, f, t.TempDir(), "a")
	s := promote(t, a.Replica)
	require.NoError(t, put(s, "k", "v"))
	require.NoError(t, s.Resign(t.Context(), "b"))

	o := a.o
	o.Node, o.Path = "b", filepath.Join(t.TempDir(), "b.db")
	b := newReplica(o, &end{f: f})
	require.NoError(t, b.open(t.Context()))
	defer func() { require.NoError(t, b.closeFile()) }()
	var entries []entry
	for i, record := range f.records {
		entries = append(entries, entry{seq: uint64(i + 1), record: record})
	}
	for i := range entries {
		_, _, err := b.read(&entries[i])
		require.NoError(t, err)
		require.False(t, b.Seen().Ended, "nothing of it is applied")
	}
	require.Empty(t, b.Ended())

	require.NoError(t, b.closeFile())
	require.NoError(t, b.open(t.Context()))
	require.NoError(t, b.take(entries))
	seen := b.Seen()
	require.Equal(t, []any{true, "b", f.tail()}, []any{seen.Ended, seen.To, seen.Seq})
	require.Len(t, b.Ended(), 1)
}

// Between the last record of an owner and the promotion of the next one is one request,
// during which no node serves the shard.
func TestPromotionIsOneRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeStream()
		a, b := newNode(t, f, t.TempDir(), "a"), newNode(t, f, t.TempDir(), "b")
		s := promote(t, a.Replica)
		for i := range 100 {
			require.NoError(t, put(s, fmt.Sprint("k", i), "v"))
		}
		caughtUp(t, b.Replica)
		b.e.mu.Lock()
		b.e.asked = nil
		b.e.mu.Unlock()
		require.NoError(t, s.Resign(t.Context(), "b"))
		<-b.Ended()
		next, err := b.Promote(t.Context(), b.Seen())
		require.NoError(t, err)
		b.e.mu.Lock()
		asked := slices.Clone(b.e.asked)
		b.e.mu.Unlock()
		require.Equal(t, []string{"append"}, asked)
		require.Len(t, keys(contentOf(t, next)), 100)
	})
}

// A resignation in doubt ends the store as well.
func TestResignInDoubt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeStream()
		a := newNode(t, f, t.TempDir(), "a")
		s := promote(t, a.Replica)
		a.e.disconnect()
		require.Error(t, s.Resign(deadline(t), "b"))
		<-s.Failed()
		require.Error(t, put(s, "k", "v"))
		a.e.connect()
		require.NoError(t, s.Close())
	})
}

// An idle owner shows that it is alive, and followers know when.
func TestBeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeStream()
		a, b := newNode(t, f, t.TempDir(), "a"), newNode(t, f, t.TempDir(), "b")
		s := promote(t, a.Replica)
		for range 20 {
			time.Sleep(time.Second)
			require.True(t, s.Owns(500*time.Millisecond))
			require.LessOrEqual(t, time.Since(b.Seen().At), 500*time.Millisecond)
		}
		require.LessOrEqual(t, len(f.heads(t)), 43, "no more than two in a second")
		a.e.disconnect()
		time.Sleep(3 * time.Second)
		require.False(t, s.Owns(2*time.Second))
		require.Greater(t, time.Since(b.Seen().At), 2500*time.Millisecond)
		a.e.connect()
		time.Sleep(2 * time.Second)
		require.True(t, s.Owns(2*time.Second), "nobody has taken over")
		require.NoError(t, put(s, "k", "v"))
	})
}

// Close does not wait forever for an absent stream. Then the outcome of submitted
// batches is unknown.
func TestCloseWithoutTheStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeStream()
		a := newNode(t, f, t.TempDir(), "a")
		s := promote(t, a.Replica)
		a.e.disconnect()
		doubt := make(chan error, 1)
		go func() { doubt <- put(s, "k", "v") }()
		synctest.Wait()
		start := time.Now()
		require.NoError(t, s.Close())
		require.Equal(t, 5*time.Second, time.Since(start))
		err := <-doubt
		require.ErrorIs(t, err, store.ErrFailed)
		require.False(t, errors.Is(err, store.ErrFenced))
		a.e.connect()
	})
}
