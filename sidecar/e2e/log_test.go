package e2e

import (
	"bytes"
	"slices"
	"strings"
	"sync"
)

// logBuffer keeps the output of a child: everything since the last reset, without the middle
// above a size limit, and reports of races and panics.
type logBuffer struct {
	mu struct {
		sync.Mutex
		text []byte
		bad  []byte // from the first such report on, over all resets
	}
}

const logBound = 1 << 20

// Write implements io.Writer.
func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.text = append(b.mu.text, p...)
	if len(b.mu.text) > logBound {
		b.mu.text = append(b.mu.text[:logBound/4], b.mu.text[len(b.mu.text)-logBound/4:]...)
	}
	for _, sign := range []string{"WARNING: DATA RACE", "panic: ", "fatal error: "} {
		if i := bytes.Index(p, []byte(sign)); i >= 0 && len(b.mu.bad) == 0 {
			b.mu.bad = append(b.mu.bad, p[i:]...)
			return len(p), nil
		}
	}
	if n := len(b.mu.bad); n > 0 && n < 16<<10 {
		b.mu.bad = append(b.mu.bad, p...)
	}
	return len(p), nil
}

// String returns the kept output.
func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return string(b.mu.text)
}

func (b *logBuffer) bad() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return string(b.mu.bad)
}

func (b *logBuffer) reset() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.text = nil
}

// tail returns the last n lines.
func (b *logBuffer) tail(n int) string {
	lines := strings.Split(strings.TrimRight(b.String(), "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// lines returns the lines that are not empty.
func (b *logBuffer) lines() []string {
	var out []string
	for line := range strings.Lines(b.String()) {
		if line = strings.TrimSpace(line); line != "" {
			out = append(out, line)
		}
	}
	return out
}

// warnings returns the last n lines that are not routine.
func (b *logBuffer) warnings(n int) string {
	lines := slices.DeleteFunc(b.lines(), func(line string) bool { return strings.Contains(line, "level=INFO") })
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
