package sidecar

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/config"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// put publishes until the message is confirmed.
func (c *testCluster) put(queue, body string, headers ...string) (r wire.EnqueueReply) {
	c.t.Helper()
	h := nats.Header{}
	for i := 0; i < len(headers); i += 2 {
		h.Set(headers[i], headers[i+1])
	}
	c.insist("fila.enqueue."+queue, body, h, &r)
	return r
}

// kept requests the state of a queue until its owner answers.
func (c *testCluster) kept(queue string) api.QueueSummary {
	c.t.Helper()
	var info api.QueueInfo
	c.insist("fila.admin.queue-inspect."+queue, "", nil, &info)
	return info.QueueSummary
}

// TestATakeover keeps everything that a restart after kill -9 keeps: confirmed messages with leases,
// tokens, registrations, delays, ids and TTLs.
func TestATakeover(t *testing.T) {
	t.Parallel()
	c := startTestCluster(t, nil, "a", "b")
	c.gather("a")
	queues := c.inEachShard(`{"visibility_timeout_ms":3600000,"throttle_headers":["Gate"]}`)
	c.must("fila.admin.config-set.color", `{"value":"blue"}`, nil)
	c.must("fila.admin.pause", `{"kind":"throttle","name":"shut"}`, nil)
	c.must("fila.admin.throttle-set.narrow", `{"concurrency":1}`, nil)

	type kept struct {
		work   <-chan *nats.Msg
		leased *nats.Msg
		once   string
	}
	all := make([]kept, len(queues))
	for shard, queue := range queues {
		k := &all[shard]
		k.work, _ = c.consumer("w", queue, `{"consumer":"w","max_in_flight":2,"ttl_ms":3600000}`)
		c.put(queue, "leased")
		k.leased = next(t, k.work)
		require.Nil(t, c.ack(k.leased, "+WPI")) // its lease is in the log
		c.put(queue, "acked", wire.HeaderMsgID, "acked")
		require.Nil(t, c.ack(next(t, k.work), ""))
		c.put(queue, "dead")
		require.Nil(t, c.ack(next(t, k.work), "+TERM"))
		k.once = c.put(queue, "delayed", wire.HeaderDelay, "1h", wire.HeaderMsgID, "once").ID
		c.put(queue, "paused", "Gate", "shut")
	}
	c.put(queues[0], "narrow", "Gate", "narrow")
	narrow := next(t, all[0].work)
	require.Nil(t, c.ack(narrow, "+WPI"))
	c.put(queues[1], "narrow", "Gate", "narrow")

	c.nodes["a"].kill()
	for shard, queue := range queues {
		k := &all[shard]
		q := c.kept(queue)
		require.EqualValues(t, 1, q.Delayed, queue)
		require.EqualValues(t, 1, q.Consumers, queue)
		require.EqualValues(t, 1, c.kept(queue+".dlq").Pending, queue)
		again := c.put(queue, "delayed", wire.HeaderMsgID, "once")
		require.True(t, again.Duplicate)
		require.Equal(t, k.once, again.ID)
		require.True(t, c.put(queue, "acked", wire.HeaderMsgID, "acked").Duplicate)
		require.Nil(t, c.ack(k.leased, ""), "the token of before")
		require.Equal(t, wire.CodeLeaseLost, c.ack(k.leased, "").ErrCode)
		c.ownedBy(shard, "b")
		require.EqualValues(t, 1+shard, c.kept(queue).Parked, "blocked by gates: %v", queue)
	}
	require.Empty(t, all[1].work, "the permit of the other shard's lease is taken")
	require.Nil(t, c.ack(narrow, ""))
	m := next(t, all[1].work)
	require.Equal(t, "narrow", string(m.Data))
	require.Nil(t, c.ack(m, ""))
	var entry api.ConfigEntry
	c.must("fila.admin.config-get.color", "", &entry)
	require.Equal(t, "blue", entry.Value)
	c.must("fila.admin.resume", `{"kind":"throttle","name":"shut"}`, nil)
	for _, k := range all {
		m := next(t, k.work)
		require.Equal(t, "paused", string(m.Data))
		require.Equal(t, "1", m.Header.Get(wire.HeaderAttempt))
		require.Nil(t, c.ack(m, ""))
	}
}

