package client

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/filaq/fila/sidecar/e2e/build"
)

// patience bounds single waits; it only turns a hang into a failure.
const patience = 60 * time.Second

var (
	flagBin = flag.String("fila.bin", "", "fila binary to test against; empty builds it")
	// binary is the fila that tests run; empty with -short.
	binary string
)

func TestMain(m *testing.M) {
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
	url  string // of its NATS
	dir  string
	cmd  *exec.Cmd
	wait func() // for the end of cmd
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
	if p.wait, err = build.Start(p.cmd); err != nil {
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

// kill ends fila with SIGKILL. It is safe to repeat.
func (p *proc) kill() {
	if p.wait == nil {
		return
	}
	_ = p.cmd.Process.Kill()
	p.wait()
	p.wait = nil
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
