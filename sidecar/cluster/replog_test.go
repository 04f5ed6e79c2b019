package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/e2e/natstest"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/store/replog"
	"github.com/filaq/fila/store/storetest"
	"github.com/filaq/fila/wire"
)

// served reports the stores that a node serves.
type served struct{ owned chan *replog.Store }

func (s served) Own(_ int, st Store) error { s.owned <- st.(*replog.Store); return nil }
func (served) Fence(int, bool)             {}
func (served) Lose(_ int, why error)       {}

func (served) Drain(context.Context, int) error { return nil }

// TestWithAStream has two nodes with real replicas of one stream: what the first confirms is there
// after a handover to the second, and after its death at the first again.
func TestWithAStream(t *testing.T) {
	srv := natstest.Start(t, natstest.JetStream)
	type fila struct {
		*Cluster
		served
		replica *replog.Replica
	}
	start := func(name string) *fila {
		nc, err := nats.Connect(srv.URL)
		require.NoError(t, err)
		t.Cleanup(nc.Close)
		js, err := jetstream.New(nc)
		require.NoError(t, err)
		r, err := replog.Open(t.Context(), replog.Options{
			JS: js, Cluster: "prod", Incarnation: "1", Node: name, Path: filepath.Join(t.TempDir(), "fila.db"), Create: true, Replicas: 1,
		})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, r.Close()) })
		f := &fila{served: served{owned: make(chan *replog.Store, 1)}, replica: r}
		f.Cluster, err = New(Options{
			Log: slog.New(slog.DiscardHandler), Conn: nc, Name: "prod", Node: name, Shards: 1, Serve: f.served, Replicas: []Replica{Replog(r)},
			Event: func(string, string, wire.Event) {}, Failover: MinFailover,
		})
		require.NoError(t, err)
		require.NoError(t, f.Start(t.Context()))
		return f
	}
	write := func(st *replog.Store, id store.QueueID) {
		require.NoError(t, storetest.Do(st, &store.Batch{PutQueues: []store.QueueRecord{{ID: id, Name: fmt.Sprint("q", id), Settings: []byte("{}")}}}))
	}
	queues := func(st *replog.Store) int {
		snap, err := st.Snapshot()
		require.NoError(t, err)
		return len(snap.Queues)
	}

	a := start("a")
	st := <-a.owned
	write(st, 1)
	b := start("b")
	require.Eventually(t, func() bool {
		s := a.Status().Shards[0]
		return len(s.Standbys) == 1 && s.Standbys[0].Lag == 0 && s.Standbys[0].Seq > 1
	}, 20*time.Second, 10*time.Millisecond)
	a.Shutdown(t.Context())
	st = <-b.owned
	require.Equal(t, uint64(2), st.Epoch())
	require.Equal(t, 1, queues(st))
	write(st, 2)

	c := start("c")
	b.Conn.Close() // as by a death
	st = <-c.owned
	require.Equal(t, uint64(3), st.Epoch())
	require.Equal(t, 2, queues(st))
	write(st, 3)
	c.Shutdown(t.Context())
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	b.Shutdown(gone)
}
