package store

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"go.etcd.io/bbolt"
)

// create makes an empty store at path unless something is there. It is made
// under another name and linked into place, so that a crash leaves either none
// or a whole one, and of two processes that come at once one wins.
func create(path string, o Options) error {
	if _, err := os.Stat(path); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, filepath.Base(path)+".new-*")
	if err != nil {
		return err
	}
	tmp := f.Name()
	defer os.Remove(tmp) //nolint:errcheck // after a rename it is gone already
	if err := f.Close(); err != nil {
		return err
	}
	db, err := bbolt.Open(tmp, 0o600, &bbolt.Options{
		NoFreelistSync: true, FreelistType: bbolt.FreelistMapType, PageSize: pageSize,
	})
	if err != nil {
		return err
	}
	if err := errors.Join(db.Update(func(tx *bbolt.Tx) error { return initialise(tx, nil, 0) }), db.Close()); err != nil {
		return err
	}
	if err := publish(tmp, path); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return nil
		}
		return err
	}
	o.Logger.Info("store: made", "file", path)
	return SyncDir(dir)
}

// publish gives a finished file the name path, which must be free. The old name
// may stay, too.
func publish(tmp, path string) error {
	err := os.Link(tmp, path)
	if err == nil || errors.Is(err, fs.ErrExist) {
		return err
	}
	if _, err := os.Lstat(path); err == nil {
		return fmt.Errorf("%s: %w", path, fs.ErrExist)
	}
	return os.Rename(tmp, path) // no links on this file system
}

// initialise writes what an empty store consists of. With a nil secret it gets one
// of its own, and with created 0 it is made now.
func initialise(tx *bbolt.Tx, secret []byte, created int64) error {
	for _, name := range buckets {
		if _, err := tx.CreateBucketIfNotExists(name); err != nil {
			return err
		}
	}
	if secret == nil {
		secret = make([]byte, 32)
		rand.Read(secret) // it never fails
	}
	meta := tx.Bucket(bucketMeta)
	return errors.Join(
		putSealed(meta, keyFormat, le.AppendUint32(nil, firstVersion)),
		putSealed(meta, keySecret, secret),
		putSealed(meta, keyCreated, le.AppendUint64(nil, uint64(cmp.Or(created, time.Now().UnixNano())))),
		putSealed(meta, keyNextQueue, le.AppendUint32(nil, 1)),
		putSealed(meta, keyTally, appendTally(nil, tally{})),
	)
}

func putSealed(b *bbolt.Bucket, key, value []byte) error {
	return b.Put(key, seal(make([]byte, 0, 4+len(value)), key, value))
}

// SyncDir makes a new name in a directory durable. Some file systems cannot sync a
// directory; they get no more than they offer.
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
