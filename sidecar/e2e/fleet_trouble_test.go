//go:build unix

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/e2e/natstest"
)

// gatesStream is the stream of the shared bucket.
const gatesStream = "KV_FILA_GATES"

const (
	troubleVendors = 3
	troubleBudget  = 2 // half_open_max_calls
	troubleLimits  = "threshold = 3\ncooldown_ms = 200\nhalf_open_max_calls = 2"
)

// trouble is a fleet under load whose vendors fail and recover, with further trouble in rounds.
// No record ever has too many permits, and after each round nothing is stuck.
type trouble struct {
	f      *fleet
	rng    *rand.Rand // for the test's goroutine only
	broken [troubleVendors]atomic.Bool

	limits *admissions // nil: the fleet shares no limits

	records atomic.Int64 // of circuits, seen by the watch
	permits atomic.Int64 // highest number in one record
}

// newTrouble puts load on a fleet and watches its records.
func newTrouble(t *testing.T, f *fleet, limits *admissions) *trouble {
	t.Helper()
	_, rng := choices(t)
	d := &trouble{f: f, rng: rng, limits: limits}
	js, err := f.nc.JetStream()
	require.NoError(t, err)
	_, err = js.Subscribe("$KV.FILA_GATES.c.*", d.record, nats.OrderedConsumer())
	require.NoError(t, err)
	for i := range f.procs {
		f.deliveries(i, 0, d.handle)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var renewing sync.WaitGroup
	renewing.Go(func() { d.renew(ctx) })
	t.Cleanup(func() {
		cancel()
		renewing.Wait()
	})
	return d
}

// queues returns the number of queues in use.
func (d *trouble) queues() int {
	if d.limits != nil {
		return 2
	}
	return 1
}

// renew registers the consumers again and again, as clients do: a delivery that meets no
// responder, because the connection of the test is down, ends a registration.
func (d *trouble) renew(ctx context.Context) {
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			for i := range d.f.procs {
				for _, queue := range []string{"q0", "q1"}[:d.queues()] {
					_ = d.f.nc.PublishRequest(fleetPrefix(i)+".consume."+queue, nats.NewInbox(), []byte(registration))
				}
			}
		case <-ctx.Done():
			return
		}
	}
}

// record counts the permits in a record of a circuit.
func (d *trouble) record(m *nats.Msg) {
	var rec struct{ Permits map[string]int }
	_ = json.Unmarshal(m.Data, &rec)
	total := int64(0)
	for _, n := range rec.Permits {
		total += int64(n)
	}
	for most := d.permits.Load(); total > most && !d.permits.CompareAndSwap(most, total); most = d.permits.Load() {
		continue
	}
	d.records.Add(1)
}

// handle consumes a message and calls its vendor.
func (d *trouble) handle(m *nats.Msg) {
	answer := "+ACK"
	if v := m.Header.Get("Vendor"); d.broken[v[1]-'0'].Load() {
		answer = `-NAK {"delay": 50000000}`
	}
	_ = d.f.nc.Publish(m.Reply, []byte(answer))
}

// callOf returns a message for fila i that calls a vendor.
func callOf(i, vendor int) *nats.Msg {
	return &nats.Msg{Subject: fleetPrefix(i) + ".enqueue.q0", Header: nats.Header{"Vendor": {fmt.Sprint("v", vendor)}}}
}

// busyUntil publishes until a condition holds. Messages may be lost while a server is down.
func (d *trouble) busyUntil(cond func() bool, msg string) {
	d.f.t.Helper()
	eventually(d.f.t, func() bool {
		_ = d.f.nc.PublishMsg(callOf(d.rng.IntN(len(d.f.procs)), d.rng.IntN(troubleVendors)))
		if d.limits != nil {
			d.limit()
		}
		return cond()
	}, msg)
}