// TestAProducerRetriesOverATakeover with the id of its message: it is one message, and all confirmations
// have the same id.
func TestAProducerRetriesOverATakeover(t *testing.T) {
	t.Parallel()
	c := startTestCluster(t, nil, "a", "b")
	c.gather("a")
	queues := c.inEachShard("")
	const producers = 8
	var sent [producers]map[string]string // message ids by the ids of producers
	var some, all sync.WaitGroup
	some.Add(producers)
	killed := make(chan struct{})
	for p := range producers {
		sent[p] = make(map[string]string)
		queue := queues[p%len(queues)]
		all.Go(func() {
			after := 3
			for i := 0; after > 0; i++ {
				id := fmt.Sprint(p, ".", i)
				for range 2 { // again, whatever came of the first try
					for {
						ctx, cancel := context.WithTimeout(context.Background(), time.Second)
						m, err := c.nc.RequestMsgWithContext(ctx, &nats.Msg{
							Subject: "fila.enqueue." + queue, Data: []byte(id), Header: nats.Header{wire.HeaderMsgID: {id}},
						})
						cancel()
						if err != nil || wire.ParseError(m.Header, m.Data) != nil {
							continue
						}
						if sent[p][id] == "" {
							sent[p][id] = idOf(m.Data)
						} else if got := idOf(m.Data); got != sent[p][id] {
							t.Errorf("%s has become %s and %s", id, sent[p][id], got)
						}
						break
					}
				}
				if i == 3 {
					some.Done()
				}
				select {
				case <-killed:
					after--
				default:
				}
			}
		})
	}
	some.Wait()
	c.nodes["a"].kill()
	close(killed)
	all.Wait()
	want := make(map[string]int64)
	for p := range producers {
		want[queues[p%len(queues)]] += int64(len(sent[p]))
	}
	for queue, n := range want {
		require.Equal(t, n, c.kept(queue).Pending, queue)
	}
}

// TestAnOwnerWithoutItsLog reaches its consumers, but not JetStream: it confirms nothing, falls silent
// after a while, and is replaced although it answers. An ack that it received meanwhile does not count.
func TestAnOwnerWithoutItsLog(t *testing.T) {
	t.Parallel()
	c := startTestCluster(t, nil, "a", "b")
	c.gather("a")
	queue := c.inEachShard(`{"visibility_timeout_ms":12000}`)[0]
	work, _ := c.consumer("w", queue, `{"consumer":"w","max_in_flight":10,"ttl_ms":3600000}`)
	first := c.put(queue, "first").ID
	m := next(t, work)
	require.Nil(t, c.ack(m, "+WPI"))
	c.put(queue, "due", wire.HeaderDelay, "6s") // when the owner is fenced

	a, b := c.nodes["a"], c.nodes["b"]
	fenced := a.log.count("the shard neither delivers nor answers") // a slow machine may have fenced them before
	a.path.stall(true)
	answers, err := c.nc.SubscribeSync(nats.NewInbox())
	require.NoError(t, err)
	require.NoError(t, c.nc.PublishRequest("fila.enqueue."+queue, answers.Subject, []byte("unconfirmed")))
	require.NoError(t, c.nc.PublishRequest(m.Reply, answers.Subject, nil))
	c.eventually(func() bool { return a.log.count("the shard neither delivers nor answers") >= fenced+2 }, "its shards are not fenced")
	// Refusals are answers, too.
	silence, err := c.nc.SubscribeSync(nats.NewInbox())
	require.NoError(t, err)
	require.NoError(t, c.nc.PublishRequest("fila.fetch."+queue, silence.Subject, []byte(`{"batch":0}`)))
	require.NoError(t, c.nc.PublishRequest("fila.ack.0.x."+queue, silence.Subject, nil))
	c.flush()
	for len(work) > 0 { // deliveries before the fence
		require.Equal(t, "unconfirmed", string((<-work).Data))
	}
	late := b.serves(0) // on a slow machine a does not answer in time and is replaced earlier
	c.eventually(func() bool { return b.serves(0) }, "nobody takes over")
	if !late {
		_, err = silence.NextMsg(0)
		require.ErrorIs(t, err, nats.ErrTimeout, "an answer of an owner that is fenced")
	}

	for range 2 { // due is delayed, and the lease of first ends
		switch d := next(t, work); string(d.Data) {
		case "due":
			require.Nil(t, c.ack(d, ""))
		case "first":
			require.Equal(t, first, d.Header.Get(wire.HeaderID))
			require.Equal(t, "2", d.Header.Get(wire.HeaderAttempt))
			require.Equal(t, wire.CodeLeaseLost, c.ack(m, "").ErrCode)
			require.Nil(t, c.ack(d, ""))
		default:
			require.Fail(t, "what was not confirmed has come", "%s", d.Data)
		}
	}

	a.path.stall(false)
	c.gather("a")
	require.Zero(t, c.kept(queue).Pending+c.kept(queue).InFlight)
	require.Empty(t, work)
	for answer, err := answers.NextMsg(0); err == nil; answer, err = answers.NextMsg(0) {
		require.NotNil(t, wire.ParseError(answer.Header, answer.Data), "%s", answer.Data)
	}
}

