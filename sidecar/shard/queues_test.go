package shard

import (
	"context"
	"errors"
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

func TestCreate(t *testing.T) {
	bubble(t, func(r *rig) {
		q := r.create(func(s *wire.QueueSettings) { s.VisibilityTimeoutMs = 1234 })
		require.Equal(t, []string{"orders", "orders.dlq"}, r.front.attached)
		require.Equal(t, 2, r.front.flushed, "both can be reached")
		require.Len(t, r.news(wire.EventQueueCreated), 1)
		dlq := q.DLQ()
		require.Same(t, dlq, r.Queue("orders.dlq"))
		require.Equal(t, []*Queue{q, dlq}, r.Queues())
		require.True(t, r.Exists("orders"))
		require.False(t, r.Exists("mails"))
		require.Nil(t, r.Queue("mails"))
		require.Equal(t, q.ID()+1, dlq.ID())
		require.Equal(t, "orders.dlq", dlq.Name())
		require.True(t, dlq.IsDLQ())
		require.False(t, q.IsDLQ())
		require.Same(t, q, dlq.Source())
		require.Nil(t, q.Source())
		require.Nil(t, dlq.DLQ())
		require.EqualValues(t, 1234, dlq.Settings().VisibilityTimeoutMs)
		require.Zero(t, dlq.Settings().DeliveryLimit(false))
		require.Zero(t, dlq.Settings().DedupeWindowMs)
		require.Equal(t, []wire.QueueSettings{q.Settings()}, r.Settings())

		same, werr := r.Create(q.Settings())
		require.Nil(t, werr, "again with the same settings")
		require.Equal(t, q.Settings(), same)
		require.Same(t, q, r.Queue("orders"))
		_, werr = r.Create(wire.DefaultQueueSettings("orders"))
		require.Equal(t, wire.QueueExists("orders", []string{"visibility_timeout_ms is 1234, not 30000", "retry_initial_ms is 0, not 1000"}), werr)

		bad := wire.DefaultQueueSettings("mails")
		bad.OnEnqueue, bad.OnFailure = "function on_enqueue(msg) end", "function" // the first one creates metrics
		_, werr = r.Create(bad)
		require.Equal(t, wire.CodeHookLoad, werr.ErrCode)
		require.NotContains(t, scrape(t, r), `queue="mails"`)

		r.store.refuse(func(*store.Batch) error { return store.ErrTooBig })
		_, werr = r.Create(wire.DefaultQueueSettings("mails"))
		require.Equal(t, wire.OutcomeUnknown(), werr)
		require.Nil(t, r.Queue("mails"))
		r.store.refuse(nil)

		r.front.err = errors.New("no connection")
		_, werr = r.Create(wire.DefaultQueueSettings("mails"))
		require.Equal(t, wire.CodeInternal, werr.ErrCode)
		require.Contains(t, r.log.String(), "fila cannot subscribe to a new queue; a restart tries again")
		require.NotNil(t, r.Queue("mails"), "it is on disk")

		r.Drain()
		_, werr = r.Create(wire.DefaultQueueSettings("more"))
		require.Equal(t, wire.CodeDraining, werr.ErrCode)
	})
}

// TestDetailOfAQueueThatRests: it is not computed again, and never too late.
func TestDetailOfAQueueThatRests(t *testing.T) {
	bubble(t, func(r *rig) {
		q := r.create(nil)
		detail := func() (d api.QueueDetail) {
			synctest.Wait()
			require.True(t, q.View(func(m *queue.Queue, _ queue.Role, now int64) { d = q.Detail(m.Stepped(), now) }))
			return d
		}
		life := func() {
			require.Nil(t, r.enqueue("one", "", nil))
			r.ack(r.one("w"), done, "")
		}
		r.consume(q, "w", 1)
		for i := range 3 {
			life()
			d := detail()
			require.Equal(t, q.metrics.Detail(), d)
			require.EqualValues(t, i+1, d.Acked)
		}
		require.Equal(t, q.metrics.Detail(), detail())
		time.Sleep(time.Duration(countedAfter) + time.Second)
		require.Equal(t, q.metrics.Detail(), detail())
		q.metrics.Enqueued() // without a step, which does not happen otherwise
		require.EqualValues(t, 3, detail().Enqueued, "it was not counted again")
		life()
		require.EqualValues(t, 5, detail().Enqueued)
		require.EqualValues(t, 4, detail().Acked)
	})
}

// TestPausesAndWeightsReachTheQueue, whether it is new or recovered.
func TestPausesAndWeightsReachTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, newDisk())
		keep := func(r *rig) {
			r.control.weights = map[string]uint32{"a": 7000, "b": 3000}
			r.control.paused = map[string]int64{"c": queue.Forever}
			r.control.until = r.Now() + 60e9
		}
		check := func(r *rig) {
			t.Helper()
			synctest.Wait()
			require.True(t, r.Queue("orders").View(func(m *queue.Queue, side queue.Role, now int64) {
				require.Equal(t, r.control.until, m.Inspect(side).State(1, now).Paused)
				a := m.Inspect(side).Key("a", now)
				require.True(t, a.Overridden)
				require.EqualValues(t, 7000, a.Weight)
				require.EqualValues(t, queue.Forever, m.Inspect(side).Key("c", now).Paused)
				require.Zero(t, m.Inspect(queue.Dead).State(1, now).Paused)
			}))
		}
		keep(r)
		r.create(func(s *wire.QueueSettings) { s.FairnessHeader = "tenant" })
		for _, key := range []string{"a", "c"} {
			require.Nil(t, r.enqueue("x", "", nat("tenant", key)))
		}
		check(r)
		r.end()
		r = openRig(t, r.disk)
		keep(r)
		r.start()
		check(r)

		r.PauseQueue("orders", 0)
		r.PauseKey("orders", "c", 0)
		r.PauseKey("orders.dlq", "c", queue.Forever)
		r.Weigh("orders", "a", 0)
		r.PauseQueue("nothing", queue.Forever)
		synctest.Wait()
		r.Queue("orders").View(func(m *queue.Queue, side queue.Role, now int64) {
			require.Zero(t, m.Inspect(side).State(1, now).Paused)
			require.False(t, m.Inspect(side).Key("a", now).Overridden)
			require.Zero(t, m.Inspect(side).Key("c", now).Paused)
			require.EqualValues(t, queue.Forever, m.Inspect(queue.Dead).Key("c", now).Paused)
		})
		r.end()
	})
}

