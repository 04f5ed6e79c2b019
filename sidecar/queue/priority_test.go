package queue_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/sidecar/queue/queuetest"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
)

// prioritised enqueues a message of a priority, and further ones after it.
func prioritised(r *rig, key string, priorities ...uint8) (ids []store.ID) {
	r.T.Helper()
	for _, p := range priorities {
		ids = append(ids, r.Enqueue(key, func(m *store.Message) { m.Priority = p }))
	}
	return ids
}

// delivered acks deliveries until no more come, and returns them.
func delivered(r *rig) (ids []store.ID) {
	r.T.Helper()
	for len(r.Sent) > 0 {
		sent := r.Sent
		r.Sent = nil
		for _, d := range sent {
			ids = append(ids, d.ID)
			r.Ack(d, done, "")
		}
	}
	return ids
}

// order is ids[i[0]], ids[i[1]] and so on.
func order(ids []store.ID, i ...int) (all []store.ID) {
	for _, i := range i {
		all = append(all, ids[i])
	}
	return all
}

// TestAWaitCountsAsPriority: a minute is one.
func TestAWaitCountsAsPriority(t *testing.T) {
	r := newRig(t, nil)
	ids := prioritised(r, "a", 0)
	r.Pass(9 * time.Minute)
	ids = append(ids, prioritised(r, "a", 9, 8)...) // the first counts 9, too, and has waited
	r.Consume(queue.Main, "w", 1, 0)
	require.Equal(t, order(ids, 0, 1, 2), delivered(r))
	r.Leave(queue.Main, "w")
	ids = prioritised(r, "a", 0)
	r.Pass(9*time.Minute - 1)
	ids = append(ids, prioritised(r, "a", 9, 8)...)
	r.Consume(queue.Main, "w", 1, 0)
	require.Equal(t, order(ids, 1, 0, 2), delivered(r))
	check(r)
}

// TestReservedPriorities go before everything, however long that has waited.
func TestReservedPriorities(t *testing.T) {
	r := newRig(t, func(s *queue.Settings) { s.PriorityReserved = 8 })
	ids := prioritised(r, "a", 0, 7)
	r.Pass(24 * time.Hour)
	ids = append(ids, prioritised(r, "a", 8, 9, 8)...)
	r.Consume(queue.Main, "w", 1, 0)
	require.Equal(t, order(ids, 3, 2, 4, 1, 0), delivered(r), "within both classes the age decides")
}

// TestOthersKeepTheirAge over a restart, beside a message that was put back and came to its
// queue long after it got its sequence.
func TestOthersKeepTheirAge(t *testing.T) {
	r := newRig(t, nil)
	r.Consume(queue.Main, "w", 5, 0)
	r.Enqueue("a", nil)
	kill(r, r.Deliveries()...)
	r.Leave(queue.Main, "w")
	ids := prioritised(r, "a", 0)
	claimed := pick(r, 99, 1).Messages
	r.Do(queue.Dead, queue.Complete{Move: moved(r, queue.Main, claimed)})
	ids = append(ids, prioritised(r, "a", 9)...)
	r.Pass(time.Hour)
	r.Commit()
	r.Consume(queue.Main, "w", 5, 0)
	sent := r.Deliveries()
	require.Len(t, sent, 3)
	r.Pass(time.Second)
	r.Commit() // with the leases
	r.Leave(queue.Main, "w")
	for _, d := range sent {
		r.Ack(d, nobody, "")
	}
	r.Pass(time.Second)
	r.Commit()
	r.Restart(true, time.Minute)
	r.Consume(queue.Main, "v", 1, 0)
	require.Equal(t, order(ids, 1, 0), delivered(r)[:2])
}

// TestAnAgeThatChanges keeps the order among equals.
func TestAnAgeThatChanges(t *testing.T) {
	r := newRig(t, nil)
	ids := prioritised(r, "a", 5, 5)
	set := r.Settings
	set.PriorityAgeMs = wire.MaxPriorityAgeMs
	r.Do(queue.Main, set)
	ids = append(ids, prioritised(r, "a", 5, 0)...)
	r.Consume(queue.Main, "w", 1, 0)
	require.Equal(t, ids, delivered(r))
}

func BenchmarkPriorities(b *testing.B) {
	for _, waiting := range []int{10, 100_000} {
		b.Run(fmt.Sprint(waiting), func(b *testing.B) {
			r := queuetest.NewRig(b, nil)
			for i := range waiting {
				prioritised(r, "a", uint8(i%10))
			}
			r.Consume(queue.Main, "w", 1, 0)
			for i := 0; b.Loop(); i++ {
				prioritised(r, "a", uint8(i%10))
				sent := r.Sent
				r.Sent = nil
				r.Ack(sent[0], done, "")
				if i%256 == 0 {
					r.Commit()
				}
			}
		})
	}
}