// TestNodesThatStartAtOnce agree on one owner of each shard.
func TestNodesThatStartAtOnce(t *testing.T) {
	t.Parallel()
	c := newTestCluster(t, func(cfg *config.Config) { cfg.Cluster.Shards = 4 })
	var all []*testMember
	for _, name := range []string{"a", "b", "c"} {
		all = append(all, c.begin(name, nil))
	}
	for _, m := range all {
		require.NoError(t, c.ready(m))
	}
	c.settled()
	for number := range 4 {
		owners := 0
		for _, m := range all {
			if m.serves(number) {
				owners++
			}
		}
		require.LessOrEqual(t, owners, 1)
	}
	for _, queue := range c.inEachShard("") {
		c.put(queue, "x")
		require.EqualValues(t, 1, c.kept(queue).Pending)
	}
}

// TestANodeLeavesADeadServerSoon: a node reconnects soon from a server that does not answer, since nobody
// replaces it as long as its logs work.
func TestANodeLeavesADeadServerSoon(t *testing.T) {
	t.Parallel()
	a := startTestCluster(t, nil, "a").nodes["a"].s
	for _, nc := range []*nats.Conn{a.endpoints.nc, a.storage.(*clusterNode).conn} {
		left := nc.Opts.PingInterval * time.Duration(nc.Opts.MaxPingsOut+1)
		require.LessOrEqual(t, left, 10*time.Second)
	}
}

// TestTwoNodesOfOneName: the second is refused, and the first goes on.
func TestTwoNodesOfOneName(t *testing.T) {
	t.Parallel()
	c := startTestCluster(t, nil, "a")
	queue := c.inEachShard("")[0]
	second := c.begin("a", func(s *Server) { s.cfg.DataDir = t.TempDir() })
	err := c.ready(second)
	require.ErrorIs(t, err, ErrAnotherFila)
	require.ErrorContains(t, err, `node "a" of cluster "test"`)
	require.ErrorContains(t, err, "each node needs a name of its own: cluster.node")
	c.put(queue, "x")
	require.EqualValues(t, 1, c.kept(queue).Pending)
}

// TestClocksOffByAnHour do not affect ownership. Delays follow the clock of the owner.
func TestClocksOffByAnHour(t *testing.T) {
	t.Parallel()
	c := startTestCluster(t, nil, "a")
	b := c.begin("b", func(s *Server) {
		right := s.now
		s.now = func() int64 { return right() + int64(time.Hour) }
	})
	require.NoError(t, c.ready(b))
	c.gather("a")
	queue := c.inEachShard(`{"visibility_timeout_ms":43200000}`)[0]
	work, _ := c.consumer("w", queue, `{"consumer":"w","ttl_ms":43200000}`)
	c.put(queue, "leased")
	m := next(t, work)
	require.Nil(t, c.ack(m, "+WPI"))
	c.put(queue, "early", wire.HeaderDelay, "30m")
	c.put(queue, "late", wire.HeaderDelay, "90m")
	before := c.status().Shards[0].Epoch
	c.nodes["a"].kill()
	early := next(t, work)
	require.Equal(t, "early", string(early.Data))
	require.Nil(t, c.ack(early, ""))
	require.Nil(t, c.ack(m, ""))
	require.EqualValues(t, 1, c.kept(queue).Delayed)
	c.eventually(func() bool { return c.nodes["b"].serves(0) }, "the owner does not say so")
	require.Equal(t, before+1, c.status().Shards[0].Epoch)
}