// busy publishes for a while.
func (d *trouble) busy(length time.Duration) {
	end := time.Now().Add(length)
	d.busyUntil(func() bool { return time.Now().After(end) }, "the time has not passed")
}

// upTo returns a random duration below most.
func (d *trouble) upTo(most time.Duration) time.Duration {
	return time.Duration(d.rng.Int64N(int64(most)))
}

// anyFila returns a random fila.
func (d *trouble) anyFila() (i int, p *proc) {
	i = d.rng.IntN(len(d.f.procs))
	return i, d.f.procs[i]
}

// round makes vendors fail, runs do meanwhile, and checks that everything recovers afterwards.
func (d *trouble) round(n int, name string, r reach, do func()) {
	t := d.f.t
	t.Helper()
	begin, records := time.Now(), d.records.Load()
	for v := range d.broken {
		d.broken[v].Store(d.rng.IntN(2) == 0)
	}
	d.broken[n%troubleVendors].Store(true)
	d.busy(300 * time.Millisecond)
	do()
	d.busy(300 * time.Millisecond)
	for v := range d.broken {
		d.broken[v].Store(false)
	}
	d.settle(fmt.Sprintf("round %d: %s", n, name))
	// It may have lost its server, and needs some heartbeats to find the next one.
	eventually(t, func() bool { return d.records.Load() > records }, "the watch of the test brings nothing")
	require.LessOrEqual(t, d.permits.Load(), int64(troubleBudget), "round %d: %s", n, name)
	text := ""
	if d.limits != nil {
		d.settleLimits(fmt.Sprintf("round %d: %s", n, name))
		text = fmt.Sprintf(", %d messages through limits", d.limits.check(t, r, fmt.Sprintf("round %d: %s", n, name)))
	}
	t.Logf("round %d: %s, %.1f s%s", n, name, time.Since(begin).Seconds(), text)
}

// settle waits until every queue is empty and every fila shares again. Then one message for
// each vendor at each fila must close every circuit.
func (d *trouble) settle(when string) {
	t, f := d.f.t, d.f
	t.Helper()
	gone := func() {
		t.Helper()
		for i := range f.procs {
			if !poll(func() bool { return d.depth(i, "q0") == 0 }) {
				require.Fail(t, fmt.Sprintf("%s: fila %d has messages that do not go", when, i), d.ask(i, "queue-inspect.q0"))
			}
		}
	}
	gone()
	for i := range f.procs {
		eventually(t, func() bool { return d.shares(i) }, fmt.Sprintf("%s: fila %d does not share again", when, i))
		for v := range troubleVendors {
			d.enqueue(callOf(i, v), when)
		}
	}
	gone()
	for i := range f.procs {
		if !poll(func() bool { return d.closed(i) }) {
			require.Fail(t, fmt.Sprintf("%s: fila %d has circuits that are not closed", when, i), d.ask(i, "circuit-list"))
		}
	}
}

// enqueue sends a message until its fila has it.
func (d *trouble) enqueue(m *nats.Msg, when string) {
	d.f.t.Helper()
	eventually(d.f.t, func() bool {
		r, err := d.f.nc.RequestMsg(m, time.Second)
		return err == nil && r.Header.Get("Nats-Service-Error") == ""
	}, when)
}

// depth returns the number of messages of a queue of fila i, or -1 without an answer.
func (d *trouble) depth(i int, queue string) int {
	r, err := d.f.nc.Request(fleetPrefix(i)+".admin.queue-inspect."+queue, nil, time.Second)
	var info struct {
		Pending, Parked, Delayed *int
		InFlight                 *int `json:"in_flight"`
	}
	if err != nil || json.Unmarshal(r.Data, &info) != nil || info.Pending == nil || info.Parked == nil || info.Delayed == nil || info.InFlight == nil {
		return -1
	}
	return *info.Pending + *info.Parked + *info.Delayed + *info.InFlight
}

