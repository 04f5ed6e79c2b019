package queue_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/sidecar/queue/queuetest"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/throttle"
	"github.com/filaq/fila/throttle/adapt"
	"github.com/filaq/fila/throttle/adapt/provider"
	"github.com/filaq/fila/wire"
)

// tenantWeights are the weights of ten tenants.
var tenantWeights = []int64{500, 1000, 1000, 1500, 2000, 2500, 3000, 4000, 5000, 8000}

// tenants is a queue with backlogs of ten tenants behind one limit that learns. Each of its
// deliveries is a call of a simulated provider.
type tenants struct {
	*rig
	costs
	waits []delivery // deliveries whose calls have not begun
	calls map[int]delivery
	begun bool // all tenants have waited at the limit
	takes int
	rnd   *rand.Rand
}

func newTenants(t *testing.T, sc *provider.Scenario, seed uint64) *tenants {
	f := queuetest.NewFleet(t)
	f.Pacing = queue.DefaultPacing
	set := queue.Settings{QueueSettings: wire.DefaultQueueSettings("calls")}
	set.VisibilityTimeoutMs, set.MaxDeliveries = 1e9, new(int64)
	r := f.Create(set)
	f.Run()
	c := &tenants{rig: r, calls: make(map[int]delivery), rnd: rand.New(rand.NewPCG(seed, 2)), costs: costs{
		t: t, large: throttle.One, flows: make(map[string]*costFlow),
		messages: make(map[store.ID]costMessage), span: make(map[[2]string][2]int64),
	}}
	r.LimitNow("provider", throttle.Limits{Concurrency: int64(sc.Ceiling), Adapt: adapt.Settings{
		Min: int64(sc.Ceiling) * throttle.One / 15, Backoff: adapt.DefaultBackoff, Grow: throttle.One,
		GrowPerS: int64(sc.GrowPerS * throttle.One), Start: int64(sc.Start * throttle.One),
	}})
	for i, weight := range tenantWeights {
		key := fmt.Sprint("tenant-", i)
		c.flows[key] = &costFlow{weight: weight}
		c.keys = append(c.keys, key)
		c.put(key, 40)
	}
	r.Consume(queue.Main, "w", 1000, 0)
	// The first messages have gone by the schedule alone. From here on all tenants wait.
	c.take()
	c.begun = true
	return c
}

// put fills up the messages of a tenant that wait.
func (c *tenants) put(key string, to int) {
	for f := c.flows[key]; f.left < to; f.left++ {
		id := c.Enqueue(key, func(m *store.Message) { m.Weight, m.ThrottleKeys = uint32(f.weight), []string{"provider"} })
		c.messages[id] = costMessage{expected: throttle.One, real: throttle.One}
	}
}

// take takes the deliveries, and has the messages of their tenants replaced.
func (c *tenants) take() {
	c.Run()
	if c.takes++; c.takes%100 == 0 {
		c.Commit()
	}
	for _, d := range c.Deliveries() {
		if c.begun {
			c.delivered(d)
		} else {
			c.flows[d.Key].left--
		}
		c.waits = append(c.waits, d)
	}
	for _, key := range c.keys {
		if left := c.flows[key].left; left <= 10 {
			require.NotZero(c.costs.t, left, "%s has no backlog", key)
			c.put(key, 20)
		}
	}
}

// Begin implements [provider.Caller].
func (c *tenants) Begin(number int, now int64) (ok bool, again int64) {
	if c.Pass(time.Duration(queuetest.Start + now - c.Now)); len(c.waits) == 0 {
		c.take()
	}
	if len(c.waits) == 0 {
		return false, now + int64(c.Next())
	}
	c.calls[number] = c.waits[0]
	c.waits = c.waits[1:]
	return true, 0
}

// Done implements [provider.Caller].
func (c *tenants) Done(call *provider.Call, now int64) {
	c.Pass(time.Duration(queuetest.Start + now - c.Now))
	d, a := c.calls[call.Number], done
	delete(c.calls, call.Number)
	if call.Refused {
		a = wire.Ack{Kind: wire.AckNack, ErrorCode: "429", HasDelay: true, Delay: time.Duration(c.rnd.Int64N(2e9))}
		c.flows[d.Key].left++ // it waits again
	}
	c.Ack(d, a, "")
	c.take()
}

// Cuts implements [provider.Caller].
func (c *tenants) Cuts() uint64 { return learned(c.rig, "provider").Cuts }

var flagSeeds = flag.Uint64("fila.seeds", 5, "number of simulations of a provider that tenants share")

// Ten tenants share a learned limit by weight at every moment, while the provider's capacity falls
// and comes back and the limit is cut and grows: the services of each pair differ by no more than
// the bound of drr.Line, without a quantum. The provider is used as docs/limits-that-learn.md says.
func TestTenantsShareALearnedLimitByWeight(t *testing.T) {
	t.Parallel()
	sc := provider.Scenarios()[0]
	worst, calls, cuts := 0.0, 0, uint64(0)
	for seed := range *flagSeeds {
		c := newTenants(t, &sc, seed)
		r := provider.RunCallers(sc, seed, c)
		require.Greater(t, r.Cuts, uint64(20))
		require.GreaterOrEqual(t, r.Lowest, provider.Enough)
		require.LessOrEqual(t, r.RefusedPart(), 0.01)
		require.LessOrEqual(t, float64(r.Recovered)/1e9, sc.Ceiling/sc.GrowPerS)
		worst, calls, cuts = max(worst, c.worst), calls+r.Calls, cuts+r.Cuts
		check(c.rig)
	}
	t.Logf("%d calls, %d cuts: service by weight differed by up to %.2f of the bound", calls, cuts, worst)
}
