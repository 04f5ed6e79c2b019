package telemetry

import (
	"encoding/binary"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/sidecar/queue/history"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
)

// keptSpans is a tracer that keeps what it gets.
type keptSpans struct {
	sync.Mutex
	all []*Span
}

func (k *keptSpans) Record(s *Span) {
	k.Lock()
	defer k.Unlock()
	k.all = append(k.all, s)
}

const sampledParent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

func sampledMessage(n uint64) *queue.Message {
	m := &queue.Message{Message: store.Message{EnqueuedAt: 1000, Headers: wire.EncodeHeaders(nil, nats.Header{"traceparent": {sampledParent}})}}
	binary.BigEndian.PutUint64(m.ID[:], n)
	return m
}

// TestTracksAreBounded: the oldest goes first.
func TestTracksAreBounded(t *testing.T) {
	ts := NewMessages(&keptSpans{})
	for n := range uint64(3*maxTracks + 7) {
		m := sampledMessage(n)
		ts.Enqueued(m, false)
		ts.Enqueued(m, false) // twice, as when a dead letter is redriven with its id
	}
	require.Len(t, ts.mu.byID, maxTracks)
	require.Len(t, ts.mu.ids, maxTracks)
	require.True(t, ts.Parent(sampledMessage(3*maxTracks+6).ID).Sampled)
	require.True(t, ts.Parent(sampledMessage(2*maxTracks+7).ID).Sampled)
	require.False(t, ts.Parent(sampledMessage(2*maxTracks+6).ID).Sampled)
}

// TestAWaitWithoutATrack: the message still has a span, from when it was ready.
func TestAWaitWithoutATrack(t *testing.T) {
	k := &keptSpans{}
	ts := NewMessages(k)
	parent, ok := wire.ParseTraceParent(sampledParent)
	require.True(t, ok)
	ts.Waited(&queue.Delivery{ReadyAt: 50, At: 80, Token: wire.Token{Attempt: 3}, Blocked: []history.BlockedInterval{
		{Kind: "rate", Place: "throttle:", Key: "v", For: 20, From: 55}, {Kind: "paused", Place: "queue:", Key: "orders", For: 5},
	}}, parent, "orders", 2)
	require.Len(t, k.all, 1)
	s := k.all[0]
	require.Equal(t, parent, s.Parent)
	require.EqualValues(t, 50, s.Start)
	require.EqualValues(t, 80, s.End)
	require.Len(t, s.Events, 2)
	require.Equal(t, "held by throttle:v", s.Events[0].Name)
	require.EqualValues(t, 55, s.Events[0].At)
	require.EqualValues(t, 50, s.Events[1].At, "not known since when: it was on disk")
	// The clock was set back.
	ts.Waited(&queue.Delivery{ReadyAt: 90, At: 80}, parent, "orders", 2)
	require.EqualValues(t, 80, k.all[1].Start)
}

func TestNoTraces(t *testing.T) {
	var ts *Messages
	require.Nil(t, NewMessages(nil))
	require.Zero(t, testing.AllocsPerRun(100, func() {
		ts.Enqueued(nil, false)
		ts.Failed(nil, 0)
		ts.DeadLettered(nil, "", 0)
		_ = ts.Parent(store.ID{})
	}))
}

// TestUnsampledAllocatesNothing at an enqueue, although there is a tracer.
func TestUnsampledAllocatesNothing(t *testing.T) {
	ts, m := NewMessages(&keptSpans{}), sampledMessage(1)
	for _, h := range []nats.Header{nil, {"tenant": {"acme"}}, {"traceparent": {sampledParent[:54] + "0"}}} {
		m.Headers = wire.EncodeHeaders(nil, h)
		require.Zero(t, testing.AllocsPerRun(100, func() { ts.Enqueued(m, false) }))
	}
	require.Empty(t, ts.mu.byID)
}
