package cli

import (
	"errors"
	"fmt"
	"io/fs"
)

// Exit codes of the fila command. The hook commands have their own meaning of
// 1, 2 and 3 (see `fila hook run --help`).
const (
	exitOK       = 0 // done
	exitFailed   = 1 // anything that has no code of its own
	exitUsage    = 2 // wrong arguments, flags or configuration
	exitNotFound = 4 // no such queue, key or message (404)
	exitConflict = 5 // it exists already, is not empty, or the lease is lost (409)
	exitRefused  = 6 // refused for now: backlog full or draining (429, 503)
	exitConnect  = 7 // no NATS server, or no fila behind it
)

// exitError is an error with the exit code that main returns for it. Commands
// return it when the code is not plain failure.
type exitError struct {
	code int
	err  error
}

// Error returns the text of the cause.
func (e *exitError) Error() string { return e.err.Error() }

// Unwrap returns the cause.
func (e *exitError) Unwrap() error { return e.err }

// ExitCode returns the exit code of the process.
func (e *exitError) ExitCode() int { return e.code }

// usageError reports a wrong argument, flag or configuration.
func usageError(format string, args ...any) error {
	return &exitError{code: exitUsage, err: fmt.Errorf(format, args...)}
}

// exitCode returns the exit code for an error that a command returned.
func exitCode(err error) int {
	if err == nil {
		return exitOK
	}
	var coded interface{ ExitCode() int }
	if errors.As(err, &coded) {
		return coded.ExitCode()
	}
	return exitFailed
}

// errInterrupted is returned when a signal ended the work before it was done.
var errInterrupted = errors.New("interrupted")

// pathReason strips operation and path from a file error: the caller names the
// path already.
func pathReason(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	return err
}
