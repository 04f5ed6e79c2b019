package sidecar

import (
	"fmt"
	"math/big"
	"slices"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/breaker"
	"github.com/filaq/fila/throttle"
)

// ledger is the slow model of the gates: it keeps every delivery and holds each
// new one to what docs/gates.md promises, by looking at all that went before. It
// knows nothing of how package throttle does it.
type ledger struct {
	t   tester
	now func() int64

	// The time that limits count by: it stands still when the clock is set back
	// by more than ten seconds, and until the clock has caught up otherwise.
	at, last int64

	msgs    map[string]*booked // by id
	all     []*booked
	added   int
	flights map[uint64]*flight // by lease
	ever    map[uint64]*flight
	gates   map[string]*gateBook
	paused  map[pauseID]int64
	ordered map[string]string // queue: on_blocked

	settings breaker.Config
	circuits map[string]*circuitBook
	exact    bool // about circuits: the clock has never been set back
}

// booked is a message.
type booked struct {
	id, queue, key, lane string
	n                    int // order of the enqueues
	keys                 []string
	circuit              string
	cost, ready, expires int64
	own                  bool // it has a delay of its own
	taken, failed        bool // the queue knows it; an attempt has failed
	onDisk               bool
	back                 int // how often nobody received it
	gone, goneOnDisk     bool
	flight               *flight
}

// flight is a delivery that has not ended.
type flight struct {
	m        *booked
	lease    uint64
	deadline int64
	went     *delivered
	pass     int // generation of the circuit; 0: none
}

type delivered struct {
	at, cost int64
	undone   bool
}

type gateBook struct {
	limits          throttle.Limits
	bucket, entries []*delivered
}

func newLedger(t tester, now func() int64) *ledger {
	return &ledger{
		t: t, now: now, last: now(), msgs: make(map[string]*booked), flights: make(map[uint64]*flight), ever: make(map[uint64]*flight),
		gates: make(map[string]*gateBook), paused: make(map[pauseID]int64), ordered: make(map[string]string),
		circuits: make(map[string]*circuitBook), exact: true,
	}
}

// tick shows the ledger the time.
func (b *ledger) tick() {
	switch now := b.now(); {
	case now > b.last:
		b.at += now - b.last
		b.last = now
	case b.last-now > 10e9:
		b.last = now
	}
	for _, m := range b.all {
		if m.ready <= b.now() {
			m.ready = 0 // for good
		}
	}
	for id, until := range b.paused {
		if until <= b.now() || until <= b.last && id.kind == "throttle" {
			delete(b.paused, id) // over for good
		}
	}
}

func (b *ledger) gate(key string) *gateBook {
	if b.gates[key] == nil {
		b.gates[key] = &gateBook{}
	}
	return b.gates[key]
}

// limit changes limits. What has been used stays used as far as it was counted.
func (b *ledger) limit(key string, l throttle.Limits) {
	g := b.gate(key)
	old := g.limits
	if l.Rate != old.Rate || burstOf(l) != burstOf(old) {
		g.bucket = nil
	}
	if old.Limit == 0 || l.Window > old.Window {
		g.entries = nil
	}
	g.limits = l
}

// burstOf is the larger of 1 and what the rate brings in a second, if none is set.
func burstOf(l throttle.Limits) int64 {
	if l.Burst != 0 || l.Rate.Per == 0 {
		return l.Burst
	}
	n := new(big.Int).Mul(big.NewInt(l.Rate.Cost), big.NewInt(1e9))
	return max(1000, n.Div(n, big.NewInt(l.Rate.Per)).Int64())
}

// crash is what a crash does to the books: a bucket begins empty, whatever debt a
// message had left it in that cost more than the burst.
func (b *ledger) crash() {
	for _, g := range b.gates {
		if slices.ContainsFunc(g.bucket, func(d *delivered) bool { return d.cost > burstOf(g.limits) }) {
			g.bucket = nil
		}
	}
}

func (b *ledger) inFlight(key string) (n int64) {
	for _, f := range b.flights {
		if slices.Contains(f.m.keys, key) {
			n++
		}
	}
	return n
}

// deliver books a delivery after it has been held to the promises.
func (b *ledger) deliver(queue string, d *delivery) *flight {
	t, now := b.t, b.now()
	m := b.msgs[formatID(d.id)]
	require.NotNil(t, m, "an unknown message")
	at := fmt.Sprintf("message %d of %s, key %q, gates %v, circuit %q", m.n, m.queue, m.key, m.keys, m.circuit)
	require.Equal(t, queue, m.queue, at)
	require.True(t, m.taken, "%s: delivered before it was enqueued", at)
	require.False(t, m.gone, "%s: delivered although it is finished", at)
	require.Nil(t, m.flight, "%s: delivered twice", at)
	require.Nil(t, b.ever[d.lease], "%s: a lease was given twice", at)
	require.LessOrEqual(t, m.ready, now, "%s: delivered before its time", at)
	require.True(t, m.expires == 0 || m.expires > now, "%s: delivered after its time", at)
	for _, id := range append(pausesOf(m.keys), pauseID{"queue", "", m.queue}, pauseID{"key", m.queue, m.key}) {
		require.Zero(t, b.paused[id], "%s: %v is paused", at, id)
	}
	b.checkOrder(m, at)
	w := &delivered{at: b.at, cost: m.cost}
	for _, k := range m.keys {
		g := b.gate(k)
		if c := g.limits.Concurrency; c != 0 {
			require.LessOrEqual(t, b.inFlight(k)+1, c, "%s: in flight at %s", at, k)
		}
		g.bucket, g.entries = append(g.bucket, w), append(g.entries, w)
		g.check(t, at+" at "+k, w)
	}
	f := &flight{m: m, lease: d.lease, deadline: d.deadline, went: w}
	if m.circuit != "" {
		ok := false
		f.pass, ok = b.circuit(m.circuit).allow(now)
		require.True(t, ok || !b.exact, "%s: the circuit is shut", at)
	}
	m.flight = f
	b.flights[d.lease], b.ever[d.lease] = f, f
	return f
}