// TestUpdatesHoldWhenTheyAreAnswered, whatever the runner is doing.
func TestUpdatesHoldWhenTheyAreAnswered(t *testing.T) {
	bubble(t, func(r *rig) {
		q := r.create(nil)
		require.Nil(t, r.enqueue("x", "", nil))
		require.Nil(t, r.enqueue("x", "", nil))
		r.update(q, func(s *wire.QueueSettings) { s.MaxPendingPerKey = 2 })
		require.Equal(t, wire.CodeKeyPending, r.enqueue("x", "", nil).ErrCode, "what was there counts")
		counts := q.perKey.Load()
		r.update(q, func(s *wire.QueueSettings) { s.MaxPendingPerKey = 3 })
		require.Same(t, counts, q.perKey.Load())
		require.Nil(t, r.enqueue("x", "", nil))
		require.Equal(t, wire.CodeKeyPending, r.enqueue("x", "", nil).ErrCode)
		r.consume(q, "w", 3)
		for _, m := range r.conn.take("w") {
			r.ack(m, done, "")
		}
		require.Empty(t, counts.mu.n)
		r.update(q, func(s *wire.QueueSettings) { s.MaxPendingPerKey = 0 })
		require.Nil(t, q.perKey.Load())
	})
}

func TestUpdate(t *testing.T) {
	bubble(t, func(r *rig) {
		q := r.create(func(s *wire.QueueSettings) {
			s.OnEnqueue = "function on_enqueue(msg) return {} end"
			s.OnFailure = "function on_failure(msg) end"
		})
		require.Nil(t, r.enqueue("x", "", nil))
		r.update(q, func(s *wire.QueueSettings) { s.OnFailure, s.VisibilityTimeoutMs = "", 1000 })
		require.Equal(t, []api.HookInfo{{Hook: wire.HookOnEnqueue, State: "closed", Runs: 1}}, q.Hooks(), "the same hook, with its circuit")
		require.EqualValues(t, 1000, q.DLQ().Settings().VisibilityTimeoutMs)
		require.Len(t, r.news(wire.EventQueueUpdated), 1)
		r.update(q, func(s *wire.QueueSettings) { s.LuaTimeoutMs = 5 })
		require.Equal(t, []api.HookInfo{{Hook: wire.HookOnEnqueue, State: "closed"}}, q.Hooks(), "another one")
		require.Len(t, r.news(wire.EventQueueUpdated), 1)

		before := r.store.submitted()
		r.update(q, func(*wire.QueueSettings) {})
		require.Equal(t, before, r.store.submitted(), "nothing has changed")

		settings := q.Settings()
		for _, werr := range []*wire.Error{wire.Internal("patch"), nil} {
			_, got := q.Update(func(s wire.QueueSettings) (wire.QueueSettings, *wire.Error) {
				s.OnEnqueue = "function"
				return s, werr
			})
			require.NotNil(t, got)
			require.Equal(t, settings, q.Settings())
		}
		r.store.refuse(func(*store.Batch) error { return store.ErrTooBig })
		_, werr := q.Update(func(s wire.QueueSettings) (wire.QueueSettings, *wire.Error) {
			s.MaxDepth = 7
			return s, nil
		})
		require.Equal(t, wire.OutcomeUnknown(), werr)
		require.Equal(t, settings, q.Settings())
		r.store.refuse(nil)
		q.deleted.Store(true)
		_, werr = q.Update(nil)
		require.Equal(t, wire.QueueNotFound("orders"), werr)
	})
}

