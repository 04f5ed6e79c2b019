package queue_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/sidecar/queue/queuetest"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/throttle"
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

// delivered takes what has been sent, and acks it until nothing comes any more.
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

func TestPrioritiesOfAFlow(t *testing.T) {
	r := newRig(t, nil)
	ids := prioritised(r, "a", 0, 5, 0, 9, 5)
	r.Consume(queue.Main, "w", 1, 0)
	require.Equal(t, order(ids, 3, 1, 4, 0, 2), delivered(r), "higher ones first, equals as they came")
	check(r)
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

// TestPriorityZeroIsNotStarved behind higher priorities: an endless stream of them delays the
// lowest by nine times priority_age_ms at most.
func TestPriorityZeroIsNotStarved(t *testing.T) {
	const age = 10 * time.Second
	r := newRig(t, func(s *queue.Settings) { s.PriorityAgeMs = age.Milliseconds() })
	lowest := prioritised(r, "a", 0)[0]
	r.Consume(queue.Main, "w", 1, 0)
	first := r.Sent // it is with the consumer; another one waits behind it
	r.Sent = nil
	waiting, since := prioritised(r, "a", 0)[0], r.Now
	require.Equal(t, lowest, first[0].ID)
	current := first[0]
	for i := 0; ; i++ {
		prioritised(r, "a", 9) // as many come as go
		r.Pass(time.Second)
		r.Ack(current, done, "")
		require.Len(t, r.Sent, 1)
		current, r.Sent = r.Sent[0], nil
		if current.ID == waiting {
			break
		}
		require.LessOrEqual(t, r.Now-since, 9*int64(age)+int64(time.Second))
	}
	require.Greater(t, r.Now-since, 8*int64(age), "and until then they go first")
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

// TestPriorityStopsAtItsTenant: the shares of flows are what their weights say.
func TestPriorityStopsAtItsTenant(t *testing.T) {
	r := newRig(t, nil)
	quiet := prioritised(r, "quiet", 0, 0, 0)
	noisy := prioritised(r, "noisy", 9, 9, 9)
	r.Consume(queue.Main, "w", 1, 0)
	got := delivered(r)
	require.Equal(t, []store.ID{quiet[0], noisy[0], quiet[1], noisy[1], quiet[2], noisy[2]}, got)
}

// TestPriorityAtAGate: who waits for a gate goes by priority, too, and a message without
// gates is not held up by any.
func TestPriorityAtAGate(t *testing.T) {
	r := newRig(t, nil)
	r.Limit("api", throttle.Limits{Concurrency: 1})
	gated := func(p uint8) store.ID {
		return r.Enqueue("a", func(m *store.Message) { m.Priority, m.ThrottleKeys = p, []string{"api"} })
	}
	r.Consume(queue.Main, "w", 10, 0)
	ids := []store.ID{gated(0), gated(0), gated(1), gated(9)}
	bare := prioritised(r, "a", 5)
	require.Equal(t, []store.ID{ids[0], bare[0]}, []store.ID{r.Sent[0].ID, r.Sent[1].ID})
	check(r)
	require.Equal(t, append(order(ids, 0), bare[0], ids[3], ids[2], ids[1]), delivered(r))
	check(r)
}

// TestPrioritiesOutliveARestart with the time from which messages wait.
func TestPrioritiesOutliveARestart(t *testing.T) {
	r := newRig(t, nil)
	ids := prioritised(r, "a", 0)
	r.Pass(time.Hour)
	ids = append(ids, prioritised(r, "a", 0, 9)...)
	r.Commit()
	r.Restart(true, time.Minute)
	r.Consume(queue.Main, "w", 1, 0)
	require.Equal(t, order(ids, 0, 2, 1), delivered(r))
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
	letters := pick(r, 99, 1).Messages
	r.Do(queue.Dead, queue.Complete{Move: moved(r, queue.Main, letters)})
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

// TestOrderedQueuesHaveNoPriorities, also not those of before.
func TestOrderedQueuesHaveNoPriorities(t *testing.T) {
	r := newRig(t, func(s *queue.Settings) { s.Ordering = wire.OrderingKey })
	ids := prioritised(r, "a", 0, 9, 5)
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
