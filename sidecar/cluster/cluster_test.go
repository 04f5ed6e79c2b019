package cluster

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/cluster/ownership"
	"github.com/filaq/fila/store/replog"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// Candidates of a full log try ever more seldom. When it has room again, its owner goes on at once,
// or one of them takes over soon.
func TestCandidatesOfAFullLogBackOff(t *testing.T) {
	for _, alive := range []bool{true, false} {
		bubble(t, 1, func(t *testing.T, r *rig) {
			a := r.start("a")
			r.until(3*time.Second, "served", r.served)
			r.start("b")
			r.start("c")
			r.pass(15 * time.Second)
			l := r.logs[0]
			fill := func(full bool) {
				l.mu.Lock()
				defer l.mu.Unlock()
				l.full = full
			}
			fill(true)
			if !alive {
				a.kill()
			}
			r.pass(5 * time.Minute)
			l.mu.Lock()
			tries := l.tries
			l.mu.Unlock()
			require.Positive(t, tries)
			require.Less(t, tries, 100, "of two candidates that try every half second: 1200")
			require.Equal(t, uint64(1), l.epoch)
			fill(false)
			took := r.until(10*time.Second, "it goes on", r.served)
			if alive {
				require.Less(t, took, time.Second)
				r.pass(20 * time.Second)
				require.Equal(t, "a", r.owner(0))
			}
		})
	}
}

// Nodes that start share the shards, and each owner is announced once.
func TestNodesShareTheShards(t *testing.T) {
	bubble(t, 8, func(t *testing.T, r *rig) {
		r.start("a")
		r.until(3*time.Second, "one node serves all", r.served)
		require.Equal(t, map[string]int{"a": 8}, r.load())
		r.until(time.Second, "an event of each takeover", func() bool { return len(r.told(wire.EventOwnerChanged)) == 8 })
		r.start("b")
		r.start("c")
		r.until(40*time.Second, "they take their share", func() bool {
			l := r.load()
			return l["a"] == 3 && l["b"]+l["c"] == 5 && min(l["b"], l["c"]) == 2
		})
		r.pass(20 * time.Second)
		moved := r.told(wire.EventOwnerChanged)[8:]
		require.Len(t, moved, 5, "no more than have to")
		for _, e := range moved {
			require.Equal(t, true, e.Data["planned"])
			require.Equal(t, "a", e.Data["previous"])
		}
		require.Len(t, r.told(wire.EventMemberJoined), 2)
		require.Empty(t, r.told(wire.EventMemberLeft))
		require.Empty(t, r.told(wire.EventFenced))
	})
}

// Three nodes that start at once share the shards roughly from the beginning, without flapping.
func TestAStartOfAll(t *testing.T) {
	bubble(t, 6, func(t *testing.T, r *rig) {
		for _, n := range []string{"a", "b", "c"} {
			r.start(n)
		}
		r.until(4*time.Second, "all are served", r.served)
		for _, l := range r.logs {
			require.Equal(t, uint64(1), l.epoch)
		}
		r.pass(40 * time.Second)
		require.Equal(t, map[string]int{"a": 2, "b": 2, "c": 2}, r.load())
		moved := len(r.told(wire.EventOwnerChanged))
		r.pass(time.Minute)
		require.Len(t, r.told(wire.EventOwnerChanged), moved)
	})
}

// The shards of a killed node are taken over in 2.5 s plus rank, with one event each; when it is
// back it gets its share again.
func TestAKilledNode(t *testing.T) {
	bubble(t, 6, func(t *testing.T, r *rig) {
		for _, n := range []string{"a", "b", "c"} {
			r.start(n)
		}
		r.pass(40 * time.Second)
		before := len(r.told(wire.EventOwnerChanged))
		r.nodes["b"].kill()
		require.False(t, r.served())
		took := r.until(4*time.Second, "taken over", r.served)
		require.Greater(t, took, 1500*time.Millisecond)
		require.Less(t, took, 3*time.Second)
		r.pass(100 * time.Millisecond) // an owner serves first, then it is announced
		taken := r.told(wire.EventOwnerChanged)[before:]
		require.Len(t, taken, 2)
		require.Equal(t, false, taken[0].Data["planned"])
		require.Equal(t, "b", taken[0].Data["previous"])
		r.pass(10 * time.Second)
		left := r.told(wire.EventMemberLeft)
		require.Len(t, left, 1)
		require.Equal(t, "b", left[0].Data["node"])

		r.start("b")
		r.until(40*time.Second, "its share", func() bool { return r.load()["b"] == 2 })
	})
}

