package e2e

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
)

// fetch is one running fetch request.
type fetch struct {
	c   *client
	sub *nats.Subscription
}

// fetch sends a fetch request with a reply inbox of its own.
func (c *client) fetch(queue string, body any) *fetch {
	c.t.Helper()
	inbox := nats.NewInbox()
	sub, err := c.nc.SubscribeSync(inbox)
	require.NoError(c.t, err)
	require.NoError(c.t, sub.SetPendingLimits(-1, -1))
	c.t.Cleanup(func() { _ = sub.Unsubscribe() })
	require.NoError(c.t, c.nc.PublishRequest("fila.fetch."+queue, inbox, encode(c.t, body)))
	return &fetch{c: c, sub: sub}
}

// next returns the next message to the inbox.
func (f *fetch) next() *nats.Msg {
	f.c.t.Helper()
	msg, err := f.sub.NextMsg(patience)
	require.NoError(f.c.t, err)
	return msg
}

// take returns n deliveries.
func (f *fetch) take(n int) []delivery {
	f.c.t.Helper()
	out := make([]delivery, n)
	for i := range out {
		msg := f.next()
		require.NotEmpty(f.c.t, msg.Header.Get("Fila-Id"), "a delivery, got %v", msg.Header)
		out[i] = delivery{Msg: msg, at: time.Now()}
	}
	return out
}

// status reads the message that ends a fetch.
func (f *fetch) status(want string) {
	f.c.t.Helper()
	msg := f.next()
	require.Equal(f.c.t, want, msg.Header.Get("Status"))
	require.Empty(f.c.t, msg.Data)
	require.Empty(f.c.t, msg.Header.Get("Fila-Id"))
	f.silent()
}

// silent checks that nothing more has come.
func (f *fetch) silent() {
	f.c.t.Helper()
	f.c.flush()
	n, _, err := f.sub.Pending()
	require.NoError(f.c.t, err)
	require.Zero(f.c.t, n)
}

func TestFetchFillsItsBatch(t *testing.T) {
	c := shared(t).client(t)
	queue := c.newQueue(nil)
	ids := c.enqueueAll(backlog(queue, "x", 1, 10))
	f := c.fetch(queue, m{"batch": 4, "expires_ms": 60_000})
	for i, d := range f.take(4) {
		require.Equal(t, ids[i], d.id())
		require.Equal(t, queue, d.Header.Get("Fila-Queue"))
		require.Equal(t, 1, d.attempt(t))
		c.accepted(d, "")
	}
	require.EqualValues(t, 6, c.depth(queue))
	f.silent() // a filled batch needs no status
	require.Zero(t, c.inspect(queue).InFlight)
}

func TestEmptyFetchTakesOne(t *testing.T) {
	c := shared(t).client(t)
	queue := c.newQueue(nil)
	c.enqueueAll(backlog(queue, "x", 1, 3))
	d := c.fetch(queue, nil).take(1)[0]
	require.EqualValues(t, 1, c.inspect(queue).InFlight)
	c.accepted(d, "")
}

func TestFetchNothingThere(t *testing.T) {
	c := shared(t).client(t)
	queue := c.newQueue(nil)
	c.fetch(queue, nil).status("404")
	c.fetch(queue, m{"batch": 5}).status("404")
	c.enqueueAll(backlog(queue, "x", 1, 2))
	f := c.fetch(queue, m{"batch": 5})
	f.take(2)
	f.status("404")
}

func TestFetchExpires(t *testing.T) {
	c := shared(t).client(t)
	queue := c.newQueue(nil)
	start := time.Now()
	c.fetch(queue, m{"batch": 5, "expires_ms": 200}).status("408")
	require.GreaterOrEqual(t, time.Since(start), 200*time.Millisecond)
	c.enqueue(queue, "x")
	f := c.fetch(queue, m{"batch": 5, "expires_ms": 300})
	c.accepted(f.take(1)[0], "")
	f.status("408")
}

func TestFetchWaitsForMessages(t *testing.T) {
	c := shared(t).client(t)
	queue := c.newQueue(nil)
	f := c.fetch(queue, m{"batch": 3, "expires_ms": 600_000})
	ids := c.enqueueAll(backlog(queue, "x", 1, 5))
	for i, d := range f.take(3) {
		require.Equal(t, ids[i], d.id())
	}
	require.EqualValues(t, 2, c.inspect(queue).Pending)
	f.silent()
}