// ask returns the reply of fila i to a verb, for failure messages.
func (d *trouble) ask(i int, verb string) string {
	r, err := d.f.nc.Request(fleetPrefix(i)+".admin."+verb, nil, time.Second)
	if err != nil {
		return err.Error()
	}
	return string(r.Data)
}

// circuits returns the circuits of fila i that are not idle; ok is false without an answer.
func (d *trouble) circuits(i int) (list []fleetCircuit, ok bool) {
	r, err := d.f.nc.Request(fleetPrefix(i)+".admin.circuit-list", nil, time.Second)
	var all struct{ Circuits []fleetCircuit }
	if err != nil || r.Header.Get("Nats-Service-Error") != "" || json.Unmarshal(r.Data, &all) != nil {
		return nil, false
	}
	return all.Circuits, true
}

// shares reports whether fila i reaches what it shares.
func (d *trouble) shares(i int) bool {
	_, text := d.f.procs[i].get("/metrics")
	return strings.Contains(text, "\nfila_shared_degraded 0\n")
}

// closed reports whether all circuits are closed at fila i.
func (d *trouble) closed(i int) bool {
	list, ok := d.circuits(i)
	return ok && !slices.ContainsFunc(list, func(c fleetCircuit) bool { return c.State != "closed" })
}

// killFila kills a random fila, and restarts it later.
func (d *trouble) killFila() {
	_, victim := d.anyFila()
	victim.Kill9(d.f.t)
	d.busy(500 * time.Millisecond)
	victim.Start(d.f.t)
}

// freezeFila freezes a random fila for up to 13 s, long enough that others may take it for
// dead.
func (d *trouble) freezeFila() {
	_, victim := d.anyFila()
	victim.Freeze(d.f.t)
	d.busy(time.Second + d.upTo(12*time.Second))
	victim.Thaw(d.f.t)
}

// finish checks the counts of all rounds.
func (d *trouble) finish(rounds int) {
	t := d.f.t
	t.Helper()
	t.Logf("%d records in %d rounds, at most %d permits", d.records.Load(), rounds, d.permits.Load())
	require.LessOrEqual(t, d.permits.Load(), int64(troubleBudget))
	require.Positive(t, d.permits.Load())
}

