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
	exe   string // this program
	peers string // the program with the servers and clients of peers
	dir   string // for data
}

// Process is a child process whose output is read by line.
type Process struct {
	cmd   *exec.Cmd
	ended chan struct{} // closed when the process has ended and its output is read
	// The last lines for people, and the exit error; valid after ended.
	tail []string
	err  error
}

// Ended returns a channel that is closed when the process has ended.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// LastLines returns the last lines of a process that has ended.
func (p *Process) LastLines() string {
	if len(p.tail) == 0 {
		return "it printed nothing"
	}
	return strings.Join(p.tail, "; ")
}

// start starts a process. line gets its output by line, and reports whether it used the line;
// the others are for people.
func start(cmd *exec.Cmd, ownGC bool, line func([]byte) bool) (*Process, error) {
	cmd.Env = environment(os.Environ(), ownGC)
	DieWithParent(cmd)
	read, write := io.Pipe()
	cmd.Stdout, cmd.Stderr = write, write
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &Process{cmd: cmd, ended: make(chan struct{})}
	go func() {
		p.err = cmd.Wait()
		_ = write.Close()
	}()
	go func() {
		defer close(p.ended)
		for lines := bufio.NewReader(read); ; {
			text, err := lines.ReadBytes('\n')
			if text = bytes.TrimSpace(text); len(text) > 0 && !line(text) {
				p.tail = append(p.tail[max(len(p.tail)-tailLines+1, 0):], string(text))
			}
			if err != nil {
				return
			}
		}
	}()
	return p, nil
}

// Kill ends the process as a crash would, and returns when it is gone.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.ended
}

// Server is a server process that is ready.
type Server struct {
	*Process
	URL string

	ready  chan string
	others []*Server     // of a cluster
	took   time.Duration // from the start until it was ready
}

// kill kills all processes of the server.
func (s *Server) kill() {
	for _, other := range s.others {
		other.Kill()
	}
	s.Kill()
}

// server starts the server of a system on the data in dir.
func (r *runner) server(ctx context.Context, sys system.Name, dir string, ownGC bool) (*Server, error) {
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
	cmd := exec.CommandContext(ctx, r.program(sys), args...)
	cmd.Dir = dir
	servers, err := StartServers(string(sys), ownGC, cmd)
	if err != nil {
		return nil, err
	}
	return servers[0], nil
}

// program returns the program with the server and the load of a system.
func (r *runner) program(sys system.Name) string {
	if sys.IsPeer() {
		return r.peers
	}
	return r.exe
}

// StartServers starts server processes, which may wait for each other, and returns when all of
// them have printed that they are ready. After an error none of them runs.
func StartServers(name string, ownGC bool, cmds ...*exec.Cmd) (servers []*Server, err error) {
	defer func() {
		if err != nil {
			for _, s := range servers {
				s.Kill()
			}
		}
	}()
	begin := time.Now()
	for _, cmd := range cmds {
		s := &Server{ready: make(chan string, 1)}
		if s.Process, err = start(cmd, ownGC, s.reportReady); err != nil {
			return servers, fmt.Errorf("start %s: %w", name, err)
		}
		servers = append(servers, s)
	}
	late := time.After(readyWithin)
	for i, s := range servers {
		select {
		case s.URL = <-s.ready:
			s.took = time.Since(begin)
		case <-s.ended:
			return servers, fmt.Errorf("the %s server ended (%s): %s", name, cmds[i].ProcessState, s.LastLines())
		case <-late:
			s.Kill()
			return servers, fmt.Errorf("the %s server is not ready after %s: %s", name, readyWithin, s.LastLines())
		}
	}
	return servers, nil
}

// reportReady takes the server's ready line.
func (s *Server) reportReady(line []byte) bool {
	url, ok := readyURL(string(line))
	if ok {
		select {
		case s.ready <- url:
		default: // it has been reported before
		}
	}
	return ok
}

// readyURL finds the URL in a server's ready line.
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
	cmd := exec.CommandContext(ctx, r.program(spec.System), "bench", "load")
	cmd.Stdin = bytes.NewReader(instructions)
	// An interrupted load gets time to delete its queue.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 20 * time.Second
	var last *load.Result
	c, err := start(cmd, false, func(line []byte) bool {
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
		return load.Result{}, fmt.Errorf("the load process failed: %w: %s", c.err, c.LastLines())
	case last == nil:
		return load.Result{}, fmt.Errorf("the load process printed no result: %s", c.LastLines())
	case last.Error != "":
		return *last, errors.New(strings.Join(append([]string{last.Error}, last.Notes...), "; "))
	}
	return *last, nil
}
