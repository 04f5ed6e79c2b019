package storefile

import (
	"errors"
	"fmt"
	"io/fs"
	"runtime/debug"
)

var (
	// ErrClosed is returned for a file that was closed.
	ErrClosed = errors.New("store: closed")
	// ErrLocked is returned if another process uses the file.
	ErrLocked = errors.New("store: file is in use by another process")
	// ErrVersion is returned for a file of another format version; see [VersionError].
	ErrVersion = errors.New("store: unknown format version")
	// ErrNotStore is returned for a file that is no store.
	ErrNotStore = errors.New("store: not a fila store")
	// ErrCorrupt is wrapped by every [CorruptError].
	ErrCorrupt = errors.New("store: corrupt")
)

// VersionError is returned for a file of a format that this program does not know.
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

// Path is the path of a store file. Its methods name the file in errors.
type Path string

// Corrupt converts an error to a [CorruptError] of a part of the file; nil stays nil.
// No item is at offset 0 of its value, where the header is: 0 means the whole value.
func (p Path) Corrupt(part string, segment uint64, offset int64, err error) error {
	if err == nil {
		return nil
	}
	if offset == 0 {
		offset = -1
	}
	return &CorruptError{File: string(p), Part: part, Segment: segment, Offset: offset, Reason: err.Error()}
}

// CorruptMeta is like Corrupt, for everything outside of the segments.
func (p Path) CorruptMeta(part string, err error) error { return p.Corrupt(part, 0, -1, err) }

// Guard turns a panic of bbolt in fn into a [CorruptError]. bbolt trusts its pages, so
// a damaged page, or a read error under the mapping, causes a panic.
func (p Path) Guard(what string, fn func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			err = &CorruptError{File: string(p), Part: "page", Offset: -1, Reason: fmt.Sprintf("%s: %v", what, r)}
		}
	}()
	return fn()
}

// Missing reports whether an error means that a file does not exist.
func Missing(err error) bool { return errors.Is(err, fs.ErrNotExist) }

// ErrNoQueueOf is the reason for a record about a message of a queue that does not exist.
func ErrNoQueueOf(ref Ref) error {
	return fmt.Errorf("message %d of queue %d, which does not exist", ref.Seq, ref.Queue)
}

// ErrNoMessage is the reason for a record about a message that does not exist.
func ErrNoMessage(ref Ref) error {
	return fmt.Errorf("message %d of queue %d does not exist", ref.Seq, ref.Queue)
}
