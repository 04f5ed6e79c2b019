package sidecar

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/cluster/meta"
	"github.com/filaq/fila/sidecar/cluster/transfer"
	"github.com/filaq/fila/sidecar/config"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/store/replog"
	"github.com/filaq/fila/store/storetest"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// single is the standalone node of a testCluster.
const single = "single"

// withSingle returns a cluster without nodes.
func withSingle(t *testing.T) *testCluster {
	t.Helper()
	return newTestCluster(t, func(cfg *config.Config) {
		if cfg.Cluster.Node == single {
			cfg.Cluster = config.Default().Cluster
		}
	})
}

// transfer calls fn with the connection of a transfer command.
func (c *testCluster) transfer(fn func(ctx context.Context, o transfer.Options) error) error {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), 2*patience)
	defer cancel()
	tr, err := OpenTransfer(ctx, c.config("a", c.ns.URL), slog.New(slog.DiscardHandler), "transfer")
	require.NoError(c.t, err)
	defer tr.Close()
	if !slices.ContainsFunc(slices.Collect(maps.Values(c.nodes)), func(m *testMember) bool { return !m.gone }) {
		tr.Options.Listen = 100 * time.Millisecond // in vain
	}
	return fn(ctx, tr.Options)
}

func (c *testCluster) importFrom(path string) (m transfer.Moved, err error) {
	err = c.transfer(func(ctx context.Context, o transfer.Options) error {
		m, err = transfer.Import(ctx, o, path)
		return err
	})
	return m, err
}

func (c *testCluster) exportTo(path string) (m transfer.Moved, err error) {
	err = c.transfer(func(ctx context.Context, o transfer.Options) error {
		m, err = transfer.Export(ctx, o, path)
		return err
	})
	return m, err
}

// content is everything in a store except the state of gates and circuits.
func content(t *testing.T, path string) (*storetest.Content, []byte) {
	t.Helper()
	s, err := store.Open(path, store.Options{})
	require.NoError(t, err)
	snap, err := s.Snapshot()
	require.NoError(t, err)
	d := storetest.Dump(t, s)
	require.NoError(t, s.Close())
	d.Config = slices.DeleteFunc(d.Config, func(e store.Entry) bool { return e.Key[0] == 0 && slices.Contains([]byte("cg"), e.Key[1]) })
	return d, snap.Secret
}

func (c *testCluster) stopAll() {
	c.t.Helper()
	for _, m := range c.nodes {
		if !m.gone {
			m.leave()
		}
	}
}

