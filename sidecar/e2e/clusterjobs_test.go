//go:build unix

package e2e

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/e2e/natstest"
)

// jobCluster is three nodes with two shards, and a queue in each.
type jobCluster struct {
	*client
	procs  map[string]*proc
	queues []string // by shard
}

func startJobCluster(t *testing.T) *jobCluster {
	t.Helper()
	s := natstest.Start(t, natstest.JetStream)
	procs := clusterNodes(t, s.URL, "shards = 2\nreplicas = 1\nallow_r1 = true", "a", "b", "c")
	c := &jobCluster{client: dial(t, s.URL), procs: procs, queues: make([]string, 2)}
	c.owned("a", "b")
	for i := 0; slices.Contains(c.queues, ""); i++ {
		name := fmt.Sprint("q", i)
		c.insist("queue-create."+name, m{"max_deliveries": 1, "retry_initial_ms": 0, "visibility_timeout_ms": 600_000}, nil)
		var info struct{ Shard int }
		c.insist("queue-inspect."+name, nil, &info)
		c.queues[info.Shard] = name
	}
	return c
}

// insist repeats a request until it succeeds, as clients do while a shard has no owner.
func (c *jobCluster) insist(verb string, body, into any) {
	c.t.Helper()
	eventually(c.t, func() bool {
		ctx, cancel := context.WithTimeout(c.t.Context(), 5*time.Second)
		defer cancel()
		r, err := c.nc.RequestWithContext(ctx, "fila.admin."+verb, encode(c.t, body))
		if err != nil || errorOf(c.t, r) != nil {
			return false
		}
		return into == nil || json.Unmarshal(r.Data, into) == nil
	}, verb)
}

// owned moves the shards to these nodes, in order, and waits until the standbys follow.
func (c *jobCluster) owned(nodes ...string) {
	c.t.Helper()
	for shard, node := range nodes {
		eventually(c.t, func() bool {
			var st clusterState
			c.insist("cluster-status", nil, &st)
			if len(st.Shards) <= shard || len(st.Shards[shard].Standbys) < 2 {
				return false
			}
			if st.Shards[shard].Owner != node {
				_, _ = c.nc.Request("fila.admin.cluster-move", encode(c.t, m{"shard": shard, "node": node}), time.Second)
				return false
			}
			return st.Shards[shard].Standbys[0].Lag == 0 && st.Shards[shard].Standbys[1].Lag == 0
		}, "shards are not where they should be")
	}
}

// killOwner kills the process that serves a shard.
func (c *jobCluster) killOwner(shard int) (node string) {
	c.t.Helper()
	eventually(c.t, func() bool { // a node that has just started does not know it
		var st clusterState
		c.insist("cluster-status", nil, &st)
		if len(st.Shards) > shard {
			node = st.Shards[shard].Owner
		}
		return node != ""
	}, "a shard without an owner")
	c.procs[node].Kill9(c.t)
	return node
}

// bury creates n dead letters of the first queue, and returns their ids.
func (c *jobCluster) bury(n int) []string {
	c.t.Helper()
	var msgs []*nats.Msg
	for i := range n {
		msgs = append(msgs, &nats.Msg{Subject: "fila.enqueue." + c.queues[0], Data: fmt.Append(nil, i)})
	}
	ids := c.enqueueAll(msgs)
	k := c.consume(c.queues[0], 1000)
	for range n {
		require.NoError(c.t, k.next().Respond([]byte("+TERM")))
	}
	c.waitDepth(c.queues[0]+".dlq", int64(n))
	k.leave()
	return ids
}

// begin creates a job.
func (c *jobCluster) begin(body m) string {
	c.t.Helper()
	var made struct{ ID string }
	c.call("fila.admin.job-create", body, &made)
	return made.ID
}

type jobState struct {
	State, Why    string
	Matched, Done int64
	UnderWay      int64 `json:"under_way"`
	Left          map[string]int64
	NewSince      int64 `json:"new_since"`
}

