package cluster

import (
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/cluster/ownership"
	"github.com/filaq/fila/store/replog"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// lose lets the log of shard 0 lose its newest records while c is away, and brings c back. c has
// less than the log then.
func (r *rig) lose(records uint64) (c *peer) {
	for _, n := range []string{"a", "b", "c"} {
		r.start(n)
	}
	r.pass(30 * time.Second)
	r.nodes["c"].kill()
	r.until(5*time.Second, "served", r.served)
	r.pass(30 * time.Second)
	r.logs[0].forget(records)
	return r.start("c")
}

func (r *rig) status() api.ClusterShard {
	for _, p := range r.nodes {
		return p.Status().Shards[0]
	}
	return api.ClusterShard{}
}

// A log that lacks confirmed commits gets no owner, although a node that was away meanwhile could
// follow it. The owner stops, all nodes say so within ten seconds, and a repair brings everything
// back.
func TestALogThatLacksCommits(t *testing.T) {
	bubble(t, 1, func(t *testing.T, r *rig) {
		r.lose(20)
		epoch := r.logs[0].epoch
		r.until(10*time.Second, "it says so", func() bool { return r.status().Lost != nil })
		r.pass(2 * time.Minute)
		require.Empty(t, r.owner(0))
		require.Equal(t, epoch, r.logs[0].epoch)
		require.Len(t, r.told(wire.EventLogLost), 1)
		for _, p := range r.nodes {
			l := p.Status().Shards[0].Lost
			require.NotNil(t, l, p.name)
			require.Equal(t, uint64(20), l.Records)
			require.Equal(t, l.Seq, l.ReachableSeq)
			require.True(t, p.LogLost(0))
		}

		c, shard := r.nodes["c"], 0
		_, refused := c.Accept(t.Context(), api.ClusterLossRequest{Shard: &shard, Loss: 20})
		require.NotNil(t, refused)
		require.Contains(t, refused.Description, "repair the log first")
		l, refused := c.Repair(t.Context(), api.ClusterLossRequest{Shard: &shard, DryRun: true})
		require.Nil(t, refused)
		require.Zero(t, l.Unreachable)
		require.Equal(t, epoch, r.logs[0].epoch, "a dry run changes nothing")
		_, refused = c.Repair(t.Context(), api.ClusterLossRequest{Shard: &shard, Loss: 1})
		require.Equal(t, wire.CodeNotRepaired, refused.ErrCode)
		_, refused = c.Repair(t.Context(), api.ClusterLossRequest{Shard: &shard})
		require.Nil(t, refused)
		r.until(10*time.Second, "served again", r.served)
		r.pass(5 * time.Second)
		require.Nil(t, r.status().Lost)
		_, refused = c.Repair(t.Context(), api.ClusterLossRequest{Shard: &shard})
		require.Equal(t, wire.CodeNotRepaired, refused.ErrCode)
		none := 1
		_, refused = c.Accept(t.Context(), api.ClusterLossRequest{Shard: &none})
		require.Equal(t, wire.CodeBadField, refused.ErrCode)
	})
}

// When all nodes are restarted, one that was away waits for those that know better, and the memory
// of the cluster knows what nobody says any more.
func TestARestartWithALogThatLacksCommits(t *testing.T) {
	bubble(t, 1, func(t *testing.T, r *rig) {
		c := r.lose(20)
		files := map[string]*fakeReplica{}
		for _, p := range r.nodes {
			files[p.name] = p.Replicas[0].(*fakeReplica)
		}
		for _, p := range []*peer{c, r.nodes["a"], r.nodes["b"]} {
			p.kill()
		}
		r.start("c")
		r.pass(8 * time.Second)
		require.Empty(t, r.owner(0), "it waits for the others")
		for _, n := range []string{"a", "b"} {
			r.start(n).Replicas[0].(*fakeReplica).reopen(files[n])
		}
		r.pass(time.Minute)
		require.Empty(t, r.owner(0))
		require.NotNil(t, r.status().Lost)
		for _, n := range []string{"a", "b", "c"} {
			r.nodes[n].kill()
		}

		// Only c comes back: the memory has the newest commits of the last five seconds or so.
		c = r.start("c")
		r.pass(time.Minute)
		require.Empty(t, r.owner(0))
		l := r.status().Lost
		require.NotNil(t, l)
		require.Positive(t, l.Unreachable)
		shard := 0
		_, refused := c.Repair(t.Context(), api.ClusterLossRequest{Shard: &shard})
		require.Contains(t, refused.Description, "no reachable node has more than the log")
		_, refused = c.Accept(t.Context(), api.ClusterLossRequest{Shard: &shard})
		require.Equal(t, wire.CodeNotRepaired, refused.ErrCode, "the loss must be named")
		_, refused = c.Accept(t.Context(), api.ClusterLossRequest{Shard: &shard, Loss: l.Unreachable})
		require.Nil(t, refused)
		r.until(15*time.Second, "served", r.served)
		r.start("a").Replicas[0].(*fakeReplica).reopen(files["a"])
		r.pass(time.Minute)
		require.NotEmpty(t, r.owner(0))
		require.Len(t, r.told(wire.EventLogLost), 4, "once at each start, and of the copy that comes back")
	})
}

// A node that has just started repairs nothing before it has heard what the others have: the copy of
// one that starts later may have more.
func TestARepairWaitsForOthers(t *testing.T) {
	bubble(t, 1, func(t *testing.T, r *rig) {
		r.lose(20)
		files := map[string]*fakeReplica{}
		for name, p := range r.nodes {
			files[name] = p.Replicas[0].(*fakeReplica)
			defer p.kill()
		}
		r.pass(10 * time.Second)
		for _, n := range []string{"a", "b", "c"} {
			r.nodes[n].kill()
		}
		behind := &fakeReplica{has: files["a"].has}
		behind.has.N -= 5
		behind.has.Seq -= 5
		b := r.start("b")
		b.Replicas[0].(*fakeReplica).reopen(behind)
		shard := 0
		r.pass(4 * time.Second)
		require.NotNil(t, r.status().Lost)
		_, refused := b.Repair(t.Context(), api.ClusterLossRequest{Shard: &shard})
		require.Contains(t, refused.Description, "node b has just started and waits for the other nodes; try again in 10s")
		r.start("a").Replicas[0].(*fakeReplica).reopen(files["a"])
		r.start("c")
		r.pass(3 * time.Second)
		l, refused := b.Repair(t.Context(), api.ClusterLossRequest{Shard: &shard})
		require.Nil(t, refused)
		require.Equal(t, "a", l.Reachable)
		require.Zero(t, l.Unreachable)
		r.until(10*time.Second, "served", r.served)
	})
}

// A node that starts waits for the nodes that it knows, but not forever.
func TestANodeThatStartsWaitsForOthers(t *testing.T) {
	bubble(t, 1, func(t *testing.T, r *rig) {
		for _, n := range []string{"a", "b"} {
			r.start(n)
		}
		r.pass(20 * time.Second)
		r.nodes["a"].kill()
		r.nodes["b"].kill()
		r.start("a")
		took := r.until(15*time.Second, "served", r.served)
		require.Greater(t, took, 9*time.Second)
		r.nodes["a"].kill()
		r.start("a")
		r.start("b")
		r.until(5*time.Second, "both are there", r.served)
	})
}

// An export refuses a log that lacks what owners have stored, unless that was given up.
func TestCheckLog(t *testing.T) {
	var m memory
	require.NoError(t, CheckLog(&m, 0, Seen{}))
	require.NoError(t, m.Keep(t.Context(), nodeKey+"a", encode(nodeMemory{Commits: map[int]ownership.Commit{0: {Epoch: 2, N: 7, Seq: 9}}})))
	require.NoError(t, CheckLog(&m, 0, Seen{Epoch: 2, N: 7}))
	require.NoError(t, CheckLog(&m, 0, Seen{Epoch: 3, N: 1}))
	require.NoError(t, CheckLog(&m, 1, Seen{}))
	require.ErrorIs(t, CheckLog(&m, 0, Seen{Epoch: 2, N: 6}), replog.ErrShorter)
	require.NoError(t, m.Keep(t.Context(), verdictKey+"0", encode(replog.Verdict{Copy: replog.Mark{Epoch: 2, N: 6}, GivenUp: true})))
	require.ErrorIs(t, CheckLog(&m, 0, Seen{Epoch: 2, N: 5}), replog.ErrShorter, "less was given up")
	require.NoError(t, m.Keep(t.Context(), verdictKey+"0", encode(replog.Verdict{Copy: replog.Mark{Epoch: 2, N: 7}, GivenUp: true})))
	require.NoError(t, CheckLog(&m, 0, Seen{Epoch: 2, N: 5}))
}

// seenReplica is a replica that has seen something.
type seenReplica struct {
	Replica
	seen Seen
}

func (r seenReplica) Seen() Seen { return r.seen }

// Where a log ends is known of a copy only while the log is shorter: a log that is gone has no end
// behind which a copy would have nothing.
func TestLogEnd(t *testing.T) {
	for err, want := range map[error]uint64{replog.ErrShorter: 90, replog.ErrGone: 0, replog.ErrBroken: 0} {
		p := &localShard{machine: ownership.NewMachine(ownership.Config{}, 0), replica: seenReplica{seen: Seen{Err: err, End: 90, Data: replog.Mark{Epoch: 1, N: 80, Seq: 80}}}}
		n := new(Cluster).shardNews(p)
		require.Equal(t, want, n.LogEnd, "%v", err)
		require.NotNil(t, n.Commit)
	}
}

// A copy keeps its finding while the log cannot be read, or only from a replica that lacks the
// record to compare.
func TestAFindingOutlivesOtherErrors(t *testing.T) {
	c := new(Cluster)
	c.mu.members = ownership.NewMembers("a", "1")
	p := &localShard{machine: ownership.NewMachine(ownership.Config{}, 0)}
	check := func(now time.Duration, err error) bool {
		p.replica = seenReplica{seen: Seen{Err: err}}
		c.checkLoss(int64(now), p)
		return p.lost.told
	}
	unread := errors.New("message not found")
	require.False(t, check(1*time.Second, unread))
	require.False(t, check(9*time.Second, unread))
	require.False(t, check(10*time.Second, replog.ErrShorter))
	require.True(t, check(13*time.Second, replog.ErrShorter))
	require.True(t, check(14*time.Second, unread))
	require.True(t, check(15*time.Second, replog.ErrGone))
	require.False(t, check(16*time.Second, nil))
}

// A node that ends repairs nothing more.
func TestNoRepairAtTheEnd(t *testing.T) {
	c := new(Cluster)
	c.Shards, c.mu.leaving = 1, true
	c.onRepair(&nats.Msg{Data: encode(repairOrder{})})
	c.actions.Wait()
}

// A loss does not look smaller while a node has not noticed it: an owner that cannot write, or a node
// that is cut off and still has the log as it was. An operator cannot give up records that a node has
// which can be asked.
func TestLossThatNotAllHaveNoticed(t *testing.T) {
	newest := &ownership.Commit{Epoch: 2, N: 8, Seq: 100}
	short := ownership.ShardNews{Epoch: 2, Error: "shorter", Lost: true, Commit: newest, LogEnd: 60}
	for name, test := range map[string]struct {
		b, c    ownership.ShardNews
		logEnd  uint64
		records uint64
	}{
		"a node has noticed":       {short, ownership.ShardNews{Epoch: 2, Seq: 100, Commit: newest}, 60, 40},
		"the owner cannot write":   {short, ownership.ShardNews{Owns: true, Fenced: true, Epoch: 2, Seq: 100, Commit: newest}, 60, 40},
		"the log is an old branch": {ownership.ShardNews{Error: "another", Lost: true, Commit: newest, LogEnd: 300}, ownership.ShardNews{Epoch: 1, Seq: 300}, 99, 1},
		"a node lacks the newest":  {ownership.ShardNews{Lost: true, Epoch: 1, Seq: 60}, ownership.ShardNews{Epoch: 2, Seq: 100, Commit: newest}, 100, 0},
	} {
		t.Run(name, func(t *testing.T) {
			c := new(Cluster)
			c.Shards, c.began = 1, time.Now()
			c.mu.members = ownership.NewMembers("b", "1")
			c.mu.members.Hear(c.now(), ownership.News{Node: "b", Incarnation: "1", Shards: []ownership.ShardNews{test.b}})
			c.mu.members.Hear(c.now(), ownership.News{Node: "c", Incarnation: "2", Shards: []ownership.ShardNews{test.c}})
			l, lost := c.lossOf(c.now(), 0)
			require.True(t, lost)
			require.Empty(t, l.Owner)
			require.Equal(t, test.logEnd, l.LogEnd)
			require.Equal(t, test.records, l.Records)
			require.Zero(t, l.Unreachable)
			shard := 0
			_, refused := c.Accept(t.Context(), api.ClusterLossRequest{Shard: &shard})
			require.NotNil(t, refused)
			require.Contains(t, refused.Description, "repair the log first")
		})
	}
}

// A campaign for a log that loses records meanwhile ends, since the log may end again where it ended.
func TestCampaignOverALogThatLosesRecords(t *testing.T) {
	ended := false
	c := &Cluster{}
	c.mu.complete = true
	c.mu.members = ownership.NewMembers("a", "1")
	p := &localShard{machine: ownership.NewMachine(ownership.Config{}, 0), replica: seenReplica{seen: Seen{Epoch: 1, N: 7}}, abandon: func() { ended = true }}
	require.False(t, c.input(0, p, nil).Lacking)
	require.False(t, ended)
	c.mu.members.Know(0, ownership.Known{Commit: ownership.Commit{Epoch: 1, N: 8, Seq: 8}, Node: "b"})
	require.True(t, c.input(0, p, nil).Lacking)
	require.True(t, ended)
}
