package meta

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/circuit"
	"github.com/filaq/fila/sidecar/config"
	"github.com/filaq/fila/sidecar/control"
	"github.com/filaq/fila/sidecar/e2e/natstest"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

func TestMain(m *testing.M) {
	natstest.MoreParallel(16)
	os.Exit(m.Run())
}

// alone runs a NATS server with JetStream for a test that runs beside others.
func alone(t *testing.T) *natstest.Server {
	t.Helper()
	t.Parallel()
	return natstest.Start(t, natstest.JetStream)
}

func connect(t *testing.T, srv *natstest.Server, opts ...nats.Option) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect(srv.URL, append(opts, nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond), nats.ReconnectBufSize(-1),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))...)
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	return nc
}

func options(nc *nats.Conn) Options {
	return Options{Log: slog.New(slog.DiscardHandler), Conn: nc, Cluster: "test", Shards: 8, Replicas: 1, AllowR1: true}
}

// join returns a node with its own connection.
func join(t *testing.T, srv *natstest.Server) *Meta {
	t.Helper()
	m, err := Open(patiently(t), options(connect(t, srv)))
	require.NoError(t, err)
	t.Cleanup(m.Close)
	return m
}

func patiently(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	require.Eventually(t, cond, time.Minute, 2*time.Millisecond, what)
}

func text(s string) *string { return &s }

// Of nodes that start at once one makes the cluster, and all join it.
func TestNodesThatStartAtOnce(t *testing.T) {
	srv := alone(t)
	nodes := make([]*Meta, 5)
	var all sync.WaitGroup
	for i := range nodes {
		o := options(connect(t, srv))
		all.Go(func() {
			m, err := Open(patiently(t), o)
			if err == nil {
				nodes[i] = m
			}
		})
	}
	all.Wait()
	for _, m := range nodes {
		require.NotNil(t, m)
		defer m.Close()
		require.Equal(t, nodes[0].Secret(), m.Secret())
		require.Equal(t, nodes[0].Incarnation(), m.Incarnation())
		require.Equal(t, 8, m.Shards())
	}
	_, err := wire.NewSigner(nodes[0].Secret())
	require.NoError(t, err)
	again := join(t, srv)
	require.Equal(t, nodes[0].Secret(), again.Secret())
}

func TestQueuesArePlacedOnce(t *testing.T) {
	srv := alone(t)
	nodes := []*Meta{join(t, srv), join(t, srv), join(t, srv)}
	const queues = 20
	var mu sync.Mutex
	found := map[string]map[Place]bool{}
	var all sync.WaitGroup
	for n, m := range nodes {
		all.Go(func() {
			for i := range queues { // in different orders, so that ids are contended for
				name := fmt.Sprint("q", (i+n*queues/3)%queues)
				p, err := m.Place(t.Context(), name)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				if found[name] == nil {
					found[name] = map[Place]bool{}
				}
				found[name][p] = true
				mu.Unlock()
			}
		})
	}
	all.Wait()
	ids, shards := map[store.QueueID]bool{}, map[int]bool{}
	for name, places := range found {
		require.Len(t, places, 1, name)
		for p := range places {
			require.False(t, ids[p.IDs[0]] || ids[p.IDs[1]], "an id was given out twice")
			ids[p.IDs[0]], ids[p.IDs[1]], shards[p.Shard] = true, true, true
			require.Less(t, p.Shard, 8)
		}
	}
	require.Len(t, ids, 2*queues)
	require.Greater(t, len(shards), 4)
	for _, m := range nodes {
		eventually(t, "all know where they are", func() bool { return len(m.Queues()) == queues })
	}

	first, ok := nodes[0].Where("q0")
	require.True(t, ok)
	dead, ok := nodes[1].Where("q0.dlq")
	require.True(t, ok)
	require.Equal(t, first, dead)
	require.NoError(t, nodes[1].Drop(t.Context(), "q0", first.IDs))
	require.NoError(t, nodes[1].Drop(t.Context(), "q0", first.IDs), "it is gone")
	none, ok := nodes[1].Where("q0.dlq")
	require.False(t, ok)
	require.Equal(t, Place{Shard: first.Shard}, none)
	second, err := nodes[1].Place(t.Context(), "q0")
	require.NoError(t, err)
	require.Equal(t, first.Shard, second.Shard)
	require.Greater(t, second.IDs[0], first.IDs[1], "ids are not used again")
	eventually(t, "the other knows", func() bool { p, _ := nodes[2].Where("q0"); return p == second })
	require.NoError(t, nodes[2].Drop(t.Context(), "q0", first.IDs), "of a node that is late")
	kept, ok := nodes[2].Where("q0")
	require.True(t, ok)
	require.Equal(t, second, kept)
}

