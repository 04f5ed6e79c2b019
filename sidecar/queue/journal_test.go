package queue_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/sidecar/queue/queuetest"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
)

// paced returns a rig whose queue has an empty commit and, with some credit, a consumer.
func paced(t *testing.T, credit int) *rig {
	f := queuetest.NewFleet(t)
	f.Pacing = queue.DefaultPacing
	settings := queue.Settings{QueueSettings: wire.DefaultQueueSettings("orders")}
	settings.MaxDeliveries = new(int64)
	r := f.Create(settings)
	if credit > 0 {
		r.Consume(queue.Main, "w", credit, 0)
	}
	r.Commit()
	r.Answers = nil
	return r
}

// A message that is acked in time is never written, however long the commit is open; a straggler is
// written when it is due.
func TestMessagesLingerByTheirOwnAge(t *testing.T) {
	r := paced(t, 1000)
	for range 100 {
		r.Enqueue("k", nil)
		r.Pass(500 * time.Microsecond)
		r.Ack(r.One(), done, "")
	}
	require.Empty(t, r.Disk.Waiting())
	require.Equal(t, time.Hour, r.Next(), "nothing is left to be written")
	r.Enqueue("k", nil)
	r.Pass(time.Millisecond)
	require.Len(t, r.Disk.Waiting(), 1)
	require.Len(t, r.Disk.Waiting()[0].Add, 1)
}

// Many messages wait longer than few, if their acks come soon enough.
func TestLingerUnderLoad(t *testing.T) {
	load := queue.DefaultPacing.Load
	for _, c := range []struct {
		name   string
		acks   time.Duration // of the messages before
		n      int
		linger time.Duration
	}{
		{"few", 2 * time.Millisecond, load - 1, time.Millisecond},
		{"many", 2 * time.Millisecond, load, 8 * time.Millisecond},
		{"acked at once", 0, load, time.Millisecond},
		{"acked late", 15 * time.Millisecond, load, 20 * time.Millisecond},
		{"acked too late", 30 * time.Millisecond, load, time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := paced(t, 1000)
			for range 1000 {
				r.Enqueue("k", nil)
				d := r.One()
				r.Pass(c.acks)
				r.Ack(d, done, "")
			}
			r.Commit()
			r.Pass(time.Second)
			r.Commit()
			for range c.n {
				r.Enqueue("k", nil)
			}
			r.Pass(c.linger * 9 / 10)
			require.Empty(t, r.Disk.Waiting())
			r.Pass(c.linger * 2 / 10)
			require.Len(t, r.Disk.Waiting(), 1)
			require.Len(t, r.Disk.Waiting()[0].Add, c.n)
		})
	}
}

// The confirmation of a message at no consumer waits no longer than the disk needs.
func TestPendingMessagesDoNotLinger(t *testing.T) {
	load := queue.DefaultPacing.Load
	r := paced(t, load)
	*queue.AckTime(r.M) = int64(5 * time.Millisecond)
	for range 3 * load {
		r.Enqueue("k", nil)
	}
	r.Pass(time.Millisecond)
	require.NotEmpty(t, r.Disk.Waiting())
}

// When something else has to be written, messages whose acks may come soon are kept
// back.
func TestMessagesInWorkStayBehind(t *testing.T) {
	r := paced(t, 1000)
	enqueue := func() delivery {
		r.Enqueue("k", nil)
		return r.One()
	}
	old := enqueue()
	r.Pass(time.Millisecond)
	r.Commit()
	late := enqueue()
	r.Pass(time.Millisecond / 2)
	gone, young, last := enqueue(), enqueue(), enqueue()
	r.Ack(gone, done, "")
	r.Ack(old, done, "")
	r.Pass(time.Millisecond / 2)
	require.Len(t, r.Disk.Waiting(), 1, "late has lingered, and the ack goes with it")
	require.Len(t, r.Disk.Waiting()[0].Add, 1)
	require.Equal(t, late.Token.Seq, r.Disk.Waiting()[0].Add[0].Seq)
	require.Len(t, r.Disk.Waiting()[0].Finish, 1)
	check(r)

	r.Ack(young, done, "")
	require.Equal(t, 1, r.CommitN(1))
	r.Run()
	require.Empty(t, r.Disk.Waiting())
	r.Pass(time.Millisecond / 2)
	require.Len(t, r.Disk.Waiting(), 1)
	require.Len(t, r.Disk.Waiting()[0].Add, 1)
	require.Equal(t, last.Token.Seq, r.Disk.Waiting()[0].Add[0].Seq)
	check(r)
	r.Commit()
	messages, _, _ := r.Disk.Stored()
	require.Len(t, messages, 2, "late and the last one")
	require.Zero(t, r.Uncommitted)
}