// A fila becomes a cluster, which is taken over and becomes a single fila again. Ids, tokens, leases,
// delays, dead letters, dedupe ids, pauses, overrides, configuration and the audit log stay the same.
func TestFromASingleFilaToAClusterAndBack(t *testing.T) {
	t.Parallel()
	c := withSingle(t)
	alone := c.start(single)
	queues := []string{"orders", "mails", "jobs"} // in both shards
	for _, q := range queues {
		c.must("fila.admin.queue-create."+q, `{"visibility_timeout_ms":3600000,"throttle_headers":["Gate"]}`, nil)
	}
	for _, q := range queues { // schedules belong to their queues
		c.must("fila.admin.schedule-add."+q, `{"name":"nightly","schedule":"0 30 2 * * *","time_zone":"Europe/Berlin","missed":"skip","payload":"eA=="}`, nil)
	}
	c.must("fila.admin.queue-create.gone", "", nil)
	c.must("fila.admin.queue-delete.gone", "", nil)
	c.must("fila.admin.config-set.color", `{"value":"blue"}`, nil)
	c.must("fila.admin.pause", `{"kind":"throttle","name":"shut"}`, nil)
	c.must("fila.admin.throttle-set.narrow", `{"concurrency":1}`, nil)
	leased, once := make(map[string]*nats.Msg), make(map[string]string)
	work := make(map[string]<-chan *nats.Msg)
	for _, q := range queues {
		work[q], _ = c.consumer("w", q, `{"consumer":"w","max_in_flight":2,"ttl_ms":3600000}`)
		c.put(q, "leased")
		leased[q] = next(t, work[q])
		c.put(q, "dead")
		require.Nil(t, c.ack(next(t, work[q]), "+TERM"))
		once[q] = c.put(q, "delayed", wire.HeaderDelay, "1h", wire.HeaderMsgID, "once").ID
		c.put(q, "paused", "Gate", "shut")
	}
	path := filepath.Join(c.dirs[single], "fila.db")
	_, err := c.importFrom(path)
	require.ErrorIs(t, err, store.ErrLocked)
	_, err = c.exportTo(filepath.Join(t.TempDir(), "x.db"))
	require.ErrorIs(t, err, meta.ErrNone)
	alone.leave()
	delete(c.nodes, single)
	before, secret := content(t, path)

	// An interrupted import is not used, and made again.
	foreign, err := c.js().CreateStream(t.Context(), jetstream.StreamConfig{Name: "FILA_test_LOG_1", Subjects: []string{"foreign"}})
	require.NoError(t, err)
	_, err = c.importFrom(path)
	require.ErrorIs(t, err, replog.ErrForeign)
	require.ErrorContains(t, c.ready(c.begin("a", nil)), "`fila cluster import` is under way or was interrupted")
	require.NoError(t, c.js().DeleteStream(t.Context(), foreign.CachedInfo().Config.Name))
	moved, err := c.importFrom(path)
	require.NoError(t, err)
	require.EqualValues(t, 12, moved.Messages)
	require.EqualValues(t, 6, moved.Queues)
	_, err = c.importFrom(path)
	require.ErrorIs(t, err, meta.ErrUnusable)
	require.ErrorContains(t, err, "it is there already")

	back := filepath.Join(t.TempDir(), "back.db")
	same, err := c.exportTo(back)
	require.NoError(t, err)
	require.Equal(t, moved, same)
	after, key := content(t, back)
	require.Equal(t, before, after)
	require.Equal(t, secret, key)
	_, err = c.exportTo(back)
	require.ErrorIs(t, err, os.ErrExist)

	c.start("a")
	c.start("b")
	c.gather("a")
	require.Equal(t, []int{c.shardOf("orders"), c.shardOf("mails")}, []int{meta.ShardOf("orders", 2), meta.ShardOf("mails", 2)})
	_, err = c.exportTo(filepath.Join(t.TempDir(), "x.db"))
	require.ErrorIs(t, err, transfer.ErrRuns)
	require.ErrorContains(t, err, "a, b")
	kept := func(q string) {
		info := c.kept(q)
		require.EqualValues(t, 1, info.Delayed, q)
		require.EqualValues(t, 1, info.Parked, q)
		require.EqualValues(t, 1, info.Consumers, q)
		require.EqualValues(t, 1, c.kept(q+".dlq").Pending, q)
		again := c.put(q, "delayed", wire.HeaderMsgID, "once")
		require.True(t, again.Duplicate)
		require.Equal(t, once[q], again.ID)
		var schedule api.ScheduleInfo
		c.insist("fila.admin.schedule-show."+q, `{"name":"nightly"}`, nil, &schedule)
		require.Equal(t, "x", string(schedule.Payload))
		require.Len(t, schedule.Next, api.ScheduleNext)
	}
	for _, q := range queues {
		kept(q)
	}
	require.Nil(t, c.ack(leased["orders"], ""), "the token of before")
	require.Equal(t, wire.CodeLeaseLost, c.ack(leased["orders"], "").ErrCode)
	c.nodes["a"].kill()
	for _, q := range queues {
		kept(q)
	}
	require.Nil(t, c.ack(leased["mails"], ""), "the token of before, after a takeover")
	var entry api.ConfigEntry
	c.insist("fila.admin.config-get.color", "", nil, &entry)
	require.Equal(t, "blue", entry.Value)
	var schedules api.ScheduleList
	c.insist("fila.admin.schedule-list", `{}`, nil, &schedules)
	require.Len(t, schedules.Schedules, len(queues), "of both shards")
	c.insist("fila.admin.queue-create.later", "", nil, nil)
	c.stopAll()

	last := filepath.Join(t.TempDir(), "data")
	require.NoError(t, os.Mkdir(last, 0o750))
	_, err = c.exportTo(filepath.Join(last, "fila.db"))
	require.NoError(t, err)
	c.dirs[single] = last
	c.start(single)
	for _, q := range queues {
		kept(q)
	}
	require.Nil(t, c.ack(leased["jobs"], ""), "the token of before, after all")
	c.must("fila.admin.resume", `{"kind":"throttle","name":"shut"}`, nil)
	for _, q := range queues {
		m := next(t, work[q])
		require.Equal(t, "paused", string(m.Data))
		require.Nil(t, c.ack(m, ""))
	}
}

