package queue_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/sidecar/queue/inspect"
	"github.com/filaq/fila/store"
)

// TestAMessageOnItsWayToTheDLQIsFound: a message that becomes a dead letter is found at any
// moment. Operators cannot change it before it is in the DLQ.
func TestAMessageOnItsWayToTheDLQIsFound(t *testing.T) {
	r := newRig(t, nil)
	r.Consume(queue.Main, "w", 2, 0)
	ids := []store.ID{r.Enqueue("a", nil), r.Enqueue("b", nil)}
	r.Commit()
	for _, d := range r.Deliveries() {
		r.Ack(d, term, "")
	}
	remove := func(seq uint64, id store.ID) queue.Handled {
		r.Do(queue.Dead, queue.Remove{Seq: seq, ID: id})
		return *r.Handled
	}
	for i, id := range ids {
		seq := uint64(i + 1)
		require.Nil(t, r.Find(queue.Main, id))
		v := r.Find(queue.Dead, id)
		require.NotNil(t, v)
		require.Equal(t, inspect.StateMoving, v.State)
		require.Equal(t, []string{"a", "b"}[i], v.Key)
		require.Equal(t, seq, v.Seq)
		require.Equal(t, queue.Handled{Found: true, State: inspect.StateMoving}, remove(seq, id))
		require.Equal(t, queue.Handled{}, remove(3-seq, id), "the sequence is another's")
	}
	r.Commit()
	for i, id := range ids {
		require.Equal(t, inspect.StatePending, r.Find(queue.Dead, id).State)
		require.EqualValues(t, 1, remove(uint64(i+1), id).Done)
	}
	r.Commit()
	check(r)
	queue.CheckEmpty(t, r.M)
}

// TestAPurgeOfNothing is no commit: who purges in steps knows the commits by their order.
func TestAPurgeOfNothing(t *testing.T) {
	r := newRig(t, nil)
	r.Consume(queue.Main, "w", 1, 0)
	for range 3 {
		r.Enqueue("a", nil)
	}
	r.Commit()
	r.One() // is leased, and stays
	var told []any
	r.Done = func(_ *rig, c *queue.Commit, err error) {
		require.NoError(t, err)
		if c.Ticket != nil {
			told = append(told, c.Ticket)
		}
	}
	last := r.M.LastSeq(queue.Main)
	r.Do(queue.Main, queue.Purge{Last: last, Max: 1, Ticket: 1})
	require.Equal(t, queue.Handled{Next: 2}, *r.Handled)
	r.Do(queue.Main, queue.Purge{From: 2, Last: last, Max: 100, Ticket: 2})
	require.Equal(t, queue.Handled{Done: 2}, *r.Handled)
	r.Commit()
	require.Equal(t, []any{2}, told)
	check(r)
}
