package queue_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/sidecar/queue/inspect"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/throttle"
)

// work has n messages of a key be delivered and acked after a time, one after the other.
func work(r *rig, key string, n int, each time.Duration) {
	r.T.Helper()
	for range n {
		r.Enqueue(key, nil)
		d := r.One()
		r.Pass(each)
		r.Finished(d)
	}
}

func noisyKeys(v inspect.NoiseView) []string {
	var keys []string
	for _, n := range v.Noisy {
		keys = append(keys, n.Key)
	}
	return keys
}

// beside is the noise while a message of another flow waits for consumers.
func beside(r *rig, credit int) inspect.NoiseView {
	r.T.Helper()
	r.Leave(queue.Main, "w")
	r.Enqueue("waits", nil)
	r.Step()
	v := r.M.Inspect(queue.Main).Noise(5, r.Now)
	require.EqualValues(r.T, 1, v.QuietReady)
	r.Consume(queue.Main, "w", credit, 0)
	r.Finished(r.One())
	return v
}

// Where no message of another flow waits, nobody is noisy: neither on an idle queue after
// all flows have worked a lot, nor where a flow with a backlog has the consumers for itself.
// Where one waits, a flow is noisy that has more than its share, not one that is busy.
func TestNoFlowIsNoisyWithoutOthersWaiting(t *testing.T) {
	r := newRig(t, nil)
	r.Consume(queue.Main, "w", 30, 0)
	for _, key := range []string{"a", "b", "c"} {
		work(r, key, 40, 100*time.Millisecond)
	}
	require.Empty(t, r.M.Inspect(queue.Main).Noise(5, r.Now).Noisy)
	for range 40 {
		r.Enqueue("a", nil)
	}
	r.Step()
	require.NotContains(t, noisyKeys(r.M.Inspect(queue.Main).Noise(5, r.Now)), "a")
	r.Enqueue("quiet", nil)
	r.Step()
	require.Equal(t, []string{"a"}, noisyKeys(r.M.Inspect(queue.Main).Noise(5, r.Now)))
}

// A flow with more than a tenth of the messages in flight is noisy from 30 messages on, where
// it is not the only one; the others are quiet.
func TestNoisyInFlight(t *testing.T) {
	r := newRig(t, nil)
	r.Consume(queue.Main, "w", 29, 0)
	for range 40 {
		r.Enqueue("noisy", nil)
	}
	r.Step()
	r.Enqueue("quiet", nil)
	r.Pass(time.Second)
	require.Empty(t, r.M.Inspect(queue.Main).Noise(5, r.Now).Noisy, "29 are few")
	r.Consume(queue.Main, "v", 1, 0)
	v := r.M.Inspect(queue.Main).Noise(5, r.Now)
	require.Equal(t, []inspect.NoisyFlow{{Key: "noisy", InFlight: 30, Pending: 10, Fair: 0.5}}, v.Noisy)
	require.EqualValues(t, 30, v.InFlight)
	require.EqualValues(t, 1, v.QuietReady)
	require.EqualValues(t, time.Second, v.QuietOldest)
	require.Equal(t, []inspect.WaitingFlow{{Key: "quiet", Pending: 1, Wait: int64(time.Second)}}, v.Waiting)
	require.Empty(t, r.M.Inspect(queue.Main).Noise(0, r.Now).Waiting)
	require.Empty(t, r.M.Inspect(queue.Dead).Noise(5, r.Now))

	one := newRig(t, nil)
	one.Consume(queue.Main, "w", 100, 0)
	for range 40 {
		one.Enqueue("noisy", nil)
	}
	one.Step()
	require.Empty(t, one.M.Inspect(queue.Main).Noise(5, one.Now).Noisy, "it disturbs nobody")
}

// A flow with more than a tenth of the time of consumers is noisy, for as long as that is
// lately, though it has nothing in the queue in between.
func TestNoisyByTime(t *testing.T) {
	r := newRig(t, nil)
	r.Consume(queue.Main, "w", 10, 0)
	for i := range 20 {
		work(r, fmt.Sprint("q", i), 1, 100*time.Millisecond)
	}
	work(r, "noisy", 29, 100*time.Millisecond)
	require.Empty(t, beside(r, 10).Noisy)
	work(r, "noisy", 1, 100*time.Millisecond)
	v := beside(r, 10)
	require.Equal(t, []inspect.NoisyFlow{{Key: "noisy", Took: int64(3 * time.Second), Ended: 30, Fair: 1. / 22}}, v.Noisy)
	require.EqualValues(t, 5*time.Second, v.Took)

	r.Pass(time.Minute)
	require.Equal(t, v.Noisy, beside(r, 10).Noisy, "the window before counts")
	work(r, "q1", 1, time.Millisecond)
	require.Equal(t, v.Noisy, beside(r, 10).Noisy)
	r.Pass(2 * time.Minute)
	v = r.M.Inspect(queue.Main).Noise(5, r.Now)
	require.Equal(t, inspect.NoiseView{Stats: r.M.Inspect(queue.Main).Stats(r.Now)}, v)
	work(r, "q1", 1, time.Millisecond)
	require.EqualValues(t, time.Millisecond, r.M.Inspect(queue.Main).Noise(5, r.Now).Took, "what was is forgotten")
}

