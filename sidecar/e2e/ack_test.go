package e2e

import (
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
)

// TestAnswers: only a known payload with the token of the current lease ends a delivery, and
// only once.
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

// TestAcksSayWhatMessagesHaveCost: the cost in an ack is charged to the bucket, for every form
// of ack and of delivery.
func TestAcksSayWhatMessagesHaveCost(t *testing.T) {
	c := shared(t).client(t)
	gate := unique(t)
	c.limits(gate, m{"rate": "1/86400", "burst": 1000})
	queue := c.newQueue(m{"on_enqueue": `function on_enqueue() return { cost = 50, throttle_keys = { "` + gate + `" } } end`})
	k := c.consume(queue, 1)
	for _, step := range []struct {
		payload, header string
		left            float64
	}{
		{"", "", 950},
		{`+ACK {"cost": 10.5}`, "", 939.5},
		{"+ACK", "0", 939.5},
		{"", "339.5", 600},
		{`+ACK {"cost": 1600}`, "1", -1000},
	} {
		c.enqueue(queue, "x")
		d := k.next()
		for _, bad := range []string{`+ACK {"cost":-1}`, `+ACK {"cost":1000001}`, `+ACK {"costs":1}`, "+ACK 5"} {
			c.lost(400, d, bad)
		}
		c.refusedMsg(400, &nats.Msg{Subject: d.Reply, Header: nats.Header{"Fila-Cost": {"much"}}})
		msg := &nats.Msg{Subject: d.Reply, Data: []byte(step.payload), Header: nats.Header{}}
		if step.header != "" {
			msg.Header.Set("Fila-Cost", step.header)
		}
		if e := c.answerMsg(msg); e != nil {
			require.NoError(t, e, "%+v", step)
		}
		require.Equal(t, 409, c.answerMsg(msg).Code, "it counts once")
		require.InDelta(t, step.left, c.throttle(gate).Tokens, 0.1, "%+v", step)
	}
	c.enqueue(queue, "it waits until the bucket is positive again")
	c.parked(queue, 1)
	k.leave()
	c.call("fila.admin.throttle-clear."+gate, nil, nil)
	inbox := nats.NewInbox()
	sub, err := c.nc.SubscribeSync(inbox)
	require.NoError(t, err)
	require.NoError(t, c.nc.PublishRequest("fila.fetch."+queue, inbox, []byte(`{"batch":1,"expires_ms":30000}`)))
	got, err := sub.NextMsgWithContext(t.Context())
	require.NoError(t, err)
	require.Nil(t, c.answerMsg(&nats.Msg{Subject: got.Reply, Data: []byte(`+ACK {"cost": 7}`)}))
}