// All nodes see the writes of one node, in order and as whole batches.
func TestEntries(t *testing.T) {
	srv := alone(t)
	a, b := join(t, srv), join(t, srv)
	var mu sync.Mutex
	told := map[string]bool{}
	b.Watch(func(keys []string) {
		mu.Lock()
		defer mu.Unlock()
		for _, key := range keys {
			told[key] = true
		}
	})
	key := "\x00pause/key/orders/any \xff bytes"
	require.NoError(t, <-a.Write(control.Batch{Put: []store.Entry{{Key: key, Value: "1"}, {Key: "other", Value: ""}}}))
	value, ok, settled := a.Newest(key)
	require.Equal(t, []any{"1", true, true}, []any{value, ok, settled}, "who has written knows")
	eventually(t, "b knows", func() bool { value, ok, _ := b.Newest(key); return ok && value == "1" })
	eventually(t, "b learns it", func() bool { mu.Lock(); defer mu.Unlock(); return told[key] && told["other"] })
	require.Equal(t, []store.Entry{{Key: key, Value: "1"}, {Key: "other"}}, b.Entries())

	// A compare and swap, all or nothing.
	require.NoError(t, <-b.Write(control.Batch{Put: []store.Entry{{Key: key, Value: "2"}}, Was: []control.Was{{Key: key, Value: text("1")}}}))
	err := <-a.Write(control.Batch{
		Put: []store.Entry{{Key: "new", Value: "x"}, {Key: key, Value: "3"}},
		Was: []control.Was{{Key: key, Value: text("1")}, {Key: "new"}},
	})
	require.ErrorIs(t, err, control.ErrChanged)
	eventually(t, "a knows", func() bool { value, _, _ := a.Newest(key); return value == "2" })
	_, ok, _ = a.Newest("new")
	require.False(t, ok, "none of a batch is there")

	require.NoError(t, <-a.Write(control.Batch{Delete: []string{key}, Was: []control.Was{{Key: key, Value: text("2")}}}))
	eventually(t, "it is gone", func() bool { return len(b.Entries()) == 1 })
	err = <-b.Write(control.Batch{Put: []store.Entry{{Key: key, Value: "4"}}, Was: []control.Was{{Key: key, Value: text("2")}}})
	require.ErrorIs(t, err, control.ErrChanged)
	require.NoError(t, <-b.Write(control.Batch{Put: []store.Entry{{Key: key, Value: "4"}}, Was: []control.Was{{Key: key}}}), "over the mark of a deletion")
	require.NoError(t, <-a.Write(control.Batch{}))
	c := join(t, srv)
	require.Equal(t, b.Entries(), c.Entries())
}

// The server refuses a whole batch for a revision that this node does not know of.
func TestTheServerComparesWholeBatches(t *testing.T) {
	srv := alone(t)
	a, b := join(t, srv), join(t, srv)
	for i := range 50 {
		var batch [2]<-chan error
		for n, m := range []*Meta{a, b} {
			mine := fmt.Sprint(i, ".", n)
			batch[n] = m.Write(control.Batch{
				Put: []store.Entry{{Key: mine, Value: "x"}, {Key: fmt.Sprint(i), Value: mine}},
				Was: []control.Was{{Key: fmt.Sprint(i)}},
			})
		}
		var winner string
		for n := range batch {
			if err := <-batch[n]; err == nil {
				require.Empty(t, winner, "both have won")
				winner = fmt.Sprint(i, ".", n)
			} else {
				require.ErrorIs(t, err, control.ErrChanged)
			}
		}
		require.NotEmpty(t, winner)
		eventually(t, "both know the winner", func() bool {
			x, _, _ := a.Newest(fmt.Sprint(i))
			y, _, _ := b.Newest(fmt.Sprint(i))
			return x == winner && y == winner
		})
		require.Len(t, a.Entries(), 2*(i+1), "what the loser has written with it is not there")
	}
}