// TestFetchBatchIsNotRefilledByAcks: a batch is a number of messages, not a credit.
func TestFetchBatchIsNotRefilledByAcks(t *testing.T) {
	c := shared(t).client(t)
	queue := c.newQueue(nil)
	c.enqueueAll(backlog(queue, "x", 1, 10))
	f := c.fetch(queue, m{"batch": 3, "expires_ms": 600_000})
	for _, d := range f.take(3) {
		c.accepted(d, "")
	}
	require.EqualValues(t, 7, c.inspect(queue).Pending)
	f.silent()
}

// TestFetchInboxGone: nobody listens any more, so the fetch ends, the message
// goes to another at once and no attempt is counted.
func TestFetchInboxGone(t *testing.T) {
	c := shared(t).client(t)
	queue := c.newQueue(m{"visibility_timeout_ms": 3_600_000})
	f := c.fetch(queue, m{"batch": 10, "expires_ms": 600_000})
	eventually(t, func() bool { return c.inspect(queue).Consumers == 1 }, "a waiting fetch shows")
	require.NoError(t, f.sub.Unsubscribe())
	c.flush()
	c.enqueue(queue, "x")
	d := c.consume(queue, 1).next()
	require.Equal(t, 1, d.attempt(t))
}

func TestFetchFromADeadLetterQueue(t *testing.T) {
	c := shared(t).client(t)
	queue, ids := deadLetters(c, 2, nil)
	for i, d := range c.fetch(queue+".dlq", m{"batch": 2}).take(2) {
		require.Equal(t, ids[i], d.id())
		require.Equal(t, "term", d.Header.Get("Fila-Dead-Reason"))
		c.accepted(d, "")
	}
}

// TestFetchToAStrangersSubject: only inboxes are accepted, and refused requests
// take no message.
func TestFetchToAStrangersSubject(t *testing.T) {
	t.Parallel()
	p := startFila(t, options{}) // alone, so that its counters are the test's
	c := p.client(t)
	queue := c.newQueue(nil)
	c.enqueue(queue, "x")
	victim := unique(t)
	for _, reply := range []string{victim, "_INBOXES." + victim, "fila.enqueue." + queue, "fila.ack.0.x." + queue, "$SRV.PING"} {
		sub, err := c.nc.SubscribeSync(reply)
		require.NoError(t, err)
		c.flush()
		before := p.metric(t, "fila_refused_total")
		require.NoError(t, c.nc.PublishRequest("fila.fetch."+queue, reply, nil))
		eventually(t, func() bool { return p.metric(t, "fila_refused_total") > before }, "a counter tells of %s", reply)
		info := c.inspect(queue)
		require.EqualValues(t, 1, info.Pending)
		require.Zero(t, info.InFlight)
		c.flush()
		for n, _, _ := sub.Pending(); n > 0; n-- { // an error reply is fine where it cannot harm
			msg, err := sub.NextMsg(patience)
			require.NoError(t, err)
			require.Empty(t, msg.Header.Get("Fila-Id"), "%s got the message", reply)
			require.NotContains(t, reply, "fila.", "no reply may be sent under the prefix")
		}
		require.NoError(t, sub.Unsubscribe())
	}
	// Without a reply subject there is nowhere to deliver to.
	require.NoError(t, c.nc.Publish("fila.fetch."+queue, nil))
	require.EqualValues(t, 1, c.inspect(queue).Pending)
}

func TestBadFetchesAreRefused(t *testing.T) {
	c := shared(t).client(t)
	queue := c.newQueue(nil)
	c.enqueue(queue, "x")
	for _, body := range []any{
		"{", "[]", "5", `{"batch":1} x`,
		m{"batch": 0},
		m{"batch": -1},
		m{"batch": 65_537},
		m{"batch": "1"},
		m{"batch": 1.5},
		m{"expires_ms": -1},
		m{"expires_ms": 3_600_001},
		m{"expires": 5},
		m{"consumer": "x"},
	} {
		c.refused(400, "fila.fetch."+queue, body)
	}
	c.refused(404, "fila.fetch."+unique(t), nil)
	info := c.inspect(queue)
	require.EqualValues(t, 1, info.Pending)
	require.Zero(t, info.Consumers)
}
