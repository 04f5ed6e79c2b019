package shard

import (
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/queue"
)

// lastDelivery keeps the last delivery to w.
type lastDelivery struct{ atomic.Pointer[nats.Msg] }

func (c *lastDelivery) MaxPayload() int64            { return 1 << 20 }
func (c *lastDelivery) Publish(string, []byte) error { return nil }

func (c *lastDelivery) PublishMsg(m *nats.Msg) error {
	if m.Subject == "w" {
		c.Store(m)
	}
	return nil
}

// BenchmarkTurns is the life of a message of 1 KB without NATS and disk: it is accepted,
// delivered and acked, one after the other, by whoever brings it.
func BenchmarkTurns(b *testing.B) {
	r := openRig(b, newDisk())
	delivered := &lastDelivery{}
	r.Conn = delivered
	r.start()
	require.NoError(r.t, r.Serve())
	q, by := r.create(nil), subscription(b)
	require.True(b, q.Tell(queue.Register{Consumer: "w", Subject: "w", MaxInFlight: 1}))
	payload := make([]byte, 1024)
	b.ReportAllocs()
	for b.Loop() {
		require.Nil(b, q.Accept(&nats.Msg{Data: payload, Reply: "producer", Sub: by}))
		var m *nats.Msg
		for m = delivered.Swap(nil); m == nil; m = delivered.Swap(nil) {
			runtime.Gosched() // the runner makes the turn when its time has come just now
		}
		text, name, _ := r.Subjects.ParseToken(m.Reply)
		token, err := r.Signer.Parse(text, name)
		require.NoError(b, err)
		require.Nil(b, q.Ack(token, done, "", by))
	}
	r.end()
}
