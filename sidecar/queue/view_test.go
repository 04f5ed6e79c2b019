package queue_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/sidecar/queue/gates"
	"github.com/filaq/fila/sidecar/queue/inspect"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/throttle"
	"github.com/filaq/fila/wire"
)

// waitingAt is how many messages wait at a throttle key.
func waitingAt(r *rig, key string) int64 {
	n, flows := r.M.Inspect(queue.Main).WaitingAt(key, "", r.Now)
	require.Equal(r.T, n > 0, flows > 0)
	return n
}

// The view names the gates that block most messages, gates with equal numbers by name, however many
// are requested.
func TestTheLargestGates(t *testing.T) {
	r := newRig(t, nil)
	r.Consume(queue.Main, "w", 100, 0)
	require.Zero(t, waitingAt(r, "gate-00"))
	var want []string
	for i := range 30 {
		key, n := fmt.Sprintf("gate-%02d", 29-i), i%7+1
		r.LimitNow(key, throttle.Limits{Concurrency: 1})
		for range n + 1 {
			r.Gated("a", key)
		}
		want = append(want, fmt.Sprintf("%d %s", 100-n, key))
	}
	r.Run()
	slices.Sort(want)
	for _, most := range []int{1, 2, 5, 29, 30, 31} {
		var got []string
		for _, b := range r.M.Inspect(queue.Main).State(most, r.Now).Blocked {
			got = append(got, fmt.Sprintf("%d %s", 100-b.Messages, b.At.Throttle.Key()))
			require.Equal(t, b.Messages, waitingAt(r, b.At.Throttle.Key()))
			require.Equal(t, gates.ByInFlight, b.By)
		}
		require.Equal(t, want[:min(most, 30)], got)
	}
	r.Do(queue.Main, queue.PauseQueue{Until: r.Now + 1e9})
	require.Zero(t, waitingAt(r, "gate-00"), "they wait for the end of the pause")
}

// Views of messages at a gate show where they wait, since when, behind how many, and their share of
// the gate.
func TestViewsOfBlockedMessages(t *testing.T) {
	r := newRig(t, nil)
	r.LimitNow("db", throttle.Limits{Concurrency: 1})
	r.Consume(queue.Main, "w", 10, 0)
	r.Gated("holder", "db")
	put := func(key string, weight uint32) store.ID {
		return r.Enqueue(key, func(m *store.Message) {
			m.Weight, m.ThrottleKeys, m.CircuitKey = weight, []string{"db", "other"}, "c"
		})
	}
	var ids []store.ID
	for range 3 {
		ids = append(ids, put("gold", 3000))
	}
	put("silver", 1000)
	r.Pass(time.Second)
	v := r.Find(queue.Main, ids[2])
	require.Equal(t, inspect.StateBlocked, v.State)
	require.Equal(t, gates.ByInFlight, v.By)
	require.Equal(t, "db", v.At.Throttle.Key())
	require.Equal(t, r.Now-1e9, v.BlockedSince)
	require.EqualValues(t, 2, v.Ahead)
	require.False(t, v.First)
	require.Equal(t, 0.75, v.Share)
	require.Len(t, v.Throttles, 2)
	require.Equal(t, "c", v.Circuit.Key())
	require.True(t, r.Find(queue.Main, ids[0]).First)

	k := r.M.Inspect(queue.Main).Key("gold", r.Now)
	require.EqualValues(t, 3, k.Blocked)
	require.Zero(t, k.Pending)
	require.EqualValues(t, 3000, k.Weight)
	require.Len(t, k.At, 1)
	require.EqualValues(t, 3, k.At[0].Messages)
	s := r.M.Inspect(queue.Main).State(5, r.Now)
	require.Len(t, s.Blocked, 1)
	require.EqualValues(t, 4, s.Blocked[0].Messages)
	require.Equal(t, 2, s.Blocked[0].Flows)
	require.EqualValues(t, 4, s.BlockedBy[gates.ByInFlight], "also of the one that goes behind the others")
	for _, none := range []int{0, -1} {
		few := r.M.Inspect(queue.Main).State(none, r.Now)
		require.Empty(t, few.Blocked)
		require.Equal(t, s.Stats, few.Stats)
	}
	require.Empty(t, r.M.Inspect(queue.Main).Flows(5))
	require.Equal(t, "holder", r.Peek(queue.Main)[0].Key)
	require.Equal(t, "w", r.Peek(queue.Main)[0].Consumer)
	require.Nil(t, r.Find(queue.Main, store.ID{9}))
}

