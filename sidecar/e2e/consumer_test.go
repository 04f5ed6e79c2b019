package e2e

import (
	"context"
	"encoding/json"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
)

// delivery is a message that fila delivered.
type delivery struct {
	*nats.Msg
	at time.Time // when the client library returned it
}

func (d delivery) id() string  { return d.Header.Get("Fila-Id") }
func (d delivery) key() string { return d.Header.Get("Fila-Key") }

func (d delivery) attempt(t testing.TB) int {
	t.Helper()
	n, err := strconv.Atoi(d.Header.Get("Fila-Attempt"))
	require.NoError(t, err)
	return n
}

// timeHeader parses an RFC 3339 header with nanoseconds.
func (d delivery) timeHeader(t testing.TB, name string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339Nano, d.Header.Get(name))
	require.NoError(t, err, "header %s", name)
	return at
}

// consumer is a registered consumer of one queue.
type consumer struct {
	c        *client
	queue    string
	name     string
	ch       chan delivery
	sub      *nats.Subscription
	received atomic.Int64
	stop     context.CancelFunc
}

// consumeReply is the reply to a registration.
type consumeReply struct {
	Deliver             string `json:"deliver"`
	MaxInFlight         int    `json:"max_in_flight"`
	VisibilityTimeoutMs int64  `json:"visibility_timeout_ms"`
}

// consume subscribes, flushes and registers a consumer with a unique name.
func (c *client) consume(queue string, maxInFlight int) *consumer {
	c.t.Helper()
	k := c.subscribe(queue, unique(c.t))
	k.register(maxInFlight)
	return k
}

// subscribe returns a consumer that is not registered yet.
func (c *client) subscribe(queue, name string) *consumer {
	c.t.Helper()
	return c.subscribeGroup(queue, name, "")
}

// subscribeGroup is subscribe in a queue group; "" is none.
func (c *client) subscribeGroup(queue, name, group string) *consumer {
	c.t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	k := &consumer{c: c, queue: queue, name: name, ch: make(chan delivery, 1024), stop: stop}
	var err error
	k.sub, err = c.nc.QueueSubscribe("fila.deliver."+name+"."+queue, group, func(msg *nats.Msg) {
		select {
		case k.ch <- delivery{Msg: msg, at: time.Now()}:
			k.received.Add(1)
		case <-ctx.Done():
		}
	})
	require.NoError(c.t, err)
	require.NoError(c.t, k.sub.SetPendingLimits(-1, -1))
	c.t.Cleanup(stop)
	c.flush()
	return k
}

// register registers the consumer, or renews it.
func (k *consumer) register(maxInFlight int) consumeReply {
	k.c.t.Helper()
	var reply consumeReply
	k.c.call("fila.consume."+k.queue, m{"consumer": k.name, "max_in_flight": maxInFlight}, &reply)
	require.Equal(k.c.t, k.sub.Subject, reply.Deliver)
	require.Equal(k.c.t, maxInFlight, reply.MaxInFlight)
	return reply
}

// leave ends the registration.
func (k *consumer) leave() {
	k.c.t.Helper()
	k.c.call("fila.consume."+k.queue, m{"consumer": k.name, "leave": true}, nil)
}

// unsubscribe ends the subscription without telling fila.
func (k *consumer) unsubscribe() {
	k.c.t.Helper()
	require.NoError(k.c.t, k.sub.Unsubscribe())
	k.c.flush()
}

// next waits for a delivery.
func (k *consumer) next() delivery {
	k.c.t.Helper()
	select {
	case d := <-k.ch:
		return d
	case <-time.After(patience):
		require.Fail(k.c.t, "no delivery", "queue %s: %s", k.queue, k.c.dump(k.queue))
		return delivery{}
	}
}

// take waits for n deliveries and acks none.
func (k *consumer) take(n int) []delivery {
	k.c.t.Helper()
	out := make([]delivery, n)
	for i := range out {
		out[i] = k.next()
	}
	return out
}

