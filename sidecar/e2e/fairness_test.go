package e2e

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
)

// byTenant is the hook of the tour: key and weight come from headers.
const byTenant = `
function on_enqueue(msg)
	return { fairness_key = msg.headers["tenant"], weight = tonumber(msg.headers["weight"] or "1") }
end`

// backlog builds n messages of a tenant.
func backlog(queue, tenant string, weight, n int) []*nats.Msg {
	msgs := make([]*nats.Msg, n)
	for i := range msgs {
		msgs[i] = message(queue, strconv.Itoa(i), "tenant", tenant, "weight", strconv.Itoa(weight))
	}
	return msgs
}

// counts says how often each fairness key was delivered.
func counts(ds []delivery) map[string]int {
	out := map[string]int{}
	for _, d := range ds {
		out[d.key()]++
	}
	return out
}

// requireFifo checks that each flow came in the order of its payload numbers.
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
	got := c.consume(queue, 32).drain(2000) // both stay backlogged: 1,500 and 500
	requireFifo(t, got)
	n := counts(got)
	require.InDelta(t, 0.75, float64(n["heavy"])/2000, 0.01, "%v", n)
	require.InDelta(t, 0.25, float64(n["light"])/2000, 0.01, "%v", n)
}

// TestFiveWeights needs no Lua: the queue names the headers.
func TestFiveWeights(t *testing.T) {
	c := shared(t).client(t)
	queue := c.newQueue(m{"fairness_header": "tenant", "weight_header": "weight"})
	var msgs []*nats.Msg
	for i := range 2000 { // the flows arrive interleaved
		for w := 1; w <= 5; w++ {
			msgs = append(msgs, message(queue, strconv.Itoa(i), "tenant", fmt.Sprint("t", w), "weight", strconv.Itoa(w)))
		}
	}
	c.enqueueAll(msgs)
	const window = 5000
	got := c.consume(queue, 64).drain(window)
	requireFifo(t, got)
	n := counts(got)
	served := map[string]int{}
	for i, d := range got { // the bound holds at any moment, not only at the end
		served[d.key()]++
		for a := 1; a <= 5; a++ {
			for b := 1; b < a; b++ {
				lag := float64(served[fmt.Sprint("t", a)])/float64(a) - float64(served[fmt.Sprint("t", b)])/float64(b)
				bound := 1 + 1/float64(a) + 1/float64(b)
				require.LessOrEqual(t, max(lag, -lag), bound+1e-9, "DRR bound of %d and %d after %d deliveries", a, b, i+1)
			}
		}
	}
	for w := 1; w <= 5; w++ {
		require.InDelta(t, float64(w)/15, float64(n[fmt.Sprint("t", w)])/window, 0.005, "weight %d of %v", w, n)
	}
}

// TestNoisyTenantCannotDelayAQuietOne looks at positions in the order of
// delivery, so it says nothing about speed.
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

// TestQuietTenantArrivesLate enqueues into a running backlog of many tenants:
// the new message waits for at most one turn of each.
func TestQuietTenantArrivesLate(t *testing.T) {
	c := shared(t).client(t)
	queue := c.newQueue(m{"fairness_header": "tenant"})
	const tenants = 20
	var msgs []*nats.Msg
	for i := range tenants {
		msgs = append(msgs, backlog(queue, fmt.Sprint("noisy", i), 1, 100)...)
	}
	c.enqueueAll(msgs)
	k := c.consume(queue, 1)
	for round := range 5 {
		held := k.next() // the only credit is in use: nothing is picked meanwhile
		c.enqueue(queue, "", "tenant", fmt.Sprint("quiet", round))
		require.NoError(t, held.Respond(nil))
		for position := 1; ; position++ {
			require.LessOrEqual(t, position, tenants+1, "one turn of each other flow at most")
			d := k.next()
			require.NoError(t, d.Respond(nil))
			if d.key() == fmt.Sprint("quiet", round) {
				break
			}
		}
	}
}

func TestCostIsCharged(t *testing.T) {
	c := shared(t).client(t)
	queue := c.newQueue(m{"on_enqueue": `
		function on_enqueue(msg)
			return { fairness_key = msg.headers["tenant"], cost = msg.headers["tenant"] == "costly" and 4 or 1 }
		end`})
	c.enqueueAll(backlog(queue, "cheap", 1, 1000))
	c.enqueueAll(backlog(queue, "costly", 1, 300))
	n := counts(c.consume(queue, 16).drain(1000))
	require.InDelta(t, 0.8, float64(n["cheap"])/1000, 0.01, "equal shares of cost: %v", n)
}

func TestWeightOverrideActsOnTheBacklog(t *testing.T) {
	c := shared(t).client(t)
	queue := c.newQueue(m{"fairness_header": "tenant"})
	c.enqueueAll(backlog(queue, "a", 1, 1000))
	c.enqueueAll(backlog(queue, "b", 1, 1000))
	k := c.consume(queue, 1)
	n := counts(k.drain(200))
	require.InDelta(t, 100, n["a"], 2, "%v", n)
	c.call("fila.admin.config-set.weight:"+queue+":a", m{"value": "3"}, nil)
	k.drain(2) // what was on its way, and the rest of a turn
	n = counts(k.drain(800))
	require.InDelta(t, 600, n["a"], 6, "%v", n)
	c.call("fila.admin.config-delete.weight:"+queue+":a", nil, nil)
	k.drain(4)
	n = counts(k.drain(200))
	require.InDelta(t, 100, n["a"], 4, "%v", n)
}

// TestLatestEnqueueSetsTheWeight of the whole flow.
func TestLatestEnqueueSetsTheWeight(t *testing.T) {
	c := shared(t).client(t)
	queue := c.newQueue(m{"fairness_header": "tenant", "weight_header": "weight"})
	c.enqueueAll(backlog(queue, "a", 1, 999))
	c.enqueueAll(backlog(queue, "b", 1, 999))
	c.enqueueAll(backlog(queue, "a", 4, 1))
	n := counts(c.consume(queue, 8).drain(1000))
	require.InDelta(t, 800, n["a"], 8, "%v", n)
}

// TestHeadersDecideWithoutLua covers what the settings do with odd values.
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
