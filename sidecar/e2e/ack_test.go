package e2e

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
)

func TestAckPayloadsThatFinish(t *testing.T) {
	c := shared(t).client(t)
	queue := c.newQueue(nil)
	k := c.consume(queue, 1)
	for _, payload := range []string{"", "+ACK", "+OK", "+NXT"} {
		c.enqueue(queue, payload)
		d := k.next()
		c.accepted(d, payload)
		require.Zero(t, c.depth(queue), "after %q", payload)
		c.lost(409, d, payload)
	}
	require.Zero(t, c.depth(queue+".dlq"))
}

func TestDoubleAckIsRefused(t *testing.T) {
	c := shared(t).client(t)
	queue := c.newQueue(nil)
	c.enqueue(queue, "a")
	c.enqueue(queue, "b")
	k := c.consume(queue, 2)
	d := k.next()
	c.accepted(d, "")
	for _, payload := range []string{"", "+ACK", "-NAK", "+WPI", "+TERM"} {
		c.lost(409, d, payload)
	}
	require.EqualValues(t, 1, c.depth(queue), "the other message is untouched")
	require.Zero(t, c.depth(queue+".dlq"))
	c.accepted(k.next(), "")
	k.none()
}

func TestTokenAfterNackIsStale(t *testing.T) {
	c := shared(t).client(t)
	queue := c.newQueue(nil)
	sent := c.enqueue(queue, "a")
	k := c.consume(queue, 2)
	first := k.next()
	c.accepted(first, "-NAK")
	second := k.next()
	require.Equal(t, sent.ID, second.id())
	require.NotEqual(t, first.Reply, second.Reply)
	for _, payload := range []string{"", "-NAK", "+WPI", "+TERM", "+NXT"} {
		c.lost(409, first, payload)
	}
	require.EqualValues(t, 1, c.inspect(queue).InFlight, "the lease of the second delivery stands")
	c.accepted(second, "")
	require.Zero(t, c.depth(queue))
}

func TestTokenAfterExpiryIsStale(t *testing.T) {
	c := shared(t).client(t)
	queue := c.newQueue(m{"visibility_timeout_ms": 200})
	c.enqueue(queue, "a")
	k := c.consume(queue, 1)
	first := k.next()
	second := k.next()
	require.Equal(t, 1, first.attempt(t))
	require.Equal(t, 2, second.attempt(t))
	c.lost(409, first, "")
	require.NoError(t, c.nc.Publish(first.Reply, []byte("+ACK")), "nor without a reply subject")
	c.lost(409, first, "+TERM")
	for { // the lease is short: hold on until one is acked in time
		if c.answer(second, "") == nil {
			break
		}
		second = k.next()
	}
	require.Zero(t, c.depth(queue))
}

// tokenOf splits a reply subject fila.ack.<shard>.<token>.<queue>.
func tokenOf(t testing.TB, reply string) []string {
	t.Helper()
	parts := strings.SplitN(reply, ".", 5)
	require.Len(t, parts, 5, reply)
	require.Equal(t, []string{"fila", "ack", "0"}, parts[:3])
	return parts
}

func TestForgedTokensAreRefused(t *testing.T) {
	c := shared(t).client(t)
	queue := c.newQueue(nil)
	other := c.newQueue(nil)
	c.enqueue(queue, "a")
	c.enqueue(other, "b")
	d := c.consume(queue, 1).next()
	o := c.consume(other, 1).next()
	parts := tokenOf(t, d.Reply)
	token := parts[3]
	flip := func(i int) string {
		b := []byte(token)
		if b[i] == 'A' {
			b[i] = 'B'
		} else {
			b[i] = 'A'
		}
		return string(b)
	}
	forged := map[string]string{
		"first character":   flip(0),
		"middle character":  flip(len(token) / 2),
		"last character":    flip(len(token) - 1),
		"shorter":           token[:len(token)-1],
		"half":              token[:len(token)/2],
		"longer":            token + "A",
		"padded":            token + "=",
		"not base64url":     "!" + token[1:],
		"something else":    "x",
		"of another queue":  tokenOf(t, o.Reply)[3],
		"all zero":          strings.Repeat("A", len(token)),
		"a very long token": strings.Repeat("A", 1000),
	}
	for what, bad := range forged {
		for _, kind := range []string{"ack", "nack"} {
			subject := "fila." + kind + ".0." + bad + "." + queue
			e := c.answerMsg(&nats.Msg{Subject: subject})
			require.NotNil(t, e, "%s %s", kind, what)
			require.Equal(t, 400, e.Code, "%s %s: %v", kind, what, e)
		}
	}
	info := c.inspect(queue)
	require.EqualValues(t, 1, info.InFlight, "nothing has changed")
	require.EqualValues(t, 1, c.inspect(other).InFlight)
	c.accepted(d, "")
	c.accepted(o, "")
}

// TestTrailingBitsOfATokenCount tries every last character: base64 that ignores
// unused bits would let several spell the same token.
func TestTrailingBitsOfATokenCount(t *testing.T) {
	c := shared(t).client(t)
	queue := c.newQueue(nil)
	c.enqueue(queue, "a")
	d := c.consume(queue, 1).next()
	parts := tokenOf(t, d.Reply)
	token := parts[3]
	for _, r := range "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_" {
		if bad := token[:len(token)-1] + string(r); bad != token {
			e := c.answerMsg(&nats.Msg{Subject: "fila.ack.0." + bad + "." + queue})
			require.NotNil(t, e, "token ending in %c", r)
			require.Equal(t, 400, e.Code)
		}
	}
	c.accepted(d, "")
}

