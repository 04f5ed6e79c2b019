package e2e

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
)

func TestDedupe(t *testing.T) {
	c := shared(t).client(t)
	queue := c.newQueue(nil)
	other := c.newQueue(nil)
	first := c.enqueue(queue, "first", "Nats-Msg-Id", "order-1")
	again := c.enqueue(queue, "second", "Nats-Msg-Id", "order-1")
	require.False(t, first.Duplicate)
	require.True(t, again.Duplicate)
	require.Equal(t, first.ID, again.ID)
	require.False(t, c.enqueue(queue, "x", "Nats-Msg-Id", "order-2").Duplicate)
	require.False(t, c.enqueue(other, "x", "Nats-Msg-Id", "order-1").Duplicate, "a queue of its own")
	require.EqualValues(t, 2, c.depth(queue))
	k := c.consume(queue, 1)
	d := k.next()
	require.Equal(t, "first", string(d.Data))
	c.accepted(d, "")
	again = c.enqueue(queue, "third", "Nats-Msg-Id", "order-1")
	require.True(t, again.Duplicate, "also after the first has finished")
	require.Equal(t, first.ID, again.ID)
	require.EqualValues(t, 1, c.depth(queue))
}

// TestDedupePipelined sends the same id many times without waiting in between.
func TestDedupePipelined(t *testing.T) {
	c := shared(t).client(t)
	queue := c.newQueue(nil)
	var msgs []*nats.Msg
	for range 200 {
		msgs = append(msgs, message(queue, "x", "Nats-Msg-Id", "same"))
	}
	ids := c.enqueueAll(msgs)
	for _, id := range ids {
		require.Equal(t, ids[0], id)
	}
	require.EqualValues(t, 1, c.depth(queue))
}

func TestDedupeWindowEnds(t *testing.T) {
	c := shared(t).client(t)
	queue := c.newQueue(m{"dedupe_window_ms": 200})
	first := c.enqueue(queue, "x", "Nats-Msg-Id", "a")
	eventually(t, func() bool { return !c.enqueue(queue, "x", "Nats-Msg-Id", "a").Duplicate })
	off := c.newQueue(m{"dedupe_window_ms": 0})
	require.NotEqual(t, c.enqueue(off, "x", "Nats-Msg-Id", "a").ID, c.enqueue(off, "x", "Nats-Msg-Id", "a").ID)
	require.NotEmpty(t, first.ID)
}

func TestDelay(t *testing.T) {
	c := shared(t).client(t)
	for name, header := range map[string]func(d time.Duration) []string{
		"Fila-Delay": func(d time.Duration) []string { return []string{"Fila-Delay", d.String()} },
		"Fila-Not-Before": func(d time.Duration) []string {
			return []string{"Fila-Not-Before", time.Now().Add(d).Format(time.RFC3339Nano)}
		},
	} {
		queue := c.newQueue(nil)
		k := c.consume(queue, 4)
		start := time.Now()
		soon := c.enqueue(queue, "soon", header(1500*time.Millisecond)...)
		c.enqueue(queue, "far away", header(time.Hour)...)
		now := c.enqueue(queue, "now")
		zero := c.enqueue(queue, "zero", header(0)...)
		d := k.next()
		require.Equal(t, now.ID, d.id(), "%s: a delayed message holds nobody up", name)
		d = k.next()
		require.Equal(t, zero.ID, d.id())
		d = k.next()
		require.Equal(t, soon.ID, d.id())
		require.GreaterOrEqual(t, d.at.Sub(start), 1500*time.Millisecond, "%s: not earlier", name)
		require.Empty(t, d.Header.Get(name))
		require.EqualValues(t, 1, c.inspect(queue).Delayed)
		require.EqualValues(t, 3, c.inspect(queue).InFlight)
	}
}

func TestTTL(t *testing.T) {
	c := shared(t).client(t)
	for _, ttl := range []string{"1", "1s"} {
		queue := c.newQueue(nil)
		start := time.Now()
		sent := c.enqueue(queue, "stale", "Nats-TTL", ttl, "tenant", "acme")
		keeps := c.enqueue(queue, "keeps", "Nats-TTL", "never")
		dead := c.consume(queue+".dlq", 1).next()
		require.Equal(t, sent.ID, dead.id())
		require.Equal(t, "stale", string(dead.Data))
		require.Equal(t, "acme", dead.Header.Get("tenant"))
		require.Equal(t, "expired", dead.Header.Get("Fila-Dead-Reason"))
		require.GreaterOrEqual(t, dead.at.Sub(start), 900*time.Millisecond, "not much before its time")
		d := c.consume(queue, 1).next()
		require.Equal(t, keeps.ID, d.id())
		require.Empty(t, d.Header.Get("Nats-TTL"))
	}
}