// An owner that cannot write stops delivering and answering after 2 s, keeps the shard for 12 s
// since it answers, then is replaced and follows.
func TestAnOwnerThatCannotWrite(t *testing.T) {
	bubble(t, 1, func(t *testing.T, r *rig) {
		a := r.start("a")
		r.until(3*time.Second, "served", r.served)
		b := r.start("b")
		r.pass(15 * time.Second)
		a.set(func() { a.cut = true })
		fenced := r.until(4*time.Second, "fenced", func() bool { return !r.served() })
		require.LessOrEqual(t, fenced, 2100*time.Millisecond)
		r.pass(time.Second)
		require.Len(t, r.told(wire.EventFenced), 1)
		// Its log is back in time.
		a.set(func() { a.cut = false })
		r.until(2*time.Second, "goes on", r.served)
		require.Equal(t, []string{"own 0", "fence 0 true", "fence 0 false"}, a.calls)

		a.set(func() { a.cut = true })
		took := r.until(15*time.Second, "replaced", func() bool { return b.serves(0) })
		require.Greater(t, took, 11*time.Second)
		a.set(func() { a.cut = false })
		r.pass(time.Second)
		require.Contains(t, a.calls[len(a.calls)-1], "lose 0 epoch 2: store: another owner")
		require.Equal(t, ownership.Following, a.state(0))
		require.Len(t, r.told(wire.EventFenced), 2)
	})
}

func (p *peer) state(shard int) ownership.State { return p.stateOf(p.Cluster.mu.local[shard]) }

// Between the last record of an owner and the first of its successor nobody waits for a step.
func TestAHandoverWaitsForNoStep(t *testing.T) {
	bubble(t, 1, func(t *testing.T, r *rig) {
		a := r.start("a")
		r.until(3*time.Second, "served", r.served)
		b := r.start("b")
		r.pass(15 * time.Second)
		for _, to := range []*peer{b, a, b, a} {
			shard := 0
			_, werr := a.Move(t.Context(), api.ClusterMoveRequest{Shard: &shard, Node: to.name})
			require.Nil(t, werr)
			r.until(5*time.Second, "moved", func() bool { return to.serves(0) })
			require.Equal(t, r.logs[0].left, r.logs[0].begun)
			r.pass(5 * time.Second)
		}
	})
}

// While a node reads only an older format, owners write that format.
func TestOwnersWriteTheLowestFormat(t *testing.T) {
	bubble(t, 2, func(t *testing.T, r *rig) {
		a := r.start("a")
		r.until(3*time.Second, "served", r.served)
		format := func() (all []int32) {
			a.set(func() {
				for _, st := range a.runs {
					all = append(all, st.f.format.Load())
				}
			})
			return all
		}
		require.Equal(t, []int32{replog.Format, replog.Format}, format())
		older := encode(map[string]any{"node": "old", "incarnation": "x", "version": "v0"}) // without a format
		for range 5 {
			require.NoError(t, a.Conn.Publish(a.subjects.members(), older))
			r.pass(time.Second)
			require.Equal(t, []int32{1, 1}, format())
		}
		r.pass(8 * time.Second)
		require.Equal(t, []int32{1, 1}, format(), "it may be back")
		r.pass(4 * time.Second)
		require.Equal(t, []int32{replog.Format, replog.Format}, format(), "it is gone")

		require.NoError(t, a.Conn.Publish(a.subjects.members(), older))
		r.until(time.Second, "heard", func() bool { return format()[0] == 1 })
		require.NoError(t, a.Conn.Publish(a.subjects.members(), encode(map[string]any{"node": "old", "incarnation": "y", "version": "v9", "format": replog.Format + 1})))
		r.until(time.Second, "it is upgraded", func() bool { return format()[0] == replog.Format })
	})
}

