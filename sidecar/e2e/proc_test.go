package e2e

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/e2e/build"
	"github.com/filaq/fila/sidecar/e2e/natstest"
)

// patience bounds each wait. It only turns a hang into a failure; nothing passes or fails by
// speed.
const patience = 60 * time.Second

// options are the settings of a fila process.
type options struct {
	natsURL  string // an external NATS server; empty embeds one
	drainMs  int64  // drain_timeout_ms; 0 takes 200
	anyPort  bool   // let fila choose its ports
	top      string // further TOML for the top level
	nats     string // further TOML of [nats]
	embedded string // further TOML of [nats.embedded]
	tail     string // further TOML tables, such as [[queue]]
	args     []string
	env      []string
	dir      string // for config and data; empty creates one
}

// proc is one fila process and, after Restart, its successors on the same
// configuration and data directory.
type proc struct {
	URL  string // of NATS
	HTTP string // base URL of the HTTP listener
	Dir  string // the data directory

	opts   options
	bin    string // the binary, if it is not the one under test
	port   int    // of the embedded NATS server; -1 if fila chooses
	config string // path of config.toml
	log    *logBuffer
	cmd    *exec.Cmd
	exited chan struct{} // closed when cmd has been waited for
}

// startFila starts a fila for this test, waits until it is ready, and kills it at the end of
// the test.
func startFila(t testing.TB, opts options) *proc {
	t.Helper()
	p := newFila(t, opts)
	p.Start(t)
	return p
}

// newFila is startFila without the start.
func newFila(t testing.TB, opts options) *proc {
	t.Helper()
	if opts.dir == "" {
		opts.dir = t.TempDir()
	}
	p, err := newProc(opts)
	require.NoError(t, err)
	t.Cleanup(func() {
		p.kill()
		p.checkLog(t)
	})
	return p
}

// newProc writes the configuration without starting anything.
func newProc(opts options) (*proc, error) {
	p := &proc{opts: opts, log: &logBuffer{}, Dir: filepath.Join(opts.dir, "data"), config: filepath.Join(opts.dir, "fila.toml")}
	natsPort, httpPort := -1, 0
	if !opts.anyPort {
		natsPort, httpPort = natstest.FreePort(), natstest.FreePort()
	}
	p.port = natsPort
	drain := opts.drainMs
	if drain == 0 {
		drain = 200
	}
	text := fmt.Sprintf("data_dir = %q\ndrain_timeout_ms = %d\n%s\n[nats]\nurl = %q\n%s\n[nats.embedded]\nhost = \"127.0.0.1\"\nport = %d\n%s\n[http]\naddr = \"127.0.0.1:%d\"\n%s\n",
		p.Dir, drain, opts.top, opts.natsURL, opts.nats, natsPort, opts.embedded, httpPort, opts.tail)
	return p, os.WriteFile(p.config, []byte(text), 0o600)
}

// start starts the process, under another command that must exec fila if one is given, and does
// not wait until it is ready.
func (p *proc) start(under ...string) error {
	p.log.reset()
	args := slices.Concat(under, []string{cmp.Or(p.bin, binary), "serve", "--config", p.config}, p.opts.args)
	p.cmd = exec.Command(args[0], args[1:]...)
	p.cmd.Env = append(cleanEnv(), p.opts.env...)
	p.cmd.Dir = p.opts.dir
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	p.cmd.WaitDelay = patience
	wait, err := build.Start(p.cmd)
	if err != nil {
		return fmt.Errorf("start fila: %w", err)
	}
	exited := make(chan struct{})
	p.exited = exited
	go func() {
		wait()
		close(exited)
	}()
	return nil
}

var (
	natsURLPattern = regexp.MustCompile(`(?:nats|tls)://[^\s"',;]+`)
	httpURLPattern = regexp.MustCompile(`http://[^\s"',;]+`)
	addrPattern    = regexp.MustCompile(`127\.0\.0\.1:\d+`)
)

// waitReady waits for the line on standard error that names the NATS URL, the
// HTTP address and the data directory, and then for /readyz.
func (p *proc) waitReady() error {
	found := poll(func() bool { return p.parseReady() || p.hasExited() })
	if !found || !p.parseReady() {
		return fmt.Errorf("fila did not become ready (exited: %v)", p.hasExited())
	}
	if !poll(func() bool { return p.readyz() == http.StatusOK || p.hasExited() }) || p.hasExited() {
		return errors.New("fila printed its ready line but /readyz never answered 200")
	}
	return nil
}