// A cluster whose logs are lost is rebuilt from the most advanced copy of each shard, also without the
// bucket, except for what only that had.
func TestAClusterIsRebuilt(t *testing.T) {
	t.Parallel()
	c := startTestCluster(t, nil, "a", "b")
	c.gather("a")
	queues := c.inEachShard(`{"visibility_timeout_ms":3600000}`)
	c.must("fila.admin.config-set.color", `{"value":"blue"}`, nil)
	var leased []*nats.Msg
	for _, q := range queues {
		work, sub := c.consumer("w", q, `{"consumer":"w","max_in_flight":1,"ttl_ms":3600000}`)
		c.put(q, "leased")
		m := next(t, work)
		require.Nil(t, c.ack(m, "+WPI"))
		leased = append(leased, m)
		require.NoError(t, sub.Unsubscribe())
	}
	b := c.nodes["b"]
	b.leave() // its copies are behind from now on
	delete(c.nodes, "b")
	for _, q := range queues {
		c.put(q, "later", wire.HeaderDelay, "1h")
	}
	var plan *transfer.Plan
	rebuild := func(begin bool, dirs ...string) error {
		return c.transfer(func(ctx context.Context, o transfer.Options) (err error) {
			if plan, err = transfer.Survey(ctx, o, dirs); err != nil {
				return err
			}
			defer plan.Close()
			if begin {
				_, _, err = plan.Rebuild(ctx)
			}
			return err
		})
	}
	require.ErrorIs(t, rebuild(false, c.dirs["a"], c.dirs["b"]), transfer.ErrRuns)
	c.stopAll()
	clear(c.nodes)
	wipe := func(streams ...string) {
		for _, name := range streams {
			require.NoError(t, c.js().DeleteStream(t.Context(), name))
		}
	}
	// One log is lost and the other exists.
	wipe("FILA_test_LOG_1")
	require.NoError(t, rebuild(false, c.dirs["b"]), "the log of shard 0 is the best copy, and b of shard 1")
	require.Contains(t, plan.Copies[0].From, "transfer")
	require.Contains(t, plan.Copies[1].From, c.dirs["b"])
	require.Contains(t, plan.Passed[0], "log of shard 1")
	require.NoDirExists(t, filepath.Join(c.dirs["a"], "transfer"), "a plan that is given up leaves nothing")
	require.NoError(t, rebuild(true, c.dirs["b"], c.dirs["a"]))
	require.Contains(t, plan.Copies[1].From, c.dirs["a"])
	require.False(t, plan.Lost)
	require.NoDirExists(t, filepath.Join(c.dirs["a"], "shards"))

	serve := func() {
		c.start("a")
		c.start("b")
		c.settled()
		for _, q := range queues {
			info := c.kept(q)
			require.EqualValues(t, 1, info.Delayed, q)
			require.EqualValues(t, 1, info.Consumers, q)
		}
	}
	serve()
	require.Nil(t, c.ack(leased[0], ""))
	var entry api.ConfigEntry
	c.must("fila.admin.config-get.color", "", &entry)
	require.Equal(t, "blue", entry.Value)
	c.stopAll()
	clear(c.nodes)

	wipe("FILA_test_LOG_0", "FILA_test_LOG_1", "OBJ_FILA_test_SNAP", "KV_FILA_test_META")
	require.ErrorContains(t, rebuild(true, t.TempDir()), "has no copies of shards")
	require.NoError(t, rebuild(true, c.dirs["a"], c.dirs["b"]))
	require.True(t, plan.Lost)
	serve()
	require.EqualValues(t, 1, c.kept(queues[1]).InFlight, "its lease runs on")
	require.NotNil(t, c.ack(leased[1], ""), "the key of the tokens is lost")
	c.must("fila.admin.queue-create.new", "", nil)
	require.NotEmpty(t, c.put("new", "first").ID)
}

