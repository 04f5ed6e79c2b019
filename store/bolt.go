package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"go.etcd.io/bbolt"

	"github.com/filaq/fila/store/storefile"
)

// Bolt is the [Store] on a bbolt file, see package storefile.
//
// Three kinds of goroutines use it: the callers (Submit, Read, Stats), the committer,
// which alone changes anything, and the notifier, which calls Done. The committer reads
// the fields under mu without the lock, because no other goroutine writes them.
type Bolt struct {
	path storefile.Path
	o    Options
	db   *bbolt.DB
	file *storefile.Committer

	box    mailbox
	notify notifier

	// gate is held while a commit becomes visible in the file and in memory. A reader
	// that holds it sees both agree.
	gate sync.RWMutex

	mu     sync.RWMutex
	ahead  bool // the plan is in the log and not yet in the file: it is readable and does not change
	queues map[QueueID]*queue
	segs   segTable
	cache  readCache
	count  counters

	// committing is held by the committer: commitLoop, or Apply.
	committing sync.Mutex

	// Owned by the committer.
	log         Log // nil: none
	plan        plan
	pace        pace
	nextQueue   QueueID
	format      uint32        // of the file
	dedupeFirst int64         // no value in the dedupe log expires before
	loaded      RecoveryStats // records that could not be loaded
	clock       storefile.Clock
	serving     bool // opened by Open: Close writes the time

	confirmed confirmer

	closed  atomic.Bool
	failed  chan struct{}
	failure atomic.Pointer[error] // set once, before failed is closed
	done    sync.WaitGroup
	closing sync.Once
	leaving chan struct{} // closed when Close starts
}

var _ Store = (*Bolt)(nil)

// queue is the state of a queue in memory.
type queue struct {
	id    QueueID
	index seqIndex
}

type counters struct {
	bytes   int64 // live headers and payloads
	states  int64
	history int64 // messages with a history
	dedupes int64 // values in the dedupe log
	commits int64
	carried int64
}

// Open opens the store at path and creates it if there is no file; the directory must
// exist. It returns [ErrLocked] if another process uses the file, [*VersionError]
// (wrapping [ErrVersion]) for another format, [ErrNotStore] for a file that is no
// store, and [*CorruptError] for a file whose structure is broken. A broken record
// is no error here: [Bolt.Recover] reports it. See also [Options.KeepConfirmed].
func Open(path string, o Options) (*Bolt, error) {
	o = o.withDefaults()
	p := storefile.Path(path)
	if lost := p.Vanished(); o.KeepConfirmed && lost != nil {
		return nil, lost
	}
	if err := storefile.Create(p, o.Logger); err != nil {
		return nil, fmt.Errorf("store: cannot make %s: %w", path, err)
	}
	db, pages, err := storefile.OpenDB(p, o.file(), storefile.Serving)
	if err != nil {
		return nil, err
	}
	s := newBolt(p, o, db)
	s.serving = true
	return serve(s, pages)
}

func newBolt(path storefile.Path, o Options, db *bbolt.DB) *Bolt {
	return &Bolt{
		path: path, o: o, db: db,
		queues:  make(map[QueueID]*queue),
		segs:    newSegTable(),
		cache:   readCache{budget: o.ReadCacheBytes},
		pace:    newPace(),
		failed:  make(chan struct{}),
		leaving: make(chan struct{}),
	}
}

// serve loads the state in memory and starts the goroutines. It closes the file if it
// fails. pages are the pages of a file that is opened for Serving.
func serve(s *Bolt, pages *storefile.PageChecker) (*Bolt, error) {
	err := s.path.Guard("open", s.load)
	if err == nil && s.serving { // not before, because a refused file stays as it is
		if s.file, err = storefile.NewCommitter(s.db, pages, s.o.file()); err != nil {
			defer storefile.ForgetCached(string(s.path)) // when it is closed, as after a failed commit
			err = fmt.Errorf("store: cannot open %s: %w", s.path, err)
		}
	}
	if err != nil {
		if cerr := s.db.Close(); cerr != nil {
			s.o.Logger.Warn("store: closing after a failed open", "file", string(s.path), "error", cerr)
		}
		return nil, err
	}
	s.box.init()
	s.notify.init()
	s.notify.onCommit = s.o.OnCommit
	s.done.Go(s.commitLoop)
	s.done.Go(s.notify.run)
	if s.o.KeepConfirmed {
		s.keepConfirmed()
		s.done.Go(s.confirmLoop)
	}
	return s, nil
}

