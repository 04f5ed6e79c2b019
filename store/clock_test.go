package store_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"github.com/filaq/fila/store"
	"github.com/filaq/fila/store/storefile"
	"github.com/filaq/fila/store/storetest"
)

const (
	noon = int64(1_700_000_000_000_000_000)
	hour = int64(time.Hour)
	day  = 24 * hour
)

// clockedStore is a store whose clock a test sets.
type clockedStore struct {
	t    *testing.T
	now  int64
	opts store.Options
	*store.Bolt
}

// newClockedStore returns a store with messages of noon, whose times end at one: with a
// delay, with a not-before time, waiting for a retry, and leased.
func newClockedStore(t *testing.T) *clockedStore {
	t.Helper()
	c := &clockedStore{t: t, now: noon}
	c.opts = store.Options{NoSync: true, Now: func() int64 { return c.now }}
	c.Bolt = open(t, t.TempDir(), c.opts)
	t.Cleanup(func() { require.NoError(t, c.Bolt.Close()) })
	c.do(store.Batch{PutQueues: []store.QueueRecord{{ID: 1, Name: "q"}}})
	c.add(1)
	return c
}

func (c *clockedStore) do(b store.Batch) {
	c.t.Helper()
	require.NoError(c.t, storetest.Do(c, &b))
}

// add adds messages from, from+1, from+2 and from+3 as they are in a new one.
func (c *clockedStore) add(from uint64) {
	c.t.Helper()
	m := func(i uint64) store.Message {
		return store.Message{Ref: store.Ref{Queue: 1, Seq: from + i}, EnqueuedAt: c.now, ExpiresAt: c.now + 9*hour, Class: store.Class{Key: "k"}}
	}
	delayed, notBefore := m(0), m(1)
	delayed.NotBefore, delayed.Delayed, notBefore.NotBefore = c.now+hour, true, c.now+hour
	retried := store.State{Ref: m(2).Ref, Attempts: 1, ReadyAt: c.now + hour}
	leased := store.State{Ref: m(3).Ref, Lease: store.Lease{ID: 1, Consumer: "c", Deadline: c.now + hour}}
	c.do(store.Batch{Add: []store.Message{delayed, notBefore, m(2), m(3)}, State: []store.State{retried, leased}})
}

// reopen closes the store at one time and opens it at another.
func (c *clockedStore) reopen(stop, start int64) {
	c.t.Helper()
	c.now = stop
	require.NoError(c.t, c.Bolt.Close())
	c.now = start
	c.Bolt = open(c.t, filepath.Dir(c.Path()), c.opts)
}

// crash opens a copy of the present file at start.
func (c *clockedStore) crash(start int64) {
	c.t.Helper()
	dir := c.t.TempDir()
	copyFile(c.t, c.Path(), filepath.Join(dir, "fila.db"))
	require.NoError(c.t, c.Bolt.Close())
	c.now = start
	c.Bolt = open(c.t, dir, c.opts)
}

// remain checks how long messages from, from+1, from+2 and from+3 still have to wait.
func (c *clockedStore) remain(from uint64, want, notBefore int64) {
	c.t.Helper()
	content := storetest.Dump(c.t, c)
	at := content.Messages[from-1:]
	require.Equal(c.t, from, at[0].Seq)
	require.Equal(c.t, time.Duration(want), time.Duration(at[0].NotBefore-c.now), "delay")
	require.Equal(c.t, time.Duration(notBefore), time.Duration(at[1].NotBefore-c.now), "not before")
	require.Equal(c.t, time.Duration(want), time.Duration(at[2].State.ReadyAt-c.now), "retry")
	require.Equal(c.t, time.Duration(want), time.Duration(at[3].State.Lease.Deadline-c.now), "lease")
	require.Zero(c.t, at[3].State.ReadyAt)
	for _, m := range at[:4] {
		require.Equal(c.t, 9*hour, m.ExpiresAt-m.EnqueuedAt, "neither moves")
	}
}

