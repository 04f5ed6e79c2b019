package store_test

import (
	"bytes"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/store"
	"github.com/filaq/fila/store/storefile"
	"github.com/filaq/fila/store/storetest"
)

// confirming opens stores with a file of their newest confirmed commit, and collects their logs.
type confirming struct {
	t    *testing.T
	path storefile.Path
	log  bytes.Buffer
}

const confirmedAt = 1_767_323_045_000_000_000

func newConfirming(t *testing.T) *confirming {
	return &confirming{t: t, path: storefile.Path(filepath.Join(t.TempDir(), "fila.db"))}
}

func (c *confirming) noteFile() string { return string(c.path) + ".confirmed" }

func (c *confirming) options() store.Options {
	return store.Options{
		KeepConfirmed: true,
		NoSync:        true, // the machine goes on
		Now:           func() int64 { return confirmedAt },
		Logger:        slog.New(slog.NewTextHandler(&c.log, nil)),
	}
}

func (c *confirming) open() *store.Bolt {
	c.t.Helper()
	s, err := store.Open(string(c.path), c.options())
	require.NoError(c.t, err)
	return s
}

// life opens the store, makes n commits, closes it, and returns its file.
func (c *confirming) life(n int) (file []byte) {
	c.t.Helper()
	s := c.open()
	put(c.t, s, n)
	require.NoError(c.t, s.Close())
	return c.read(string(c.path))
}

func put(t *testing.T, s *store.Bolt, n int) {
	t.Helper()
	for i := range n {
		require.NoError(t, storetest.Do(s, &store.Batch{PutConfig: []store.Entry{{Key: "k", Value: fmt.Sprint(i)}}}))
	}
}

func (c *confirming) read(path string) []byte {
	c.t.Helper()
	b, err := os.ReadFile(path)
	require.NoError(c.t, err)
	return b
}

func (c *confirming) write(path string, b []byte) {
	c.t.Helper()
	require.NoError(c.t, os.WriteFile(path, b, 0o600))
}

// refused requires that the store is not opened, and nothing is changed.
func (c *confirming) refused(commit, confirmed uint64) {
	c.t.Helper()
	note := c.read(c.noteFile())
	_, err := store.Open(string(c.path), c.options())
	var lost *store.LostError
	require.ErrorAs(c.t, err, &lost)
	require.Equal(c.t, store.LostError{File: string(c.path), Commit: commit, Confirmed: confirmed, At: time.Unix(0, confirmedAt).UTC()}, *lost)
	require.Equal(c.t, note, c.read(c.noteFile()))
}

// says requires that the log has these lines since the last call.
func (c *confirming) says(texts ...string) {
	c.t.Helper()
	lines := strings.Split(strings.TrimSuffix(c.log.String(), "\n"), "\n")
	if c.log.Len() == 0 {
		lines = nil
	}
	c.log.Reset()
	require.Len(c.t, lines, len(texts), "%q", lines)
	for i, text := range texts {
		require.Contains(c.t, lines[i], text)
	}
}

const (
	saysMade     = `msg="store: made"`
	saysUnknown  = `msg="store: the confirmed commits before this start are unknown, so fila would not notice a loss"`
	saysNotNoted = `msg="store: the newest confirmed commit cannot be recorded, so fila would not notice its loss"`
	saysAccepted = `msg="store: the loss of confirmed commits was accepted"`
)

// TestConfirmedFile: a damaged value is an error, whichever byte it is and wherever it ends.
func TestConfirmedFile(t *testing.T) {
	c := newConfirming(t)
	_, err := c.path.ReadConfirmed()
	require.ErrorIs(t, err, fs.ErrNotExist)
	want := storefile.Confirmed{Store: storefile.StoreID{1, 15: 2}, Commit: 1 << 40, At: -3, Accepted: 1<<64 - 1}
	require.NoError(t, c.path.WriteConfirmed(want))
	whole := c.read(c.noteFile())
	for i := range whole {
		c.write(c.noteFile(), whole[:i])
		_, err := c.path.ReadConfirmed()
		require.ErrorContains(t, err, c.noteFile())
		for bit := range 8 {
			b := bytes.Clone(whole)
			b[i] ^= 1 << bit
			c.write(c.noteFile(), b)
			got, err := c.path.ReadConfirmed()
			require.ErrorIs(t, err, storefile.ErrChecksum)
			require.Zero(t, got)
		}
	}
	c.write(c.noteFile(), append(bytes.Repeat([]byte("damaged"), 100), whole...))
	require.NoError(t, c.path.WriteConfirmed(want))
	got, err := c.path.ReadConfirmed()
	require.NoError(t, err)
	require.Equal(t, want, got, "what follows does not count")
}

