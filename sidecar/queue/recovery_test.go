package queue_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/sidecar/queue/queuetest"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
)

// restart ends the process and makes the steps of the next one.
func restart(r *rig, crash bool) {
	r.T.Helper()
	r.Restart(crash, 0)
	r.Run()
}

// Most messages are done before their lease costs a write; one that lasts is honoured
// by the next process.
func TestLeasesAreWrittenWhenTheyLast(t *testing.T) {
	r := newRig(t, nil)
	r.Consume(queue.Main, "w", 2, 0)
	quick, long := r.Enqueue("k", nil), r.Enqueue("k", nil)
	r.Commit()
	ds := r.Deliveries()
	require.Equal(t, []store.ID{quick, long}, queuetest.IDs(ds))
	r.Pass(9 * time.Millisecond)
	r.Ack(ds[0], done, "")
	r.Commit()
	_, states, _ := r.Disk.Stored()
	require.Empty(t, states)
	r.Pass(time.Millisecond)
	r.Commit()
	_, states, _ = r.Disk.Stored()
	require.Equal(t, ds[1].Token.Lease, states[ref(r, queue.Main, 2)].Lease.ID)

	restart(r, true)
	require.True(t, current(r, ds[1]))
	require.Empty(t, r.Deliveries(), "it is not given to another meanwhile")
	r.Ack(ds[1], done, "reply")
	r.Commit()
	require.Zero(t, r.Depth[queue.Main])
	check(r)
}

// Retried messages wait behind the others, delays go on, and what was taken back keeps
// its attempt.
func TestRecoveryKeepsOrderAndAttempts(t *testing.T) {
	r := newRig(t, nil)
	r.Consume(queue.Main, "w", 2, 0)
	var sent []store.ID
	for range 5 {
		sent = append(sent, r.Enqueue("k", nil))
	}
	r.Commit()
	ds := r.Deliveries()
	r.Leave(queue.Main, "w")
	r.Ack(ds[0], nack, "")
	r.Ack(ds[1], wire.Ack{Kind: wire.AckNack, HasDelay: true, Delay: time.Minute}, "")
	r.Commit()
	restart(r, true)
	check(r)
	r.Consume(queue.Main, "w", 10, 0)
	r.Commit()
	ds = r.Deliveries()
	require.Equal(t, []store.ID{sent[2], sent[3], sent[4], sent[0]}, queuetest.IDs(ds))
	require.EqualValues(t, 2, ds[3].Token.Attempt)
	r.Pass(time.Minute)
	require.Contains(t, queuetest.IDs(r.Deliveries()), sent[1])
}

// A message whose lease had reached the disk is not leased after a crash if it was
// taken back.
func TestTakenBackIsNotLeasedAfterACrash(t *testing.T) {
	r := newRig(t, nil)
	r.Consume(queue.Main, "w", 1, 0)
	r.Enqueue("k", nil)
	r.Commit()
	d := r.One()
	r.Pass(time.Second)
	r.Commit()
	r.Ack(d, nobody, "")
	r.Commit()
	restart(r, true)
	require.EqualValues(t, 1, r.M.Inspect(queue.Main).Stats(r.Now).Pending-r.M.Inspect(queue.Main).Stats(r.Now).Blocked)
	require.False(t, current(r, d))
	check(r)
}

// TestRecoveryKeepsThePlaceOfDelayedMessages: a message waits from the end of its delay, as without
// a restart.
func TestRecoveryKeepsThePlaceOfDelayedMessages(t *testing.T) {
	for _, restarts := range []int{0, 1, 2} {
		r := newRig(t, nil)
		first := r.Enqueue("a", nil)
		delayed := r.Enqueue("a", func(m *store.Message) { m.NotBefore, m.Delayed = r.Now+2e9, true })
		r.Pass(time.Second)
		second := r.Enqueue("a", nil)
		r.Pass(2 * time.Second)
		last := r.Enqueue("a", nil)
		r.Commit()
		for range restarts {
			r.Restart(true, time.Second)
		}
		r.Consume(queue.Main, "w", 1, 0)
		require.Equal(t, []store.ID{first, second, delayed, last}, delivered(r), "%d restarts", restarts)
	}
}