// TestTheFileOfAStandbyIsLost: it is made again from JetStream.
func TestTheFileOfAStandbyIsLost(t *testing.T) {
	t.Parallel()
	c := startTestCluster(t, nil, "a", "b")
	c.gather("a")
	queues := c.inEachShard("")
	for _, queue := range queues {
		c.put(queue, "before")
	}
	c.nodes["b"].leave()
	for _, queue := range queues {
		c.put(queue, "meanwhile")
	}
	require.NoError(t, os.RemoveAll(filepath.Join(c.dirs["b"], "shards")))
	c.restart("b")
	c.settled()
	c.gather("a")
	c.nodes["a"].kill()
	for _, queue := range queues {
		require.EqualValues(t, 2, c.kept(queue).Pending)
	}
}

// TestANodeDoesNotStart if its logs are not the ones that it has followed, and says so in one line.
func TestANodeDoesNotStart(t *testing.T) {
	t.Parallel()
	const stream = "FILA_test_LOG_0"
	for name, tc := range map[string]struct {
		spoil  func(t *testing.T, c *testCluster, js jetstream.JetStream)
		change func(*config.Config)
		want   []string
	}{
		"a foreign stream": {
			spoil: func(t *testing.T, _ *testCluster, js jetstream.JetStream) {
				require.NoError(t, js.DeleteStream(t.Context(), stream))
				_, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: stream, Subjects: []string{"fila_log.test.0"}})
				require.NoError(t, err)
			},
			want: []string{"shard 0 of cluster test", "not of this cluster", stream},
		},
		"one replica": {
			change: func(cfg *config.Config) { cfg.Cluster.Replicas, cfg.Cluster.AllowR1 = 3, false },
			want:   []string{"cluster test", "has 1 replica(s)", "cluster.allow_r1"},
		},
		"another number of shards": {
			change: func(cfg *config.Config) { cfg.Cluster.Shards = 4 },
			want:   []string{"cluster test", "it has 2 shards and cluster.shards = 4"},
		},
		"another incarnation": {
			spoil: func(t *testing.T, c *testCluster, js jetstream.JetStream) {
				for _, name := range []string{stream, "FILA_test_LOG_1", "KV_FILA_test_META", "OBJ_FILA_test_SNAP"} {
					require.NoError(t, js.DeleteStream(t.Context(), name))
				}
				c.start("b")
			},
			want: []string{"shard 0 of cluster test", "not of this cluster", filepath.Join("shards", "0.db"), "incarnation"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := startTestCluster(t, nil, "a")
			c.put(c.inEachShard("")[0], "x")
			c.nodes["a"].leave()
			if tc.spoil != nil {
				tc.spoil(t, c, c.js())
			}
			c.change = tc.change
			m := c.begin("a", nil)
			err := c.ready(m)
			require.Error(t, err)
			require.NotContains(t, err.Error(), "\n")
			for _, text := range tc.want {
				require.ErrorContains(t, err, text)
			}
			require.Nil(t, m.s.storage.(*clusterNode).cluster, "it has joined")
		})
	}
}

// TestANodeOfALogThatLacksItsRecords starts, since its copy may be the only one, serves the other
// shards, and is not ready.
func TestANodeOfALogThatLacksItsRecords(t *testing.T) {
	t.Parallel()
	const stream = "FILA_test_LOG_0"
	for name, anew := range map[string]bool{"the stream is gone": false, "the stream is empty": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := startTestCluster(t, nil, "a")
			queues := c.inEachShard("")
			c.put(queues[0], "x")
			c.nodes["a"].leave()
			s, err := c.js().Stream(t.Context(), stream)
			require.NoError(t, err)
			require.NoError(t, c.js().DeleteStream(t.Context(), stream))
			if anew {
				_, err = c.js().CreateStream(t.Context(), s.CachedInfo().Config)
				require.NoError(t, err)
			}
			m := c.begin("a", nil)
			require.NoError(t, c.ready(m))
			c.eventually(func() bool {
				_, err := m.s.storage.health()
				return err != nil && strings.Contains(err.Error(), "shard 0") && m.s.storage.(*clusterNode).logLost(0)
			}, "it does not say so")
			c.put(queues[1], "y")
		})
	}
}

