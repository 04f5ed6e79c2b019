//go:build unix

package e2e

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/e2e/natstest"
)

// TestFrozenOwner: the owner of a shard is frozen, and another node takes over. When the old
// owner wakes up, its sockets have all requests of the meantime: it confirms none of them, and
// becomes a standby.
func TestFrozenOwner(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t, natstest.JetStream)
	procs := clusterNodes(t, s.URL, "shards = 1\nreplicas = 1\nallow_r1 = true", "a", "b")
	c := dial(t, s.URL)
	owner := func() (owner string) { // a frozen node gets requests and does not answer
		eventually(t, func() bool {
			st, ok := c.clusterStatus()
			if !ok || len(st.Shards) != 1 {
				return false
			}
			sh := st.Shards[0]
			owner = sh.Owner
			return owner != "" && len(sh.Standbys) == 1 && sh.Standbys[0].Lag == 0
		})
		return owner
	}
	first := owner()
	second := map[string]string{"a": "b", "b": "a"}[first]
	c.createQueue("q", m{"visibility_timeout_ms": 600_000})
	k := c.consume("q", 2)
	c.enqueue("q", "before")
	held := k.next()
	c.accepted(held, "+WPI")

	procs[first].Freeze(t)
	// All replies to one request, from any node.
	replies, err := c.nc.SubscribeSync("_INBOX.frozen.*")
	require.NoError(t, err)
	ids := make(map[string]int) // the id of that one message
	confirms := func(timeout time.Duration) bool {
		r, err := replies.NextMsg(timeout)
		if err != nil || errorOf(t, r) != nil {
			return false
		}
		var confirmed enqueued
		require.NoError(t, json.Unmarshal(r.Data, &confirmed))
		ids[confirmed.ID]++
		return true
	}
	eventually(t, func() bool { // until an owner confirms
		sent := message("q", "meanwhile", "Nats-Msg-Id", "once")
		sent.Reply = "_INBOX.frozen.enqueue"
		require.NoError(t, c.nc.PublishMsg(sent))
		return confirms(time.Second)
	})
	c.accepted(held, "") // the token is from the previous owner
	got := k.next()
	require.Equal(t, "meanwhile", string(got.Data))
	c.accepted(got, "")

	procs[first].Thaw(t)
	eventually(t, func() bool {
		return strings.Contains(procs[first].log.String(), "this node does not own the shard any more")
	})
	require.Equal(t, second, owner())
	c.flush()
	for confirms(100 * time.Millisecond) {
	}
	require.Len(t, ids, 1)
	k.none()
	require.Zero(t, c.depth("q"))

	require.Zero(t, procs[second].Stop(t)) // the first owner can own it again
	eventually(t, func() bool {
		r, err := c.nc.RequestMsg(message("q", "after", "Nats-Msg-Id", "after"), time.Second)
		return err == nil && errorOf(t, r) == nil
	})
	require.Equal(t, "after", string(k.next().Data))
}
