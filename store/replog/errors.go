package replog

import "errors"

var (
	// ErrLost is returned by Promote if the log has newer records than the caller saw:
	// another node won, or the owner is alive.
	ErrLost = errors.New("replog: the log has moved on")
	// ErrFull is returned by Promote if the stream has no space for an epoch record.
	ErrFull = errors.New("replog: the log is full")
	// ErrGone is returned if the stream of a log does not exist, or was created again.
	ErrGone = errors.New("replog: the stream of the log is gone")
	// ErrForeign is returned for a stream or a file of another cluster, incarnation or
	// shard, or of none.
	ErrForeign = errors.New("replog: not of this cluster")
	// ErrReplicas is returned for a stream with fewer replicas than asked for.
	ErrReplicas = errors.New("replog: too few replicas")
	// ErrShorter is returned if the log lacks records that a file has applied: they were
	// confirmed, and the stream lost them.
	ErrShorter = errors.New("replog: the log is shorter than what was applied of it")
	// ErrGap is returned if the log starts behind the position of a file, and there is no
	// snapshot in between.
	ErrGap = errors.New("replog: the log begins behind what was applied of it")
	// ErrUnknown is returned for a record of a newer fila.
	ErrUnknown = errors.New("replog: written by a newer version of fila")
	// ErrBroken is returned for a record that cannot be read, is invalid at its place, or
	// cannot be applied: log and file differ.
	ErrBroken = errors.New("replog: log and replica do not agree")
	// ErrClosed is returned after Close.
	ErrClosed = errors.New("replog: closed")
)
