package sidecar

import (
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
)

// TestIntakeRefuses everything that cannot be taken, with the right code, and
// then nothing of it is left in the accounts.
func TestIntakeRefuses(t *testing.T) {
	big := strings.Repeat("x", 200)
	for name, tc := range map[string]struct {
		settings string
		fill     int    // messages of 100 bytes taken before
		subject  string // default: orders
		body     string
		headers  nats.Header
		before   func(*Server)
		code     int
		retry    time.Duration
	}{
		"max_depth":             {settings: `{"max_depth":2}`, fill: 2, code: 429, retry: fullRetryAfter},
		"max_bytes":             {settings: `{"max_bytes":300}`, fill: 2, body: big, code: 429, retry: fullRetryAfter},
		"uncommitted":           {before: func(s *Server) { s.core.uncommitted.Store(256 << 20) }, body: "x", code: 429, retry: uncommittedRetryAfter},
		"too large":             {body: strings.Repeat("x", 1<<20-wire.HeaderRoom+1), code: 413},
		"headers too large":     {headers: nats.Header{"A": {strings.Repeat("x", 1<<20-wire.HeaderRoom)}}, code: 413},
		"delay and not before":  {headers: nats.Header{wire.HeaderDelay: {"1s"}, wire.HeaderNotBefore: {"2030-01-01T00:00:00Z"}}, code: 400},
		"bad delay":             {headers: nats.Header{wire.HeaderDelay: {"soon"}}, code: 400},
		"negative delay":        {headers: nats.Header{wire.HeaderDelay: {"-1s"}}, code: 400},
		"bad TTL":               {headers: nats.Header{wire.HeaderTTL: {"x"}}, code: 400},
		"empty message id":      {headers: nats.Header{wire.HeaderMsgID: {""}}, code: 400},
		"a dead letter queue":   {subject: "fila.enqueue.orders.dlq", code: 400},
		"a queue being deleted": {before: func(s *Server) { s.queues.get("orders").deleted.Store(true) }, code: 404},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, x *testSite) {
				x.must("fila.admin.queue-create.orders", tc.settings, nil)
				for range tc.fill {
					x.enqueue(strings.Repeat("x", 100), nil)
				}
				if tc.before != nil {
					tc.before(x.s)
				}
				q := x.s.queues.get("orders")
				depth, bytes, held := q.depth.Load(), q.bytes.Load(), x.s.core.uncommitted.Load()
				subject := tc.subject
				if subject == "" {
					subject = "fila.enqueue.orders"
				}
				werr := x.request(subject, tc.body, tc.headers, nil)
				require.NotNil(t, werr)
				require.Equal(t, tc.code, werr.Code, werr.Description)
				require.Equal(t, tc.retry, werr.RetryAfter)
				require.Equal(t, depth, q.depth.Load())
				require.Equal(t, bytes, q.bytes.Load())
				require.Equal(t, held, x.s.core.uncommitted.Load())
				x.s.core.uncommitted.Store(0)
				q.deleted.Store(false)

				// Without a reply subject an event tells.
				events := make(chan *nats.Msg, 1)
				_, err := x.nc.Subscribe("fila.event.refused.>", func(m *nats.Msg) { events <- m })
				require.NoError(t, err)
				if tc.before == nil {
					require.NoError(t, x.nc.PublishMsg(&nats.Msg{Subject: subject, Data: []byte(tc.body), Header: tc.headers}))
					require.Contains(t, string((<-events).Data), strconv.Itoa(werr.ErrCode))
				}
			})
		})
	}
}

// TestLargestMessage: what is just not too large comes through with all that a
// delivery adds to it.
func TestLargestMessage(t *testing.T) {
	bubble(t, func(t *testing.T, x *testSite) {
		x.must("fila.admin.queue-create.orders", ``, nil)
		ch, _ := x.consumer("w", "orders", `{"consumer":"w"}`)
		x.enqueue(strings.Repeat("x", 1<<20-wire.HeaderRoom), nil)
		m := <-ch
		require.Len(t, m.Data, 1<<20-wire.HeaderRoom)
		require.Nil(t, x.ack(m, ""))
	})
}

// TestOneMessageAboveTheUncommittedLimit is taken when nothing else waits:
// otherwise it could never be.
func TestOneMessageAboveTheUncommittedLimit(t *testing.T) {
	r := newRig(t, nil)
	r.core.cfg.Limits.MaxUncommittedBytes = 100
	p := r.q.policy.Load()
	require.Nil(t, r.core.room(r.q, p, 101))
	r.core.uncommitted.Store(1)
	require.NotNil(t, r.core.room(r.q, p, 100))
	require.Nil(t, r.core.room(r.q, p, 99))
}

// failedStore takes nothing any more.
type failedStore struct{ store.Store }

func (failedStore) Err() error { return store.ErrFailed }

// TestNothingIsTakenAfterTheStoreFailed: who publishes until the process has ended
// is told so, and not that the outcome is not known.
func TestNothingIsTakenAfterTheStoreFailed(t *testing.T) {
	r := newRig(t, nil)
	p := r.q.policy.Load()
	require.Nil(t, r.core.room(r.q, p, 1))
	r.core.store = failedStore{r.core.store}
	require.Equal(t, wire.CodeStoreFailed, r.core.room(r.q, p, 1).ErrCode)
}

