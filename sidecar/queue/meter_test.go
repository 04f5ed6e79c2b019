package queue_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/sidecar/queue/gates"
	"github.com/filaq/fila/sidecar/queue/inspect"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
)

// Each attempt that reached a consumer is counted once, by its outcome and duration.
func TestTotalsOfAttempts(t *testing.T) {
	r := newRig(t, func(s *queue.Settings) { s.VisibilityTimeoutMs = 60_000 })
	r.Consume(queue.Main, "w", 8, 0)
	for range 6 {
		r.Enqueue("k", nil)
	}
	r.Commit()
	start, ds := r.Now, r.Deliveries()
	require.Len(t, ds, 6)
	r.Ack(ds[0], done, "")
	r.Pass(time.Millisecond)
	r.Ack(ds[1], done, "") // at the bound
	r.Pass(time.Microsecond)
	r.Ack(ds[2], wire.Ack{Kind: wire.AckNack, HasDelay: true, Delay: time.Hour}, "")
	r.Pass(time.Second)
	r.Ack(ds[3], term, "")
	r.Ack(ds[4], nobody, "")
	r.Ack(ds[0], done, "")                           // it is over
	r.Pass(time.Minute - time.Duration(r.Now-start)) // the last lease ends

	want := [inspect.Outcomes]inspect.Attempts{
		inspect.OutcomeAck:     {Count: counts(2), Took: .001},
		inspect.OutcomeNack:    {Count: counts(0, 1), Took: .001_001},
		inspect.OutcomeTerm:    {Count: counts(0, 0, 0, 0, 0, 0, 1), Took: 1.001_001},
		inspect.OutcomeExpired: {Count: counts(0, 0, 0, 0, 0, 0, 0, 0, 0, 1), Took: 60},
	}
	got := r.M.Cumulative(queue.Main, r.Now).Attempts
	for o := range inspect.Outcomes {
		require.Equal(t, want[o].Count, got[o].Count, o.String())
		require.InDelta(t, want[o].Took, got[o].Took, 1e-3, o.String())
	}
	require.Zero(t, r.M.Cumulative(queue.Dead, r.Now))
}

// A step reports each attempt of a watched message, and of no other.
func TestAttemptsOfWatchedMessages(t *testing.T) {
	r := newRig(t, func(s *queue.Settings) { s.VisibilityTimeoutMs = 60_000 })
	r.Consume(queue.Main, "w", 8, 0)
	enqueue := func(watched bool) store.ID {
		m := r.Message("k", nil)
		m.Watched = watched
		r.Accept(m)
		return m.ID
	}
	id := enqueue(true)
	enqueue(false)
	r.Commit()
	ds := r.Deliveries()
	require.Len(t, ds, 2)
	r.Pass(time.Second)
	r.Ack(ds[0], wire.Ack{Kind: wire.AckNack}, "")
	r.Ack(ds[1], wire.Ack{Kind: wire.AckNack}, "")
	for _, ack := range []wire.Ack{nobody, term} {
		ds = r.Deliveries()
		require.Len(t, ds, 2)
		r.Pass(2 * time.Second)
		for _, d := range ds {
			r.Ack(d, ack, "")
		}
		r.Consume(queue.Main, "w", 8, 0)
	}
	require.Equal(t, []queue.Ended{
		{Role: queue.Main, Outcome: inspect.OutcomeNack, ID: id, Took: 1e9},
		{Role: queue.Main, Outcome: inspect.OutcomeTerm, ID: id, Took: 2e9},
	}, r.Ended)
}

// counts are how many attempts there were up to each bound, the first ones first.
func counts(n ...uint64) (c [len(inspect.AttemptBounds) + 1]uint64) {
	copy(c[:], n)
	return c
}

// Time for which messages are held back is counted for each of them, also while nothing
// happens, and by what holds them back.
func TestTotalsOfBlockedTime(t *testing.T) {
	r := newRig(t, nil)
	r.Limit("slow", perSecond(1))
	r.Consume(queue.Main, "w", 8, 0)
	blocked := func() map[string]float64 {
		got := map[string]float64{}
		for kind, seconds := range r.M.Cumulative(queue.Main, r.Now).Blocked {
			if seconds != 0 {
				got[gates.BlockKind(kind).String()] = math.Round(seconds*1000) / 1000
			}
		}
		return got
	}
	for range 4 {
		r.Enqueue("k", func(m *store.Message) { m.ThrottleKeys = []string{"slow"} })
	}
	require.Len(t, r.Deliveries(), 1)
	require.Empty(t, blocked(), "no time has passed")
	r.Now += int64(500 * time.Millisecond) // not stepped
	require.Equal(t, map[string]float64{"rate": 1.5}, blocked())
	require.Equal(t, map[string]float64{"rate": 1.5}, blocked(), "reading changes nothing")
	r.Pass(500 * time.Millisecond)
	require.Equal(t, map[string]float64{"rate": 3}, blocked())

	r.Do(queue.Main, queue.PauseQueue{Until: queue.Forever})
	r.Pass(2 * time.Second)
	require.Equal(t, map[string]float64{"rate": 3, "paused": 4}, blocked(), "a pause of the queue goes before gates")
	r.Do(queue.Main, queue.PauseQueue{})
	r.Pass(5 * time.Second)
	now := blocked()
	r.Pass(time.Hour)
	require.Equal(t, now, blocked(), "nothing waits any more")
}

// Messages behind an unfinished one of their key are blocked by order.
func TestTotalsOfOrderedTime(t *testing.T) {
	r := newRig(t, func(s *queue.Settings) { s.Ordering = "key" })
	r.Consume(queue.Main, "w", 8, 0)
	for range 3 {
		r.Enqueue("k", nil)
	}
	require.Len(t, r.Deliveries(), 1)
	r.Pass(3 * time.Second)
	require.InDelta(t, 6, r.M.Cumulative(queue.Main, r.Now).Blocked[gates.ByOrder], 1e-6)
}
