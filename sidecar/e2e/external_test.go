package e2e

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
	"github.com/stretchr/testify/require"
)

// TestLogins: all ways to log in to an external NATS server work, also with a context of `nats
// context save`, and the log has no secrets.
func TestLogins(t *testing.T) {
	t.Parallel()
	pair, err := nkeys.CreateUser()
	require.NoError(t, err)
	public, err := pair.PublicKey()
	require.NoError(t, err)
	seed, err := pair.Seed()
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "user.nk")
	require.NoError(t, os.WriteFile(file, seed, 0o600))
	byKey, err := nats.NkeyOptionFromSeed(file)
	require.NoError(t, err)
	home := t.TempDir()
	password := func(o *server.Options) { o.Username, o.Password = "fila", "s3cret" }
	for name, tt := range map[string]struct {
		server func(*server.Options)
		fila   options // natsURL, unless it is in a context
		client nats.Option
	}{
		"password": {password, options{nats: "user = \"fila\"\npassword = \"s3cret\""}, nats.UserInfo("fila", "s3cret")},
		"token":    {func(o *server.Options) { o.Authorization = "s3cret" }, options{nats: `token = "s3cret"`}, nats.Token("s3cret")},
		"nkey":     {func(o *server.Options) { o.Nkeys = []*server.NkeyUser{{Nkey: public}} }, options{nats: fmt.Sprintf("nkey = %q", file)}, byKey},
		"context":  {password, options{nats: `context = "prod"`, env: []string{"XDG_CONFIG_HOME=" + home}}, nats.UserInfo("fila", "s3cret")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := startNATS(t, tt.server)
			if name == "context" {
				require.NoError(t, os.MkdirAll(filepath.Join(home, "nats", "context"), 0o700))
				require.NoError(t, os.WriteFile(filepath.Join(home, "nats", "context", "prod.json"),
					fmt.Appendf(nil, `{"description":"","url":%q,"user":"fila","password":"s3cret"}`, n.URL), 0o600))
			} else {
				tt.fila.natsURL = n.URL
			}
			p := startFila(t, tt.fila)
			require.Equal(t, n.URL, p.URL)
			c := dial(t, n.URL, tt.client)
			c.enqueue(c.newQueue(nil), "x")
			require.NotContains(t, p.log.String(), "s3cret")
			require.NotContains(t, p.log.String(), string(seed))
			require.Zero(t, p.Stop(t))
		})
	}
}

// TestRegistrationsAreRestored: with an external NATS server a consumer does not notice a
// restart of fila.
func TestRegistrationsAreRestored(t *testing.T) {
	t.Parallel()
	n := startNATS(t, nil)
	p := startFila(t, options{natsURL: n.URL})
	c := dial(t, n.URL)
	queue := c.newQueue(m{"visibility_timeout_ms": 3_600_000})
	k, left := c.consume(queue, 3), c.consume(queue, 3)
	left.leave()
	c.enqueue(queue, "held")
	held := k.next()
	for _, graceful := range []bool{true, false} {
		c.accepted(held, "+WPI") // confirmed, so it is on disk
		if graceful {
			require.Zero(t, p.Stop(t))
		}
		p.Restart(t)
		info := c.inspect(queue)
		require.Equal(t, 1, info.Consumers)
		require.EqualValues(t, 1, info.InFlight)
		c.enqueueAll(backlog(queue, "x", 1, 5))
		ds := k.take(2) // the unacked one counts against max_in_flight 3
		k.none()
		require.EqualValues(t, 3, c.inspect(queue).Pending)
		for _, d := range append(ds, k.drainAfter(ds, 3)...) {
			require.Equal(t, 1, d.attempt(t))
			require.NotEqual(t, held.id(), d.id())
		}
		require.EqualValues(t, 1, c.depth(queue))
	}
	c.accepted(held, "")
	left.none()
}

// drainAfter acks the held deliveries and then n more.
func (k *consumer) drainAfter(held []delivery, n int) []delivery {
	k.c.t.Helper()
	for _, d := range held {
		k.c.accepted(d, "")
	}
	out := make([]delivery, n)
	for i := range out {
		out[i] = k.next()
		k.c.accepted(out[i], "")
	}
	return out
}

// TestNATSRestartIsSurvived: fila, its queues and its registrations survive a restart of NATS.
func TestNATSRestartIsSurvived(t *testing.T) {
	t.Parallel()
	n := startNATS(t, nil)
	p := startFila(t, options{natsURL: n.URL})
	c := dial(t, n.URL)
	queue := c.newQueue(nil)
	k := c.consume(queue, 10)
	for round := range 3 {
		n.stop()
		eventually(t, func() bool { return p.readyz() == http.StatusServiceUnavailable }, "not ready without NATS")
		require.False(t, p.hasExited())
		n.start(t)
		eventually(t, func() bool { return p.readyz() == http.StatusOK })
		eventually(t, func() bool { return c.nc.IsConnected() })
		c.flush()
		sent := c.enqueue(queue, fmt.Sprint(round))
		d := k.next()
		require.Equal(t, sent.ID, d.id())
		c.accepted(d, "")
	}
	require.Zero(t, c.depth(queue))
}

// TestWrongPassword: fila ends with one line instead of trying forever.
func TestWrongPassword(t *testing.T) {
	t.Parallel()
	n := startNATS(t, func(o *server.Options) { o.Username, o.Password = "fila", "s3cret" })
	code, lines := startFails(t, options{natsURL: n.URL, nats: "user = \"fila\"\npassword = \"wr0ng\""})
	require.NotZero(t, code)
	require.NotEmpty(t, lines)
	require.Regexp(t, "(?i)authorization", lines[len(lines)-1])
	require.NotContains(t, strings.Join(lines, "\n"), "wr0ng")
}

// TestFilaStartsBeforeNATS: fila waits for the server and is not ready meanwhile.
func TestFilaStartsBeforeNATS(t *testing.T) {
	t.Parallel()
	n := startNATS(t, nil)
	n.stop()
	p := newFila(t, options{natsURL: n.URL})
	require.NoError(t, p.start())
	eventually(t, func() bool { return p.hasExited() || strings.Contains(p.log.String(), n.URL) }, "it says what it waits for")
	require.False(t, p.hasExited(), "%s", p.log)
	n.start(t)
	require.NoError(t, p.waitReady(), p.log)
	c := dial(t, n.URL)
	c.enqueue(c.newQueue(nil), "x")
}

// TestShutdownWithoutNATS: fila stops while it waits for its first connection, and after it has
// lost its connection.
func TestShutdownWithoutNATS(t *testing.T) {
	t.Parallel()
	n := startNATS(t, nil)
	p := startFila(t, options{natsURL: n.URL})
	c := dial(t, n.URL)
	queue := c.newQueue(m{"visibility_timeout_ms": 3_600_000})
	c.enqueue(queue, "x")
	c.consume(queue, 1).next()
	n.stop()
	eventually(t, func() bool { return p.readyz() == http.StatusServiceUnavailable })
	p.Stop(t)
	// Again, without ever getting a connection.
	p.log.reset()
	require.NoError(t, p.start())
	eventually(t, func() bool { return p.hasExited() || strings.Contains(p.log.String(), n.URL) })
	require.False(t, p.hasExited(), "%s", p.log)
	p.Stop(t)
	n.start(t)
	p.Restart(t)
	eventually(t, c.nc.IsConnected)
	require.EqualValues(t, 1, c.depth(queue), "nothing was lost meanwhile")
}