func TestWritesHaveAnOrderAndAnySize(t *testing.T) {
	srv := alone(t)
	a, b := join(t, srv), join(t, srv)
	var last <-chan error
	for i := range 100 {
		last = a.Write(control.Batch{Put: []store.Entry{{Key: "k", Value: fmt.Sprint(i)}}})
		if i < 99 {
			continue
		}
		_, _, settled := a.Newest("k")
		require.False(t, settled)
	}
	require.NoError(t, <-last)
	value, _, settled := a.Newest("k")
	require.Equal(t, "99", value)
	require.True(t, settled)

	var many control.Batch
	for i := range 2*maxBatch + 1 {
		many.Put = append(many.Put, store.Entry{Key: fmt.Sprint("many.", i), Value: "x"})
	}
	require.NoError(t, <-a.Write(many))
	eventually(t, "b has all", func() bool { return len(b.Entries()) == 2*maxBatch+2 })
	require.Equal(t, a.Entries(), b.Entries())
}

// An expired marker prevents neither a write of the key nor its absence.
func TestForgottenMarks(t *testing.T) {
	srv := alone(t)
	a, b := join(t, srv), join(t, srv)
	require.NoError(t, <-a.Write(control.Batch{Put: []store.Entry{{Key: "k", Value: "1"}, {Key: "kept", Value: "1"}}}))
	require.NoError(t, <-a.Write(control.Batch{Delete: []string{"k"}}))
	s, err := a.js.Stream(t.Context(), "KV_"+a.bucket)
	require.NoError(t, err)
	id := idOf(controlPrefix, "k")
	require.NoError(t, s.Purge(t.Context(), jetstream.WithPurgeSubject(a.subject(id))))
	create := control.Batch{Put: []store.Entry{{Key: "k", Value: "2"}}, Was: []control.Was{{Key: "k"}}}
	require.ErrorIs(t, <-a.Write(create), control.ErrChanged, "the mark is young: an operator has purged it")
	a.mu.Lock()
	e := a.mu.entries[id]
	e.at = e.at.Add(-markTTL)
	a.mu.entries[id] = e
	a.mu.Unlock()
	require.NoError(t, <-a.Write(create))
	eventually(t, "b knows", func() bool { value, _, _ := b.Newest("k"); return value == "2" })

	require.NoError(t, s.Purge(t.Context(), jetstream.WithPurgeSubject(a.subject(id))))
	require.NoError(t, <-a.Write(control.Batch{Put: []store.Entry{{Key: "later", Value: "1"}}}))
	srv.Stop()
	srv.Again()
	for _, m := range []*Meta{a, b} {
		eventually(t, "it is gone", func() bool { _, ok, _ := m.Newest("k"); return !ok })
		eventually(t, "the rest is there", func() bool { return len(m.Entries()) == 2 })
	}
	require.NoError(t, <-b.Write(create), "and can be written again")
}