// Views of pauses say until when.
func TestViewsOfPauses(t *testing.T) {
	r := newRig(t, nil)
	r.Consume(queue.Main, "w", 10, 0)
	pauseKey(r, "a", r.Now+1e9)
	id := r.Gated("a")
	v := r.Find(queue.Main, id)
	require.Equal(t, gates.ByPause, v.By)
	require.True(t, v.At.Paused)
	require.Equal(t, r.Now+1e9, v.At.Until)
	require.False(t, v.At.Queue)
	require.Equal(t, r.Now+1e9, r.M.Inspect(queue.Main).Key("a", r.Now).Paused)
	r.Do(queue.Main, queue.PauseQueue{Until: queue.Forever})
	v = r.Find(queue.Main, id)
	require.Equal(t, inspect.WaitReason{By: gates.ByPause, At: gates.Place{Paused: true, Queue: true, Until: queue.Forever}}, v.WaitReason)
	require.EqualValues(t, queue.Forever, r.M.Inspect(queue.Main).Key("a", r.Now).QueuePaused)
	require.EqualValues(t, queue.Forever, r.M.Inspect(queue.Main).State(5, r.Now).Paused)
	require.True(t, r.M.Inspect(queue.Main).State(5, r.Now).Blocked[0].At.Queue)
	r.Do(queue.Main, queue.PauseQueue{})
	require.Equal(t, "a", r.M.Inspect(queue.Main).State(5, r.Now).Blocked[0].Key)
}

// Messages are listed and found in pieces, on request only the messages of one key.
func TestSelectGoesOnWhereItStopped(t *testing.T) {
	r := newRig(t, ordered(wire.OnBlockedWait))
	var ids []store.ID
	for i := range 50 {
		ids = append(ids, r.Enqueue(fmt.Sprint("k", i%5), func(m *store.Message) {
			if i >= 45 {
				m.NotBefore = r.Now + 1e9
			}
		}))
	}
	var found []store.ID
	pieces := 0
	for from := uint64(0); pieces == 0 || from != 0; pieces++ {
		var views []inspect.MessageView
		views, from = r.M.Inspect(queue.Main).Select(&inspect.Match{Keys: []string{"k3"}}, from, 2, 7, nil, r.Now)
		for _, v := range views {
			require.Equal(t, "k3", v.Key)
			found = append(found, v.ID)
		}
	}
	require.Greater(t, pieces, 5)
	var want []store.ID
	for i := 3; i < 50; i += 5 {
		want = append(want, ids[i])
	}
	require.Equal(t, want, found)
	views, next := r.M.Inspect(queue.Main).Select(&inspect.Match{Keys: []string{"nobody"}}, 0, 2, 7, nil, r.Now)
	require.Empty(t, views)
	require.Zero(t, next)
	v, next := r.M.Inspect(queue.Main).Find(ids[30], 0, 10, r.Now)
	require.Nil(t, v)
	require.NotZero(t, next)
	require.Equal(t, inspect.StateOrdered, r.Find(queue.Main, ids[30]).State)
	require.Equal(t, gates.ByOrder, r.Find(queue.Main, ids[30]).By)
	require.Equal(t, inspect.StateDelayed, r.Find(queue.Main, ids[49]).State)
	require.EqualValues(t, 5, r.M.Inspect(queue.Main).Stats(r.Now).Delayed)
}

// The flows with the most pending messages come first, with their share.
func TestTopFlows(t *testing.T) {
	r := newRig(t, nil)
	for i, key := range []string{"a", "b", "c", "d"} {
		for range i + 1 {
			r.Enqueue(key, func(m *store.Message) { m.Weight = uint32(1000 * (i + 1)) })
		}
	}
	require.Equal(t, []inspect.FlowView{
		{Key: "d", Weight: 4000, Pending: 4, Share: 0.4}, {Key: "c", Weight: 3000, Pending: 3, Share: 0.3},
	}, r.M.Inspect(queue.Main).Flows(2))
	require.Empty(t, r.M.Inspect(queue.Main).Flows(0))
	require.Equal(t, 4, r.M.Inspect(queue.Main).Stats(r.Now).Flows)
	require.Zero(t, r.M.Inspect(queue.Main).Stats(r.Now).OldestAge)
	r.Pass(time.Second)
	require.EqualValues(t, 1e9, r.M.Inspect(queue.Main).Stats(r.Now).OldestAge)
	r.Do(queue.Main, queue.Weigh{Key: "a", Weight: 9000})
	k := r.M.Inspect(queue.Main).Key("a", r.Now)
	require.True(t, k.Known && k.Overridden)
	require.EqualValues(t, 9000, k.Weight)
	require.False(t, r.M.Inspect(queue.Main).Key("z", r.Now).Known)
}

