package shard

import (
	"cmp"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/breaker"
	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/sidecar/rules"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// verdictRules has one rule, of the same name, for each of the codes that tests use.
func verdictRules(r *rig) {
	no := false
	r.setRules(
		[]rules.RetryPolicy{{Name: "later", InitialDelayMs: 2000}, {Name: "never", Retry: &no}},
		[]rules.ErrorRule{
			{Name: "C", Code: "C", Severity: rules.Critical},
			{Name: "H", Code: "H", Severity: rules.High, RetryPolicy: "later"},
			{Name: "L", Code: "L", Severity: rules.Low, MessageFault: true},
			{Name: "N", Code: "N", RetryPolicy: "never"},
		})
}

// TestVerdicts: on_failure counts first, then the delay of the nack, the rules, the queue's
// retry policy, and its default backoff. Circuit and severity always come from the rules.
func TestVerdicts(t *testing.T) {
	const (
		retry = `function on_failure(msg) return { action = "retry", delay_ms = 3000 } end`
		dead  = `function on_failure(msg) return { action = "dlq" } end`
		fails = `function on_failure(msg) error("no") end`
		plain = `function on_failure(msg) return { action = "retry" } end`
		none  = `function on_failure(msg) return { action = "retry", delay_ms = 0 } end`
		told  = `function on_failure(msg)
			if not msg.requested_delay_ms then return { action = "dlq" } end
			return { action = "retry", delay_ms = 2 * msg.requested_delay_ms }
		end`
		routed = `function on_failure(msg) return { action = "retry", delay_ms = 1000 * #(msg.route or "") } end`
	)
	for name, tc := range map[string]struct {
		hook, policy, code string
		route              string
		delay              time.Duration // of the nack; -1: none
		want               queue.Verdict
		severity           string
		event              string
	}{
		"nothing":                           {delay: -1, want: queue.Verdict{DecidedBy: wire.DecidedByDefault, Delay: 1e9}},
		"the nack's delay":                  {delay: time.Second, want: queue.Verdict{DecidedBy: wire.DecidedByConsumer, Delay: 1e9}},
		"the nack's delay of zero":          {delay: 0, policy: "later", want: queue.Verdict{DecidedBy: wire.DecidedByConsumer}},
		"the hook before it":                {hook: retry, delay: time.Second, want: queue.Verdict{Delay: 3e9, DecidedBy: wire.DecidedByHook}},
		"the hook gives up all the same":    {hook: dead, delay: time.Second, want: queue.Verdict{DecidedBy: wire.DecidedByHook, Reason: wire.ReasonOnFailure}},
		"the hook leaves it to the nack":    {hook: plain, delay: time.Minute, want: queue.Verdict{Delay: 60e9, DecidedBy: wire.DecidedByHook}},
		"the hook wants none":               {hook: none, delay: time.Minute, want: queue.Verdict{DecidedBy: wire.DecidedByHook}},
		"the hook names none, nor the nack": {hook: plain, policy: "later", delay: -1, want: queue.Verdict{DecidedBy: wire.DecidedByHook}},
		"a broken hook leaves it to it":     {hook: fails, delay: time.Minute, code: "C", want: queue.Verdict{DecidedBy: wire.DecidedByConsumer, Delay: 60e9}, severity: rules.Critical},
		"the hook decides":                  {hook: told, delay: 1500 * time.Millisecond, want: queue.Verdict{Delay: 3e9, DecidedBy: wire.DecidedByHook}},
		"the hook decides to dead-letter":   {hook: told, delay: -1, want: queue.Verdict{DecidedBy: wire.DecidedByHook, Reason: wire.ReasonOnFailure}},
		"the hook knows the route":          {hook: routed, route: "openai", delay: -1, want: queue.Verdict{Delay: 6e9, DecidedBy: wire.DecidedByHook}},
		"the hook sees no route":            {hook: routed, delay: -1, want: queue.Verdict{DecidedBy: wire.DecidedByHook}},
		"before the rules":                  {code: "C", delay: time.Second, want: queue.Verdict{DecidedBy: wire.DecidedByConsumer, Delay: 1e9}, severity: rules.Critical},
		"and yet no fault of the circuit":   {code: "L", delay: 0, want: queue.Verdict{DecidedBy: wire.DecidedByConsumer, Outcome: breaker.Neutral}, severity: rules.Low},
		"the hook retries":                  {hook: retry, delay: -1, want: queue.Verdict{Delay: 3e9, DecidedBy: wire.DecidedByHook}},
		"the hook gives up":                 {hook: dead, delay: -1, want: queue.Verdict{DecidedBy: wire.DecidedByHook, Reason: wire.ReasonOnFailure}},
		"the hook before the rules":         {hook: retry, code: "C", delay: -1, want: queue.Verdict{Delay: 3e9, DecidedBy: wire.DecidedByHook}, severity: rules.Critical},
		"a broken hook":                     {hook: fails, delay: -1, want: queue.Verdict{DecidedBy: wire.DecidedByDefault, Delay: 1e9}},
		"a broken hook leaves it to a rule": {hook: fails, code: "C", delay: -1, want: queue.Verdict{DecidedBy: wire.DecidedByRule, Reason: wire.ReasonCritical}, severity: rules.Critical, event: wire.EventFailureCritical},
		"a critical rule":                   {code: "C", delay: -1, want: queue.Verdict{DecidedBy: wire.DecidedByRule, Reason: wire.ReasonCritical}, severity: rules.Critical, event: wire.EventFailureCritical},
		"a rule with a policy":              {code: "H", route: "openai", delay: -1, want: queue.Verdict{DecidedBy: wire.DecidedByRule, Delay: 2e9}, severity: rules.High, event: wire.EventFailureHigh},
		"a rule that never retries":         {code: "N", delay: -1, want: queue.Verdict{DecidedBy: wire.DecidedByRule, Reason: wire.ReasonRetryPolicy}},
		"a mild rule":                       {code: "L", delay: -1, want: queue.Verdict{DecidedBy: wire.DecidedByDefault, Delay: 1e9, Outcome: breaker.Neutral}, severity: rules.Low},
		"the queue's policy":                {policy: "later", delay: -1, want: queue.Verdict{DecidedBy: wire.DecidedByPolicy, Delay: 2e9}},
		"the queue's policy never retries":  {policy: "never", delay: -1, want: queue.Verdict{DecidedBy: wire.DecidedByPolicy, Reason: wire.ReasonRetryPolicy}},
		"a policy that is gone":             {policy: "gone", delay: -1, want: queue.Verdict{DecidedBy: wire.DecidedByDefault, Delay: 1e9}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				verdictRules(r)
				q := r.create(func(s *wire.QueueSettings) {
					s.OnFailure, s.RetryPolicy, s.RetryInitialMs, s.RetryJitter = tc.hook, tc.policy, 1000, 0
				})
				f := queue.Failure{
					Seq: 1, ID: store.ID{1}, Attempts: 1, Key: "k", Route: tc.route, Error: "boom", Code: tc.code, Confirm: queue.Confirmation{Subject: "reply"},
					HasDelay: tc.delay >= 0, Delay: int64(max(tc.delay, 0)), Fresh: &queue.Message{},
				}
				got := q.run.judge.judge(&f)
				tc.want.Failure, tc.want.Rule = f, tc.code // rules are named like their codes
				if tc.want.Outcome != breaker.Neutral {
					tc.want.Outcome = breaker.Failure
				}
				require.Equal(t, &tc.want, got)
				severity := cmp.Or(tc.severity, rules.Medium)
				require.Contains(t, scrape(t, r), `fila_failures_total{queue="orders",severity="`+severity+`"} 1`)
				told := append(r.news(wire.EventFailureCritical), r.news(wire.EventFailureHigh)...)
				if tc.event == "" {
					require.Empty(t, told)
					return
				}
				require.Len(t, told, 1)
				data := map[string]any{"id": formatID(f.ID), "error": "boom", "error_code": tc.code, "rule": tc.code, "attempts": uint32(1)}
				if tc.route != "" {
					data["route"] = tc.route
				}
				require.Equal(t, wire.Event{Type: tc.event, Queue: "orders", Key: "k", Data: data}, told[0])
			})
		})
	}
}

