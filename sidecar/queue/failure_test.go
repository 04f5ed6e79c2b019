package queue_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/breaker"
	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/sidecar/queue/inspect"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
)

// TestFailures ends attempts with a failure, with a verdict and without.
func TestFailures(t *testing.T) {
	const script = "function on_failure(msg) end"
	byHook := func(reason string, d time.Duration) *queue.Verdict {
		return &queue.Verdict{Reason: reason, Delay: int64(d), DecidedBy: wire.DecidedByHook}
	}
	retry := &queue.Verdict{Outcome: breaker.Failure} // nobody has decided
	boom := wire.Ack{Kind: wire.AckNack, Error: "boom", ErrorCode: "E1"}
	later := wire.Ack{Kind: wire.AckNack, HasDelay: true, Delay: time.Second}
	atOnce := wire.Ack{Kind: wire.AckNack, HasDelay: true}
	bad := wire.Ack{Kind: wire.AckTerm, Error: "bad"}
	n := func(v int64) *int64 { return &v }
	for name, tc := range map[string]struct {
		max      *int64
		verdict  *queue.Verdict // nil: nobody judges
		attempts uint32         // ended ones before this failure
		ttl      time.Duration
		ack      wire.Ack // zero: the lease runs out
		dlq      string   // reason; empty: it is retried
		delay    time.Duration
		silent   bool // it is not judged although failures are
	}{
		"a nack is retried at once":                          {ack: boom},
		"an expired lease, too":                              {},
		"a nack's delay is kept":                             {ack: later, delay: time.Second},
		"a nack's delay of zero":                             {ack: atOnce},
		"19 failures are retried by default":                 {attempts: 18, ack: boom},
		"the 20th is the last":                               {attempts: 19, ack: boom, dlq: wire.ReasonMaxDeliveries},
		"the 20th expired lease, too":                        {attempts: 19, dlq: wire.ReasonMaxDeliveries},
		"a delay does not help the 20th":                     {attempts: 19, ack: later, dlq: wire.ReasonMaxDeliveries},
		"an explicit limit":                                  {max: n(3), attempts: 2, ack: boom, dlq: wire.ReasonMaxDeliveries},
		"below an explicit limit":                            {max: n(3), attempts: 1, ack: boom},
		"no limit":                                           {max: n(0), attempts: 1000, ack: boom},
		"the hook decides on a retry":                        {verdict: byHook("", 0), attempts: 1000, ack: boom},
		"the hook decides on a delay":                        {verdict: byHook("", 3*time.Second), ack: boom, delay: 3 * time.Second},
		"the hook decides on an expired lease":               {verdict: byHook("", 3*time.Second), delay: 3 * time.Second},
		"the hook gives up":                                  {verdict: byHook(wire.ReasonOnFailure, 0), ack: boom, dlq: wire.ReasonOnFailure},
		"an explicit limit binds the hook":                   {max: n(2), verdict: byHook("", 0), attempts: 1, ack: boom, dlq: wire.ReasonMaxDeliveries},
		"no limit and a hook":                                {max: n(0), verdict: byHook("", 0), attempts: 50, ack: boom},
		"a verdict of nobody is a retry":                     {verdict: retry, attempts: 18, ack: boom},
		"a verdict of nobody falls back to the limit":        {verdict: retry, attempts: 19, ack: boom, dlq: wire.ReasonMaxDeliveries},
		"a verdict of nobody and no limit":                   {max: n(0), verdict: retry, attempts: 1000, ack: boom},
		"a rule gives up":                                    {verdict: &queue.Verdict{Reason: wire.ReasonCritical}, ack: boom, dlq: wire.ReasonCritical},
		"the limit goes before a rule":                       {verdict: &queue.Verdict{Reason: wire.ReasonCritical}, attempts: 19, ack: boom, dlq: wire.ReasonMaxDeliveries},
		"a rule delays":                                      {verdict: &queue.Verdict{Delay: 2e9}, ack: boom, delay: 2 * time.Second},
		"term asks nobody":                                   {verdict: retry, ack: bad, dlq: wire.ReasonTerm, silent: true},
		"a TTL that passed during the lease":                 {ttl: time.Second, dlq: wire.ReasonExpired},
		"a TTL that passed goes before the limit":            {ttl: time.Second, attempts: 19, dlq: wire.ReasonExpired},
		"a TTL that passed goes before the verdict to retry": {ttl: time.Second, verdict: byHook("", 0), dlq: wire.ReasonExpired},
		"a TTL that has not passed":                          {ttl: time.Hour, ack: boom},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, func(s *queue.Settings) {
				s.MaxDeliveries, s.Judge = tc.max, tc.verdict != nil
				if tc.verdict != nil {
					s.OnFailure = script
				}
			})
			id := r.Enqueue("k", func(m *store.Message) {
				m.Attempts = tc.attempts
				if tc.ttl > 0 {
					m.ExpiresAt = r.Now + int64(tc.ttl)
				}
			})
			queue.Slot(r.M, queue.Main, 1).Attempts = tc.attempts
			r.Consume(queue.Main, "w", 1, 0)
			r.Commit()
			r.Answers = nil
			d := r.One()
			require.Equal(t, tc.attempts+1, d.Token.Attempt)
			reply := ""
			if tc.ack.Kind != 0 {
				reply = "reply"
				r.Ack(d, tc.ack, reply)
			} else {
				r.Pass(30 * time.Second)
				tc.ack.Error = queue.LeaseExpired
			}
			require.Len(t, r.Judge, map[bool]int{true: 1}[tc.verdict != nil && !tc.silent])
			for _, f := range r.Judge {
				require.Equal(t, queue.Failure{
					Seq: 1, ID: id, Attempts: tc.attempts + 1, Key: "k", Error: tc.ack.Error, Code: tc.ack.ErrorCode,
					HasDelay: tc.ack.HasDelay, Delay: int64(tc.ack.Delay), Confirm: queue.Confirmation{Subject: reply},
				}, f)
				v := *tc.verdict
				v.Failure = f
				r.Post(queue.Input{Kind: queue.Judged, Verdict: &v})
				r.Run()
			}
			r.Commit()
			if reply != "" {
				require.Equal(t, []string{reply}, subjects(r))
			}
			if tc.dlq != "" {
				deadLettered(t, r, id, tc.dlq, tc.ack, tc.attempts+1)
				return
			}
			require.Zero(t, r.Depth[queue.Dead])
			if tc.delay > 0 {
				require.Empty(t, r.Deliveries(), "the delay is waited for")
				r.Pass(tc.delay - 1)
				require.Empty(t, r.Deliveries())
				_, states, _ := r.Disk.Stored()
				require.Equal(t, tc.attempts+1, states[ref(r, queue.Main, 1)].Attempts, "a delay is on disk")
				r.Pass(1)
			}
			again := r.One()
			require.Equal(t, id, again.ID)
			require.Equal(t, tc.attempts+2, again.Token.Attempt)
			check(r)
		})
	}
}