// A write waits for a server that is away, until Close.
func TestWritesWaitForTheServer(t *testing.T) {
	srv := alone(t)
	a := join(t, srv)
	srv.Stop()
	done := a.Write(control.Batch{Put: []store.Entry{{Key: "k", Value: "1"}}})
	srv.Again()
	require.NoError(t, <-done)
	srv.Stop()
	done = a.Write(control.Batch{Put: []store.Entry{{Key: "k", Value: "2"}}})
	a.cancel()
	require.Error(t, <-done)
	a.Close()
	require.ErrorIs(t, <-a.Write(control.Batch{Put: []store.Entry{{Key: "k", Value: "3"}}}), store.ErrClosed)
}

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		before func(t *testing.T, js jetstream.JetStream, m *Meta)
		change func(*Options)
		want   string
	}{
		"another number of shards": {change: func(o *Options) { o.Shards = 16 }, want: "it has 8 shards and cluster.shards = 16: the number is fixed when a cluster is made"},
		"another incarnation":      {change: func(o *Options) { o.Incarnation = "old" }, want: "this node has data of incarnation old; move its data_dir away"},
		"one replica":              {change: func(o *Options) { o.AllowR1 = false }, want: "the bucket FILA_test_META has 1 replica(s), so the loss of a server can lose the cluster; give its stream three, or set cluster.allow_r1 = true"},
		"no NATS cluster":          {change: func(o *Options) { o.Cluster, o.Replicas = "other", 3 }, want: "is in no NATS cluster, so it cannot keep 3 replicas"},
		"a foreign bucket": {before: func(t *testing.T, js jetstream.JetStream, _ *Meta) {
			_, err := js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "FILA_other_META"})
			require.NoError(t, err)
		}, change: func(o *Options) { o.Cluster = "other" }, want: "the bucket FILA_other_META is there, and was not made by a cluster of this name"},
		"foreign subjects": {before: func(t *testing.T, js jetstream.JetStream, _ *Meta) {
			_, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"$KV.FILA_other_META.x"}})
			require.NoError(t, err)
		}, change: func(o *Options) { o.Cluster = "other" }, want: "another stream has the subjects $KV.FILA_other_META.>"},
		"changed by hand": {before: func(t *testing.T, js jetstream.JetStream, m *Meta) {
			c := m.config("KV_" + m.bucket)
			c.AllowAtomicPublish = false
			_, err := js.UpdateStream(t.Context(), c)
			require.NoError(t, err)
		}, want: "the stream of the bucket FILA_test_META was changed: it needs allow_atomic"},
		"forgets": {before: func(t *testing.T, js jetstream.JetStream, m *Meta) {
			c := m.config("KV_" + m.bucket)
			c.MaxAge = time.Hour
			_, err := js.UpdateStream(t.Context(), c)
			require.NoError(t, err)
		}, want: "it removes entries, by age, number or interest"},
		"sealed": {before: func(t *testing.T, js jetstream.JetStream, m *Meta) {
			c := m.config("KV_" + m.bucket)
			c.Sealed = true
			_, err := js.UpdateStream(t.Context(), c)
			require.NoError(t, err)
		}, want: "a seal"},
		"a newer fila": {before: func(t *testing.T, js jetstream.JetStream, m *Meta) {
			text, err := json.Marshal(record{Format: 2})
			require.NoError(t, err)
			_, err = js.Publish(t.Context(), m.subject(clusterKey), text)
			require.NoError(t, err)
		}, want: "it is of a newer fila (format 2, this one knows 1)"},
		"junk": {before: func(t *testing.T, js jetstream.JetStream, m *Meta) {
			_, err := js.Publish(t.Context(), m.subject(clusterKey), []byte("junk"))
			require.NoError(t, err)
		}, want: "its entry in the bucket FILA_test_META cannot be read"},
	} {
		t.Run(name, func(t *testing.T) {
			srv := alone(t)
			m := join(t, srv)
			if tc.before != nil {
				tc.before(t, m.js, m)
			}
			o := options(connect(t, srv))
			if tc.change != nil {
				tc.change(&o)
			}
			refuses(t, o, tc.want)
		})
	}
	t.Run("no JetStream", func(t *testing.T) {
		t.Parallel()
		refuses(t, options(connect(t, natstest.Start(t))), "has no JetStream for this account; enable it there")
	})
	t.Run("no permission", func(t *testing.T) {
		t.Parallel()
		srv := natstest.Start(t, natstest.JetStream, func(o *server.Options) {
			o.Users = []*server.User{{
				Username: "u", Password: "p", Permissions: &server.Permissions{Publish: &server.SubjectPermission{Deny: []string{"$JS.API.>"}}},
			}}
		})
		refuses(t, options(connect(t, srv, nats.UserInfo("u", "p"))), "NATS refuses fila's user: ")
	})
}

