package bench

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// readyWithin is how long a server process may take to get ready.
const readyWithin = 5 * time.Minute

// GarbagePercent is the GOGC of all processes of a run, the same for each
// system, unless the environment of `fila bench` names another. Measurements of
// memory leave it to each server.
const GarbagePercent = "400"

// runner starts the processes of a run.
type runner struct {
	exe string // this program
	dir string // for data
}

// child is a server process.
type child struct {
	cmd   *exec.Cmd
	url   string
	took  time.Duration // from the start until it was ready
	tail  *lastLines
	ended chan struct{} // closed when nothing more is printed
}

// server starts the server of a system with its data in dir, which may hold
// those of an earlier one.
func (r *runner) server(ctx context.Context, sys system, dir string, ownGC bool) (*child, error) {
	args := []string{"bench", "node", string(sys), dir}
	if sys.isFila() {
		// A file of its own keeps those of the machine out.
		file := filepath.Join(dir, "bench.toml")
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			return nil, err
		}
		args = []string{
			"serve", "--config", file, "--data-dir", filepath.Join(dir, "data"),
			"--port", "-1", "--http", "", "--log-level", "warn",
		}
	}
	cmd := exec.CommandContext(ctx, r.exe, args...)
	cmd.Env = environment(os.Environ(), ownGC)
	cmd.Dir = dir
	c := &child{cmd: cmd, tail: &lastLines{}, ended: make(chan struct{})}
	if err := c.start(string(sys)); err != nil {
		return nil, err
	}
	return c, nil
}

func (c *child) start(name string) error {
	dieWithParent(c.cmd)
	read, write := io.Pipe()
	c.cmd.Stdout, c.cmd.Stderr = write, write
	begin := time.Now()
	if err := c.cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", name, err)
	}
	ready := make(chan string, 1)
	go func() {
		defer close(c.ended)
		lines := bufio.NewScanner(read)
		for lines.Scan() {
			if url, ok := readyURL(lines.Text()); ok {
				select {
				case ready <- url:
				default:
				}
				continue
			}
			c.tail.add(lines.Text())
		}
		_, _ = io.Copy(io.Discard, read) // after a line that is too long
	}()
	go func() {
		_ = c.cmd.Wait() // how it ended is in its state
		_ = write.Close()
	}()
	timer := time.NewTimer(readyWithin)
	defer timer.Stop()
	select {
	case c.url = <-ready:
		c.took = time.Since(begin)
		return nil
	case <-c.ended:
		return fmt.Errorf("the %s server ended (%s): %s", name, c.cmd.ProcessState, c.tail)
	case <-timer.C:
		c.kill()
		return fmt.Errorf("the %s server is not ready after %s: %s", name, readyWithin, c.tail)
	}
}

// kill ends the process as a crash would, and returns when it is gone.
func (c *child) kill() {
	_ = c.cmd.Process.Kill() // it may have ended by itself
	<-c.ended
}

// readyURL finds the NATS URL in the line that a server prints when it is ready.
func readyURL(line string) (string, bool) {
	if !strings.Contains(line, " is ready: ") {
		return "", false
	}
	for field := range strings.FieldsSeq(line) {
		if url, ok := strings.CutPrefix(field, "nats="); ok {
			return url, true
		}
	}
	return "", false
}

// environment is that of child processes: without the variables that would
// configure fila, and with the common GOGC.
func environment(own []string, ownGC bool) []string {
	env := slices.DeleteFunc(slices.Clone(own), func(v string) bool { return strings.HasPrefix(v, "FILA_") })
	set := slices.ContainsFunc(own, func(v string) bool { return strings.HasPrefix(v, "GOGC=") })
	if !set && !ownGC {
		env = append(env, "GOGC="+GarbagePercent)
	}
	return env
}

// load runs a load process to its end. point gets the figures of each interval
// as it ends.
func (r *runner) load(ctx context.Context, spec *loadSpec, point func(Sample)) (loadResult, error) {
	var result loadResult
	instructions, err := json.Marshal(spec)
	if err != nil {
		return result, err
	}
	// An interrupted load gets the time to delete its queue.
	cmd := exec.CommandContext(ctx, r.exe, "bench", "load")
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 20 * time.Second
	dieWithParent(cmd)
	var problems bytes.Buffer
	cmd.Stdin, cmd.Stderr = bytes.NewReader(instructions), &problems
	cmd.Env = environment(os.Environ(), false)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return result, err
	}
	if err := cmd.Start(); err != nil {
		return result, fmt.Errorf("start the load process: %w", err)
	}
	result, unread := readAnswers(out, point)
	_, _ = io.Copy(io.Discard, out) // it may have more to say before it ends
	if err := cmd.Wait(); err != nil {
		if ctx.Err() != nil {
			return result, ctx.Err()
		}
		return result, fmt.Errorf("the load process failed: %w: %s", err, strings.TrimSpace(problems.String()))
	}
	if unread != nil {
		return result, fmt.Errorf("the load process printed no result: %w", unread)
	}
	if result.Error != "" {
		return result, errors.New(strings.Join(append([]string{result.Error}, result.Notes...), "; "))
	}
	return result, nil
}

// readAnswers reads what a load process prints, up to its result.
func readAnswers(in io.Reader, point func(Sample)) (loadResult, error) {
	answers := json.NewDecoder(in)
	for {
		var result loadResult
		if err := answers.Decode(&result); err != nil {
			return loadResult{}, err
		}
		if result.Point == nil {
			return result, nil
		}
		point(result.Point)
	}
}

// lastLines keeps the last lines of what a process prints.
type lastLines struct {
	mu struct {
		sync.Mutex
		lines []string
	}
}

func (l *lastLines) add(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.lines = append(l.mu.lines, line)
	if n := len(l.mu.lines); n > 5 {
		l.mu.lines = slices.Delete(l.mu.lines, 0, n-5)
	}
}

// String returns them as one line.
func (l *lastLines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.mu.lines) == 0 {
		return "it printed nothing"
	}
	return strings.Join(l.mu.lines, "; ")
}

// mergeSamples puts the figures of several steps of one measurement together.
func mergeSamples(into Sample, more Sample) Sample {
	if into == nil {
		into = Sample{}
	}
	maps.Copy(into, more)
	return into
}
