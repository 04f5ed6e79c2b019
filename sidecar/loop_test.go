package sidecar

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
)

// TestAnswersWaitForTheDisk: a message is delivered at once, from memory, but its
// confirmation waits for the disk, and so does the answer to an ack.
func TestAnswersWaitForTheDisk(t *testing.T) {
	r := newRig(t, nil)
	r.consume(r.q, "w", 10, 0)
	id := r.enqueue("k", nil)
	d := r.one()
	require.Equal(t, id, d.id)
	require.NotNil(t, d.fresh)
	require.EqualValues(t, 10, r.core.uncommitted.Load())
	require.NotEmpty(t, r.st.waiting(), "it is on its way to the disk")
	r.commit()
	require.Zero(t, r.core.uncommitted.Load())
	require.Nil(t, r.loop(r.q).fresh.items, "the store has it now")

	var waiting *batch
	r.post(r.q, event{kind: evCall, call: func(l *loop) {
		l.onAck(&event{token: d.token(), ack: wire.Ack{Kind: wire.AckDone}, reply: "ack"}, r.now)
		waiting = l.main
	}})
	require.Equal(t, []reply{{kind: replyEmpty, subject: "ack"}}, waiting.replies)
	require.Len(t, waiting.Finish, 1, "the answer waits for what it answers")
	require.Nil(t, r.loop(r.q).leased(d.token()), "the second ack is refused at once")
}

// TestStaleTokens: whatever comes with a token that is not the current one
// changes nothing.
func TestStaleTokens(t *testing.T) {
	r := newRig(t, nil)
	r.consume(r.q, "w", 1, 0)
	r.enqueue("k", nil)
	r.commit()
	first := r.one()
	r.pass(31 * time.Second)
	second := r.one()
	forged := second
	forged.lease++
	other := second
	other.seq = 99
	attempt := second
	attempt.attempt++
	for _, d := range []sent{first, forged, other, attempt} {
		for kind := wire.AckDone; kind <= wire.AckNoResponders; kind++ {
			r.ack(d, wire.Ack{Kind: kind}, "reply")
			require.NotNil(t, r.loop(r.q).leased(second.token()))
			require.Empty(t, r.st.waiting()[1:], "nothing but the lost lease's state is written")
		}
	}
	r.ack(second, wire.Ack{Kind: wire.AckDone}, "")
	require.Zero(t, r.q.depth.Load())
}

// TestRegisterAfterLeaveInOneTurn: a store puts consumers before it deletes
// them, so a leave and a return must not share a batch.
func TestRegisterAfterLeaveInOneTurn(t *testing.T) {
	r := newRig(t, nil)
	r.consume(r.q, "w", 5, 0)
	r.commit()
	none := func(bool) []byte { return nil }
	req := wire.ConsumeRequest{Consumer: "w", MaxInFlight: 7}
	require.True(t, r.q.tell(func(l *loop) { l.leave("w", "", none) }))
	require.True(t, r.q.tell(func(l *loop) { l.register(req, "", nil) }))
	r.commit()
	snap, err := r.st.Snapshot()
	require.NoError(t, err)
	require.Len(t, snap.Consumers, 1)
	require.EqualValues(t, 7, snap.Consumers[0].MaxInFlight)

	require.True(t, r.q.tell(func(l *loop) { l.register(req, "", nil) }))
	require.True(t, r.q.tell(func(l *loop) { l.leave("w", "", none) }))
	r.commit()
	snap, err = r.st.Snapshot()
	require.NoError(t, err)
	require.Empty(t, snap.Consumers)
}

// TestRenewalsTakeNoRoom: a consumer that renews its registration for ever, and
// fetches that are filled long before their end, leave nothing behind.
func TestRenewalsTakeNoRoom(t *testing.T) {
	r := newRig(t, nil)
	l := r.loop(r.q)
	for i := range 5000 {
		r.consume(r.q, "w", 1, 30*time.Second)
		r.now += 1e7
		if i%100 == 0 {
			r.commit()
		}
	}
	require.Len(t, l.byReg, 1)
	require.Less(t, len(l.expiring.items), 2100)
	r.post(r.q, event{kind: evCall, call: func(l *loop) { l.leave("w", "", func(bool) []byte { return nil }) }})
	for i := range 5000 {
		r.fetch(r.q, fmt.Sprint("_INBOX.", i), 1, time.Hour)
		r.enqueue("k", nil)
		r.commit()
		r.ack(r.one(), wire.Ack{Kind: wire.AckDone}, "")
	}
	require.Empty(t, l.byReg)
	require.Less(t, len(l.expiring.items), 2100)
	checkLoop(t, l, 0, 0)
	r.pass(2 * time.Hour)
	require.Empty(t, l.expiring.items)
}