// TestVersionThatLosesMessages is refused, unless it is allowed by name.
func TestVersionThatLosesMessages(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	go func() { // a server that only answers pings
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = fmt.Fprint(conn, `INFO {"server_name":"old","version":"2.12.6","headers":true,"max_payload":1048576}`+"\r\n")
		for lines := bufio.NewScanner(conn); lines.Scan(); {
			if lines.Text() == "PING" {
				_, _ = fmt.Fprint(conn, "PONG\r\n")
			}
		}
	}()
	nc, err := nats.Connect(l.Addr().String())
	require.NoError(t, err)
	defer nc.Close()
	o := options(nc)
	refuses(t, o, "has version 2.12.6, which can lose confirmed messages; upgrade it to 2.14.4 or newer, or set cluster.allow_nats = [\"2.12.6\"]")
	o.AllowNATS = []string{"2.12.6"}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = Open(ctx, o)
	require.ErrorIs(t, err, context.Canceled, "it asks JetStream")
}

func refuses(t *testing.T, o Options, want string) {
	t.Helper()
	_, err := Open(patiently(t), o)
	require.ErrorIs(t, err, ErrUnusable)
	require.ErrorContains(t, err, want)
	require.ErrorContains(t, err, "cluster "+o.Cluster+": ")
	require.NotContains(t, err.Error(), "\n")
}

// A node stops when its cluster is deleted or made again.
func TestTheClusterIsMadeAnew(t *testing.T) {
	srv := alone(t)
	m := join(t, srv)
	require.NoError(t, m.Err())
	_, err := m.js.Publish(t.Context(), m.subject(clusterKey), newRecord(8).encode())
	require.NoError(t, err)
	select {
	case <-m.Failed():
	case <-time.After(time.Minute):
		require.FailNow(t, "it goes on")
	}
	require.ErrorIs(t, m.Err(), ErrUnusable)
}

// Three servers, three nodes, three replicas; one server stops.
func TestMetaOutlivesAServer(t *testing.T) {
	t.Parallel()
	var routes []string
	var ports []int
	for range 3 {
		ports = append(ports, natstest.FreePort())
		routes = append(routes, fmt.Sprintf("nats-route://127.0.0.1:%d", ports[len(ports)-1]))
	}
	servers := make([]*natstest.Server, 3)
	nodes := make([]*Meta, 3)
	var all sync.WaitGroup
	for i := range servers {
		servers[i] = natstest.Start(t, natstest.JetStream, func(o *server.Options) {
			o.ServerName, o.Routes = string(rune('a'+i)), server.RoutesFromStr(strings.Join(routes, ","))
			o.Cluster = server.ClusterOpts{Name: "c", Host: "127.0.0.1", Port: ports[i]}
		})
		o := options(connect(t, servers[i]))
		o.Replicas, o.AllowR1 = 3, false
		all.Go(func() { // the first waits for the others
			m, err := Open(patiently(t), o)
			if err != nil {
				t.Error(err)
				return
			}
			nodes[i] = m
		})
	}
	all.Wait()
	for _, m := range nodes {
		require.NotNil(t, m)
		t.Cleanup(m.Close)
		require.Equal(t, nodes[0].Secret(), m.Secret())
	}
	p, err := nodes[0].Place(t.Context(), "orders")
	require.NoError(t, err)
	s, err := nodes[0].js.Stream(t.Context(), "KV_"+nodes[0].bucket)
	require.NoError(t, err)
	leader := slices.IndexFunc(servers, func(srv *natstest.Server) bool { return srv.Name() == s.CachedInfo().Cluster.Leader })
	require.GreaterOrEqual(t, leader, 0)
	left := nodes[(leader+1)%3]
	eventually(t, "it is known", func() bool { q, ok := left.Where("orders"); return ok && q == p })
	servers[leader].Stop()
	require.NoError(t, <-left.Write(control.Batch{Put: []store.Entry{{Key: "a", Value: "1"}, {Key: "b", Value: "2"}}}), "it waits for the election")
	other := nodes[(leader+2)%3]
	eventually(t, "the third knows", func() bool { return len(other.Entries()) == 2 })
}

