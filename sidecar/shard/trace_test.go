package shard

import (
	"encoding/binary"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/sidecar/queue/history"
	"github.com/filaq/fila/sidecar/telemetry"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/throttle"
	"github.com/filaq/fila/wire"
)

// keptSpans is a tracer that keeps what it gets.
type keptSpans struct {
	sync.Mutex
	all []*telemetry.Span
}

func (k *keptSpans) Record(s *telemetry.Span) {
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
	ts := newTraces(&keptSpans{})
	p := &policy{}
	for n := range uint64(3*maxTracks + 7) {
		m := sampledMessage(n)
		ts.enqueued(m, p)
		ts.enqueued(m, p) // twice, as when a dead letter is redriven with its id
	}
	require.Len(t, ts.mu.byID, maxTracks)
	require.Len(t, ts.mu.ids, maxTracks)
	require.True(t, ts.parent(sampledMessage(3*maxTracks+6).ID).Sampled)
	require.True(t, ts.parent(sampledMessage(2*maxTracks+7).ID).Sampled)
	require.False(t, ts.parent(sampledMessage(2*maxTracks+6).ID).Sampled)
}

// TestAWaitWithoutATrack: the message still has a span, from when it was ready.
func TestAWaitWithoutATrack(t *testing.T) {
	k := &keptSpans{}
	ts := newTraces(k)
	parent, ok := wire.ParseTraceParent(sampledParent)
	require.True(t, ok)
	ts.waited(&queue.Delivery{ReadyAt: 50, At: 80, Token: wire.Token{Attempt: 3}, Blocked: []history.BlockedInterval{
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
	ts.waited(&queue.Delivery{ReadyAt: 90, At: 80}, parent, "orders", 2)
	require.EqualValues(t, 80, k.all[1].Start)
}

func TestNoTraces(t *testing.T) {
	var ts *traces
	require.Nil(t, newTraces(nil))
	require.Zero(t, testing.AllocsPerRun(100, func() {
		ts.enqueued(nil, nil)
		ts.failed(nil, 0)
		ts.deadLettered(nil, "", 0)
		_ = ts.parent(store.ID{})
	}))
}

// TestUnsampledAllocatesNothing at an enqueue, although there is a tracer.
func TestUnsampledAllocatesNothing(t *testing.T) {
	ts, m := newTraces(&keptSpans{}), sampledMessage(1)
	for _, h := range []nats.Header{nil, {"tenant": {"acme"}}, {"traceparent": {sampledParent[:54] + "0"}}} {
		m.Headers = wire.EncodeHeaders(nil, h)
		require.Zero(t, testing.AllocsPerRun(100, func() { ts.enqueued(m, nil) }))
	}
	require.Empty(t, ts.mu.byID)
}

// TestKeysLeftOutAreTraced: the log line about a message with too many throttle keys has its id
// and its trace.
func TestKeysLeftOutAreTraced(t *testing.T) {
	bubble(t, func(r *rig) {
		r.traces = newTraces(&keptSpans{})
		q := r.create(nil)
		m := sampledMessage(1)
		m.Key = "k"
		for i := range throttle.MaxKeys + 1 {
			m.ThrottleKeys = append(m.ThrottleKeys, fmt.Sprint("vendor-", i))
		}
		r.traces.enqueued(m, q.policy.Load())
		require.True(t, q.run.post(queue.Input{Kind: queue.Enqueue, Message: m}, nil))
		synctest.Wait()
		require.Contains(t, r.log.String(), `msg="throttle keys of a message are left out" trace_id=0af7651916cd43dd8448eb211c80319c span_id=b7ad6b7169203331 queue=orders id=`+formatID(m.ID))
	})
}