// TestRetriesWaitByDefault: nacks and expired leases are retried after a wait that doubles,
// whatever else judges failures; dead letters are available at once.
func TestRetriesWaitByDefault(t *testing.T) {
	bubble(t, func(r *rig) {
		q := r.create(func(s *wire.QueueSettings) {
			s.RetryInitialMs, s.RetryMaxMs, s.RetryJitter, s.VisibilityTimeoutMs = 1000, 4000, 0, 10_000
			s.MaxDeliveries = new(int64(6))
		})
		r.consume(q, "w", 1)
		require.Nil(t, r.enqueue("x", "", nil))
		for i, wait := range []time.Duration{1, 2, 4, 4} {
			m := r.one("w")
			if i == 1 {
				time.Sleep(10 * time.Second) // the lease expires
			} else {
				r.ack(m, nack, "")
			}
			time.Sleep(wait*time.Second - 300*time.Millisecond)
			r.none("w")
			time.Sleep(400 * time.Millisecond)
		}
		r.ack(r.one("w"), wire.Ack{Kind: wire.AckNack, HasDelay: true, Delay: time.Minute}, "")
		time.Sleep(time.Minute - time.Millisecond)
		r.none("w")
		time.Sleep(time.Second)
		r.ack(r.one("w"), nack, "")
		require.EqualValues(t, 1, q.DLQ().Depth())

		r.consume(q.DLQ(), "d", 1)
		for range 3 {
			r.ack(r.one("d"), nack, "")
		}
		r.ack(r.one("d"), done, "")
		require.Zero(t, q.DLQ().Depth())
	})
}

