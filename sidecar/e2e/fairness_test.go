package e2e

import (
	"strconv"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
)

// byTenant is the hook of the tutorial: key and weight come from headers.
const byTenant = `
function on_enqueue(msg)
	return { fairness_key = msg.headers["tenant"], weight = tonumber(msg.headers["weight"] or "1") }
end`

// backlog returns n messages of a tenant.
func backlog(queue, tenant string, weight, n int) []*nats.Msg {
	msgs := make([]*nats.Msg, n)
	for i := range msgs {
		msgs[i] = message(queue, strconv.Itoa(i), "tenant", tenant, "weight", strconv.Itoa(weight))
	}
	return msgs
}

// counts returns the deliveries per fairness key.
func counts(ds []delivery) map[string]int {
	out := map[string]int{}
	for _, d := range ds {
		out[d.key()]++
	}
	return out
}

// requireFifo checks that the messages of each flow came in order.
func requireFifo(t testing.TB, ds []delivery) {
	t.Helper()
	next := map[string]int{}
	for _, d := range ds {
		require.Equal(t, strconv.Itoa(next[d.key()]), string(d.Data), "order within %s", d.key())
		next[d.key()]++
	}
}

func TestWeightsThreeToOne(t *testing.T) {
	c := shared(t).client(t)
	queue := c.newQueue(m{"on_enqueue": byTenant})
	c.enqueueAll(backlog(queue, "light", 1, 1500))
	c.enqueueAll(backlog(queue, "heavy", 3, 1800))
	got := c.consume(queue, 32).drain(2000) // both have a backlog all the time: 1,500 and 500
	requireFifo(t, got)
	n := counts(got)
	require.InDelta(t, 0.75, float64(n["heavy"])/2000, 0.01, "%v", n)
	require.InDelta(t, 0.25, float64(n["light"])/2000, 0.01, "%v", n)
}

// TestNoisyTenantCannotDelayAQuietOne checks positions in the order of delivery, so it does not
// depend on speed.
func TestNoisyTenantCannotDelayAQuietOne(t *testing.T) {
	c := shared(t).client(t)
	queue := c.newQueue(m{"fairness_header": "tenant"})
	c.enqueueAll(backlog(queue, "noisy", 1, 5000))
	c.enqueueAll(backlog(queue, "quiet", 1, 50))
	got := c.consume(queue, 16).drain(200)
	requireFifo(t, got)
	quiet := 0
	for i, d := range got {
		if d.key() != "quiet" {
			continue
		}
		quiet++
		// With k-1 quiet ones served before, the bound lets at most k-1+3 noisy ones go first.
		require.LessOrEqual(t, i+1, 2*quiet+2, "position of quiet message %d", quiet)
	}
	require.Equal(t, 50, quiet)
}

// TestHeadersDecideWithoutLua: fairness settings with odd header values.
func TestHeadersDecideWithoutLua(t *testing.T) {
	c := shared(t).client(t)
	queue := c.newQueue(m{"fairness_header": "Tenant", "weight_header": "Weight"})
	k := c.consume(queue, 1)
	for _, tt := range []struct{ want, tenant, weight string }{
		{"acme", "acme", "2"},
		{"acme", "acme", ""},
		{"default", "", "1"},
		{"with space/and:signs", "with space/and:signs", "1"},
	} {
		headers := []string{"Weight", tt.weight}
		if tt.tenant != "" {
			headers = append(headers, "Tenant", tt.tenant)
		}
		c.enqueue(queue, "x", headers...)
		d := k.next()
		require.Equal(t, tt.want, d.key())
		c.accepted(d, "")
	}
	for _, weight := range []string{"not a number", "-1"} {
		c.refusedMsg(400, message(queue, "x", "Weight", weight))
	}
}
