package store

import (
	"errors"
	"fmt"
)

var (
	// ErrNotFound is returned when a message is not in the store (any more).
	ErrNotFound = errors.New("store: message not found")
	// ErrDuplicate is returned for a message whose Ref is taken.
	ErrDuplicate = errors.New("store: message exists already")
	// ErrNoQueue is returned for a queue that does not exist.
	ErrNoQueue = errors.New("store: no such queue")
	// ErrTooBig is returned for what exceeds MaxMessageBytes, MaxHeaderBytes or
	// MaxBatchBytes.
	ErrTooBig = errors.New("store: too big")
	// ErrInvalid is returned for a batch that makes no sense; the text says why.
	ErrInvalid = errors.New("store: invalid")
	// ErrClosed is returned after Close.
	ErrClosed = errors.New("store: closed")
	// ErrFailed is returned for every batch from the failed commit on. The
	// outcome of that commit is unknown until the store is opened again.
	ErrFailed = errors.New("store: a commit failed, its outcome is unknown until the store is reopened")
	// ErrFenced is returned for every batch once another owner has taken the store
	// over.
	ErrFenced = errors.New("store: another owner has taken the store over")
	// ErrLocked is returned by Open when another process has the file.
	ErrLocked = errors.New("store: file is in use by another process")
	// ErrVersion is returned by Open for a file of another format version; see
	// [VersionError].
	ErrVersion = errors.New("store: unknown format version")
	// ErrNotStore is returned by Open for a file that is something else.
	ErrNotStore = errors.New("store: not a fila store")
	// ErrCorrupt is what every [CorruptError] wraps.
	ErrCorrupt = errors.New("store: corrupt")
)

// VersionError is returned by Open for a file of a format that this program
// does not know.
type VersionError struct {
	File        string
	Found, Want uint32
}

func (e *VersionError) Error() string {
	return fmt.Sprintf("store: %s has format version %d, this program knows version %d", e.File, e.Found, e.Want)
}

// Unwrap makes errors.Is(err, ErrVersion) hold.
func (e *VersionError) Unwrap() error { return ErrVersion }

// CorruptError names a place in the file that cannot be trusted.
type CorruptError struct {
	File    string
	Part    string // "segment", "index", "bitmap", "state", "dedupe", "page", ...
	Segment uint64 // 0: not in a segment
	Offset  int64  // of an item within its value or, for "page" and "file", within the file; -1: all of it, or not known
	Reason  string
}

func (e *CorruptError) Error() string {
	s := "store: " + e.File + " is corrupt: " + e.Part
	if e.Segment != 0 {
		s += fmt.Sprintf(" of segment %d", e.Segment)
	}
	if e.Offset >= 0 {
		s += fmt.Sprintf(" at offset %d", e.Offset)
	}
	return s + ": " + e.Reason
}

// Unwrap makes errors.Is(err, ErrCorrupt) hold.
func (e *CorruptError) Unwrap() error { return ErrCorrupt }

// corrupt says in which place of the file err was found; nil stays nil. No item is at
// offset 0 of its value, where the head is: then it is the value itself.
func (s *Bolt) corrupt(part string, segment uint64, offset int64, err error) error {
	if err == nil {
		return nil
	}
	if offset == 0 {
		offset = -1
	}
	return &CorruptError{File: s.path, Part: part, Segment: segment, Offset: offset, Reason: err.Error()}
}

// metaError is like corrupt, for what lies outside of the segments.
func (s *Bolt) metaError(part string, err error) error { return s.corrupt(part, 0, -1, err) }

// What is wrong is said in the same words wherever it is met: keys of the configuration
// are quoted, other keys of the file are in hex.

func noQueueOf(ref Ref) error {
	return fmt.Errorf("message %d of queue %d, which does not exist", ref.Seq, ref.Queue)
}

func noMessage(ref Ref) error {
	return fmt.Errorf("message %d of queue %d does not exist", ref.Seq, ref.Queue)
}

func configPart(key []byte) string { return fmt.Sprintf("config %q", key) }

const corruptListed = 100

// note lists a [*CorruptError], if there is room, and counts it.
func (rs *RecoveryStats) note(err error) {
	var ce *CorruptError
	if rs.CorruptN++; errors.As(err, &ce) && len(rs.Corrupt) < corruptListed {
		rs.Corrupt = append(rs.Corrupt, ce)
	}
}
