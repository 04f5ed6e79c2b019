package queuetest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/breaker"
	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
)

// place is where a message is.
type place uint8

const (
	posted  place = iota // on its way into its machine
	waiting              // ready, or until its time
	leased               // with a consumer
	judged               // its last attempt is being judged
	moving               // to the other side, or by a job to the end of its own, in a commit that is not done
	claimed              // for a job
	stuck                // it could not be moved: it is on disk only
	gone                 // finished, or lost
)

// message models a message.
type message struct {
	store.Class // ThrottleKeys are sorted
	id          store.ID
	node        *node
	side        queue.Role
	place       place
	lane        string // what it waits with: key and gates
	size        int64
	dedupe      bool
	counted     *keyCount // where the intake has counted its key
	going       *going    // by a job, to the end of its side
	enqueued    int64

	n       int    // order of arrival on its side
	seq     uint64 // of its side
	expires int64  // 0: never
	ready   int64  // until when it is delayed; 0: it is ready, for good

	attempts uint32
	redriven bool // it is behind others that were enqueued later
	own      bool // it has a delay of its own, or came back by a redrive
	failed   bool // an attempt has failed
	back     int  // how often nobody received it
	exempt   bool // from strict order: it is older than that

	flight    *flight
	pass      int    // of the circuit of by, while it is judged
	by        way    // of the attempt that is judged
	began     int64  // the attempt that is judged
	submitted bool   // the store has its Add
	confirmed bool   // its producer knows that it is safe
	batch     int    // it came in an atomic batch; 0: it did not
	scheduled bool   // it came with an entry of its own id that the owner keeps
	finished  bool   // a consumer knows that it is finished
	least     uint32 // ended attempts that a consumer knows to be on disk
	picks     int    // how often a job has claimed it
	hurried   hurry  // an operator knows that its delay is over
	past      historyModel
}

// hurry is set if the delay before an attempt was ended by hand.
type hurry struct {
	attempts uint32
	at       int64 // 0: it was not
}

func (m *message) String() string {
	return fmt.Sprintf("message %d of %s (sequence %d), key %q, gates %v, circuit %q, routes %s, cost %d, priority %d, attempt %d",
		m.n, m.node.sideName(m.side), m.seq, m.Key, m.ThrottleKeys, m.CircuitKey, m.routesText(), int64(m.Cost), m.Priority, m.attempts+1)
}

// here reports whether the machine has it, and is not moving it out.
func (m *message) here() bool { return m.place == waiting || m.place == leased || m.place == judged }

// going describes a message that a job moves to the end of its role.
type going struct {
	queue.Moved
	counted *keyCount // where it has been counted already
}

// placed reports whether it has a slot in its role.
func (m *message) placed() bool { return m.here() || m.place == claimed || m.settles() }

// settles reports whether a job moves it; it keeps its slot until that is done.
func (m *message) settles() bool {
	return m.place == moving && (m.side == queue.Dead || m.going != nil)
}

// isReady reports whether its time has come.
func (m *message) isReady() bool { return m.place == waiting && m.ready == 0 }

// flight is a lease.
type flight struct {
	m        *message
	lease    uint64
	attempt  uint32
	at       int64 // when it was delivered
	deadline int64
	extended []int64 // all deadlines that extensions have given it
	known    int     // how many of them its consumer knows of: that one, or a later one, is on disk
	consumer string
	reg      int      // registration that it was delivered under
	went     *passage // nil: it went in an earlier process
	spent    *passage // for budgets, which outlive processes
	by       way
	pass     int // of the circuit; 0: none
}

// client is a consumer or a fetch.
type client struct {
	name     string
	fetch    bool
	form     store.DeliveryForm
	limit    int // max_in_flight, or what is left of a fetch
	expires  int64
	reg      int
	restored bool
	away     int64 // until when it is left alone; 0: it is not
	noWait   bool
}

