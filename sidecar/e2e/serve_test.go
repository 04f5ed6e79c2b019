package e2e

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
)

// startFails starts fila with options that it must refuse, and returns its exit code and its
// lines.
func startFails(t testing.TB, opts options) (int, []string) {
	t.Helper()
	p := newFila(t, opts)
	require.NoError(t, p.start())
	code := p.WaitExit(t)
	return code, p.log.lines()
}

// requireOneLine checks that one line has all words, apart from lines about successful earlier
// steps. The place in a script may follow it.
func requireOneLine(t testing.TB, lines []string, words ...string) {
	t.Helper()
	lines = slices.DeleteFunc(lines, func(line string) bool { return strings.Contains(line, "level=INFO") })
	if n := len(lines); n > 2 && lines[n-1] == "^" {
		lines = lines[:n-2]
	}
	require.Len(t, lines, 1, "one clear line")
	for _, word := range words {
		require.Contains(t, lines[0], word)
	}
}

func TestNATSPortTaken(t *testing.T) {
	t.Parallel()
	p := startFila(t, options{})
	port := p.URL[strings.LastIndex(p.URL, ":")+1:]
	code, lines := startFails(t, options{args: []string{}, env: []string{"FILA_NATS__EMBEDDED__PORT=" + port}})
	require.Equal(t, 1, code)
	requireOneLine(t, lines, port)
	require.Equal(t, http.StatusOK, p.readyz(), "the first one is not disturbed")
}

func TestHTTPPortTaken(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = l.Close() }()
	addr := l.Addr().String()
	code, lines := startFails(t, options{env: []string{"FILA_HTTP__ADDR=" + addr}})
	require.Equal(t, 1, code)
	requireOneLine(t, lines, addr)
}

func TestDataDirectoryIsLocked(t *testing.T) {
	t.Parallel()
	p := startFila(t, options{})
	c := p.client(t)
	c.createQueue("orders", nil)
	c.enqueue("orders", "x")
	code, lines := startFails(t, options{env: []string{"FILA_DATA_DIR=" + p.Dir}})
	require.NotZero(t, code)
	requireOneLine(t, lines, p.Dir)
	require.Regexp(t, "(?i)lock|in use|another", lines[0])
	c.enqueue("orders", "y")
	require.EqualValues(t, 2, c.depth("orders"))
}

func TestBadConfigurationStopsTheStart(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		opts  options
		words []string
	}{
		"unknown key":            {options{top: "dta_dir = 5"}, []string{"dta_dir"}},
		"unknown nested key":     {options{nats: `prefix = "x"`}, []string{"nats.prefix"}},
		"unknown queue key":      {options{tail: "[[queue]]\nname = \"q\"\nvisibility = 5"}, []string{"visibility"}},
		"wrong type":             {options{nats: "subject_prefix = [1]"}, []string{"subject_prefix"}},
		"impossible value":       {options{tail: "[lua]\ndefault_timeout_ms = -5"}, []string{"lua.default_timeout_ms", "-5"}},
		"bad queue name":         {options{tail: "[[queue]]\nname = \"a b\""}, []string{"a b"}},
		"reserved queue name":    {options{tail: "[[queue]]\nname = \"a.dlq\""}, []string{"a.dlq"}},
		"queue declared twice":   {options{tail: "[[queue]]\nname = \"a\"\n[[queue]]\nname = \"a\""}, []string{`"a"`}},
		"bad hook":               {options{tail: "[[queue]]\nname = \"a\"\non_enqueue = \"function (\""}, []string{"on_enqueue"}},
		"hook file missing":      {options{tail: "[[queue]]\nname = \"a\"\non_enqueue_file = \"missing.lua\""}, []string{"missing.lua"}},
		"impossible environment": {options{env: []string{"FILA_DRAIN_TIMEOUT_MS=-1"}}, []string{"DRAIN_TIMEOUT_MS", "-1"}},
		"unknown flag":           {options{args: []string{"--no-such-flag"}}, []string{"no-such-flag"}},
		"not TOML":               {options{top: "= ="}, nil},
		"URL without host":       {options{natsURL: "http://127.0.0.1"}, []string{"nats.url"}},
	} {
		t.Run(name, func(t *testing.T) {
			code, lines := startFails(t, tt.opts)
			require.NotZero(t, code)
			requireOneLine(t, lines, tt.words...)
		})
	}
}

func TestConfigurationFileMissing(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	cmd := exec.Command(binary, "serve", "--config", filepath.Join(t.TempDir(), "absent.toml"))
	cmd.Env, cmd.Stdout, cmd.Stderr = cleanEnv(), &out, &out
	require.Error(t, cmd.Run())
	requireOneLine(t, strings.Split(strings.TrimSpace(out.String()), "\n"), "absent.toml")
}

// TestUnknownEnvironmentIsAWarning: other programs may have such variables.
func TestUnknownEnvironmentIsAWarning(t *testing.T) {
	t.Parallel()
	p := startFila(t, options{env: []string{"FILA_NO_SUCH__KEY=5"}})
	require.Contains(t, p.log.String(), "FILA_NO_SUCH__KEY")
}

func TestAnyFreePort(t *testing.T) {
	t.Parallel()
	p := startFila(t, options{anyPort: true})
	port, err := strconv.Atoi(p.URL[strings.LastIndex(p.URL, ":")+1:])
	require.NoError(t, err)
	require.Positive(t, port)
	c := p.client(t)
	c.createQueue("q", nil)
	c.enqueue("q", "x")
	status, body := p.get("/healthz")
	require.Equal(t, http.StatusOK, status, body)
	status, _ = p.get("/debug/pprof/")
	require.Equal(t, http.StatusNotFound, status, "profiles are off by default")
}

func TestQueuesOfTheConfigurationFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "retry.lua"), []byte(`function on_failure(msg) return { action = "dlq" } end`), 0o600))
	p := startFila(t, options{dir: dir, tail: fmt.Sprintf(`
[[queue]]
name = "orders"
on_enqueue = """function on_enqueue(msg) return { fairness_key = msg.headers["tenant"] } end"""
on_failure_file = %q
visibility_timeout_ms = 5000
[[queue]]
name = "mails"
max_depth = 1
`, filepath.Join(dir, "retry.lua"))})
	c := p.client(t)
	sent := c.enqueue("orders", "x", "tenant", "acme")
	k := c.consume("orders", 1)
	d := k.next()
	require.Equal(t, "acme", d.key())
	c.accepted(d, "-NAK")
	require.Equal(t, sent.ID, c.consume("orders.dlq", 1).next().id())
	c.enqueue("mails", "x")
	c.refusedMsg(429, message("mails", "x"))
	// Changes by verbs last until the restart: the file wins at every start.
	c.call("fila.admin.queue-update.mails", m{"max_depth": 5}, nil)
	c.enqueue("mails", "x")
	require.Zero(t, p.Stop(t))
	p.Restart(t)
	c = p.client(t)
	require.EqualValues(t, 1, c.inspect("mails").Settings["max_depth"])
	require.EqualValues(t, 2, c.depth("mails"), "but nothing is dropped")
	c.refusedMsg(429, message("mails", "x"))
}

// TestGracefulShutdown: leases may end, then the exit code is 0. The drain timeout is long, so
// an end at all proves that fila did not wait for it.
func TestGracefulShutdown(t *testing.T) {
	t.Parallel()
	p := startFila(t, options{drainMs: 3_600_000})
	c := p.client(t)
	c.createQueue("q", m{"visibility_timeout_ms": 3_600_000})
	for range 3 {
		c.enqueue("q", "x")
	}
	k := c.consume("q", 2)
	ds := k.take(2)
	p.Signal(t, syscall.SIGTERM)
	eventually(t, func() bool { return p.readyz() == http.StatusServiceUnavailable }, "draining is not ready")
	eventually(t, func() bool { return refusedWhileDraining(t, c) }, "nothing new is taken")
	c.accepted(ds[0], "")
	c.accepted(ds[1], "")
	require.Zero(t, p.WaitExit(t))
	p.Restart(t)
	require.EqualValues(t, 1, p.client(t).depth("q"))
}

// refusedWhileDraining reports whether fila answers an enqueue with 503, or NATS with no
// responders.
func refusedWhileDraining(t testing.TB, c *client) bool {
	reply, err := c.nc.RequestMsg(message("q", "late", "Nats-Msg-Id", "late"), patience)
	if err != nil {
		require.ErrorIs(t, err, nats.ErrNoResponders)
		return true
	}
	e := errorOf(t, reply)
	if e == nil {
		return false
	}
	require.Equal(t, 503, e.Code, "%v", e)
	return true
}

// TestDrainTimeout: leases that do not end in time are kept on disk.
func TestDrainTimeout(t *testing.T) {
	t.Parallel()
	p := startFila(t, options{drainMs: 100})
	c := p.client(t)
	c.createQueue("q", m{"visibility_timeout_ms": 3_600_000})
	c.enqueue("q", "x")
	d := c.consume("q", 1).next()
	require.Zero(t, p.Stop(t))
	p.Restart(t)
	c = p.client(t)
	require.EqualValues(t, 1, c.inspect("q").InFlight)
	c.accepted(d, "")
}

// TestSecondSignalStopsAtOnce: the drain timeout and the lease last an hour.
func TestSecondSignalStopsAtOnce(t *testing.T) {
	t.Parallel()
	for _, sig := range []os.Signal{syscall.SIGTERM, syscall.SIGINT} {
		p := startFila(t, options{drainMs: 3_600_000})
		c := p.client(t)
		c.createQueue("q", m{"visibility_timeout_ms": 3_600_000})
		c.enqueue("q", "x")
		c.consume("q", 1).next()
		p.Signal(t, sig)
		eventually(t, func() bool { return p.readyz() == http.StatusServiceUnavailable })
		require.False(t, p.hasExited())
		p.Signal(t, sig)
		p.WaitExit(t)
		p.Restart(t)
		require.EqualValues(t, 1, p.client(t).depth("q"), "nothing confirmed is lost")
	}
}

// TestIdleShutdown: a fila without leases stops at once.
func TestIdleShutdown(t *testing.T) {
	t.Parallel()
	p := startFila(t, options{drainMs: 3_600_000})
	require.Zero(t, p.Stop(t))
}

// TestWithoutHTTP: an empty address disables the listener, and the ready line still comes.
func TestWithoutHTTP(t *testing.T) {
	t.Parallel()
	p := newFila(t, options{env: []string{"FILA_HTTP__ADDR="}})
	require.NoError(t, p.start())
	url := fmt.Sprintf("nats://127.0.0.1:%d", p.port)
	eventually(t, func() bool {
		return p.hasExited() || slices.ContainsFunc(p.log.lines(), func(line string) bool {
			return strings.Contains(line, url) && strings.Contains(line, p.Dir)
		})
	})
	require.False(t, p.hasExited(), "%s", p.log)
	c := dial(t, url)
	c.createQueue("q", nil)
	c.enqueue("q", "x")
	require.Zero(t, p.Stop(t))
}