func (c *jobCluster) job(id string) (j jobState) {
	c.t.Helper()
	c.insist("job-show", m{"id": id}, &j)
	return j
}

// goesOn waits until a job has processed done messages. It resumes the job, which pauses when a
// takeover takes very long.
func (c *jobCluster) goesOn(id string, done int64) {
	c.t.Helper()
	eventually(c.t, func() bool {
		j := c.job(id)
		if j.State == "paused" {
			c.insist("job-resume", m{"id": id}, nil)
		}
		return j.Done >= done
	}, "the job does not go on")
}

// ends waits until a job has processed all of n messages.
func (c *jobCluster) ends(id string, n int) {
	c.t.Helper()
	c.goesOn(id, int64(n))
	eventually(c.t, func() bool { return c.job(id).State == "done" }, "the job does not end")
	j := c.job(id)
	require.EqualValues(c.t, []int64{int64(n), int64(n), 0}, []int64{j.Matched, j.Done, j.UnderWay})
	require.Empty(c.t, j.Left)
}

// delivers takes all messages of a queue: exactly these ids, in order.
func (c *jobCluster) delivers(queue string, ids []string) {
	c.t.Helper()
	k := c.consume(queue, 1000)
	for i := range ids {
		d := k.next()
		require.Equal(c.t, ids[i], d.id())
		c.accepted(d, "")
	}
	k.none()
	c.waitDepth(queue, 0)
	k.leave()
}

// TestAMoveBetweenShards: a job moves dead letters between two shards while first the owner of
// the source and then the owner of the target is killed. Each message arrives once, in order,
// with its history.
func TestAMoveBetweenShards(t *testing.T) {
	t.Parallel()
	c := startJobCluster(t)
	const n = 4000
	ids := c.bury(n)
	from, to := c.queues[0]+".dlq", c.queues[1]
	id := c.begin(m{"queue": from, "op": "move", "to": to, "filter": m{"all": true}, "rate": 500})
	c.goesOn(id, 100)
	first := c.killOwner(0)
	require.Equal(t, "a", first)
	at := c.job(id).Done
	require.Less(t, at, int64(n), "it was over before the kill")
	c.goesOn(id, at+100)
	c.procs[first].Restart(t)
	second := c.killOwner(1)
	at = c.job(id).Done
	require.Less(t, at, int64(n), "it was over before the second kill")
	c.goesOn(id, min(at+100, n))
	c.procs[second].Restart(t)
	c.ends(id, n)
	require.Zero(t, c.depth(from))
	require.EqualValues(t, n, c.depth(to))
	var shown struct {
		History []struct{ Outcome string }
	}
	c.insist("message-show", m{"id": ids[n-1]}, &shown)
	require.Equal(t, "moved", shown.History[len(shown.History)-1].Outcome)
	require.Equal(t, "term", shown.History[0].Outcome)
	c.owned("a", "b") // they move back some seconds after their nodes have restarted
	c.delivers(to, ids)
}

// TestClusterJobsMeasure prints how fast messages of 1 KB move between two shards with owners
// at different nodes, and back.
func TestClusterJobsMeasure(t *testing.T) {
	if !*flagMeasure {
		t.Skip("prints figures; -fila.measure")
	}
	c := startJobCluster(t)
	n := *flagMessages
	msgs := make([]*nats.Msg, n)
	for i := range msgs {
		payload := make([]byte, 1024) // which a log cannot compress
		_, _ = rand.Read(payload)
		msgs[i] = &nats.Msg{Subject: "fila.enqueue." + c.queues[0], Data: payload}
	}
	c.enqueueAll(msgs)
	for range 2 {
		for i, from := range c.queues {
			to := c.queues[1-i]
			begin := time.Now()
			id := c.begin(m{"queue": from, "op": "move", "to": to, "filter": m{"all": true}})
			c.goesOn(id, int64(n))
			t.Logf("%d from %s to %s: %.0f/s; %s", n, from, to, float64(n)/time.Since(begin).Seconds(), machine())
			c.waitDepth(to, int64(n))
		}
	}
}
