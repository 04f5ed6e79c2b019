package natsio

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/config"
	"github.com/filaq/fila/sidecar/e2e/natstest"
)

// clusterOf returns the configurations of n servers of a cluster with routes on free ports.
func clusterOf(t *testing.T, n int) []config.EmbeddedConfig {
	t.Helper()
	var routes []string
	for range n {
		routes = append(routes, fmt.Sprintf("127.0.0.1:%d", natstest.FreePort()))
	}
	all := make([]config.EmbeddedConfig, n)
	for i := range all {
		cfg := anyPort()
		cfg.JetStream, cfg.JetStreamDir = true, t.TempDir()
		cfg.Cluster = config.EmbeddedCluster{Name: "test", ServerName: string(rune('a' + i)), Listen: routes[i], Routes: routes}
		all[i] = cfg
	}
	return all
}

func startAll(t *testing.T, all []config.EmbeddedConfig) []*Embedded {
	t.Helper()
	var servers []*Embedded
	for _, cfg := range all {
		servers = append(servers, startTestServer(t, cfg))
	}
	return servers
}

// routed waits until two servers have routes to each other.
func routed(t *testing.T, servers []*Embedded) {
	t.Helper()
	require.Eventually(t, func() bool {
		for _, srv := range servers {
			if srv.NumRoutes() == 0 {
				return false
			}
		}
		return true
	}, time.Minute, 10*time.Millisecond, "the servers have no routes to each other")
}

// ownJetStream returns JetStream over fila's own connection to a server.
func ownJetStream(t *testing.T, cfg config.EmbeddedConfig, srv *Embedded) jetstream.JetStream {
	t.Helper()
	nats := config.Default().NATS
	nats.Embedded = cfg
	nc, err := Connect(nats, srv, quietly(), nil, nil)
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	return js
}

// withPatience retries what an election delays.
func withPatience(t *testing.T, what string, do func(ctx context.Context) error) {
	t.Helper()
	var err error
	require.Eventually(t, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		err = do(ctx)
		return err == nil
	}, time.Minute, 20*time.Millisecond, "%s: %v", what, &err)
}

// TestEmbeddedCluster: three servers make a stream with three replicas, which survives the loss of
// any of them; a server that returns is recognised.
func TestEmbeddedCluster(t *testing.T) {
	checkLeaks(t)
	all := clusterOf(t, 3)
	servers := startAll(t, all)
	ctx := t.Context()
	var stream jetstream.Stream
	withPatience(t, "make a stream", func(ctx context.Context) (err error) {
		stream, err = ownJetStream(t, all[0], servers[0]).CreateOrUpdateStream(ctx, jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}, Replicas: 3})
		return err
	})
	_, err := ownJetStream(t, all[1], servers[1]).Publish(ctx, "s", []byte("1"))
	require.NoError(t, err)
	info, err := stream.Info(ctx)
	require.NoError(t, err)
	require.Len(t, info.Cluster.Replicas, 2)

	var leader int
	for i := range all {
		if all[i].Cluster.ServerName == info.Cluster.Leader {
			leader = i
		}
	}
	stopTestServer(servers[leader])
	left := (leader + 1) % 3
	js := ownJetStream(t, all[left], servers[left])
	withPatience(t, "publish without the leader", func(ctx context.Context) error {
		_, err := js.Publish(ctx, "s", []byte("2"), jetstream.WithMsgID("2"))
		return err
	})

	servers[leader] = startTestServer(t, all[leader])
	withPatience(t, "three replicas again", func(ctx context.Context) error {
		s, err := js.Stream(ctx, "S")
		if err != nil {
			return err
		}
		info := s.CachedInfo()
		if info.State.Msgs != 2 || len(info.Cluster.Replicas) != 2 {
			return context.DeadlineExceeded
		}
		for _, r := range info.Cluster.Replicas {
			if !r.Current || r.Offline {
				return context.DeadlineExceeded
			}
		}
		return nil
	})
	for _, srv := range servers {
		require.True(t, srv.JetStreamConfig().SyncAlways)
	}
}

// TestEmbeddedClusterLogin: a server joins only with the password of the routes.
func TestEmbeddedClusterLogin(t *testing.T) {
	checkLeaks(t)
	all := clusterOf(t, 3)
	for i := range all {
		all[i].JetStream = false
		all[i].User, all[i].Password = "ann", "secret"
		all[i].Cluster.User, all[i].Cluster.Password = "route", "p@ss/word"
	}
	all[0].Cluster.Password = "wrong"
	servers := startAll(t, all)
	routed(t, servers[1:])

	sub := dialAs(t, servers[1], "ann", "secret")
	got, err := sub.SubscribeSync("x")
	require.NoError(t, err)
	require.NoError(t, sub.Flush())
	require.Eventually(t, func() bool { // the interest has to propagate
		require.NoError(t, dialAs(t, servers[2], "ann", "secret").Publish("x", []byte("known")))
		require.NoError(t, dialAs(t, servers[0], "ann", "secret").Publish("x", []byte("stranger")))
		m, err := got.NextMsg(50 * time.Millisecond)
		require.False(t, err == nil && bytes.Equal(m.Data, []byte("stranger")))
		return err == nil
	}, time.Minute, time.Millisecond)
	require.Zero(t, servers[0].NumRoutes())
}

func dialAs(t *testing.T, srv *Embedded, user, password string) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect(srv.ClientURL(), nats.UserInfo(user, password))
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	return nc
}

// TestEmbeddedClusterTLS: routes use the certificate for clients and require one of the CA.
func TestEmbeddedClusterTLS(t *testing.T) {
	checkLeaks(t)
	certFile, keyFile := writeCertificate(t, t.TempDir())
	otherCert, otherKey := writeCertificate(t, t.TempDir())
	all := clusterOf(t, 3)
	for i := range all {
		all[i].JetStream = false
		all[i].TLS = config.TLSConfig{CA: certFile, Cert: certFile, Key: keyFile}
		all[i].Cluster.User, all[i].Cluster.Password = "route", "secret"
	}
	all[0].TLS = config.TLSConfig{CA: otherCert, Cert: otherCert, Key: otherKey}
	servers := startAll(t, all)
	routed(t, servers[1:])
	require.Zero(t, servers[0].NumRoutes())
	_, err := nats.Connect("nats://" + all[0].Cluster.Listen)
	require.Error(t, err, "it is no port for clients")
}

func TestEmbeddedClusterTakenPort(t *testing.T) {
	checkLeaks(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	cfg := clusterOf(t, 1)[0]
	cfg.Cluster.Listen = l.Addr().String()
	_, err = StartEmbedded(cfg, quietly())
	require.ErrorIs(t, err, syscall.EADDRINUSE)
	require.ErrorContains(t, err, "the embedded NATS server, for other servers, cannot listen on "+l.Addr().String()+": another process has this port; set nats.embedded.cluster.listen")
}

// TestEmbeddedClusterServerName: the default is the host name with the port, so that two servers
// on one host differ.
func TestEmbeddedClusterServerName(t *testing.T) {
	checkLeaks(t)
	cfg := clusterOf(t, 1)[0]
	cfg.JetStream, cfg.Cluster.ServerName = false, ""
	srv := startTestServer(t, cfg)
	_, port, err := net.SplitHostPort(cfg.Cluster.Listen)
	require.NoError(t, err)
	require.True(t, strings.HasSuffix(srv.Name(), "-"+port) && len(srv.Name()) > len(port)+1, srv.Name())
}
