package e2e

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/e2e/natstest"
)

// TestStartsThatFail: fila says in one line what is wrong, apart from lines about successful earlier
// steps, and ends. A running fila is not disturbed.
func TestStartsThatFail(t *testing.T) {
	t.Parallel()
	running := startFila(t, options{nats: `name = "the-first"`})
	c := running.client(t)
	c.createQueue("q", nil)
	k := c.consume("q", 10)
	login := natstest.Start(t, func(o *server.Options) { o.Username, o.Password = "fila", "s3cret" })
	for name, tt := range map[string]struct {
		opts  options
		code  int
		words []string
	}{
		"a taken port":     {options{env: []string{"FILA_NATS__EMBEDDED__PORT=" + strconv.Itoa(running.port)}}, 1, []string{strconv.Itoa(running.port)}},
		"a data directory": {options{env: []string{"FILA_DATA_DIR=" + running.Dir}}, 1, []string{running.Dir, "in use"}},
		"an unknown key":   {options{nats: `prefix = "x"`}, 2, []string{"nats.prefix"}},
		"a bad variable":   {options{env: []string{"FILA_DRAIN_TIMEOUT_MS=-1"}}, 2, []string{"DRAIN_TIMEOUT_MS", "-1"}},
		"a wrong password": {options{natsURL: login.URL, nats: "user = \"fila\"\npassword = \"wr0ng\""}, 1, []string{"uthorization"}},
		"a prefix in use": {options{natsURL: running.URL}, 5, []string{
			`another fila runs under the subject prefix "fila": the-first`, " on host ", " pid ", " since ", "connected to NATS server ", "nats.subject_prefix",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			p := newFila(t, tt.opts)
			require.NoError(t, p.start())
			require.Equal(t, tt.code, p.WaitExit(t), p.log)
			lines := slices.DeleteFunc(p.log.lines(), func(line string) bool { return strings.Contains(line, "level=INFO") })
			require.Len(t, lines, 1, "one clear line")
			for _, word := range tt.words {
				require.Contains(t, lines[0], word)
			}
			require.NotContains(t, p.log.String(), "wr0ng")
		})
	}
	startFila(t, options{natsURL: running.URL, nats: `subject_prefix = "second"`})
	c.enqueue("q", "x")
	c.accepted(k.next(), "")
	k.none()
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

// TestSecondSignalStopsAtOnce: the drain timeout and the lease last an hour.
func TestSecondSignalStopsAtOnce(t *testing.T) {
	t.Parallel()
	p := startFila(t, options{drainMs: 3_600_000})
	c := p.client(t)
	c.createQueue("q", m{"visibility_timeout_ms": 3_600_000})
	c.enqueue("q", "x")
	c.consume("q", 1).next()
	p.Signal(t, syscall.SIGTERM)
	eventually(t, func() bool { return p.readyz() == http.StatusServiceUnavailable })
	require.False(t, p.hasExited())
	p.Signal(t, syscall.SIGINT)
	p.WaitExit(t)
	p.Restart(t)
	require.EqualValues(t, 1, p.client(t).depth("q"), "nothing confirmed is lost")
}
