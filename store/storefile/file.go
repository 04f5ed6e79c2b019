package storefile

import (
	"context"
	"errors"
	"fmt"
	"os"

	"go.etcd.io/bbolt"
)

// File is a store that no process serves, open for reading. Use its methods from one
// goroutine at a time. While it is open, no fila can start on the file, but other
// processes may read it, too.
type File struct {
	path     Path
	o        Options
	db       *bbolt.DB
	pages    *PageChecker
	clock    Clock
	clockErr error // the clock cannot be read: times are as in the file
}

// Open opens the store at path for reading. It never makes a file, and changes
// none except that it drops a last commit that was cut off. The
// error is [ErrLocked] if a process serves it, [*VersionError], [ErrNotStore] or
// [*CorruptError].
func Open(path string, o Options) (*File, error) { return OpenAs(path, o, Reading) }

// OpenAs is Open with mode Reading or Rewriting.
func OpenAs(path string, o Options, mode Mode) (*File, error) {
	o = o.withDefaults()
	if fi, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("store: cannot open %s: %w", path, err)
	} else if !fi.Mode().IsRegular() {
		return nil, fmt.Errorf("%w: %s is not a regular file", ErrNotStore, path)
	}
	f := &File{path: Path(path), o: o}
	var err error
	if f.db, f.pages, err = OpenDB(f.path, o, mode); err != nil {
		return nil, err
	}
	err = f.view("open", func(tx *bbolt.Tx) error {
		if k, _ := tx.Cursor().First(); k == nil {
			return fmt.Errorf("%w: %s is empty", ErrNotStore, path)
		}
		if _, err := f.path.CheckFormat(tx); err != nil {
			return err
		}
		f.clock, _, f.clockErr = f.path.ReadClock(tx, o.Now())
		return nil
	})
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Close closes the file.
func (f *File) Close() error { return f.path.CloseDB(f.db) }

// CloseDB closes the database of a file.
func (p Path) CloseDB(db *bbolt.DB) error {
	if err := p.Guard("close", db.Close); err != nil {
		return fmt.Errorf("store: closing %s: %w", p, err)
	}
	return nil
}

// TornMeta is [Checked.TornMeta] of the file.
func (f *File) TornMeta() bool { return f.pages.Torn }

// ClockShift is [Clock.Shift] of the file.
func (f *File) ClockShift() int64 { return f.clock.Shift }

// Snapshot returns queues, consumers and configuration.
func (f *File) Snapshot() (out Snapshot, err error) {
	err = f.view("snapshot", func(tx *bbolt.Tx) error { out, err = f.path.ReadSnapshot(tx); return err })
	return out, err
}

// Position returns how far the file applied its log, nil if it has none.
func (f *File) Position() (position []byte, err error) {
	err = f.view("position", func(tx *bbolt.Tx) error { position, err = f.path.ReadPosition(tx); return err })
	return position, err
}

// BackupTo copies the file, see [Backup.To].
func (f *File) BackupTo(ctx context.Context, path string) (int64, error) {
	return (&Backup{From: f.path, DB: f.db}).To(ctx, path)
}

func (f *File) view(what string, fn func(tx *bbolt.Tx) error) error {
	return f.path.Guard(what, func() error { return f.db.View(fn) })
}

// tolerate passes a [*CorruptError] to broken, unless that is nil, and returns other
// errors.
func tolerate(broken func(*CorruptError), err error) error {
	var ce *CorruptError
	if broken == nil || !errors.As(err, &ce) {
		return err
	}
	broken(ce)
	return nil
}

// Messages calls fn for every live message with headers and payload, with its state or
// nil, and with the records of its history, in the order of the file, which is about
// the order of the commits. Arguments are valid during the call only, except for
// strings and slices of strings. The memory that it takes does not grow with the
// number of messages.
//
// It passes records that cannot be read to broken and visits the others. A message
// whose history cannot be read is visited without it. If broken is nil, the first
// [*CorruptError] ends it. An error of fn ends it, too. If the clock cannot be read,
// the ends of delays and leases are as in the file.
func (f *File) Messages(broken func(*CorruptError), fn func(m *Message, st *State, history [][]byte) error) error {
	tx, err := f.db.Begin(false)
	if err != nil {
		return ErrClosed
	}
	defer tx.Rollback() //nolint:errcheck // of a read transaction
	w := &walker{f: f, tx: tx, in: NewInterner()}
	if err := tolerate(broken, f.clockErr); err != nil {
		return err
	}
	for {
		var v *segmentView
		err := tolerate(broken, f.path.Guard("read", func() (err error) { v, err = w.next(); return err }))
		if err != nil || w.ended {
			return err
		}
		if v == nil { // it is broken
			continue
		}
		for i := range v.index.N {
			if v.finished(i) {
				continue
			}
			if err := w.visit(v, i, broken, fn); err != nil {
				return err
			}
		}
	}
}

// visit calls fn for item i of a segment.
func (w *walker) visit(v *segmentView, i int, broken func(*CorruptError), fn func(m *Message, st *State, history [][]byte) error) error {
	var m Message
	var st *State
	var history [][]byte
	err := w.f.path.Guard("read", func() (err error) { st, err = w.message(v, i, &m); return err })
	if err != nil {
		return tolerate(broken, err)
	}
	err = tolerate(broken, w.f.path.Guard("read", func() (err error) { history, err = w.readHistory(m.Ref); return err }))
	if err != nil {
		return err
	}
	return fn(&m, st, history)
}

// Dedupes calls fn for every dedupe id that has not expired and whose queue exists, in
// the order of expiry. It treats records that cannot be read like [File.Messages].
func (f *File) Dedupes(broken func(*CorruptError), fn func(Dedupe) error) error {
	queues := make(map[QueueID]bool)
	err := f.view("read", func(tx *bbolt.Tx) error {
		_, err := f.path.ReadQueues(tx, func(q QueueRecord) { queues[q.ID] = true })
		return err
	})
	if err != nil {
		return err
	}
	tx, err := f.db.Begin(false)
	if err != nil {
		return ErrClosed
	}
	defer tx.Rollback() //nolint:errcheck // of a read transaction
	r, err := NewDedupeReader(f.path, tx, f.o.Now())
	if err != nil {
		return err
	}
	var first error // if broken is nil
	err = r.Each(func(err error) {
		if err = tolerate(broken, err); first == nil {
			first = err
		}
	}, func(d Dedupe) error {
		if !queues[d.Queue] {
			return nil
		}
		return fn(d)
	})
	if err == nil {
		err = first
	}
	return err
}
