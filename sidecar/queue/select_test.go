package queue_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/throttle"
	"github.com/filaq/fila/wire"
)

// TestSelect: what a machine knows of its messages can be asked for, and each condition
// narrows down what the others leave.
func TestSelect(t *testing.T) {
	r := newRig(t, nil)
	r.LimitNow("db", throttle.Limits{Concurrency: 1})
	began := r.Now
	gated := func(key string) store.ID {
		return r.Enqueue(key, func(m *store.Message) { m.ThrottleKeys, m.CircuitKey = []string{"db"}, "c" })
	}
	r.Consume(queue.Main, "w", 3, 0)
	held := gated("a")
	taken := r.Enqueue("a", nil)
	retried := r.Enqueue("b", nil)
	for _, d := range r.Deliveries() {
		if d.ID == retried {
			r.Ack(d, wire.Ack{Kind: wire.AckNack, HasDelay: true, Delay: time.Hour}, "")
		}
	}
	r.Pass(time.Second)
	r.Consume(queue.Main, "w", 2, 0)
	blocked := gated("b")
	ready := r.Enqueue("b", nil)
	later := r.Enqueue("c", func(m *store.Message) { m.NotBefore = r.Now + 1e9 })

	for what, tc := range map[string]struct {
		match queue.Match
		want  []store.ID
	}{
		"all":                     {queue.Match{}, []store.ID{held, taken, retried, blocked, ready, later}},
		"states":                  {queue.Match{States: []queue.MessageState{queue.StatePending, queue.StateBlocked}}, []store.ID{blocked, ready}},
		"leased":                  {queue.Match{States: []queue.MessageState{queue.StateLeased}}, []store.ID{held, taken}},
		"keys":                    {queue.Match{Keys: []string{"a", "c", "nobody"}}, []store.ID{held, taken, later}},
		"no key":                  {queue.Match{Keys: []string{"nobody"}}, nil},
		"ids":                     {queue.Match{IDs: map[store.ID]bool{ready: true, held: true, {}: true}}, []store.ID{held, ready}},
		"attempts":                {queue.Match{AttemptsMin: 1}, []store.ID{retried}},
		"more attempts":           {queue.Match{AttemptsMin: 2}, nil},
		"since":                   {queue.Match{Since: began + 1}, []store.ID{blocked, ready, later}},
		"before":                  {queue.Match{Before: began + 1}, []store.ID{held, taken, retried}},
		"from and before a time":  {queue.Match{Since: began, Before: began}, nil},
		"consumer":                {queue.Match{Consumer: "w"}, []store.ID{held, taken}},
		"no consumer":             {queue.Match{Consumer: "v"}, nil},
		"throttle":                {queue.Match{Throttle: "db"}, []store.ID{held, blocked}},
		"circuit":                 {queue.Match{Circuit: "c"}, []store.ID{held, blocked}},
		"no gate":                 {queue.Match{Circuit: "db"}, nil},
		"gate and key":            {queue.Match{Throttle: "db", Keys: []string{"b"}}, []store.ID{blocked}},
		"gate, key and no state":  {queue.Match{Throttle: "db", Keys: []string{"b"}, States: []queue.MessageState{queue.StateLeased}}, nil},
		"until the second":        {queue.Match{Last: r.Find(queue.Main, taken).Seq}, []store.ID{held, taken}},
		"until before everything": {queue.Match{Last: 1, Keys: []string{"b"}}, nil},
	} {
		for _, slots := range []int{1, 3, 100} {
			var got []store.ID
			for from := uint64(0); ; {
				views, next := r.M.Select(queue.Main, &tc.match, from, 2, slots, nil, r.Now)
				require.LessOrEqual(t, len(views), 2)
				for _, v := range views {
					got = append(got, v.ID)
				}
				if from = next; next == 0 {
					break
				}
			}
			require.Equal(t, tc.want, got, "%s, %d slots", what, slots)
			got = nil
			for from := uint64(0); ; {
				members, next := r.M.Members(queue.Main, &tc.match, from, 2, slots, nil, r.Now)
				require.LessOrEqual(t, len(members), 2)
				for _, m := range members {
					v := r.Find(queue.Main, m.ID)
					require.Equal(t, queue.Member{Seq: v.Seq, ID: v.ID, EnqueuedAt: v.EnqueuedAt, Size: v.Size}, m)
					got = append(got, m.ID)
				}
				if from = next; next == 0 {
					break
				}
			}
			require.Equal(t, tc.want, got, "%s, %d slots, members", what, slots)
		}
	}
}