// deadLettered checks the dead letter and its report.
func deadLettered(t *testing.T, r *rig, id store.ID, reason string, ack wire.Ack, attempts uint32) {
	t.Helper()
	require.Zero(t, r.Depth[queue.Main])
	require.EqualValues(t, 1, r.Depth[queue.Dead])
	r.Consume(queue.Dead, "operator", 1, 0)
	r.Commit()
	d := r.One()
	require.Equal(t, id, d.ID, "a dead letter keeps its id")
	require.EqualValues(t, 1, d.Token.Attempt, "and begins to count anew")
	require.Equal(t, "k", d.Key)
	require.NoError(t, r.Disk.Dead([]store.Ref{ref(r, queue.Dead, d.Token.Seq)}, func(_ int, dead *store.Dead) {
		require.Equal(t, &store.Dead{
			Reason: reason, Error: ack.Error, ErrorCode: ack.ErrorCode, SourceQueue: "orders", At: r.Now, Attempts: attempts,
		}, dead)
	}))
	check(r)
	// A dead letter queue retries for ever, and +TERM there deletes.
	for range 30 {
		r.Ack(d, wire.Ack{Kind: wire.AckNack, Error: "still bad"}, "")
		d = r.One()
	}
	require.Len(t, r.Judge, min(len(r.Judge), 1), "nobody judges what dead letters do")
	require.EqualValues(t, 31, d.Token.Attempt)
	r.Ack(d, term, "reply")
	r.Commit()
	require.Zero(t, r.Depth[queue.Dead])
	messages, _, _ := r.Disk.Stored()
	require.Empty(t, messages)
}

// A verdict counts for the attempt that it is about, and once.
func TestALateVerdictChangesNothing(t *testing.T) {
	r := newRig(t, func(s *queue.Settings) { s.Judge = true })
	r.Consume(queue.Main, "w", 1, 0)
	r.Gated("k")
	r.Ack(r.One(), nack, "")
	f := r.Judge[0]
	require.Equal(t, inspect.StateFailing, r.Find(queue.Main, f.ID).State)
	judge := func(f queue.Failure, reason string) {
		r.Post(queue.Input{Kind: queue.Judged, Verdict: &queue.Verdict{Failure: f, Reason: reason}})
		r.Run()
	}
	judge(f, "")
	d := r.One()
	f.Confirm.Subject = "late"
	judge(f, wire.ReasonCritical)
	require.True(t, current(r, d))
	r.Ack(d, nack, "")
	judge(f, wire.ReasonCritical)
	require.Equal(t, inspect.StateFailing, r.Find(queue.Main, f.ID).State, "its second attempt is judged now")
	r.Commit()
	require.Contains(t, subjects(r), "late")
	judge(r.Judge[1], wire.ReasonCritical)
	require.Zero(t, r.Depth[queue.Main])
}
