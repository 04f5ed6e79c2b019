package queue_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/wire"
)

// A store puts consumers before it deletes them, so a leave and a return must not
// share a batch.
func TestRegisterAfterLeaveInOneStep(t *testing.T) {
	r := newRig(t, nil)
	r.Consume(queue.Main, "w", 5, 0)
	r.Commit()
	again := queue.Register{Consumer: "w", Subject: "deliver.w", MaxInFlight: 7}
	r.Tell(queue.Main, queue.Leave{Consumer: "w"})
	r.Tell(queue.Main, again)
	r.Commit()
	snap, err := r.Disk.Snapshot()
	require.NoError(t, err)
	require.Len(t, snap.Consumers, 1)
	require.EqualValues(t, 7, snap.Consumers[0].MaxInFlight)

	r.Tell(queue.Main, again)
	r.Tell(queue.Main, queue.Leave{Consumer: "w"})
	r.Commit()
	snap, err = r.Disk.Snapshot()
	require.NoError(t, err)
	require.Empty(t, snap.Consumers)
}

// Answers to consumers come when they are on disk, and say whether there was one.
func TestConsumersAreAnswered(t *testing.T) {
	r := newRig(t, nil)
	r.Consume(queue.Main, "w", 5, 0)
	require.Empty(t, r.Answers)
	r.Commit()
	require.Equal(t, "{}", string(r.Answers[0].Data))
	subjects(r)
	require.Equal(t, queue.NoteJoined, r.Notes[0].Kind)
	require.Equal(t, 5, r.Notes[0].MaxInFlight)
	r.Consume(queue.Main, "w", 6, 0)
	require.Len(t, r.Notes, 1, "a renewal is no news")
	leave := queue.Leave{Consumer: "w", Confirm: queue.Confirmation{Subject: "left"}, Left: []byte("yes"), NotThere: []byte("no")}
	r.Commit()
	subjects(r)
	r.Do(queue.Main, leave)
	r.Do(queue.Main, leave)
	require.Empty(t, r.Answers)
	r.Commit()
	require.Equal(t, []string{"yes", "no"}, []string{string(r.Answers[0].Data), string(r.Answers[1].Data)})
}

// A consumer that renews its registration for ever, and fetches that are filled long
// before their end, leave nothing behind.
func TestRenewalsTakeNoRoom(t *testing.T) {
	r := newRig(t, nil)
	for i := range 5000 {
		r.Consume(queue.Main, "w", 1, 30*time.Second)
		r.Now += 1e7
		if i%100 == 0 {
			r.Commit()
		}
	}
	require.Equal(t, 1, registered(r, queue.Main))
	require.Less(t, queue.Expiring(r.M, queue.Main), 2100)
	r.Leave(queue.Main, "w")
	for i := range 5000 {
		r.Fetch(queue.Main, fmt.Sprint("_INBOX.", i), 1, time.Hour)
		r.Enqueue("k", nil)
		r.Commit()
		r.Ack(r.One(), done, "")
	}
	require.Empty(t, r.M.Inspect(queue.Main).Consumers())
	require.Less(t, queue.Expiring(r.M, queue.Main), 2100)
	check(r)
	r.Enqueue("k", nil) // an empty queue does not look at the time
	r.Pass(2 * time.Hour)
	require.Zero(t, queue.Expiring(r.M, queue.Main))
}

// A 503 under an old registration takes the message back and leaves the consumer that
// has returned meanwhile alone.
func TestLateNoRespondersFindsOnlyItsOwn(t *testing.T) {
	r := newRig(t, nil)
	r.Consume(queue.Main, "w", 1, 0)
	r.Enqueue("k", nil)
	r.Commit()
	d := r.One()
	r.Consume(queue.Main, "w", 1, 0)
	r.Ack(d, nobody, "")
	again := r.One()
	require.Equal(t, d.ID, again.ID)
	require.EqualValues(t, 1, again.Token.Attempt, "the attempt does not count")
	require.Equal(t, 1, registered(r, queue.Main))
	r.Ack(again, nobody, "")
	require.Zero(t, registered(r, queue.Main))
	lost := r.Notes[len(r.Notes)-1]
	require.Equal(t, queue.Note{Kind: queue.NoteLost, Consumer: "w", Reason: "no responders"}, lost)
	r.Commit()
	check(r)
}

