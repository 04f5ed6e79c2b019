package e2e

import (
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/e2e/natstest"
)

// TestRegistrationsAreRestored: with an external NATS server a consumer does not notice a
// restart of fila.
func TestRegistrationsAreRestored(t *testing.T) {
	t.Parallel()
	n := natstest.Start(t)
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
		c.enqueueAll(backlog(queue, 5))
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

// TestShutdownWithoutNATS: fila stops while it waits for its first connection, and after it has
// lost its connection.
func TestShutdownWithoutNATS(t *testing.T) {
	t.Parallel()
	n := natstest.Start(t)
	p := startFila(t, options{natsURL: n.URL})
	c := dial(t, n.URL)
	queue := c.newQueue(m{"visibility_timeout_ms": 3_600_000})
	c.enqueue(queue, "x")
	c.consume(queue, 1).next()
	n.Stop()
	eventually(t, func() bool { return p.readyz() == http.StatusServiceUnavailable })
	p.Stop(t)
	// Again, without ever getting a connection.
	p.log.reset()
	require.NoError(t, p.start())
	eventually(t, func() bool { return p.hasExited() || strings.Contains(p.log.String(), n.URL) })
	require.False(t, p.hasExited(), "%s", p.log)
	p.Stop(t)
	n.Again()
	p.Restart(t)
	eventually(t, c.nc.IsConnected)
	require.EqualValues(t, 1, c.depth(queue), "nothing was lost meanwhile")
}

// TestAFilaWaitsForItsPredecessor: in a rolling update the next fila starts while the last one
// still drains.
func TestAFilaWaitsForItsPredecessor(t *testing.T) {
	t.Parallel()
	n := natstest.Start(t)
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

// TestOtherPrefix: all subjects use subject_prefix, and the default prefix is free for others.
func TestOtherPrefix(t *testing.T) {
	t.Parallel()
	p := startFila(t, options{nats: `subject_prefix = "jobs.eu"`})
	c := p.client(t)
	c.call("jobs.eu.admin.queue-create.orders", m{}, nil)
	msg := message("orders", "x")
	msg.Subject = "jobs.eu.enqueue.orders"
	require.Nil(t, errorOf(t, c.do(msg)))
	inbox := nats.NewInbox()
	sub, err := c.nc.SubscribeSync(inbox)
	require.NoError(t, err)
	require.NoError(t, c.nc.PublishRequest("jobs.eu.fetch.orders", inbox, nil))
	d, err := sub.NextMsg(patience)
	require.NoError(t, err)
	require.Regexp(t, `^jobs\.eu\.ack\.0\.[A-Za-z0-9_-]+\.orders$`, d.Reply)
	require.Nil(t, errorOf(t, c.do(&nats.Msg{Subject: d.Reply})))
	_, err = c.nc.Request("fila.admin.queue-list", nil, patience)
	require.ErrorIs(t, err, nats.ErrNoResponders)
}
