package e2e

import (
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
)

// TestConfusedDeputy: a producer without the right to ack or to administer sets reply subjects
// to which fila itself could publish, and fila must not.
func TestConfusedDeputy(t *testing.T) {
	t.Parallel()
	p := startFila(t, options{}) // alone, so that its counters are the test's
	c := p.client(t)
	queue, victim := c.newQueue(nil), c.newQueue(m{"visibility_timeout_ms": 3_600_000})
	c.enqueue(victim, "precious")
	held := c.consume(victim, 1).next()
	for name, msg := range map[string]*nats.Msg{
		"enqueue to another queue": message(queue, "x"),
		"enqueue that is refused":  message(queue, "x", "Fila-Delay", "tomorrow"),
		"consume":                  {Subject: "fila.consume." + queue, Data: []byte(`{"consumer":"x"}`)},
		"consume, refused":         {Subject: "fila.consume." + queue},
		"admin":                    {Subject: "fila.admin.queue-list"},
		"admin, refused":           {Subject: "fila.admin.queue-delete." + queue + ".none"},
	} {
		for _, reply := range []string{
			held.Reply, "fila.enqueue." + victim, "fila.admin.queue-delete." + victim, "fila", "fila.x",
			"fila.consume." + victim, "fila.deliver.someone." + victim, "fila.event.refused." + victim,
		} {
			sub, err := c.nc.SubscribeSync(reply)
			require.NoError(t, err)
			msg.Reply = reply
			before := p.metric(t, "fila_refused_total")
			require.NoError(t, c.nc.PublishMsg(msg))
			eventually(t, func() bool { return p.metric(t, "fila_refused_total") > before }, "a counter tells of %s to %s", name, reply)
			c.inspect(queue)
			c.flush()
			n, _, err := sub.Pending()
			require.NoError(t, err)
			require.Zero(t, n, "%s: something was published to %s", name, reply)
			require.NoError(t, sub.Unsubscribe())
		}
	}
	require.Zero(t, c.depth(queue), "a refused enqueue keeps nothing")
	require.Zero(t, c.inspect(queue).Consumers)
	require.EqualValues(t, 1, c.inspect(victim).InFlight, "the victim's message is still leased")
	c.accepted(held, "")
}

// TestAckWithReplyUnderThePrefix: the same for confirmations of acks.
func TestAckWithReplyUnderThePrefix(t *testing.T) {
	c := shared(t).client(t)
	queue := c.newQueue(nil)
	c.enqueue(queue, "a")
	c.enqueue(queue, "b")
	k := c.consume(queue, 2)
	ds := k.take(2)
	sub, err := c.nc.SubscribeSync(ds[1].Reply)
	require.NoError(t, err)
	require.NoError(t, c.nc.PublishRequest(ds[0].Reply, ds[1].Reply, nil))
	c.inspect(queue)
	c.flush()
	n, _, err := sub.Pending()
	require.NoError(t, err)
	require.Zero(t, n, "fila confirmed an ack to the ack subject of another message")
	require.NoError(t, sub.Unsubscribe())
	c.accepted(ds[1], "")
}

// TestForeignReplySubjects: fila does not answer on reply subjects outside of the allowed
// prefixes. It counts such requests, stores none, and limits their log lines. Operators choose
// the prefixes.
func TestForeignReplySubjects(t *testing.T) {
	t.Parallel()
	const flood = 20_000
	p := startFila(t, options{nats: `reply_prefixes = ["_INBOX.", "_INBOX_team-"]`})
	c := p.client(t)
	queue := c.newQueue(nil)
	replies, err := c.nc.SubscribeSync("confirmations.>")
	require.NoError(t, err)
	p.log.reset()
	for range flood {
		require.NoError(t, c.nc.PublishRequest("fila.enqueue."+queue, "confirmations.x", []byte("x")))
	}
	for _, subject := range []string{"fila.admin.queue-delete." + queue, "fila.consume." + queue, "fila.fetch." + queue, "fila.ack.0.x." + queue} {
		require.NoError(t, c.nc.PublishRequest(subject, "confirmations.x", []byte(`{"consumer":"w"}`)))
	}
	c.flush()
	eventually(t, func() bool { return p.metric(t, "fila_refused_total") == flood+4 }, "all are counted")
	require.Zero(t, c.depth(queue))
	require.Zero(t, c.inspect(queue).Consumers)
	n, _, err := replies.Pending()
	require.NoError(t, err)
	require.Zero(t, n)
	lines := strings.Count(p.log.String(), "\n")
	require.Positive(t, lines)
	require.Less(t, lines, 200, "of %d refusals", flood)

	for inbox, answered := range map[string]bool{"_INBOX_team-a.x": true, "_INBOX.x": true, "_INBOX_other.x": false} {
		sub, err := c.nc.SubscribeSync(inbox)
		require.NoError(t, err)
		before := p.metric(t, "fila_refused_total")
		require.NoError(t, c.nc.PublishRequest("fila.enqueue."+queue, inbox, []byte("x")))
		if answered {
			_, err = sub.NextMsg(patience)
			require.NoError(t, err, inbox)
		} else {
			eventually(t, func() bool { return p.metric(t, "fila_refused_total") > before }, inbox)
		}
	}
	require.EqualValues(t, 2, c.depth(queue))
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