// TestStoredQueuesWithoutARetryWait: stored settings without a retry wait get the default.
func TestStoredQueuesWithoutARetryWait(t *testing.T) {
	bubble(t, func(r *rig) {
		byID, err := r.shard.recoverQueues([]store.QueueRecord{
			{ID: 1, Name: "orders", Settings: []byte(`{"name":"orders","visibility_timeout_ms":5000}`)},
			{ID: 2, Name: "orders.dlq", Settings: []byte(`{"name":"orders.dlq"}`)},
		})
		require.NoError(t, err)
		want := wire.DefaultQueueSettings("orders")
		want.VisibilityTimeoutMs = 5000
		require.Equal(t, want, byID[1].Settings())
		require.True(t, byID[1].run.settings().Judge)
	})
}

// TestRetriesAreSpread: full jitter keeps messages that failed together from returning together.
func TestRetriesAreSpread(t *testing.T) {
	bubble(t, func(r *rig) {
		q := r.create(func(s *wire.QueueSettings) { s.RetryInitialMs = 1000 })
		few, many := 0, 0
		for range 1000 {
			v := q.run.judge.judge(&queue.Failure{Attempts: 4})
			require.GreaterOrEqual(t, v.Delay, int64(0))
			require.Less(t, v.Delay, int64(8e9))
			if v.Delay < 4e9 {
				few++
			} else {
				many++
			}
		}
		require.InDelta(t, few, many, 300)
	})
}

// TestFailuresAreJudged outside of the step: credit returns at once, the circuit gets the
// verdict, and the nack is answered when the outcome is on disk.
func TestFailuresAreJudged(t *testing.T) {
	bubble(t, func(r *rig) {
		verdictRules(r)
		q := r.create(func(s *wire.QueueSettings) { s.CircuitHeader = "to" })
		r.consume(q, "w", 1)
		for _, tc := range []struct {
			code string
			want breaker.Outcome
			dead int64
		}{{"H", breaker.Failure, 0}, {"L", breaker.Neutral, 0}, {"C", breaker.Failure, 1}} {
			require.Nil(t, r.enqueue(tc.code, "", nat("to", "stripe")))
			m := r.one("w")
			require.Equal(t, tc.code, string(m.Data))
			r.ack(m, wire.Ack{Kind: wire.AckNack, Error: "boom", ErrorCode: tc.code}, "nack")
			require.Equal(t, []breaker.Outcome{tc.want}, r.circuit.ended(), tc.code)
			require.EqualValues(t, tc.dead, q.DLQ().Depth())
			time.Sleep(2 * time.Second)
			require.Empty(t, r.one("nack").Data)
			if tc.dead == 0 {
				r.ack(r.one("w"), done, "")
				require.Equal(t, []breaker.Outcome{breaker.Success}, r.circuit.ended())
			}
		}
	})
}

