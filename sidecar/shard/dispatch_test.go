package shard

import (
	"fmt"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/sidecar/telemetry"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/throttle"
	"github.com/filaq/fila/wire"
)

// TestTwoDeliveriesOfOneMessage that are published together have headers of their own.
func TestTwoDeliveriesOfOneMessage(t *testing.T) {
	bubble(t, func(r *rig) {
		q := r.create(nil)
		m := &queue.Message{HeaderMap: nats.Header{"Own": {"1"}}}
		var work []queue.Delivery
		for attempt := range uint32(2) {
			work = append(work, queue.Delivery{
				Subject: "w", Fresh: m, Token: wire.Token{Attempt: attempt + 1}, Deadline: int64(attempt),
			})
		}
		work = append(work, queue.Delivery{Subject: "w", Fresh: m, Token: wire.Token{Attempt: 3}, Form: store.DeliveryForm{MinHeaders: true}})
		q.run.dispatcher.send(work)
		got := r.conn.take("w")
		require.Equal(t, nats.Header{"Own": {"1"}, wire.HeaderID: {formatID(m.ID)}, wire.HeaderAttempt: {"3"}}, got[2].Header)
		for attempt, m := range got[:2] {
			require.Equal(t, "1", m.Header.Get("Own"))
			require.Equal(t, strconv.Itoa(attempt+1), m.Header.Get(wire.HeaderAttempt))
			require.Equal(t, wire.Timestamp(int64(attempt)), m.Header.Get(wire.HeaderDeadline))
		}
	})
}

// TestDeliveriesNameTheirRoute in each form: with all headers, with few, and in a batch.
func TestDeliveriesNameTheirRoute(t *testing.T) {
	bubble(t, func(r *rig) {
		q := r.create(func(s *wire.QueueSettings) {
			s.OnEnqueue = `function on_enqueue(msg) return { routes = { { name = "one" }, { name = "two" } } } end`
		})
		for i, form := range []store.DeliveryForm{{}, {MinHeaders: true}, {Batch: 10}, {Batch: 10, MinHeaders: true}} {
			subject := fmt.Sprint("w", i)
			m := &queue.Message{HeaderMap: nats.Header{"Own": {"1"}}}
			q.run.dispatcher.send([]queue.Delivery{{Subject: subject, Fresh: m, Route: "two", Token: wire.Token{Attempt: 1}, Form: form}})
			q.run.dispatcher.end()
			got := r.conn.take(subject)[0]
			header := got.Header
			if form.Batch > 0 {
				delivered, bad := wire.ParseDelivered(got.Data, 1)
				require.Nil(t, bad)
				header, bad = delivered[0].Header.Parse(nil, wire.HeaderLimits{})
				require.Nil(t, bad)
			}
			require.Equal(t, "two", header.Get(wire.HeaderRoute), form)
		}
		require.Nil(t, r.enqueue("x", "p", nil))
		r.consume(q, "w", 1)
		require.Equal(t, "one", r.one("w").Header.Get(wire.HeaderRoute), "it comes from the hook")
	})
}

// TestUndeliverable: a delivery that cannot be published returns at once and keeps its attempt;
// one that is too large for the server stays leased.
func TestUndeliverable(t *testing.T) {
	for name, tc := range map[string]struct {
		err   error
		again bool
	}{"connection": {nats.ErrConnectionClosed, true}, "too large": {nats.ErrMaxPayload, false}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				q := r.create(nil)
				r.consume(q, "w", 1)
				refusals := 1
				r.conn.refuse(func(m *nats.Msg) error {
					if m.Subject == "w" && refusals > 0 {
						refusals--
						return tc.err
					}
					return nil
				})
				require.Nil(t, r.enqueue("one", "", nil))
				if !tc.again {
					r.none("w")
					require.Contains(t, r.log.String(), "a message is larger than the server now accepts")
					time.Sleep(31 * time.Second)
				}
				m := r.one("w")
				require.Equal(t, map[bool]string{true: "1", false: "2"}[tc.again], m.Header.Get(wire.HeaderAttempt))
			})
		})
	}
}

// TestDeadLettersSayWhy in their headers. Line ends in the texts add no headers.
func TestDeadLettersSayWhy(t *testing.T) {
	bubble(t, func(r *rig) {
		q := r.create(nil)
		r.consume(q, "w", 1)
		require.Nil(t, r.enqueue("one", "", nat("Own", "1")))
		m := r.one("w")
		at := r.Now()
		r.ack(m, wire.Ack{Kind: wire.AckTerm, Error: "bad\r\nFila-Id: forged", ErrorCode: "E\n7"}, "")
		r.consume(q.DLQ(), "operator", 1)
		dead := r.one("operator")
		require.Equal(t, "one", string(dead.Data))
		for header, want := range map[string]string{
			"Own": "1", wire.HeaderID: m.Header.Get(wire.HeaderID), wire.HeaderQueue: "orders.dlq", wire.HeaderAttempt: "1",
			wire.HeaderDeadReason: wire.ReasonTerm, wire.HeaderDeadError: "bad  Fila-Id: forged", wire.HeaderDeadErrorCode: "E 7",
			wire.HeaderDeadAttempts: "1", wire.HeaderDeadAt: wire.Timestamp(at), wire.HeaderSourceQueue: "orders",
		} {
			require.Equal(t, want, dead.Header.Get(header), header)
		}
		r.ack(dead, term, "operator's ack")
		time.Sleep(time.Second)
		require.Empty(t, r.one("operator's ack").Data)
		require.Zero(t, q.DLQ().Depth())
	})
}

