package queue_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/sidecar/queue/history"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
)

// records returns the history of a message on disk.
func records(r *rig, at store.Ref) (all []history.AttemptRecord) {
	r.T.Helper()
	require.NoError(r.T, r.Disk.History([]store.Ref{at}, func(_ int, records [][]byte) {
		for _, b := range records {
			p, err := history.Read(b)
			require.NoError(r.T, err)
			all = append(all, p)
		}
	}))
	return all
}

// Consumers that fail faster than the disk takes it, or than it is judged, get no more
// messages before what is under way is less.
func TestDeliveriesWaitForFailures(t *testing.T) {
	const credit = 1000
	for name, tc := range map[string]struct {
		judged, contended bool
		most              int64
	}{
		"the disk":                  {most: queue.FailedMost},
		"the disk, as others do":    {contended: true, most: queue.FailedBeside},
		"verdicts":                  {judged: true, most: queue.FailedMost},
		"verdicts, and others wait": {judged: true, contended: true, most: queue.FailedBeside},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, func(s *queue.Settings) { s.Judge, s.MaxDeliveries = tc.judged, new(int64(0)) })
			r.Consume(queue.Main, "w", credit, 0)
			nack := wire.Ack{Kind: wire.AckNack, Error: strings.Repeat("e", wire.MaxErrorText), HasDelay: true}
			fail := func() (n int64) {
				for _, d := range r.Deliveries() {
					r.Post(queue.Input{Kind: queue.Acked, Role: d.Role, Token: d.Token, Ack: nack})
					n++
				}
				r.Run()
				return n
			}
			messages := 2 * credit
			if tc.judged { // none of them comes back
				messages = int(tc.most/wire.MaxErrorText) + 2*credit
			}
			for range messages { // in one commit
				r.Accept(r.Message("k", nil))
			}
			r.Run()
			for _, b := range r.Disk.Waiting() {
				b.Waited = tc.contended
			}
			r.Commit()
			failed := int64(0)
			for n := fail(); n > 0 && failed*wire.MaxErrorText < 2*tc.most; n = fail() {
				failed += n
			}
			require.Greater(t, queue.Failed(r.M), tc.most)
			require.LessOrEqual(t, queue.Failed(r.M), tc.most+credit*2*wire.MaxErrorText)
			require.Greater(t, failed*2*wire.MaxErrorText, tc.most)
			check(r)
			for _, f := range r.Judge {
				r.Post(queue.Input{Kind: queue.Judged, Role: f.Role, Verdict: &queue.Verdict{Failure: f}})
			}
			r.Judge = nil
			r.Run()
			r.Commit()
			require.NotZero(t, fail(), "it goes on")
		})
	}
}

// A delivery has the blocked intervals of its message by gate, the longest first.
func TestBlockedIntervalsOfAMessage(t *testing.T) {
	r := newRig(t, nil)
	r.LimitNow("slow", perSecond(1))
	r.Consume(queue.Main, "w", 100, 0)
	r.Gated("a", "slow")
	held := r.Gated("a", "slow")
	r.Commit()
	r.Finished(r.One())
	r.Pass(400 * time.Millisecond)
	r.Do(queue.Main, queue.PauseQueue{Until: r.Now + 300e6})
	r.Pass(700 * time.Millisecond) // 300 of them paused; the second is over after 600
	d := r.One()
	require.Equal(t, held, d.ID)
	r.Ack(d, nack, "")
	r.Commit()
	p := records(r, ref(r, queue.Main, 2))[0]
	require.EqualValues(t, d.Token.Attempt, p.Number)
	require.InDelta(t, 1.0e9, p.Waited, 1.2e8)
	require.Len(t, p.Blocked, 2)
	require.Equal(t, history.BlockedInterval{Kind: "rate", Place: "throttle:", Key: "slow", For: p.Blocked[0].For}, p.Blocked[0])
	require.InDelta(t, p.Waited, p.Blocked[0].For, 1e6)
	require.Equal(t, history.BlockedInterval{Kind: "paused", Place: "queue:", Key: "orders", For: 300e6}, p.Blocked[1])
	require.Equal(t, "throttle:slow", p.Blocked[0].Gate())
}

// A pause of a key holds messages without gates, and what came to its end before they
// came did not.
func TestBlockedByAPausedKey(t *testing.T) {
	r := newRig(t, nil)
	r.Consume(queue.Main, "w", 1, 0)
	r.Do(queue.Main, queue.PauseQueue{Until: r.Now + 5e9})
	r.Pass(6 * time.Second)
	r.Do(queue.Main, queue.PauseKey{Key: "k", Until: r.Now + 2e9})
	r.Enqueue("k", nil)
	r.Commit()
	r.Pass(2 * time.Second)
	r.Ack(r.One(), nack, "")
	r.Commit()
	p := records(r, ref(r, queue.Main, 1))[0]
	require.Equal(t, []history.BlockedInterval{{Kind: "paused", Place: "key:", Key: "k", For: 2e9}}, p.Blocked)
	require.EqualValues(t, 2e9, p.Waited)
	r.Ack(r.One(), nack, "")
	r.Commit()
	p = records(r, ref(r, queue.Main, 1))[1]
	require.Empty(t, p.Blocked, "the second attempt went at once")
	require.Zero(t, p.Waited)
}

