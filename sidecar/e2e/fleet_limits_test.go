//go:build unix

package e2e

import (
	"encoding/json"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/e2e/natstest"
)

// TestFleetLimitsHold: two filas use up a window of a day and a bucket that does not refill,
// while one of them is frozen, killed and restarted. Permits may be lost, but no more messages
// than the limit are delivered.
func TestFleetLimitsHold(t *testing.T) {
	const limit = 60
	s := natstest.Start(t, natstest.JetStream)
	f := startFleetOn(t, 2, fleetOptions{nats: s.URL, queue: `throttle_headers = ["Gate"]`, shared: fmt.Sprintf(`keys = ["throttle:*"]
[[throttle]]
key = "window"
limit = %d
window_ms = 86400000
[[throttle]]
key = "rate"
rate = "1/604800"
burst = %d`, limit, limit)})
	keys := []string{"window", "rate"} // of the messages of queues 0 and 1
	var went [2]atomic.Int64
	for i := range 2 {
		for q := range keys {
			f.deliveries(i, q, func(m *nats.Msg) {
				went[q].Add(1)
				_ = f.nc.Publish(m.Reply, []byte("+ACK"))
			})
		}
	}
	send := func(i, n int) {
		for q, key := range keys {
			for range n {
				m := &nats.Msg{Subject: fmt.Sprintf("%s.enqueue.q%d", fleetPrefix(i), q), Header: nats.Header{"Gate": {key}}, Data: []byte("x")}
				r, err := f.nc.RequestMsg(m, patience)
				require.NoError(t, err)
				require.Empty(t, r.Header.Get("Nats-Service-Error"), r.Data)
			}
		}
	}
	reaches := func(n int64) {
		for q, key := range keys {
			eventually(t, func() bool { return went[q].Load() >= n }, key, "messages that wait go as long as there is something left")
			require.LessOrEqual(t, went[q].Load(), int64(limit), key)
		}
	}
	send(0, 5) // alone
	reaches(5)
	send(1, 5)
	reaches(10)
	f.procs[1].Freeze(t)
	send(0, 5)
	reaches(15)
	f.procs[1].Thaw(t)
	send(1, 5)
	send(0, 5)
	reaches(25)
	f.procs[1].Kill9(t)
	send(0, 5)
	reaches(30)
	f.procs[1].Start(t)
	for q := range keys {
		f.register(1, q)
	}
	send(0, limit)
	send(1, limit)
	for i := range 2 {
		for _, key := range keys {
			eventually(t, func() bool {
				r, err := f.nc.Request(fleetPrefix(i)+".admin.throttle-show."+key, nil, patience)
				var info struct {
					State           string
					WaitingMessages int `json:"waiting_messages"`
					Shared          struct {
						Tokens   float64
						InWindow int `json:"in_window"`
						Users    map[string]int64
					}
				}
				require.NoError(t, err)
				require.NoError(t, json.Unmarshal(r.Data, &info))
				used := info.Shared.InWindow == limit
				if key == "rate" {
					used = info.Shared.Tokens < 1
				}
				return used && info.State == key && info.WaitingMessages > 0 && len(info.Shared.Users) == 2
			}, key, "all is used up")
		}
	}
	reaches(31)
	t.Logf("delivered of %d: %d by the window, %d by the rate", limit, went[0].Load(), went[1].Load())
}
