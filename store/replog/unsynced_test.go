package replog

import (
	"io"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/store/storetest"
)

// died copies the files of a running node to another directory, as a crash leaves them.
func died(t *testing.T, dir, name string) string {
	t.Helper()
	left := t.TempDir()
	for _, file := range []string{name + ".db", name + ".db.unsynced"} {
		from, err := os.Open(filepath.Join(dir, file))
		require.NoError(t, err)
		to, err := os.Create(filepath.Join(left, file))
		require.NoError(t, err)
		_, err = io.Copy(to, from)
		require.NoError(t, err)
		require.NoError(t, from.Close())
		require.NoError(t, to.Close())
	}
	return left
}

// secretOf returns the secret of a file, which tells it from another file.
func secretOf(t *testing.T, n *node) []byte {
	t.Helper()
	snap, err := n.bolt.Snapshot()
	require.NoError(t, err)
	return snap.Secret
}

// written is a log with some records, and the directory of its owner "a", whose file is
// open and has a secret.
func written(t *testing.T) (f *fakeStream, dir string, want *storetest.Content, secret []byte) {
	t.Helper()
	f, dir = newFakeStream(), t.TempDir()
	a := newNode(t, f, dir, "a")
	s := promote(t, a.Replica)
	for _, key := range []string{"k", "l", "m"} {
		require.NoError(t, put(s, key, "v"))
	}
	return f, dir, contentOf(t, s), secretOf(t, a)
}

// Written data survives the end of fila and needs no log.
func TestFileOutlivesFila(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, dir, want, secret := written(t)
		left := died(t, dir, "a")
		e := end{f: f}
		require.NoError(t, e.purge(t.Context(), f.tail()))
		again := newNode(t, f, left, "a")
		require.Equal(t, want, again.content(t))
		require.Equal(t, secret, secretOf(t, again))
		require.NoError(t, again.Close())
		require.NoFileExists(t, noteOf(again.o.Path), "it is on the disk")
		other, err := tryNodeOf(f, left, "a", "another boot")
		require.NoError(t, err)
		require.Equal(t, want, other.content(t))
		require.NoError(t, other.Close())
	})
}

// A file that the machine may have lost in part is rebuilt from the log, or refused if
// the log starts too late.
func TestFileOfAMachineThatFailedIsMadeAgain(t *testing.T) {
	for name, spoil := range map[string]func(t *testing.T, path string){
		"as it was": func(*testing.T, string) {},
		"torn": func(t *testing.T, path string) {
			file, err := os.OpenFile(path, os.O_RDWR, 0)
			require.NoError(t, err)
			_, err = file.WriteAt(make([]byte, 8*4096), 2*4096)
			require.NoError(t, err)
			require.NoError(t, file.Close())
		},
		"empty": func(t *testing.T, path string) { require.NoError(t, os.Truncate(path, 0)) },
		"without a note that is whole": func(t *testing.T, path string) {
			require.NoError(t, os.Truncate(noteOf(path), 3))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, dir, want, secret := written(t)
				left := died(t, dir, "a")
				path := filepath.Join(left, "a.db")
				spoil(t, path)
				again, err := tryNodeOf(f, left, "a", "another boot")
				require.NoError(t, err)
				require.Equal(t, want, again.content(t))
				require.NotEqual(t, secret, secretOf(t, again))
				require.NoError(t, again.Close())
			})
		})
	}
	t.Run("the log begins too late", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f, dir, _, _ := written(t)
			left := died(t, dir, "a")
			e := end{f: f}
			require.NoError(t, e.purge(t.Context(), f.tail()))
			_, err := tryNodeOf(f, left, "a", "another boot")
			require.ErrorIs(t, err, ErrGap)
			require.FileExists(t, filepath.Join(left, "a.db"), "nothing takes its place")
		})
	})
}

