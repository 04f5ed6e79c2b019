//go:build unix

package e2e

import (
	"encoding/json"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/e2e/natstest"
)

// spending is a reply of budget-show.
type spending struct{ Budget, Added, Used, Left float64 }

// TestFleetBudgetsHold: two filas use a budget together, while one of them is frozen, killed and
// restarted. Both use a top-up at one of them.
func TestFleetBudgetsHold(t *testing.T) {
	const budget = 40
	s := natstest.Start(t, natstest.JetStream)
	f := startFleetOn(t, 2, fleetOptions{nats: s.URL, queue: `throttle_headers = ["Gate"]`, shared: fmt.Sprintf(`keys = ["throttle:*"]
[[throttle]]
key = "tenant:*"
budget = %d
period = "month"`, budget)})
	var went [2]atomic.Int64
	for i := range 2 {
		f.deliveries(i, 0, func(m *nats.Msg) {
			went[i].Add(1)
			_ = f.nc.Publish(m.Reply, []byte("+ACK"))
		})
	}
	send := func(i, n int) {
		for range n {
			m := &nats.Msg{Subject: fleetPrefix(i) + ".enqueue.q0", Header: nats.Header{"Gate": {"tenant:acme"}}, Data: []byte("x")}
			r, err := f.nc.RequestMsg(m, patience)
			require.NoError(t, err)
			require.Empty(t, r.Header.Get("Nats-Service-Error"), r.Data)
		}
	}
	sum := func() int64 { return went[0].Load() + went[1].Load() }
	show := func(i int, verb, body string) (b spending) {
		r, err := f.nc.Request(fmt.Sprintf("%s.admin.%s.tenant:acme", fleetPrefix(i), verb), []byte(body), patience)
		require.NoError(t, err)
		require.Empty(t, r.Header.Get("Nats-Service-Error"), r.Data)
		require.NoError(t, json.Unmarshal(r.Data, &b))
		return b
	}
	reaches := func(n int64) {
		eventually(t, func() bool { return sum() >= n }, "messages that wait go as long as there is something left")
		require.LessOrEqual(t, sum(), int64(budget))
	}
	send(0, 5)
	reaches(5)
	send(1, 5)
	reaches(10)
	f.procs[1].Freeze(t)
	send(0, 5)
	reaches(15)
	f.procs[1].Thaw(t)
	send(1, 5)
	reaches(20)
	f.procs[1].Kill9(t)
	send(0, 5)
	reaches(25)
	f.procs[1].Start(t)
	f.register(1, 0)
	send(0, budget)
	send(1, budget)
	for i := range 2 {
		eventually(t, func() bool { return show(i, "budget-show", "").Left < 1 })
	}
	require.LessOrEqual(t, sum(), int64(budget))
	require.GreaterOrEqual(t, sum(), int64(budget-2), "a killed process loses less than a message and 1/64")
	before := sum()
	require.EqualValues(t, 10, show(1, "budget-top-up", `{"amount":10}`).Added)
	eventually(t, func() bool { return sum() >= before+10 })
	for i := range 2 {
		eventually(t, func() bool { b := show(i, "budget-show", ""); return b.Added == 10 && b.Left < 1 })
	}
	require.LessOrEqual(t, sum(), int64(budget+10))
	t.Log(went[0].Load(), went[1].Load())
}

// TestClusterBudgetsHold: the owner of a shard is killed, and the node that takes over goes on with
// what is left of the budget.
func TestClusterBudgetsHold(t *testing.T) {
	t.Parallel()
	const budget = 30
	s := natstest.Start(t, natstest.JetStream)
	procs := clusterNodes(t, s.URL, "shards = 1\nreplicas = 1\nallow_r1 = true", "a", "b")
	c := dial(t, s.URL)
	var owner string
	eventually(t, func() bool {
		st, ok := c.clusterStatus()
		if ok && len(st.Shards) == 1 && len(st.Shards[0].Standbys) == 1 && st.Shards[0].Standbys[0].Lag == 0 {
			owner = st.Shards[0].Owner
		}
		return owner != ""
	})
	c.call("fila.admin.throttle-set.tenant:*", m{"budget": budget, "period": "month"}, nil)
	c.createQueue("q", m{"throttle_headers": []string{"Gate"}, "visibility_timeout_ms": 1000})
	var went atomic.Int64
	sub, err := c.nc.Subscribe("fila.deliver.w.q", func(m *nats.Msg) {
		went.Add(1)
		_ = m.Respond([]byte("+ACK"))
	})
	require.NoError(t, err)
	defer func() { require.NoError(t, sub.Unsubscribe()) }()
	c.call("fila.consume.q", json.RawMessage(`{"consumer":"w","max_in_flight":2,"ttl_ms":600000}`), nil)
	for range 2 * budget {
		c.enqueue("q", "x", "Gate", "tenant:acme")
		if went.Load() == budget/2 {
			break
		}
	}
	procs[owner].Kill9(t)
	eventually(t, func() bool { // until the other node serves the shard
		r, err := c.nc.RequestMsg(message("q", "x", "Gate", "tenant:acme"), time.Second)
		return err == nil && errorOf(t, r) == nil
	})
	for range budget {
		c.enqueue("q", "x", "Gate", "tenant:acme")
	}
	eventually(t, func() bool {
		var b spending
		c.call("fila.admin.budget-show.tenant:acme", nil, &b)
		return b.Left < 1
	})
	c.flush()
	require.LessOrEqual(t, went.Load(), int64(budget))
	require.GreaterOrEqual(t, went.Load(), int64(budget-2), "what the killed node had booked and not delivered")
	require.NotZero(t, c.depth("q"))
}
