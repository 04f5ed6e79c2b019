package shard

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// bury makes n dead letters with the bodies 0 to n-1 and these headers.
func (r *rig) bury(q *Queue, n int, headers func(i int) nats.Header) {
	r.t.Helper()
	r.consume(q, "undertaker", n)
	for i := range n {
		require.Nil(r.t, r.enqueue(fmt.Sprint(i), "", headers(i)))
		r.ack(r.one("undertaker"), term, "")
	}
	require.True(r.t, q.Tell(queue.Leave{Consumer: "undertaker"}))
	time.Sleep(time.Second)
	require.EqualValues(r.t, n, q.DLQ().Depth())
}

// redrive moves up to count dead letters of q and checks how many went.
func (r *rig) redrive(q *Queue, count, want int64) *wire.Error {
	r.t.Helper()
	reply, werr := q.DLQ().Redrive(count)
	require.Equal(r.t, want, reply.Redriven)
	return werr
}

func plain(int) nats.Header { return nats.Header{} }

func byTenant(i int) nats.Header { return nat("tenant", []string{"a", "b"}[i%2]) }

func TestRedrive(t *testing.T) {
	bubble(t, func(r *rig) {
		q := r.create(func(s *wire.QueueSettings) { s.WeightHeader = "weight" })
		const n = batchSize + 10
		r.bury(q, n, func(int) nats.Header { return nats.Header{"weight": {"5"}, wire.HeaderTTL: {"1h"}} })
		require.Nil(t, r.redrive(q, 3, 3))
		require.EqualValues(t, 3, q.Depth())
		require.Nil(t, r.redrive(q, 0, n-3))
		require.EqualValues(t, n, q.Depth())
		require.Zero(t, q.DLQ().Depth())
		require.Zero(t, q.DLQ().Bytes())
		require.EqualValues(t, n, q.Metrics().Snapshot()["redriven"])
		require.Nil(t, r.redrive(q, 0, 0))
		q.View(func(m *queue.Queue, side queue.Role, now int64) {
			require.EqualValues(t, 5000, m.Inspect(side).Key("default", now).Weight, "as the headers say")
		})
		time.Sleep(2 * time.Hour)
		r.consume(q, "w", n)
		time.Sleep(time.Second)
		all := r.conn.take("w")
		require.Len(t, all, n, "a redrive drops the TTL")
		for i, m := range all {
			require.Equal(t, fmt.Sprint(i), string(m.Data))
			require.Empty(t, m.Header.Get(wire.HeaderDeadReason))
			require.Equal(t, "1", m.Header.Get(wire.HeaderAttempt))
		}
	})
}

// TestRedriveRunsOnEnqueueAgain: dead letters keep their key, and redriven messages get a new one.
func TestRedriveRunsOnEnqueueAgain(t *testing.T) {
	bubble(t, func(r *rig) {
		r.control.values = map[string]string{"tenant": "first"}
		q := r.create(func(s *wire.QueueSettings) {
			s.OnEnqueue = `function on_enqueue(msg) return { fairness_key = fila.get("tenant") } end`
		})
		r.bury(q, 1, plain)
		r.control.values = map[string]string{"tenant": "second"}
		r.consume(q.DLQ(), "operator", 1)
		dead := r.one("operator")
		require.Equal(t, "first", dead.Header.Get(wire.HeaderKey))
		require.True(t, q.DLQ().Tell(queue.Leave{Consumer: "operator"}))
		r.ack(dead, nack, "")
		require.Nil(t, r.redrive(q, 0, 1))
		r.consume(q, "w", 1)
		require.Equal(t, "second", r.one("w").Header.Get(wire.HeaderKey))
	})
}

// TestBadHeadersThatWereAccepted refuse a message that goes to another queue, but not one
// that is redriven or stays in its queue.
func TestBadHeadersThatWereAccepted(t *testing.T) {
	bubble(t, func(r *rig) {
		q := r.create(nil)
		to := r.another("other", func(s *wire.QueueSettings) { s.PriorityHeader = "urgency" })
		r.bury(q, 4, func(int) nats.Header { return nat("urgency", "soon") })
		r.update(q, func(s *wire.QueueSettings) { s.PriorityHeader = "urgency" })
		require.Nil(t, r.redrive(q, 2, 2))
		j := r.run(api.JobCreateRequest{Queue: "orders", Op: api.JobReprioritise, Filter: everything(), Weight: 2})
		require.EqualValues(t, 2, j.Done)
		j = r.run(api.JobCreateRequest{Queue: "orders.dlq", Op: api.JobMove, To: "other", Filter: everything()})
		require.Zero(t, j.Done)
		require.Equal(t, map[string]int64{api.LeftBadKey: 2}, j.Left)
		require.Zero(t, to.Depth())
	})
}