// A log that lacks records of such a file is refused, and the file remains.
func TestLogThatHasLostMoreThanTheFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, dir, want, _ := written(t)
		left := died(t, dir, "a")
		f.mu.Lock()
		whole := f.records
		f.records = whole[:2]
		f.mu.Unlock()
		again, err := tryNodeOf(f, left, "a", "another boot")
		require.NoError(t, err)
		synctest.Wait()
		require.ErrorIs(t, again.Seen().Err, ErrShorter)
		require.FileExists(t, filepath.Join(left, "a.db"))
		require.NoError(t, again.Close())
		f.mu.Lock()
		f.records = whole
		f.mu.Unlock()
		again, err = tryNodeOf(f, left, "a", "another boot")
		require.NoError(t, err)
		require.Equal(t, want, again.content(t))
		require.NoError(t, again.Close())
	})
}

// A file that cannot be synced is not used again.
func TestDiskThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeStream()
		a, b := newNode(t, f, t.TempDir(), "a"), newNode(t, f, t.TempDir(), "b")
		s := promote(t, a.Replica)
		require.NoError(t, put(s, "k", "v"))
		want := b.content(t)
		before := secretOf(t, b)
		for _, n := range []*node{a, b} {
			require.NoError(t, n.unsynced.file.Close())
		}
		time.Sleep(2 * syncEvery)
		require.ErrorIs(t, s.Err(), os.ErrClosed)
		require.Equal(t, want, b.content(t))
		require.NotEqual(t, before, secretOf(t, b))
		require.NoError(t, s.Close())
		synctest.Wait()
		require.Equal(t, want, a.content(t))
	})
}

// Without a boot id, files are synced at each commit and have no note.
func TestMachineWithoutBoots(t *testing.T) {
	o := Options{Path: filepath.Join(t.TempDir(), "a.db")}
	o.defaults()
	require.Equal(t, bootID(), o.boot)
	require.Equal(t, o.boot != "", o.Store.NoSync)
}

// A file whose note cannot be written is not used, and is opened when the note can be
// written.
func TestFileWithoutANote(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeStream()
		a := newNode(t, f, t.TempDir(), "a")
		s := promote(t, a.Replica)
		require.NoError(t, put(s, "k", "v"))
		want := contentOf(t, s)
		require.NoError(t, os.Remove(noteOf(a.o.Path)))
		require.NoError(t, os.Symlink(filepath.Join(t.TempDir(), "nowhere", "note"), noteOf(a.o.Path)))
		a.unsynced.note += ".other" // the next one is in the way
		require.NoError(t, s.Close())
		synctest.Wait()
		require.Error(t, a.Seen().Err)
		time.Sleep(time.Minute)
		require.Equal(t, want, a.content(t))
		require.NoError(t, a.Seen().Err)
		note, err := os.ReadFile(noteOf(a.o.Path))
		require.NoError(t, err)
		require.Equal(t, "boot\n", string(note))
	})
}

// An existing note is valid when it is on the disk.
func TestNoteOfBeforeIsBroughtToTheDisk(t *testing.T) {
	boot := bootID()
	if boot == "" {
		t.Skip("nobody knows the boot")
	}
	path := filepath.Join(t.TempDir(), "a.db")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	require.NoError(t, os.Symlink("/proc/sys/kernel/random/boot_id", noteOf(path))) // says it, and cannot be written
	u, err := openUnsynced(path, boot, time.Now())
	require.Error(t, err)
	require.NoError(t, u.close())
}

// Such a file is put aside when its records are given up, also if no node has less than it, so
// that there could be an owner without them.
func TestLogThatHasLostMoreThanTheFileIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, dir, _, _ := written(t)
		left := died(t, dir, "a")
		f.forget(2)
		again, err := tryNodeOf(f, left, "a", "another boot")
		require.NoError(t, err)
		synctest.Wait()
		seen := again.Seen()
		require.ErrorIs(t, seen.Err, ErrShorter)
		require.True(t, seen.Torn)
		require.NoError(t, again.Close())
		again = nodeOf(f, left, "a", "another boot")
		again.o.Verdict = func() (Verdict, bool) { return Verdict{Copy: seen.Data, GivenUp: true}, true }
		require.NoError(t, again.start(t.Context()))
		s := promote(t, again.Replica)
		require.Equal(t, []string{"k"}, keys(contentOf(t, s)))
		require.NoError(t, s.Close())
		require.NoError(t, again.Close())
		aside, err := filepath.Glob(filepath.Join(left, "*.lost-*"))
		require.NoError(t, err)
		require.Len(t, aside, 1)
	})
}