// A message without a consumer goes with the first commit, also if it is younger than
// one whose ack may come.
func TestIdleMessagesAreWrittenAtOnce(t *testing.T) {
	r := paced(t, 2)
	for range 3 {
		r.Enqueue("k", nil)
		r.Pass(400 * time.Microsecond)
	}
	require.Len(t, r.Disk.Waiting(), 1)
	add := r.Disk.Waiting()[0].Add
	require.Len(t, add, 2, "the first, which has lingered, and the third, which is with nobody")
	require.Equal(t, add[0].Seq+2, add[1].Seq)
	check(r)
}

// Acks do not make the rest of a commit due.
func TestTheLastOfManyLingerAsLong(t *testing.T) {
	r := paced(t, 1000)
	*queue.AckTime(r.M) = int64(5 * time.Millisecond)
	for range queue.DefaultPacing.Load {
		r.Enqueue("k", nil)
	}
	r.Pass(2 * time.Millisecond)
	for _, d := range r.Deliveries() {
		require.Empty(t, r.Disk.Waiting())
		r.Ack(d, done, "")
	}
	require.Empty(t, r.Disk.Waiting())
	r.Enqueue("k", nil)
	r.Pass(time.Millisecond)
	require.Len(t, r.Disk.Waiting(), 1, "the load is over")
}

// Messages of an earlier process may come from the future.
func TestAcksAfterTheClockWasSetBack(t *testing.T) {
	r := paced(t, 1000)
	r.Enqueue("k", nil)
	d := r.One()
	queue.Slot(r.M, queue.Main, d.Token.Seq).ReadyAt = r.Now + int64(time.Hour)
	r.Ack(d, done, "")
	require.GreaterOrEqual(t, *queue.AckTime(r.M), int64(0))
}

// Changes wait while an earlier commit is under way. A message that is acked meanwhile
// leaves nothing on disk, unless its dedupe id must be known.
func TestAckBeforeWriteIsNeverWritten(t *testing.T) {
	for _, dedupe := range []string{"", "id-1"} {
		r := paced(t, 10)
		r.Enqueue("first", nil)
		r.Pass(time.Millisecond) // handed in: it is with a consumer, and has lingered
		first := r.One()
		require.Len(t, r.Disk.Waiting(), 1)

		m := r.Message("k", nil)
		m.DedupeID, m.DedupeUntil = dedupe, r.Now+10e9
		r.Accept(m)
		r.Run()
		second := r.One()
		r.Ack(second, done, "ack")
		check(r)
		require.EqualValues(t, 10, r.Uncommitted, "the bytes of the first one")
		if dedupe == "" {
			require.Equal(t, []string{"reply", "ack"}, subjects(r), "nobody has to wait for the disk")
		} else {
			require.Empty(t, r.Answers)
		}
		r.Ack(first, done, "")
		r.CommitAll()
		for _, b := range r.Disk.Waiting() {
			for i := range b.Add {
				require.NotEqual(t, m.ID, b.Add[i].ID)
			}
		}
		r.Run()
		r.Pass(time.Second)
		r.Commit()
		if dedupe != "" {
			require.Equal(t, []string{"reply", "reply", "ack"}, subjects(r))
		}
		messages, _, dedupes := r.Disk.Stored()
		require.Empty(t, messages)
		require.Equal(t, len(dedupe) > 0, dedupes == 1)
	}
}

