package queue_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/sidecar/queue/inspect"
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

// The answer to an extension means that a restart knows of it, too.
func TestConfirmedProgressIsOnDisk(t *testing.T) {
	r := newRig(t, nil)
	r.Consume(queue.Main, "w", 1, 0)
	r.Enqueue("k", nil)
	r.Commit()
	d := r.One()
	r.Pass(20 * time.Second)
	r.Commit()
	r.Ack(d, wire.Ack{Kind: wire.AckProgress}, "reply")
	require.Len(t, r.Disk.Waiting(), 1)
	r.Commit()
	_, states, _ := r.Disk.Stored()
	require.Equal(t, r.Now+30e9, states[ref(r, queue.Main, 1)].Lease.Deadline)
	restart(r, true)
	require.True(t, current(r, d))
	r.Pass(29 * time.Second)
	require.True(t, current(r, d))
	r.Pass(2 * time.Second)
	require.False(t, current(r, d))
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

// A lease of a few milliseconds is lost in a crash, and the old token with it; a
// shutdown in order keeps it.
func TestLeaseOfAFewMilliseconds(t *testing.T) {
	for _, crash := range []bool{true, false} {
		r := newRig(t, nil)
		r.Consume(queue.Main, "w", 1, 0)
		r.Enqueue("k", nil)
		r.Commit()
		d := r.One()
		restart(r, crash)
		require.Equal(t, !crash, current(r, d))
		if crash {
			require.NotEqual(t, d.Token.Lease, r.One().Token.Lease)
		}
		check(r)
	}
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

// Consumers survive a restart with their credit, their end, and the deliveries that
// they still work on.
func TestConsumersSurviveARestart(t *testing.T) {
	r := newRig(t, nil)
	r.Consume(queue.Main, "w", 2, time.Minute)
	for range 3 {
		r.Enqueue("k", nil)
	}
	r.Commit()
	ds := r.Deliveries()
	require.Len(t, ds, 2)
	end := r.Now + 60e9
	restart(r, false)
	require.Equal(t, []inspect.ConsumerView{{Name: "w", MaxInFlight: 2, InFlight: 2, ExpiresAt: end}},
		r.M.Inspect(queue.Main).Consumers(), "recovered leases count")
	r.Ack(ds[0], done, "")
	require.Equal(t, "deliver.w", r.One().Subject)
	r.Pass(time.Minute)
	require.Empty(t, r.M.Inspect(queue.Main).Consumers(), "its time was not renewed")
	check(r)
	r.Commit()
	snap, err := r.Disk.Snapshot()
	require.NoError(t, err)
	require.Empty(t, snap.Consumers)
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

// After a restart a consumer that has not connected again keeps its registration for a
// while, and is tried again and again; the end of that time makes it one like any
// other.
func TestRestoredConsumersGetTime(t *testing.T) {
	r := newRig(t, nil)
	r.Consume(queue.Main, "w", 1, 0)
	r.Enqueue("a", nil)
	r.Commit()
	r.Ack(r.One(), nack, "") // the restart finds it pending
	r.Take()
	restart(r, true)
	tries := 0
	for range 10 {
		for _, d := range r.Deliveries() {
			tries++
			r.Ack(d, nobody, "")
		}
		require.Empty(t, r.Deliveries(), "it is left alone for a moment")
		require.Equal(t, 1, registered(r, queue.Main))
		r.Pass(time.Duration(queue.AwayFor))
	}
	require.GreaterOrEqual(t, tries, 9)

	r.Pass(time.Duration(queue.RestoreGrace))
	for _, d := range r.Deliveries() {
		r.Ack(d, nobody, "")
	}
	require.Zero(t, registered(r, queue.Main), "its time is over")
}

// A new registration makes a restored consumer one like any other, also one that has
// just been left alone.
func TestARestoredConsumerThatComesBack(t *testing.T) {
	r := newRig(t, nil)
	r.Consume(queue.Main, "w", 1, 0)
	r.Gated("a")
	r.Ack(r.One(), nack, "")
	r.Take()
	restart(r, true)
	r.Ack(r.One(), nobody, "")
	require.Empty(t, r.Deliveries())
	r.Consume(queue.Main, "w", 1, 0)
	d := r.One()
	r.Pass(time.Duration(queue.AwayFor))
	require.True(t, current(r, d))
	r.Ack(d, nobody, "")
	require.Zero(t, registered(r, queue.Main))
	check(r)
}

// What is being judged at the end is, after the restart, what the store knows of it.
func TestRestartsDuringAVerdict(t *testing.T) {
	for _, crash := range []bool{true, false} {
		for _, stored := range []bool{true, false} {
			r := newRig(t, func(s *queue.Settings) { s.Judge = true })
			r.Consume(queue.Main, "w", 1, 0)
			id := r.Gated("a")
			d := r.One()
			if stored {
				r.Pass(time.Second)
				r.Commit()
			}
			r.Ack(d, nack, "")
			restart(r, crash)
			require.Equal(t, stored, current(r, d))
			r.Pass(30 * time.Second)
			if stored {
				require.Len(t, r.Judge, 1, "the lease has run out")
				require.EqualValues(t, 1, r.Judge[0].Attempts)
			} else {
				require.Equal(t, id, r.Deliveries()[0].ID)
			}
			check(r)
		}
	}
}

// Keys in strict order stay in it over a restart: a retry that waits holds its key,
// and so does what is leased.
func TestStrictOrderOverARestart(t *testing.T) {
	r := newRig(t, ordered(wire.OnBlockedWait))
	r.Consume(queue.Main, "w", 10, 0)
	a1, a2 := r.Gated("a"), r.Gated("a")
	d := r.One()
	r.Ack(d, wire.Ack{Kind: wire.AckNack, HasDelay: true, Delay: time.Minute}, "")
	r.Commit()
	restart(r, true)
	require.Empty(t, r.Deliveries())
	check(r)
	r.Pass(time.Minute)
	d = r.One()
	require.Equal(t, a1, d.ID)
	restart(r, false)
	require.Empty(t, r.Deliveries())
	r.Finished(d)
	require.Equal(t, a2, r.One().ID)
	check(r)
}

// TestRecoveryKeepsThePlaceOfDelayedMessages: by the time at which its delay ended, as if
// nothing had happened.
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