// drain waits for n deliveries, acks each at once and returns them in order.
func (k *consumer) drain(n int) []delivery {
	k.c.t.Helper()
	out := make([]delivery, n)
	for i := range out {
		out[i] = k.next()
		require.NoError(k.c.t, out[i].Respond(nil))
	}
	return out
}

// none fails the test if a delivery arrives before the reply of an inspect request.
func (k *consumer) none() {
	k.c.t.Helper()
	k.c.inspect(k.queue)
	k.c.flush()
	eventually(k.c.t, func() bool {
		handed, err := k.sub.Delivered()
		pending, _, err2 := k.sub.Pending()
		return err != nil || err2 != nil || (pending == 0 && handed == k.received.Load())
	})
	select {
	case d := <-k.ch:
		require.Fail(k.c.t, "a delivery that must not be", "id %s attempt %s payload %.80q", d.id(), d.Header.Get("Fila-Attempt"), d.Data)
	default:
	}
}

// answer sends an ack payload as a request on the reply subject and returns the
// error that fila answers, nil if it accepted.
func (c *client) answer(d delivery, payload string) *apiError {
	c.t.Helper()
	return c.answerMsg(&nats.Msg{Subject: d.Reply, Data: []byte(payload)})
}

// answerMsg is answer with the caller's own message.
func (c *client) answerMsg(msg *nats.Msg) *apiError {
	c.t.Helper()
	reply := c.do(msg)
	e := errorOf(c.t, reply)
	if e == nil {
		require.Empty(c.t, reply.Data, "a success is empty")
	}
	return e
}

// accepted sends an ack payload that must be accepted.
func (c *client) accepted(d delivery, payload string) {
	c.t.Helper()
	if e := c.answer(d, payload); e != nil {
		require.NoError(c.t, e, "answer %q", payload)
	}
}

// lost sends an ack payload that must be refused with code.
func (c *client) lost(code int, d delivery, payload string) {
	c.t.Helper()
	e := c.answer(d, payload)
	require.NotNil(c.t, e, "answer %q must be refused", payload)
	require.Equal(c.t, code, e.Code, "answer %q: %v", payload, e)
}

// queueInfo is the part of queue-inspect that the tests use.
type queueInfo struct {
	Name      string `json:"name"`
	Pending   int64  `json:"pending"`
	Parked    int64  `json:"parked"`
	Delayed   int64  `json:"delayed"`
	InFlight  int64  `json:"in_flight"`
	Moving    int64  `json:"moving"`
	Consumers int    `json:"consumers"`
	DLQ       string `json:"dlq"`
	Settings  m      `json:"settings"`
}

// inspect asks for the state of a queue.
func (c *client) inspect(queue string) queueInfo {
	c.t.Helper()
	var info queueInfo
	c.call("fila.admin.queue-inspect."+queue, nil, &info)
	require.Equal(c.t, queue, info.Name)
	return info
}

// dump returns the whole reply of queue-inspect, for failure messages.
func (c *client) dump(queue string) string {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	reply, err := c.nc.RequestWithContext(ctx, "fila.admin.queue-inspect."+queue, nil)
	if err != nil {
		return err.Error()
	}
	return string(reply.Data)
}

// depth returns the number of messages of a queue in all states.
func (c *client) depth(queue string) int64 {
	c.t.Helper()
	info := c.inspect(queue)
	return info.depth()
}

func (i *queueInfo) depth() int64 { return i.Pending + i.Delayed + i.InFlight + i.Moving }

// waitDepth waits until a queue has n messages in all states. In a cluster it may have no owner
// meanwhile.
func (c *client) waitDepth(queue string, n int64) {
	c.t.Helper()
	eventually(c.t, func() bool {
		reply := c.do(&nats.Msg{Subject: "fila.admin.queue-inspect." + queue})
		if e := errorOf(c.t, reply); e != nil {
			require.Equal(c.t, 503, e.Code, "%v", e)
			return false
		}
		var info queueInfo
		require.NoError(c.t, json.Unmarshal(reply.Data, &info))
		return info.depth() == n
	}, "depth of %s must become %d: %s", queue, n, c.dump(queue))
}
