//go:build unix

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
)

const (
	shareShards = 8
	shareWindow = 64 // messages of each queue that stay unacked
)

// TestShardsShareNodes puts equal load on eight shards of three nodes: each shard gets at least
// half of an equal share.
func TestShardsShareNodes(t *testing.T) {
	if !*flagMeasure {
		t.Skip("-fila.measure runs it")
	}
	servers := startCluster(t, troubleNodes)
	clusterNodes(t, servers.URL(), fmt.Sprint("shards = ", shareShards), nodeName(0), nodeName(1), nodeName(2))
	c := dial(t, servers.URL())
	eventually(t, func() bool { // each node has two or three shards
		var st clusterState
		c.call("fila.admin.cluster-status", nil, &st)
		owned := make(map[string]int)
		for _, sh := range st.Shards {
			if sh.Owner == "" || sh.MovingTo != "" || len(sh.Standbys) != troubleNodes-1 {
				return false
			}
			owned[sh.Owner]++
		}
		for i := range troubleNodes {
			if owned[nodeName(i)] < shareShards/troubleNodes {
				return false
			}
		}
		return true
	})
	queues := make([]string, shareShards) // by shard
	for i := 0; slices.Contains(queues, ""); i++ {
		name := fmt.Sprint("q", i)
		c.createQueue(name, nil)
		var at struct {
			Shard int `json:"shard"`
		}
		c.call("fila.admin.queue-inspect."+name, nil, &at)
		if queues[at.Shard] == "" {
			queues[at.Shard] = name
		}
	}

	const all = shareShards * 8000
	var served [shareShards]atomic.Int64
	var sum atomic.Int64
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var work sync.WaitGroup
	begin := time.Now()
	for shard, queue := range queues {
		credit := make(chan struct{}, shareWindow)
		k := dial(t, servers.URL()).consume(queue, shareWindow)
		work.Go(func() {
			for {
				select {
				case d := <-k.ch:
					_ = d.Respond(nil)
				case <-ctx.Done():
					return
				}
				served[shard].Add(1)
				if sum.Add(1) == all {
					stop()
				}
				select {
				case <-credit:
				default: // delivered again
				}
			}
		})
		nc := dial(t, servers.URL()).nc
		inbox := nats.NewInbox()
		replies, err := nc.Subscribe(inbox, func(*nats.Msg) {})
		require.NoError(t, err)
		defer func() { _ = replies.Unsubscribe() }()
		work.Go(func() {
			msg := message(queue, strings.Repeat("x", 1024))
			msg.Reply = inbox
			for {
				select {
				case credit <- struct{}{}:
					_ = nc.PublishMsg(msg)
				case <-ctx.Done():
					return
				}
			}
		})
	}
	<-ctx.Done()
	work.Wait()
	took := time.Since(begin).Seconds()
	counts := make([]int64, shareShards)
	for i := range counts {
		counts[i] = served[i].Load()
	}
	t.Logf("%.0f lives/s, by shard %v, the least has %.2f of its share", all/took, counts, float64(slices.Min(counts))*shareShards/all)
	require.GreaterOrEqual(t, slices.Min(counts), int64(all/shareShards/2))
}