func TestDedupeOverARestart(t *testing.T) {
	dir := t.TempDir()
	inBubble(t, func(t *testing.T) {
		x := startSite(t, dir, nil)
		x.must("fila.admin.queue-create.orders", `{"dedupe_window_ms":60000}`, nil)
		h := nats.Header{wire.HeaderMsgID: {"a"}}
		id := x.enqueue("one", h)
		ch, _ := x.consumer("w", "orders", `{"consumer":"w"}`)
		require.Nil(t, x.ack(<-ch, ""))
		var r wire.EnqueueReply
		require.Nil(t, x.request("fila.enqueue.orders", "two", h, &r))
		require.Equal(t, wire.EnqueueReply{ID: id, Queue: "orders", Duplicate: true}, r, "also when the first is finished")
		time.Sleep(30 * time.Second)
		x.end()
		x = startSite(t, dir, nil)
		r = wire.EnqueueReply{}
		require.Nil(t, x.request("fila.enqueue.orders", "two", h, &r))
		require.True(t, r.Duplicate)
		require.Equal(t, id, r.ID)
		require.Zero(t, x.depth("orders").Bytes)
		time.Sleep(31 * time.Second)
		require.NotEqual(t, id, x.enqueue("three", h), "the window has passed")
		x.end()
	})
}

// TestRefusedEnqueueLeavesNoDedupeID: whoever was refused may try again with the
// same id.
func TestRefusedEnqueueLeavesNoDedupeID(t *testing.T) {
	bubble(t, func(t *testing.T, x *testSite) {
		x.must("fila.admin.queue-create.orders", ``, nil)
		q := x.s.queues.get("orders")
		q.deleted.Store(true) // a deletion that will not happen
		h := nats.Header{wire.HeaderMsgID: {"a"}}
		require.Equal(t, 404, x.request("fila.enqueue.orders", "one", h, nil).Code)
		q.deleted.Store(false)
		var r wire.EnqueueReply
		require.Nil(t, x.request("fila.enqueue.orders", "one", h, &r))
		require.False(t, r.Duplicate)
		require.EqualValues(t, 1, q.depth.Load())
	})
}

// TestReplySubjectsUnderThePrefix: fila does not publish to itself on anybody's
// behalf.
func TestReplySubjectsUnderThePrefix(t *testing.T) {
	bubble(t, func(t *testing.T, x *testSite) {
		x.must("fila.admin.queue-create.orders", ``, nil)
		for _, subject := range []string{"fila.enqueue.orders", "fila.consume.orders", "fila.fetch.orders", "fila.admin.queue-list"} {
			require.NoError(t, x.nc.PublishRequest(subject, "fila.enqueue.orders", []byte(`{"consumer":"w"}`)))
		}
		require.NoError(t, x.nc.PublishRequest("fila.fetch.orders", "elsewhere", nil))
		synctest.Wait()
		n := x.depth("orders")
		require.Zero(t, n.Pending+n.InFlight+n.Delayed+int64(n.Consumers))
	})
}

// TestPolicyWithoutLua reads key, weight and throttle keys from headers.
func TestPolicyWithoutLua(t *testing.T) {
	p := &policy{settings: wire.QueueSettings{FairnessHeader: "tenant", WeightHeader: "weight", ThrottleHeaders: []string{"a", "b", "c"}}}
	d := p.decide("orders", map[string][]string{
		"tenant": {"acme", "other"}, "weight": {"2.5"}, "a": {"x"}, "b": {"x"}, "c": {strings.Repeat("y", 257)},
	}, 0)
	require.Equal(t, "acme", d.FairnessKey)
	require.EqualValues(t, 2500, d.Weight)
	require.EqualValues(t, 1000, d.Cost)
	require.Equal(t, []string{"x"}, d.ThrottleKeys, "once, and no longer than allowed")
	for _, h := range []map[string][]string{nil, {"tenant": {""}, "weight": {"0"}}, {"tenant": {strings.Repeat("k", 257)}, "weight": {"x"}}} {
		d = p.decide("orders", h, 0)
		require.Equal(t, "default", d.FairnessKey)
		require.EqualValues(t, 1000, d.Weight)
	}
}

// TestUpdatesHoldWhenTheyAreAnswered while the loop is late.
func TestUpdatesHoldWhenTheyAreAnswered(t *testing.T) {
	bubble(t, func(t *testing.T, x *testSite) {
		x.must("fila.admin.queue-create.orders", "", nil)
		x.enqueue("x", nil)
		go x.s.queues.get("orders").tell(func(*loop) { time.Sleep(time.Second) })
		synctest.Wait()
		x.must("fila.admin.queue-update.orders", `{"max_pending_per_key":1}`, nil)
		err := x.request("fila.enqueue.orders", "x", nil, nil)
		require.NotNil(t, err)
		require.Equal(t, wire.CodeKeyPending, err.ErrCode)
	})
}
