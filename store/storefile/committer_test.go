package storefile

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"
)

// committed is a file with a Committer.
type committed struct {
	t    *testing.T
	path Path
	db   *bbolt.DB
	c    *Committer
}

func openCommitted(t *testing.T, path Path, o Options) *committed {
	t.Helper()
	o = o.withDefaults()
	require.NoError(t, Create(path, o.Logger))
	db, pages, err := OpenDB(path, o, Serving)
	require.NoError(t, err)
	c, err := NewCommitter(db, pages, o)
	require.NoError(t, err)
	return &committed{t, path, db, c}
}

func (f *committed) commit(change func(*bbolt.Tx) error) {
	f.t.Helper()
	tx, err := f.db.Begin(true)
	require.NoError(f.t, err)
	require.NoError(f.t, errors.Join(change(tx), f.c.Commit(tx)))
}

// seal returns the meta page of the newest commit, and checks its seal and the one of the commit
// before, if that has one.
func (f *committed) seal() metaPage {
	f.t.Helper()
	newest, other, err := readMetas(f.c.f)
	require.NoError(f.t, err)
	for _, m := range []*metaPage{&newest, &other} {
		whole, err := m.whole(f.c.f)
		require.NoError(f.t, err)
		require.Equal(f.t, m == &newest || m.sealed(), whole)
	}
	return newest
}

// putKey writes another value in each transaction.
func putKey(tx *bbolt.Tx) error {
	b, err := tx.CreateBucketIfNotExists([]byte("b"))
	return errors.Join(err, b.Put([]byte("k"), fmt.Append(nil, tx.ID())))
}

// TestCommitterKnowsTheTree makes random changes in nested buckets with small and large
// values, so that the tree becomes deep and flat again, beside readers that keep old pages in use
// and transactions that are given up. After each commit the pages that the Committer has in its
// tree are those that a check of the file finds, and the commit before is as it was.
func TestCommitterKnowsTheTree(t *testing.T) {
	f := openCommitted(t, Path(filepath.Join(t.TempDir(), "x.db")), Options{})
	rng := rand.New(rand.NewPCG(1, 2))
	levels, synced := map[int]bool{}, 0
	var readers []*bbolt.Tx
	for round := range 300 {
		grow := round/50%2 == 0
		n := []int{1, 3, 40, 600}[rng.IntN(4)]
		change := func(tx *bbolt.Tx) error {
			var errs []error
			for range n {
				errs = append(errs, randomChange(tx, rng, grow))
			}
			return errors.Join(errs...)
		}
		switch rng.IntN(6) {
		case 0:
			tx, err := f.db.Begin(false)
			require.NoError(t, err)
			readers = append(readers, tx)
		case 1:
			tx, err := f.db.Begin(true)
			require.NoError(t, err)
			require.NoError(t, errors.Join(change(tx), tx.Rollback()))
		case 2, 3:
			if len(readers) > 0 {
				i := rng.IntN(len(readers))
				require.NoError(t, readers[i].Rollback())
				readers = slices.Delete(readers, i, i+1)
			}
		}
		f.commit(change)
		m := f.seal()
		if le.Uint32(m.page[sealAt+4:]) == 0 {
			synced++
		}
		check := &PageChecker{path: f.path}
		require.NoError(t, check.checkFile(f.c.f, slog.New(slog.DiscardHandler)))
		require.True(t, slices.Equal(trim(check.tree), trim(f.c.tree)), "commit %d", round)
		require.Empty(t, trim(f.c.shared), "commit %d", round)
		require.NoError(t, f.db.View(func(tx *bbolt.Tx) error {
			levels[tx.Bucket([]byte("flat")).Stats().Depth] = true
			return nil
		}))
	}
	for _, tx := range readers {
		require.NoError(t, tx.Rollback())
	}
	require.Greater(t, len(levels), 2, "depths of the tree")
	require.Positive(t, synced, "a commit of more runs than a seal has room for")
	require.NoError(t, errors.Join(f.c.Close(), f.db.Close()))
}

// trim removes zeros from the end, which growing leaves.
func trim(s pageSet) pageSet {
	for len(s) > 0 && s[len(s)-1] == 0 {
		s = s[:len(s)-1]
	}
	return s
}

func randomChange(tx *bbolt.Tx, rng *rand.Rand, grow bool) error {
	name := []byte("flat")
	if rng.IntN(3) == 0 {
		name = []byte("nested")
	}
	b, err := tx.CreateBucketIfNotExists(name)
	if err == nil {
		_, err = tx.CreateBucketIfNotExists([]byte("flat"))
	}
	if err != nil {
		return err
	}
	key := fmt.Appendf(nil, "%05d", rng.IntN(20_000))
	value := bytes.Repeat([]byte{byte(rng.Uint32())}, []int{0, 10, 200, 3000, 20_000}[rng.IntN(5)])
	if string(name) == "nested" {
		if !grow {
			if k, _ := b.Cursor().Seek(key); k != nil {
				return b.DeleteBucket(k)
			}
			return nil
		}
		in, err := b.CreateBucketIfNotExists(key)
		return errors.Join(err, in.Put([]byte("index"), value), in.Put(fmt.Append(nil, rng.IntN(9)), value))
	}
	if grow {
		return b.Put(key, value[:min(len(value), 300)])
	}
	c := b.Cursor()
	for k, _ := c.Seek(key); k != nil && rng.IntN(8) > 0; k, _ = c.Next() {
		if err := c.Delete(); err != nil {
			return err
		}
	}
	return nil
}