func (p *proc) parseReady() bool {
	for line := range strings.Lines(p.log.String()) {
		if !strings.Contains(line, p.Dir) {
			continue
		}
		url := natsURLPattern.FindString(line)
		if url == "" {
			continue
		}
		rest := strings.Replace(line, url, "", 1)
		addr := httpURLPattern.FindString(rest)
		if addr == "" {
			if a := addrPattern.FindString(rest); a != "" {
				addr = "http://" + a
			}
		}
		if addr != "" {
			p.URL, p.HTTP = url, strings.TrimRight(addr, "/")
			return true
		}
	}
	return false
}

// readyz returns the status of /readyz, 0 without an answer.
func (p *proc) readyz() int {
	status, _ := p.get("/readyz")
	return status
}

// get returns status and body of a path of the HTTP listener; 0 without an answer.
func (p *proc) get(path string) (int, string) {
	c := http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := c.Get(p.HTTP + path)
	if err != nil {
		return 0, ""
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, ""
	}
	return resp.StatusCode, string(body)
}

func (p *proc) hasExited() bool {
	select {
	case <-p.exited:
		return true
	default:
		return false
	}
}

// kill sends SIGKILL and waits for the end. It is safe to repeat.
func (p *proc) kill() {
	if p.cmd == nil || p.cmd.Process == nil {
		return
	}
	_ = p.cmd.Process.Kill()
	<-p.exited
}

// Start starts the process, under another command if one is given, and waits until
// it is ready.
func (p *proc) Start(t testing.TB, under ...string) {
	t.Helper()
	require.NoError(t, p.start(under...))
	require.NoError(t, p.waitReady(), p.log)
}

// Kill9 ends fila with SIGKILL.
func (p *proc) Kill9(t testing.TB) {
	t.Helper()
	require.False(t, p.hasExited(), "fila ended by itself:\n%s", p.log)
	p.kill()
}

// Signal sends sig to fila.
func (p *proc) Signal(t testing.TB, sig os.Signal) {
	t.Helper()
	require.NoError(t, p.cmd.Process.Signal(sig))
}

// WaitExit waits until fila has ended and returns its exit code.
func (p *proc) WaitExit(t testing.TB) int {
	t.Helper()
	select {
	case <-p.exited:
	case <-time.After(patience):
		_ = p.cmd.Process.Signal(syscall.SIGQUIT) // its goroutines go to the log
		<-p.exited
		require.Fail(t, "fila did not end", p.log.String())
	}
	return p.cmd.ProcessState.ExitCode()
}

// Stop stops fila with SIGTERM and returns its exit code.
func (p *proc) Stop(t testing.TB) int {
	t.Helper()
	p.Signal(t, syscall.SIGTERM)
	return p.WaitExit(t)
}

// Restart starts fila again with the same configuration and data directory,
// ending it with SIGKILL first if it still runs.
func (p *proc) Restart(t testing.TB) {
	t.Helper()
	p.kill()
	p.Start(t)
}

// checkLog fails the test if the process reported a data race or a panic, and
// shows the end of its log if the test failed for any reason.
func (p *proc) checkLog(t testing.TB) {
	t.Helper()
	if bad := p.log.bad(); bad != "" {
		t.Errorf("fila reported:\n%s", bad)
	}
	if t.Failed() {
		t.Logf("log of fila:\n%s", p.log.tail(60))
	}
}

// cleanEnv is the environment without variables of fila and nats.
func cleanEnv() []string {
	var env []string
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "FILA_") && !strings.HasPrefix(kv, "NATS_") {
			env = append(env, kv)
		}
	}
	return env
}

// poll waits until cond holds, and reports whether it did within patience.
func poll(cond func() bool) bool {
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		if cond() {
			return true
		}
		select {
		case <-deadline.C:
			return false
		case <-tick.C:
		}
	}
}

// eventually fails the test unless cond holds within patience.
func eventually(t testing.TB, cond func() bool, msg ...any) {
	t.Helper()
	if !poll(cond) {
		require.Fail(t, "the condition never held", msg...)
	}
}