// TestTTLOfAMessageTakenBack: the TTL passes while the message is leased, and
// then it turns out that nobody received it.
func TestTTLOfAMessageTakenBack(t *testing.T) {
	r := newRig(t, nil)
	r.consume(r.q, "w", 1, 0)
	r.enqueue("k", func(m *store.Message) { m.ExpiresAt = r.now + 1e9 })
	r.commit()
	d := r.one()
	r.pass(2 * time.Second)
	require.NotNil(t, r.loop(r.q).leased(d.token()), "a lease runs on when the TTL passes")
	r.ack(d, wire.Ack{Kind: wire.AckNoResponders}, "")
	r.commit()
	require.Zero(t, r.q.depth.Load())
	require.EqualValues(t, 1, r.dlq.depth.Load())
	require.EqualValues(t, 1, counter(r.q, "ttl_expired"))
	checkLoop(t, r.loop(r.q), 0, 0)
}

// TestLateNoRespondersFindsOnlyItsOwn: a 503 under an old registration takes the
// message back and leaves the consumer that has returned meanwhile alone.
func TestLateNoRespondersFindsOnlyItsOwn(t *testing.T) {
	r := newRig(t, nil)
	r.consume(r.q, "w", 1, 0)
	r.enqueue("k", nil)
	r.commit()
	d := r.one()
	r.consume(r.q, "w", 1, 0)
	r.ack(d, wire.Ack{Kind: wire.AckNoResponders}, "")
	again := r.one()
	require.Equal(t, d.id, again.id)
	require.EqualValues(t, 1, again.attempt, "the attempt does not count")
	require.Equal(t, 1, r.loop(r.q).consumers.registered())
	r.ack(again, wire.Ack{Kind: wire.AckNoResponders}, "")
	require.Zero(t, r.loop(r.q).consumers.registered())
	r.commit()
	checkLoop(t, r.loop(r.q), 0, 0)
}

// TestFetch: filled, empty, expired, and what a 503 does.
func TestFetch(t *testing.T) {
	r := newRig(t, nil)
	r.fetch(r.q, "_INBOX.now", 1, 0)
	_, status := r.take()
	require.Equal(t, map[string]string{"_INBOX.now": "404"}, status)

	r.fetch(r.q, "_INBOX.wait", 2, time.Second)
	r.enqueue("k", nil)
	r.commit()
	require.Equal(t, "_INBOX.wait", r.one().subject)
	r.pass(time.Second)
	_, status = r.take()
	require.Equal(t, map[string]string{"_INBOX.wait": "408"}, status)

	r.enqueue("k", nil)
	r.enqueue("k", nil)
	r.commit()
	r.fetch(r.q, "_INBOX.full", 2, time.Second)
	ds, status := r.take()
	require.Len(t, ds, 2)
	require.Empty(t, status, "a batch that is filled has no status")

	r.fetch(r.q, "_INBOX.some", 2, 0)
	r.enqueue("k", nil)
	r.commit()
	r.fetch(r.q, "_INBOX.lost", 5, time.Hour)
	lost := r.deliveries()
	require.Len(t, lost, 1)
	r.ack(lost[0], wire.Ack{Kind: wire.AckNoResponders}, "")
	require.Empty(t, r.loop(r.q).consumers.fetches, "a 503 ends a fetch")
	checkLoop(t, r.loop(r.q), 0, 0)
}

// TestFetchEndsWithItsQueue: whoever waits is told when nothing can come.
func TestFetchEndsWithItsQueue(t *testing.T) {
	r := newRig(t, nil)
	r.fetch(r.q, "_INBOX.wait", 2, time.Hour)
	r.loop(r.q).finish()
	r.collect()
	_, status := r.take()
	require.Equal(t, map[string]string{"_INBOX.wait": "408"}, status)
	require.False(t, r.q.tell(func(*loop) {}))
}

// TestEndAnswersEverybody: what reaches a loop between its last turn and its end
// is carried out or answered.
func TestEndAnswersEverybody(t *testing.T) {
	r := newRig(t, nil)
	l := r.loop(r.q)
	in := &incoming{size: 10, msg: store.Message{ID: newID()}}
	r.q.depth.Add(1)
	r.q.bytes.Add(10)
	r.core.uncommitted.Add(10)
	called := false
	l.refuse(event{kind: evEnqueue, incoming: in})
	l.refuse(event{kind: evDuplicate, reply: "r"})
	l.refuse(event{kind: evDecided, decided: &decidedFailure{}})
	l.refuse(event{kind: evCall, call: func(*loop) { called = true }})
	require.True(t, called)
	require.Zero(t, r.q.depth.Load()+r.q.bytes.Load()+r.core.uncommitted.Load())
}

// TestLargeTurnsAreCut: a batch above what a store takes would be refused as a
// whole.
func TestLargeTurnsAreCut(t *testing.T) {
	r := newRig(t, nil)
	for range 3 {
		in := &incoming{size: maxBatchBytes/2 + 1, msg: store.Message{
			Ref: store.Ref{Queue: r.q.id}, ID: newID(), EnqueuedAt: r.now, Weight: 1000, Cost: 1000, Key: "k",
		}}
		require.True(t, r.q.mail.post(event{kind: evEnqueue, incoming: in}))
	}
	r.run()
	require.Len(t, r.st.waiting(), 2)
}

