package queue_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/sidecar/queue/inspect"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
)

// A claim takes the named messages that wait, and counts the others by their states.
func TestClaimTakesWaitingMessages(t *testing.T) {
	r := newRig(t, nil)
	r.Consume(queue.Main, "w", 20, 0)
	for range 5 {
		r.Enqueue("k", nil)
	}
	r.Commit()
	kill(r, r.Deliveries()...)
	r.Fetch(queue.Dead, "_INBOX.x", 1, 0) // leases the first
	views, _ := r.M.Inspect(queue.Dead).Select(&inspect.Match{}, 0, 9, 9, nil, r.Now)
	var named []queue.MessageRef
	for _, i := range []int{3, 0, 1} {
		named = append(named, queue.MessageRef{Seq: views[i].Seq, ID: views[i].ID})
	}
	named = append(named, queue.MessageRef{Seq: views[2].Seq, ID: views[4].ID}, queue.MessageRef{Seq: 77})
	r.Do(queue.Dead, queue.Claim{Messages: named})
	require.Equal(t, []uint64{4, 2}, seqs(r.Picked.Messages), "in the order in which they are named")
	require.Equal(t, 2, r.Picked.Messages[1].Index)
	require.EqualValues(t, 2, r.Picked.Gone)
	require.Equal(t, map[inspect.MessageState]int64{inspect.StateLeased: 1}, r.Picked.Left)
	first := r.Picked.Messages
	r.Do(queue.Dead, queue.Claim{Messages: named[:1]})
	require.Empty(t, r.Picked.Messages)
	require.Equal(t, map[inspect.MessageState]int64{inspect.StateMoving: 1}, r.Picked.Left)
	stay(r, first)
	check(r)
}

// Dead letters that stay wait again where they were.
func TestUnclaimKeepsPlaces(t *testing.T) {
	r := newRig(t, nil)
	r.Consume(queue.Main, "w", 20, 0)
	var want []store.ID
	for range 5 {
		want = append(want, r.Gated("k"))
	}
	kill(r, r.Deliveries()...)
	claimed := pick(r, 3, 100).Messages
	require.Len(t, claimed, 3)
	require.EqualValues(t, 2, r.M.Inspect(queue.Dead).Stats(r.Now).Pending)
	stay(r, claimed)
	r.Consume(queue.Dead, "d", 20, 0)
	var got []store.ID
	for _, d := range r.Deliveries() {
		got = append(got, d.ID)
	}
	require.Equal(t, want, got)
}

// A dead letter that the store cannot move is reported, and comes back at the next
// start.
func TestAMessageThatCannotBeDeadLettered(t *testing.T) {
	for name, refused := range map[string]error{"corrupt": store.ErrCorrupt, "missing": store.ErrNotFound} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, nil)
			r.Consume(queue.Main, "w", 20, 0)
			id := r.Gated("k")
			d := r.One()
			r.Disk.Refuse = func(b *store.Batch) error {
				if len(b.Move) > 0 {
					return refused
				}
				return nil
			}
			r.Ack(d, term, "reply")
			r.Answers = nil
			require.Equal(t, [queue.Roles]int64{0, 1}, r.Depth)
			r.Commit()
			require.Equal(t, [queue.Roles]int64{}, r.Depth)
			require.NotNil(t, r.Answers[0].Err)
			require.Equal(t, queue.Note{
				Kind: queue.NoteMoveFailed, ID: id, Seq: d.Token.Seq, Err: refused,
			}, r.Notes[len(r.Notes)-1])
			check(r)
			r.Disk.Refuse = nil
			r.Restart(true, time.Second)
			r.Run()
			require.Equal(t, id, r.One().ID)
		})
	}
}

