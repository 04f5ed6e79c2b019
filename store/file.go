package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"go.etcd.io/bbolt"
)

// File is a store that nobody serves, open for reading. Its methods may be
// called from one goroutine at a time. As long as it is open no fila can start
// on the file, but others may read it, too.
type File struct {
	s     *Bolt // without its goroutines
	pages *pageChecker
	clock error // why the clock cannot be read: then times are as they are in the file
}

// OpenFile opens the store at path for reading. It never makes or changes a
// file. The error is [ErrLocked] when a process serves it, and otherwise like
// that of [Open].
func OpenFile(path string, o Options) (*File, error) { return openFile(path, o, forReading) }

func openFile(path string, o Options, why openFor) (*File, error) {
	o = o.withDefaults()
	if fi, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("store: cannot open %s: %w", path, err)
	} else if !fi.Mode().IsRegular() {
		return nil, fmt.Errorf("%w: %s is not a regular file", ErrNotStore, path)
	}
	db, pages, err := openDB(path, o, why)
	if err != nil {
		return nil, err
	}
	f := &File{s: newBolt(path, o, db), pages: pages}
	err = f.view("open", func(tx *bbolt.Tx) error {
		if k, _ := tx.Cursor().First(); k == nil {
			return fmt.Errorf("%w: %s is empty", ErrNotStore, path)
		}
		if err := f.s.checkFormat(tx); err != nil {
			return err
		}
		f.clock = f.s.loadClock(tx)
		return nil
	})
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Close lets go of the file.
func (f *File) Close() error { return f.s.closeFile() }

// TornMeta is [Checked.TornMeta] of the file.
func (f *File) TornMeta() bool { return f.pages.torn }

// Snapshot is like [Store.Snapshot].
func (f *File) Snapshot() (Snapshot, error) { return f.s.Snapshot() }

func (f *File) view(what string, fn func(tx *bbolt.Tx) error) error {
	return f.s.guard(what, func() error { return f.s.db.View(fn) })
}

// Messages calls fn for every live message with headers and payload, and with
// its state or nil and the records of its history, in the order in which they lie
// in the file: about that of their commits. Everything is good during the call
// only, strings and slices of strings excepted. The memory that it takes does not
// grow with the number of messages.
//
// What cannot be read is given to broken, and the others are visited, and so is a
// message whose history cannot be, without it; if broken is nil, the first such
// [*CorruptError] ends it. An error of fn ends it, too.
// Without the clock, the ends of delays and leases are as they are in the file.
func (f *File) Messages(broken func(*CorruptError), fn func(m *Message, st *State, history [][]byte) error) error {
	tx, err := f.s.db.Begin(false)
	if err != nil {
		return ErrClosed
	}
	defer tx.Rollback() //nolint:errcheck // of a read transaction
	w := &walker{s: f.s, tx: tx, in: newInterner()}
	tell := func(err error) error {
		var ce *CorruptError
		if broken == nil || !errors.As(err, &ce) {
			return err
		}
		broken(ce)
		return nil
	}
	if err := tell(f.clock); err != nil {
		return err
	}
	var m Message
	for {
		var v *segmentView
		err := tell(f.s.guard("read", func() (err error) { v, err = w.next(); return err }))
		if err != nil || w.ended {
			return err
		}
		if v == nil { // it is broken
			continue
		}
		for i := range v.index.n {
			if v.finished(i) {
				continue
			}
			var st *State
			var history [][]byte
			err := f.s.guard("read", func() (err error) { st, err = w.message(v, i, &m); return err })
			if err != nil {
				if err := tell(err); err != nil {
					return err
				}
				continue
			}
			err = tell(f.s.guard("read", func() (err error) { history, err = w.history(m.Ref); return err }))
			if err == nil {
				err = fn(&m, st, history)
			}
			if err != nil {
				return err
			}
		}
	}
}

// Dedupes calls fn for every dedupe id that has not expired and whose queue
// exists, in the order of expiry. What cannot be read is as with
// [File.Messages].
func (f *File) Dedupes(broken func(*CorruptError), fn func(Dedupe) error) error {
	if err := f.view("read", f.s.loadMeta); err != nil {
		return err
	}
	tx, err := f.s.db.Begin(false)
	if err != nil {
		return ErrClosed
	}
	defer tx.Rollback() //nolint:errcheck // of a read transaction
	r := recovery{s: f.s, tx: tx, in: newInterner(), now: f.s.o.Now(), v: Visitor{Dedupe: fn}}
	if err := r.cursors(); err != nil {
		return err
	}
	if err := r.dedupes(); err != nil {
		return err
	}
	for _, ce := range r.stats.Corrupt {
		if broken == nil {
			return ce
		}
		broken(ce)
	}
	return nil
}

// missing says whether an error is about a file that is not there.
func missing(err error) bool { return errors.Is(err, fs.ErrNotExist) }