// ask is an expected answer.
type ask struct {
	kind    askKind
	node    *node
	m       *message
	f       *flight
	value   int64  // what has to be on disk: attempts, deadline
	refused bool   // it has to be refused
	data    string // the answer
}

type askKind uint8

const (
	askEnqueue askKind = iota
	askDuplicate
	askFinish // an ack after which the message never comes back
	askFail   // a nack
	askProgress
	askMove // a term of a message that becomes a dead letter
	askData
)

// node is a machine with its model.
type node struct {
	*Rig
	s           *Sim
	settings    queue.Settings
	dispatching bool
	sides       [queue.Roles]*roleModel
	failures    map[string]*failureModel
	grace       int64    // until when restored consumers get time
	pre         []func() // what the inputs of the next step do to the model
	want        expectation
	picks       [][]queue.ClaimedMessage // claimed, and not yet decided about
	picking     bool                     // a claim is posted
	handling    bool                     // so is a purge, or something about one message
	finishing   bool                     // the next step is the last one
	priorities  bool                     // messages have some
	reordered   bool                     // the settings of the order have changed
	held        map[string]bool          // throttle keys of which a reservation held a part before the step
}

// roleModel models a role apart from its messages.
type roleModel struct {
	seq       uint64
	paused    int64
	keys      map[string]int64  // paused ones
	overrides map[string]uint32 // weights that operators have set
	latest    map[string]uint32 // weights of the latest arrivals
	clients   map[string]*client
	fair      fairModel
	served    map[string]int64 // when a key was delivered from last
	starves   map[string]bool  // keys of which the machine has said so
}

// expectation holds the expected effects of a step.
type expectation struct {
	counters [queue.Roles]queue.Counters
	judge    map[store.ID]queue.Failure
	dead     map[store.ID]string
	notes    []string
	held     []string
	refused  []string
	claimed  []uint64
	pick     bool
	handled  *byHand
}

// failureModel counts the failures of a key.
type failureModel struct {
	limit, window int64
	times         []int64
}

// keyCount counts messages by fairness key.
type keyCount struct{ n map[string]int64 }

func newKeyCount() *keyCount { return &keyCount{make(map[string]int64)} }

// Add implements queue.KeyCounts.
func (k *keyCount) Add(key string, n int64) {
	if k.n[key] += n; k.n[key] == 0 {
		delete(k.n, key)
	}
}

func newRoleModel() *roleModel {
	return &roleModel{
		served: make(map[string]int64), starves: make(map[string]bool),
		keys: make(map[string]int64), overrides: make(map[string]uint32), latest: make(map[string]uint32), clients: make(map[string]*client),
	}
}

func (n *node) sideName(s queue.Role) string {
	if s == queue.Dead {
		return wire.DLQ(n.Name)
	}
	return n.Name
}

func (n *node) visibility() int64 { return n.settings.VisibilityTimeoutMs * 1e6 }

func (n *node) ordered() bool { return n.settings.Ordering == wire.OrderingKey }

// later runs fn on the model when the machine makes its next step.
func (n *node) later(fn func()) { n.pre = append(n.pre, fn) }

// tell posts a change, and fn, which applies it to the model.
func (n *node) tell(s queue.Role, c queue.Change, fn func()) {
	n.Tell(s, c)
	n.later(fn)
}

func (n *node) counters(s queue.Role) *queue.Counters { return &n.want.counters[s] }

// expect begins a step.
func (n *node) expect() {
	n.want = expectation{judge: make(map[store.ID]queue.Failure), dead: make(map[store.ID]string)}
	n.held = make(map[string]bool)
	for i := range throttleKeys {
		n.held[throttleKey(i)] = n.s.Held(throttleKey(i)) > 0
	}
	pre := n.pre
	n.pre = nil
	for _, fn := range pre {
		fn()
	}
	n.expire()
}