func pausesOf(keys []string) []pauseID {
	ids := make([]pauseID, len(keys))
	for i, k := range keys {
		ids[i] = pauseID{"throttle", "", k}
	}
	return ids
}

// check holds the delivery w, the last one, to the rate and to the window.
func (g *gateBook) check(t tester, at string, w *delivered) {
	if r := g.limits.Rate; r.Per != 0 {
		var sum, largest int64
		for i := len(g.bucket) - 1; i >= 0; i-- {
			e := g.bucket[i]
			if e.undone {
				continue
			}
			sum, largest = sum+e.cost, max(largest, e.cost)
			most := new(big.Rat).SetFrac(new(big.Int).Mul(big.NewInt(r.Cost), big.NewInt(w.at-e.at)), big.NewInt(r.Per))
			most.Add(most, new(big.Rat).SetInt64(max(burstOf(g.limits), largest)))
			require.LessOrEqual(t, new(big.Rat).SetInt64(sum).Cmp(most), 0,
				"%s: cost %d in %d ns, %s are allowed", at, sum, w.at-e.at, most.FloatString(3))
		}
	}
	if g.limits.Limit != 0 {
		n := int64(0)
		for _, e := range g.entries {
			if !e.undone && w.at-e.at < g.limits.Window {
				n++
			}
		}
		require.LessOrEqual(t, n, g.limits.Limit, "%s: in the window", at)
	}
}

// checkOrder holds m, which is delivered, to the order of its lane and key.
func (b *ledger) checkOrder(m *booked, at string) {
	blocked, ordered := b.ordered[m.queue]
	for _, o := range b.all {
		if o.queue != m.queue || o.key != m.key || o == m {
			continue
		}
		if ordered {
			require.Nil(b.t, o.flight, "%s: message %d of the key is in flight", at, o.n)
		}
		if o.n > m.n || !o.taken || o.gone || o.own || o.flight != nil || o.expires != 0 && o.expires <= b.now() {
			continue
		}
		if ordered && blocked == "wait" {
			require.Fail(b.t, "strict order", "%s: message %d of the key waits", at, o.n)
		}
		// Of those that nobody received, several may change places.
		if o.lane == m.lane && !o.failed && !m.failed && !m.own && (o.back == 0 || m.back == 0) && o.back < 2 && m.back < 2 {
			require.Fail(b.t, "order in a lane", "%s: message %d waits", at, o.n)
		}
	}
}

// end ends a flight.
func (b *ledger) end(f *flight, o breaker.Outcome, undo bool) {
	delete(b.flights, f.lease)
	f.m.flight = nil
	if f.went.undone = undo; undo {
		f.m.back++
	}
	if f.pass != 0 {
		b.circuit(f.m.circuit).done(b.now(), f.pass, o)
		f.pass = 0
	}
}

// expire ends the leases of a queue whose time is over.
func (b *ledger) expire(queue string) {
	var over []*flight
	for _, f := range b.flights {
		if f.m.queue == queue && f.deadline <= b.now() {
			over = append(over, f)
		}
	}
	for _, f := range over {
		b.fail(f, 0)
	}
	for _, m := range b.all {
		if m.queue == queue && m.taken && m.flight == nil && m.expires != 0 && m.expires <= b.now() {
			m.gone = true
		}
	}
}

// fail ends an attempt; the message is ready again after delay.
func (b *ledger) fail(f *flight, delay int64) {
	b.end(f, breaker.Failure, false)
	f.m.failed = true
	if f.m.ready = b.now() + delay; delay == 0 {
		f.m.ready = 0
	}
	if f.m.expires != 0 && f.m.expires <= b.now() {
		f.m.gone = true
	}
}

// add books a message that is enqueued.
func (b *ledger) add(m *booked) {
	keys := slices.Clone(m.keys)
	slices.Sort(keys)
	m.keys = slices.Compact(keys)
	m.lane = strings.Join(append(m.keys, "|"+m.circuit), ",")
	b.added++
	m.n = b.added
	b.msgs[m.id] = m
	b.all = append(b.all, m)
}

func (b *ledger) circuit(key string) *circuitBook {
	c := b.circuits[key]
	if c == nil {
		c = &circuitBook{cfg: b.settings, gen: 1}
		b.circuits[key] = c
	}
	return c
}
