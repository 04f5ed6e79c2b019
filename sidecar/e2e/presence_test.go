package e2e

import (
	"fmt"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/stretchr/testify/require"
)

// TestTwoFilasUnderOnePrefix: a second fila with the same prefix on one NATS server, external
// or embedded, does not start and says why.
func TestTwoFilasUnderOnePrefix(t *testing.T) {
	t.Parallel()
	n := startNATS(t, nil)
	for name, fila := range map[string]options{"outside": {natsURL: n.URL, nats: `name = "the-first"`}, "inside": {nats: `name = "the-first"`}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			first := startFila(t, fila)
			c := first.client(t)
			queue := c.newQueue(nil)
			k := c.consume(queue, 10)
			code, lines := startFails(t, options{natsURL: first.URL})
			require.Equal(t, 5, code)
			requireOneLine(t, lines, `another fila runs under the subject prefix "fila": the-first`,
				" on host ", " pid ", " since ", "connected to NATS server ", "nats.subject_prefix")
			startFila(t, options{natsURL: first.URL, nats: `subject_prefix = "second"`})
			for range 3 {
				c.enqueue(queue, "x")
			}
			for _, d := range k.take(3) {
				c.accepted(d, "")
			}
			k.none()
			require.Zero(t, first.Stop(t))
		})
	}
}

// TestFilasThatWereParted: two filas have their own NATS servers. When a third server links
// them, the younger fila ends, and the older one serves all.
func TestFilasThatWereParted(t *testing.T) {
	t.Parallel()
	hubPort := freePort()
	remote := &url.URL{Scheme: "nats-leaf", Host: fmt.Sprintf("127.0.0.1:%d", hubPort)}
	leaf := func(o *server.Options) {
		o.LeafNode.ReconnectInterval = 50 * time.Millisecond
		o.LeafNode.Remotes = []*server.RemoteLeafOpts{{URLs: []*url.URL{remote}}}
	}
	here, there := startNATS(t, leaf), startNATS(t, leaf)
	older := startFila(t, options{natsURL: here.URL, nats: `name = "older"`})
	c := older.client(t)
	queue := c.newQueue(nil)
	younger := startFila(t, options{natsURL: there.URL})
	startNATS(t, func(o *server.Options) { o.LeafNode.Host, o.LeafNode.Port = "127.0.0.1", hubPort })
	require.Equal(t, 5, younger.WaitExit(t))
	require.Contains(t, younger.log.String(), `fila: another fila runs under the subject prefix "fila": older`)
	dial(t, there.URL).enqueue(queue, "x")
	k := c.consume(queue, 10)
	c.accepted(k.next(), "")
	k.none()
	require.Zero(t, older.Stop(t))
}

// TestAFilaWaitsForItsPredecessor: in a rolling update the next fila starts while the last one
// still drains.
func TestAFilaWaitsForItsPredecessor(t *testing.T) {
	t.Parallel()
	n := startNATS(t, nil)
	last := startFila(t, options{natsURL: n.URL, drainMs: 3_600_000})
	c := dial(t, n.URL)
	queue := c.newQueue(m{"visibility_timeout_ms": 3_600_000})
	c.enqueue(queue, "x")
	d := c.consume(queue, 1).next()
	last.Signal(t, syscall.SIGTERM)
	eventually(t, func() bool { return strings.Contains(last.log.String(), "waiting for leases") }, "it drains")
	next := newFila(t, options{natsURL: n.URL})
	require.NoError(t, next.start())
	eventually(t, func() bool { return strings.Contains(next.log.String(), "waiting for its end") || next.hasExited() }, "it waits")
	require.False(t, last.hasExited())
	c.accepted(d, "") // the last one takes it
	require.Zero(t, last.WaitExit(t))
	require.NoError(t, next.waitReady())
	c.newQueue(nil)
}
