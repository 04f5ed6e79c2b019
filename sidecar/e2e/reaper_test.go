package e2e

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"sync"
)

var children reaper

// reaper is a helper process that outlives the test binary and kills its children, also after a
// panic, a test timeout or a SIGKILL. It learns each child through a pipe, and acts when the
// pipe closes.
type reaper struct {
	cmd *exec.Cmd
	mu  struct {
		sync.Mutex
		pipe io.WriteCloser
	}
}

func (r *reaper) start() error {
	r.cmd = exec.Command(os.Args[0])
	r.cmd.Env = append(os.Environ(), roleEnv+"=reaper")
	pipe, err := r.cmd.StdinPipe()
	if err != nil {
		return fmt.Errorf("start the reaper: %w", err)
	}
	r.mu.pipe = pipe
	return r.cmd.Start()
}

func (r *reaper) stop() {
	_ = r.mu.pipe.Close()
	_ = r.cmd.Wait()
}

func (r *reaper) add(pid int)    { r.tell('+', pid) }
func (r *reaper) remove(pid int) { r.tell('-', pid) }

func (r *reaper) tell(sign rune, pid int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, _ = fmt.Fprintf(r.mu.pipe, "%c%d\n", sign, pid)
}

// reap is the reaper process.
func reap() {
	signal.Ignore(os.Interrupt)
	alive := map[int]bool{}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		line := lines.Text()
		if len(line) < 2 {
			continue
		}
		pid, err := strconv.Atoi(line[1:])
		if err != nil {
			continue
		}
		if line[0] == '+' {
			alive[pid] = true
		} else {
			delete(alive, pid)
		}
	}
	for pid := range alive {
		if p, err := os.FindProcess(pid); err == nil {
			_ = p.Kill()
		}
	}
}