func TestASettingActsOnBothRoles(t *testing.T) {
	bubble(t, func(r *rig) {
		q := r.create(nil)
		r.update(q, func(s *wire.QueueSettings) { s.VisibilityTimeoutMs = 1000 })
		r.consume(q, "w", 1)
		require.Nil(t, r.enqueue("one", "", nil))
		r.ack(r.one("w"), term, "")
		r.consume(q.DLQ(), "operator", 1)
		for range 25 {
			r.one("operator")
			time.Sleep(time.Second)
		}
		require.EqualValues(t, 1, q.DLQ().Depth(), "dead letters are kept")
	})
}

func TestDelete(t *testing.T) {
	bubble(t, func(r *rig) {
		q := r.create(func(s *wire.QueueSettings) { s.OnEnqueue = "function on_enqueue(msg) end" })
		require.Nil(t, r.enqueue("one", "", nil))
		synctest.Wait()
		_, werr := q.Delete("", false)
		require.Equal(t, wire.QueueNotEmpty("orders", 1), werr)
		require.NotNil(t, r.Queue("orders"))

		require.True(t, q.Tell(queue.Fetch{Inbox: "inbox", Batch: 2, Expires: 60e9}))
		leased := r.one("inbox")
		require.Equal(t, "one", string(leased.Data))
		r.front.arriving = make(chan struct{}) // a message is on its way for too long
		start := time.Now()
		n, werr := q.Delete("", true)
		require.Nil(t, werr)
		require.EqualValues(t, 1, n)
		require.Equal(t, detachTimeout, time.Since(start))
		require.Empty(t, r.front.attached)
		require.Equal(t, "408", r.one("inbox").Header.Get("Status"), "fetches are ended")
		require.Empty(t, r.Queues())
		require.Equal(t, wire.QueueNotFound("orders"), q.Gone())
		require.Equal(t, wire.QueueNotFound("orders.dlq"), q.DLQ().Gone())
		require.Equal(t, []string{"orders", "orders.dlq"}, r.control.mu.forgotten)
		require.NotContains(t, scrape(t, r), `queue="orders`)
		told := r.news(wire.EventQueueDeleted)
		require.Len(t, told, 1)
		require.Equal(t, map[string]any{"messages": int64(1)}, told[0].Data)
		snap, err := r.store.Snapshot()
		require.NoError(t, err)
		require.Empty(t, snap.Queues)

		require.Equal(t, wire.QueueNotFound("orders"), q.Accept(&nats.Msg{Data: []byte("late")}))
		_, werr = q.Delete("", true)
		require.Equal(t, wire.QueueNotFound("orders"), werr)
		_, werr = q.DLQ().Redrive(0)
		require.Equal(t, wire.QueueNotFound("orders.dlq"), werr)

		again := r.create(nil)
		require.Greater(t, again.ID(), q.DLQ().ID(), "ids are not used again")
		require.Zero(t, again.Depth())
		r.ack(leased, done, "old token")
		require.Equal(t, wire.CodeLeaseLost, r.refused("old token").ErrCode, "it is not the lease of anything")
		r.store.refuse(func(*store.Batch) error { return store.ErrTooBig })
		_, werr = again.Delete("", false)
		require.Equal(t, wire.OutcomeUnknown(), werr)
		r.store.refuse(nil)
	})
}

