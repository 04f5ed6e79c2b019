package e2e

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// sharedFila is the process of all tests that need none of their own.
var sharedFila struct {
	once sync.Once
	proc *proc
	err  error
}

// shared returns the shared fila and marks the test as parallel: the test must use its own
// queues, keys and consumer names.
func shared(t *testing.T) *proc {
	t.Helper()
	t.Parallel()
	sharedFila.once.Do(func() {
		dir, err := os.MkdirTemp("", "fila-e2e-shared-")
		if err != nil {
			sharedFila.err = err
			return
		}
		p, err := newProc(options{dir: dir})
		if err == nil {
			err = p.start()
		}
		if err == nil {
			sharedFila.proc = p
			err = p.waitReady()
		}
		if err != nil {
			err = fmt.Errorf("%w\n%s", err, p.log)
		}
		sharedFila.err = err
	})
	require.NoError(t, sharedFila.err)
	p := sharedFila.proc
	require.False(t, p.hasExited(), "the shared fila has ended:\n%s", p.log.tail(60))
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log of the shared fila, warnings and errors:\n%s", p.log.warnings(20))
		}
	})
	return p
}

// stopShared stops the shared process gracefully. It returns an error if that fails or if the
// process reported a data race.
func stopShared() error {
	p := sharedFila.proc
	if p == nil {
		return nil
	}
	defer func() { _ = os.RemoveAll(p.opts.dir) }()
	defer p.kill()
	if p.hasExited() {
		return fmt.Errorf("the shared fila had ended by itself:\n%s", p.log.tail(60))
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-p.exited:
	case <-time.After(patience):
		return fmt.Errorf("the shared fila did not shut down:\n%s", p.log.tail(60))
	}
	if bad := p.log.bad(); bad != "" {
		return fmt.Errorf("the shared fila reported:\n%s", bad)
	}
	if code := p.cmd.ProcessState.ExitCode(); code != 0 {
		return fmt.Errorf("the shared fila ended with exit code %d:\n%s", code, p.log.tail(60))
	}
	return nil
}

var names atomic.Int64

// unique returns a name that no other test of this run uses, valid as a queue name, a consumer
// name and a configuration key.
func unique(t testing.TB) string {
	base := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
			return r
		default:
			return '_'
		}
	}, strings.TrimPrefix(t.Name(), "Test"))
	return fmt.Sprintf("%.40s_%d", base, names.Add(1))
}