// TestOlderFileIsRefused: an earlier copy is refused until the right file is back or its loss
// is accepted.
func TestOlderFileIsRefused(t *testing.T) {
	c := newConfirming(t)
	older := c.life(3)
	c.says(saysMade)
	newer := c.life(4)
	c.write(string(c.path), older)
	c.refused(3, 7)
	c.refused(3, 7)
	require.Equal(t, older, c.read(string(c.path)))
	c.write(string(c.path), newer)
	newer = c.life(0)
	c.says()

	c.write(string(c.path), older)
	sum, found := check(t, string(c.path))
	require.Empty(t, found)
	require.EqualValues(t, 3, sum.Lost.Commit)
	accept := func(yes bool) (lost *store.LostError) {
		t.Helper()
		lost, err := store.AcceptLoss(string(c.path), c.options(), func(*store.LostError) bool { return yes })
		require.NoError(t, err)
		return lost
	}
	require.Equal(t, sum.Lost, accept(false))
	c.refused(3, 7)
	require.Equal(t, sum.Lost, accept(true))
	require.Nil(t, accept(true))
	c.life(0)
	c.says(saysAccepted)
	c.life(2)
	c.says()
	c.write(string(c.path), older)
	c.refused(3, 5)

	c.write(string(c.path), newer)
	c.life(0)
	c.says() // a newer file is no loss
	require.NoError(t, os.Remove(string(c.path)))
	c.refused(0, 7)
	require.EqualValues(t, 7, accept(true).Confirmed)
	c.life(1)
	c.says(saysMade, saysAccepted)
}

// TestTheEndOfTheFileIsGone: bbolt goes on from the older meta page when the newer one is
// damaged. It must not if the newer one was confirmed.
func TestTheEndOfTheFileIsGone(t *testing.T) {
	c := newConfirming(t)
	before := c.life(3)
	after := c.life(1)
	meta := 0
	if bytes.Equal(before[:faultPage], after[:faultPage]) {
		meta = faultPage
	}
	copy(after[meta:], make([]byte, faultMeta))
	c.write(string(c.path), after)
	c.refused(3, 4)
	require.NoError(t, os.Remove(c.noteFile()))
	c.life(0)
}

// TestUnknownConfirmed: a file that does not say what this store has confirmed is written anew.
func TestUnknownConfirmed(t *testing.T) {
	c := newConfirming(t)
	older := c.life(2)
	newer := c.life(3)
	note := c.read(c.noteFile())
	other := newConfirming(t)
	other.life(9)
	c.log.Reset()

	cases := map[string][]byte{"missing": nil, "of another store": c.read(other.noteFile())}
	for i := range note {
		b := bytes.Clone(note)
		b[i] ^= 0x10
		cases[fmt.Sprint("byte ", i)] = b
		cases[fmt.Sprintf("%d bytes", i)] = note[:i]
	}
	for name, b := range cases {
		c.write(string(c.path), newer)
		c.write(c.noteFile(), b)
		says, level := saysUnknown, "level=WARN"
		if name == "missing" {
			require.NoError(t, os.Remove(c.noteFile()))
			level = "level=INFO"
		}
		s := c.open()
		require.Contains(t, c.log.String(), level, name)
		c.says(says)
		require.Equal(t, note, c.read(c.noteFile()), name)
		require.NoError(t, s.Close())
		c.write(string(c.path), older)
		c.refused(2, 5)
	}
	c.log.Reset()

	// The time does not count.
	c.write(string(c.path), newer)
	saved, err := c.path.ReadConfirmed()
	require.NoError(t, err)
	saved.At = confirmedAt * 2
	require.NoError(t, c.path.WriteConfirmed(saved))
	c.life(0)
	c.says()
}