// TestTTLOfALeasedMessage: the lease runs on, an ack is fine, a failure is the end.
func TestTTLOfALeasedMessage(t *testing.T) {
	c := shared(t).client(t)
	queue := c.newQueue(nil)
	clock := c.newQueue(nil)
	acked := c.enqueue(queue, "acked", "Nats-TTL", "3s")
	nacked := c.enqueue(queue, "nacked", "Nats-TTL", "3s")
	k := c.consume(queue, 2)
	ds := k.take(2)
	require.Equal(t, acked.ID, ds[0].id())
	require.Equal(t, nacked.ID, ds[1].id())
	c.enqueue(clock, "x", "Nats-TTL", "3s") // expires after both
	c.waitDepth(clock+".dlq", 1)
	require.EqualValues(t, 2, c.inspect(queue).InFlight)
	c.accepted(ds[0], "")
	c.accepted(ds[1], "-NAK")
	require.Zero(t, c.depth(queue))
	dead := c.consume(queue+".dlq", 1).next()
	require.Equal(t, nacked.ID, dead.id())
	require.Equal(t, "expired", dead.Header.Get("Fila-Dead-Reason"))
	k.none()
}

// badHeaders are enqueue headers that are refused with 400.
var badHeaders = map[string][]string{
	"delay and not-before":        {"Fila-Delay", "1s", "Fila-Not-Before", "2030-01-01T00:00:00Z"},
	"delay without unit":          {"Fila-Delay", "10"},
	"delay that is text":          {"Fila-Delay", "tomorrow"},
	"delay that is empty":         {"Fila-Delay", ""},
	"negative delay":              {"Fila-Delay", "-1s"},
	"delay of 11 years":           {"Fila-Delay", "96360h"},
	"delay twice":                 {"Fila-Delay", "1s", "Fila-Delay", "2s"},
	"delay twice, in other case":  {"Fila-Delay", "1s", "fila-delay", "2s"},
	"not-before that is a number": {"Fila-Not-Before", "1700000000"},
	"not-before without zone":     {"Fila-Not-Before", "2030-01-01T00:00:00"},
	"not-before in 3000":          {"Fila-Not-Before", "3000-01-01T00:00:00Z"},
	"TTL that is text":            {"Nats-TTL", "soon"},
	"TTL of zero":                 {"Nats-TTL", "0"},
	"negative TTL":                {"Nats-TTL", "-5"},
	"negative TTL, duration":      {"Nats-TTL", "-5s"},
	"TTL below a second":          {"Nats-TTL", "500ms"},
	"TTL of 11 years":             {"Nats-TTL", "96360h"},
	"TTL that overflows":          {"Nats-TTL", "99999999999999999999"},
	"TTL twice":                   {"Nats-TTL", "5", "Nats-TTL", "6"},
	"empty dedupe id":             {"Nats-Msg-Id", ""},
	"long dedupe id":              {"Nats-Msg-Id", strings.Repeat("x", 257)},
	"two dedupe ids":              {"Nats-Msg-Id", "a", "Nats-Msg-Id", "b"},
}

func TestBadEnqueuesAreRefused(t *testing.T) {
	c := shared(t).client(t)
	queue := c.newQueue(nil)
	for name, headers := range badHeaders {
		reply := c.do(message(queue, "x", headers...))
		e := errorOf(t, reply)
		require.NotNil(t, e, "%s must be refused", name)
		require.Equal(t, 400, e.Code, "%s: %v", name, e)
	}
	require.Zero(t, c.depth(queue), "nothing refused is kept")
	// The bounds themselves are fine.
	c.enqueue(queue, "x", "Nats-Msg-Id", strings.Repeat("x", 256))
	c.enqueue(queue, "x", "Fila-Delay", "87600h")
	c.enqueue(queue, "x", "Fila-Not-Before", "1999-01-01T00:00:00Z")
	require.EqualValues(t, 3, c.depth(queue))
}

