package store

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
)

// Version is the newest format version that this program reads and writes. A file
// begins with firstVersion, and has this one from the first history, the first lease that
// says when it began, or the first message with a priority on.
//
// The file is a bbolt file with these buckets:
//
//	meta       format (u32), secret (32 bytes), created (i64), next_queue (u32),
//	           tally, clock (of all since it is known), position (of a replica:
//	           how far it has a log, in that log's words): all sealed
//	segments   segment id (u64 big endian) -> a bucket with two blocks: "i", the
//	           header index, and "v", the records. A bucket of its own keeps the
//	           big values out of its neighbours' pages; "i" lies before "v", so
//	           that recovery does not touch payloads
//	bitmaps    segment id -> bitmap of finished records, if there are any
//	state      queue, seq -> state
//	history    queue, seq -> history; since version 2
//	dedupe     expiry, stamp -> block of dedupe ids
//	queues     queue id (u32 big endian) -> queue
//	consumers  queue id, name -> consumer
//	config     key -> value, sealed
const (
	Version      = 2
	firstVersion = 1
)

var (
	bucketMeta      = []byte("meta")
	bucketSegments  = []byte("segments")
	bucketBitmaps   = []byte("bitmaps")
	bucketState     = []byte("state")
	bucketHistory   = []byte("history") // made when it is needed
	bucketDedupe    = []byte("dedupe")
	bucketQueues    = []byte("queues")
	bucketConsumers = []byte("consumers")
	bucketConfig    = []byte("config")

	keyFormat    = []byte("format")
	keySecret    = []byte("secret")
	keyCreated   = []byte("created")
	keyNextQueue = []byte("next_queue")
	keyTally     = []byte("tally")
	keyClock     = []byte("clock")
	keyPosition  = []byte("position")
	keyIndex     = []byte("i")
	keyValue     = []byte("v")

	// buckets are there in each store.
	buckets = [][]byte{
		bucketMeta, bucketSegments, bucketBitmaps, bucketState, bucketDedupe,
		bucketQueues, bucketConsumers, bucketConfig,
	}
)

const pageSize = 4096

// Bolt is the [Store] on a bbolt file.
//
// Three goroutines meet here: the callers (Submit, Read, Stats), the committer,
// which alone changes anything, and the notifier, which calls Done. The
// committer reads what mu guards without the lock, as nobody else writes it.
type Bolt struct {
	path string
	o    Options
	db   *bbolt.DB

	box    mailbox
	notify notifier

	// gate is held while a commit becomes visible in the file and in memory: who
	// holds it for reading sees both agree.
	gate sync.RWMutex

	mu     sync.RWMutex
	ahead  bool // the plan is in the log and not yet in the file: it is read, and does not change
	queues map[QueueID]*queue
	segs   segTable
	cache  readCache
	count  counters

	// committing is held by whoever is the committer: the goroutine of that name, or
	// Apply.
	committing sync.Mutex

	// Owned by the committer.
	log         Log // nil: none
	plan        plan
	pace        pace
	nextQueue   QueueID
	format      uint32        // of the file
	dedupeFirst int64         // nothing in the dedupe log expires before
	loaded      RecoveryStats // what loading could not read
	clock       clock
	serving     bool // made by Open: Close writes the time

	closed  atomic.Bool
	failed  chan struct{}
	failure atomic.Pointer[error] // set once, before failed is closed
	done    sync.WaitGroup
	closing sync.Once
	leaving chan struct{} // closed when Close begins
}

var _ Store = (*Bolt)(nil)

// queue is what the store keeps in memory of a queue.
type queue struct {
	id    QueueID
	index seqIndex
}

type counters struct {
	bytes   int64 // live headers and payloads
	states  int64
	history int64 // messages that have one
	dedupes int64 // values in the log
	commits int64
	carried int64
}

// Open opens the store at path and makes it if there is none; the directory must
// exist. It returns [ErrLocked] when another process has the file,
// [*VersionError] (wrapping [ErrVersion]) for another format, [ErrNotStore] for
// a file that is something else, and [*CorruptError] for a file whose structure
// is broken. Single broken records do not fail it: [Bolt.Recover] names them.
func Open(path string, o Options) (*Bolt, error) {
	o = o.withDefaults()
	if err := create(path, o); err != nil {
		return nil, fmt.Errorf("store: cannot make %s: %w", path, err)
	}
	db, _, err := openDB(path, o, forServing)
	if err != nil {
		return nil, err
	}
	s := newBolt(path, o, db)
	s.serving = true
	return serve(s)
}