// A node without time for a handover still lets others take over at once.
func TestSIGTERMWithoutTime(t *testing.T) {
	bubble(t, 4, func(t *testing.T, r *rig) {
		a := r.start("a")
		r.until(3*time.Second, "served", r.served)
		r.start("b")
		r.pass(30 * time.Second)
		require.Equal(t, map[string]int{"a": 2, "b": 2}, r.load())
		before := len(r.told(wire.EventOwnerChanged))
		a.leave(0)
		r.until(500*time.Millisecond, "before the logs are silent", func() bool {
			return r.served() && len(r.told(wire.EventOwnerChanged)) == before+2
		})
		for _, moved := range r.told(wire.EventOwnerChanged)[before:] {
			require.Equal(t, true, moved.Data["planned"])
		}
	})
}

// A node that stops hands over first, within fractions of a second each, and announces its end.
func TestSIGTERMHandsOver(t *testing.T) {
	bubble(t, 4, func(t *testing.T, r *rig) {
		a := r.start("a")
		r.until(3*time.Second, "served", r.served)
		r.start("b")
		r.pass(30 * time.Second)
		require.Equal(t, map[string]int{"a": 2, "b": 2}, r.load())
		before := len(r.told(wire.EventOwnerChanged))
		begin := time.Now()
		a.leave(20 * time.Second)
		require.Less(t, time.Since(begin), 4*time.Second)
		r.pass(200 * time.Millisecond)
		require.Equal(t, map[string]int{"b": 4}, r.load())
		moved := r.told(wire.EventOwnerChanged)[before:]
		require.Len(t, moved, 2)
		require.Equal(t, true, moved[0].Data["planned"])
		require.Len(t, r.told(wire.EventMemberLeft), 1, "at once")

		// The last one has no successor and does not wait for one.
		b, begin := r.nodes["b"], time.Now()
		b.leave(20 * time.Second)
		require.Less(t, time.Since(begin), 3*time.Second)
		for _, l := range r.logs {
			require.True(t, l.ended)
		}
		r.start("a")
		r.start("b")
		r.until(time.Second, "a log that was given away is taken at once", r.served)
	})
}

// A node that stops and cannot write gives up when its time is over, and a standby takes over as
// from a dead node.
func TestShutdownIsBounded(t *testing.T) {
	bubble(t, 1, func(t *testing.T, r *rig) {
		a := r.start("a")
		r.until(3*time.Second, "served", r.served)
		r.start("b")
		r.pass(15 * time.Second)
		a.set(func() { a.cut = true })
		begin := time.Now()
		a.leave(time.Second)
		require.Less(t, time.Since(begin), 4*time.Second)
		require.Contains(t, a.calls[len(a.calls)-1], "lose 0")
		r.until(6*time.Second, "taken over", r.served)
	})
}

// Stores that wait for their logs are closed at the same time.
func TestShutdownOfManyShardsIsBounded(t *testing.T) {
	bubble(t, 8, func(t *testing.T, r *rig) {
		a := r.start("a")
		r.until(3*time.Second, "served", r.served)
		a.set(func() { a.cut, a.linger = true, 5*time.Second })
		begin := time.Now()
		a.leave(time.Second)
		require.Less(t, time.Since(begin), 12*time.Second)
		require.Empty(t, a.runs)
	})
}

// A shard that does not start at a node goes to another one.
func TestAShardThatDoesNotStart(t *testing.T) {
	bubble(t, 1, func(t *testing.T, r *rig) {
		a := r.start("a")
		a.set(func() { a.broken = errors.New("disk is broken") })
		r.pass(3 * time.Second)
		require.Equal(t, []string{"own 0"}, a.calls, "and it is left alone for a while")
		r.start("b")
		r.until(3*time.Second, "served", r.served)
		r.pass(30 * time.Second)
		require.Equal(t, "b", r.owner(0))
	})
}

