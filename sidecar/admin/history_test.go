package admin

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/queue/history"
	"github.com/filaq/fila/sidecar/queue/inspect"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// pastStore has a history of each message but 2, whose history is broken, and 3, which
// is gone.
type pastStore struct {
	store.Store
	asked int
}

func (s *pastStore) History(refs []store.Ref, fn func(i int, records [][]byte)) (err error) {
	s.asked++
	for i, ref := range refs {
		switch ref.Seq {
		case 2:
			err = &store.CorruptError{Reason: "flipped"}
		case 3:
		default:
			fn(i, [][]byte{(&history.AttemptRecord{Outcome: wire.AttemptNack}).Append(nil), {0}})
		}
	}
	return err
}

// A record of a move has the source and the target queue.
func TestAMoveInAHistory(t *testing.T) {
	p := history.AttemptRecord{Outcome: wire.AttemptMoved, At: 1e18, From: "orders.dlq", To: "by-hand"}
	by := history.AttemptRecord{Outcome: wire.AttemptNack, Number: 1, Route: "openai"}
	require.Equal(t, api.AttemptInfo{Outcome: "nack", Attempt: 1, Route: "openai"}, attemptInfo(&by))
	require.Equal(t, api.AttemptInfo{Outcome: "moved", At: "2001-09-09T01:46:40Z", From: "orders.dlq", To: "by-hand"}, attemptInfo(&p))
}

// TestHistoriesAreReadAtOnce requires one request for all histories, since each may wait for a
// commit. A broken history does not affect the others.
func TestHistoriesAreReadAtOnce(t *testing.T) {
	s := &pastStore{}
	p := peeking{queue: "orders.dlq", store: s}
	past := p.histories([]inspect.MessageView{{Seq: 1}, {Seq: 2}, {Seq: 4}})
	require.Equal(t, 1, s.asked)
	require.Len(t, past, 3)
	for _, i := range []int{0, 2} {
		require.Equal(t, api.AttemptInfo{Outcome: wire.AttemptNack}, past[i][0])
		require.Equal(t, unreadable, past[i][1].Outcome, "a record of another version")
	}
	require.Len(t, past[1], 1)
	require.Equal(t, unreadable, past[1][0].Outcome)
	require.Contains(t, past[1][0].Error, "flipped")
	require.Nil(t, readHistory(s, store.Ref{Seq: 3}))

	p.queue = "orders"
	require.Equal(t, make([][]api.AttemptInfo, 2), p.histories(make([]inspect.MessageView, 2)))
	require.Equal(t, 2, s.asked)
}
