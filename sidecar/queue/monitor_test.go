package queue_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/sidecar/queue/inspect"
	"github.com/filaq/fila/store"
)

// news takes the notes of a kind about flows.
func news(r *rig, kind queue.NoteKind) (list []queue.Note) {
	for _, n := range r.Notes {
		if n.Kind == kind {
			list = append(list, n)
		}
	}
	r.Notes = nil
	return list
}

// serve delivers and acks one message a quarter of a second for so long.
func serve(r *rig, d time.Duration) {
	r.T.Helper()
	for ; d > 0; d -= 250 * time.Millisecond {
		r.Finished(r.One())
		r.Pass(250 * time.Millisecond)
	}
}

// starve is a queue with one worker and a backlog of messages that cost 1, beside which the
// flows of some keys wait with one that costs much.
func starve(t *testing.T, cheap, cost int, dear ...string) *rig {
	r := newRig(t, func(s *queue.Settings) { s.StarveAfterMs, s.VisibilityTimeoutMs = 1000, 1e9 })
	for range cheap {
		r.Accept(r.Message("cheap", nil))
	}
	for _, key := range dear {
		r.Accept(r.Message(key, func(m *store.Message) { m.Cost = uint32(cost) * 1000 }))
	}
	r.Run()
	r.Consume(queue.Main, "w", 1, 0)
	return r
}

// A flow that could send something and is not delivered from starves after that time, as
// long as others are; that ends with its delivery.
func TestStarving(t *testing.T) {
	r := starve(t, 60, 20, "dear")
	r.Pass(time.Hour)
	require.Empty(t, news(r, queue.NoteStarved), "nothing is delivered")
	serve(r, 750*time.Millisecond)
	require.Empty(t, news(r, queue.NoteStarved))
	require.Zero(t, r.M.Inspect(queue.Main).Noise(5, r.Now).Starving)
	serve(r, 500*time.Millisecond)
	began := news(r, queue.NoteStarved)
	require.Len(t, began, 1)
	require.Greater(t, began[0].Waited, int64(time.Hour))
	began[0].Waited = 0
	require.Equal(t, queue.Note{Kind: queue.NoteStarved, Key: "dear", Began: true, Flows: 1}, began[0])
	v := r.M.Inspect(queue.Main).Noise(5, r.Now)
	require.Equal(t, 1, v.Starving)
	require.Len(t, v.Starved, 1)
	require.Greater(t, v.Starved[0].Wait, int64(time.Hour))
	require.Equal(t, []inspect.WaitingFlow{{Key: "dear", Pending: 1, Wait: v.Starved[0].Wait}}, v.Starved)
	require.Empty(t, r.M.Inspect(queue.Main).Noise(0, r.Now).Starved)
	serve(r, 2*time.Second)
	require.Empty(t, news(r, queue.NoteStarved), "it was reported")
	serve(r, 4*time.Second)
	require.Equal(t, []queue.Note{{Kind: queue.NoteStarved, Key: "dear"}}, news(r, queue.NoteStarved))
	require.Zero(t, r.M.Inspect(queue.Main).Noise(5, r.Now).Starving)
}

// Flows that are served in turns do not starve, though their messages wait for long.
func TestFairSharesDoNotStarve(t *testing.T) {
	r := starve(t, 60, 3, "dear", "dear", "dear", "dear")
	serve(r, 10*time.Second)
	require.Empty(t, news(r, queue.NoteStarved))
}

// A flow no longer starves when its key is paused, its message is taken away, or nobody
// asks any more.
func TestStarvingEnds(t *testing.T) {
	for name, end := range map[string]func(r *rig){
		"pause": func(r *rig) { r.Do(queue.Main, queue.PauseKey{Key: "dear", Until: queue.Forever}) },
		"removal": func(r *rig) {
			for _, v := range r.Peek(queue.Main) {
				if v.Key == "dear" {
					r.Do(queue.Main, queue.Remove{Seq: v.Seq, ID: v.ID})
				}
			}
		},
		"setting": func(r *rig) {
			s := r.Settings
			s.StarveAfterMs = 0
			r.Do(queue.Main, s)
		},
		"longer": func(r *rig) {
			s := r.Settings
			s.StarveAfterMs = 60_000
			r.Do(queue.Main, s)
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := starve(t, 100, 80, "dear")
			serve(r, 2*time.Second)
			require.Len(t, news(r, queue.NoteStarved), 1)
			end(r)
			serve(r, time.Second)
			require.Equal(t, []queue.Note{{Kind: queue.NoteStarved, Key: "dear"}}, news(r, queue.NoteStarved))
			require.Zero(t, r.M.Inspect(queue.Main).Noise(5, r.Now).Starving)
			serve(r, 5*time.Second)
			require.Empty(t, news(r, queue.NoteStarved))
		})
	}
}