// Operators drain nodes and move shards, from any node, and the status says so.
func TestOrders(t *testing.T) {
	bubble(t, 4, func(t *testing.T, r *rig) {
		a := r.start("a")
		r.until(3*time.Second, "served", r.served)
		b := r.start("b")
		r.pass(30 * time.Second)

		reply, err := b.Drain(t.Context(), api.ClusterDrainRequest{Node: "a"})
		require.Nil(t, err)
		require.Equal(t, api.ClusterDrainReply{Node: "a", Draining: true, Shards: 2}, reply)
		r.until(5*time.Second, "drained", func() bool { return r.load()["b"] == 4 })
		r.pass(30 * time.Second)
		st := b.Status()
		require.Equal(t, []any{"prod", "b", true, false}, []any{st.Name, st.Node, st.Nodes[0].Draining, st.Nodes[1].Draining})
		require.Equal(t, []int{0, 1, 2, 3}, st.Nodes[1].Shards)
		_, err = a.Move(t.Context(), api.ClusterMoveRequest{Shard: new(int), Node: "a"})
		require.Equal(t, wire.CodeStandbyNotReady, err.ErrCode, "it is drained")
		_, err = b.Drain(t.Context(), api.ClusterDrainRequest{Node: "a", Cancel: true})
		require.Nil(t, err)
		r.until(20*time.Second, "its share", func() bool { return r.load()["a"] == 2 })
		r.pass(5 * time.Second)

		three := 3
		owner := r.owner(three)
		other := map[string]string{"a": "b", "b": "a"}[owner]
		moved, err := a.Move(t.Context(), api.ClusterMoveRequest{Shard: &three, Node: other})
		require.Nil(t, err)
		require.Equal(t, api.ClusterMoveReply{Shard: 3, From: owner, To: other}, moved)
		r.until(2*time.Second, "moved", func() bool { return r.owner(three) == other })
		r.pass(30 * time.Second)
		require.Equal(t, other, r.owner(three), "it stays")
		require.Equal(t, 2, r.load()["a"], "another one goes for it")
		require.Equal(t, other, b.Status().Shards[three].PinnedTo)

		for _, tc := range []struct {
			node  string
			shard int
			code  int
		}{{"nobody", 0, wire.CodeNodeNotFound}, {"b", 4, wire.CodeBadField}} {
			_, err := a.Move(t.Context(), api.ClusterMoveRequest{Shard: &tc.shard, Node: tc.node})
			require.Equal(t, tc.code, err.ErrCode)
		}
		_, err = a.Drain(t.Context(), api.ClusterDrainRequest{Node: "nobody"})
		require.Equal(t, wire.CodeNodeNotFound, err.ErrCode)
		b.kill()
		_, err = a.Drain(t.Context(), api.ClusterDrainRequest{Node: "b"})
		require.Equal(t, wire.CodeNodeSilent, err.ErrCode)
	})
}

func TestStatus(t *testing.T) {
	bubble(t, 1, func(t *testing.T, r *rig) {
		a := r.start("a")
		r.until(3*time.Second, "served", r.served)
		b := r.start("b")
		b.set(func() { b.lag = 3 })
		r.pass(5 * time.Second)
		st := a.Status()
		require.Len(t, st.Shards, 1)
		s := st.Shards[0]
		require.Equal(t, []any{"a", uint64(1), int64(42), "1970-01-01T00:16:40Z"}, []any{s.Owner, s.Epoch, s.LogBytes, s.SnapshotAt})
		require.Len(t, s.Standbys, 1)
		require.Equal(t, []any{"b", "following", uint64(3)}, []any{s.Standbys[0].Node, s.Standbys[0].State, s.Standbys[0].Lag})
		require.Positive(t, s.Standbys[0].BehindMs)
		require.Equal(t, []any{"a", "v1", []int{0}}, []any{st.Nodes[0].Node, st.Nodes[0].Version, st.Nodes[0].Shards})
		require.Empty(t, st.Nodes[1].Shards)
	})
}

// Of two processes with one name the younger one has to stop and takes nothing from the older one.
func TestTwoOfOneName(t *testing.T) {
	bubble(t, 1, func(t *testing.T, r *rig) {
		old := r.start("a")
		r.until(3*time.Second, "served", r.served)
		young := r.start("a")
		r.pass(5 * time.Second)
		require.ErrorIs(t, <-young.Conflict(), ErrSameName)
		require.Empty(t, old.Conflict())
		require.Equal(t, uint64(1), r.logs[0].epoch)
		r.nodes["old"], old.name = old, "old" // for the end of the test
	})
}

func TestNewRefuses(t *testing.T) {
	for want, o := range map[string]Options{
		`the name of the cluster is ""`:      {Node: "a"},
		`the name of the node is "a.b"`:      {Name: "prod", Node: "a.b"},
		"a failover of 1s is too short":      {Name: "prod", Node: "a", Failover: time.Second},
		`allowed are 1 to 32 letters, digit`: {Name: "prod prod", Node: "a"},
	} {
		_, err := New(o)
		require.ErrorContains(t, err, want)
	}
}