// TestRedriveStopsWhereTheQueueIsFull: the other messages stay dead letters.
func TestRedriveStopsWhereTheQueueIsFull(t *testing.T) {
	bubble(t, func(r *rig) {
		q := r.create(nil)
		r.bury(q, 5, plain)
		r.update(q, func(s *wire.QueueSettings) { s.MaxDepth = 2 })
		require.Nil(t, r.redrive(q, 0, 2))
		require.Equal(t, 429, r.redrive(q, 0, 0).Code)
		require.Equal(t, []string{"2", "3", "4"}, r.bodies(q.DLQ()))
	})
}

// TestRedriveOfMessagesThatCannotBeMoved: they stay, can be delivered, and the reply says so.
func TestRedriveOfMessagesThatCannotBeMoved(t *testing.T) {
	for name, err := range map[string]error{"corrupt": errCorrupt, "gone": store.ErrNotFound} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				q := r.create(func(s *wire.QueueSettings) { s.MaxPendingPerKey = 10 })
				r.bury(q, 3, plain)
				r.store.refuse(func(b *store.Batch) error {
					if len(b.Move) > 0 {
						return err
					}
					return nil
				})
				require.Equal(t, wire.OutcomeUnknown(), r.redrive(q, 0, 0))
				synctest.Wait()
				require.NoError(t, r.Err())
				require.Zero(t, q.Depth())
				require.EqualValues(t, 3, q.DLQ().Depth())
				require.Empty(t, q.perKey.Load().mu.n)
				r.consume(q.DLQ(), "operator", 1)
				require.Equal(t, "0", string(r.one("operator").Data))
				r.store.refuse(nil)
				require.Nil(t, r.redrive(q, 0, 2), "the leased one is skipped")
			})
		})
	}
}

// TestRedriveOfAnUnreadableMessage leaves it.
func TestRedriveOfAnUnreadableMessage(t *testing.T) {
	bubble(t, func(r *rig) {
		q := r.create(nil)
		r.bury(q, 3, plain)
		r.store.spoil(badPlaces{seq: 2, read: errCorrupt})
		require.Equal(t, wire.CodeInternal, r.redrive(q, 0, 2).ErrCode)
		require.Contains(t, r.log.String(), "a job skips messages that cannot be read")
		require.EqualValues(t, 1, q.DLQ().Depth())
		r.store.spoil(badPlaces{})
		require.Nil(t, r.redrive(q, 0, 1))
	})
}

// TestRedriveAtTheEnd of the queue is answered.
func TestRedriveAtTheEnd(t *testing.T) {
	bubble(t, func(r *rig) {
		q := r.create(nil)
		r.bury(q, 1, plain)
		q.run.end()
		require.Equal(t, wire.CodeDraining, r.redrive(q, 0, 0).ErrCode)
	})
}

// TestAPurgeOrRedriveThatFailsHalfWay returns how many messages were done: those on disk.
func TestAPurgeOrRedriveThatFailsHalfWay(t *testing.T) {
	after := func(r *rig, good int) {
		batches := 0
		r.store.refuse(func(*store.Batch) error {
			if batches++; batches <= good {
				return nil
			}
			return store.ErrClosed
		})
	}
	bubble(t, func(r *rig) {
		q := r.create(nil)
		r.bury(q, batchSize+10, plain)
		after(r, 2) // what it is, and a piece
		require.ErrorIs(t, r.redrive(q, 0, batchSize), wire.Draining())
	})
	bubble(t, func(r *rig) {
		q := r.create(nil)
		for i := range purgeChunk + 10 {
			require.Nil(t, r.enqueue(fmt.Sprint(i), "", nil))
		}
		time.Sleep(time.Second)
		after(r, 1)
		removed, _, _, werr := q.Purge(0, 0)
		require.ErrorIs(t, werr, wire.Draining())
		require.EqualValues(t, purgeChunk, removed)
	})
}