// Each dead letter has a note, which is published when the dead letter is on disk.
func TestDeadLettersAreNoted(t *testing.T) {
	r := newRig(t, nil)
	r.Consume(queue.Main, "w", 20, 0)
	id := r.Gated("k")
	r.Ack(r.One(), term, "reply")
	for _, n := range r.Notes {
		require.NotEqual(t, queue.NoteDeadLettered, n.Kind)
	}
	r.Commit()
	n := r.Notes[len(r.Notes)-1]
	require.Equal(t, queue.NoteDeadLettered, n.Kind)
	require.Equal(t, id, n.ID)
	require.Equal(t, "k", n.Key)
	require.Equal(t, "term", n.Dead.Reason)
	require.EqualValues(t, 1, n.Dead.Attempts)
	require.Equal(t, "orders", n.Dead.SourceQueue)
}

// A parked message is neither delivered nor removed, also after a restart, whatever ends meanwhile.
// An unparked one waits in its old place; a transferred one is gone.
func TestParkedMessages(t *testing.T) {
	r := newRig(t, nil)
	var ids []store.ID
	for i := range 5 {
		ids = append(ids, r.Enqueue("k", func(m *store.Message) {
			switch i {
			case 3: // its delay ends while it is held
				m.NotBefore, m.Delayed = r.Now+int64(time.Minute), true
			case 4: // and its time to live
				m.ExpiresAt = r.Now + int64(time.Minute)
			}
		}))
	}
	r.Commit()
	r.Consume(queue.Main, "w", 1, 0)
	r.Ack(r.One(), wire.Ack{Kind: wire.AckNack, Delay: time.Second}, "")
	r.Leave(queue.Main, "w")
	r.Deliveries()
	r.Commit()
	r.Run()
	named := func(ids ...store.ID) (all []queue.MessageRef) {
		for _, id := range ids {
			v := r.Find(queue.Main, id)
			all = append(all, queue.MessageRef{Seq: v.Seq, ID: id})
		}
		return all
	}
	r.Do(queue.Main, queue.Claim{Messages: named(ids[0], ids[2], ids[3], ids[4])})
	require.Len(t, r.Picked.Messages, 4)
	seq := seqs(r.Picked.Messages)
	r.Do(queue.Main, queue.Complete{Park: seq, Put: []store.Entry{{Key: "k", Value: "v"}}, Ticket: "t"})
	r.Commit()
	held := func() {
		t.Helper()
		check(r)
		for i, id := range ids {
			require.Equal(t, i != 1, r.Find(queue.Main, id).State == inspect.StateMoving, i)
		}
		m := r.M.Inspect(queue.Main).Stats(r.Now)
		require.Equal(t, []int64{4, 0}, []int64{m.Moving, m.Delayed}, "they wait for no time")
		r.Do(queue.Main, queue.Claim{Messages: named(ids[0])})
		require.Empty(t, r.Picked.Messages)
	}
	held()
	r.Restart(true, time.Second)
	held()
	r.Restart(false, 2*time.Minute)
	held()
	_, states, _ := r.Disk.Stored()
	require.Len(t, states, 4)

	r.Do(queue.Main, queue.Complete{Transferred: seq[1:2], Unpark: []uint64{seq[0], seq[2], seq[3]}, Ticket: "t"})
	r.Commit()
	over := func() {
		t.Helper()
		check(r)
		require.Equal(t, [queue.Roles]int64{3, 1}, r.Depth, "one of them has expired")
	}
	over()
	r.Restart(true, time.Second)
	over()
	r.Consume(queue.Main, "x", 9, 0)
	r.Run()
	var got []store.ID
	attempts := make(map[store.ID]uint32)
	for _, d := range r.Deliveries() {
		got = append(got, d.ID)
		attempts[d.ID] = d.Token.Attempt
	}
	require.ElementsMatch(t, []store.ID{ids[0], ids[1], ids[3]}, got)
	require.Equal(t, map[store.ID]uint32{ids[0]: 2, ids[1]: 1, ids[3]: 1}, attempts)
	check(r)
}
