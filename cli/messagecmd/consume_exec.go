package messagecmd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
	"unicode"

	"github.com/filaq/fila/client"
)

// killAfter is how long a terminated command may take to end, and how long its children may
// keep its output open afterwards.
const killAfter = 5 * time.Second

// run runs the command for a message. It returns nil if the message is to be acked.
func (c *consumption) run(ctx context.Context, m *client.Message) *client.NackOptions {
	cmd := shellCommand(ctx, c.flags.command)
	tail := &tailWriter{w: c.notices}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(m.Data), c.out, tail
	cmd.Env = append(os.Environ(), headerVariables(m.Header)...)
	cmd.WaitDelay = killAfter
	err := cmd.Run()
	if cmd.ProcessState != nil && cmd.ProcessState.Success() && ctx.Err() == nil {
		return nil // nil even if a child still has the command's output open
	}
	nack := &client.NackOptions{Error: tail.last()}
	var ended *exec.ExitError
	switch {
	case ctx.Err() != nil:
		nack.Error, nack.Code = "the command was ended: "+context.Cause(ctx).Error(), "ended"
	case errors.As(err, &ended):
		nack.Code = exitText(ended.ProcessState)
	default:
		c.notice(fmt.Errorf("--exec: %w", err))
		nack.Error, nack.Code = err.Error(), "not-started"
	}
	if nack.Error == "" {
		nack.Error = nack.Code
	}
	return nack
}

// exitText names the end of a process: exit-1, signal-9.
func exitText(p *os.ProcessState) string {
	if status, ok := p.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return fmt.Sprintf("signal-%d", status.Signal())
	}
	return fmt.Sprintf("exit-%d", p.ExitCode())
}

// headerVariables converts headers to environment variables. It joins several values with
// commas, also the values of headers whose names become equal as variables.
func headerVariables(h map[string][]string) []string {
	values := map[string][]string{}
	for _, name := range slices.Sorted(maps.Keys(h)) {
		variable := "FILA_HEADER_" + strings.Map(variableRune, name)
		values[variable] = append(values[variable], h[name]...)
	}
	var env []string
	for _, variable := range slices.Sorted(maps.Keys(values)) {
		// A variable cannot hold a NUL.
		env = append(env, variable+"="+strings.ReplaceAll(strings.Join(values[variable], ", "), "\x00", ""))
	}
	return env
}

func variableRune(r rune) rune {
	switch {
	case r < unicode.MaxASCII && (unicode.IsLetter(r) || unicode.IsDigit(r)):
		return unicode.ToUpper(r)
	}
	return '_'
}

// tailWriter passes its input on and remembers the end of it.
type tailWriter struct {
	w  io.Writer
	mu sync.Mutex
	// the last bytes, at most twice maxTail
	kept []byte
}

// maxTail is more than fila keeps of an error.
const maxTail = 4 << 10

func (t *tailWriter) Write(p []byte) (int, error) {
	t.mu.Lock()
	t.kept = append(t.kept, p...)
	if over := len(t.kept) - maxTail; over > maxTail {
		t.kept = append(t.kept[:0], t.kept[over:]...)
	}
	t.mu.Unlock()
	return t.w.Write(p)
}

// last returns the last line that is not empty.
func (t *tailWriter) last() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	lines := strings.Split(strings.ToValidUTF8(string(t.kept), "?"), "\n")
	for _, line := range slices.Backward(lines) {
		if line = strings.TrimSpace(line); line != "" {
			return line
		}
	}
	return ""
}
