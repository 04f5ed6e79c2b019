package shard

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/deadletter"
	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/sidecar/queue/history"
	"github.com/filaq/fila/sidecar/queue/inspect"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// lastDelivery is a Conn that keeps the last delivery to w.
type lastDelivery struct{ atomic.Pointer[nats.Msg] }

func (c *lastDelivery) MaxPayload() int64            { return 1 << 20 }
func (c *lastDelivery) Publish(string, []byte) error { return nil }

func (c *lastDelivery) PublishMsg(m *nats.Msg) error {
	if m.Subject == "w" {
		c.Store(m)
	}
	return nil
}

// BenchmarkTurns is the life of a message of 1 KB without NATS and disk: accepted, delivered and
// acked, each step by the goroutine that brings the input.
func BenchmarkTurns(b *testing.B) {
	r := openRig(b, newDisk())
	delivered := &lastDelivery{}
	r.Conn = delivered
	r.start()
	require.NoError(r.t, r.Serve())
	q, by := r.create(nil), subscription(b)
	require.True(b, q.Tell(queue.Register{Consumer: "w", Subject: "w", MaxInFlight: 1}))
	payload := make([]byte, 1024)
	b.ReportAllocs()
	for b.Loop() {
		require.Nil(b, q.Accept(&nats.Msg{Data: payload, Reply: "producer", Sub: by}))
		var m *nats.Msg
		for m = delivered.Swap(nil); m == nil; m = delivered.Swap(nil) {
			runtime.Gosched() // the runner is making a step of its timer
		}
		text, name, _ := r.Subjects.ParseToken(m.Reply)
		token, err := r.Signer.Parse(text, name)
		require.NoError(b, err)
		require.Nil(b, q.Ack(token, done, "", by))
	}
	r.end()
}

// deadLetterStore opens a rig on a disk with n dead letters of 1 KB, each with a history, of three
// errors in different numbers and of 1000 tenants.
func deadLetterStore(b *testing.B, n int) *rig {
	path := filepath.Join(b.TempDir(), "dead")
	db, err := store.Open(path, store.Options{})
	require.NoError(b, err)
	write := func(batch *store.Batch) {
		done := make(chan error, 1)
		batch.Done = func(err error) { done <- err }
		db.Submit(batch)
		require.NoError(b, <-done)
	}
	settings, err := json.Marshal(wire.DefaultQueueSettings("orders"))
	require.NoError(b, err)
	write(&store.Batch{PutQueues: []store.QueueRecord{{ID: 1, Name: "orders", Settings: settings}, {ID: 2, Name: "orders" + wire.DLQSuffix, Settings: settings}}})
	causes := []string{
		"dial tcp 10.0.%d.17:5432: connection refused after 1500ms",
		"no such customer cust-%d: the account was closed",
		"cannot open /var/lib/orders/%d.json: permission denied",
	}
	payload, batch := make([]byte, 1024), &store.Batch{Queue: 2}
	for i := range n {
		m := store.Message{
			Ref: store.Ref{Queue: 2, Seq: uint64(i + 1)}, EnqueuedAt: int64(i + 1),
			Class:   store.Class{Key: fmt.Sprint("tenant-", i%1000), Weight: 1000, Cost: 1000},
			Headers: wire.EncodeHeaders(nil, map[string][]string{"tenant": {fmt.Sprint(i % 1000)}, "kind": {"order"}}), Payload: payload,
			Dead: &store.Dead{Reason: wire.ReasonMaxDeliveries, Error: fmt.Sprintf(causes[i%3], i), SourceQueue: "orders", At: int64(i + 2), Attempts: 20},
		}
		binary.BigEndian.PutUint64(m.ID[:], uint64(i+1))
		p := history.AttemptRecord{Outcome: wire.AttemptNack, Number: 1, At: int64(i + 2), Consumer: "worker", Error: m.Dead.Error, DecidedBy: "max_deliveries", Reason: m.Dead.Reason}
		batch.History = append(batch.History, store.Attempt{Ref: m.Ref, Record: p.Append(nil)})
		if batch.Add = append(batch.Add, m); len(batch.Add) == 10_000 || i == n-1 {
			write(batch)
			batch = &store.Batch{Queue: 2}
		}
	}
	r := openRig(b, newDisk())
	require.NoError(b, r.store.Store.Close()) // the model
	r.store.Store = db
	r.start()
	require.NoError(b, r.Serve())
	require.EqualValues(b, n, r.Queue("orders").DLQ().Depth())
	return r
}

// BenchmarkDeadLetters measures a million dead letters: listing their groups when the index is
// empty and when nothing has changed, and filters. turn-ms is the longest time that one piece
// holds the machine.
func BenchmarkDeadLetters(b *testing.B) {
	const n = 1_000_000
	r := deadLetterStore(b, n)
	q := r.Queue("orders").DLQ()
	ask := func(b *testing.B) {
		all, err := q.Groups(100)
		require.Nil(b, err)
		require.Len(b, all.Groups, 3)
		require.EqualValues(b, n, all.Messages)
	}
	b.Run("groups/cold", func(b *testing.B) {
		for b.Loop() {
			q.groups = deadletter.Index{}
			ask(b)
		}
	})
	ask(b)
	b.Run("groups/warm", func(b *testing.B) {
		for b.Loop() {
			ask(b)
		}
	})
	for name, f := range map[string]api.Filter{
		"find/header": {Header: map[string]string{"tenant": "17"}},
		"find/group":  {ErrorGroup: deadletter.GroupID(&store.Dead{SourceQueue: "orders", Error: "no such customer cust-1: the account was closed"})},
		"find/key":    {Keys: []string{"tenant-17"}},
		"find/all":    {All: true},
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				fd, err := q.Finder(f, 0)
				require.Nil(b, err)
				found := 0
				for from, more := uint64(0), true; more; more = from != 0 {
					var views []inspect.MessageView
					views, from, err = fd.Find(from, 4096, 4096, views)
					require.Nil(b, err)
					found += len(views)
				}
				require.NotZero(b, found)
			}
		})
	}
	b.Run("turn", func(b *testing.B) {
		var most time.Duration
		for b.Loop() {
			for from, more := uint64(0), true; more; more = from != 0 {
				begin := time.Now()
				q.View(func(m *queue.Queue, side queue.Role, now int64) {
					_, from = m.Inspect(side).Select(&inspect.Match{}, from, 4096, 4096, nil, now)
				})
				most = max(most, time.Since(begin))
			}
		}
		b.ReportMetric(most.Seconds()*1000, "turn-ms")
	})
}
