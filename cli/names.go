package cli

import (
	"github.com/filaq/fila/cli/command"
	"github.com/filaq/fila/cli/terminal"
)

// serve.go and config.go use these under the names of this package.
const (
	exitUsage     = command.ExitUsage
	defaultServer = command.DefaultServer
)

type msValue = terminal.Millis

var (
	needArgs      = command.Args
	usageError    = command.UsageError
	readBuildInfo = command.ReadBuildInfo
	parseMs       = terminal.ParseMs
)

// exitError is an error with the exit code of the process.
type exitError struct {
	code int
	error
}

// ExitCode returns the exit code of the process.
func (e *exitError) ExitCode() int { return e.code }

// Unwrap returns the cause.
func (e *exitError) Unwrap() error { return e.error }