// expire ends leases, delays, TTLs and registrations that are due.
func (n *node) expire() {
	now := n.Now
	for _, side := range n.sides {
		for _, c := range side.clients {
			if c.away != 0 && c.away <= now {
				c.away = 0
			}
		}
	}
	for s := range queue.Roles {
		var over []*flight
		for _, m := range n.s.all {
			if m.node == n && m.side == s && m.place == leased && m.flight.deadline <= now {
				over = append(over, m.flight)
			}
		}
		slices.SortFunc(over, func(a, b *flight) int {
			return cmp.Or(cmp.Compare(a.deadline, b.deadline), cmp.Compare(a.lease, b.lease))
		})
		for _, f := range over {
			n.counters(s).Expired++
			n.fail(f, wire.AttemptExpired, queue.Failure{Error: "lease expired"}, 0)
		}
		for _, m := range n.s.all {
			if m.node == n && m.side == s && m.place == waiting && m.expires != 0 && m.expires <= now {
				n.bury(m, wire.ReasonExpired)
			}
		}
		side := n.sides[s]
		for _, c := range sortedClients(side.clients) {
			if c.expires == 0 || c.expires > now {
				continue
			}
			if c.fetch {
				continue // ends with a status
			}
			n.lose(s, c, "registration not renewed")
		}
	}
}

func sortedClients(clients map[string]*client) []*client {
	all := make([]*client, 0, len(clients))
	for _, c := range clients {
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b *client) int { return cmp.Compare(a.name, b.name) })
	return all
}

func (n *node) inFlight(s queue.Role, consumer string) int {
	k := 0
	for _, m := range n.s.all {
		if m.node == n && m.side == s && m.place == leased && m.flight.consumer == consumer {
			k++
		}
	}
	return k
}

// credit is how many more messages a client may receive.
func (n *node) credit(s queue.Role, c *client) int {
	switch {
	case c.away != 0:
		return 0
	case c.fetch:
		return c.limit
	}
	return max(0, c.limit-n.inFlight(s, c.name))
}

func (n *node) lose(s queue.Role, c *client, why string) {
	delete(n.sides[s].clients, c.name)
	n.want.notes = append(n.want.notes, fmt.Sprint("lost ", s, " ", c.name, " ", why, " ", n.inFlight(s, c.name)))
}

// current returns the flight that a token names, or nil.
func (n *node) current(s queue.Role, t wire.Token) *flight {
	f := n.s.flights[t.Lease]
	if f == nil || f.m.node != n || f.m.side != s || f.m.seq != t.Seq || f.attempt != t.Attempt || f.m.place != leased || f.m.flight != f {
		return nil
	}
	return f
}

// land ends a flight and returns its throttle keys and credit.
func (n *node) land(f *flight, undo bool) {
	m := f.m
	m.flight = nil
	for _, k := range f.by.throttles {
		n.s.gate(k).inFlight--
	}
	if undo && f.went != nil {
		f.went.undone, f.spent.undone = true, true
	}
}

// circuitDone tells the circuit of the way of a flight, and no other, its outcome.
func (n *node) circuitDone(f *flight, o breaker.Outcome) {
	if f.pass != 0 {
		n.s.circuit(f.by.circuit).done(n.Now, f.pass, o)
	}
}

// circuitDecided is circuitDone for a failure of m that was judged.
func (n *node) circuitDecided(m *message, o breaker.Outcome) {
	if m.pass != 0 {
		n.s.circuit(m.by.circuit).decided(n.Now, m.pass, o)
	}
}

// complete finishes a message for good.
func (n *node) complete(f *flight, o breaker.Outcome) {
	m := f.m
	n.land(f, false)
	n.circuitDone(f, o)
	if o == breaker.Success {
		n.succeeded(f.by)
	}
	n.drop(m)
}

// drop takes a message out of the accounts of its side.
func (n *node) drop(m *message) {
	t := n.counters(m.side)
	t.Messages--
	t.Bytes -= m.size
	m.place = gone
}

