package shard

import (
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/hooks"
	"github.com/filaq/fila/sidecar/policy"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
)

// TestIntakeRefuses everything that it cannot accept, with the right code, and counts none of it.
func TestIntakeRefuses(t *testing.T) {
	big := strings.Repeat("x", 200)
	for name, tc := range map[string]struct {
		change  func(*wire.QueueSettings)
		fill    int // messages of 100 bytes taken before
		body    string
		headers nats.Header
		before  func(r *rig)
		code    int
		retry   time.Duration
	}{
		"max_depth":             {change: func(s *wire.QueueSettings) { s.MaxDepth = 2 }, fill: 2, code: 429, retry: fullRetryAfter},
		"max_bytes":             {change: func(s *wire.QueueSettings) { s.MaxBytes = 300 }, fill: 2, body: big, code: 429, retry: fullRetryAfter},
		"max_pending_per_key":   {change: func(s *wire.QueueSettings) { s.MaxPendingPerKey = 2 }, fill: 2, code: 429, retry: fullRetryAfter},
		"enqueue_rate":          {change: func(s *wire.QueueSettings) { s.EnqueueRate, s.EnqueueBurst = "1", 2 }, fill: 2, code: 429, retry: time.Second},
		"enqueue_rate_per_key":  {change: func(s *wire.QueueSettings) { s.EnqueueRatePerKey, s.EnqueueBurstPerKey = "1", 2 }, fill: 2, code: 429, retry: time.Second},
		"uncommitted":           {before: func(r *rig) { r.uncommitted.Store(256 << 20) }, body: "x", code: 429, retry: uncommittedRetryAfter},
		"too large":             {body: strings.Repeat("x", 1<<20-wire.HeaderRoom+1), code: 413},
		"headers too large":     {headers: nat("A", strings.Repeat("x", 1<<20-wire.HeaderRoom)), code: 413},
		"delay and not before":  {headers: nats.Header{wire.HeaderDelay: {"1s"}, wire.HeaderNotBefore: {"2030-01-01T00:00:00Z"}}, code: 400},
		"bad delay":             {headers: nat(wire.HeaderDelay, "soon"), code: 400},
		"negative delay":        {headers: nat(wire.HeaderDelay, "-1s"), code: 400},
		"bad TTL":               {headers: nat(wire.HeaderTTL, "x"), code: 400},
		"empty message id":      {headers: nat(wire.HeaderMsgID, ""), code: 400},
		"a queue being deleted": {before: func(r *rig) { r.Queue("orders").deleted.Store(true) }, code: 404},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				q := r.create(tc.change)
				for range tc.fill {
					require.Nil(t, r.enqueue(strings.Repeat("x", 100), "", nil))
				}
				synctest.Wait()
				if tc.before != nil {
					tc.before(r)
				}
				depth, bytes, held := q.Depth(), q.Bytes(), r.uncommitted.Load()
				counts := q.perKey.Load()
				for range 2 {
					werr := r.enqueue(tc.body, "producer", tc.headers)
					require.NotNil(t, werr)
					require.Equal(t, tc.code, werr.Code, werr.Description)
					require.Equal(t, tc.retry, werr.RetryAfter)
				}
				require.Equal(t, depth, q.Depth())
				require.Equal(t, bytes, q.Bytes())
				require.Equal(t, held, r.uncommitted.Load())
				if counts != nil {
					require.EqualValues(t, tc.fill, counts.mu.n["default"])
				}
				r.none("producer")
				require.EqualValues(t, tc.fill, q.Metrics().Snapshot()["enqueued"])
			})
		})
	}
}

func TestProducersCannotEnqueueDeadLetters(t *testing.T) {
	bubble(t, func(r *rig) {
		werr := r.create(nil).DLQ().Accept(&nats.Msg{Data: []byte("x")})
		require.Equal(t, wire.NotForDLQ("enqueue", "orders.dlq"), werr)
	})
}