// TestRefusedWithoutReply: an event and a counter tell.
func TestRefusedWithoutReply(t *testing.T) {
	p := shared(t)
	c := p.client(t)
	queue := c.newQueue(nil)
	events := c.events("refused." + queue)
	require.NoError(t, c.nc.PublishMsg(message(queue, "x", "Fila-Delay", "tomorrow")))
	e := nextEvent(t, events)
	require.Equal(t, queue, e.Queue)
	require.Contains(t, e.Data, "err_code")
	require.EqualValues(t, 1, p.metric(t, "fila_refused_total", "queue", queue))
	require.Zero(t, c.depth(queue))
}

func TestUnknownQueueIsRefused(t *testing.T) {
	c := shared(t).client(t)
	for _, queue := range []string{unique(t), unique(t) + ".dlq", strings.Repeat("q", 129), "no/queue"} {
		requireUnanswered(t, c, message(queue, ""), 404)
	}
}

// requireUnanswered sends a request to a queue that does not exist. fila
// subscribes queue by queue, so NATS itself may say that nobody is there.
func requireUnanswered(t testing.TB, c *client, msg *nats.Msg, code int) {
	t.Helper()
	reply, err := c.nc.RequestMsg(msg, patience)
	if errors.Is(err, nats.ErrNoResponders) {
		return
	}
	require.NoError(t, err)
	e := errorOf(t, reply)
	require.NotNil(t, e, "%s must be refused", msg.Subject)
	require.Equal(t, code, e.Code, "%v", e)
}

func TestTooLargeIsRefused(t *testing.T) {
	p := shared(t)
	c := p.client(t)
	queue := c.newQueue(nil)
	limit := int(c.nc.MaxPayload()) - 8<<10
	fits := strings.Repeat("x", limit)
	c.enqueue(queue, fits)
	c.refusedMsg(413, message(queue, fits+"x"))
	c.refusedMsg(413, message(queue, strings.Repeat("x", limit-100), "Header", strings.Repeat("h", 200)))
	events := c.events("refused." + queue)
	require.NoError(t, c.nc.Publish("fila.enqueue."+queue, []byte(fits+"x")))
	nextEvent(t, events)
	require.EqualValues(t, 1, c.depth(queue))
	d := c.consume(queue, 1).next()
	require.Equal(t, fits, string(d.Data), "the largest message is delivered whole")
	c.accepted(d, "")
}

func TestMaxDepth(t *testing.T) {
	p := shared(t)
	c := p.client(t)
	queue := c.newQueue(m{"max_depth": 3})
	for range 3 {
		c.enqueue(queue, "x")
	}
	requireFull(t, c, queue, "x")
	k := c.consume(queue, 1)
	c.accepted(k.next(), "")
	c.enqueue(queue, "x")
	requireFull(t, c, queue, "x")
	require.EqualValues(t, 2, p.metric(t, "fila_refused_total", "queue", queue))
	c.refusedMsg(429, message(queue, "x", "Nats-Msg-Id", "new"))
	require.EqualValues(t, 3, c.depth(queue), "leased messages count")
}

func TestMaxBytes(t *testing.T) {
	c := shared(t).client(t)
	queue := c.newQueue(m{"max_bytes": 10_000})
	c.enqueue(queue, strings.Repeat("x", 6000))
	requireFull(t, c, queue, strings.Repeat("x", 6000))
	c.enqueue(queue, strings.Repeat("x", 2000))
	k := c.consume(queue, 1)
	c.accepted(k.next(), "")
	c.enqueue(queue, strings.Repeat("x", 6000))
}

// requireFull checks the refusal of a full queue.
func requireFull(t testing.TB, c *client, queue, payload string) {
	t.Helper()
	e := c.refusedMsg(429, message(queue, payload))
	require.Regexp(t, `^[1-9][0-9]*$`, e.header.Get("Retry-After"), "seconds")
	require.Regexp(t, `^[1-9][0-9]*$`, e.header.Get("Fila-Retry-After-Ms"))
}

// TestBurstWithoutConfirmation: neither refused nor dropped by a client library.
func TestBurstWithoutConfirmation(t *testing.T) {
	p := shared(t)
	c := p.client(t)
	queue := c.newQueue(nil)
	n := 100_000
	if testing.Short() || raceEnabled {
		n = 20_000
	}
	payload := make([]byte, 1024)
	for range n {
		require.NoError(t, c.nc.Publish("fila.enqueue."+queue, payload))
	}
	c.flush()
	c.waitDepth(queue, int64(n))
	require.EqualValues(t, n, p.metric(t, "fila_enqueued_total", "queue", queue))
	require.Zero(t, p.metric(t, "fila_refused_total", "queue", queue))
	c.call("fila.admin.queue-delete."+queue, m{"force": true}, nil)
}
