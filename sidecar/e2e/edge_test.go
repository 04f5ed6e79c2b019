package e2e

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
)

// TestHeadersCannotBeInjected: text of hooks and consumers becomes header
// values, so line ends in it must not make headers.
func TestHeadersCannotBeInjected(t *testing.T) {
	c := shared(t).client(t)
	queue := c.newQueue(m{"on_enqueue": `function on_enqueue(msg) return { fairness_key = "a\r\nFila-Id: forged\r\n\r\nbody" } end`, "max_deliveries": 1})
	sent := c.enqueue(queue, "payload")
	d := c.consume(queue, 1).next()
	require.Equal(t, sent.ID, d.id())
	require.Equal(t, "payload", string(d.Data))
	require.NotContains(t, d.key(), "\n")
	e := c.answerMsg(&nats.Msg{
		Subject: strings.Replace(d.Reply, "fila.ack.", "fila.nack.", 1),
		Data:    []byte("first\r\nFila-Id: forged\r\n\r\nsecond \xff\xfe"),
	})
	require.Nil(t, e)
	dead := c.consume(queue+".dlq", 1).next()
	require.Equal(t, sent.ID, dead.id())
	require.Equal(t, "payload", string(dead.Data))
	require.NotContains(t, dead.Header.Get("Fila-Dead-Error"), "\n")
	require.Contains(t, dead.Header.Get("Fila-Dead-Error"), "first")
	require.Contains(t, dead.Header.Get("Fila-Dead-Error"), "second")
}

// TestLargestMessageWithLargestHeaders still fits when all that fila adds is as
// long as it may be, in the dead letter queue as well.
func TestLargestMessageWithLargestHeaders(t *testing.T) {
	c := shared(t).client(t)
	queue := unique(t)
	queue += strings.Repeat("q", 128-len(queue))
	c.createQueue(queue, m{"on_enqueue": `function on_enqueue(msg) return { fairness_key = string.rep("k", 256) } end`})
	payload := strings.Repeat("x", int(c.nc.MaxPayload())-8<<10)
	sent := c.enqueue(queue, payload)
	name := strings.Repeat("c", 64)
	k := c.subscribe(queue, name)
	k.register(1)
	d := k.next()
	require.Equal(t, sent.ID, d.id())
	require.Len(t, d.key(), 256)
	require.Nil(t, c.answer(d, "+TERM "+strings.Repeat("e", 2000)))
	dlq := c.subscribe(queue+".dlq", name)
	dlq.register(1)
	dead := dlq.next()
	require.Equal(t, payload, string(dead.Data))
	require.Len(t, dead.Header.Get("Fila-Dead-Error"), 1024, "an error text is cut")
	c.accepted(dead, "")
}

// TestFrozenConsumer: it does not read, so nobody learns that it is gone before
// its lease ends.
func TestFrozenConsumer(t *testing.T) {
	p := shared(t)
	c := p.client(t)
	queue := c.newQueue(m{"visibility_timeout_ms": 500})
	child := startChild(t, p.URL, queue, unique(t), "10")
	eventually(t, func() bool { return c.inspect(queue).Consumers == 1 })
	require.NoError(t, child.cmd.Process.Signal(syscall.SIGSTOP))
	sent := c.enqueue(queue, "x")
	k := c.subscribe(queue, unique(t))
	c.waitInFlight(queue, 1)
	k.register(5)
	for { // the frozen one may get it more than once
		d := k.next()
		require.Equal(t, sent.ID, d.id())
		require.Greater(t, d.attempt(t), 1)
		if c.answer(d, "") == nil {
			break
		}
	}
	require.Zero(t, c.depth(queue))
}

func (c *client) waitInFlight(queue string, n int64) {
	c.t.Helper()
	eventually(c.t, func() bool { return c.inspect(queue).InFlight == n })
}

