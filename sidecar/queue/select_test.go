package queue_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/sidecar/queue/inspect"
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
		match inspect.Match
		want  []store.ID
	}{
		"all":                     {inspect.Match{}, []store.ID{held, taken, retried, blocked, ready, later}},
		"states":                  {inspect.Match{States: []inspect.MessageState{inspect.StatePending, inspect.StateBlocked}}, []store.ID{blocked, ready}},
		"leased":                  {inspect.Match{States: []inspect.MessageState{inspect.StateLeased}}, []store.ID{held, taken}},
		"keys":                    {inspect.Match{Keys: []string{"a", "c", "nobody"}}, []store.ID{held, taken, later}},
		"no key":                  {inspect.Match{Keys: []string{"nobody"}}, nil},
		"ids":                     {inspect.Match{IDs: map[store.ID]bool{ready: true, held: true, {}: true}}, []store.ID{held, ready}},
		"attempts":                {inspect.Match{AttemptsMin: 1}, []store.ID{retried}},
		"more attempts":           {inspect.Match{AttemptsMin: 2}, nil},
		"since":                   {inspect.Match{Since: began + 1}, []store.ID{blocked, ready, later}},
		"before":                  {inspect.Match{Before: began + 1}, []store.ID{held, taken, retried}},
		"from and before a time":  {inspect.Match{Since: began, Before: began}, nil},
		"consumer":                {inspect.Match{Consumer: "w"}, []store.ID{held, taken}},
		"no consumer":             {inspect.Match{Consumer: "v"}, nil},
		"throttle":                {inspect.Match{Throttle: "db"}, []store.ID{held, blocked}},
		"circuit":                 {inspect.Match{Circuit: "c"}, []store.ID{held, blocked}},
		"no gate":                 {inspect.Match{Circuit: "db"}, nil},
		"gate and key":            {inspect.Match{Throttle: "db", Keys: []string{"b"}}, []store.ID{blocked}},
		"gate, key and no state":  {inspect.Match{Throttle: "db", Keys: []string{"b"}, States: []inspect.MessageState{inspect.StateLeased}}, nil},
		"until the second":        {inspect.Match{Last: r.Find(queue.Main, taken).Seq}, []store.ID{held, taken}},
		"until before everything": {inspect.Match{Last: 1, Keys: []string{"b"}}, nil},
	} {
		for _, slots := range []int{1, 3, 100} {
			var got []store.ID
			for from := uint64(0); ; {
				views, next := r.M.Inspect(queue.Main).Select(&tc.match, from, 2, slots, nil, r.Now)
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
				members, next := r.M.Inspect(queue.Main).Members(&tc.match, from, 2, slots, nil, r.Now)
				require.LessOrEqual(t, len(members), 2)
				for _, m := range members {
					v := r.Find(queue.Main, m.ID)
					require.Equal(t, inspect.Member{Seq: v.Seq, ID: v.ID, EnqueuedAt: v.EnqueuedAt, Size: v.Size}, m)
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