// TestJudgingFollowsTheRules: failures are judged while there is anything that may decide.
func TestJudgingFollowsTheRules(t *testing.T) {
	bubble(t, func(r *rig) {
		q := r.create(nil)
		r.consume(q, "w", 1)
		fail := func(code string) {
			t.Helper()
			require.Nil(t, r.enqueue(code, "", nil))
			r.ack(r.one("w"), wire.Ack{Kind: wire.AckNack, ErrorCode: code}, "")
		}
		judges := func(want bool) {
			t.Helper()
			q.run.mu.Lock()
			defer q.run.mu.Unlock()
			require.Equal(t, want, q.run.settings().Judge)
		}
		judges(false)
		fail("C")
		r.ack(r.one("w"), done, "")
		require.Zero(t, q.DLQ().Depth())
		verdictRules(r)
		fail("C")
		require.EqualValues(t, 1, q.DLQ().Depth())
		judges(true)
		r.setRules(nil, nil)
		fail("C")
		require.EqualValues(t, 1, q.DLQ().Depth())
		r.ack(r.one("w"), done, "")
		judges(false)
		require.Contains(t, scrape(t, r), `fila_failures_total{queue="orders",severity="medium"} 2`)
		require.Contains(t, scrape(t, r), `fila_failures_total{queue="orders",severity="critical"} 1`)
		for _, change := range []func(*wire.QueueSettings){
			func(s *wire.QueueSettings) { s.RetryPolicy = "later" },
			func(s *wire.QueueSettings) { s.RetryPolicy, s.RetryInitialMs = "", 1000 },
			func(s *wire.QueueSettings) { s.RetryInitialMs, s.OnFailure = 0, "function on_failure(msg) end" },
		} {
			r.update(q, change)
			judges(true)
		}
	})
}

// update changes the settings of a queue.
func (r *rig) update(q *Queue, change func(*wire.QueueSettings)) {
	r.t.Helper()
	_, werr := q.Update(func(s wire.QueueSettings) (wire.QueueSettings, *wire.Error) {
		change(&s)
		return s, nil
	})
	require.Nil(r.t, werr)
}

// TestFailuresAreLogged by severity, without those that the hook or the nack decides, and one
// line of a kind in ten seconds.
func TestFailuresAreLogged(t *testing.T) {
	bubble(t, func(r *rig) {
		verdictRules(r)
		q := r.create(nil)
		lines := func(f queue.Failure) string {
			t.Helper()
			before := r.log.String()
			f.ID, f.Key, f.Attempts, f.Error = store.ID{1}, "acme", 3, "boom"
			q.run.judge.judge(&f)
			return strings.TrimPrefix(r.log.String(), before)
		}
		id := formatID(store.ID{1})
		require.Contains(t, lines(queue.Failure{Code: "L"}), `level=INFO msg="attempt failed" queue=orders id=`+id+` key=acme attempts=3 error=boom error_code=L severity=low rule=L suppressed=0`)
		require.Contains(t, lines(queue.Failure{}), `level=WARN msg="attempt failed"`)
		require.Contains(t, lines(queue.Failure{Code: "N"}), `severity=medium rule=N suppressed=0`)
		for range 4 {
			require.Empty(t, lines(queue.Failure{}))
		}
		time.Sleep(10 * time.Second)
		require.Empty(t, lines(queue.Failure{HasDelay: true}))
		require.Contains(t, lines(queue.Failure{}), `severity=medium rule="" suppressed=4`)
		require.Empty(t, lines(queue.Failure{}))
	})
}

// TestOnFailureGetsTheHeaders of messages in memory and on disk.
func TestOnFailureGetsTheHeaders(t *testing.T) {
	bubble(t, func(r *rig) {
		q := r.create(func(s *wire.QueueSettings) {
			s.OnFailure = `function on_failure(msg)
				fila.log("info", msg.id .. " " .. msg.queue .. " " .. msg.attempts .. " " .. msg.error .. " " .. msg.headers["Own"])
				return { action = "dlq" }
			end`
		})
		r.consume(q, "w", 1)
		for i, wait := range []time.Duration{0, time.Second} {
			require.Nil(t, r.enqueue("x", "", nats.Header{"Own": {"value-" + strconv.Itoa(i)}}))
			m := r.one("w")
			time.Sleep(wait)
			r.ack(m, nack, "")
			require.Contains(t, r.log.String(), m.Header.Get(wire.HeaderID)+" orders 1 boom value-"+strconv.Itoa(i))
			require.EqualValues(t, i+1, q.DLQ().Depth())
		}
		require.NotContains(t, r.log.String(), "level=ERROR")
	})
}

// TestHeadersThatCannotBeRead are empty for on_failure, and the log says why.
func TestHeadersThatCannotBeRead(t *testing.T) {
	bubble(t, func(r *rig) {
		q := r.create(func(s *wire.QueueSettings) { s.OnFailure = "function on_failure(msg) end" })
		in := q.run.judge.input(&queue.Failure{Fresh: &queue.Message{Message: store.Message{Headers: []byte{0xff}}}})
		require.Empty(t, in.Headers)
		require.Contains(t, r.log.String(), "headers of a message cannot be decoded")
		in = q.run.judge.input(&queue.Failure{Seq: 99})
		require.Empty(t, in.Headers)
		require.NotContains(t, r.log.String(), "headers for on_failure cannot be read")
		r.store.spoil(badPlaces{read: errCorrupt})
		q.run.judge.input(&queue.Failure{Seq: 99})
		require.Contains(t, r.log.String(), "headers for on_failure cannot be read")
	})
}