// TestRefusedDedupeIDIsNotRemembered: what was refused may be sent again.
func TestRefusedDedupeIDIsNotRemembered(t *testing.T) {
	c := shared(t).client(t)
	queue := c.newQueue(m{"max_depth": 1})
	c.enqueue(queue, "fills it")
	c.refusedMsg(429, message(queue, "x", "Nats-Msg-Id", "m"))
	c.accepted(c.consume(queue, 1).next(), "")
	again := c.enqueue(queue, "x", "Nats-Msg-Id", "m")
	require.False(t, again.Duplicate)
	full := c.enqueue(queue, "x", "Nats-Msg-Id", "m")
	require.Equal(t, again.ID, full.ID, "a duplicate needs no room")
	c.refusedMsg(400, message(queue, "x", "Nats-Msg-Id", "n", "Fila-Delay", "never"))
	c.call("fila.admin.queue-update."+queue, m{"max_depth": 0}, nil)
	require.False(t, c.enqueue(queue, "x", "Nats-Msg-Id", "n").Duplicate)
}

// TestTTLPassesWhileDelayed: a retry that would come too late does not come.
func TestTTLPassesWhileDelayed(t *testing.T) {
	c := shared(t).client(t)
	queue := c.newQueue(nil)
	ids := []string{
		c.enqueue(queue, "nacked", "Nats-TTL", "3s").ID,
		c.enqueue(queue, "delayed", "Nats-TTL", "3s", "Fila-Delay", "1h").ID,
	}
	k := c.consume(queue, 1)
	c.accepted(k.next(), "-NAK 1h")
	var got []string
	for _, d := range c.consume(queue+".dlq", 5).take(2) {
		require.Equal(t, "expired", d.Header.Get("Fila-Dead-Reason"))
		got = append(got, d.id())
	}
	require.ElementsMatch(t, ids, got)
	require.Zero(t, c.depth(queue))
	k.none()
}

func TestDelaysComeInOrder(t *testing.T) {
	c := shared(t).client(t)
	queue := c.newQueue(nil)
	start := time.Now().Add(3 * time.Second)
	order := rand.Perm(100)
	var msgs []*nats.Msg
	for _, i := range order {
		at := start.Add(time.Duration(i) * 3 * time.Millisecond)
		msgs = append(msgs, message(queue, fmt.Sprint(i), "Fila-Not-Before", at.Format(time.RFC3339Nano)))
	}
	c.enqueueAll(msgs)
	for i, d := range c.consume(queue, 200).take(100) {
		require.Equal(t, fmt.Sprint(i), string(d.Data))
		require.False(t, d.at.Before(start.Add(time.Duration(i)*3*time.Millisecond)), "message %d came too early", i)
	}
}

// TestWaitingFetchAndConsumerTogether: both get their share, nobody gets all.
func TestWaitingFetchAndConsumerTogether(t *testing.T) {
	c := shared(t).client(t)
	queue := c.newQueue(nil)
	k := c.consume(queue, 5)
	f := c.fetch(queue, m{"batch": 5, "expires_ms": 600_000})
	ids := c.enqueueAll(backlog(queue, "x", 1, 10))
	var got []string
	for _, d := range append(k.take(5), f.take(5)...) {
		got = append(got, d.id())
	}
	require.ElementsMatch(t, ids, got)
}

// TestWeightOverrideWins over later enqueues, and survives a restart.
func TestWeightOverrideWins(t *testing.T) {
	t.Parallel()
	p := startFila(t, options{})
	c := p.client(t)
	c.createQueue("q", m{"fairness_header": "tenant", "weight_header": "weight"})
	c.call("fila.admin.config-set.weight:q:a", m{"value": "4"}, nil)
	c.enqueueAll(backlog("q", "a", 1, 1000))
	c.enqueueAll(backlog("q", "b", 1, 1000))
	n := counts(c.consume("q", 1).drain(500))
	require.InDelta(t, 400, n["a"], 5, "%v", n)
	p.Kill9(t)
	p.Restart(t)
	c = p.client(t)
	n = counts(c.consume("q", 1).drain(500))
	require.InDelta(t, 400, n["a"], 5, "after a restart: %v", n)
}

