package sidecar

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/hooks"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
)

// TestFailureSettlement says what becomes of a failed attempt.
func TestFailureSettlement(t *testing.T) {
	const script = "function on_failure(msg) end"
	decided := func(a hooks.Action, d time.Duration) *hooks.FailureDecision {
		return &hooks.FailureDecision{Action: a, Delay: d, Decided: true}
	}
	broken := &hooks.FailureDecision{} // the hook failed, or its circuit is open
	nack := wire.Ack{Kind: wire.AckNack, Error: "boom", ErrorCode: "E1"}
	later := wire.Ack{Kind: wire.AckNack, HasDelay: true, Delay: time.Second}
	atOnce := wire.Ack{Kind: wire.AckNack, HasDelay: true}
	term := wire.Ack{Kind: wire.AckTerm, Error: "bad"}
	n := func(v int64) *int64 { return &v }
	for name, tc := range map[string]struct {
		max      *int64
		hook     *hooks.FailureDecision
		attempts uint32 // ended ones before this failure
		ttl      time.Duration
		ack      wire.Ack // zero: the lease runs out
		dlq      string   // reason; empty: it is retried
		delay    time.Duration
		asked    bool // on_failure was
	}{
		"nack without a hook is retried at once":         {ack: nack},
		"an expired lease, too":                          {},
		"a nack's delay is kept":                         {ack: later, delay: time.Second},
		"a nack's delay of zero":                         {ack: atOnce},
		"19 failures are retried by default":             {attempts: 18, ack: nack},
		"the 20th is the last":                           {attempts: 19, ack: nack, dlq: wire.ReasonMaxDeliveries},
		"the 20th expired lease, too":                    {attempts: 19, dlq: wire.ReasonMaxDeliveries},
		"a delay does not help the 20th":                 {attempts: 19, ack: later, dlq: wire.ReasonMaxDeliveries},
		"an explicit limit":                              {max: n(3), attempts: 2, ack: nack, dlq: wire.ReasonMaxDeliveries},
		"below an explicit limit":                        {max: n(3), attempts: 1, ack: nack},
		"no limit":                                       {max: n(0), attempts: 1000, ack: nack},
		"the hook decides on a retry":                    {hook: decided(hooks.Retry, 0), attempts: 1000, ack: nack, asked: true},
		"the hook decides on a delay":                    {hook: decided(hooks.Retry, 3*time.Second), ack: nack, delay: 3 * time.Second, asked: true},
		"the hook decides on an expired lease":           {hook: decided(hooks.Retry, 3*time.Second), delay: 3 * time.Second, asked: true},
		"the hook gives up":                              {hook: decided(hooks.DeadLetter, 0), ack: nack, dlq: wire.ReasonOnFailure, asked: true},
		"an explicit limit binds the hook":               {max: n(2), hook: decided(hooks.Retry, 0), attempts: 1, ack: nack, dlq: wire.ReasonMaxDeliveries, asked: true},
		"no limit and a hook":                            {max: n(0), hook: decided(hooks.Retry, 0), attempts: 50, ack: nack, asked: true},
		"a broken hook falls back to a retry":            {hook: broken, attempts: 18, ack: nack, asked: true},
		"a broken hook falls back to the limit":          {hook: broken, attempts: 19, ack: nack, dlq: wire.ReasonMaxDeliveries, asked: true},
		"a broken hook and no limit":                     {max: n(0), hook: broken, attempts: 1000, ack: nack, asked: true},
		"a nack's delay goes before the hook":            {hook: decided(hooks.DeadLetter, 0), ack: later, delay: time.Second},
		"term asks nobody":                               {hook: decided(hooks.Retry, 0), ack: term, dlq: wire.ReasonTerm},
		"a TTL that passed during the lease":             {ttl: time.Second, dlq: wire.ReasonExpired},
		"a TTL that passed goes before the limit":        {ttl: time.Second, attempts: 19, dlq: wire.ReasonExpired},
		"a TTL that passed goes before the hook's retry": {ttl: time.Second, hook: decided(hooks.Retry, 0), dlq: wire.ReasonExpired, asked: true},
		"a TTL that has not passed":                      {ttl: time.Hour, ack: nack},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, func(s *wire.QueueSettings) {
				s.MaxDeliveries = tc.max
				if tc.hook != nil {
					s.OnFailure = script
				}
			})
			if tc.hook != nil {
				p := *r.q.policy.Load()
				p.onFailure = &guard{} // the test answers for it
				r.q.policy.Store(&p)
			}
			id := r.enqueue("k", func(m *store.Message) {
				m.Attempts = tc.attempts
				if tc.ttl > 0 {
					m.ExpiresAt = r.now + int64(tc.ttl)
				}
			})
			r.loop(r.q).slots.get(1).attempts = tc.attempts
			r.consume(r.q, "w", 1, 0)
			r.commit()
			d := r.one()
			require.Equal(t, tc.attempts+1, d.attempt)
			if tc.ack.Kind != 0 {
				r.ack(d, tc.ack, "reply")
			} else {
				r.pass(30 * time.Second)
				tc.ack.Error = leaseExpired
			}
			require.Len(t, r.jobs, map[bool]int{true: 1}[tc.asked])
			for _, job := range r.jobs {
				require.Equal(t, tc.attempts+1, job.attempts)
				require.Equal(t, tc.ack.Error, job.err)
				require.Equal(t, tc.ack.ErrorCode, job.code)
				r.post(r.q, event{kind: evDecided, decided: &decidedFailure{failureJob: job, decision: *tc.hook}})
			}
			r.commit()
			if tc.dlq != "" {
				settledInDLQ(t, r, id, tc.dlq, tc.ack, tc.attempts+1)
				return
			}
			require.Zero(t, r.dlq.depth.Load())
			if tc.delay > 0 {
				again, _ := r.take()
				require.Empty(t, again, "the delay is waited for")
				r.pass(tc.delay - 1)
				again, _ = r.take()
				require.Empty(t, again)
				_, states := r.stored()
				require.Equal(t, tc.attempts+1, states[store.Ref{Queue: 1, Seq: 1}].Attempts, "a delay is on disk")
				r.pass(1)
			}
			again := r.one()
			require.Equal(t, id, again.id)
			require.Equal(t, tc.attempts+2, again.attempt)
			checkLoop(t, r.loop(r.q), 0, 0)
		})
	}
}