func newBolt(path string, o Options, db *bbolt.DB) *Bolt {
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

// serve loads what a store keeps in memory and starts its goroutines. It closes
// the file if it fails.
func serve(s *Bolt) (*Bolt, error) {
	if err := s.guard("open", s.load); err != nil {
		if cerr := s.db.Close(); cerr != nil {
			s.o.Logger.Warn("store: closing after a failed open", "file", s.path, "error", cerr)
		}
		return nil, err
	}
	s.box.init()
	s.notify.init()
	s.notify.onCommit = s.o.OnCommit
	s.done.Go(s.commitLoop)
	s.done.Go(s.notify.run)
	return s, nil
}

// openFor says what a file is opened for.
type openFor uint8

const (
	forServing openFor = iota
	forReading         // nothing is changed; others may read, too
	forRewrite         // nothing is changed, and nobody else may read
	forMaking          // it must not be there yet
)

// openDB opens the bbolt file after its structure has been checked, and returns
// what the check has counted.
func openDB(path string, o Options, why openFor) (*bbolt.DB, *pageChecker, error) {
	var file *os.File
	var refused error // by Options.Locked
	pages := &pageChecker{path: path}
	opt := bbolt.Options{
		Timeout:        o.Timeout,
		NoFreelistSync: true,
		FreelistType:   bbolt.FreelistMapType,
		PageSize:       pageSize,
		NoSync:         o.NoSync,
		NoGrowSync:     o.NoSync,
		NoStatistics:   true,
		ReadOnly:       why == forReading || why == forRewrite,
		OpenFile: func(name string, flag int, mode os.FileMode) (*os.File, error) {
			if why == forMaking {
				flag |= os.O_EXCL
			}
			f, err := openLocked(name, flag, mode, o.Timeout, why == forReading)
			if err != nil {
				return nil, err
			}
			if why == forServing && o.Locked != nil {
				if refused = o.Locked(); refused != nil {
					return nil, errors.Join(refused, f.Close())
				}
			}
			if why != forMaking {
				if err := pages.checkFile(f, o); err != nil {
					return nil, errors.Join(err, f.Close())
				}
			}
			file = f
			return f, nil
		},
	}
	var err error
	for _, size := range mapSizes() {
		if opt.InitialMmapSize = size; opt.ReadOnly {
			opt.InitialMmapSize = 0
		}
		var db *bbolt.DB
		err = guarded(path, "open", func() (err error) {
			db, err = bbolt.Open(path, 0o600, &opt)
			return err
		})
		if err == nil {
			return db, pages, nil
		}
		if file != nil {
			_ = file.Close() // nothing but a panic left it open, and with it the lock
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

// mapSizes are the sizes of address space to ask for. A write that outgrows the
// mapping waits for every open read, so it should never have to; but where the
// address space is limited a small one will do.
func mapSizes() []int {
	if runtime.GOOS == "windows" || strconv.IntSize == 32 {
		return []int{0} // Windows would make the file that large
	}
	large := 64
	return []int{large << 30, 1 << 30, 0}
}

// guard turns a panic of bbolt into an error. bbolt trusts its pages, and a page
// that went bad, or a read error under the mapping, shows as one.
func (s *Bolt) guard(what string, fn func() error) error { return guarded(s.path, what, fn) }

func guarded(path, what string, fn func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = &CorruptError{File: path, Part: "page", Offset: -1, Reason: fmt.Sprintf("%s: %v", what, p)}
		}
	}()
	return fn()
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

// fail makes the store refuse everything from now on.
func (s *Bolt) fail(cause error) error {
	err := fmt.Errorf("%w: %s: %w", ErrFailed, s.path, cause)
	if !s.failure.CompareAndSwap(nil, &err) {
		return *s.failure.Load() // by Fail
	}
	close(s.failed)
	s.o.Logger.Error("store: commit failed", "file", s.path, "error", cause)
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
		s.closed.Store(true)
		err = s.closeFile()
		if s.Err() != nil {
			forgetCached(s.path)
		}
	})
	return err
}

func (s *Bolt) closeFile() error {
	if err := s.guard("close", s.db.Close); err != nil {
		return fmt.Errorf("store: closing %s: %w", s.path, err)
	}
	return nil
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
	if s.ahead { // it is done
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
	if fi, err := os.Stat(s.path); err == nil {
		st.FileBytes = fi.Size()
	}
	return st
}