// Two Controls share one bucket.
func TestControlsOfACluster(t *testing.T) {
	srv := alone(t)
	log := slog.New(slog.DiscardHandler)
	var all []*control.Control
	for i := range 2 {
		m := join(t, srv)
		now := func() int64 { return time.Now().UnixNano() }
		event := func(string, string, wire.Event) {}
		circuits := circuit.New(circuit.Options{Log: log, Now: now, Event: event, Submit: func(b *store.Batch) { b.Done(nil) }})
		t.Cleanup(circuits.Stop)
		c := control.New(control.Options{
			Log: log, Now: now, Shared: m, Node: fmt.Sprint(i), Event: event, Queues: noQueues{}, Circuits: circuits,
			MaxPayload: func() int64 { return 1 << 20 },
		}, store.Snapshot{Config: m.Entries()})
		m.Watch(c.Changed)
		require.NoError(t, c.Save())
		require.NoError(t, c.Start(config.Default()))
		t.Cleanup(c.Stop)
		all = append(all, c)
	}
	_, werr := all[0].ConfigSet(control.Actor{By: "config-set"}, "n", api.ConfigSetRequest{})
	require.Nil(t, werr)
	eventually(t, "both know it", func() bool { _, ok := all[1].Get("n"); return ok })
	var racing sync.WaitGroup
	for _, c := range all {
		racing.Go(func() {
			for n := 0; n < 20; {
				now, _ := c.Get("n")
				if _, err := c.ConfigSet(control.Actor{By: "config-set"}, "n", api.ConfigSetRequest{Value: now + "x", IfValue: &now}); err == nil {
					n++
				}
			}
		})
	}
	racing.Wait()
	for _, c := range all {
		eventually(t, "no edit is lost", func() bool { text, _ := c.Get("n"); return text == strings.Repeat("x", 40) })
	}
	_, err := all[0].Pause(control.Actor{By: "pause"}, api.PauseRequest{Kind: api.PauseThrottle, Name: "api"})
	require.Nil(t, err)
	eventually(t, "it is paused at both", func() bool { return all[1].PauseList(api.ListRequest{Limit: 10}).Total == 1 })
	_, err = all[1].Resume(control.Actor{By: "resume"}, api.PauseRequest{Kind: api.PauseThrottle, Name: "api"})
	require.Nil(t, err)
	eventually(t, "and resumed", func() bool { return all[0].PauseList(api.ListRequest{Limit: 10}).Total == 0 })
}

type noQueues struct{}

func (noQueues) Exists(string) bool                              { return false }
func (noQueues) PauseQueue(string, int64)                        {}
func (noQueues) PauseKey(string, string, int64)                  {}
func (noQueues) Weigh(string, string, uint32)                    {}
func (noQueues) Check(wire.QueueSettings) error                  { return nil }
func (noQueues) Declared(wire.QueueSettings) *wire.QueueSettings { return nil }
func (noQueues) Settings() []wire.QueueSettings                  { return nil }
func (noQueues) Declare(context.Context, wire.QueueSettings) (*wire.QueueSettings, *wire.Error) {
	return nil, nil
}

// The values that nodes keep together belong to one incarnation of the cluster, and all nodes have
// them.
func TestMemory(t *testing.T) {
	srv := alone(t)
	m, other := join(t, srv), join(t, srv)
	require.NoError(t, m.Keep(t.Context(), "node.a", []byte("1")))
	require.NoError(t, m.Keep(t.Context(), "node.b", []byte("2")))
	require.NoError(t, m.Keep(t.Context(), "verdict.0", []byte("3")))
	want := map[string][]byte{"node.a": []byte("1"), "node.b": []byte("2")}
	require.Equal(t, want, m.Kept("node."))
	eventually(t, "the other node has it", func() bool { return len(other.Kept("node.")) == 2 && len(other.Kept("")) == 3 })
	require.Equal(t, want, other.Kept("node."))
	m.mu.Lock()
	m.what.Incarnation = "another"
	m.mu.Unlock()
	require.Empty(t, m.Kept(""))
}
