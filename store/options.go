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
	// ReadCacheBytes bounds the memory for the bytes of the latest segments, so that
	// new messages are read without the file. Default 64 MiB; negative: no cache.
	ReadCacheBytes int64

	// MaxCommitBytes bounds a group commit, in addition to the bound by time. Default
	// 64 MiB. A single larger batch is still one commit.
	MaxCommitBytes int64

	// CompactRatio starts compaction when the stored messages, or their bytes, are more
	// than this multiple of the live ones. Default 2, minimum 1.1.
	CompactRatio float64

	// CompactMinBytes is the stored size below which segments are not compacted because
	// of finished messages. Default 4 MiB.
	CompactMinBytes int64

	// Timeout is how long Open waits for the file lock. Default 250 ms.
	Timeout time.Duration

	// Now is the clock, in Unix nanoseconds, for the expiry of dedupe ids and to notice
	// a clock that was set back. Default time.Now.
	Now func() int64

	// Logger is the log. Default: none.
	Logger *slog.Logger

	// Locked is called when this process has the file lock, before the file is read and
	// checked, which takes long if it is large. An error ends Open and is returned. It is
	// called again if the file could not be mapped at once.
	Locked func() error

	// Join is [storefile.HistoryRules.Join].
	Join func(last, next []byte) []byte

	// Keep is [storefile.HistoryRules.Keep].
	Keep func(record []byte) bool

	// OnCommit is called after each commit, before the Done calls of its
	// batches and from the same goroutine.
	OnCommit func(CommitStats)

	// KeepConfirmed keeps the newest confirmed commit in path.confirmed, see
	// [storefile.Confirmed], and makes Open refuse an older file with a [*LostError]. It is
	// for synced files without a [Log].
	KeepConfirmed bool

	// NoSync leaves out the sync of each commit: a crash of the machine may then lose or
	// break the file. For tests, benchmarks, and files that can be rebuilt.
	NoSync bool

	tune tuning
}

// tuning has settings that only tests change.
type tuning struct {
	coldBytes      int   // bytes of moved messages from which they get their own segments
	segmentRecords int   // maximum records of a segment
	segmentBytes   int64 // maximum bytes of a segment
	allocBytes     int   // growth of the file; 0: depends on its size
	mergeFanIn     int   // number of small segments of one tier that are merged
	carryBytes     int64 // minimum bytes that compaction may carry per commit

	step   func(name string) error   // called between the steps of a rewrite, and between log and file
	writer func(io.Writer) io.Writer // wraps the file of a backup
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
	Duration time.Duration // from the start of planning to the sync
	Batches  int           // including refused ones
}

// Stats are the figures of a store.
type Stats struct {
	Messages       int64 // live
	LiveBytes      int64 // headers and payloads of live messages
	StoredMessages int64 // live ones, and finished ones that still use space
	StoredBytes    int64
	FileBytes      int64
	Segments       int64
	States         int64
	Histories      int64
	Commits        int64
	CarriedTotal   int64 // messages that compaction wrote again
	CachedBytes    int64 // of the read cache
	IndexBytes     int64 // approximate memory of the location index
	Waiting        int64 // batches not yet committed
}
