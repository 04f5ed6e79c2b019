package e2e

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestCreditIsCounted: at no moment of a fast run does a consumer have more unanswered
// deliveries than its max_in_flight.
func TestCreditIsCounted(t *testing.T) {
	c := shared(t).client(t)
	queue := c.newQueue(nil)
	const n, credit = 3000, 10
	c.enqueueAll(backlog(queue, n))
	k := c.consume(queue, credit)
	var held []delivery
	for got := 0; got < n; {
		held = append(held, k.next())
		got++
		require.LessOrEqual(t, len(held), credit)
		if len(held) == credit || got == n { // now one more may come
			for _, d := range held {
				require.NoError(t, d.Respond(nil))
			}
			held = held[:0]
		}
	}
	c.waitDepth(queue, 0)
}

// TestQueueGroupSharesAName: several processes with one consumer name share its max_in_flight.
func TestQueueGroupSharesAName(t *testing.T) {
	p := shared(t)
	c, c2 := p.client(t), p.client(t)
	queue, name := c.newQueue(nil), unique(t)
	a := c.subscribeGroup(queue, name, "workers")
	b := c2.subscribeGroup(queue, name, "workers")
	a.register(4)
	b.register(4)
	require.Equal(t, 1, c.inspect(queue).Consumers)
	c.enqueueAll(backlog(queue, 100))
	for range 100 {
		select {
		case d := <-a.ch:
			require.NoError(t, d.Respond(nil))
		case d := <-b.ch:
			require.NoError(t, d.Respond(nil))
		case <-time.After(patience):
			require.Fail(t, "no delivery", c.dump(queue))
		}
	}
	c.waitDepth(queue, 0)
	require.EqualValues(t, 100, a.received.Load()+b.received.Load())
	require.NotZero(t, a.received.Load())
	require.NotZero(t, b.received.Load())
	// One of the two ends: the other gets all messages.
	b.unsubscribe()
	c.enqueueAll(backlog(queue, 10))
	a.drain(10)
	c.waitDepth(queue, 0)
}

// TestConsumerKilled: a consumer killed with SIGKILL sends nothing more.
func TestConsumerKilled(t *testing.T) {
	p := shared(t)
	c := p.client(t)
	queue := c.newQueue(m{"visibility_timeout_ms": 1000})
	child := startChild(t, p.URL, queue, unique(t), "5")
	ids := c.enqueueAll(backlog(queue, 5))
	var took []string
	for range 5 {
		took = append(took, child.next(t))
	}
	require.ElementsMatch(t, ids, took)
	child.kill()
	k := c.consume(queue, 5)
	var got []string
	for len(got) < 5 {
		d := k.next()
		if c.answer(d, "") == nil {
			require.GreaterOrEqual(t, d.attempt(t), 2, "the child's attempt counts")
			got = append(got, d.id())
		}
	}
	require.ElementsMatch(t, ids, got)
	require.Zero(t, c.depth(queue))
}

// TestConsumerKilledBeforeDelivery: its connection is gone, so no lease is lost.
func TestConsumerKilledBeforeDelivery(t *testing.T) {
	p := shared(t)
	c := p.client(t)
	queue := c.newQueue(m{"visibility_timeout_ms": 3_600_000})
	name := unique(t)
	child := startChild(t, p.URL, queue, name, "10")
	eventually(t, func() bool { return c.inspect(queue).Consumers == 1 })
	c.enqueue(queue, "first")
	child.next(t)
	child.kill()
	k := c.consume(queue, 10)
	ids := c.enqueueAll(backlog(queue, 10))
	var got []string
	for _, d := range k.take(10) {
		require.Equal(t, 1, d.attempt(t))
		got = append(got, d.id())
	}
	require.ElementsMatch(t, ids, got)
	require.EqualValues(t, 11, c.inspect(queue).InFlight, "what it had received waits for its lease")
}
