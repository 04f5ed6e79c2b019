package sidecar

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
)

// paced returns a rig whose queue has a consumer and an empty batch.
func paced(t *testing.T) *rig {
	r := newRig(t, nil)
	r.core.pacing = defaultPacing
	r.consume(r.q, "w", 1000, 0)
	r.commit()
	return r
}

// TestMessagesLingerByTheirOwnAge: what is acked in time is never written, however
// long the batch is open, and a straggler is written when it is due.
func TestMessagesLingerByTheirOwnAge(t *testing.T) {
	r := paced(t)
	for range 100 {
		r.enqueue("k", nil)
		r.pass(500 * time.Microsecond)
		r.ack(r.one(), wire.Ack{Kind: wire.AckDone}, "")
	}
	require.Empty(t, r.st.waiting())
	require.Zero(t, r.loop(r.q).next(r.now)-r.now-int64(time.Hour), "nothing is left to be written")
	r.enqueue("k", nil)
	r.pass(time.Millisecond)
	require.Len(t, r.st.waiting(), 1)
	require.Len(t, r.st.waiting()[0].Add, 1)
}

// TestLingerUnderLoad: many messages wait longer than few, if their acks come soon
// enough.
func TestLingerUnderLoad(t *testing.T) {
	for _, c := range []struct {
		name   string
		acks   time.Duration // of the messages before
		n      int
		linger time.Duration
	}{
		{"few", 2 * time.Millisecond, defaultPacing.load - 1, time.Millisecond},
		{"many", 2 * time.Millisecond, defaultPacing.load, 8 * time.Millisecond},
		{"acked at once", 0, defaultPacing.load, time.Millisecond},
		{"acked late", 15 * time.Millisecond, defaultPacing.load, 20 * time.Millisecond},
		{"acked too late", 30 * time.Millisecond, defaultPacing.load, time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := paced(t)
			for range 1000 {
				r.enqueue("k", nil)
				d := r.one()
				r.pass(c.acks)
				r.ack(d, wire.Ack{Kind: wire.AckDone}, "")
			}
			r.commit()
			r.pass(time.Second)
			r.commit()
			for range c.n {
				r.enqueue("k", nil)
			}
			r.pass(c.linger * 9 / 10)
			require.Empty(t, r.st.waiting())
			r.pass(c.linger * 2 / 10)
			require.Len(t, r.st.waiting(), 1)
			require.Len(t, r.st.waiting()[0].Add, c.n)
		})
	}
}

// TestPendingMessagesDoNotLinger: the confirmation of what nobody is working on
// waits no longer than the disk needs.
func TestPendingMessagesDoNotLinger(t *testing.T) {
	r := newRig(t, nil)
	r.core.pacing = defaultPacing
	r.consume(r.q, "w", defaultPacing.load, 0)
	r.commit()
	r.loop(r.q).ackTime = int64(5 * time.Millisecond)
	for range 3 * defaultPacing.load {
		r.enqueue("k", nil)
	}
	r.pass(time.Millisecond)
	require.NotEmpty(t, r.st.waiting())
}

// TestYoungMessagesStayBehind: when something else has to be written, messages whose
// acks may come soon are kept back.
func TestYoungMessagesStayBehind(t *testing.T) {
	r := paced(t)
	enqueue := func() sent {
		r.enqueue("k", nil)
		return r.one()
	}
	old := enqueue()
	r.commit()
	late := enqueue()
	r.pass(time.Millisecond / 2)
	gone, young, last := enqueue(), enqueue(), enqueue()
	r.ack(gone, wire.Ack{Kind: wire.AckDone}, "")
	r.ack(old, wire.Ack{Kind: wire.AckDone}, "")
	r.pass(time.Millisecond / 2)
	require.Len(t, r.st.waiting(), 1, "late has lingered, and the ack goes with it")
	require.Len(t, r.st.waiting()[0].Add, 1)
	require.Equal(t, late.seq, r.st.waiting()[0].Add[0].Seq)
	require.Len(t, r.st.waiting()[0].Finish, 1)
	checkLoop(t, r.loop(r.q), 0, 0)

	r.ack(young, wire.Ack{Kind: wire.AckDone}, "")
	require.Equal(t, 1, r.st.commit(1))
	r.run()
	require.Empty(t, r.st.waiting())
	r.pass(time.Millisecond / 2)
	require.Len(t, r.st.waiting(), 1)
	require.Len(t, r.st.waiting()[0].Add, 1)
	require.Equal(t, last.seq, r.st.waiting()[0].Add[0].Seq)
	checkLoop(t, r.loop(r.q), 0, 0)
	r.commit()
	messages, _ := r.stored()
	require.Len(t, messages, 2, "late and the last one")
}

// TestWhatNobodyWorksOnIsNotKeptBack: a message without a consumer goes with the
// first commit, also if it is younger than one whose ack may come.
func TestWhatNobodyWorksOnIsNotKeptBack(t *testing.T) {
	r := newRig(t, nil)
	r.core.pacing = defaultPacing
	r.consume(r.q, "w", 2, 0)
	r.commit()
	for range 3 {
		r.enqueue("k", nil)
		r.pass(400 * time.Microsecond)
	}
	require.Len(t, r.st.waiting(), 1)
	add := r.st.waiting()[0].Add
	require.Len(t, add, 2, "the first, which has lingered, and the third, which is with nobody")
	require.Equal(t, add[0].Seq+2, add[1].Seq)
	checkLoop(t, r.loop(r.q), 0, 0)
}

// TestTheLastOfManyLingerAsLong: acks do not make the rest of a batch due.
func TestTheLastOfManyLingerAsLong(t *testing.T) {
	r := paced(t)
	l := r.loop(r.q)
	l.ackTime = int64(5 * time.Millisecond)
	for range defaultPacing.load {
		r.enqueue("k", nil)
	}
	r.pass(2 * time.Millisecond)
	for _, d := range r.deliveries() {
		require.Empty(t, r.st.waiting())
		r.ack(d, wire.Ack{Kind: wire.AckDone}, "")
	}
	require.Empty(t, r.st.waiting())
	r.enqueue("k", nil)
	r.pass(time.Millisecond)
	require.Len(t, r.st.waiting(), 1, "the load is over")
}

// TestAcksAfterTheClockWasSetBack: messages of an earlier process may come from the
// future.
func TestAcksAfterTheClockWasSetBack(t *testing.T) {
	r := paced(t)
	r.enqueue("k", func(m *store.Message) { m.EnqueuedAt = r.now })
	d := r.one()
	r.loop(r.q).slots.get(d.seq).readyAt = r.now + int64(time.Hour)
	r.ack(d, wire.Ack{Kind: wire.AckDone}, "")
	require.GreaterOrEqual(t, r.loop(r.q).ackTime, int64(0))
}