var errCorrupt = &store.CorruptError{File: "fila.db", Part: "index", Segment: 7, Reason: "checksum does not match"}

// TestDeadLettersWithoutReason are delivered without these headers, and so are others of the
// batch.
func TestDeadLettersWithoutReason(t *testing.T) {
	bubble(t, func(r *rig) {
		q := r.create(nil)
		r.store.spoil(badPlaces{dead: errCorrupt, read: errCorrupt})
		ref := store.Ref{Queue: q.DLQ().ID(), Seq: 1}
		require.NoError(t, r.shard.commit(&store.Batch{Add: []store.Message{{
			Ref: ref, Payload: []byte("0123"), Headers: []byte{0xff}, Dead: &store.Dead{Reason: "term"},
		}, {
			Ref: store.Ref{Queue: ref.Queue, Seq: 2}, Payload: []byte("4567"), Dead: &store.Dead{Reason: "term"},
		}}}))
		var work []queue.Delivery
		for seq := range uint64(3) {
			work = append(work, queue.Delivery{Role: queue.Dead, Subject: "w", Token: wire.Token{Seq: seq + 1}})
		}
		q.run.dispatcher.send(work)
		m := r.one("w")
		require.Equal(t, "4567", string(m.Data))
		require.Empty(t, m.Header.Get(wire.HeaderDeadReason))
		for _, text := range []string{
			"headers of a message cannot be decoded", "messages cannot be read; their leases expire",
			"the reasons of dead letters cannot be read; they are delivered without",
		} {
			require.Contains(t, r.log.String(), text)
		}
	})
}

// TestReasonsAreReadForDeadLettersAlone: a batch may have deliveries of both roles.
func TestReasonsAreReadForDeadLettersAlone(t *testing.T) {
	bubble(t, func(r *rig) {
		q := r.create(nil)
		dead := &store.Dead{Reason: "term", SourceQueue: "orders", Attempts: 3}
		require.NoError(t, r.shard.commit(&store.Batch{Add: []store.Message{
			{Ref: store.Ref{Queue: q.ID(), Seq: 1}},
			{Ref: store.Ref{Queue: q.DLQ().ID(), Seq: 1}, Dead: dead},
			{Ref: store.Ref{Queue: q.DLQ().ID(), Seq: 2}},
		}}))
		q.run.dispatcher.send([]queue.Delivery{
			{Subject: "main", Token: wire.Token{Seq: 1}},
			{Kind: queue.DeliverStatus, Subject: "status", Status: "408"},
			{Role: queue.Dead, Subject: "gone", Token: wire.Token{Seq: 99}},
			{Role: queue.Dead, Subject: "dead", Token: wire.Token{Seq: 1}},
			{Role: queue.Dead, Subject: "unknown", Token: wire.Token{Seq: 2}},
			{Role: queue.Dead, Subject: "min", Token: wire.Token{Seq: 1}, Form: store.DeliveryForm{MinHeaders: true}},
			{Kind: queue.DeliverReply, Reply: queue.Reply{Kind: queue.ReplyDuplicate, Confirmation: queue.Confirmation{Subject: "producer"}}},
		})
		synctest.Wait()
		require.Equal(t, "3", r.one("dead").Header.Get(wire.HeaderDeadAttempts))
		for _, subject := range []string{"main", "unknown", "status", "min"} {
			require.Empty(t, r.one(subject).Header.Get(wire.HeaderDeadReason), subject)
		}
		r.none("gone")
		require.Contains(t, string(r.one("producer").Data), `"duplicate":true`)
		require.NotContains(t, r.log.String(), "level=ERROR")
	})
}

// noSpans is a tracer that drops spans.
type noSpans struct{}

func (noSpans) Record(*telemetry.Span) {}

// TestKeysLeftOutAreTraced: the log line about a message with too many throttle keys has its id
// and its trace.
func TestKeysLeftOutAreTraced(t *testing.T) {
	bubble(t, func(r *rig) {
		r.traces = telemetry.NewMessages(noSpans{})
		q := r.create(nil)
		const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
		m := &queue.Message{Message: store.Message{ID: newID(), Class: store.Class{Key: "k"}, Headers: wire.EncodeHeaders(nil, nat("traceparent", trace))}}
		for i := range throttle.MaxKeys + 1 {
			m.ThrottleKeys = append(m.ThrottleKeys, fmt.Sprint("vendor-", i))
		}
		r.traces.Enqueued(m, false)
		require.True(t, q.run.post(nil, queue.Input{Kind: queue.Enqueue, Message: m}))
		synctest.Wait()
		require.Contains(t, r.log.String(), `msg="throttle keys of a message are ignored" trace_id=0af7651916cd43dd8448eb211c80319c span_id=b7ad6b7169203331 queue=orders id=`+formatID(m.ID))
	})
}