// takeBack puts a message back that nobody received.
func (n *node) takeBack(f *flight) {
	m := f.m
	n.land(f, true)
	n.circuitDone(f, breaker.Neutral)
	m.place = waiting
	m.back++
	m.own = m.own || f.went == nil // of an earlier process: it goes to the head of what was recovered
	n.sides[m.side].fair.putBack(m.Key, int64(m.Cost))
	n.counters(m.side).TakenBack++
}

// fail ends an attempt.
func (n *node) fail(f *flight, outcome string, why queue.Failure, retryAfter int64) {
	m, now := f.m, n.Now
	m.attempts++
	m.past.last = n.ended(f, outcome, m.attempts)
	m.past.last.Error, m.past.last.Code = why.Error, why.Code
	judge := m.side == queue.Main && n.settings.Judge
	n.land(f, false)
	if judge {
		if m.pass, m.by, m.began = f.pass, f.by, f.at; m.pass != 0 {
			n.s.circuit(m.by.circuit).suspect(m.pass)
		}
	} else if m.side == queue.Main {
		n.circuitDone(f, breaker.Failure)
	}
	if f.by.circuit != "" && retryAfter > 0 {
		n.s.circuit(f.by.circuit).retryAfter(now, now+retryAfter)
	}
	if m.side == queue.Main {
		if expired := outcome == wire.AttemptExpired; expired || !judge && wire.OverloadCode(why.Code) {
			n.overloaded(f.by, f.at, expired)
		}
		n.countFailure(m.Key)
	}
	if judge {
		m.place = judged
		why.Role, why.Seq, why.ID, why.Attempts, why.Key, why.Route = m.side, m.seq, m.id, m.attempts, m.Key, f.by.name
		n.want.judge[m.id] = why
		return
	}
	if m.side == queue.Main { // dead letters have no severity
		n.counters(m.side).Failed++
	}
	delay, by := int64(0), wire.DecidedByDefault
	if why.HasDelay {
		delay, by = why.Delay, wire.DecidedByConsumer
	}
	n.conclude(m, "", delay, by)
}

// conclude retries or dead-letters a message whose attempt has failed.
func (n *node) conclude(m *message, reason string, delay int64, by string) {
	m.failed = true
	p := m.past.last
	p.DecidedBy = by
	if m.side == queue.Main {
		limit := n.settings.DeliveryLimit(by == wire.DecidedByHook)
		switch {
		case m.expires != 0 && m.expires <= n.Now:
			reason, p.DecidedBy = wire.ReasonExpired, wire.DecidedByTTL
		case limit > 0 && int64(m.attempts) >= limit:
			reason, p.DecidedBy = wire.ReasonMaxDeliveries, wire.DecidedByLimit
		}
		if reason != "" {
			p.Reason = reason
			m.past.expect(p)
			n.bury(m, reason)
			return
		}
	}
	p.Delay = delay
	m.past.expect(p)
	m.place, m.ready = waiting, 0
	if delay > 0 {
		m.ready = n.Now + delay
	}
}

// bury dead-letters a message of Main.
func (n *node) bury(m *message, reason string) {
	n.drop(m)
	m.place = moving
	n.want.dead[m.id] = reason
	n.sides[queue.Main].fair.reset(m.Key)
	t := n.counters(queue.Main)
	if reason == wire.ReasonExpired {
		t.TTLExpired++
	}
	d := n.counters(queue.Dead)
	d.Messages++
	d.Bytes += m.size
}

// countFailure expects a pause of a key that has failed too often.
func (n *node) countFailure(key string) {
	s := &n.settings
	limit, window := s.MaxFailuresPerKey, s.FailureWindowMs*1e6
	if limit <= 0 {
		return
	}
	if window == 0 {
		window = 60e9
	}
	b := n.failures[key]
	if b == nil {
		b = &failureModel{}
		n.failures[key] = b
	}
	b.times = slices.DeleteFunc(b.times, func(at int64) bool { return at <= n.Now-window })
	if b.limit != limit || b.window != window {
		b.limit, b.window = limit, window
		b.times = b.times[max(0, len(b.times)-int(limit)):]
	}
	if int64(len(b.times)) < limit {
		b.times = append(b.times, n.Now)
		return
	}
	delete(n.failures, key)
	until := int64(queue.Forever)
	if s.FailureHoldMs > 0 {
		until = n.Now + s.FailureHoldMs*1e6
	}
	n.want.held = append(n.want.held, fmt.Sprint(key, " until ", until))
	if n.s.exact && n.sides[queue.Main].keys[key] < until {
		n.holdKey(queue.Main, key, until)
	}
}

