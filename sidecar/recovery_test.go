package sidecar

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
)

// TestConfirmedProgressIsOnDisk: the answer to an extension means that a restart
// knows of it, too.
func TestConfirmedProgressIsOnDisk(t *testing.T) {
	r := newRig(t, nil)
	r.consume(r.q, "w", 1, 0)
	r.enqueue("k", nil)
	r.commit()
	d := r.one()
	r.pass(20 * time.Second)
	r.commit()
	r.ack(d, wire.Ack{Kind: wire.AckProgress}, "reply")
	require.Len(t, r.st.waiting(), 1)
	r.commit()
	_, states := r.stored()
	require.Equal(t, r.now+30e9, states[store.Ref{Queue: 1, Seq: 1}].Lease.Deadline)
	r.restart(true)
	require.NotNil(t, r.loop(r.q).leased(d.token()))
	r.pass(29 * time.Second)
	require.NotNil(t, r.loop(r.q).leased(d.token()))
	r.pass(2 * time.Second)
	require.Nil(t, r.loop(r.q).leased(d.token()))
}

// TestLeasesAreWrittenWhenTheyLast: most messages are done before their lease
// costs a write; one that lasts is honoured by the next process.
func TestLeasesAreWrittenWhenTheyLast(t *testing.T) {
	r := newRig(t, nil)
	r.consume(r.q, "w", 2, 0)
	quick, long := r.enqueue("k", nil), r.enqueue("k", nil)
	r.commit()
	ds, _ := r.take()
	require.Equal(t, []store.ID{quick, long}, ids(ds))
	r.pass(9 * time.Millisecond)
	r.ack(ds[0], wire.Ack{Kind: wire.AckDone}, "")
	r.commit()
	_, states := r.stored()
	require.Empty(t, states)
	r.pass(time.Millisecond)
	r.commit()
	_, states = r.stored()
	require.Equal(t, ds[1].lease, states[store.Ref{Queue: 1, Seq: 2}].Lease.ID)

	r.restart(true)
	require.NotNil(t, r.loop(r.q).leased(ds[1].token()))
	again, _ := r.take()
	require.Empty(t, again, "it is not given to another meanwhile")
	r.ack(sent{r.q, ds[1].delivery}, wire.Ack{Kind: wire.AckDone}, "reply")
	r.commit()
	require.Zero(t, r.q.depth.Load())
	checkLoop(t, r.loop(r.q), 0, 0)
}

// TestLeaseOfAFewMilliseconds is lost in a crash, and the old token with it; a
// shutdown in order keeps it.
func TestLeaseOfAFewMilliseconds(t *testing.T) {
	for _, crash := range []bool{true, false} {
		r := newRig(t, nil)
		r.consume(r.q, "w", 1, 0)
		r.enqueue("k", nil)
		r.commit()
		d := r.one()
		r.restart(crash)
		d.q = r.q
		require.Equal(t, !crash, r.loop(r.q).leased(d.token()) != nil)
		if crash {
			require.NotEqual(t, d.lease, r.one().lease)
		}
		checkLoop(t, r.loop(r.q), 0, 0)
	}
}

// TestRecoveryKeepsOrderAndAttempts: retried messages wait behind the others,
// delays go on, and what was taken back keeps its attempt.
func TestRecoveryKeepsOrderAndAttempts(t *testing.T) {
	r := newRig(t, nil)
	r.consume(r.q, "w", 2, 0)
	var sentIDs []store.ID
	for range 5 {
		sentIDs = append(sentIDs, r.enqueue("k", nil))
	}
	r.commit()
	ds, _ := r.take()
	r.post(r.q, event{kind: evCall, call: func(l *loop) { l.leave("w", "", func(bool) []byte { return nil }) }})
	r.ack(ds[0], wire.Ack{Kind: wire.AckNack}, "")
	r.ack(ds[1], wire.Ack{Kind: wire.AckNack, HasDelay: true, Delay: time.Minute}, "")
	r.commit()
	r.restart(true)
	checkLoop(t, r.loop(r.q), 0, 0)
	r.consume(r.q, "w", 10, 0)
	r.commit()
	ds, _ = r.take()
	require.Equal(t, []store.ID{sentIDs[2], sentIDs[3], sentIDs[4], sentIDs[0]}, ids(ds))
	require.EqualValues(t, 2, ds[3].attempt)
	r.pass(time.Minute)
	late := r.deliveries()
	require.Contains(t, ids(late), sentIDs[1])
}

// TestConsumersSurviveARestart with their credit, their end, and the deliveries
// that they still work on.
func TestConsumersSurviveARestart(t *testing.T) {
	r := newRig(t, nil)
	r.consume(r.q, "w", 2, time.Minute)
	for range 3 {
		r.enqueue("k", nil)
	}
	r.commit()
	ds, _ := r.take()
	require.Len(t, ds, 2)
	r.restart(false)
	c := r.loop(r.q).consumers.byName["w"]
	require.False(t, c.gone)
	require.Zero(t, c.credit(), "recovered leases count")
	r.ack(sent{r.q, ds[0].delivery}, wire.Ack{Kind: wire.AckDone}, "")
	require.Equal(t, "fila.deliver.w.orders", r.one().subject)
	r.pass(time.Minute)
	require.True(t, r.loop(r.q).consumers.byName["w"] == nil, "its time was not renewed")
	checkLoop(t, r.loop(r.q), 0, 0)
	r.commit()
	snap, err := r.st.Snapshot()
	require.NoError(t, err)
	require.Empty(t, snap.Consumers)
}

// TestTakenBackIsNotLeasedAfterACrash: the lease had reached the disk.
func TestTakenBackIsNotLeasedAfterACrash(t *testing.T) {
	r := newRig(t, nil)
	r.consume(r.q, "w", 1, 0)
	r.enqueue("k", nil)
	r.commit()
	d := r.one()
	r.pass(time.Second)
	r.commit()
	r.ack(d, wire.Ack{Kind: wire.AckNoResponders}, "")
	r.commit()
	r.restart(true)
	require.EqualValues(t, 1, r.loop(r.q).sched.Len())
	require.Nil(t, r.loop(r.q).leased(d.token()))
	checkLoop(t, r.loop(r.q), 0, 0)
}

// TestRestoredConsumersGetTime: after a restart a consumer that has not connected
// again keeps its registration for a while, and is tried again and again; a new
// registration, or the end of that time, makes it one like any other.
func TestRestoredConsumersGetTime(t *testing.T) {
	r := newRig(t, nil)
	r.consume(r.q, "w", 1, 0)
	r.enqueue("a", nil)
	r.commit()
	r.ack(r.one(), wire.Ack{Kind: wire.AckNack}, "") // the restart finds it pending
	r.take()
	r.restart(true)
	r.run()
	tries := 0
	for range 10 {
		for _, d := range r.deliveries() {
			tries++
			r.ack(d, wire.Ack{Kind: wire.AckNoResponders}, "")
		}
		require.Empty(t, r.deliveries(), "it is left alone for a moment")
		require.Equal(t, 1, r.loop(r.q).consumers.registered())
		r.pass(time.Duration(awayFor))
	}
	require.Positive(t, tries)
	require.GreaterOrEqual(t, tries, 9)

	r.pass(time.Duration(restoreGrace))
	for _, d := range r.deliveries() {
		r.ack(d, wire.Ack{Kind: wire.AckNoResponders}, "")
	}
	require.Zero(t, r.loop(r.q).consumers.registered(), "its time is over")
}
