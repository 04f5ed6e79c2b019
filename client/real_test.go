package client

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/filaq/fila/sidecar/e2e/build"
)

// patience bounds single waits; it only turns a hang into a failure.
const patience = 60 * time.Second

// reapEnv makes the test binary the reaper of a fila: it waits for the end of
// its standard input, that is of the test, and kills the process of this id.
const reapEnv = "FILA_CLIENT_REAP"

var (
	flagBin = flag.String("fila.bin", "", "fila binary to test against; empty builds it")
	// binary is the fila that tests run; empty with -short.
	binary string
)

func TestMain(m *testing.M) {
	if pid := os.Getenv(reapEnv); pid != "" {
		reap(pid)
		return
	}
	flag.Parse()
	stop, err := prepare()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m, goleak.IgnoreCurrent(), goleak.Cleanup(func(code int) {
		stop()
		os.Exit(code)
	}))
}

// prepare builds fila and starts the one that the examples use. With -short
// there is none, and the examples are skipped.
func prepare() (stop func(), err error) {
	if testing.Short() {
		return func() {}, flag.Set("test.skip", "^Example")
	}
	dir, err := os.MkdirTemp("", "fila-client-")
	if err != nil {
		return nil, err
	}
	if binary, err = buildFila(dir); err != nil {
		return nil, err
	}
	p, err := newProc(dir, "", "[[queue]]\nname = \"orders\"\n[[queue]]\nname = \"mails\"\n")
	if err == nil {
		err = p.start()
	}
	if err != nil {
		return nil, err
	}
	return func() {
		p.kill()
		_ = os.RemoveAll(dir)
	}, os.Setenv("NATS_URL", p.url)
}

func buildFila(dir string) (string, error) {
	if *flagBin != "" {
		return filepath.Abs(*flagBin)
	}
	return build.Binary(dir, false)
}

// proc is a fila process, or several in turn on the same data directory.
type proc struct {
	url    string // of its NATS
	dir    string
	cmd    *exec.Cmd
	reaper io.Closer
}

func newProc(dir, natsURL, queues string) (*proc, error) {
	text := fmt.Sprintf("data_dir = %q\ndrain_timeout_ms = 200\n[nats]\nurl = %q\n[nats.embedded]\nport = -1\n[http]\naddr = \"\"\n%s",
		filepath.Join(dir, "data"), natsURL, queues)
	return &proc{dir: dir}, os.WriteFile(filepath.Join(dir, "fila.toml"), []byte(text), 0o600)
}

var readyLine = regexp.MustCompile(`fila is ready: nats=(\S+)`)

// start returns when fila is ready.
func (p *proc) start() error {
	path := filepath.Join(p.dir, "log")
	log, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }() // the process has its own
	p.cmd = exec.Command(binary, "serve", "--config", filepath.Join(p.dir, "fila.toml"))
	p.cmd.Stdout, p.cmd.Stderr = log, log
	if err := p.cmd.Start(); err != nil {
		return err
	}
	if err := p.startReaper(); err != nil {
		return err
	}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for began := time.Now(); time.Since(began) < patience; <-tick.C {
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if found := readyLine.FindSubmatch(text); found != nil {
			p.url = string(found[1])
			return nil
		}
	}
	text, _ := os.ReadFile(path)
	p.kill()
	return fmt.Errorf("fila did not become ready:\n%s", text)
}

func (p *proc) startReaper() error {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), reapEnv+"="+strconv.Itoa(p.cmd.Process.Pid))
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	p.reaper = closer(func() error { return errors.Join(stdin.Close(), cmd.Wait()) })
	return cmd.Start()
}

type closer func() error

func (c closer) Close() error { return c() }

func reap(pid string) {
	_, _ = io.Copy(io.Discard, os.Stdin)
	if n, err := strconv.Atoi(pid); err == nil {
		if process, err := os.FindProcess(n); err == nil {
			_ = process.Kill()
		}
	}
}

// kill ends fila with SIGKILL. It is safe to repeat. The reaper goes first: the
// process is not waited for yet, so that its id is still its own.
func (p *proc) kill() {
	if p.cmd == nil {
		return
	}
	_ = p.cmd.Process.Kill()
	_ = p.reaper.Close()
	_ = p.cmd.Wait()
	p.cmd = nil
}

// startFila runs fila on a NATS server until the end of the test.
func startFila(t *testing.T, natsURL, queues string) *proc {
	t.Helper()
	if testing.Short() {
		t.Skip("needs the fila binary")
	}
	p, err := newProc(t.TempDir(), natsURL, queues)
	require.NoError(t, err)
	t.Cleanup(p.kill)
	require.NoError(t, p.start())
	return p
}

func (p *proc) restart(t *testing.T) {
	t.Helper()
	p.kill()
	require.NoError(t, p.start())
}

// natsServer listens on a port and can be restarted on it.
type natsServer struct {
	url  string
	opts server.Options
	s    *server.Server
}

func listenNATS(t *testing.T) *natsServer {
	t.Helper()
	n := &natsServer{opts: server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true, NoLog: true}}
	n.start(t)
	n.url, n.opts.Port = n.s.ClientURL(), n.s.Addr().(*net.TCPAddr).Port
	t.Cleanup(n.stop)
	return n
}

func (n *natsServer) start(t *testing.T) {
	t.Helper()
	opts := n.opts
	s, err := server.NewServer(&opts)
	require.NoError(t, err)
	s.Start()
	require.True(t, s.ReadyForConnections(patience))
	n.s = s
}

func (n *natsServer) stop() {
	n.s.Shutdown()
	n.s.WaitForShutdown()
}

// dial connects a client that reconnects for ever.
func dial(t *testing.T, url string, opts ...Option) *Client {
	t.Helper()
	nc, err := nats.Connect(url, nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond), nats.ReconnectJitter(0, 0))
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	c, err := New(nc, opts...)
	require.NoError(t, err)
	return c
}
