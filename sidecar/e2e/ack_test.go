package e2e

import (
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
)

// TestAnswers lets nothing but a known payload under the token of the lease end a
// delivery, and that once.
func TestAnswers(t *testing.T) {
	c := shared(t).client(t)
	queue, other := c.newQueue(nil), c.newQueue(nil)
	k := c.consume(queue, 1)
	c.enqueue(other, "b")
	elsewhere := c.consume(other, 1).next()
	for _, payload := range []string{"", "+ACK", "+OK", "+NXT"} {
		c.enqueue(queue, payload)
		d := k.next()
		for _, bad := range []string{"+ack", "ACK", " +ACK", "-NAKED", "-NAK -5s", `-NAK {"unknown":1}`, "\x00", strings.Repeat("x", 100_000)} {
			c.lost(400, d, bad)
		}
		require.NoError(t, c.nc.Publish(d.Reply, []byte("whatever")), "nor without a reply subject")
		parts := strings.SplitN(d.Reply, ".", 5)
		require.Equal(t, []string{"fila", "ack", "0", parts[3], queue}, parts)
		token := parts[3]
		for _, forged := range []string{token[:len(token)-1], token + "A", "x", strings.Split(elsewhere.Reply, ".")[3]} {
			for _, kind := range []string{"ack", "nack"} {
				c.refusedMsg(400, &nats.Msg{Subject: "fila." + kind + ".0." + forged + "." + queue})
			}
		}
		require.EqualValues(t, 1, c.inspect(queue).InFlight, "nothing has changed")
		c.accepted(d, "+WPI")
		c.accepted(d, payload)
		require.Zero(t, c.depth(queue), "after %q", payload)
		for _, again := range []string{payload, "-NAK", "+WPI", "+TERM"} {
			c.lost(409, d, again)
		}
	}
	require.Zero(t, c.depth(queue+".dlq"))
	c.accepted(elsewhere, "")
}