// TestQuantumCanBeChanged: a larger one makes longer turns of the same shares.
func TestQuantumCanBeChanged(t *testing.T) {
	c := shared(t).client(t)
	queue := c.newQueue(m{"fairness_header": "tenant"})
	c.enqueueAll(backlog(queue, "a", 1, 200))
	c.enqueueAll(backlog(queue, "b", 1, 200))
	c.call("fila.admin.queue-update."+queue, m{"quantum": 10}, nil)
	ds := c.consume(queue, 1).drain(200)
	n := counts(ds)
	require.InDelta(t, 100, n["a"], 11, "%v", n)
	turns := 1
	for i := 1; i < len(ds); i++ {
		if ds[i].key() != ds[i-1].key() {
			turns++
		}
	}
	require.InDelta(t, 20, turns, 2, "turns of ten")
}

// TestExternalServerWithSmallMessages: the limit is the server's, not ours.
func TestExternalServerWithSmallMessages(t *testing.T) {
	t.Parallel()
	n := startNATS(t, func(o *server.Options) { o.MaxPayload = 64 << 10 })
	startFila(t, options{natsURL: n.URL})
	c := dial(t, n.URL)
	queue := c.newQueue(nil)
	c.enqueue(queue, strings.Repeat("x", 56<<10))
	c.refusedMsg(413, message(queue, strings.Repeat("x", 56<<10+1)))
	require.Len(t, c.consume(queue, 1).next().Data, 56<<10)
}

// TestForceDeleteUnderLoad: enqueues that are on their way get an answer, and
// those who consume go on with other queues.
func TestForceDeleteUnderLoad(t *testing.T) {
	p := shared(t)
	c, producer := p.client(t), p.client(t)
	for range 5 {
		queue := c.newQueue(nil)
		c.consume(queue, 10)
		inbox := nats.NewInbox()
		replies, err := producer.nc.SubscribeSync(inbox)
		require.NoError(t, err)
		const n = 500
		for range n {
			msg := message(queue, "x")
			msg.Reply = inbox
			require.NoError(t, producer.nc.PublishMsg(msg))
		}
		c.call("fila.admin.queue-delete."+queue, m{"force": true}, nil)
		for range n { // each is answered: confirmed, refused, or nobody there
			reply, err := replies.NextMsg(patience)
			if errors.Is(err, nats.ErrNoResponders) {
				continue
			}
			require.NoError(t, err, "an enqueue was never answered")
			if e := errorOf(t, reply); e != nil {
				require.Equal(t, 404, e.Code, "%v", e)
			}
		}
		require.NoError(t, replies.Unsubscribe())
		c.refused(404, "fila.admin.queue-inspect."+queue, nil)
	}
}

// TestLargeRedrive moves more than one batch, while the DLQ is being consumed.
func TestLargeRedrive(t *testing.T) {
	c := shared(t).client(t)
	queue := c.newQueue(m{"on_failure": `function on_failure(msg) return { action = "dlq" } end`})
	n := 5000
	if testing.Short() || raceEnabled {
		n = 1000
	}
	ids := c.enqueueAll(backlog(queue, "x", 1, n))
	k := c.consume(queue, 100)
	for range n {
		require.NoError(t, k.next().Nak())
	}
	c.waitDepth(queue+".dlq", int64(n))
	k.leave()
	dead := c.consume(queue+".dlq", 1)
	held := dead.next()
	require.Equal(t, n-1, c.redrive(queue+".dlq", nil))
	c.accepted(held, "")
	k.register(100)
	var got []string
	for _, d := range k.drain(n - 1) {
		got = append(got, d.id())
	}
	require.Equal(t, remove(ids, held.id()), got, "oldest first")
	c.waitDepth(queue, 0)
	require.Zero(t, c.depth(queue+".dlq"))
}

func remove(ids []string, id string) []string {
	var out []string
	for _, one := range ids {
		if one != id {
			out = append(out, one)
		}
	}
	return out
}
