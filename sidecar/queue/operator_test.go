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

// A purge takes what waits, whatever for, and leaves what consumers work on; it goes on
// where it stopped, and is over when its commit is on disk.
func TestPurgeRemovesWaitingMessages(t *testing.T) {
	r := newRig(t, func(s *queue.Settings) { s.Ordering, s.OnBlocked = wire.OrderingKey, wire.OnBlockedWait })
	r.LimitNow("shut", throttle.Limits{Concurrency: 1})
	r.Consume(queue.Main, "w", 2, 0)
	r.Gated("a", "shut") // leased
	r.Enqueue("b", nil)  // leased
	for range 2 {
		r.Gated("c", "shut") // blocked, and behind it
	}
	r.Enqueue("b", nil) // behind the leased one
	r.Enqueue("d", func(m *store.Message) { m.NotBefore = r.Now + int64(time.Hour) })
	r.Enqueue("e", func(m *store.Message) { m.ExpiresAt = r.Now + int64(time.Hour) })
	held := r.Deliveries()
	require.Len(t, held, 2)
	last := r.M.LastSeq(queue.Main)
	r.Enqueue("late", nil)

	var told []any
	r.Done = func(_ *rig, c *queue.Commit, err error) {
		require.NoError(t, err)
		if c.Ticket != nil {
			told = append(told, c.Ticket)
		}
	}
	r.Do(queue.Main, queue.Purge{Last: last, Max: 3, Ticket: 1})
	require.Equal(t, queue.Handled{Done: 1, Next: 4}, *r.Handled, "three were looked at, two of them are leased")
	require.Empty(t, told)
	r.Commit()
	require.Equal(t, []any{1}, told)
	r.Do(queue.Main, queue.Purge{From: 4, Last: last, Max: 100, Ticket: 2})
	require.Equal(t, queue.Handled{Done: 4}, *r.Handled)
	r.Do(queue.Main, queue.Purge{Last: last, Max: 100, Ticket: 3})
	require.Equal(t, queue.Handled{}, *r.Handled)
	r.Commit()
	require.Equal(t, []any{1, 2}, told, "without messages there is no commit")
	require.EqualValues(t, 5, r.Counters[queue.Main].Removed)
	require.EqualValues(t, 3, r.Depth[queue.Main])
	check(r)
	for _, d := range held {
		require.True(t, current(r, d))
	}
	r.Finished(held...)
	r.Finished(r.Deliveries()...)
	check(r)
	messages, states, _ := r.Disk.Stored()
	require.Empty(t, messages)
	require.Empty(t, states)
	queue.CheckEmpty(t, r.M)
}

// A message is removed by its id, unless somebody works on it.
func TestRemoveWaitingMessage(t *testing.T) {
	r := newRig(t, nil)
	r.Consume(queue.Main, "w", 1, 0)
	leased, waits := r.Gated("k"), r.Gated("k")
	remove := func(side queue.Role, seq uint64, id store.ID) queue.Handled {
		r.Do(side, queue.Remove{Seq: seq, ID: id})
		r.Commit()
		return *r.Handled
	}
	require.Equal(t, queue.Handled{Found: true, State: inspect.StateLeased}, remove(queue.Main, 1, leased))
	require.Equal(t, queue.Handled{}, remove(queue.Main, 1, waits), "the sequence is another's")
	require.Equal(t, queue.Handled{}, remove(queue.Main, 3, waits))
	require.Equal(t, queue.Handled{Done: 1, Found: true, State: inspect.StatePending}, remove(queue.Main, 2, waits))
	require.Equal(t, queue.Handled{}, remove(queue.Main, 2, waits))
	kill(r, r.One())
	require.Equal(t, queue.Handled{Done: 1, Found: true, State: inspect.StatePending}, remove(queue.Dead, 1, leased))
	require.Equal(t, [queue.Roles]int64{}, r.Depth)
	check(r)
}

// What is made ready goes at once, as far as gates, pauses and order let it, also after
// a restart.
func TestRunNowEndsADelay(t *testing.T) {
	r := newRig(t, func(s *queue.Settings) { s.Ordering, s.OnBlocked = wire.OrderingKey, wire.OnBlockedWait })
	r.Consume(queue.Main, "w", 10, 0)
	later := func(m *store.Message) { m.NotBefore = r.Now + int64(time.Hour) }
	runNow := func(seq uint64, id store.ID) queue.Handled {
		r.Do(queue.Main, queue.RunNow{Seq: seq, ID: id})
		return *r.Handled
	}
	delayed := queue.Handled{Done: 1, Found: true, State: inspect.StateDelayed}

	fresh := r.Enqueue("k", later)
	require.Equal(t, delayed, runNow(1, fresh))
	d := r.One()
	require.Equal(t, r.Now, d.ReadyAt)
	require.Equal(t, queue.Handled{Found: true, State: inspect.StateLeased}, runNow(1, fresh))

	r.Enqueue("k", nil)
	r.Ack(d, wire.Ack{Kind: wire.AckNack, HasDelay: true, Delay: time.Hour}, "")
	require.Empty(t, r.Deliveries(), "the key keeps its order")
	require.Equal(t, delayed, runNow(1, fresh))
	d = r.One()
	require.Equal(t, fresh, d.ID)
	r.Finished(d)
	r.Finished(r.One())

	r.Do(queue.Main, queue.PauseKey{Key: "p", Until: queue.Forever})
	paused := r.Enqueue("p", later)
	require.Equal(t, delayed, runNow(3, paused))
	require.Empty(t, r.Deliveries(), "its key is paused")
	require.Equal(t, queue.Handled{Found: true, State: inspect.StateBlocked}, runNow(3, paused))
	r.Commit()
	check(r)
	r.Restart(true, 0)
	r.Run()
	require.Equal(t, paused, r.One().ID)
	check(r)
}

// TestAMessageOnItsWayToTheDLQIsFound: a message that becomes a dead letter is found at any
// moment. Operators cannot change it before it is in the DLQ.
func TestAMessageOnItsWayToTheDLQIsFound(t *testing.T) {
	r := newRig(t, nil)
	r.Consume(queue.Main, "w", 2, 0)
	ids := []store.ID{r.Enqueue("a", nil), r.Enqueue("b", nil)}
	r.Commit()
	for _, d := range r.Deliveries() {
		r.Ack(d, term, "")
	}
	remove := func(seq uint64, id store.ID) queue.Handled {
		r.Do(queue.Dead, queue.Remove{Seq: seq, ID: id})
		return *r.Handled
	}
	for i, id := range ids {
		seq := uint64(i + 1)
		require.Nil(t, r.Find(queue.Main, id))
		v := r.Find(queue.Dead, id)
		require.NotNil(t, v)
		require.Equal(t, inspect.StateMoving, v.State)
		require.Equal(t, []string{"a", "b"}[i], v.Key)
		require.Equal(t, seq, v.Seq)
		require.Equal(t, queue.Handled{Found: true, State: inspect.StateMoving}, remove(seq, id))
		require.Equal(t, queue.Handled{}, remove(3-seq, id), "the sequence is another's")
	}
	r.Commit()
	for i, id := range ids {
		require.Equal(t, inspect.StatePending, r.Find(queue.Dead, id).State)
		require.EqualValues(t, 1, remove(uint64(i+1), id).Done)
	}
	r.Commit()
	check(r)
	queue.CheckEmpty(t, r.M)
}