// arrive adds a message to a role. It has no gates in Dead.
func (n *node) arrive(m *message, s queue.Role, seq uint64) {
	n.s.arrivals++
	m.side, m.place, m.seq, m.n = s, waiting, seq, n.s.arrivals
	n.s.refs[store.Ref{Queue: n.IDs[s], Seq: seq}] = m
	if s == queue.Dead || n.ordered() {
		m.Priority = 0
	}
	m.setLane()
	if n.sides[s].keys[m.Key] != 0 {
		n.sides[s].fair.spoil(m.Key)
	}
	n.sides[s].latest[m.Key] = m.Weight
	if n.sides[s].overrides[m.Key] == 0 {
		n.sides[s].fair.weigh(m.Key, int64(m.Weight))
	}
}

// classify gives m another class.
func (m *message) classify(c store.Class) {
	m.Class = c
	m.ThrottleKeys = slices.Sorted(slices.Values(c.ThrottleKeys))
}

func (m *message) setLane() {
	m.lane = m.Key + "|" + strings.Join(m.ThrottleKeys, ",") + "|" + m.CircuitKey + m.routesText()
}

// deliver checks a delivery against all guarantees, and models it.
func (n *node) deliver(d *queue.Delivery) {
	t, now := n.T, n.Now
	m := n.s.byID[d.ID]
	if m == nil {
		require.Fail(t, "an unknown message", "%x", d.ID)
		return
	}
	fail := func(what string, args ...any) {
		require.Fail(t, what, "%s, at %d: %v", m, now-Start, args)
	}
	side := n.sides[d.Role]
	switch {
	case m.node != n || m.side != d.Role:
		fail("delivered on another side")
	case m.place == leased:
		fail("leased twice")
	case m.place != waiting:
		fail("delivered from nowhere", m.place)
	case m.ready > now:
		fail("delivered before its time", m.ready-now)
	case m.expires != 0 && m.expires <= now:
		fail("delivered after its time")
	case !n.dispatching || side.paused > now:
		fail("delivered although the queue is held")
	case side.keys[m.Key] > now && n.s.exact:
		fail("delivered although its key is paused")
	case d.Token.Seq != m.seq || d.Token.Attempt != m.attempts+1 || d.Key != m.Key || d.EnqueuedAt != m.enqueued:
		fail("another message than it was", d.Token, d.Key)
	case d.Deadline != now+n.visibility():
		fail("another deadline", d.Deadline-now)
	case n.s.flights[d.Token.Lease] != nil || d.Token.Lease == 0:
		fail("a lease was given twice")
	case d.Fresh == nil && n.Disk.ids[store.Ref{Queue: n.IDs[d.Role], Seq: m.seq}] != m.id:
		fail("neither on disk nor in memory")
	case d.Fresh != nil && d.Fresh.ID != m.id:
		fail("the content of another message")
	}
	c := side.clients[strings.TrimPrefix(d.Subject, "deliver.")]
	if c == nil || n.credit(d.Role, c) <= 0 {
		fail("delivered to a consumer without credit", d.Subject)
		return
	}
	if d.Form != c.form {
		fail("delivered in a form that the consumer does not want", d.Subject)
	}
	n.checkOrder(m, fail)
	n.checkFair(m)

	f := &flight{
		m: m, lease: d.Token.Lease, attempt: d.Token.Attempt, at: now, deadline: d.Deadline, consumer: c.name, reg: c.reg,
		went:  &passage{at: n.s.clock.at, cost: int64(m.Cost), taken: int64(m.Cost)},
		spent: &passage{at: n.s.clock.at, cost: int64(m.Cost), taken: int64(m.Cost)},
	}
	ok := false
	if f.by, ok = m.wayOf(d.Route); !ok {
		fail("delivered by a route that it does not have", d.Route)
	}
	for _, k := range f.by.throttles {
		if n.s.gate(k).paused > n.s.clock.last {
			fail("delivered although a throttle key is paused", k)
		}
		what, g := m.String()+" at "+k, n.s.gate(k)
		if g.pass(t, what, f.went); n.s.exact && g.limits.Budget.Amount != 0 && g.spend(t, what, f.spent, n.s.clock.last) {
			n.s.Seen.UsedUp++
		}
	}
	if f.by.circuit != "" {
		if f.pass, ok = n.s.circuit(f.by.circuit).allow(now); !ok && n.s.exact {
			fail("delivered although the circuit is shut")
		}
	}
	m.place, m.flight = leased, f
	n.s.flights[f.lease] = f
	n.counters(d.Role).Delivered++
	if c.fetch {
		if c.limit--; c.limit == 0 {
			delete(side.clients, c.name)
		}
	}
}