// TestConfirmedIsWrittenWithinASecond of a commit, once for several, and at Close.
func TestConfirmedIsWrittenWithinASecond(t *testing.T) {
	c := newConfirming(t)
	noted := func() uint64 {
		synctest.Wait()
		n, err := c.path.ReadConfirmed()
		if err != nil {
			require.ErrorIs(t, err, fs.ErrNotExist)
		}
		return n.Commit
	}
	synctest.Test(t, func(t *testing.T) {
		s := c.open()
		time.Sleep(time.Hour)
		require.Zero(t, noted())
		put(t, s, 1)
		time.Sleep(time.Second - 1)
		put(t, s, 1)
		require.Zero(t, noted())
		time.Sleep(time.Nanosecond)
		require.EqualValues(t, 2, noted())
		put(t, s, 3)
		time.Sleep(time.Second)
		require.EqualValues(t, 5, noted())
		require.NoError(t, os.Remove(c.noteFile()))
		time.Sleep(time.Hour)
		require.NoFileExists(t, c.noteFile(), "there was no commit")
		put(t, s, 1)
		require.NoError(t, s.Close())
		require.EqualValues(t, 6, noted())
	})
}

// TestConfirmedCannotBeWritten: the store goes on, and the log says it once.
func TestConfirmedCannotBeWritten(t *testing.T) {
	c := newConfirming(t)
	c.life(1)
	require.NoError(t, os.Remove(c.noteFile()))
	if runtime.GOOS == "linux" {
		require.NoError(t, os.Symlink("/dev/full", c.noteFile())) // a full disk
	} else {
		require.NoError(t, os.Mkdir(c.noteFile(), 0o700))
	}
	c.log.Reset()
	synctest.Test(t, func(t *testing.T) {
		s := c.open()
		c.says(saysUnknown, saysNotNoted)
		for range 3 {
			put(t, s, 1)
			time.Sleep(time.Minute)
		}
		c.says()
		require.NoError(t, os.Remove(c.noteFile()))
		put(t, s, 1)
		time.Sleep(time.Minute)
		note, err := c.path.ReadConfirmed()
		require.NoError(t, err)
		require.EqualValues(t, 5, note.Commit)
		require.NoError(t, s.Close())
	})
	c.says()
}

// TestConfirmedIsNeverAhead: the file does not have a commit that failed.
func TestConfirmedIsNeverAhead(t *testing.T) {
	c := newConfirming(t)
	s := c.open()
	put(t, s, 2)
	s.LimitSize(1)
	var err error
	for n := 0; err == nil && n < 100; n++ {
		err = storetest.Do(s, &store.Batch{PutConfig: []store.Entry{{Key: fmt.Sprint("k", n), Value: strings.Repeat("x", 1<<20)}}})
	}
	require.ErrorIs(t, err, store.ErrFailed)
	commits := s.Stats().Commits
	require.NoError(t, s.Close())
	note, err := c.path.ReadConfirmed()
	require.NoError(t, err)
	require.EqualValues(t, commits, note.Commit)
	c.life(0)
}

// TestCompactionKeepsTheCommit: the new file is as old as the one that it replaces.
func TestCompactionKeepsTheCommit(t *testing.T) {
	c := newConfirming(t)
	older := c.life(3)
	c.life(1)
	c.write(string(c.path), older)
	r, err := store.CompactFile(string(c.path), "", c.options())
	require.NoError(t, err)
	require.EqualValues(t, 4, r.Lost.Confirmed)
	c.refused(3, 4)

	require.NoError(t, os.Remove(c.noteFile()))
	c.life(5)
	r, err = store.CompactFile(string(c.path), "", c.options())
	require.NoError(t, err)
	require.Nil(t, r.Lost)
	c.log.Reset()
	c.life(1)
	c.says()
	note, err := c.path.ReadConfirmed()
	require.NoError(t, err)
	require.EqualValues(t, 9, note.Commit)
}
