package queuetest

import (
	"bytes"
	"slices"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/sidecar/queue/history"
	"github.com/filaq/fila/store"
)

// historyModel models the history of a message.
type historyModel struct {
	last     history.AttemptRecord   // the attempt that has ended last, until it is decided about
	expected []history.AttemptRecord // of which no record has been seen yet
	records  [][]byte                // those that were handed to the store, all of them
	kept     int                     // how many of these are known to be on disk
}

func (b *historyModel) expect(p history.AttemptRecord) { b.expected = append(b.expected, p) }

// ended is the expected record of a flight that ends now.
func (n *node) ended(f *flight, outcome string, number uint32) history.AttemptRecord {
	return history.AttemptRecord{
		Outcome: outcome, Number: number, Dead: f.m.side == queue.Dead, At: f.at, Took: max(0, n.Now-f.at), Consumer: f.consumer, Route: f.by.name,
	}
}

// checkHistories compares the records of a commit with the model: each once, and in
// order.
func (n *node) checkHistories(c *queue.Commit) {
	for _, a := range c.History {
		m := n.s.refs[a.Ref]
		require.NotNil(n.T, m, "a record of an unknown message")
		if m.going != nil && m.going.Message.Ref == a.Ref {
			continue // what it has already
		}
		got, err := history.Read(a.Record)
		require.NoError(n.T, err)
		require.NotEmpty(n.T, m.past.expected, "%s: nothing has happened to it: %+v", m, got)
		want := m.past.expected[0]
		m.past.expected = m.past.expected[1:]
		for i, h := range got.Blocked {
			require.LessOrEqual(n.T, h.For, got.Waited, "%s: held for longer than it waited", m)
			require.True(n.T, i == 0 || h.For <= got.Blocked[i-1].For, "%s: %+v", m, got.Blocked)
		}
		want.Waited, want.Blocked = got.Waited, got.Blocked
		require.Equal(n.T, want, got, "%s: its history", m)
		m.past.records = append(m.past.records, a.Record)
	}
}

// historyIsSafe applies the outcome of a commit: either its records are on disk, or they do not
// count.
func (s *Sim) historyIsSafe(c *queue.Commit, err error) {
	for _, a := range c.History {
		m := s.refs[a.Ref]
		if m.going != nil && m.going.Message.Ref == a.Ref {
			continue
		}
		if err != nil {
			m.past.records = m.past.records[:len(m.past.records)-1]
			continue
		}
		m.past.kept++
		if s.Disk.ids[a.Ref] == m.id {
			s.checkHistory(m, a.Ref, false)
		}
	}
}

// checkHistory compares the history of a message on disk with the model: it equals a recent history
// of the message, with all records that are known to be on disk. It returns how many records are
// newly on disk.
func (s *Sim) checkHistory(m *message, ref store.Ref, all bool) int {
	var got [][]byte
	require.NoError(s.T, s.Disk.History([]store.Ref{ref}, func(_ int, records [][]byte) { got = records }))
	b := &m.past
	at := b.kept
	for at <= len(b.records) && !slices.EqualFunc(got, bounded(b.records[:at]), bytes.Equal) {
		at++
	}
	if at > len(b.records) || all && (at < len(b.records) || len(b.expected) > 0) {
		require.Fail(s.T, "another history on disk", "%s: %q on disk, %d of %q are safe, %+v to come", m, got, b.kept, b.records, b.expected)
	}
	return at
}

// bounded cuts a history as the store does: the first record and, of the others, the
// newest, and the last redrive before them. (Simulated histories never exceed the bytes.)
// Deliveries in a row that reached nobody are one record.
func bounded(all [][]byte) [][]byte {
	var records [][]byte
	for _, r := range all {
		if n := len(records); n > 0 {
			if one := history.Join(records[n-1], r); one != nil {
				records[n-1] = one
				continue
			}
		}
		if records = append(records, r); len(records) > store.MaxHistory {
			at := 1
			if history.IsRedrive(records[1]) && !history.IsRedrive(records[2]) {
				at = 2
			}
			records = slices.Delete(records, at, at+1)
		}
	}
	return records
}
