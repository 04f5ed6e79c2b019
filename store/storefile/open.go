package storefile

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
)

// PageSize is the size of the pages of a file in bytes.
const PageSize = 4096

// Options tune access to a file. The zero value is good for tools.
type Options struct {
	// Timeout is how long to wait for the file lock. Default 250 ms.
	Timeout time.Duration
	// Now is the clock, in Unix nanoseconds. Default time.Now.
	Now func() int64
	// Logger receives a line for a large file and for a damaged meta page. Default:
	// none.
	Logger *slog.Logger
	// Locked is called when a process that opens the file for Serving has the lock,
	// before it reads and checks the file. If it returns an error, opening fails with
	// it. It is called again if the file could not be mapped at once.
	Locked func() error
	// NoSync leaves out the sync of each commit.
	NoSync bool
}

func (o Options) withDefaults() Options {
	if o.Timeout <= 0 {
		o.Timeout = 250 * time.Millisecond
	}
	if o.Now == nil {
		o.Now = func() int64 { return time.Now().UnixNano() }
	}
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	return o
}

// Mode is what a file is opened for.
type Mode uint8

// The modes.
const (
	Serving   Mode = iota
	Reading        // nothing is changed, but see dropTorn; other processes may read, too
	Rewriting      // nothing is changed, and no other process may read
	Making         // the file must not exist
)

// OpenDB opens a bbolt file after it has checked its structure. pages has the figures
// of the check. Transactions of a file that is opened for Serving are committed by a
// [Committer].
func OpenDB(path Path, o Options, mode Mode) (db *bbolt.DB, pages *PageChecker, err error) {
	o = o.withDefaults()
	var file *os.File
	var refused error // by Options.Locked
	pages = &PageChecker{path: path}
	opt := bbolt.Options{
		Timeout:        o.Timeout,
		NoFreelistSync: true,
		FreelistType:   bbolt.FreelistMapType,
		PageSize:       PageSize,
		NoSync:         o.NoSync || mode == Serving, // a Committer syncs
		NoGrowSync:     o.NoSync,
		NoStatistics:   true,
		ReadOnly:       mode == Reading || mode == Rewriting,
		OpenFile: func(name string, flag int, perm os.FileMode) (*os.File, error) {
			if mode == Making {
				flag |= os.O_EXCL
			}
			f, err := openLocked(name, flag, perm, o.Timeout, mode == Reading)
			if err != nil {
				return nil, err
			}
			if mode == Serving && o.Locked != nil {
				if refused = o.Locked(); refused != nil {
					return nil, errors.Join(refused, f.Close())
				}
			}
			if mode != Making {
				if err := path.dropTorn(f, mode, o.Logger); err != nil {
					return nil, errors.Join(err, f.Close())
				}
				if err := pages.checkFile(f, o.Logger); err != nil {
					return nil, errors.Join(err, f.Close())
				}
			}
			file = f
			return f, nil
		},
	}
	for _, size := range mapSizes() {
		if opt.InitialMmapSize = size; opt.ReadOnly {
			opt.InitialMmapSize = 0
		}
		err = path.Guard("open", func() (err error) {
			db, err = bbolt.Open(string(path), 0o600, &opt)
			return err
		})
		if err == nil {
			return db, pages, nil
		}
		if file != nil {
			_ = file.Close() // only a panic leaves it open, and with it the lock
		}
		if refused != nil || !errors.Is(err, syscall.ENOMEM) {
			break // a smaller mapping would not help
		}
	}
	var ce *CorruptError
	switch {
	case refused != nil:
		return nil, nil, refused
	case errors.As(err, &ce):
		return nil, nil, ce
	case errors.Is(err, ErrNotStore):
		return nil, nil, err
	case errors.Is(err, ErrLocked), errors.Is(err, berrors.ErrTimeout):
		return nil, nil, fmt.Errorf("%w: %s", ErrLocked, path)
	}
	return nil, nil, fmt.Errorf("store: cannot open %s: %w", path, err)
}

// dropTorn drops a newest commit that is not complete, see the function.
func (p Path) dropTorn(f *os.File, mode Mode, log *slog.Logger) error {
	page, err := dropTorn(f)
	if page == nil || err != nil {
		return err
	}
	if mode != Serving { // f is open for reading
		if f, err = os.OpenFile(string(p), os.O_WRONLY, 0); err == nil {
			defer f.Close() //nolint:errcheck // it is synced
		}
	}
	if err == nil {
		_, err = f.WriteAt(page, int64(ne.Uint64(page))*PageSize)
	}
	if err == nil {
		err = f.Sync()
	}
	if err != nil {
		return fmt.Errorf("its last commit was cut off and cannot be dropped: %w", err)
	}
	log.Info("store: the last commit is incomplete and is dropped", "file", string(p))
	return nil
}

// mapSizes are the sizes of address space to ask for, in order. A write that outgrows
// the mapping waits for every open read, so a large mapping is better; a small one
// serves where the address space is limited.
func mapSizes() []int {
	if runtime.GOOS == "windows" || strconv.IntSize == 32 {
		return []int{0} // Windows would make the file that large
	}
	large := 64
	return []int{large << 30, 1 << 30, 0}
}

// Create makes an empty store at path if there is no file. It writes the file under
// another name and links it into place, so that a crash leaves no file or a whole one,
// and one of two concurrent processes wins.
func Create(path Path, log *slog.Logger) error {
	if _, err := os.Stat(string(path)); err == nil || !Missing(err) {
		return err
	}
	dir := filepath.Dir(string(path))
	f, err := os.CreateTemp(dir, filepath.Base(string(path))+".new-*")
	if err != nil {
		return err
	}
	tmp := f.Name()
	defer os.Remove(tmp) //nolint:errcheck // after a rename it is gone already
	if err := f.Close(); err != nil {
		return err
	}
	db, err := bbolt.Open(tmp, 0o600, &bbolt.Options{
		NoFreelistSync: true, FreelistType: bbolt.FreelistMapType, PageSize: PageSize,
	})
	if err != nil {
		return err
	}
	if err := errors.Join(db.Update(func(tx *bbolt.Tx) error { return Initialise(tx, nil, 0) }), db.Close()); err != nil {
		return err
	}
	if err := Publish(tmp, string(path)); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return nil
		}
		return err
	}
	log.Info("store: made", "file", string(path))
	return SyncDir(dir)
}

// Publish gives a finished file the name path, which must be free. The old name may
// remain.
func Publish(tmp, path string) error {
	err := os.Link(tmp, path)
	if err == nil || errors.Is(err, fs.ErrExist) {
		return err
	}
	if _, err := os.Lstat(path); err == nil {
		return fmt.Errorf("%s: %w", path, fs.ErrExist)
	}
	return os.Rename(tmp, path) // no links on this file system
}

// SyncDir makes a new name in a directory durable, unless the file system cannot sync
// directories.
func SyncDir(dir string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	if errors.Is(err, errors.ErrUnsupported) || errors.Is(err, syscall.EINVAL) {
		err = nil
	}
	return errors.Join(err, d.Close())
}

// RemoveStale removes a temporary file of a killed process, but not one that another
// process has locked. It removes only the name: the file may have got its final name
// already.
func RemoveStale(tmp string, timeout time.Duration) error {
	f, err := openLocked(tmp, os.O_RDWR, 0, timeout, false)
	if Missing(err) {
		return nil
	}
	if errors.Is(err, ErrLocked) {
		return fmt.Errorf("%w: %s", err, tmp)
	}
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	return errors.Join(os.Remove(tmp), f.Close())
}