// TestRedrivePicksOldestFirst and no more than fits into one transaction.
func TestRedrivePicksOldestFirst(t *testing.T) {
	r := newRig(t, nil)
	r.consume(r.q, "w", 20, 0)
	for range 5 {
		r.enqueue("k", nil)
	}
	r.commit()
	for _, d := range r.deliveries() {
		r.ack(d, wire.Ack{Kind: wire.AckTerm}, "")
	}
	r.commit()
	l := r.loop(r.dlq)
	seqs := func(items []redriveItem) (all []uint64) {
		for _, it := range items {
			all = append(all, it.from)
		}
		return all
	}
	r.fetch(r.dlq, "_INBOX.x", 1, 0) // leases the first
	items, cursor := l.pick(0, 4, 2)
	require.Equal(t, []uint64{2, 3}, seqs(items))
	rest, _ := l.pick(cursor, 4, 100)
	require.Equal(t, []uint64{4}, seqs(rest), "what came after the beginning is left")
	l.redriven(nil, append(items, rest...))
	checkLoop(t, l, 0, 0)

	l.slots.get(2).size = redriveChunkBytes
	r.dlq.bytes.Add(redriveChunkBytes - 10)
	items, _ = l.pick(0, 5, 100)
	require.Equal(t, []uint64{2}, seqs(items), "a chunk ends where it gets large")
	l.redriven(nil, items)
	checkLoop(t, l, 0, 0)
}

// TestOfflineNothingIsDelivered until the connection is back.
func TestOfflineNothingIsDelivered(t *testing.T) {
	r := newRig(t, nil)
	r.core.offline.Store(true)
	r.consume(r.q, "w", 1, 0)
	r.enqueue("k", nil)
	r.commit()
	ds, _ := r.take()
	require.Empty(t, ds)
	r.core.offline.Store(false)
	r.q.mail.poke()
	r.run()
	r.one()
}

// TestExpiredIsNotDelivered, even when more messages expire in one moment than
// one turn looks at.
func TestExpiredIsNotDelivered(t *testing.T) {
	r := newRig(t, nil)
	const n = timersPerTurn + 100
	for range n {
		in := &incoming{size: 10, msg: store.Message{
			Ref: store.Ref{Queue: r.q.id}, ID: newID(), EnqueuedAt: r.now, ExpiresAt: r.now + 1e9, Weight: 1000, Cost: 1000, Key: "k",
		}}
		r.q.depth.Add(1)
		r.q.bytes.Add(10)
		require.True(t, r.q.mail.post(event{kind: evEnqueue, incoming: in}))
	}
	r.commit()
	r.now += 1e9
	r.consume(r.q, "w", n, 0)
	require.Empty(t, r.deliveries())
	require.EqualValues(t, n, counter(r.q, "ttl_expired"))
	require.Zero(t, r.q.depth.Load())
	checkLoop(t, r.loop(r.q), 0, 0)
}

// TestWhatIsAckedBeforeItIsWrittenNeverIs: with pacing, changes wait while an
// earlier batch is being committed. A message that is acked meanwhile leaves
// nothing on disk, unless its dedupe id must be known.
func TestWhatIsAckedBeforeItIsWrittenNeverIs(t *testing.T) {
	for _, dedupe := range []string{"", "id-1"} {
		r := newRig(t, nil)
		r.core.pacing = defaultPacing
		r.consume(r.q, "w", 10, 0)
		r.commit()
		r.enqueue("first", nil)
		r.pass(time.Millisecond) // handed in: it is with a consumer, and has lingered
		first := r.one()
		require.Len(t, r.st.waiting(), 1)

		in := &incoming{size: 10, reply: "reply", dedupeID: dedupe, dedupeUntil: r.now + 1e9, msg: store.Message{
			Ref: store.Ref{Queue: r.q.id}, ID: newID(), EnqueuedAt: r.now, Weight: 1000, Cost: 1000, Key: "k",
		}}
		r.q.depth.Add(1)
		r.q.bytes.Add(10)
		r.core.uncommitted.Add(10)
		r.post(r.q, event{kind: evEnqueue, incoming: in})
		second := r.one()
		r.ack(second, wire.Ack{Kind: wire.AckDone}, "ack")
		checkLoop(t, r.loop(r.q), 0, 0)
		require.EqualValues(t, 10, r.core.uncommitted.Load(), "that of the first one")
		var answered []string
		for _, d := range r.sent {
			answered = append(answered, d.subject)
		}
		if dedupe == "" {
			require.Equal(t, []string{"reply", "ack"}, answered, "nobody has to wait for the disk")
		} else {
			require.Empty(t, answered)
		}
		r.ack(first, wire.Ack{Kind: wire.AckDone}, "")
		r.commit()
		messages, _ := r.stored()
		require.Empty(t, messages)
		require.NotContains(t, r.st.mu.added, in.msg.ID)
		dedupes := 0
		_, err := r.st.Recover(store.Visitor{Dedupe: func(store.Dedupe) error { dedupes++; return nil }})
		require.NoError(t, err)
		require.Equal(t, len(dedupe) > 0, dedupes == 1)
	}
}