// Of many starving flows twenty are reported in a minute, later also their ends. All are counted.
func TestManyStarve(t *testing.T) {
	const many = 5000 // more than a step looks at
	keys := make([]string, many)
	for i := range keys {
		keys[i] = fmt.Sprint("dear-", i)
	}
	r := starve(t, 500, 1000, keys...)
	serve(r, 3*time.Second)
	began := 0
	for _, n := range news(r, queue.NoteStarved) {
		require.True(t, n.Began)
		began++
	}
	require.Equal(t, 20, began)
	require.Equal(t, many, r.M.Inspect(queue.Main).Noise(5, r.Now).Starving)
	require.Len(t, r.M.Inspect(queue.Main).Noise(5, r.Now).Starved, 5)
	serve(r, time.Minute)
	require.Len(t, news(r, queue.NoteStarved), 19, "the next minute tells others, and that the cheap flow is noisy")
	s := r.Settings
	s.StarveAfterMs = 0
	r.Do(queue.Main, s)
	require.Len(t, news(r, queue.NoteStarved), 39)
	require.Zero(t, r.M.Inspect(queue.Main).Noise(5, r.Now).Starving)
}

// A flow that becomes noisy is reported once, and once more when it has not been noisy for a while,
// also if nothing else happens.
func TestNoisyFlowIsReported(t *testing.T) {
	r := newRig(t, nil)
	r.Consume(queue.Main, "w", 40, 0)
	for range 39 {
		r.Enqueue("noisy", nil)
	}
	r.Enqueue("quiet", nil)
	r.Enqueue("quiet", nil)
	noisy := r.Deliveries()
	require.Len(t, noisy, 40)
	r.Pass(10 * time.Second)
	require.Equal(t, []queue.Note{{Kind: queue.NoteNoisy, Key: "noisy", Began: true, InFlight: 39, Flows: 1}}, news(r, queue.NoteNoisy))
	r.Finished(noisy...)
	r.Leave(queue.Main, "w")
	r.Pass(2 * time.Minute)
	require.Empty(t, news(r, queue.NoteNoisy), "what consumers have worked counts")
	for range 5 {
		r.Pass(r.Next())
	}
	require.Equal(t, []queue.Note{{Kind: queue.NoteNoisy, Key: "noisy"}}, news(r, queue.NoteNoisy))
	sleep(r, 2*time.Minute) // until the last work is long ago
	require.Equal(t, time.Hour, r.Next(), "nothing wakes the machine")
}

// sleep lets time go by, and steps the machine only when it wants to be.
func sleep(r *rig, d time.Duration) {
	r.T.Helper()
	for end := r.Now + int64(d); r.Now < end && r.Next() <= time.Duration(end-r.Now); {
		r.Pass(r.Next())
	}
}

// A flow that holds all places while another waits is reported at the next check, though nothing is
// delivered, acked or enqueued.
func TestNoisyFlowIsReportedWithoutDeliveries(t *testing.T) {
	r := newRig(t, func(s *queue.Settings) { s.VisibilityTimeoutMs = 3_600_000 })
	r.Consume(queue.Main, "w", 30, 0)
	for range 30 {
		r.Enqueue("noisy", nil)
	}
	require.Len(t, r.Deliveries(), 30)
	r.Run()
	r.Pass(time.Second) // the leases are on disk
	require.Greater(t, r.Next(), 10*time.Second, "as long as nobody waits nothing wakes the machine")
	r.Enqueue("quiet", nil)
	r.Run()
	require.Empty(t, news(r, queue.NoteNoisy))
	sleep(r, 10*time.Second)
	require.Equal(t, []queue.Note{{Kind: queue.NoteNoisy, Key: "noisy", Began: true, InFlight: 30, Flows: 1}}, news(r, queue.NoteNoisy))
}

// A flow that has worked a lot is reported when another one waits, although nothing was delivered
// since a check that found nobody waiting. The report ends when its work is long ago.
func TestNoisyByTimeIsReportedWithoutDeliveries(t *testing.T) {
	r := newRig(t, func(s *queue.Settings) { s.VisibilityTimeoutMs = 3_600_000 })
	r.Consume(queue.Main, "w", 1, 0)
	work(r, "noisy", 40, 300*time.Millisecond)
	r.Enqueue("noisy", nil)
	r.One()
	r.Pass(10 * time.Second)
	r.Enqueue("quiet", nil)
	r.Run()
	require.Empty(t, news(r, queue.NoteNoisy))
	sleep(r, 10*time.Second)
	require.Equal(t, []queue.Note{{Kind: queue.NoteNoisy, Key: "noisy", Began: true, InFlight: 1, Flows: 1}}, news(r, queue.NoteNoisy))
	sleep(r, 3*time.Minute)
	require.Equal(t, []queue.Note{{Kind: queue.NoteNoisy, Key: "noisy"}}, news(r, queue.NoteNoisy))
	require.Greater(t, r.Next(), time.Minute, "nothing wakes the machine")
}
