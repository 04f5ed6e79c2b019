package bench

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/filaq/fila/bench/load"
	"github.com/filaq/fila/bench/measure"
	"github.com/filaq/fila/bench/system"
)

// readyWithin bounds the start of a server process.
const readyWithin = 5 * time.Minute

// GarbagePercent is the GOGC of all processes of a run, unless the environment of `fila bench`
// sets another. Measurements of memory use each server's default.
const GarbagePercent = "400"

// tailLines is the number of last lines to keep of a process.
const tailLines = 5

// runner starts the processes of a run.
type runner struct {
	exe string // this program
	dir string // for data
}

// child is a process of a run.
type child struct {
	cmd   *exec.Cmd
	ended chan struct{} // closed when the process has ended and its output is read
	// The last lines for people, and the exit error; valid after ended.
	tail []string
	err  error
}

// lastLines returns the last lines of a process that has ended.
func (c *child) lastLines() string {
	if len(c.tail) == 0 {
		return "it printed nothing"
	}
	return strings.Join(c.tail, "; ")
}

// start starts a process. line gets its output by line, and reports whether it used the line;
// the others are for people.
func (r *runner) start(cmd *exec.Cmd, ownGC bool, line func([]byte) bool) (*child, error) {
	cmd.Env = environment(os.Environ(), ownGC)
	DieWithParent(cmd)
	read, write := io.Pipe()
	cmd.Stdout, cmd.Stderr = write, write
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	c := &child{cmd: cmd, ended: make(chan struct{})}
	go func() {
		c.err = cmd.Wait()
		_ = write.Close()
	}()
	go func() {
		defer close(c.ended)
		for lines := bufio.NewReader(read); ; {
			text, err := lines.ReadBytes('\n')
			if text = bytes.TrimSpace(text); len(text) > 0 && !line(text) {
				c.tail = append(c.tail[max(len(c.tail)-tailLines+1, 0):], string(text))
			}
			if err != nil {
				return
			}
		}
	}()
	return c, nil
}

// kill ends the process as a crash would, and returns when it is gone.
func (c *child) kill() {
	_ = c.cmd.Process.Kill() // it may have ended
	<-c.ended
}

// server is a server process that is ready.
type server struct {
	*child
	others []*child // of a cluster
	url    string
	took   time.Duration // from the start until it was ready
}

// kill kills all processes of the server.
func (s *server) kill() {
	for _, c := range s.others {
		c.kill()
	}
	s.child.kill()
}

// server starts the server of a system on the data in dir.
func (r *runner) server(ctx context.Context, sys system.Name, dir string, ownGC bool) (*server, error) {
	if sys.IsCluster() {
		return r.cluster(ctx, sys, dir, ownGC)
	}
	args := []string{"bench", "node", string(sys), dir}
	if sys.IsFila() {
		// With its own configuration file the server ignores the machine's.
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
	cmd.Dir = dir
	return r.ready(cmd, sys, ownGC)
}

// ready starts a server process and returns when it prints that it is ready.
func (r *runner) ready(cmd *exec.Cmd, sys system.Name, ownGC bool) (*server, error) {
	ready := make(chan string, 1)
	begin := time.Now()
	c, err := r.start(cmd, ownGC, func(line []byte) bool {
		url, ok := readyURL(string(line))
		if ok {
			select {
			case ready <- url:
			default: // it has been reported before
			}
		}
		return ok
	})
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", sys, err)
	}
	select {
	case url := <-ready:
		return &server{child: c, url: url, took: time.Since(begin)}, nil
	case <-c.ended:
		return nil, fmt.Errorf("the %s server ended (%s): %s", sys, cmd.ProcessState, c.lastLines())
	case <-time.After(readyWithin):
		c.kill()
		return nil, fmt.Errorf("the %s server is not ready after %s: %s", sys, readyWithin, c.lastLines())
	}
}

// readyURL finds the NATS URL in a server's ready line.
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

// environment returns the environment of child processes: without the variables of fila, and
// with the common GOGC.
func environment(own []string, ownGC bool) []string {
	env := slices.DeleteFunc(slices.Clone(own), func(v string) bool { return strings.HasPrefix(v, "FILA_") })
	set := slices.ContainsFunc(own, func(v string) bool { return strings.HasPrefix(v, "GOGC=") })
	if !set && !ownGC {
		env = append(env, "GOGC="+GarbagePercent)
	}
	return env
}

// load runs a load process. point gets the figures of each interval.
func (r *runner) load(ctx context.Context, spec *load.Spec, point func(measure.Sample)) (load.Result, error) {
	instructions, err := json.Marshal(spec)
	if err != nil {
		return load.Result{}, err
	}
	cmd := exec.CommandContext(ctx, r.exe, "bench", "load")
	cmd.Stdin = bytes.NewReader(instructions)
	// An interrupted load gets time to delete its queue.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 20 * time.Second
	var last *load.Result
	c, err := r.start(cmd, false, func(line []byte) bool {
		var answer load.Result
		if json.Unmarshal(line, &answer) != nil {
			return false
		}
		if answer.Point != nil {
			point(answer.Point)
		} else {
			last = &answer
		}
		return true
	})
	if err != nil {
		return load.Result{}, fmt.Errorf("start the load process: %w", err)
	}
	<-c.ended
	switch {
	case c.err != nil && ctx.Err() != nil:
		return load.Result{}, ctx.Err()
	case c.err != nil:
		return load.Result{}, fmt.Errorf("the load process failed: %w: %s", c.err, c.lastLines())
	case last == nil:
		return load.Result{}, fmt.Errorf("the load process printed no result: %s", c.lastLines())
	case last.Error != "":
		return *last, errors.New(strings.Join(append([]string{last.Error}, last.Notes...), "; "))
	}
	return *last, nil
}