// TestRefusalsAreAnsweredAndCounted: each is answered, or without a reply subject reported by an
// event, up to a rate.
func TestRefusalsAreAnsweredAndCounted(t *testing.T) {
	bubble(t, func(r *rig) {
		q := r.create(nil)
		e := wire.BadTTL("x")
		q.Refuse("producer", e)
		require.Equal(t, e.ErrCode, r.refused("producer").ErrCode)
		require.Empty(t, r.news(wire.EventRefused))
		for range 2 * refusalsPerSecond {
			q.Refuse("", e)
		}
		told := r.news(wire.EventRefused)
		require.Len(t, told, refusalsPerSecond)
		require.Equal(t, "orders", told[0].Queue)
		require.Equal(t, map[string]any{"code": e.Code, "err_code": e.ErrCode, "description": e.Description}, told[0].Data)
		time.Sleep(time.Second)
		q.Refuse("", e)
		told = r.news(wire.EventRefused)
		require.Len(t, told, 1)
		require.EqualValues(t, refusalsPerSecond, told[0].Data["not_reported"])
		require.Contains(t, scrape(t, r), `fila_refused_total{code="`+strconv.Itoa(e.ErrCode)+`",queue="orders"} `+strconv.Itoa(2*refusalsPerSecond+2))
	})
}

func TestAnswersThatCannotBePublished(t *testing.T) {
	bubble(t, func(r *rig) {
		r.conn.refuse(func(*nats.Msg) error { return nats.ErrConnectionClosed })
		r.Refuse("inbox", wire.QueueNotFound("x"))
		require.Contains(t, r.log.String(), "an error reply could not be published")
	})
}

// TestLargestMessage: a message just within the limit is delivered with all added headers.
func TestLargestMessage(t *testing.T) {
	bubble(t, func(r *rig) {
		q := r.create(nil)
		r.consume(q, "w", 1)
		require.Nil(t, r.enqueue(strings.Repeat("x", int(r.conn.max)-wire.HeaderRoom), "", nil))
		m := r.one("w")
		require.Len(t, m.Data, int(r.conn.max)-wire.HeaderRoom)
		require.LessOrEqual(t, wireSize(m.Header, m.Data), r.conn.max)
	})
}

// TestOneMessageAboveTheUncommittedLimit is accepted when nothing else waits for the disk;
// otherwise it never could be.
func TestOneMessageAboveTheUncommittedLimit(t *testing.T) {
	bubble(t, func(r *rig) {
		q := r.create(nil)
		r.MaxUncommittedBytes = 100
		p := q.policy.Load()
		require.Nil(t, q.room(p, 0, 0, 101))
		r.uncommitted.Store(1)
		require.NotNil(t, q.room(p, 0, 0, 100))
		require.Nil(t, q.room(p, 0, 0, 99))
	})
}

// TestALogThatIsFull accepts no messages, but acks of those that are there.
func TestALogThatIsFull(t *testing.T) {
	twoShards(t, func(r *rig, second *Shard, _ *heldStore, _ *places) {
		var full atomic.Bool
		second.Full = full.Load
		q := r.Queue("first")
		r.consume(q, "w", 1)
		require.Nil(t, q.Accept(message("first", "")))
		full.Store(true)
		werr := q.Accept(message("first", ""))
		require.Equal(t, wire.CodeBacklogLog, werr.ErrCode)
		r.ack(r.one("w"), done, "")
		synctest.Wait()
		require.Zero(t, q.depth.Load())
		full.Store(false)
		require.Nil(t, q.Accept(message("first", "")))
	})
}

func TestDedupeOverARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, newDisk())
		q := r.create(func(s *wire.QueueSettings) { s.DedupeWindowMs = 60_000 })
		h := func() nats.Header { return nat(wire.HeaderMsgID, "a") }
		require.Nil(t, r.enqueue("one", "producer", h()))
		id := r.id("producer")
		r.consume(q, "w", 1)
		r.ack(r.one("w"), done, "")
		require.Nil(t, r.enqueue("two", "producer", h()))
		m := r.one("producer")
		require.JSONEq(t, `{"id":"`+id+`","queue":"orders","duplicate":true}`, string(m.Data), "also when the first is finished")
		require.EqualValues(t, 1, q.Metrics().Snapshot()["duplicates"])
		require.Nil(t, r.enqueue("three", "", h()))
		time.Sleep(30 * time.Second)
		r = r.restart()
		require.Nil(t, r.enqueue("two", "producer", h()))
		require.JSONEq(t, `{"id":"`+id+`","queue":"orders","duplicate":true}`, string(r.one("producer").Data))
		require.Zero(t, r.Queue("orders").Bytes())
		time.Sleep(31 * time.Second)
		require.Nil(t, r.enqueue("four", "producer", h()))
		time.Sleep(time.Second) // longer than the message waits for its ack
		require.NotEqual(t, id, r.id("producer"), "the window has passed")
		r.end()
	})
}

