package sidecar

import (
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/wire"
)

// TestForceDelete ends leases and fetches and answers 404 from then on.
func TestForceDelete(t *testing.T) {
	bubble(t, func(t *testing.T, x *testSite) {
		x.must("fila.admin.queue-create.orders", ``, nil)
		ch, _ := x.consumer("w", "orders", `{"consumer":"w","max_in_flight":1}`)
		x.enqueue("one", nil)
		x.enqueue("two", nil)
		m := <-ch
		require.Equal(t, 409, x.request("fila.admin.queue-delete.orders", ``, nil, nil).Code)
		require.Equal(t, 400, x.request("fila.admin.queue-delete.orders.dlq", `{"force":true}`, nil, nil).Code)
		var r wire.QueueDeleteReply
		x.must("fila.admin.queue-delete.orders", `{"force":true}`, &r)
		require.EqualValues(t, 2, r.Deleted)
		require.Equal(t, 404, x.ack(m, "").Code)
		require.Equal(t, 404, x.request("fila.consume.orders", `{"consumer":"w"}`, nil, nil).Code)
		require.Equal(t, 404, x.request("fila.admin.queue-inspect.orders.dlq", ``, nil, nil).Code)

		// A new queue of the same name begins empty.
		x.must("fila.admin.queue-create.orders", ``, nil)
		require.Zero(t, x.depth("orders").Pending)
		require.Equal(t, 409, x.ack(m, "").Code, "an old token is not the lease of anything")
		x.must("fila.admin.queue-delete.orders", ``, &r)
		require.Zero(t, r.Deleted)
	})
}

// TestUpdatesHoldWhenTheyAreAnswered while the queue is late.
func TestUpdatesHoldWhenTheyAreAnswered(t *testing.T) {
	bubble(t, func(t *testing.T, x *testSite) {
		x.must("fila.admin.queue-create.orders", "", nil)
		x.enqueue("x", nil)
		late, goOn := make(chan struct{}), make(chan struct{})
		go x.s.rooms.shard.Queue("orders").View(func(*queue.Queue, queue.Side, int64) {
			close(late)
			<-goOn
		})
		<-late
		answers, err := x.nc.SubscribeSync(nats.NewInbox())
		require.NoError(t, err)
		require.NoError(t, x.nc.PublishRequest("fila.admin.queue-update.orders", answers.Subject, []byte(`{"max_pending_per_key":1}`)))
		x.flush()
		close(goOn)
		m, err := answers.NextMsgWithContext(t.Context())
		require.NoError(t, err)
		require.Nil(t, wire.ParseError(m.Header, m.Data))
		werr := x.request("fila.enqueue.orders", "x", nil, nil)
		require.NotNil(t, werr)
		require.Equal(t, wire.CodeKeyPending, werr.ErrCode)
	})
}
