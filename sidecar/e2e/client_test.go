package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/schemas/schematest"
)

type m = map[string]any

// client is a NATS connection of a test, with the requests of the protocol.
type client struct {
	t  testing.TB
	nc *nats.Conn
}

// dial connects to url. The connection reconnects for as long as the test runs.
func dial(t testing.TB, url string, opts ...nats.Option) *client {
	t.Helper()
	opts = append([]nats.Option{
		nats.MaxReconnects(-1),
		nats.ReconnectWait(20 * time.Millisecond),
		nats.ReconnectJitter(0, 0),
		nats.Timeout(patience),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			if errors.Is(err, nats.ErrSlowConsumer) {
				t.Errorf("the test itself is a slow consumer: %v", err)
			}
		}),
	}, opts...)
	nc, err := nats.Connect(url, opts...)
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	return &client{t: t, nc: nc}
}

// client connects to the NATS server of the process.
func (p *proc) client(t testing.TB) *client {
	t.Helper()
	return dial(t, p.URL)
}

// apiError is an error reply.
type apiError struct {
	Code        int    `json:"code"`
	ErrCode     int    `json:"err_code"`
	Description string `json:"description"`
	header      nats.Header
}

// Error implements error.
func (e *apiError) Error() string {
	return fmt.Sprintf("%d (%d): %s", e.Code, e.ErrCode, e.Description)
}

// errorOf returns the error in a reply, nil if it is a success, and fails the
// test if header and body do not agree.
func errorOf(t testing.TB, reply *nats.Msg) *apiError {
	t.Helper()
	code := reply.Header.Get("Nats-Service-Error-Code")
	if code == "" {
		require.Empty(t, reply.Header.Get("Nats-Service-Error"))
		return nil
	}
	var body struct {
		Error apiError `json:"error"`
	}
	require.NoError(t, json.Unmarshal(reply.Data, &body), "error body %q", reply.Data)
	require.Equal(t, code, strconv.Itoa(body.Error.Code), "code in header and body")
	require.NotZero(t, body.Error.ErrCode, "err_code")
	require.NotEmpty(t, body.Error.Description)
	require.NotEmpty(t, reply.Header.Get("Nats-Service-Error"))
	body.Error.header = reply.Header
	return &body.Error
}

// do sends a request and returns any reply.
func (c *client) do(msg *nats.Msg) *nats.Msg {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	reply, err := c.nc.RequestMsgWithContext(ctx, msg)
	require.NoError(c.t, err, "request to %s", msg.Subject)
	schematest.Reply(c.t, msg.Subject, reply.Header, reply.Data)
	return reply
}

// call sends a JSON request that must succeed; into may be nil. A body of type
// string is sent as it is.
func (c *client) call(subject string, body, into any) {
	c.t.Helper()
	reply := c.do(&nats.Msg{Subject: subject, Data: encode(c.t, body)})
	if e := errorOf(c.t, reply); e != nil {
		require.NoError(c.t, e, "request %v to %s", body, subject)
	}
	if into != nil {
		require.NoError(c.t, json.Unmarshal(reply.Data, into), "reply %q", reply.Data)
	}
}

// refused sends a JSON request that must be refused with code.
func (c *client) refused(code int, subject string, body any) *apiError {
	c.t.Helper()
	return c.refusedMsg(code, &nats.Msg{Subject: subject, Data: encode(c.t, body)})
}

// refusedMsg sends a request that must be refused with code.
func (c *client) refusedMsg(code int, msg *nats.Msg) *apiError {
	c.t.Helper()
	reply := c.do(msg)
	e := errorOf(c.t, reply)
	require.NotNil(c.t, e, "%s must be refused, got %q", msg.Subject, reply.Data)
	require.Equal(c.t, code, e.Code, "%s: %v", msg.Subject, e)
	return e
}

func encode(t testing.TB, body any) []byte {
	t.Helper()
	switch b := body.(type) {
	case nil:
		return nil
	case string:
		return []byte(b)
	}
	data, err := json.Marshal(body)
	require.NoError(t, err)
	return data
}

// createQueue creates a queue with settings, which may be nil. Retries are immediate unless
// settings say otherwise.
func (c *client) createQueue(queue string, settings m) {
	c.t.Helper()
	all := m{"retry_initial_ms": 0}
	maps.Copy(all, settings)
	settings = all
	c.call("fila.admin.queue-create."+queue, settings, nil)
}

// newQueue creates a queue with a unique name.
func (c *client) newQueue(settings m) string {
	c.t.Helper()
	queue := unique(c.t)
	c.createQueue(queue, settings)
	return queue
}

// enqueued is the reply to an enqueue.
type enqueued struct {
	ID        string `json:"id"`
	Queue     string `json:"queue"`
	Duplicate bool   `json:"duplicate"`
}

// message builds a message for queue; headers are names and values in turn.
func message(queue, payload string, headers ...string) *nats.Msg {
	msg := nats.NewMsg("fila.enqueue." + queue)
	msg.Data = []byte(payload)
	for i := 0; i < len(headers); i += 2 {
		msg.Header.Add(headers[i], headers[i+1])
	}
	return msg
}

// enqueue sends a message, waits for the confirmation and returns the reply.
func (c *client) enqueue(queue, payload string, headers ...string) enqueued {
	c.t.Helper()
	reply := c.do(message(queue, payload, headers...))
	if e := errorOf(c.t, reply); e != nil {
		require.NoError(c.t, e, "enqueue to %s", queue)
	}
	var out enqueued
	require.NoError(c.t, json.Unmarshal(reply.Data, &out), "reply %q", reply.Data)
	require.Regexp(c.t, `^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`, out.ID, "a UUIDv7")
	require.Equal(c.t, queue, out.Queue)
	return out
}

// enqueueAll pipelines the messages and waits until all are confirmed. It
// returns the ids in order.
func (c *client) enqueueAll(msgs []*nats.Msg) []string {
	c.t.Helper()
	inbox := nats.NewInbox()
	replies := make(chan *nats.Msg, len(msgs))
	sub, err := c.nc.ChanSubscribe(inbox+".*", replies)
	require.NoError(c.t, err)
	defer func() { _ = sub.Unsubscribe() }()
	for i, msg := range msgs {
		msg.Reply = inbox + "." + strconv.Itoa(i)
		require.NoError(c.t, c.nc.PublishMsg(msg))
	}
	ids := make([]string, len(msgs))
	deadline := time.After(2 * patience)
	for range msgs {
		select {
		case reply := <-replies:
			if e := errorOf(c.t, reply); e != nil {
				require.NoError(c.t, e)
			}
			i, err := strconv.Atoi(reply.Subject[len(inbox)+1:])
			require.NoError(c.t, err)
			var out enqueued
			require.NoError(c.t, json.Unmarshal(reply.Data, &out))
			require.Empty(c.t, ids[i], "one confirmation per message")
			ids[i] = out.ID
		case <-deadline:
			require.Fail(c.t, "the enqueues were not all confirmed")
		}
	}
	return ids
}

// flush returns when the server has processed all that the connection has sent.
func (c *client) flush() {
	c.t.Helper()
	require.NoError(c.t, c.nc.FlushTimeout(patience))
}