// Records of histories fill a commit as all else does: it is handed in though another one
// is under way.
func TestHistoriesFillACommit(t *testing.T) {
	long := wire.Ack{Kind: wire.AckNack, Error: strings.Repeat("e", wire.MaxErrorText), ErrorCode: strings.Repeat("c", 64), HasDelay: true}
	for name, c := range map[string]struct {
		take func(r *rig)
		ack  wire.Ack
	}{
		"many":  {func(r *rig) { r.Fetch(queue.Main, "inbox", 1, time.Minute) }, nobody},
		"large": {func(r *rig) { r.Consume(queue.Main, strings.Repeat("w", 64), 1, 0) }, long},
	} {
		t.Run(name, func(t *testing.T) {
			r := paced(t, 0)
			r.Enqueue("k", nil)
			r.Commit()
			r.Enqueue("other", nil) // under way from now on
			require.Len(t, r.Disk.Waiting(), 1)
			c.take(r)
			d := r.One()
			n := 0
			for ; len(r.Disk.Waiting()) == 1; n++ {
				require.LessOrEqual(t, n, queue.HoldAtMost)
				r.Ack(d, c.ack, "")
				if c.ack.Kind == wire.AckNoResponders {
					c.take(r)
				}
				if ds := r.Deliveries(); len(ds) > 0 {
					d = ds[len(ds)-1]
				}
			}
			bytes := 0
			for _, a := range r.Disk.Waiting()[1].History {
				bytes += len(a.Record)
			}
			if name == "large" {
				require.Less(t, n, queue.HoldAtMost)
				require.Greater(t, bytes, queue.PieceBytes-store.MaxAttemptBytes)
				require.LessOrEqual(t, bytes, queue.PieceBytes+store.MaxAttemptBytes)
			} else {
				require.InDelta(t, queue.HoldAtMost, n, 10)
			}
		})
	}
}

// Messages of more than a piece go to the disk in pieces, so that others get their turn
// between them: in order, with their dedupe ids, and with all else in the last one.
func TestLargeCommitsAreDivided(t *testing.T) {
	r := paced(t, 0)
	enqueue := func(id string) {
		m := r.Message("k", func(m *store.Message) { m.Payload = make([]byte, queue.PieceBytes/2) })
		m.Size = int64(len(m.Payload))
		if id != "" {
			m.DedupeID, m.DedupeUntil = id, 1<<60
		}
		r.Accept(m)
		r.Run()
	}
	enqueue("") // under way, so that the others come together
	require.Len(t, r.Disk.Waiting(), 1)
	for _, id := range []string{"a", "", "b", "c", ""} {
		enqueue(id)
	}
	require.Len(t, r.Disk.Waiting(), 1)
	r.CommitN(1)
	r.Run()
	seen := r.Disk.Waiting()
	require.Len(t, seen, 3)
	var ids []string
	var seqs []uint64
	for _, b := range seen {
		added := map[store.ID]bool{}
		for _, m := range b.Add {
			seqs = append(seqs, m.Seq)
			added[m.ID] = true
		}
		for _, d := range b.Dedupe {
			ids = append(ids, d.DedupeID)
			require.True(t, added[d.ID], "in one batch with its message")
		}
		require.LessOrEqual(t, len(b.Add), 2)
	}
	require.Equal(t, []string{"a", "b", "c"}, ids)
	require.IsIncreasing(t, seqs)
	r.Commit()
	require.Len(t, r.Answers, 6)
}

// While others keep the disk busy, what comes does not wait for the end of the commit
// that is under way: the one after it would begin without it. Once they are done, it
// does again, and one commit takes all of it.
func TestAQueueBesideOthersHasSeveralCommitsUnderWay(t *testing.T) {
	r := paced(t, 0)
	enqueue := func(n int) (underWay int) {
		for range n {
			r.Enqueue("k", nil)
		}
		return len(r.Disk.Waiting())
	}
	commit := func(waited bool) (underWay int) {
		r.Disk.Waiting()[0].Waited = waited
		r.CommitN(1)
		r.Run()
		return len(r.Disk.Waiting())
	}
	require.Equal(t, 1, enqueue(2))
	require.Equal(t, 1, commit(true))
	require.Equal(t, 4, enqueue(3))
	require.Equal(t, queue.MostBesideOthers, enqueue(100))
	require.Equal(t, queue.MostBesideOthers, commit(true))
	for n := queue.MostBesideOthers; n > 1; n-- {
		require.Equal(t, n-1, commit(false))
	}
	require.Equal(t, 1, enqueue(100))
	require.Equal(t, 1, commit(false))
	require.Len(t, r.Disk.Waiting()[0].Add, 100)
}