// TestAFullLog accepts no messages, but stored ones can be finished.
func TestAFullLog(t *testing.T) {
	t.Parallel()
	c := startTestCluster(t, nil, "a", "b")
	c.gather("a")
	queue := c.inEachShard("")[0]
	work, _ := c.consumer("w", queue, `{"consumer":"w","max_in_flight":100}`)
	const n = 20
	chance := rand.NewChaCha8([32]byte{})
	for range n {
		body := make([]byte, 32<<10) // not compressible, so that some small records still fit
		_, _ = chance.Read(body)     // it never fails
		c.put(queue, string(body))
	}
	js := c.js()
	require.NoError(t, js.DeleteStream(t.Context(), "OBJ_FILA_test_SNAP")) // so that the log is not trimmed
	log, err := js.Stream(t.Context(), "FILA_test_LOG_0")
	require.NoError(t, err)
	cfg := log.CachedInfo().Config
	info, err := log.Info(t.Context())
	require.NoError(t, err)
	cfg.MaxBytes = int64(info.State.Bytes * 100 / 94)
	_, err = js.UpdateStream(t.Context(), cfg)
	require.NoError(t, err)
	c.eventually(func() bool { return c.nodes["a"].log.count("the log is nearly full") > 0 }, "it does not look at its log")
	werr := c.request("fila.enqueue."+queue, "one more", nil, nil)
	require.NotNil(t, werr)
	require.Equal(t, wire.CodeBacklogLog, werr.ErrCode)
	for range n {
		require.Nil(t, c.ack(next(t, work), ""))
	}
	require.Zero(t, c.kept(queue).Pending+c.kept(queue).InFlight)
	sh := c.status().Shards[0]
	require.Equal(t, []any{"a", false}, []any{sh.Owner, sh.Fenced})

	cfg.MaxBytes = -1
	_, err = js.UpdateStream(t.Context(), cfg)
	require.NoError(t, err)
	c.put(queue, "again")
	require.Equal(t, "again", string(next(t, work).Data))
}

// TestTheHolderOfAProbeDies with its node: the permit ends with the lease, and another node probes,
// never two at once.
func TestTheHolderOfAProbeDies(t *testing.T) {
	t.Parallel()
	c := startTestCluster(t, func(cfg *config.Config) {
		cfg.CircuitDefaults.Threshold, cfg.CircuitDefaults.CooldownMs, cfg.CircuitDefaults.HalfOpenMaxCalls = 3, 500, 1
	}, "a", "b")
	c.gather("a")
	queue := c.inEachShard(`{"visibility_timeout_ms":8000,"circuit_header":"Vendor","retry_initial_ms":0}`)[0]
	work, _ := c.consumer("w", queue, `{"consumer":"w","max_in_flight":10,"ttl_ms":3600000}`)
	first := c.put(queue, "first", "Vendor", "stripe").ID
	for range 3 {
		require.Nil(t, c.ack(next(t, work), "-NAK"))
	}
	c.put(queue, "second", "Vendor", "stripe")
	probe := next(t, work)
	require.Equal(t, first, probe.Header.Get(wire.HeaderID))
	require.Nil(t, c.ack(probe, "+WPI"))
	c.nodes["a"].kill() // and the consumer never answers
	again := next(t, work)
	require.Equal(t, wire.CodeLeaseLost, c.ack(probe, "").ErrCode, "a second probe")
	c.ownedBy(0, "b")
	require.Empty(t, work)
	require.Nil(t, c.ack(again, ""))
	last := next(t, work)
	require.NotEqual(t, again.Header.Get(wire.HeaderID), last.Header.Get(wire.HeaderID))
	require.Nil(t, c.ack(last, ""))
	require.Zero(t, c.kept(queue).Pending+c.kept(queue).InFlight)
}