// TestRefusedEnqueueLeavesNoDedupeID: the producer may try again with the same id.
func TestRefusedEnqueueLeavesNoDedupeID(t *testing.T) {
	bubble(t, func(r *rig) {
		q := r.create(nil)
		q.deleted.Store(true) // a deletion that is going to be refused
		require.Equal(t, 404, r.enqueue("one", "producer", nat(wire.HeaderMsgID, "a")).Code)
		q.deleted.Store(false)
		require.Nil(t, r.enqueue("one", "producer", nat(wire.HeaderMsgID, "a")))
		require.NotContains(t, string(r.one("producer").Data), "duplicate")
		require.EqualValues(t, 1, q.Depth())
	})
}

// TestReservedHeadersAreTakenOut before anyone sees them, or refused.
func TestReservedHeadersAreTakenOut(t *testing.T) {
	bubble(t, func(r *rig) {
		q := r.create(nil)
		for _, name := range []string{wire.HeaderDeadReason, "Nats-Rollup", wire.HeaderScheduledBy, "status"} {
			werr := r.enqueue("one", "", nats.Header{name: {"mine"}, "Own": {"1"}})
			require.NotNil(t, werr, name)
			require.Equal(t, wire.CodeHeaderReserved, werr.ErrCode)
			require.Contains(t, werr.Description, name)
		}
		require.Zero(t, q.Depth())
		require.Nil(t, r.enqueue("one", "", nats.Header{wire.HeaderMsgID: {"a"}, "Nats-Stream": {"s"}, "Own": {"1"}}))
		r.consume(q, "w", 1)
		m := r.one("w")
		require.Equal(t, "1", m.Header.Get("Own"))
		require.NotContains(t, m.Header, wire.HeaderMsgID)
		require.NotContains(t, m.Header, "Nats-Stream")
	})
}

// TestInvalidHeaders: a message with an invalid header is refused, and the decision next to the
// error is the same as without the header.
func TestInvalidHeaders(t *testing.T) {
	weight, priority := "allowed is a weight from 1 to 1,000,000", "allowed is a priority from 0 to 9"
	long := strings.Repeat("k", 257)
	settings := wire.QueueSettings{
		FairnessHeader: "tenant", WeightHeader: "weight", ThrottleHeaders: []string{"a"}, CircuitHeader: "to", PriorityHeader: "urgency",
	}
	bubble(t, func(r *rig) {
		q := r.create(func(s *wire.QueueSettings) {
			s.FairnessHeader, s.WeightHeader, s.ThrottleHeaders, s.CircuitHeader, s.PriorityHeader = "tenant", "weight", []string{"a"}, "to", "urgency"
		})
		for _, tt := range []struct {
			header, value string
			want          *wire.Error
		}{
			{"weight", "0", wire.BadHeaderValue("weight", "0", weight)},
			{"weight", "x", wire.BadHeaderValue("weight", "x", weight)},
			{"weight", "NaN", wire.BadHeaderValue("weight", "NaN", weight)},
			{"weight", "1000001", wire.BadHeaderValue("weight", "1000001", weight)},
			{"weight", " ", wire.BadHeaderValue("weight", " ", weight)},
			{"urgency", "10", wire.BadHeaderValue("urgency", "10", priority)},
			{"urgency", "x", wire.BadHeaderValue("urgency", "x", priority)},
			{"urgency", "-1", wire.BadHeaderValue("urgency", "-1", priority)},
			{"urgency", ":", wire.BadHeaderValue("urgency", ":", priority)},
			{"tenant", long, wire.BadMessageKey("fairness", long)},
			{"a", long, wire.BadMessageKey("throttle", long)},
			{"to", long, wire.BadMessageKey("circuit", long)},
		} {
			h := map[string][]string{tt.header: {tt.value}}
			require.Equal(t, tt.want, r.enqueue("x", "producer", h), "%s %s", tt.header, tt.value)
			d, werr := policy.WithoutHooks(settings).Classify(h, 0)
			require.Equal(t, tt.want, werr)
			require.Equal(t, store.Class{Key: hooks.DefaultFairnessKey, Weight: hooks.DefaultWeight, Cost: hooks.DefaultCost}, d)
		}
		r.none("producer")
		require.Zero(t, q.Depth())
		require.Nil(t, r.enqueue("x", "producer", nats.Header{"weight": {"1e6"}, "urgency": {"0"}}))
		r.id("producer")
	})
}