// TestClockSetBack: delays, retries and leases keep their remaining time; not-before
// times do not change.
func TestClockSetBack(t *testing.T) {
	const passed = hour / 4
	t.Run("AfterStop", func(t *testing.T) {
		c := newClockedStore(t)
		c.reopen(noon+passed, noon+passed-day)
		c.remain(1, hour-passed, hour-passed+day)
		c.add(5)
		c.remain(5, hour, hour)

		t.Log("Nothing moves again, with or without a commit in between.")
		c.reopen(c.now, c.now+passed)
		c.remain(1, hour-2*passed, hour-2*passed+day)
		c.remain(5, hour-passed, hour-passed)
		c.crash(c.now)
		c.remain(1, hour-2*passed, hour-2*passed+day)

		t.Log("Once more.")
		c.reopen(c.now, c.now-day)
		c.remain(1, hour-2*passed, hour-2*passed+2*day)
		c.remain(5, hour-passed, hour-passed+day)
	})
	t.Run("AfterCrash", func(t *testing.T) {
		c := newClockedStore(t)
		c.now += passed // which nobody has written down
		c.crash(noon - day)
		c.remain(1, hour, hour+day)
		t.Log("It crashes before it has written anything, and after.")
		c.crash(noon - day)
		c.remain(1, hour, hour+day)
		c.do(store.Batch{PutConfig: []store.Entry{{Key: "a", Value: "b"}}})
		c.crash(noon - day + passed)
		c.remain(1, hour-passed, hour+day-passed)
	})
	t.Run("AfterIdling", func(t *testing.T) {
		c := newClockedStore(t)
		c.reopen(noon, noon-day)
		c.reopen(c.now+passed, c.now+2*passed)
		c.remain(1, hour-2*passed, hour-2*passed+day)
	})
	t.Run("AfterIdlingToTheTimeOfTheFile", func(t *testing.T) {
		c := newClockedStore(t)
		c.reopen(noon, noon-passed)
		c.reopen(noon, noon-day)
		c.remain(1, hour-passed, hour+day)
	})
	t.Run("ThenRight", func(t *testing.T) {
		c := newClockedStore(t)
		c.reopen(noon, noon-day)
		c.add(5)
		c.reopen(c.now+passed, noon+passed)
		c.remain(1, hour-passed, hour-passed)
		c.remain(5, hour-passed, hour-passed-day)
	})
	t.Run("NotAtAll", func(t *testing.T) {
		for _, step := range []int64{-int64(time.Second), -1, 0, 1, passed, day} {
			c := newClockedStore(t)
			c.reopen(noon, noon+step)
			c.remain(1, hour-step, hour-step)
		}
	})
	t.Run("Moved", func(t *testing.T) {
		c := newClockedStore(t)
		c.reopen(noon, noon-day)
		c.do(store.Batch{ // a state that replaces one, and a message that is carried to another queue
			State:     []store.State{{Ref: store.Ref{Queue: 1, Seq: 3}, Attempts: 2, ReadyAt: c.now + 2*hour}},
			PutQueues: []store.QueueRecord{{ID: 2, Name: "q.dlq"}},
			Move:      []store.Move{{From: store.Ref{Queue: 1, Seq: 4}, To: store.Message{Ref: store.Ref{Queue: 2, Seq: 1}, NotBefore: c.now + hour, Delayed: true}}},
		})
		c.reopen(c.now, c.now-day)
		content := storetest.Dump(t, c)
		require.Equal(t, 2*hour, content.Messages[2].State.ReadyAt-c.now)
		require.Equal(t, store.QueueID(2), content.Messages[3].Queue)
		require.Equal(t, hour, content.Messages[3].NotBefore-c.now)
	})
}

// TestClockSetBackUnderTools: a reader of the file sees the same times, and a
// compaction preserves them.
func TestClockSetBackUnderTools(t *testing.T) {
	c := newClockedStore(t)
	c.reopen(noon, noon-day)
	c.add(5)
	file := c.Path()
	require.NoError(t, c.Bolt.Close())
	delays := func() (all []int64) {
		f, err := store.OpenFile(file, c.opts)
		require.NoError(t, err)
		defer func() { require.NoError(t, f.Close()) }()
		require.NoError(t, f.Messages(nil, func(m *store.Message, st *store.State, _ [][]byte) error {
			switch {
			case st != nil:
				all = append(all, st.ReadyAt+st.Lease.Deadline-c.now)
			default:
				all = append(all, m.NotBefore-c.now)
			}
			return nil
		}))
		stats, err := f.Stats()
		require.NoError(t, err)
		require.Equal(t, int64(6), stats.Queues[0].Delayed)
		return all
	}
	want := []int64{hour, hour + day, hour, hour, hour, hour, hour, hour}
	require.Equal(t, want, delays())
	_, err := store.CompactFile(file, "", c.opts)
	require.NoError(t, err)
	require.Equal(t, want, delays())
	c.now = noon
	_, err = store.CompactFile(file, "", c.opts)
	require.NoError(t, err)
	c.Bolt = open(t, filepath.Dir(file), c.opts)
	c.remain(1, hour, hour)
	c.remain(5, hour, hour-day)
}

// TestFileWithoutClock: in a file of an earlier version without a clock no time moves.
func TestFileWithoutClock(t *testing.T) {
	c := newClockedStore(t)
	require.NoError(t, c.Bolt.Close())
	edit(t, c.Path(), func(tx *bbolt.Tx) error { return tx.Bucket([]byte("meta")).Delete([]byte("clock")) })
	_, found := check(t, c.Path())
	require.Empty(t, found)
	c.now = noon - day
	c.Bolt = open(t, filepath.Dir(c.Path()), c.opts)
	c.remain(1, hour+day, hour+day)
	require.NoError(t, c.Bolt.Close())

	edit(t, c.Path(), func(tx *bbolt.Tx) error {
		return storefile.PutSealed(tx.Bucket([]byte("meta")), []byte("clock"), []byte("short"))
	})
	_, err := store.Open(c.Path(), c.opts)
	require.ErrorIs(t, err, store.ErrCorrupt)
	require.ErrorContains(t, err, "clock")
	_, found = check(t, c.Path())
	require.Len(t, found, 1)
	require.Contains(t, found[0], "clock")

	t.Log("What is in the file can be saved still.")
	f, err := store.OpenFile(c.Path(), c.opts)
	require.NoError(t, err)
	var broken, seqs []string
	require.NoError(t, f.Messages(func(ce *store.CorruptError) { broken = append(broken, ce.Part) }, func(m *store.Message, _ *store.State, _ [][]byte) error {
		seqs = append(seqs, fmt.Sprint(m.Seq))
		return nil
	}))
	require.Equal(t, []string{"clock"}, broken)
	require.Equal(t, []string{"1", "2", "3", "4"}, seqs)
	require.ErrorIs(t, f.Messages(nil, func(*store.Message, *store.State, [][]byte) error { return nil }), store.ErrCorrupt)
	_, err = f.Stats()
	require.ErrorIs(t, err, store.ErrCorrupt)
	require.NoError(t, f.Close())
	_, err = store.CompactFile(c.Path(), "", c.opts)
	require.ErrorIs(t, err, store.ErrCorrupt)
	require.NoError(t, os.Remove(c.Path()))
	c.Bolt = open(t, filepath.Dir(c.Path()), c.opts)
}
