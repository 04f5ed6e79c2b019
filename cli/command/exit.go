package command

import (
	"errors"
	"fmt"
	"io/fs"
)

// Exit codes of the fila command. The hook commands have their own meaning of
// 1, 2 and 3 (see `fila hook run --help`).
const (
	ExitOK       = 0 // done
	ExitFailed   = 1 // anything that has no code of its own
	ExitUsage    = 2 // wrong arguments, flags or configuration
	ExitNotFound = 4 // no such queue, key or message (404)
	ExitConflict = 5 // it exists already, is not empty, or the lease is lost (409)
	ExitRefused  = 6 // refused for now: backlog full or draining (429, 503)
	ExitConnect  = 7 // no NATS server, or no fila behind it
	ExitDenied   = 8 // NATS permissions do not allow it
	ExitInDoubt  = 9 // done, but the store's last commit may be missing
)

// ExitError is an error with the exit code that main returns for it. Commands
// return it when the code is not plain failure.
type ExitError struct {
	Code int
	Err  error
}

// Error returns the text of the cause.
func (e *ExitError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *ExitError) Unwrap() error { return e.Err }

// Exit gives an error an exit code.
func Exit(code int, err error) error { return &ExitError{code, err} }

// UsageError reports a wrong argument, flag or configuration.
func UsageError(format string, args ...any) error {
	return Exit(ExitUsage, fmt.Errorf(format, args...))
}

// ExitCode returns the exit code for an error that a command returned.
func ExitCode(err error) int {
	if err == nil {
		return ExitOK
	}
	var coded *ExitError
	if errors.As(err, &coded) {
		return coded.Code
	}
	return ExitFailed
}

// ErrInterrupted is returned when a signal ended the work before it was done.
var ErrInterrupted = errors.New("interrupted")

// PathReason strips operation and path from a file error: the caller names the
// path already.
func PathReason(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	return err
}