// checkOrder checks m, which is delivered, against the order of its lane and of its key.
func (n *node) checkOrder(m *message, fail func(string, ...any)) {
	strict := n.ordered() && m.side == queue.Main
	for _, o := range n.s.all {
		if o.node != n || o.side != m.side || o.Key != m.Key || o == m || !o.here() {
			continue
		}
		if strict && o.place != waiting {
			fail("another message of the key is in flight", o)
		}
		if o.place != waiting || o.own || o.expires != 0 && o.expires <= n.Now {
			continue
		}
		if strict && n.settings.OnBlocked != wire.OnBlockedSkip && o.seq < m.seq && !o.exempt && (o.ready == 0 || n.s.exact) {
			fail("an older message of the key waits", o)
		}
		// Messages that nobody received may change places.
		if o.n < m.n && o.ready == 0 && o.lane == m.lane && !o.failed && !m.failed && !m.own &&
			(o.back == 0 || m.back == 0) && o.back < 2 && m.back < 2 && !o.exempt {
			if why := n.overtakes(m, o); why != "" {
				fail(why, o)
			}
		}
		if o.n > m.n && o.isReady() && o.lane == m.lane && n.passes(o, m) {
			fail("a younger message that counts more waits", o)
		}
	}
}

// passes reports whether message o, which is younger than m, has to go before it. It ignores
// messages that wait from another time than their enqueue.
func (n *node) passes(o, m *message) bool {
	set := &n.settings
	for _, m := range []*message{o, m} {
		if m.own || m.failed || m.redriven || m.exempt || m.back > 0 {
			return false
		}
	}
	if o.Priority <= m.Priority || n.reordered || n.s.back || n.ordered() {
		return false
	}
	return o.enqueued-m.enqueued < int64(o.Priority-m.Priority)*set.PriorityAgeMs*1e6-n.apart()
}

// apart bounds the difference (ns) between the time from which a message waits and its
// enqueue: messages of the same instant have different stamps.
func (n *node) apart() int64 { return int64(len(n.s.all)) }

// overtakes says why message m, which is younger than o, must not go before it; empty: its
// priority lets it.
func (n *node) overtakes(m, o *message) string {
	set := &n.settings
	reserved := func(m *message) bool { return set.PriorityReserved != 0 && int64(m.Priority) >= set.PriorityReserved }
	switch {
	case m.Priority <= o.Priority:
		return "an older message of the same gates waits"
	case n.reordered || n.s.back || m.redriven || o.redriven || reserved(m) && !reserved(o):
		return ""
	case m.enqueued-o.enqueued > int64(m.Priority-o.Priority)*set.PriorityAgeMs*1e6+n.apart():
		return "a message that has waited for so long that it counts more waits"
	}
	return ""
}