// TestAllNodesDieAtOnce and restart: everything that was confirmed is there.
func TestAllNodesDieAtOnce(t *testing.T) {
	t.Parallel()
	c := startTestCluster(t, nil, "a", "b")
	queues := c.inEachShard("")
	for _, queue := range queues {
		c.put(queue, "x", wire.HeaderMsgID, "x")
	}
	for _, m := range c.nodes {
		m.kill()
	}
	for _, name := range []string{"a", "b"} {
		c.restart(name)
	}
	c.settled()
	for _, queue := range queues {
		require.True(t, c.put(queue, "x", wire.HeaderMsgID, "x").Duplicate)
		require.EqualValues(t, 1, c.kept(queue).Pending)
	}
}

// Versions of a hook that were set at one node are shown by the other, and rolled back there, before
// and after it owns the queue.
func TestHookVersionsAtTwoNodes(t *testing.T) {
	t.Parallel()
	c := startTestCluster(t, nil, "a", "b")
	c.gather("a")
	c.must("fila.admin.queue-create.orders", "", nil)
	at := func(node, verb, body string) (r api.HookReply) {
		t.Helper()
		data, err := c.nodes[node].s.do(api.Sender{Client: "alice"}, verb, "orders", []byte(body))
		require.Nil(t, err)
		require.NoError(t, json.Unmarshal(data, &r))
		return r
	}
	script := func(n int) string { return fmt.Sprintf("function on_enqueue(msg) return {weight=%d} end", n) }
	set := func(node string, n int) {
		t.Helper()
		at(node, "hook-set", fmt.Sprintf(`{"hook":"on_enqueue","script":%q,"reason":"release %d"}`, script(n), n))
	}
	show := func(node string, now, before int) {
		t.Helper()
		r := at(node, "hook-show", `{"hook":"on_enqueue"}`)
		require.Equal(t, script(now), r.Script)
		require.NotNil(t, r.Before)
		require.Equal(t, script(before), r.Before.Script)
		require.Equal(t, "alice", r.Client)
	}
	back := func(node string) {
		at(node, "hook-set", `{"hook":"on_enqueue","rollback":true,"reason":"it was wrong"}`)
	}
	set("a", 1)
	set("a", 2)
	show("b", 2, 1)
	back("b")
	show("a", 1, 2)
	set("a", 3)

	c.gather("b")
	show("b", 3, 1)
	show("a", 3, 1)
	back("b")
	show("a", 1, 3)
	back("a")
	show("b", 3, 1)
}

// A schedule goes on at the next owner of its shard and makes up for missed runs, with one message each.
func TestSchedulesOverATakeover(t *testing.T) {
	t.Parallel()
	c := startTestCluster(t, nil, "a", "b")
	c.gather("a")
	c.must("fila.admin.queue-create.orders", "", nil)
	var made api.ScheduleInfo
	c.must("fila.admin.schedule-add.orders", `{"name":"tick","schedule":"@every 1s","missed":"all"}`, &made)
	show := func() (s api.ScheduleInfo) {
		c.insist("fila.admin.schedule-show.orders", `{"name":"tick"}`, nil, &s)
		return s
	}
	c.eventually(func() bool { return show().Runs >= 2 }, "runs at the first node")
	c.nodes["a"].kill()
	before := show().Runs
	c.eventually(func() bool { return show().Runs >= before+2 }, "runs at the second node")
	var s api.ScheduleInfo
	c.must("fila.admin.schedule-pause.orders", `{"name":"tick"}`, &s)
	require.Zero(t, s.MissedN)
	require.Equal(t, made.CreatedAt, s.CreatedAt)
	got, _ := c.consumer("w", "orders", `{"consumer":"w","max_in_flight":1000}`)
	first, err := time.Parse(time.RFC3339Nano, made.Next[0])
	require.NoError(t, err)
	for i := range s.Runs {
		m := next(t, got)
		at := first.Add(time.Duration(i) * time.Second).Format(time.RFC3339Nano)
		require.Equal(t, at, m.Header.Get(wire.HeaderScheduledAt))
		require.Nil(t, c.ack(m, ""))
	}
	require.EqualValues(t, 0, c.kept("orders").Pending)
}
