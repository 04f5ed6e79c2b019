package natsio

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/config"
	"github.com/filaq/fila/wire"
)

// TestPermitsOfOthers: filas forward outcomes to each other. A missing fila is noticed at once, a
// frozen one after a while, and only filas are answered.
func TestPermitsOfOthers(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		conn, err := ConnectFleet(config.Default().NATS, r.srv, quietly())
		require.NoError(t, err)
		defer Disconnect(conn, quietly())
		common, err := wire.NewSubjects("acme")
		require.NoError(t, err)
		p := Permits{Log: quietly(), Conn: conn, Common: common}
		told := 0
		require.NoError(t, p.Serve(0xF1, func(body []byte) ([]byte, *wire.Error) {
			if told++; len(body) == 0 {
				return nil, wire.PermitNotFound("v")
			}
			return body, nil
		}))
		reply, werr, err := p.Forward(0xF1, []byte("hello"))
		require.NoError(t, err)
		require.Nil(t, werr)
		require.Equal(t, "hello", string(reply))
		_, werr, err = p.Forward(0xF1, nil)
		require.NoError(t, err)
		require.ErrorIs(t, werr, wire.PermitNotFound(""))
		require.Equal(t, 2, told)

		begin := time.Now()
		_, _, err = p.Forward(0xF2, nil)
		require.ErrorIs(t, err, nats.ErrNoResponders)
		require.Zero(t, time.Since(begin))
		frozen, err := r.client.SubscribeSync("acme.node.done.f3")
		require.NoError(t, err)
		r.flush()
		_, _, err = p.Forward(0xF3, nil)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, forwardTimeout, time.Since(begin))
		require.NoError(t, frozen.Unsubscribe())

		for _, inbox := range []string{"", "_INBOX.caller.x", "acme.guard.done.v", "_INBOX.fila."} {
			require.NoError(t, r.client.PublishMsg(&nats.Msg{Subject: "acme.node.done.f1", Reply: inbox}))
		}
		r.flush()
		_, _, err = p.Forward(0xF1, nil)
		require.NoError(t, err)
		require.Equal(t, 3, told)
	})
}
