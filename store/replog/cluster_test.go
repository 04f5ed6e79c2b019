package replog

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/e2e/natstest"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/store/storetest"
)

// natsCluster runs three servers that form a NATS cluster with JetStream.
func natsCluster(t *testing.T) []*server.Server {
	t.Helper()
	ports := make([]int, 3)
	var routes []string
	for i := range ports {
		ports[i] = natstest.FreePort()
		routes = append(routes, fmt.Sprintf("nats://127.0.0.1:%d", ports[i]))
	}
	var servers []*server.Server
	for i := range ports {
		srv, err := server.NewServer(&server.Options{
			ServerName: fmt.Sprint("s", i), Host: "127.0.0.1", Port: -1, NoSigs: true, NoLog: true, JetStream: true, StoreDir: t.TempDir(),
			Cluster: server.ClusterOpts{Name: "c", Host: "127.0.0.1", Port: ports[i]},
			Routes:  server.RoutesFromStr(strings.Join(routes, ",")),
		})
		require.NoError(t, err)
		srv.Start()
		t.Cleanup(func() {
			srv.Shutdown()
			srv.WaitForShutdown()
		})
		servers = append(servers, srv)
	}
	for _, srv := range servers {
		require.True(t, srv.ReadyForConnections(30*time.Second))
	}
	return servers
}

func connectTo(t *testing.T, servers []*server.Server) jetstream.JetStream {
	t.Helper()
	var urls []string
	for _, s := range servers {
		urls = append(urls, s.ClientURL())
	}
	closed := make(chan struct{})
	nc, err := nats.Connect(strings.Join(urls, ","), nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}), nats.ClosedHandler(func(*nats.Conn) { close(closed) }))
	require.NoError(t, err)
	t.Cleanup(func() {
		nc.Close()
		<-closed
	})
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	return js
}

// The server that leads the stream dies during commits. The owner continues in the same
// epoch, and no confirmed batch is lost or duplicated.
func TestLogLeaderDies(t *testing.T) {
	if testing.Short() {
		t.Skip("an election takes seconds")
	}
	servers := natsCluster(t)
	js := connectTo(t, servers)
	oa, ob := options(js, t.TempDir(), "a"), options(connectTo(t, servers), t.TempDir(), "b")
	oa.Replicas, ob.Replicas = 3, 3
	var a *Replica
	require.Eventually(t, func() bool { // until the servers have found each other
		var err error
		a, err = Open(t.Context(), oa)
		return err == nil
	}, time.Minute, 100*time.Millisecond)
	t.Cleanup(func() { require.NoError(t, a.Close()) })
	b := openReplica(t, ob)
	s := promote(t, a)
	require.NoError(t, storeQueue(s))
	var confirmed uint64
	write := func(until func() bool) {
		for !until() {
			require.NoError(t, storeMessage(s, confirmed+1))
			confirmed++
		}
	}
	write(func() bool { return confirmed == 50 })

	stream, err := js.Stream(t.Context(), "FILA_test_LOG_3")
	require.NoError(t, err)
	leader := stream.CachedInfo().Cluster.Leader
	dead := make(chan struct{})
	for _, srv := range servers {
		if srv.Name() == leader {
			go func() {
				srv.Shutdown()
				srv.WaitForShutdown()
				close(dead)
			}()
		}
	}
	write(func() bool {
		select {
		case <-dead:
			return true
		default:
			return false
		}
	})
	more := confirmed + 50
	write(func() bool { return confirmed == more })
	require.Equal(t, uint64(1), s.Epoch())
	require.NoError(t, s.Err())
	require.NoError(t, b.Await(deadline(t), s.r.Seen().Seq))
	require.Len(t, contentOf(t, s).Messages, int(confirmed))
	require.Equal(t, contentOf(t, s), contentOf(t, b.bolt))
	require.Equal(t, "a", b.Seen().Owner)
}

func storeQueue(s store.Store) error {
	return storetest.Do(s, &store.Batch{PutQueues: []store.QueueRecord{{ID: 1, Name: "q"}}})
}

func storeMessage(s store.Store, seq uint64) error {
	return storetest.Do(s, &store.Batch{Queue: 1, Add: []store.Message{{Ref: store.Ref{Queue: 1, Seq: seq}, Payload: []byte("p")}}})
}
