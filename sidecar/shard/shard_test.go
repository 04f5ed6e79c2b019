package shard

import (
	"context"
	"encoding/json"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
)

// TestDeliveriesWaitForAListener: nothing goes out before acks can arrive, while there is no
// connection, and when fila is stopping.
func TestDeliveriesWaitForAListener(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := openRig(t, newDisk())
		r.start()
		q := r.create(nil)
		r.consume(q, "w", 10)
		send := func(body string) {
			t.Helper()
			require.Nil(t, r.enqueue(body, "", nil))
		}
		send("one")
		r.none("w")
		require.NoError(r.t, r.Serve())
		require.Equal(t, "one", string(r.one("w").Data))
		r.SetOffline(true)
		require.True(t, r.Offline())
		send("two")
		r.none("w")
		r.SetOffline(false)
		require.False(t, r.Offline())
		require.Equal(t, "two", string(r.one("w").Data))
		require.False(t, r.Draining())
		r.Drain()
		require.True(t, r.Draining())
		send("three")
		r.none("w")
		r.end()
	})
}

// TestSettleWaitsForLeases, but not longer than its context.
func TestSettleWaitsForLeases(t *testing.T) {
	bubble(t, func(r *rig) {
		q := r.create(nil)
		r.consume(q, "w", 2)
		require.Nil(t, r.enqueue("one", "", nil))
		require.Nil(t, r.enqueue("two", "", nil))
		synctest.Wait()
		all := r.conn.take("w")
		require.Len(t, all, 2)
		go func() {
			time.Sleep(time.Second)
			r.ack(all[0], done, "")
		}()
		r.Drain()
		settle := func(timeout time.Duration) time.Duration {
			ctx, cancel := context.WithTimeout(context.Background(), timeout)
			defer cancel()
			start := time.Now()
			r.Settle(ctx)
			return time.Since(start)
		}
		require.Equal(t, 3*time.Second, settle(3*time.Second))
		require.Contains(t, r.log.String(), "leases that did not end in time are kept for the next start\" leases=1")
		killed := make(chan struct{})
		r.Killed = killed
		time.AfterFunc(time.Second, func() { close(killed) })
		require.Equal(t, time.Second, settle(time.Minute))
		r.ack(all[1], done, "")
		require.Zero(t, settle(time.Minute))
	})
}

// TestLeasesOutliveAnEndInOrder: consumers can ack to the next process, which knows their
// registrations.
func TestLeasesOutliveAnEndInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, newDisk())
		q := r.create(nil)
		r.consume(q, "w", 1)
		for _, body := range []string{"one", "two"} {
			require.Nil(t, r.enqueue(body, "", nil))
		}
		m := r.one("w")
		r = r.restart()
		r.none("fila.deliver.w.orders")
		q = r.Queue("orders")
		require.EqualValues(t, 2, q.Depth())
		require.EqualValues(t, 6, q.Bytes())
		r.ack(m, done, "ack")
		require.Equal(t, "two", string(r.one("fila.deliver.w.orders").Data))
		time.Sleep(time.Second)
		require.Empty(t, r.one("ack").Data)
		r.end()
	})
}

// TestClockSetBackWhileStopped: delays, retries and leases last as long as what was left of
// them, and a not-before time counts by the new clock; the same after another restart.
func TestClockSetBackWhileStopped(t *testing.T) {
	const day = 24 * time.Hour
	for name, restarts := range map[string]int{"Once": 1, "Twice": 2} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, newDisk())
				q := r.create(func(s *wire.QueueSettings) { s.VisibilityTimeoutMs = time.Hour.Milliseconds() })
				r.consume(q, "w", 2)
				require.Nil(t, r.enqueue("retried", "", nil))
				r.ack(r.one("w"), wire.Ack{Kind: wire.AckNack, Delay: time.Hour, HasDelay: true}, "")
				require.Nil(t, r.enqueue("leased", "", nil))
				r.one("w")
				at := time.Now().Add(time.Hour).Format(time.RFC3339Nano)
				require.Nil(t, r.enqueue("delayed", "", nats.Header{wire.HeaderDelay: {"1h"}}))
				require.Nil(t, r.enqueue("not before", "", nats.Header{wire.HeaderNotBefore: {at}}))
				time.Sleep(20 * time.Minute)
				for range restarts {
					r.end()
					r = newRigAt(t, r.disk, day)
				}
				q = r.Queue("orders")
				r.consume(q, "w", 10)
				time.Sleep(40*time.Minute - time.Second)
				r.none("w")
				time.Sleep(2 * time.Second)
				synctest.Wait()
				var got []string
				for _, m := range r.conn.take("w") {
					got = append(got, string(m.Data))
					r.ack(m, done, "")
				}
				require.ElementsMatch(t, []string{"retried", "leased", "delayed"}, got)
				time.Sleep(day - 2*time.Second)
				r.none("w")
				time.Sleep(2 * time.Second)
				require.Equal(t, "not before", string(r.one("w").Data))
				r.end()
			})
		})
	}
}

func TestDeadLettersOutliveARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, newDisk())
		q := r.create(nil)
		r.bury(q, 2, plain)
		id := q.ID()
		r = r.restart()
		q = r.Queue("orders")
		require.Equal(t, id, q.ID())
		require.EqualValues(t, 2, q.DLQ().Depth())
		require.EqualValues(t, 2, q.DLQ().Bytes())
		_, werr := q.DLQ().Redrive(0)
		require.Nil(t, werr)
		require.EqualValues(t, 2, q.Depth())
		other, werr := r.Create(wire.DefaultQueueSettings("mails"))
		require.Nil(t, werr)
		require.Equal(t, id+2, r.Queue(other.Name).ID())
		require.Contains(t, r.log.String(), "msg=recovered queues=2 messages=2 bytes=2")
		r.end()
	})
}

// TestRecoveryRefuses stores whose records contradict each other.
func TestRecoveryRefuses(t *testing.T) {
	settings, err := json.Marshal(wire.DefaultQueueSettings("orders"))
	require.NoError(t, err)
	main := store.QueueRecord{ID: 1, Name: "orders", Settings: settings}
	dead := store.QueueRecord{ID: 2, Name: "orders.dlq", Settings: settings}
	for want, recs := range map[string][]store.QueueRecord{
		"settings of queue orders in the store: ":                {{ID: 1, Name: "orders", Settings: []byte("{")}, dead},
		"queue orders has no dead letter queue in the store":     {main},
		"dead letter queue orders.dlq has no queue in the store": {dead},
		"belongs to queue 3, which the store does not have":      {main, dead},
	} {
		t.Run(want, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := openRig(t, newDisk())
				require.NoError(t, r.shard.commit(&store.Batch{
					PutQueues: []store.QueueRecord{{ID: 3, Name: "other"}}, Add: []store.Message{{Ref: store.Ref{Queue: 3, Seq: 1}}},
				}))
				require.ErrorContains(t, r.shard.Recover(store.Snapshot{Queues: recs}), want)
				require.Empty(t, r.Queues())
			})
		})
	}
}

// TestHooksThatDoNotLoadAnyMore do not take messages away.
func TestHooksThatDoNotLoadAnyMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := openRig(t, newDisk())
		settings := wire.DefaultQueueSettings("orders")
		settings.OnEnqueue, settings.OnFailure = "function", "function on_failure(msg) return { action = 'dlq' } end"
		recs, err := records([queue.Roles]store.QueueID{1, 2}, settings)
		require.NoError(t, err)
		require.NoError(t, r.shard.commit(&store.Batch{PutQueues: recs}))
		require.NoError(t, r.shard.Recover(store.Snapshot{Queues: recs, NextQueueID: 3}))
		require.NoError(t, r.Add(r.shard))
		r.Start()
		require.NoError(r.t, r.Serve())
		q := r.Queue("orders")
		require.Nil(t, r.enqueue("one", "", nil))
		r.consume(q, "w", 1)
		r.ack(r.one("w"), nack, "")
		require.EqualValues(t, 1, q.DLQ().Depth(), "the other one acts")
		list := q.Hooks()
		require.Len(t, list, 2)
		require.Equal(t, wire.HookOnFailure, list[0].Hook)
		require.Equal(t, "not loaded", list[1].State)
		require.NotEmpty(t, list[1].LastError)
		require.Contains(t, r.log.String(), "a stored hook does not load; messages continue with the defaults until it is replaced")
		_, werr := q.Update(func(s wire.QueueSettings) (wire.QueueSettings, *wire.Error) { return s, nil })
		require.Equal(t, wire.CodeHookLoad, werr.ErrCode, "the same again does not load either")
		r.update(q, func(s *wire.QueueSettings) { s.OnEnqueue = "" })
		require.Len(t, q.Hooks(), 1)
		r.end()
	})
}

func TestStoreFailedSaysWhatToDo(t *testing.T) {
	for err, want := range map[error]string{
		syscall.ENOSPC: "make room on that disk", syscall.EDQUOT: "raise the quota", syscall.EFBIG: "the limit on file sizes",
		syscall.EIO: "look at the disk and the kernel's log", store.ErrFenced: "its new owner goes on",
	} {
		require.ErrorContains(t, storeFailed(err), want)
		require.ErrorIs(t, storeFailed(err), err)
	}
}

// TestClockGoesOn like the wall clock.
func TestClockGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := NewClock()
		start := time.Now().UnixNano()
		require.Equal(t, start, now())
		time.Sleep(time.Hour)
		require.Equal(t, start+int64(time.Hour), now())
	})
}
