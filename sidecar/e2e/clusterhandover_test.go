//go:build unix

package e2e

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
)

// handoverMoves is the number of moves with one backlog.
const handoverMoves = 20

// handover is a shard that moves between nodes, with a producer and a consumer.
type handover struct {
	t  *testing.T
	c  *client
	mu struct {
		sync.Mutex
		confirmed, delivered lapse
	}
}

// lapse is the longest time between two events.
type lapse struct {
	last time.Time
	most time.Duration
}

func (l *lapse) note(now time.Time) {
	if !l.last.IsZero() {
		l.most = max(l.most, now.Sub(l.last))
	}
	l.last = now
}

func (h *handover) status() (st clusterState) {
	h.t.Helper()
	h.c.call("fila.admin.cluster-status", nil, &st)
	return st
}

// settled waits until the shard has an owner and two standbys with all of its data.
func (h *handover) settled() (owner string) {
	h.t.Helper()
	eventually(h.t, func() bool {
		st := h.status()
		sh := st.Shards[0]
		owner = sh.Owner
		if len(st.Nodes) != troubleNodes || owner == "" || sh.MovingTo != "" || len(sh.Standbys) != troubleNodes-1 {
			return false
		}
		for _, by := range sh.Standbys {
			if by.State != "following" || by.Error != "" || by.Lag > 100 {
				return false
			}
		}
		return true
	}, "the shard does not settle")
	return owner
}

// work starts a producer that does not wait for confirmations and a consumer that acks.
func (h *handover) work(url string) {
	t := h.t
	k := dial(t, url)
	sub, err := k.nc.Subscribe("fila.deliver.w.work", func(m *nats.Msg) {
		_ = m.Respond(nil)
		h.mu.Lock()
		h.mu.delivered.note(time.Now())
		h.mu.Unlock()
	})
	require.NoError(t, err)
	t.Cleanup(func() { _ = sub.Unsubscribe() })
	k.flush()
	h.c.call("fila.consumer.w.work", m{"max_in_flight": 64}, nil)

	nc := dial(t, url).nc
	inbox := nats.NewInbox()
	replies, err := nc.Subscribe(inbox, func(m *nats.Msg) {
		if m.Header.Get("Nats-Service-Error") != "" || m.Header.Get("Status") != "" {
			return
		}
		h.mu.Lock()
		h.mu.confirmed.note(time.Now())
		h.mu.Unlock()
	})
	require.NoError(t, err)
	t.Cleanup(func() { _ = replies.Unsubscribe() })
	msg := message("work", strings.Repeat("x", 100))
	msg.Reply = inbox
	go func() {
		tick := time.NewTicker(2 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				_ = nc.PublishMsg(msg)
			case <-t.Context().Done():
				return
			}
		}
	}()
}

// move makes the next node the owner. It returns the longest times without a confirmation and
// without a delivery.
func (h *handover) move() (confirmed, delivered time.Duration) {
	t := h.t
	t.Helper()
	from := h.settled()
	to := nodeName((nodeNumber(from) + 1) % troubleNodes)
	h.mu.Lock()
	h.mu.confirmed.most, h.mu.delivered.most = 0, 0
	h.mu.Unlock()
	order := nats.NewMsg("fila.admin.cluster-move")
	order.Data = fmt.Appendf(nil, `{"shard":0,"node":%q}`, to)
	eventually(t, func() bool { return errorOf(t, h.c.do(order)) == nil }, "the standby is not close")
	eventually(t, func() bool { return h.status().Shards[0].Owner == to }, "the shard is not moved")
	now := time.Now()
	eventually(t, func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.mu.confirmed.last.After(now) && h.mu.delivered.last.After(now)
	}, "nothing is confirmed and delivered")
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.mu.confirmed.most, h.mu.delivered.most
}

// grow enqueues messages without a consumer: a thousand fairness keys, with headers and dedupe
// ids.
func (h *handover) grow(have, want int) {
	const batch = 4000
	for ; have < want; have += batch {
		msgs := make([]*nats.Msg, min(batch, want-have))
		for i := range msgs {
			msgs[i] = message("kept", strings.Repeat("x", 100), "tenant", fmt.Sprint("t", i%1000), "Content-Type", "text/plain", "Nats-Msg-Id", fmt.Sprint(have+i))
		}
		h.c.enqueueAll(msgs)
	}
}

// TestHandoverMeasure prints the duration of a planned handover by the number of messages in
// the shard.
func TestHandoverMeasure(t *testing.T) {
	if !*flagMeasure {
		t.Skip("-fila.measure runs it")
	}
	servers := startCluster(t, troubleNodes)
	h := &handover{t: t, c: dial(t, servers.URL())}
	clusterNodes(t, servers.URL(), "shards = 1", nodeName(0), nodeName(1), nodeName(2))
	h.settled()
	h.c.createQueue("kept", m{"fairness_header": "tenant"})
	h.c.createQueue("work", nil)
	h.work(servers.URL())
	have := 0
	for _, backlog := range []int{0, 8000, 32_000, 128_000, 1_000_000} {
		h.grow(have, backlog)
		have = backlog
		var confirmed, delivered []time.Duration
		before := machine()
		for range handoverMoves {
			a, b := h.move()
			confirmed, delivered = append(confirmed, a), append(delivered, b)
		}
		t.Logf("%d messages: nothing confirmed for p50 %v, max %v; nothing delivered for p50 %v, max %v (%s)", backlog,
			quantile(confirmed, .5).Round(time.Millisecond), quantile(confirmed, 1).Round(time.Millisecond),
			quantile(delivered, .5).Round(time.Millisecond), quantile(delivered, 1).Round(time.Millisecond), before)
	}
}
