package queue_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/sidecar/queue/gates"
	"github.com/filaq/fila/sidecar/queue/queuetest"
	"github.com/filaq/fila/store"
)

func pauseKey(r *rig, key string, until int64) {
	r.T.Helper()
	r.Do(queue.Main, queue.PauseKey{Key: key, Until: until})
}

func TestASafetyPauseDoesNotEndAnOperatorsPauseSooner(t *testing.T) {
	r := newRig(t, func(s *queue.Settings) {
		s.MaxFailuresPerKey, s.FailureWindowMs, s.FailureHoldMs = 1, 60_000, 1000
	})
	r.Consume(queue.Main, "w", 100, 0)
	for range 3 {
		r.Gated("a")
	}
	ds := r.Deliveries()
	pauseKey(r, "a", queue.Forever)
	for _, d := range ds {
		r.Ack(d, nack, "")
	}
	r.Commit()
	r.Pass(2 * time.Second)
	require.Empty(t, r.Deliveries(), "the operator's pause has no end")
}

// A message without gates that nobody received and whose key is paused is counted by
// the subqueue that it gets then.
func TestUndeliveredMessageOfAPausedKey(t *testing.T) {
	r := newRig(t, nil)
	r.Consume(queue.Main, "w", 100, 0)
	want := []store.ID{r.Gated("a"), r.Gated("a")}
	ds := r.Deliveries()
	pauseKey(r, "a", queue.Forever)
	for _, d := range ds {
		r.Ack(d, nobody, "")
	}
	r.Consume(queue.Main, "w", 100, 0)
	require.Empty(t, r.Deliveries())
	check(r)
	pauseKey(r, "a", 0)
	require.Equal(t, want, queuetest.IDs(r.Deliveries()))
	check(r)
}

func TestATakenBackMessageOfAKeyThatIsPausedLater(t *testing.T) {
	r := newRig(t, nil)
	r.Consume(queue.Main, "w", 100, 0)
	r.Gated("a")
	d := r.One()
	r.Ack(d, nobody, "")
	pauseKey(r, "a", queue.Forever)
	r.Consume(queue.Main, "w", 100, 0)
	require.Empty(t, r.Deliveries())
	check(r)
}

// Messages without gates keep their order over a pause of their key, too.
func TestAPauseKeepsTheOrderOfMessagesWithoutGates(t *testing.T) {
	r := newRig(t, nil)
	pauseKey(r, "a", queue.Forever)
	r.Consume(queue.Main, "w", 1, 0)
	want := []store.ID{r.Gated("a"), r.Gated("a"), r.Gated("a")}
	require.Empty(t, r.Deliveries())
	pauseKey(r, "a", 0)
	want = append(want, r.Gated("a"), r.Gated("a"))
	require.Equal(t, want[:1], queuetest.IDs(r.Deliveries()))
	r.Consume(queue.Main, "w", 10, 0)
	require.Equal(t, want[1:], queuetest.IDs(r.Deliveries()))
	check(r)
}

// The end of a pause does not make a machine spin that must not deliver.
func TestAPauseThatEndsWhileNothingGoesOut(t *testing.T) {
	r := newRig(t, nil)
	r.Consume(queue.Main, "w", 10, 0)
	r.Enqueue("k", nil)
	r.One()
	r.Do(queue.Main, queue.PauseQueue{Until: r.Now + 1e9})
	r.Do(queue.Main, queue.Dispatch{})
	r.Pass(time.Second)
	require.Positive(t, r.Next())
	r.Pass(time.Second)
	require.Positive(t, r.Next())
}

// After a restart the messages of a paused key are held back by the pause, also as long
// as nobody asks for messages.
func TestPausedKeyAfterARestartWithoutConsumers(t *testing.T) {
	r := newRig(t, nil)
	for range 3 {
		r.Gated("a")
	}
	r.Gated("a", "db")
	r.Gated("b")
	restart(r, true)
	pauseKey(r, "a", queue.Forever)
	m := r.M.Inspect(queue.Main).Stats(r.Now)
	require.EqualValues(t, 4, m.BlockedBy[gates.ByPause])
	require.EqualValues(t, 4, m.Blocked)
	k := r.M.Inspect(queue.Main).Key("a", r.Now)
	require.EqualValues(t, 4, k.Blocked)
	require.Zero(t, k.Pending)
	check(r)
	pauseKey(r, "a", 0)
	require.Zero(t, r.M.Inspect(queue.Main).Stats(r.Now).Blocked)
}