// settledInDLQ checks the dead letter and what is told with it.
func settledInDLQ(t *testing.T, r *rig, id store.ID, reason string, ack wire.Ack, attempts uint32) {
	t.Helper()
	require.Zero(t, r.q.depth.Load())
	require.EqualValues(t, 1, r.dlq.depth.Load())
	require.EqualValues(t, 1, counter(r.q, "dead_lettered"))
	r.consume(r.dlq, "operator", 1, 0)
	r.commit()
	d := r.one()
	require.Equal(t, id, d.id, "a dead letter keeps its id")
	require.EqualValues(t, 1, d.attempt, "and begins to count anew")
	require.Equal(t, "k", d.key)
	require.NoError(t, r.st.Dead([]store.Ref{{Queue: r.dlq.id, Seq: d.seq}}, func(_ int, dead *store.Dead) {
		require.Equal(t, &store.Dead{
			Reason: reason, Error: ack.Error, ErrorCode: ack.ErrorCode, SourceQueue: "orders", At: r.now, Attempts: attempts,
		}, dead)
	}))
	checkLoop(t, r.loop(r.q), 0, 0)
	checkLoop(t, r.loop(r.dlq), 0, 0)
	// A dead letter queue retries for ever, with the delay that a nack names,
	// and +TERM there deletes.
	for range 30 {
		r.ack(d, wire.Ack{Kind: wire.AckNack, Error: "still bad"}, "")
		d = r.one()
	}
	require.EqualValues(t, 31, d.attempt)
	r.ack(d, wire.Ack{Kind: wire.AckTerm}, "reply")
	r.commit()
	require.Zero(t, r.dlq.depth.Load())
	messages, _ := r.stored()
	require.Empty(t, messages)
}

// reasonsLost is a store whose header indexes have gone bad.
type reasonsLost struct{ store.Store }

func (reasonsLost) Dead([]store.Ref, func(int, *store.Dead)) error {
	return &store.CorruptError{File: "fila.db", Part: "index", Segment: 7, Reason: "checksum does not match"}
}

// TestDeadLettersWithoutReason are delivered, shown and explained all the same.
func TestDeadLettersWithoutReason(t *testing.T) {
	r := newRig(t, nil)
	ref := store.Ref{Queue: r.dlq.id, Seq: 1}
	r.st.Submit(&store.Batch{Add: []store.Message{{Ref: ref, Payload: []byte("0123"), Dead: &store.Dead{Reason: "term"}}}})
	r.commit()
	log, text := newTestLog()
	r.core.log, r.core.store = log, reasonsLost{r.core.store}

	d := dispatcher{q: r.dlq, refs: []store.Ref{ref}, index: []int{0}, msgs: []*nats.Msg{nats.NewMsg("x")}}
	d.addDead()
	require.NotNil(t, d.msgs[0])
	require.Contains(t, text.String(), "why messages are dead letters cannot be read; they go out without")

	s := &Server{core: r.core}
	p := peek{s: s, q: r.dlq, room: 1 << 20, req: wire.PeekRequest{PayloadBytes: 4}}
	require.True(t, p.take(&peeked{seq: 1}))
	m := p.reply.Messages[0]
	require.Equal(t, "0123", *m.Payload)
	require.Empty(t, m.Unreadable)
	require.Equal(t, "unknown", m.Dead.Reason)
	require.Contains(t, m.Dead.Error, "checksum does not match")

	f := &found{seq: 1}
	s.explainDead(r.dlq, f)
	require.Contains(t, f.Reason, "Why it is a dead letter cannot be read: ")
	require.Contains(t, f.Reason, "checksum does not match")
}

// TestDeadLettersSayWhy when they are delivered, as far as that can be read.
func TestDeadLettersSayWhy(t *testing.T) {
	r := newRig(t, nil)
	id := store.ID{1}
	r.st.Submit(&store.Batch{Add: []store.Message{
		{Ref: store.Ref{Queue: r.dlq.id, Seq: 1}, ID: id, Dead: &store.Dead{Reason: "term", SourceQueue: "orders", Attempts: 3}},
		{Ref: store.Ref{Queue: r.dlq.id, Seq: 2}, ID: id},
	}})
	r.commit()
	d := dispatcher{q: r.dlq, msgs: make([]*nats.Msg, 5)}
	for i, seq := range []uint64{1, 99, 2} {
		d.refs, d.index = append(d.refs, store.Ref{Queue: r.dlq.id, Seq: seq}), append(d.index, i+1)
		d.msgs[i+1] = nats.NewMsg("x")
	}
	d.msgs[4] = nats.NewMsg("a status")
	d.addDead()
	require.Equal(t, "term", d.msgs[1].Header.Get(wire.HeaderDeadReason))
	require.Equal(t, "3", d.msgs[1].Header.Get(wire.HeaderDeadAttempts))
	for _, m := range d.msgs[2:] {
		require.Empty(t, m.Header)
	}
}
