package client

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/wire"
)

// restricted returns a client with only these permissions, whose requests get no answer.
func restricted(t *testing.T, publish, subscribe []string) *Client {
	t.Helper()
	srv := startNATS(t, &server.User{Username: "u", Password: "p", Permissions: &server.Permissions{
		Publish: &server.SubjectPermission{Allow: publish}, Subscribe: &server.SubjectPermission{Allow: subscribe},
	}})
	nc, err := nats.Connect("", nats.InProcessServer(srv), nats.UserInfo("u", "p"))
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	c, err := New(nc, WithTimeout(0)) // a wait for the timeout would never end
	require.NoError(t, err)
	return c
}

// patient returns a context that turns a hang into a failure.
func patient(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

func denied(t *testing.T, err error, subscribe bool, subject string) {
	t.Helper()
	var d *PermissionError
	require.ErrorAs(t, err, &d)
	require.ErrorIs(t, err, nats.ErrPermissionViolation)
	require.NotErrorIs(t, err, ErrNoReply)
	require.Equal(t, subscribe, d.Subscribe, "%v", err)
	if subject != "" {
		require.Equal(t, subject, d.Subject)
	}
}

func TestPublishingThatIsNotPermitted(t *testing.T) {
	c := restricted(t, []string{"fila.enqueue.mine"}, []string{"_INBOX.>", "fila.deliver.*.mine", "fila.deliver.*.other"})
	ctx := patient(t)

	_, err := c.Publish(ctx, "other", nil, RetryFor(time.Hour), DedupeID("x"))
	denied(t, err, false, "fila.enqueue.other")
	require.ErrorContains(t, err, "NATS permissions do not allow to publish to fila.enqueue.other, so nothing was done")
	_, err = c.QueueInspect(ctx, "other", 0)
	denied(t, err, false, "fila.admin.queue-inspect.other")
	_, err = c.Fetch(ctx, "other", 1, time.Minute)
	denied(t, err, false, "fila.fetch.other")
	_, err = c.Consume(ctx, "other", noWork, ConsumerName("w"))
	denied(t, err, false, "fila.consumer.w.other")

	future, err := c.PublishAsync(ctx, "other", nil, RetryFor(time.Hour))
	require.NoError(t, err)
	_, err = future.Wait(ctx)
	denied(t, err, false, "fila.enqueue.other")
}

// A refusal of one subject does not affect requests on others.
func TestARefusalIsOfItsSubject(t *testing.T) {
	c := restricted(t, []string{"fila.enqueue.mine", "_INBOX.>"}, []string{"_INBOX.>", "fila.enqueue.mine"})
	ctx := patient(t)
	asked := make(chan *nats.Msg, 2)
	_, err := c.nc.Subscribe("fila.enqueue.mine", func(m *nats.Msg) { asked <- m })
	require.NoError(t, err)
	future, err := c.PublishAsync(ctx, "mine", nil)
	require.NoError(t, err)
	result := make(chan error, 1)
	go func() {
		_, err := c.Publish(ctx, "mine", nil)
		result <- err
	}()
	one, two := <-asked, <-asked
	_, err = c.Publish(ctx, "other", nil)
	denied(t, err, false, "fila.enqueue.other")
	for _, m := range []*nats.Msg{one, two} {
		require.NoError(t, m.Respond([]byte(`{"id":"1"}`)))
	}
	require.NoError(t, <-result)
	_, err = future.Wait(ctx)
	require.NoError(t, err)
}

// A client that may not subscribe to its inbox sends no request: fila would carry it out, and
// the reply would be lost.
func TestRepliesThatAreNotPermitted(t *testing.T) {
	c := restricted(t, []string{">"}, []string{"fila.>"})
	ctx := patient(t)
	asked := make(chan *nats.Msg, 10)
	_, err := c.nc.Subscribe("fila.>", func(m *nats.Msg) { asked <- m })
	require.NoError(t, err)
	for range 2 {
		_, err = c.Publish(ctx, "q", nil)
		denied(t, err, true, "")
		require.ErrorContains(t, err, "to subscribe to _INBOX.")
		_, err = c.PublishAsync(ctx, "q", nil)
		denied(t, err, true, "")
		_, err = c.Fetch(ctx, "q", 1, time.Minute)
		denied(t, err, true, "")
		_, err = c.QueueList(ctx)
		denied(t, err, true, "")
	}
	require.NoError(t, c.Conn().Flush())
	require.Empty(t, asked, "nothing may be done without a reply")
}

func TestDeliveriesThatAreNotPermitted(t *testing.T) {
	c := restricted(t, []string{">"}, []string{"_INBOX.>"})
	ctx := patient(t)
	for range 2 {
		_, err := c.Consume(ctx, "q", noWork, ConsumerName("w"))
		denied(t, err, true, "fila.deliver.w.q")
	}
}

// The client does not repeat an ack that NATS refuses.
func TestAcksThatAreNotPermitted(t *testing.T) {
	c := restricted(t, []string{"fila.consumer.w.q", "fila.deliver.w.q", "_INBOX.>"}, []string{">"})
	ctx := patient(t)
	_, err := c.nc.Subscribe("fila.consumer.w.q", func(m *nats.Msg) {
		if err := m.Respond([]byte(`{"visibility_timeout_ms":600000}`)); err != nil {
			t.Error(err)
		}
	})
	require.NoError(t, err)
	told, acked := make(chan error, 10), make(chan error, 1)
	k, err := c.Consume(ctx, "q", func(ctx context.Context, m *Message) error {
		acked <- m.AckSync(ctx)
		return nil
	}, ConsumerName("w"), ManualAck(), OnError(func(err error) { told <- err }))
	require.NoError(t, err)
	require.NoError(t, c.nc.PublishMsg(&nats.Msg{Subject: "fila.deliver.w.q", Reply: "fila.ack.1.t.q", Header: nats.Header{wire.HeaderID: {"m"}}}))
	denied(t, <-acked, false, "fila.ack.1.t.q")
	denied(t, <-told, false, "fila.ack.1.t.q")
	require.NoError(t, k.Stop(ctx))
}

// The error handler of the connection's owner receives all errors as before, and several clients
// of a connection do not wrap it several times.
func TestErrorHandlersAreKept(t *testing.T) {
	c := restricted(t, []string{"x"}, []string{"_INBOX.>"})
	told := make(chan error, 10)
	before := c.refusals
	nc, err := nats.Connect("", nats.InProcessServer(startNATS(t)), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { told <- err }))
	require.NoError(t, err)
	defer nc.Close()
	for range 3 {
		one, err := New(nc)
		require.NoError(t, err)
		require.NotSame(t, before, one.refusals)
		require.Same(t, refusalsOf(nc), one.refusals)
	}
	own := errors.New("own")
	nc.ErrorHandler()(nc, nil, own)
	require.ErrorIs(t, <-told, own)
	require.Empty(t, told)
}