// A message that waits at one gate, and would be blocked at another gate where others come
// first, waits for its turn at the other gate.
func TestReasonInACoalescedWaitList(t *testing.T) {
	r := newRig(t, nil)
	r.Consume(queue.Main, "w", 100, 0)
	r.LimitNow("x", throttle.Limits{Concurrency: 1})
	r.LimitNow("y", throttle.Limits{Rate: throttle.PerSecond(1000), Burst: 5000})
	r.Gated("hx", "x")
	x := r.One()
	gated := func(key string, cost uint32, keys ...string) store.ID {
		return r.Enqueue(key, func(m *store.Message) { m.Cost, m.Weight, m.ThrottleKeys = cost, cost*20, keys })
	}
	gated("a", 2000, "x", "y")
	last := gated("b", 1000, "x", "y")
	gated("dear", 5000, "y")
	r.One()
	first := gated("dear", 5000, "y")
	r.Pass(time.Second) // it has tried, and waits until the bucket is full
	r.Finished(x)       // a tries, and waits behind it
	require.Empty(t, r.Deliveries(), "the scenario: x and y admit b, but it is not its turn")
	v := r.Find(queue.Main, last)
	require.Equal(t, gates.ByTurn, v.By)
	require.Equal(t, "y", v.At.Throttle.Key())
	r.LimitNow("y", throttle.Limits{})
	gone := r.Deliveries()
	require.Len(t, gone, 2)
	require.Equal(t, first, gone[0].ID)
	v = r.Find(queue.Main, last)
	require.Equal(t, gates.ByInFlight, v.By)
	require.Equal(t, "x", v.At.Throttle.Key())
	r.LimitNow("x", throttle.Limits{})
	require.Equal(t, last, r.One().ID)
}

// A message that costs less than 1 and is in the wait list of a gate waits until the gate
// has a whole 1: for the rate, not for its turn.
func TestReasonOfACheapMessageInAWaitList(t *testing.T) {
	r := newRig(t, nil)
	r.Consume(queue.Main, "w", 100, 0)
	r.LimitNow("x", throttle.Limits{Rate: throttle.PerSecond(1000), Burst: 1000})
	r.Gated("a", "x")
	r.One()
	cheap := r.Enqueue("a", func(m *store.Message) { m.Cost, m.ThrottleKeys = 100, []string{"x"} })
	r.Pass(time.Second / 2)
	require.Empty(t, r.Deliveries())
	v := r.Find(queue.Main, cheap)
	require.Equal(t, gates.ByRate, v.By)
	require.Equal(t, "x", v.At.Throttle.Key())
	r.Pass(time.Second / 2)
	require.Equal(t, cheap, r.One().ID)
}

// A flow that is blocked, or has nothing ready, says which share it would get.
func TestKeySaysTheShareOfABlockedFlow(t *testing.T) {
	r := newRig(t, nil)
	r.LimitNow("db", throttle.Limits{Concurrency: 1})
	r.Consume(queue.Main, "w", 2, 0)
	for range 2 {
		r.Enqueue("blocked", func(m *store.Message) { m.Weight, m.ThrottleKeys = 3000, []string{"db"} })
	}
	r.Enqueue("free", nil)
	r.Enqueue("free", nil)
	r.Step()
	v := r.M.Inspect(queue.Main).Key("blocked", r.Now)
	require.EqualValues(t, 1, v.Blocked)
	require.False(t, v.Active)
	require.InDelta(t, 0.75, v.Share, 0)
	v = r.M.Inspect(queue.Main).Key("free", r.Now)
	require.True(t, v.Active)
	require.InDelta(t, 1, v.Share, 0)
}
