package sidecar

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/cluster/meta"
	"github.com/filaq/fila/sidecar/config"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// startAlone starts the only node of a cluster and waits until it owns all shards.
func startAlone(t *testing.T, change ...func(*config.Config)) (*testSite, *clusterNode) {
	t.Helper()
	x := startSite(t, t.TempDir(), func(c *config.Config) {
		c.NATS.Embedded.JetStream = true
		c.Cluster = config.ClusterConfig{Enabled: true, Name: "test", Node: "a", Shards: 2, FailoverMs: 2500, Replicas: 1, AllowR1: true}
		for _, change := range change {
			change(c)
		}
	})
	m := x.s.storage.(*clusterNode)
	require.Eventually(t, func() bool { return len(x.s.parts.shards.Numbers()) == 2 }, time.Minute, 10*time.Millisecond)
	return x, m
}

// readyz returns the readiness of a site.
func readyz(x *testSite) string {
	state, err := x.s.readiness()
	if err != nil {
		return "503: " + err.Error()
	}
	return state
}

// scraped returns the metrics.
func scraped(x *testSite) string {
	w := httptest.NewRecorder()
	x.s.metrics.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	return w.Body.String()
}

// TestReadinessOfAClusterNode names its shards and what it cannot do.
func TestReadinessOfAClusterNode(t *testing.T) {
	t.Parallel()
	x, m := startAlone(t)
	require.Equal(t, "ready: owner of all 2 shards", readyz(x))
	x.must("fila.admin.queue-create.orders", "", nil)
	x.must("fila.enqueue.orders", "hello", nil)
	require.Eventually(t, func() bool { return strings.Contains(scraped(x), `fila_cluster_owner{shard="1"} 1`) }, time.Minute, 10*time.Millisecond)
	require.NotContains(t, scraped(x), "fila_cluster_record_bytes_count 0")
	require.Eventually(t, func() bool { // it is counted and reported a moment later
		st := m.cluster.Status()
		return st.Shards[0].LogBytes > 0 && st.Shards[1].LogBytes > 0 && strings.Contains(scraped(x), `fila_cluster_takeovers_total{kind="failure"} 2`)
	}, time.Minute, 10*time.Millisecond)

	require.False(t, m.hasCaughtUp(7, 100_000))
	require.True(t, m.hasCaughtUp(7, 1))
	require.True(t, m.hasCaughtUp(7, 100_000), "it has, once")

	m.s.parts.shards.Shard(1).Fence(true)
	require.Contains(t, readyz(x), "503: shard 1: its log does not ack")
	m.s.parts.shards.Shard(1).Fence(false)

	m.Lose(1, nil)
	require.Equal(t, "ready: owner of shards 0 of 2, standby of the others", readyz(x))
	x.end()
}

// TestEvidenceOfServers: an embedded server syncs, or is configured not to.
func TestEvidenceOfServers(t *testing.T) {
	t.Parallel()
	const text = "fila cannot see whether the NATS servers sync"
	seen := func(m *clusterNode) (servers []api.ClusterServer) {
		require.Eventually(t, func() bool {
			servers = m.cluster.Status().Servers
			return len(servers) == 1 && servers[0].Sync != ""
		}, time.Minute, 10*time.Millisecond)
		return servers
	}
	x, m := startAlone(t, func(c *config.Config) { c.Cluster.Require = []string{"version", "sync"} })
	s := seen(m)[0]
	require.Equal(t, api.ClusterServer{Server: "fila-embedded", Version: s.Version, Sync: "always", SeenBy: []string{"a"}}, s)
	require.NotContains(t, readyz(x), "degraded")
	require.Contains(t, scraped(x), `fila_cluster_servers{state="ok"} 1`)
	require.Zero(t, x.log.count(text))

	x, m = startAlone(t, func(c *config.Config) {
		c.NATS.Embedded.JetStreamSync, c.Cluster.Require = "interval", []string{"version", "sync"}
	})
	require.Equal(t, []string{"sync 2m0s"}, seen(m)[0].Missing)
	require.Equal(t, "ready: owner of all 2 shards\ndegraded: NATS server fila-embedded: sync 2m0s", readyz(x))
	require.Contains(t, scraped(x), `fila_cluster_servers{state="degraded"} 1`)
	require.Eventually(t, func() bool {
		return x.log.count(text) == 1 && x.log.count("NATS servers do not show what cluster.require asks for") == 1
	}, time.Minute, 10*time.Millisecond)
}

// TestShardThatFailsComesBack, although only its queues have failed and not its store.
func TestShardThatFailsComesBack(t *testing.T) {
	t.Parallel()
	x, m := startAlone(t)
	x.must("fila.admin.queue-create.orders", "", nil)
	x.must("fila.enqueue.orders", "hello", nil)
	home := x.s.parts.shards.Home("orders")
	failed := x.s.parts.shards.Shard(home)
	m.mu.Lock()
	epoch := m.mu.stores[home].Epoch()
	m.mu.Unlock()
	require.NoError(t, m.lost(failed))
	require.Eventually(t, func() bool {
		sh := x.s.parts.shards.Shard(home)
		return sh != nil && sh != failed && len(x.s.parts.shards.Numbers()) == 2
	}, time.Minute, 10*time.Millisecond)
	m.mu.Lock()
	require.Greater(t, m.mu.stores[home].Epoch(), epoch)
	m.mu.Unlock()
	require.NoError(t, m.lost(failed), "another one is there, which is not meant")
	require.EqualValues(t, 1, x.depth("orders").Pending)
	require.NoError(t, x.s.parts.shards.Err())
	x.end()
}

// TestClusterThatIsDeletedEndsItsNodes.
func TestClusterThatIsDeletedEndsItsNodes(t *testing.T) {
	t.Parallel()
	x, m := startAlone(t)
	js, err := jetstream.New(m.conn)
	require.NoError(t, err)
	kv, err := js.KeyValue(t.Context(), meta.Bucket("test"))
	require.NoError(t, err)
	require.NoError(t, kv.Purge(t.Context(), "cluster"))
	<-x.ended
	require.ErrorIs(t, x.err, meta.ErrUnusable)
	require.Contains(t, x.err.Error(), "deleted or made anew")
}

// TestCorruptShardIsMadeAgain at the node that owns it.
func TestCorruptShardIsMadeAgain(t *testing.T) {
	t.Parallel()
	x, m := startAlone(t)
	x.must("fila.admin.queue-create.orders", "", nil)
	var r wire.EnqueueReply
	x.must("fila.enqueue.orders", "hello", &r)
	home := x.s.parts.shards.Home("orders")
	m.mu.Lock()
	st := m.mu.stores[home]
	m.mu.Unlock()
	require.ErrorIs(t, discard(st, store.ErrCorrupt), store.ErrCorrupt)
	st.Fail(store.ErrCorrupt)
	require.Eventually(t, func() bool {
		return x.log.count("is corrupt and put aside") == 1 && len(x.s.parts.shards.Numbers()) == 2
	}, time.Minute, 10*time.Millisecond)
	require.FileExists(t, m.file(home)+".corrupt")
	require.EqualValues(t, 1, x.depth("orders").Pending)
	require.True(t, strings.HasPrefix(readyz(x), "ready"))
	x.end()
}