// TestSealsEndWithTheFile: a file that was closed in order has no seals, and one that was not
// has the seal of the newest commit.
func TestSealsEndWithTheFile(t *testing.T) {
	path := Path(filepath.Join(t.TempDir(), "x.db"))
	sealed := func(f *committed) (n int) {
		newest, other, err := readMetas(f.c.f)
		require.NoError(t, err)
		for _, m := range []metaPage{newest, other} {
			if m.sealed() {
				n++
			}
		}
		return n
	}
	f := openCommitted(t, path, Options{})
	f.seal()
	require.Equal(t, 1, sealed(f))
	f.commit(putKey)
	require.Equal(t, 2, sealed(f))
	require.NoError(t, f.c.unseal())
	require.Zero(t, sealed(f))
	require.NoError(t, f.db.Close())

	f = openCommitted(t, path, Options{})
	f.commit(putKey)
	require.NoError(t, f.db.Close()) // as if it was killed
	f = openCommitted(t, path, Options{})
	before := f.seal()
	f.commit(putKey)
	require.Equal(t, before.txid+1, f.seal().txid)
	require.NoError(t, f.db.Close())

	f = openCommitted(t, path, Options{NoSync: true}) // its commits have no seal
	require.Zero(t, sealed(f))
	f.commit(putKey)
	require.NoError(t, errors.Join(f.c.Close(), f.db.Close()))
	f = openCommitted(t, path, Options{})
	require.Equal(t, before.txid+2, f.seal().txid)
	require.NoError(t, errors.Join(f.c.Close(), f.db.Close()))
}

// TestTheFirstCommitOnABackup: bbolt writes the newest meta page of a copy to page 0, whatever its
// transaction is. The first commit is dropped nevertheless if it was cut off.
func TestTheFirstCommitOnABackup(t *testing.T) {
	f := openCommitted(t, Path(filepath.Join(t.TempDir(), "x.db")), Options{})
	for range 2 {
		f.commit(putKey)
		path := Path(filepath.Join(t.TempDir(), "copy.db"))
		_, err := (&Backup{From: f.path, DB: f.db}).To(t.Context(), string(path))
		require.NoError(t, err)
		backup := openCommitted(t, path, Options{})
		before := backup.seal()
		backup.commit(putKey)
		last := backup.seal()
		page, err := dropTorn(backup.c.f)
		require.NoError(t, err)
		require.Nil(t, page)
		_, err = backup.c.f.WriteAt(make([]byte, PageSize), int64(last.root)*PageSize)
		require.NoError(t, err)
		page, err = dropTorn(backup.c.f)
		require.NoError(t, err)
		require.NotNil(t, page)
		_, err = backup.c.f.WriteAt(page, int64(last.id)*PageSize)
		require.NoError(t, err)
		require.Equal(t, before.root, backup.seal().root)
		require.NoError(t, backup.db.Close())
	}
	require.NoError(t, errors.Join(f.c.Close(), f.db.Close()))
}

// TestASealIsOfOneMetaPage: after a commit was dropped, the next one has its number. A power
// failure may leave the meta page of the one with the seal of the other.
func TestASealIsOfOneMetaPage(t *testing.T) {
	f := openCommitted(t, Path(filepath.Join(t.TempDir(), "x.db")), Options{})
	f.commit(putKey)
	m := f.seal()
	meta := m.page[pageHeader:metaSize]
	ne.PutUint64(meta[16:], m.root+1)
	ne.PutUint64(meta[56:], metaSum(meta))
	_, err := f.c.f.WriteAt(m.page, int64(m.id)*PageSize)
	require.NoError(t, err)
	page, err := dropTorn(f.c.f)
	require.NoError(t, err)
	require.NotNil(t, page)
	require.NoError(t, f.db.Close())
}

// badPages is a file whose pages behind the meta pages cannot be read.
type badPages struct{ *os.File }

func (f badPages) ReadAt(b []byte, at int64) (int, error) {
	if at >= 2*PageSize {
		return 0, errors.New("bad sector")
	}
	return f.File.ReadAt(b, at)
}

// TestUnreadableCommitIsNotDropped: it may have been confirmed.
func TestUnreadableCommitIsNotDropped(t *testing.T) {
	f := openCommitted(t, Path(filepath.Join(t.TempDir(), "x.db")), Options{})
	f.commit(putKey)
	page, err := dropTorn(badPages{f.c.f})
	require.ErrorContains(t, err, "bad sector")
	require.Nil(t, page)
	require.NoError(t, errors.Join(f.c.Close(), f.db.Close()))
}