// TestInvalidKeys are refused, whether a header or a hook gives them. They are no
// failure of the hook: three messages would open its breaker for everyone.
func TestInvalidKeys(t *testing.T) {
	hook := func(s *wire.QueueSettings) {
		s.OnEnqueue = `function on_enqueue(msg)
			return { fairness_key = msg.headers.tenant, throttle_keys = { msg.headers.api }, circuit_key = msg.headers.to }
		end`
		s.LuaCircuitBreakerThreshold = 2
	}
	headers := func(s *wire.QueueSettings) {
		s.FairnessHeader, s.ThrottleHeaders, s.CircuitHeader = "tenant", []string{"api"}, "to"
	}
	for name, change := range map[string]func(*wire.QueueSettings){"hook": hook, "headers": headers} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				q := r.create(change)
				for header, which := range map[string]string{"tenant": "fairness", "api": "throttle", "to": "circuit"} {
					for _, key := range []string{"a\xff", "a\x01", "\u0085"} {
						h := nats.Header{"tenant": {"acme"}}
						h[header] = []string{key}
						require.Equal(t, wire.BadMessageKey(which, key), r.enqueue("x", "producer", h))
					}
				}
				require.Equal(t, wire.CodeBadMsgID, r.enqueue("x", "producer", nat(wire.HeaderMsgID, "a\xff")).ErrCode)
				r.none("producer")
				require.Zero(t, q.Depth())
				for _, h := range q.Hooks() {
					require.Equal(t, "closed", h.State)
					require.Zero(t, h.Failures)
				}
				require.Nil(t, r.enqueue("x", "producer", nats.Header{"tenant": {"müller"}}))
				r.id("producer")
			})
		})
	}
}

// TestKeysFromBeforeStayValid: a stored message is delivered with a key that is not accepted
// any more.
func TestKeysFromBeforeStayValid(t *testing.T) {
	bubble(t, func(r *rig) {
		q := r.create(nil)
		require.NoError(t, r.shard.commit(&store.Batch{Add: []store.Message{{
			Ref: store.Ref{Queue: q.ID(), Seq: 1}, ID: newID(),
			Class: store.Class{Key: "a\xff", ThrottleKeys: []string{"b\xff"}, CircuitKey: "c\xff", Weight: 1000, Cost: 1000},
		}}}))
		*r = *r.restart()
		r.consume(r.Queue("orders"), "w", 1)
		m := r.one("w")
		require.Equal(t, "a\xff", m.Header.Get(wire.HeaderKey))
		r.ack(m, wire.Ack{}, "")
	})
}

// TestCaps refuse what would create one more name, accept known names, and forget nothing in
// use to make room.
func TestCaps(t *testing.T) {
	for name, tc := range map[string]struct {
		caps   Caps
		change func(*wire.QueueSettings)
		header string
		what   string
	}{
		"throttle keys": {Caps{ThrottleKeys: 2}, func(s *wire.QueueSettings) { s.ThrottleHeaders = []string{"k"} }, "k", "limits.max_throttle_keys"},
		"keys under rate": {Caps{RateKeys: 2}, func(s *wire.QueueSettings) {
			s.FairnessHeader, s.EnqueueRatePerKey, s.EnqueueBurstPerKey = "k", "1/3600", 5
		}, "k", "limits.max_rate_keys"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				r.Caps = tc.caps
				r.create(tc.change)
				for range 2 {
					require.Nil(t, r.enqueue("x", "", nat(tc.header, "a")))
					require.Nil(t, r.enqueue("x", "", nat(tc.header, "b")))
					synctest.Wait()
					werr := r.enqueue("x", "", nat(tc.header, "c"))
					require.NotNil(t, werr)
					require.Equal(t, wire.CodeLimitReached, werr.ErrCode)
					require.Contains(t, werr.Description, tc.what)
				}
			})
		})
	}
	bubble(t, func(r *rig) {
		r.Caps = Caps{Circuits: 1, DedupeIDs: 1, Consumers: 1}
		q := r.create(func(s *wire.QueueSettings) { s.CircuitHeader = "to" })
		require.Contains(t, r.enqueue("x", "", nat("to", "a")).Description, "limits.max_circuits")
		require.Nil(t, r.enqueue("x", "", nat(wire.HeaderMsgID, "1")))
		require.Nil(t, r.enqueue("x", "", nat(wire.HeaderMsgID, "1")), "known")
		require.Contains(t, r.enqueue("x", "", nat(wire.HeaderMsgID, "2")).Description, "limits.max_dedupe_ids")
		require.Nil(t, q.RoomFor("w"))
		r.consume(q, "w", 1)
		require.Nil(t, q.RoomFor("w"), "a renewal")
		require.Contains(t, q.RoomFor("v").Description, "limits.max_consumers")
	})
}