// TestAMessageThatComesDuringADeletion without force is either accepted and keeps the queue, or
// refused.
func TestAMessageThatComesDuringADeletion(t *testing.T) {
	bubble(t, func(r *rig) {
		q := r.create(nil)
		q.depth.Add(1) // it has been counted and not posted
		_, werr := q.Delete("", false)
		require.Equal(t, wire.QueueNotEmpty("orders", 1), werr)
		require.False(t, q.deleted.Load())
		q.depth.Add(-1)
		require.Nil(t, r.enqueue("one", "producer", nil))
		r.id("producer")
	})
}

// TestDeclare creates or updates queues and returns their settings before.
func TestDeclare(t *testing.T) {
	bubble(t, func(r *rig) {
		ctx, cancel := context.WithCancel(context.Background())
		settings := wire.DefaultQueueSettings("orders")
		had, werr := r.Declare(ctx, settings)
		require.Nil(t, werr)
		require.Nil(t, had)
		next := settings
		next.MaxDepth = 7
		had, werr = r.Declare(ctx, next)
		require.Nil(t, werr)
		require.Equal(t, &settings, had)
		require.Equal(t, next, r.Queue("orders").Settings())
		cancel()
		_, werr = r.Declare(ctx, settings)
		require.NotNil(t, werr)
		require.Equal(t, next, r.Queue("orders").Settings())
	})
}

// TestCheck returns the errors of Declare beforehand.
func TestCheck(t *testing.T) {
	bubble(t, func(r *rig) {
		q := r.create(nil)
		other := wire.DefaultQueueSettings("mails")
		require.NoError(t, r.Check(other))
		require.NoError(t, r.Check(q.Settings()))
		other.OnEnqueue = "function"
		require.ErrorContains(t, r.Check(other), "queue mails, on_enqueue: ")
		other.OnEnqueue, other.OnFailure = "", "function on_failure("
		require.ErrorContains(t, r.Check(other), "queue mails, on_failure: ")
		r.SetOffline(true)
		require.EqualError(t, r.Check(wire.DefaultQueueSettings("mails")), "queue mails cannot be created while NATS is not connected")
		require.NoError(t, r.Check(q.Settings()))
		r.SetOffline(false)
	})
}

// TestLeasesAreNotNumberedAlike: a queue that is created again assigns the same sequences and
// attempts but other leases, so a token of the deleted queue acks nothing. The same holds after
// a crash for a lease that was not on disk.
func TestLeasesAreNotNumberedAlike(t *testing.T) {
	bubble(t, func(r *rig) {
		deliver := func() (*Queue, *nats.Msg) {
			q := r.create(nil)
			r.consume(q, "w", 1)
			require.Nil(t, r.enqueue("one", "", nil))
			return q, r.one("w")
		}
		q, before := deliver()
		_, werr := q.Delete("", true)
		require.Nil(t, werr)
		q, now := deliver()
		r.ack(before, done, "late")
		require.Equal(t, wire.CodeLeaseLost, r.refused("late").ErrCode)
		require.EqualValues(t, 1, q.Depth())
		r.ack(now, done, "consumer")
		require.Empty(t, r.one("consumer").Data)
		require.Zero(t, q.Depth())
	})
}
