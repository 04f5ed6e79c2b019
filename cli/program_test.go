package cli

import (
	"context"
	"strings"
	"testing"

	"github.com/filaq/fila/cli/clitest"
	"github.com/filaq/fila/cli/command"
)

const (
	exitOK     = command.ExitOK
	exitFailed = command.ExitFailed
)

// result is what a run of the command left behind.
type result struct {
	code     int
	out, err string
}

func runCLI(t *testing.T, in string, args ...string) result {
	t.Helper()
	return runApp(t, t.Context(), &app{}, in, args...)
}

func runApp(t *testing.T, ctx context.Context, a *app, in string, args ...string) result {
	t.Helper()
	var out, errOut clitest.Buffer
	code := run(ctx, a, args, strings.NewReader(in), &out, &errOut)
	return result{code, out.String(), errOut.String()}
}

func isolate(t *testing.T) (configHome string) { return clitest.Isolate(t) }