// OpenFile opens a store that no process serves for reading.
func OpenFile(path string, o Options) (*storefile.File, error) {
	return storefile.Open(path, o.withDefaults().file())
}

// CheckFile checks a store that no process serves, see [storefile.Check].
func CheckFile(path string, o Options, found func(*CorruptError)) (storefile.Checked, error) {
	return storefile.Check(path, o.withDefaults().file(), found)
}

// BackupTo copies the store to a new file at path, see [storefile.Backup.To].
//
// Commits continue meanwhile. Pages that they free stay in use until the copy is
// complete, so the file may grow by as much as is written in that time. BackupTo ends
// with ctx, and with [ErrClosed] when the store is closed.
func (s *Bolt) BackupTo(ctx context.Context, path string) (int64, error) {
	if err := s.usable(); err != nil {
		return 0, err
	}
	return (&storefile.Backup{From: s.path, DB: s.db, Stop: s.leaving, Writer: s.o.tune.writer}).To(ctx, path)
}

// Failed implements [Store].
func (s *Bolt) Failed() <-chan struct{} { return s.failed }

// Err implements [Store].
func (s *Bolt) Err() error {
	if p := s.failure.Load(); p != nil {
		return *p
	}
	return nil
}

// fail makes the store refuse everything from then on.
func (s *Bolt) fail(cause error) error {
	err := fmt.Errorf("%w: %s: %w", ErrFailed, s.path, cause)
	if !s.failure.CompareAndSwap(nil, &err) {
		return *s.failure.Load() // by Fail
	}
	close(s.failed)
	s.o.Logger.Error("store: commit failed", "file", string(s.path), "error", cause)
	return err
}

// Close implements [Store].
func (s *Bolt) Close() error {
	var err error
	s.closing.Do(func() {
		close(s.leaving)
		s.box.close()
		s.done.Wait()
		s.committing.Lock() // for Apply
		defer s.committing.Unlock()
		if s.serving {
			s.closeClock()
		}
		if s.o.KeepConfirmed {
			s.keepConfirmed()
		}
		s.closed.Store(true)
		if s.serving && s.Err() == nil {
			err = s.file.Close()
		}
		err = errors.Join(err, s.path.CloseDB(s.db))
		if s.Err() != nil {
			storefile.ForgetCached(string(s.path))
		}
	})
	return err
}

// Stats implements [Store].
func (s *Bolt) Stats() Stats {
	s.mu.RLock()
	st := Stats{
		Messages:       s.segs.records - s.segs.finished,
		LiveBytes:      s.count.bytes,
		StoredMessages: s.segs.records,
		StoredBytes:    s.segs.weight - s.segs.records*recordWeight,
		Segments:       s.segs.n,
		States:         s.count.states,
		Histories:      s.count.history,
		Commits:        s.count.commits,
		CarriedTotal:   s.count.carried,
		CachedBytes:    s.cache.used,
	}
	if s.ahead { // the plan is committed
		st.Messages += int64(s.plan.alive)
		st.LiveBytes += s.plan.bytes
		st.StoredMessages += int64(s.plan.alive)
		st.StoredBytes += s.plan.bytes
		st.Commits++
	}
	for _, q := range s.queues {
		st.IndexBytes += q.index.memory()
	}
	s.mu.RUnlock()
	st.Waiting = s.box.count.Load()
	if fi, err := os.Stat(string(s.path)); err == nil {
		st.FileBytes = fi.Size()
	}
	return st
}
