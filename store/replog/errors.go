package replog

import "errors"

var (
	// ErrLost is returned by Promote when the log has moved on since the caller looked:
	// another node has won, or the owner lives.
	ErrLost = errors.New("replog: the log has moved on")
	// ErrFull is returned by Promote when the stream has no room for an epoch record.
	ErrFull = errors.New("replog: the log is full")
	// ErrGone is returned for a log whose stream does not exist, or is not the one
	// that it was.
	ErrGone = errors.New("replog: the stream of the log is gone")
	// ErrForeign is returned for a stream or a file that belongs to something else: to
	// another cluster, incarnation or shard, or to none.
	ErrForeign = errors.New("replog: not of this cluster")
	// ErrReplicas is returned for a stream with fewer replicas than asked for.
	ErrReplicas = errors.New("replog: too few replicas")
	// ErrShorter is returned when the log lacks what a file has applied: it was
	// confirmed, and the stream has lost it.
	ErrShorter = errors.New("replog: the log is shorter than what was applied of it")
	// ErrGap is returned when the log begins behind what a file has applied, and there
	// is no snapshot between them.
	ErrGap = errors.New("replog: the log begins behind what was applied of it")
	// ErrUnknown is returned for a record that a newer fila has written: a follower
	// does not guess.
	ErrUnknown = errors.New("replog: written by a newer version of fila")
	// ErrBroken is returned for a record that cannot be read, makes no sense where it
	// is, or cannot be applied: log and file differ.
	ErrBroken = errors.New("replog: log and replica do not agree")
	// ErrClosed is returned after Close.
	ErrClosed = errors.New("replog: closed")
)