// The wait of an attempt counts from the same moment, whether the process that delivers is
// the one in which the message became ready or a later one.
func TestWaitsAreTheSameAfterARestart(t *testing.T) {
	dies := func(r *rig) {
		r.Enqueue("k", nil)
		r.Commit()
		r.Pass(time.Hour)
		r.Consume(queue.Main, "w", 1, 0)
		r.Ack(r.One(), wire.Ack{Kind: wire.AckTerm}, "")
		r.Commit()
		r.Leave(queue.Main, "w")
	}
	for name, tc := range map[string]struct {
		side  queue.Role
		ready func(r *rig) // makes the message ready
		more  time.Duration
	}{
		"a dead letter": {queue.Dead, dies, 0},
		"one that a job put back": {queue.Dead, func(r *rig) {
			dies(r)
			p := pick(r, 9, 9)
			r.Pass(2 * time.Second)
			stay(r, p.Messages)
		}, 2 * time.Second},
		"one that was held": {queue.Dead, func(r *rig) {
			dies(r)
			p := pick(r, 9, 9)
			r.Do(queue.Dead, queue.Complete{Park: []uint64{p.Messages[0].Seq}})
			r.Commit()
			r.Pass(2 * time.Second)
			r.Do(queue.Dead, queue.Complete{Unpark: []uint64{p.Messages[0].Seq}})
			r.Commit()
		}, 2 * time.Second},
		"one that was not delivered": {queue.Main, func(r *rig) {
			r.Enqueue("k", nil)
			r.Commit()
			r.Pass(2 * time.Second)
			r.Consume(queue.Main, "w", 1, 0)
			d := r.One()
			r.Pass(time.Second) // its lease is written
			r.Commit()
			r.Leave(queue.Main, "w")
			r.Ack(d, nobody, "")
			r.Commit()
		}, 3 * time.Second},
		"one whose retry is due": {queue.Main, func(r *rig) {
			r.Enqueue("k", nil)
			r.Commit()
			r.Consume(queue.Main, "w", 1, 0)
			r.Ack(r.One(), wire.Ack{Kind: wire.AckNack, HasDelay: true, Delay: time.Minute}, "")
			r.Leave(queue.Main, "w")
			r.Commit()
			r.Pass(time.Minute)
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			for _, restarted := range []bool{false, true} {
				r := newRig(t, nil)
				tc.ready(r)
				r.Pass(time.Second)
				if restarted {
					restart(r, true)
				}
				r.Pass(time.Second)
				r.Consume(tc.side, "v", 1, 0)
				ds := r.Deliveries()
				require.NotEmpty(t, ds)
				d := ds[len(ds)-1]
				require.Equal(t, tc.more+2*time.Second, time.Duration(d.At-d.ReadyAt), "restarted: %v", restarted)
				r.Ack(d, nack, "")
				r.Commit()
				past := records(r, ref(r, tc.side, r.Find(tc.side, d.ID).Seq))
				require.Equal(t, tc.more+2*time.Second, time.Duration(past[len(past)-1].Waited), "restarted: %v", restarted)
				check(r)
			}
		})
	}
}

// A lease that goes on after a crash still knows when it began, and what held its message
// before.
func TestAnAttemptOverACrash(t *testing.T) {
	r := newRig(t, nil)
	r.LimitNow("slow", perSecond(1))
	r.Consume(queue.Main, "w", 100, 0)
	r.Gated("a", "slow")
	r.Gated("a", "slow")
	r.Commit()
	r.Finished(r.One())
	r.Pass(time.Second)
	d := r.One()
	began := r.Now
	r.Pass(50 * time.Millisecond) // the lease is written
	r.Commit()
	r.Restart(true, time.Second)
	r.Run()
	r.Ack(d, nack, "")
	r.Commit()
	p := records(r, ref(r, queue.Main, 2))[0]
	require.Equal(t, history.AttemptRecord{
		Outcome: wire.AttemptNack, Number: 1, At: began, Took: r.Now - began, Consumer: "w", DecidedBy: wire.DecidedByDefault,
		Waited: 1e9, Blocked: []history.BlockedInterval{{Kind: "rate", Place: "throttle:", Key: "slow", For: 1e9}},
	}, p)
}

// A delivery says which gates blocked its message, and since when.
func TestDeliveryHasBlockedIntervals(t *testing.T) {
	r := newRig(t, nil)
	r.Consume(queue.Main, "w", 2, 0)
	r.Do(queue.Main, queue.PauseQueue{Until: queue.Forever})
	paused := r.Now
	r.Pass(time.Second)
	r.Enqueue("k", nil)
	enqueued := r.Now
	r.Pass(time.Second)
	r.Do(queue.Main, queue.PauseQueue{})
	ds := r.Deliveries()
	require.Len(t, ds, 1)
	require.Less(t, paused, enqueued)
	require.Equal(t, []history.BlockedInterval{{Kind: "paused", Place: "queue:", Key: "orders", For: int64(time.Second), From: enqueued}}, ds[0].Blocked)
	require.Equal(t, enqueued, ds[0].ReadyAt)
	require.Equal(t, r.Now, ds[0].At)
}