// TestFleetOutlivesServers: the bucket has three replicas on three servers. Rounds kill and
// freeze its leader, two servers at once, the cluster's leader, filas, and the links between a
// fila and the servers. All links also stall at random moments after a start, before the
// fleet's clock is known well.
func TestFleetOutlivesServers(t *testing.T) {
	t.Parallel()
	const filas, servers = 3, 3
	c := startCluster(t, servers)
	var links [filas][servers]*link
	f := startFleetOn(t, filas, fleetOptions{
		nats: c.URL(), shared: "replicas = 3\nkeys = [\"circuit:*\", \"throttle:*\"]", limits: troubleLimits, queue: limitQueue, tail: limitTables,
		url: func(i int) string {
			var urls []string
			for s := range servers {
				links[i][s] = newLink(t, c.servers[s].addr)
				urls = append(urls, "nats://"+links[i][s].Addr)
			}
			return strings.Join(urls, ",")
		},
	})
	d := newTrouble(t, f, f.watchLimits())
	led := func() bool { return c.leaderNow(gatesStream) >= 0 }
	all := func(fila int, do func(*link)) {
		for _, l := range links[fila] {
			do(l)
		}
	}
	// during applies bad to the links of a random fila for a while.
	during := func(most time.Duration, bad func(*link)) {
		i, _ := d.anyFila()
		all(i, bad)
		d.busy(most/8 + d.upTo(most))
		all(i, (*link).Heal)
	}
	kinds := []struct {
		name string
		r    reach
		do   func()
	}{
		{"all links stall a moment after a fila has started", started, func() {
			_, victim := d.anyFila()
			victim.Kill9(t)
			victim.Start(t)
			d.busy(d.upTo(5 * time.Second))
			for i := range filas {
				all(i, func(l *link) { l.Stall(toServer, toClient) })
			}
			d.busy(d.upTo(3 * time.Second))
			for i := range filas {
				all(i, (*link).Heal)
			}
		}},
		{"the bucket's leader is killed", away, func() {
			i := c.Leader(gatesStream)
			c.Kill(i)
			d.busyUntil(led, "no server leads the bucket")
			d.busy(d.upTo(time.Second))
			c.Restart(i)
		}},
		{"the bucket's leader is frozen", torn, func() {
			i := c.Leader(gatesStream)
			c.Freeze(i)
			d.busyUntil(led, "no server leads the bucket")
			d.busy(d.upTo(time.Second))
			c.Thaw(i)
		}},
		{"a fila's links are half-open", parted, func() {
			ways := [][]direction{{toServer}, {toClient}, {toServer, toClient}}[d.rng.IntN(3)]
			during(8*time.Second, func(l *link) { l.Stall(ways...) })
		}},
		{"a fila is killed", reached, d.killFila},
		{"a fila is frozen", frozen, d.freezeFila},
		{"the bucket's leader is frozen for a moment", torn, func() {
			i := c.Leader(gatesStream)
			c.Freeze(i)
			d.busy(d.upTo(3 * time.Second))
			c.Thaw(i)
		}},
		{"a fila is cut off", parted, func() { during(4*time.Second, (*link).Cut) }},
		{"two servers are killed", away, func() {
			i := c.Leader(gatesStream)
			other := (i + 1 + d.rng.IntN(servers-1)) % servers
			c.Kill(i)
			c.Kill(other)
			d.busy(d.upTo(6 * time.Second))
			c.Restart(other)
			d.busy(d.upTo(time.Second))
			c.Restart(i)
		}},
		{"a fila's links are slow", reached, func() { during(4*time.Second, func(l *link) { l.Delay(20 * time.Millisecond) }) }},
		{"the cluster's leader and a fila are killed", started, func() {
			i := c.MetaLeader()
			c.Kill(i)
			d.killFila()
			c.Restart(i)
		}},
	}
	// Every fila uses every key before the first round: a fila that meets a key while the bucket
	// is down knows no other instances.
	d.settle("before")
	d.settleLimits("before")
	d.limits.check(t, reached, "before")
	rounds := *flagKills
	if testing.Short() {
		rounds = 1
	}
	for n := range rounds {
		kind := kinds[n%len(kinds)]
		d.round(n, kind.name, kind.r, func() {
			kind.do()
			d.busyUntil(c.healthy, "the servers are not healthy")
		})
	}
	d.finish(rounds)
}

// TestFleetLeavesDeadServer: the server through which a fila shares stops answering. The fila
// changes to another one.
func TestFleetLeavesDeadServer(t *testing.T) {
	t.Parallel()
	n := natstest.Start(t, func(o *server.Options) { o.JetStream, o.Cluster.NoAdvertise = true, true })
	ways := []*link{newLink(t, strings.TrimPrefix(n.URL, "nats://")), newLink(t, strings.TrimPrefix(n.URL, "nats://"))}
	f := startFleetOn(t, 1, fleetOptions{nats: n.URL, url: func(int) string { return "nats://" + ways[0].Addr + ",nats://" + ways[1].Addr }})
	dead := slices.IndexFunc(ways, func(l *link) bool {
		return strings.Contains(f.procs[0].log.String(), "connection=shared url=nats://"+l.Addr)
	})
	require.GreaterOrEqual(t, dead, 0, f.procs[0].log)
	ways[dead].Stall(toServer, toClient)
	missed := false
	eventually(t, func() bool {
		_, text := f.procs[0].get("/metrics")
		missed = missed || strings.Contains(text, "\nfila_shared_degraded 1\n")
		return missed && strings.Contains(text, "\nfila_shared_degraded 0\n")
	}, "it does not share again")
}
