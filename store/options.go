package store

import (
	"cmp"
	"io"
	"log/slog"
	"time"

	"github.com/filaq/fila/store/storefile"
)

// Options tune a [Bolt]. The zero value is good for production.
type Options struct {
	// ReadCacheBytes bounds the memory that keeps the bytes of the latest
	// segments, so that fresh messages are read without touching the file.
	// Default 64 MiB; negative: no cache.
	ReadCacheBytes int64

	// MaxCommitBytes is where a group commit stops taking further batches, if it
	// does not stop before because it would take too long. Default 64 MiB. A single
	// batch above it is still one commit.
	MaxCommitBytes int64

	// CompactRatio starts compaction when the stored messages, or their bytes,
	// exceed the live ones this many times. Default 2, smallest 1.1.
	CompactRatio float64

	// CompactMinBytes is the stored size below which segments are not
	// compacted for their dead messages. Default 4 MiB.
	CompactMinBytes int64

	// Timeout is how long Open waits for the file lock. Default 250 ms.
	Timeout time.Duration

	// Now is the clock, in Unix nanoseconds: for the expiry of dedupe ids, and to
	// notice that it has been set back. Default time.Now.
	Now func() int64

	// Logger gets the few lines that the store has to say. Default: none.
	Logger *slog.Logger

	// Locked is called once the file is this process's, before it is read and
	// checked, which takes long if it is large. An error ends Open, which returns it
	// as it is. It is called again if the file could not be mapped at once.
	Locked func() error

	// Join makes one record of the newest of a history and the next one; nil, and what
	// is too long: they stay two. It must depend on nothing but them, since copies of a
	// store make their histories themselves. Default: none.
	Join func(last, next []byte) []byte

	// Keep reports whether a record of a history is kept for longer than others: the newest
	// of those that would be forgotten is not. It must depend on nothing but the record.
	// Default: none is.
	Keep func(record []byte) bool

	// OnCommit is called after each commit, before the Done calls of its
	// batches and from the same goroutine.
	OnCommit func(CommitStats)

	// NoSync leaves out the sync of each commit: a crash of the machine may
	// then lose or break the file. For tests, benchmarks, and files that can be made
	// again.
	NoSync bool

	tune tuning
}

// tuning holds what only tests change.
type tuning struct {
	coldBytes      int   // from where on what a commit moves has segments of its own
	segmentRecords int   // most records in one segment
	segmentBytes   int64 // a segment is closed when it is larger
	allocBytes     int   // the file grows by so much; 0: by its size
	mergeFanIn     int   // small segments of one tier are merged at this number
	carryBytes     int64 // compaction carries at least so much per commit

	step   func(name string) error   // called between the steps of a rewrite, and between log and file
	writer func(io.Writer) io.Writer // put before the file of a backup
}

func (o Options) withDefaults() Options {
	o.ReadCacheBytes = cmp.Or(o.ReadCacheBytes, 64<<20)
	if o.MaxCommitBytes <= 0 {
		o.MaxCommitBytes = 64 << 20
	}
	o.CompactRatio = max(cmp.Or(o.CompactRatio, 2), 1.1)
	o.CompactMinBytes = cmp.Or(o.CompactMinBytes, 4<<20)
	if o.Timeout <= 0 {
		o.Timeout = 250 * time.Millisecond
	}
	if o.Now == nil {
		o.Now = func() int64 { return time.Now().UnixNano() }
	}
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	t := &o.tune
	t.coldBytes = cmp.Or(t.coldBytes, 64<<10)
	t.segmentRecords = cmp.Or(t.segmentRecords, 8192)
	t.segmentBytes = cmp.Or(t.segmentBytes, 8<<20)
	t.mergeFanIn = cmp.Or(t.mergeFanIn, 16)
	t.carryBytes = cmp.Or(t.carryBytes, 256<<10)
	return o
}

// file returns the options for the file.
func (o Options) file() storefile.Options {
	return storefile.Options{Timeout: o.Timeout, Now: o.Now, Logger: o.Logger, Locked: o.Locked, NoSync: o.NoSync}
}

// CommitStats describes one group commit.
type CommitStats struct {
	Duration time.Duration // from the first look at the batches to the sync
	Batches  int           // refused ones included
}

// Stats is a picture of the store.
type Stats struct {
	Messages       int64 // live
	LiveBytes      int64 // their headers and payloads
	StoredMessages int64 // live ones and finished ones not yet compacted away
	StoredBytes    int64
	FileBytes      int64
	Segments       int64
	States         int64
	Histories      int64 // messages that have one
	Commits        int64
	CarriedTotal   int64 // messages that compaction has written again
	CachedBytes    int64 // of the read cache
	IndexBytes     int64 // memory of the location index, about
	Waiting        int64 // batches not yet committed
}
