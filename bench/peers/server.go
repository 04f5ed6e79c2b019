package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/filaq/fila/bench"
	"github.com/filaq/fila/bench/system"
)

// retryEvery is the interval between two attempts to use a server that starts.
const retryEvery = 50 * time.Millisecond

// server is the processes of a server. They end with this process.
type server struct {
	ctx   context.Context
	dir   string
	ended chan error // gets the error of a process that ends
}

// runServer starts the server of a peer, prints on out that it is ready, and runs until ctx or
// the server ends.
func runServer(ctx context.Context, name system.Name, dir string, out io.Writer) error {
	p, err := find(name)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s := &server{ctx: ctx, dir: dir, ended: make(chan error, 2)}
	url, err := p.start(s, name.Synced())
	if err != nil {
		return fmt.Errorf("start %s: %w", name, err)
	}
	if err := s.wait(func() error { return setUp(ctx, p, url) }); err != nil {
		return fmt.Errorf("start %s: %w", name, err)
	}
	if _, err := fmt.Fprintf(out, "%s is ready: nats=%s\n", name, url); err != nil {
		return err
	}
	select {
	case err := <-s.ended:
		return err
	case <-ctx.Done():
		return nil
	}
}

func setUp(ctx context.Context, p peer, url string) error {
	target, err := p.open(url)
	if err != nil {
		return err
	}
	defer target.Close()
	return target.SetUp(ctx)
}

// wait repeats an attempt until it succeeds or a process of the server ends.
func (s *server) wait(attempt func() error) error {
	for {
		err := attempt()
		if err == nil {
			return nil
		}
		select {
		case ended := <-s.ended:
			return errors.Join(ended, err)
		case <-s.ctx.Done():
			return errors.Join(s.ctx.Err(), err)
		case <-time.After(retryEvery):
		}
	}
}

// start starts a process of the server.
func (s *server) start(cmd *exec.Cmd) error {
	log, err := os.Create(filepath.Join(s.dir, filepath.Base(cmd.Path)+".log"))
	if err != nil {
		return err
	}
	cmd.Dir, cmd.Stdout, cmd.Stderr = s.dir, log, log
	if err := cmd.Start(); err != nil {
		return errors.Join(err, log.Close())
	}
	go func() {
		err := errors.Join(cmd.Wait(), log.Close())
		said, _ := os.ReadFile(log.Name()) // without it the error says less
		s.ended <- fmt.Errorf("%s ended: %w: %s", cmd.Path, err, lastLine(said))
	}()
	return nil
}

func lastLine(text []byte) string {
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return lines[len(lines)-1]
}

// command returns a command of the server's machine: the first of some programs that is
// installed. A program with a slash is a pattern.
func (s *server) command(programs []string, args ...string) (*exec.Cmd, error) {
	for _, program := range programs {
		if strings.Contains(program, "/") {
			found, err := filepath.Glob(program)
			if err != nil {
				return nil, err
			}
			slices.Sort(found)
			program = append([]string{program}, found...)[len(found)]
		}
		if path, err := exec.LookPath(program); err == nil {
			cmd := exec.CommandContext(s.ctx, path, args...)
			bench.DieWithParent(cmd)
			return cmd, nil
		}
	}
	return nil, fmt.Errorf("%w: install a package with %s", exec.ErrNotFound, strings.Join(programs, " or "))
}

// reachable returns why nothing listens at an address, or nil.
func reachable(addr string) error {
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	return nc.Close()
}

// freeAddress returns a free address of this machine, also as host and port.
func freeAddress() (addr, host, port string, err error) {
	addrs, err := bench.FreeAddresses(1)
	if err != nil {
		return "", "", "", err
	}
	host, port, err = net.SplitHostPort(addrs[0])
	return addrs[0], host, port, err
}
