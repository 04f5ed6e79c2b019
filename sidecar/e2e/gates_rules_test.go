package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// rulesFile are the rules of the test below.
const rulesFile = `
[circuit_defaults]
threshold = 1
cooldown_ms = 3600000

[[retry_policy]]
name = "backoff"
initial_delay_ms = 80
multiplier = 3
max_delay_ms = 300
max_retries = 4

[[retry_policy]]
name = "once"
retry = false

[[error_rule]]
name = "fatal"
code = "FATAL"
severity = "critical"

[[error_rule]]
name = "bad-input"
code = "INPUT"
severity = "low"
message_fault = true
retry_policy = "backoff"

[[error_rule]]
name = "upstream"
pattern = "(?i)timeout|^5[0-9][0-9] "
severity = "high"
retry_policy = "backoff"

[[error_rule]]
name = "again"
code = "AGAIN"
retry = true

[[queue]]
name = "plain"
circuit_header = "dest"

[[queue]]
name = "policy"
retry_policy = "once"
`

// failed takes the next delivery, nacks it, and returns when that was.
func (k *consumer) failed(code, text string) (delivery, time.Time) {
	k.c.t.Helper()
	d := k.next()
	at := time.Now()
	k.c.accepted(d, fmt.Sprintf(`-NAK {"code":%q,"error":%q}`, code, text))
	return d, at
}

// dead takes the next message of a dead letter queue and checks why it is there.
func (k *consumer) dead(id, reason string, attempts int) delivery {
	k.c.t.Helper()
	d := k.next()
	require.Equal(k.c.t, id, d.id())
	require.Equal(k.c.t, reason, d.Header.Get("Fila-Dead-Reason"))
	require.Equal(k.c.t, fmt.Sprint(attempts), d.Header.Get("Fila-Dead-Attempts"))
	k.c.accepted(d, "")
	return d
}

func TestErrorRulesAndRetryPolicies(t *testing.T) {
	t.Parallel()
	p := startFila(t, options{tail: rulesFile})
	c := p.client(t)
	k := c.consume("plain", 1)
	dlq := c.consume("plain.dlq", 1)

	t.Run("critical", func(t *testing.T) {
		events := c.events("failure-critical.plain")
		id := c.enqueue("plain", "x").ID
		k.failed("FATAL", "gone wrong")
		d := dlq.dead(id, "critical", 1)
		require.Equal(t, "gone wrong", d.Header.Get("Fila-Dead-Error"))
		require.Equal(t, "FATAL", d.Header.Get("Fila-Dead-Error-Code"))
		e := nextEvent(t, events)
		require.Equal(t, "plain", e.Queue)
		require.Equal(t, m{"id": id, "error": "gone wrong", "error_code": "FATAL", "rule": "fatal", "attempts": 1.0}, e.Data)
		require.EqualValues(t, 1, p.metric(t, "fila_failures_total", "queue", "plain", "severity", "critical"))
	})
	t.Run("backoff and max_retries", func(t *testing.T) {
		events := c.events("failure-high.plain")
		id := c.enqueue("plain", "x").ID
		before := p.metric(t, "fila_failures_total", "queue", "plain", "severity", "high")
		var sent time.Time
		for attempt, wait := range []time.Duration{0, 80, 240, 300, 300} {
			d, at := k.failed("", "503 upstream")
			require.Equal(t, attempt+1, d.attempt(t))
			if attempt > 0 {
				require.GreaterOrEqual(t, flightOf(t, d, defaultVisibility).start, sent.Add(wait*time.Millisecond).UnixNano(), "attempt %d", attempt+1)
			}
			sent = at
			require.Equal(t, "upstream", nextEvent(t, events).Data["rule"])
		}
		dlq.dead(id, "retry_policy", 5)
		require.EqualValues(t, before+5, p.metric(t, "fila_failures_total", "queue", "plain", "severity", "high"))
	})
	t.Run("the policy of the queue", func(t *testing.T) {
		k, dlq := c.consume("policy", 1), c.consume("policy.dlq", 1)
		id := c.enqueue("policy", "x").ID
		k.failed("AGAIN", "the rule says so")
		k.failed("", "nobody knows this one")
		dlq.dead(id, "retry_policy", 2)
	})
	t.Run("whose fault it is", func(t *testing.T) {
		c.enqueue("plain", "x", "dest", "api")
		for attempt := 1; attempt <= 3; attempt++ {
			d, _ := k.failed("INPUT", "cannot be parsed")
			require.Equal(t, attempt, d.attempt(t))
		}
		require.Equal(t, "closed", c.circuit("api").State)
		require.Zero(t, c.circuit("api").ConsecutiveFailures)
		k.failed("", "timeout")
		require.Equal(t, "open", c.circuit("api").State)
		require.EqualValues(t, 3, p.metric(t, "fila_failures_total", "queue", "plain", "severity", "low"))
	})
}
