package command

import (
	"errors"
	"fmt"
	"io/fs"
)

// Exit codes of the fila command. The hook commands define 1, 2 and 3 differently (see `fila
// hook run --help`).
const (
	ExitOK       = 0 // done
	ExitFailed   = 1 // any other failure
	ExitUsage    = 2 // wrong arguments, flags or configuration
	ExitNotFound = 4 // no such queue, key or message (404)
	ExitConflict = 5 // already exists, not empty, or lease lost (409)
	ExitRefused  = 6 // refused temporarily: backlog full or draining (429, 503)
	ExitConnect  = 7 // no NATS server, or no fila connected to it
	ExitDenied   = 8 // NATS permissions do not allow it
	ExitInDoubt  = 9 // done, but the store's last commit may be missing, or confirmed commits are

	// Of fila status.
	ExitWarning  = 10 // the worst finding is a warning, or a node did not answer
	ExitCritical = 11 // the worst finding is critical
)

// ExitError is an error with the exit code for main. Commands return it for errors other than
// plain failures.
type ExitError struct {
	Code int
	Err  error
}

// Error returns the text of the cause.
func (e *ExitError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *ExitError) Unwrap() error { return e.Err }

// Exit adds an exit code to an error.
func Exit(code int, err error) error { return &ExitError{code, err} }

// UsageError reports a wrong argument, flag or configuration.
func UsageError(format string, args ...any) error {
	return Exit(ExitUsage, fmt.Errorf(format, args...))
}

// ExitCode returns the exit code of a command's error.
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

// ErrInterrupted is returned when a signal ends unfinished work.
var ErrInterrupted = errors.New("interrupted")

// PathReason removes operation and path from a file error whose path the caller prints itself.
func PathReason(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	return err
}