func TestAckOnAQueueThatDoesNotExist(t *testing.T) {
	c := shared(t).client(t)
	queue := c.newQueue(nil)
	c.enqueue(queue, "a")
	d := c.consume(queue, 1).next()
	parts := tokenOf(t, d.Reply)
	e := c.answerMsg(&nats.Msg{Subject: "fila.ack.0." + parts[3] + "." + unique(t)})
	require.NotNil(t, e)
	require.Contains(t, []int{400, 404}, e.Code, "not a token of that queue, which does not exist: %v", e)
	require.EqualValues(t, 1, c.inspect(queue).InFlight)
	c.accepted(d, "")
}

func TestUnknownAckPayloadsAreRefused(t *testing.T) {
	c := shared(t).client(t)
	queue := c.newQueue(nil)
	c.enqueue(queue, "a")
	d := c.consume(queue, 1).next()
	for _, payload := range []string{
		"ack", "+ack", "ACK", "+ACKS", "+ACK ", " +ACK", "-ACK", "OK", "{}", "\x00", "+",
		"-NAKED", "-NAK x", "-NAK -5s", "-NAK {", `-NAK {"delay":-1}`, `-NAK {"delay":"x"}`, `-NAK {"unknown":1}`,
		`-NAK {"retry_after_ms":-1}`, `-NAK 999999h`, `-NAK {"delay":1} {"delay":2}`,
		"+TERMINATE", "+WPIX", "+NXTX", strings.Repeat("x", 100_000),
	} {
		c.lost(400, d, payload)
	}
	for _, h := range []nats.Header{
		{"Fila-Retry-After-Ms": {"soon"}},
		{"Fila-Retry-After-Ms": {"-1"}},
	} {
		e := c.answerMsg(&nats.Msg{Subject: d.Reply, Data: []byte("-NAK"), Header: h})
		require.NotNil(t, e, "%v", h)
		require.Equal(t, 400, e.Code, "%v: %v", h, e)
	}
	info := c.inspect(queue)
	require.EqualValues(t, 1, info.InFlight, "nothing has changed")
	require.EqualValues(t, 0, info.Pending)
	require.Zero(t, c.depth(queue+".dlq"))
	c.accepted(d, "")
}

func TestUnconfirmedBadAckChangesNothing(t *testing.T) {
	c := shared(t).client(t)
	queue := c.newQueue(nil)
	c.enqueue(queue, "a")
	k := c.consume(queue, 1)
	d := k.next()
	require.NoError(t, c.nc.Publish(d.Reply, []byte("whatever")))
	// The next answer on the same connection is handled after it.
	c.accepted(d, "+WPI")
	require.EqualValues(t, 1, c.inspect(queue).InFlight)
	c.accepted(d, "")
}

// TestStatusHeaderIsReadFirst sends what the server sends when nobody listens:
// its payload is empty and must not count as an ack.
func TestStatusHeaderIsReadFirst(t *testing.T) {
	c := shared(t).client(t)
	queue := c.newQueue(nil)
	sent := c.enqueue(queue, "a")
	k := c.consume(queue, 1)
	d := k.next()
	require.NoError(t, c.nc.PublishMsg(&nats.Msg{Subject: d.Reply, Header: nats.Header{"Status": {"503"}}}))
	// The consumer counts as gone, the message as never delivered.
	eventually(t, func() bool { info := c.inspect(queue); return info.Pending == 1 && info.Consumers == 0 })
	k.register(1)
	again := k.next()
	require.Equal(t, sent.ID, again.id())
	require.Equal(t, 1, again.attempt(t), "an attempt that nobody received does not count")
	c.lost(409, d, "")
	c.accepted(again, "")
}

func TestWorkInProgressExtendsTheLease(t *testing.T) {
	c := shared(t).client(t)
	queue := c.newQueue(m{"visibility_timeout_ms": 2500})
	probe := c.newQueue(m{"visibility_timeout_ms": 2500})
	c.enqueue(queue, "a")
	k := c.consume(queue, 2)
	d := k.next()
	// A message leased later expires later: while such leases come and go, the
	// extended one must stand.
	c.enqueue(probe, "clock")
	clock := c.consume(probe, 1)
	clock.next()
	for range 2 {
		deadline := time.Now().Add(patience)
		for extended := false; !extended; {
			require.True(t, time.Now().Before(deadline), "the clock message must expire")
			c.accepted(d, "+WPI")
			select {
			case tick := <-clock.ch:
				require.Greater(t, tick.attempt(t), 1)
				extended = true
			case <-time.After(20 * time.Millisecond):
			}
		}
	}
	k.none()
	require.EqualValues(t, 1, c.inspect(queue).InFlight)
	c.accepted(d, "")
	require.Zero(t, c.depth(queue))
}

func TestWorkInProgressIsOneTimeoutFromNow(t *testing.T) {
	c := shared(t).client(t)
	queue := c.newQueue(m{"visibility_timeout_ms": 300})
	c.enqueue(queue, "a")
	k := c.consume(queue, 1)
	d := k.next()
	for range 3 {
		if e := c.answer(d, "+WPI"); e != nil {
			require.Equal(t, 409, e.Code, "it may have expired on a slow machine: %v", e)
			break
		}
	}
	// Without further extensions it expires all the same.
	again := k.next()
	require.Equal(t, 2, again.attempt(t))
	c.lost(409, d, "+WPI")
}