// TestJobsGoOnInAClusterAndBack: waiting and paused jobs move with their queues, and finished ones are
// listed. A transfer of messages between two shards must be over first.
func TestJobsGoOnInAClusterAndBack(t *testing.T) {
	t.Parallel()
	c := withSingle(t)
	alone := c.start(single)
	for _, q := range []string{"orders", "mails"} {
		c.must("fila.admin.queue-create."+q, `{"max_deliveries":1}`, nil)
	}
	require.NotEqual(t, meta.ShardOf("orders", 2), meta.ShardOf("mails", 2))
	for range 6 {
		c.put("orders", "x")
	}
	paused := func(body string) (info api.JobInfo) {
		c.must("fila.admin.job-create", body, &info)
		c.must("fila.admin.job-pause", `{"id":"`+info.ID+`"}`, &info)
		require.Equal(t, api.JobPaused, info.State)
		return info
	}
	show := func(id string) (info api.JobInfo) {
		c.insist("fila.admin.job-show", `{"id":"`+id+`"}`, nil, &info)
		return info
	}
	over := func(id string) (info api.JobInfo) {
		c.insist("fila.admin.job-resume", `{"id":"`+id+`"}`, nil, nil)
		c.eventually(func() bool { info = show(id); return info.State == api.JobDone }, "the job does not end")
		return info
	}
	here := paused(`{"queue":"orders","op":"move","to":"mails","filter":{"all":true},"limit":2,"rate":1}`)
	var ended api.JobInfo
	c.must("fila.admin.job-create", `{"queue":"orders.dlq","op":"redrive","filter":{"all":true}}`, &ended)
	c.eventually(func() bool { return show(ended.ID).State == api.JobDone }, "the job does not end")
	waiting := show(here.ID)
	alone.leave()
	delete(c.nodes, single)

	path := filepath.Join(c.dirs[single], "fila.db")
	st, err := store.Open(path, store.Options{})
	require.NoError(t, err)
	for i, q := range []string{"orders", "mails"} {
		e := store.Entry{Key: "\x00redriven/" + q + "/0123456789abcdef", Value: fmt.Sprintf(`{"source":%q,"error":"boom","count":%d,"last":%d}`, q, i+1, time.Now().UnixNano())}
		st.Submit(&store.Batch{PutConfig: []store.Entry{e}})
	}
	require.NoError(t, st.Close())
	redriven := func() (left []int64) {
		for _, q := range []string{"orders", "mails"} {
			var all api.DeadGroups
			c.insist("fila.admin.dead-groups."+q+".dlq", "", nil, &all)
			require.Len(t, all.Groups, 1)
			left = append(left, all.Groups[0].Left)
		}
		return left
	}
	_, err = c.importFrom(path)
	require.NoError(t, err)
	c.start("a")
	c.settled()
	require.Equal(t, []int64{1, 2}, redriven())
	require.Equal(t, waiting, show(here.ID))
	require.Equal(t, api.JobDone, show(ended.ID).State)
	info := over(here.ID)
	require.EqualValues(t, 2, info.Done, "between two shards now")
	require.EqualValues(t, []int64{4, 2}, []int64{c.kept("orders").Pending, c.kept("mails").Pending})
	later := paused(`{"queue":"orders","op":"move","to":"mails","filter":{"all":true},"rate":1}`)

	// As if the other shard had not answered.
	out := store.Entry{Key: "\x00job/" + later.ID + "/out", Value: `{"no":7,"shard":1,"items":[{"s":1}]}`}
	shard := c.shardOf("orders")
	write := func(b *store.Batch) {
		done := make(chan error, 1)
		b.Done = func(err error) { done <- err }
		m := c.nodes["a"].s.storage.(*clusterNode)
		m.mu.Lock()
		st := m.mu.stores[shard]
		m.mu.Unlock()
		st.Submit(b)
		require.NoError(t, <-done)
	}
	write(&store.Batch{PutConfig: []store.Entry{out}})
	c.stopAll()
	data := filepath.Join(t.TempDir(), "data")
	require.NoError(t, os.Mkdir(data, 0o750))
	_, err = c.exportTo(filepath.Join(data, "fila.db"))
	require.ErrorIs(t, err, transfer.ErrUnderWay)
	require.ErrorContains(t, err, later.ID)
	c.restart("a")
	c.settled()
	write(&store.Batch{DeleteConfig: []string{out.Key}})
	c.stopAll()
	clear(c.nodes)
	_, err = c.exportTo(filepath.Join(data, "fila.db"))
	require.NoError(t, err)

	c.dirs[single] = data
	c.start(single)
	require.Equal(t, []int64{1, 2}, redriven())
	require.EqualValues(t, 4, over(later.ID).Done)
	require.EqualValues(t, []int64{0, 6}, []int64{c.kept("orders").Pending, c.kept("mails").Pending})
}
