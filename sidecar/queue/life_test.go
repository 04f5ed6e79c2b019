package queue_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/sidecar/queue/queuetest"
	"github.com/filaq/fila/store"
)

// A message is delivered at once, from memory, but its confirmation waits for the
// disk, and so does the answer to an ack.
func TestAnswersWaitForTheDisk(t *testing.T) {
	r := newRig(t, nil)
	r.Consume(queue.Main, "w", 10, 0)
	r.Commit()
	subjects(r)
	id := r.Enqueue("k", nil)
	d := r.One()
	require.Equal(t, id, d.ID)
	require.NotNil(t, d.Fresh)
	require.EqualValues(t, 10, r.Uncommitted)
	require.NotEmpty(t, r.Disk.Waiting(), "it is on its way to the disk")
	require.Empty(t, r.Answers)
	r.Commit()
	require.Equal(t, []string{"reply"}, subjects(r))
	require.Zero(t, r.Uncommitted)
	require.Zero(t, queue.KeptUncommitted(r.M), "the store has it now")

	r.Ack(d, done, "ack")
	require.Len(t, r.Disk.Waiting(), 1)
	require.Len(t, r.Disk.Waiting()[0].Finish, 1)
	require.Empty(t, r.Answers, "the answer waits for what it answers")
	require.False(t, current(r, d), "the second ack is refused at once")
	r.Ack(d, done, "again")
	require.Equal(t, []string{"again"}, subjects(r))
	r.Commit()
	require.Equal(t, []string{"ack"}, subjects(r))
}

// A batch above what a store takes would be refused as a whole.
func TestLargeStepsAreCut(t *testing.T) {
	r := newRig(t, nil)
	for range 3 {
		m := r.Message("k", nil)
		m.Size = queue.MaxCommitBytes/2 + 1
		r.Accept(m)
	}
	r.Run()
	require.Len(t, r.Disk.Waiting(), 2)
}

// Expired messages are not delivered, even when more of them expire at once than one step visits,
// and no step visits more.
func TestExpiredIsNotDelivered(t *testing.T) {
	r := newRig(t, nil)
	const n = queue.TimersPerStep + 100
	for range n {
		r.Accept(r.Message("k", func(m *store.Message) { m.ExpiresAt = r.Now + 1e9 }))
	}
	r.Commit()
	r.After = func(_ *rig, out *queue.Effects) {
		require.LessOrEqual(t, len(out.Commits), queue.TimersPerStep+queue.DeliverPerStep+1)
	}
	r.Now += 1e9
	r.Consume(queue.Main, "w", n, 0)
	require.Empty(t, r.Deliveries())
	require.EqualValues(t, n, r.Counters[queue.Main].TTLExpired)
	require.Zero(t, r.Depth[queue.Main])
	check(r)
}

// The server's answers come one by one and in the order of the deliveries, and the
// next consumer gets the messages in it, too.
func TestTakenBackKeepsItsPlace(t *testing.T) {
	r := newRig(t, nil)
	r.Consume(queue.Main, "nobody", 4, 0)
	var want []store.ID
	for _, key := range []string{"a", "b", "a", "b", "a", "a"} {
		want = append(want, r.Enqueue(key, nil))
	}
	r.Commit()
	for _, d := range r.Deliveries() {
		r.Ack(d, nobody, "")
	}
	r.Consume(queue.Main, "w", 10, 0)
	var a, b []store.ID
	for _, d := range r.Deliveries() {
		require.EqualValues(t, 1, d.Token.Attempt)
		if d.Key == "a" {
			a = append(a, d.ID)
		} else {
			b = append(b, d.ID)
		}
	}
	require.Equal(t, []store.ID{want[0], want[2], want[4], want[5]}, a)
	require.Equal(t, []store.ID{want[1], want[3]}, b)
	check(r)
}

// Deliveries that nobody received are delivered again in the same order, in front of a backlog. If
// each walked over the backlog, this would take twenty billion steps.
func TestTakingBackDoesNotDependOnTheBacklog(t *testing.T) {
	const backlog, inFlight = 200_000, 100_000
	r := newRig(t, nil)
	r.Consume(queue.Main, "w", inFlight, 0)
	for range backlog + inFlight {
		r.Accept(r.Message("k", nil))
	}
	r.Run()
	ds := r.Deliveries()
	require.Len(t, ds, inFlight)
	r.Do(queue.Main, queue.Dispatch{})
	for _, d := range ds {
		r.Post(queue.Input{Kind: queue.Undelivered, Token: d.Token})
	}
	r.Run()
	r.Do(queue.Main, queue.Dispatch{On: true})
	require.Equal(t, queuetest.IDs(ds), queuetest.IDs(r.Deliveries()))
}