// TestFailuresWithoutAVerdictAtTheEnd: the attempt ends after the next start, when its lease
// expires.
func TestFailuresWithoutAVerdictAtTheEnd(t *testing.T) {
	bubble(t, func(r *rig) {
		q := r.create(func(s *wire.QueueSettings) { s.OnFailure = "function on_failure(msg) end" })
		q.run.end()
		q.run.judge.post([]queue.Failure{{Confirm: queue.Confirmation{Subject: "nack"}}})
		require.Equal(t, wire.CodeDraining, r.refused("nack").ErrCode)
	})
}

// TestASlowHookDelaysOnlyItsFailures: not even steps of its own queue.
func TestASlowHookDelaysOnlyItsFailures(t *testing.T) {
	bubble(t, func(r *rig) {
		q := r.create(func(s *wire.QueueSettings) { s.OnFailure = "function on_failure(msg) end" })
		r.consume(q, "w", 2)
		require.Nil(t, r.enqueue("one", "", nil))
		m := r.one("w")
		q.run.judge.failures.mu.Lock()
		q.run.judge.failures.mu.running = true // so that none is judged
		q.run.judge.failures.mu.Unlock()
		r.ack(m, nack, "nack")
		require.Nil(t, r.enqueue("two", "", nil))
		two := r.one("w")
		require.Equal(t, "two", string(two.Data))
		r.ack(two, done, "")
		r.none("nack")
		open := 0
		q.View(func(m *queue.Queue, _ queue.Role, _ int64) { open = m.Open() })
		require.Equal(t, 1, open, "the shutdown waits for it")
		q.run.stopped.Go(q.run.judge.run)
		require.Equal(t, "one", string(r.one("w").Data))
		synctest.Wait()
		require.EqualValues(t, 1, q.Hooks()[0].Runs)
	})
}

func TestHooks(t *testing.T) {
	bubble(t, func(r *rig) {
		r.control.values = map[string]string{"tenant": "acme"}
		q := r.create(func(s *wire.QueueSettings) {
			s.OnEnqueue = `function on_enqueue(msg)
				if msg.payload_size == 0 then error("empty") end
				return { fairness_key = fila.get("tenant"), weight = "heavy" }
			end`
			s.OnFailure = "function on_failure(msg) end"
			s.LuaCircuitBreakerThreshold = 2
		})
		require.Nil(t, r.enqueue("x", "", nil))
		r.consume(q, "w", 10)
		require.Equal(t, "acme", r.one("w").Header.Get(wire.HeaderKey))
		for range 3 {
			require.Nil(t, r.enqueue("", "", nil))
			require.Equal(t, "default", r.one("w").Header.Get(wire.HeaderKey))
		}
		list := q.Hooks()
		require.Len(t, list, 2)
		require.Equal(t, api.HookInfo{
			Hook: wire.HookOnEnqueue, State: "open", Runs: 3, Failures: 2, Bypassed: 1, Warnings: 1, ConsecutiveFailures: 2, LastError: list[0].LastError,
		}, list[0])
		require.Contains(t, list[0].LastError, "empty")
		require.Equal(t, wire.HookOnFailure, list[1].Hook)
		told := r.news(wire.EventHookCircuitChanged)
		require.Len(t, told, 1)
		require.Equal(t, "open", told[0].Data["new"])

		r.CountHooks()
		r.CountHooks()
		metrics := scrape(t, r)
		for _, line := range []string{
			`fila_hook_runs_total{hook="on_enqueue",queue="orders"} 3`, `fila_hook_failures_total{hook="on_enqueue",queue="orders"} 2`,
			`fila_hook_bypassed_total{hook="on_enqueue",queue="orders"} 1`, `fila_hook_warnings_total{queue="orders"} 1`,
		} {
			require.Contains(t, metrics, line)
		}

		require.False(t, q.DLQ().ResetHooks(""))
		require.True(t, q.ResetHooks(wire.HookOnFailure))
		require.Equal(t, "open", q.Hooks()[0].State)
		require.True(t, q.ResetHooks(""))
		require.Equal(t, "closed", q.Hooks()[0].State)
	})
}
