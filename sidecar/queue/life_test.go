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

// Whatever comes with a token that is not the current one changes nothing.
func TestStaleTokens(t *testing.T) {
	r := newRig(t, nil)
	r.Consume(queue.Main, "w", 1, 0)
	r.Enqueue("k", nil)
	r.Commit()
	first := r.One()
	r.Pass(31 * time.Second)
	second := r.One()
	forged := second
	forged.Token.Lease++
	other := second
	other.Token.Seq = 99
	attempt := second
	attempt.Token.Attempt++
	dlq := second
	dlq.Role = queue.Dead
	for _, d := range []delivery{first, forged, other, attempt, dlq} {
		for kind := wire.AckDone; kind <= wire.AckNoResponders; kind++ {
			r.Ack(d, wire.Ack{Kind: kind}, "reply")
			require.True(t, current(r, second))
			require.Empty(t, r.Disk.Waiting()[1:], "nothing but the lost lease's state is written")
		}
		r.Post(queue.Input{Kind: queue.Undelivered, Role: d.Role, Token: d.Token})
		r.Run()
		require.True(t, current(r, second))
	}
	r.Ack(second, done, "")
	require.Zero(t, r.Depth[queue.Main])
}

// The TTL passes while the message is leased, and then it turns out that nobody
// received it.
func TestTTLOfAMessageTakenBack(t *testing.T) {
	r := newRig(t, nil)
	r.Consume(queue.Main, "w", 1, 0)
	r.Enqueue("k", func(m *store.Message) { m.ExpiresAt = r.Now + 1e9 })
	r.Commit()
	d := r.One()
	r.Pass(2 * time.Second)
	require.True(t, current(r, d), "a lease runs on when the TTL passes")
	r.Ack(d, nobody, "")
	r.Commit()
	require.Zero(t, r.Depth[queue.Main])
	require.EqualValues(t, 1, r.Depth[queue.Dead])
	require.EqualValues(t, 1, r.Counters[queue.Main].TTLExpired)
	check(r)
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

// Nothing goes out until it could be heard of.
func TestOfflineNothingIsDelivered(t *testing.T) {
	r := newRig(t, nil)
	r.Do(queue.Main, queue.Dispatch{})
	r.Consume(queue.Main, "w", 1, 0)
	r.Enqueue("k", nil)
	r.Commit()
	require.Empty(t, r.Deliveries())
	r.Do(queue.Main, queue.Dispatch{On: true})
	r.One()
}

// What has expired is not delivered, even when more messages expire in one moment
// than one step looks at, and no step does more than that.
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

// What nobody received is delivered in the same order, from in front of a backlog; with
// a walk over it for each this would be twenty billion steps.
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

// A delivery that could not be published leaves its consumer alone.
func TestUndeliveredIsDeliveredAgain(t *testing.T) {
	r := newRig(t, nil)
	r.Consume(queue.Main, "w", 1, 0)
	r.Enqueue("k", nil)
	d := r.One()
	r.Post(queue.Input{Kind: queue.Undelivered, Token: d.Token})
	r.Run()
	again := r.One()
	require.Equal(t, d.ID, again.ID)
	require.EqualValues(t, 1, again.Token.Attempt)
	require.NotEqual(t, d.Token.Lease, again.Token.Lease)
	require.Equal(t, 1, registered(r, queue.Main))
}

// A duplicate is answered when its first message is on disk.
func TestDuplicateIsAnsweredWithTheFirst(t *testing.T) {
	r := newRig(t, nil)
	m := r.Message("k", nil)
	m.DedupeID, m.DedupeUntil = "once", r.Now+1e9
	id := m.ID
	r.Accept(m)
	r.Post(queue.Input{Kind: queue.Duplicate, ID: id, Confirm: queue.Confirmation{Subject: "second"}})
	r.Run()
	require.Empty(t, r.Answers)
	r.Commit()
	require.Equal(t, []string{"reply", "second"}, []string{r.Answers[0].Subject, r.Answers[1].Subject})
	require.Equal(t, queue.ReplyDuplicate, r.Answers[1].Kind)
	require.Equal(t, id, r.Answers[1].ID)
	_, _, dedupes := r.Disk.Stored()
	require.Equal(t, 1, dedupes)
}

// The messages of each fairness key are counted, those that were counted already only
// once, and a new counter gets what is there.
func TestMessagesAreCountedByKey(t *testing.T) {
	counts := newCounter()
	r := newRig(t, func(s *queue.Settings) { s.PerKey = counts })
	r.Consume(queue.Main, "w", 1, 0)
	r.Gated("a")
	r.Gated("a", "k")
	m := r.Message("b", nil)
	m.Counted = counts
	counts.Add("b", 1)
	r.Accept(m)
	r.Commit()
	require.Equal(t, map[string]int64{"a": 2, "b": 1}, counts.n)
	r.Finished(r.One())
	require.Equal(t, map[string]int64{"a": 1, "b": 1}, counts.n)

	s := r.Settings
	anew := newCounter()
	s.PerKey = anew
	r.Do(queue.Main, s)
	require.Equal(t, map[string]int64{"a": 1, "b": 1}, anew.n)
	kill(r, r.Deliveries()...)
	kill(r, r.Deliveries()...)
	require.Empty(t, anew.n)
	require.EqualValues(t, 2, r.Depth[queue.Dead])
	redrive(r, pick(r, 99, 99).Messages)
	r.Commit()
	require.Equal(t, map[string]int64{"a": 1, "b": 1}, anew.n)
	require.Equal(t, map[string]int64{"a": 1, "b": 1}, counts.n, "nobody wants to know any more")

	s.PerKey = nil
	r.Do(queue.Main, s)
	r.Finished(r.Deliveries()...)
	require.Equal(t, map[string]int64{"a": 1, "b": 1}, anew.n)
}

// counter counts messages by key.
type counter struct{ n map[string]int64 }

func newCounter() *counter { return &counter{make(map[string]int64)} }

func (c *counter) Add(key string, n int64) {
	if c.n[key] += n; c.n[key] == 0 {
		delete(c.n, key)
	}
}
