package store

import (
	"errors"

	"github.com/filaq/fila/store/storefile"
)

var (
	// ErrNotFound is returned for a message that is not in the store.
	ErrNotFound = errors.New("store: message not found")
	// ErrDuplicate is returned for a message whose Ref is taken.
	ErrDuplicate = errors.New("store: message exists already")
	// ErrNoQueue is returned for a queue that does not exist.
	ErrNoQueue = errors.New("store: no such queue")
	// ErrTooBig is returned for a batch that exceeds MaxMessageBytes, MaxHeaderBytes or
	// MaxBatchBytes.
	ErrTooBig = errors.New("store: too big")
	// ErrInvalid is returned for an invalid batch; the text says why.
	ErrInvalid = errors.New("store: invalid")
	// ErrFailed is returned for every batch from a failed commit on. The outcome of
	// that commit is unknown until the store is opened again.
	ErrFailed = errors.New("store: a commit failed, its outcome is unknown until the store is reopened")
	// ErrFenced is returned for every batch after another owner has taken over the
	// store.
	ErrFenced = errors.New("store: another owner has taken the store over")

	// ErrClosed is returned after Close.
	ErrClosed = storefile.ErrClosed
	// ErrLocked is returned by Open if another process uses the file.
	ErrLocked = storefile.ErrLocked
	// ErrVersion is returned by Open for a file of another format version; see
	// [VersionError].
	ErrVersion = storefile.ErrVersion
	// ErrNotStore is returned by Open for a file that is no store.
	ErrNotStore = storefile.ErrNotStore
	// ErrCorrupt is wrapped by every [CorruptError].
	ErrCorrupt = storefile.ErrCorrupt
)

// Fatal returns err unless it only says that single messages are gone or unreadable.
func Fatal(err error) error {
	if errors.Is(err, ErrNotFound) || errors.Is(err, ErrCorrupt) {
		return nil
	}
	return err
}

type (
	// VersionError is about a file of a format that this program does not know.
	VersionError = storefile.VersionError
	// CorruptError names a place in the file that cannot be trusted.
	CorruptError = storefile.CorruptError
	// LostError is about a store that lacks commits which it had confirmed.
	LostError = storefile.LostError
)

const corruptListed = 100

// note counts a [*CorruptError] and lists it if there is room.
func (rs *RecoveryStats) note(err error) {
	var ce *CorruptError
	if rs.CorruptN++; errors.As(err, &ce) && len(rs.Corrupt) < corruptListed {
		rs.Corrupt = append(rs.Corrupt, ce)
	}
}