// A flow is noisy if it has more than its weight entitles it to, and quiet otherwise.
func TestNoisyByWeight(t *testing.T) {
	for _, tc := range []struct {
		name   string
		weight uint32 // of the busy flow, in thousandths
		others int    // flows of weight 1 that work as long, together
		each   time.Duration
		noisy  bool
	}{
		{"four flows with their fair share", 1000, 3, 100 * time.Millisecond, false},
		{"as busy as nine others together, of equal weight", 1000, 9, 100 * time.Millisecond / 9, true},
		{"as busy as nine others together, with their weight", 9000, 9, 100 * time.Millisecond / 9, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t, nil)
			r.Consume(queue.Main, "w", 10, 0)
			weighted := func(n int) {
				for range n {
					r.Enqueue("busy", func(m *store.Message) { m.Weight = tc.weight })
					d := r.One()
					r.Pass(100 * time.Millisecond)
					r.Finished(d)
				}
			}
			weighted(40)
			for i := range tc.others {
				work(r, fmt.Sprint("other", i), 40, tc.each)
			}
			r.Leave(queue.Main, "w")
			r.Enqueue("busy", func(m *store.Message) { m.Weight = tc.weight })
			r.Enqueue("other0", nil)
			r.Step()
			require.Equal(t, tc.noisy, len(r.M.Inspect(queue.Main).Noise(5, r.Now).Noisy) > 0)
		})
	}
}

// Among many more keys than are counted one by one those with a large part are found.
func TestNoisyAmongMany(t *testing.T) {
	r := newRig(t, nil)
	r.Consume(queue.Main, "w", 10, 0)
	for i := range 2000 {
		work(r, fmt.Sprint("tenant-", i), 1, time.Millisecond)
		if i%4 == 0 {
			work(r, "noisy", 1, 2*time.Millisecond)
			work(r, "louder", 1, 3*time.Millisecond)
		}
	}
	v := beside(r, 10)
	require.Equal(t, []string{"louder", "noisy"}, noisyKeys(v))
	require.InDelta(t, 1500e6, v.Noisy[0].Took, 50e6)
	require.InDelta(t, 1000e6, v.Noisy[1].Took, 50e6)
}

// Messages that gates and pauses block do not wait for other flows. A delivery that nobody received
// has taken no time.
func TestQuietFlowsAreNotBlocked(t *testing.T) {
	r := newRig(t, nil)
	r.Consume(queue.Main, "w", 1, 0)
	r.LimitNow("x", throttle.Limits{Concurrency: 1})
	r.Gated("a", "x")
	d := r.One()
	r.Gated("b", "x")
	r.Consume(queue.Main, "v", 1, 0)
	r.Pass(time.Second)
	v := r.M.Inspect(queue.Main).Noise(5, r.Now)
	require.Zero(t, v.QuietReady)
	require.Zero(t, v.QuietOldest)
	require.Empty(t, v.Waiting)
	r.Ack(d, nobody, "")
	require.Zero(t, r.M.Inspect(queue.Main).Noise(5, r.Now).Took)
	r.Do(queue.Main, queue.PauseQueue{Until: queue.Forever})
	r.Enqueue("c", nil)
	r.Pass(time.Second)
	v = r.M.Inspect(queue.Main).Noise(5, r.Now)
	require.Zero(t, v.QuietReady)
	require.Zero(t, v.QuietOldest)
}

// A pause is known before anybody has credit for the messages that it holds back.
func TestPausedFlowIsNotQuiet(t *testing.T) {
	r := newRig(t, nil)
	r.Do(queue.Main, queue.PauseKey{Key: "held", Until: queue.Forever})
	r.LimitNow("x", throttle.Limits{Concurrency: 1})
	r.Enqueue("held", nil)
	r.Gated("held", "x")
	r.Enqueue("free", nil)
	r.Pass(time.Second)
	v := r.M.Inspect(queue.Main).Noise(5, r.Now)
	require.EqualValues(t, 1, v.QuietReady)
	require.Equal(t, []inspect.WaitingFlow{{Key: "free", Pending: 1, Wait: int64(time.Second)}}, v.Waiting)
	r.Do(queue.Main, queue.PauseKey{Key: "free", Until: queue.Forever})
	v = r.M.Inspect(queue.Main).Noise(5, r.Now)
	require.Zero(t, v.QuietReady)
	require.Zero(t, v.QuietOldest)
	require.Empty(t, v.Waiting)
}

// Uses says what some keys have of what consumers do.
func TestUses(t *testing.T) {
	r := newRig(t, nil)
	r.Consume(queue.Main, "w", 10, 0)
	work(r, "a", 3, time.Second)
	work(r, "b", 1, time.Second)
	r.Enqueue("a", nil)
	r.Step()
	each, all := r.M.Inspect(queue.Main).Uses([]string{"b", "nobody", "a"}, r.Now)
	require.Equal(t, []inspect.UseView{{Took: int64(time.Second)}, {}, {InFlight: 1, Took: 3 * int64(time.Second)}}, each)
	require.Equal(t, inspect.UseView{InFlight: 1, Took: 4 * int64(time.Second)}, all)
}
