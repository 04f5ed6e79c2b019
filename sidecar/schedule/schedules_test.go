package schedule

import (
	"context"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// fakeQueue stores everything at once.
type fakeQueue struct{}

func (fakeQueue) Name() string      { return "orders" }
func (fakeQueue) ID() store.QueueID { return 1 }
func (fakeQueue) Deleted() bool     { return false }

func (q fakeQueue) EnqueueRun(m *Message, describe func(store.ID) queue.WriteEntries) *wire.Error {
	return q.WriteEntries(describe(m.ID))
}

func (fakeQueue) WriteEntries(w queue.WriteEntries) *wire.Error {
	if done, ok := w.Ticket.(func(error)); ok {
		done(nil)
	}
	return nil
}

type fakeMetrics struct{}

func (fakeMetrics) Scheduled()  {}
func (fakeMetrics) Missed(int)  {}
func (fakeMetrics) Refused(int) {}

// TestTheSchedulesOfAShardAreBounded in number and bytes, and removed ones make room.
func TestTheSchedulesOfAShardAreBounded(t *testing.T) {
	r := NewRunner(Options{
		Log: slog.New(slog.DiscardHandler), Ended: context.Background(),
		Event: func(string, string, wire.Event) {}, Silent: func() bool { return false },
		Admit: func(int64) *wire.Error { return nil },
		Await: func(done <-chan error) error { return <-done },
	})
	s := r.NewSchedules(fakeQueue{}, fakeMetrics{}, Limits{})
	add := func(name, payload string) *wire.Error {
		_, werr := s.AddSchedule(api.ScheduleAddRequest{Name: name, Schedule: "@daily", Missed: wire.MissedOne, Payload: []byte(payload)})
		return werr
	}
	require.Nil(t, add("one", ""))
	r.count(maxSchedules-1, 0)
	require.Equal(t, wire.CodeLimitReached, add("two", "").ErrCode)
	require.Nil(t, add("one", "x"), "it replaces one")
	r.count(1-maxSchedules, maxBytes-4)
	require.Equal(t, wire.CodeLimitReached, add("two", "long").ErrCode)
	r.count(0, 4-maxBytes)
	require.Nil(t, add("two", "long"))
	require.Len(t, s.RemoveSchedules(), 4)
	require.Zero(t, r.mu.count)
	require.Zero(t, r.mu.bytes)
}
