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

// A fetch is answered when nothing can come any more.
func TestFetchEndsWithItsQueue(t *testing.T) {
	r := newRig(t, nil)
	r.Fetch(queue.Main, "_INBOX.wait", 2, time.Hour)
	r.Finish(false)
	_, status := r.Take()
	require.Equal(t, map[string]string{"_INBOX.wait": "408"}, status)
}