// A fetch is filled, or ends: at once, after its time, or with a 503.
func TestFetch(t *testing.T) {
	r := newRig(t, nil)
	r.Fetch(queue.Main, "_INBOX.now", 1, 0)
	_, status := r.Take()
	require.Equal(t, map[string]string{"_INBOX.now": "404"}, status)

	r.Fetch(queue.Main, "_INBOX.wait", 2, time.Second)
	r.Enqueue("k", nil)
	r.Commit()
	require.Equal(t, "_INBOX.wait", r.One().Subject)
	r.Pass(time.Second)
	_, status = r.Take()
	require.Equal(t, map[string]string{"_INBOX.wait": "408"}, status)

	r.Enqueue("k", nil)
	r.Enqueue("k", nil)
	r.Commit()
	r.Fetch(queue.Main, "_INBOX.full", 2, time.Second)
	ds, status := r.Take()
	require.Len(t, ds, 2)
	require.Empty(t, status, "a batch that is filled has no status")

	r.Fetch(queue.Main, "_INBOX.some", 2, 0)
	r.Enqueue("k", nil)
	r.Commit()
	r.Fetch(queue.Main, "_INBOX.lost", 5, time.Hour)
	lost := r.Deliveries()
	require.Len(t, lost, 1)
	r.Ack(lost[0], nobody, "")
	require.Empty(t, r.M.Inspect(queue.Main).Consumers(), "a 503 ends a fetch")
	check(r)
}

// One fetch more than may wait is refused, and takes no place; a fetch that has ended
// leaves its place to another.
func TestFetchesAreBounded(t *testing.T) {
	r := newRig(t, nil)
	fetch := func(inbox, owner string, expires time.Duration) {
		r.Do(queue.Main, queue.Fetch{
			Inbox: inbox, Batch: 1, Expires: int64(expires), Owner: owner, Limits: queue.FetchLimits{Most: 4, MostOfOwner: 2},
		})
	}
	refused := func(want ...string) {
		t.Helper()
		var got []string
		for _, no := range r.Answers {
			if no.Err == nil {
				continue // the enqueue is confirmed
			}
			require.Equal(t, wire.CodeLimitReached, no.Err.ErrCode)
			require.Equal(t, 10*time.Second, no.Err.RetryAfter)
			got = append(got, no.Subject+": "+no.Err.Description)
		}
		require.Equal(t, want, got)
		r.Answers = nil
		check(r)
	}
	const owners = "too many waiting fetches of consumer w at queue orders (limits.max_consumer_fetches): at most 2"
	const all = "too many waiting fetches of queue orders (limits.max_fetches): at most 4"
	fetch("a", "w", time.Second)
	fetch("b", "w", time.Minute)
	fetch("c", "w", time.Minute)
	fetch("d", "w", 0)
	refused("c: "+owners, "d: "+owners)
	fetch("e", "v", time.Minute)
	fetch("f", "", time.Minute)
	fetch("g", "u", time.Minute)
	fetch("h", "", time.Minute)
	refused("g: "+all, "h: "+all)
	require.Equal(t, 4, r.M.Inspect(queue.Main).Fetches())
	require.Equal(t, 4, r.M.Inspect(queue.Main).State(0, r.Now).Credit)

	r.Pass(time.Second)
	_, status := r.Take()
	require.Equal(t, map[string]string{"a": "408"}, status)
	fetch("i", "w", time.Minute)
	refused()
	r.Enqueue("k", nil)
	r.Commit()
	filled := r.One().Subject
	require.Equal(t, "b", filled)
	fetch("j", "w", time.Minute)
	fetch("k", "", time.Minute)
	refused("k: " + all)
	r.Do(queue.Dead, queue.Fetch{Inbox: "l", Batch: 1, Expires: int64(time.Minute), Limits: queue.FetchLimits{Most: 1}})
	r.Do(queue.Dead, queue.Fetch{Inbox: "m", Batch: 1, Expires: int64(time.Minute), Limits: queue.FetchLimits{Most: 1}})
	refused("m: too many waiting fetches of queue orders.dlq (limits.max_fetches): at most 1")
}

// Whoever waits is told when nothing can come.
func TestFetchEndsWithItsQueue(t *testing.T) {
	r := newRig(t, nil)
	r.Fetch(queue.Main, "_INBOX.wait", 2, time.Hour)
	r.Finish(false)
	_, status := r.Take()
	require.Equal(t, map[string]string{"_INBOX.wait": "408"}, status)
}
