package replog

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/store"
	"github.com/filaq/fila/store/storetest"
)

// While a node reads only the first format, the log has no data of the second one, and
// all copies lack it equally. Later data is complete.
func TestAnOwnerWritesWhatAllNodesRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeStream()
		a, b := newNode(t, f, t.TempDir(), "a"), newNode(t, f, t.TempDir(), "b")
		s := promote(t, a.Replica)
		require.NoError(t, storetest.Do(s, &store.Batch{PutQueues: []store.QueueRecord{{ID: 1, Name: "q"}, {ID: 2, Name: "q.dlq"}}}))
		rich := func(seq uint64) []*store.Batch {
			ref, dead := store.Ref{Queue: 1, Seq: seq}, store.Ref{Queue: 2, Seq: seq}
			long := []byte(strings.Repeat("payload ", packFrom))
			lease := store.Lease{ID: 1, Consumer: "c", Deadline: 5, DeliveredAt: 3, Held: "held"}
			return []*store.Batch{
				{Add: []store.Message{{Ref: ref, ID: store.ID{byte(seq)}, Payload: long, Class: store.Class{Priority: 9}}, {
					Ref: store.Ref{Queue: 1, Seq: seq + 1}, ID: store.ID{byte(seq + 1)},
					Class: store.Class{Priority: 1, ThrottleKeys: []string{"own"}, Routes: []store.Route{
						{Name: "one", ThrottleKeys: []string{"one"}, CircuitKey: "c"}, {Name: "two"},
					}},
				}}},
				{History: []store.Attempt{{Ref: ref, Record: []byte("attempt")}}},
				{State: []store.State{{Ref: store.Ref{Queue: 1, Seq: seq + 1}, Attempts: 1, Lease: lease}}},
				{Move: []store.Move{{From: ref, To: store.Message{
					Ref: dead, ID: store.ID{byte(seq)},
					Class: store.Class{Priority: 9}, Dead: &store.Dead{Reason: "r"},
				}}}, History: []store.Attempt{{Ref: dead, Record: []byte("last")}}},
			}
		}
		a.SetFormat(1)
		for _, batch := range rich(10) {
			require.NoError(t, storetest.Do(s, batch))
		}
		var body []byte
		for _, record := range f.records {
			h, part, err := decode(record)
			require.NoError(t, err)
			require.False(t, h.packed)
			if h.kind != kindCommit {
				continue
			}
			if body = append(body, part...); h.more {
				continue
			}
			batches, err := decodeBatches(body)
			require.NoError(t, err)
			body = nil
			for _, got := range batches {
				require.Empty(t, got.History)
				for _, m := range got.Add {
					require.Zero(t, m.Priority)
					require.Empty(t, m.Routes)
					if m.Seq == 11 {
						require.Equal(t, store.Class{ThrottleKeys: []string{"one", "own"}, CircuitKey: "c"}, m.Class, "it goes by its first route")
					}
				}
				for _, mv := range got.Move {
					require.Zero(t, mv.To.Priority)
				}
				for _, st := range got.State {
					require.Zero(t, st.Lease.DeliveredAt)
					require.Empty(t, st.Lease.Held)
				}
			}
		}
		require.Equal(t, contentOf(t, s), b.content(t), "the owner's file is no other")
		require.Zero(t, priorities(t, s))

		a.SetFormat(Format)
		before := len(f.heads(t))
		for _, batch := range rich(20) {
			require.NoError(t, storetest.Do(s, batch))
		}
		require.True(t, f.heads(t)[before].packed)
		require.Equal(t, contentOf(t, s), b.content(t))
		require.Equal(t, 10, priorities(t, s))
		histories := 0
		require.NoError(t, s.History([]store.Ref{{Queue: 2, Seq: 20}}, func(_ int, records [][]byte) { histories = len(records) }))
		require.Equal(t, 2, histories)
	})
}

// priorities returns the sum of the priorities of all messages.
func priorities(t *testing.T, s store.Store) (sum int) {
	t.Helper()
	_, err := s.Recover(store.Visitor{Message: func(m *store.Message, _ int, _ *store.State) error {
		sum += int(m.Priority)
		return nil
	}})
	require.NoError(t, err)
	return sum
}
