package queue

import (
	"cmp"
	"container/heap"
	"slices"

	"github.com/filaq/fila/drr"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/throttle"
)

// BlockKind is what holds a message back, for metrics and explanations.
type BlockKind uint8

// The kinds, in the order in which metrics list them.
const (
	ByNothing BlockKind = iota
	ByRate
	ByWindow
	ByInFlight
	ByReserved
	ByTurn
	ByCircuit
	ByPause
	ByOrder
	BlockKinds // the number of kinds for which messages are parked
)

// The kinds for which messages are not parked: they are ready.
const (
	ByNoConsumer = BlockKinds + iota
	ByNoCredit
)

var blockNames = [...]string{
	"open", "rate", "window", "concurrency", "reserved", "turn", "circuit", "paused", "order", "no consumer", "no credit",
}

func (k BlockKind) String() string { return blockNames[k] }

// throttleKinds are the kinds of what throttle keys say.
var throttleKinds = [BlockKinds]throttle.Kind{
	ByRate: throttle.ByRate, ByWindow: throttle.ByWindow, ByInFlight: throttle.ByInFlight, ByReserved: throttle.ByReserved,
	ByTurn: throttle.ByTurn, ByPause: throttle.ByPause,
}

// BlockOf is the kind of what a throttle key says.
func BlockOf(k throttle.Kind) BlockKind {
	if k == throttle.Open {
		return ByNothing
	}
	return BlockKind(slices.Index(throttleKinds[:], k))
}

// Place is where messages wait: at a throttle key, at a circuit, for the end of a
// pause, or, if it is zero, at none of them.
type Place struct {
	Throttle *throttle.Gate
	Circuit  Circuit
	Paused   bool
	Queue    bool  // the pause is one of the queue, not of a key
	Until    int64 // of the pause
}

// MessageState says where a message of a side is, for people.
type MessageState uint8

// The states.
const (
	StateDelayed MessageState = iota
	StatePending              // ready
	StateBlocked              // by a pause or a gate
	StateOrdered              // another message of its key comes first
	StateLeased
	StateFailing // its last attempt is being judged
	StateMoving  // it is on its way to the other side
)

// MessageView is what a machine knows of a message.
type MessageView struct {
	Seq        uint64
	ID         store.ID
	Key        string // fairness key
	State      MessageState
	Attempt    uint32
	Cost       uint32 // thousandths
	Priority   uint8
	Size       uint32 // of headers and payload
	EnqueuedAt int64  // Unix ns, as all times here
	ReadyAt    int64
	ExpiresAt  int64  // 0: never
	Consumer   string // StateLeased
	LeaseUntil int64

	Why                  // unless it is leased, failing or moving; of a delayed one its pause alone
	BlockedSince int64   // 0: not known
	Ahead        int64   // messages in front of it at the same place, as far as they are counted
	First        bool    // none is
	Share        float64 // of its flow among those that wait at the same place; 0: not known
	Throttles    []*throttle.Gate
	Circuit      Circuit
}

// Moment is the figures of a side at one moment.
type Stats struct {
	Pending   int64 // waiting for a consumer or a gate
	Blocked   int64 // those of them that a pause, a gate or their order holds back
	Delayed   int64 // waiting for their time, or for a verdict
	Moving    int64 // picked by a job, or held until another queue has them
	InFlight  int64
	OldestAge int64 // ns
	Consumers int   // registrations and fetches
	Flows     int   // fairness keys with something in the schedule
	BlockedBy [BlockKinds]int64
}

// BlockedView is a place with what waits there.
type BlockedView struct {
	At       Place
	By       BlockKind
	Key      string // of a pause of a key
	Messages int64
	Flows    int
}

// StateView is what a side waits for.
type StateView struct {
	Stats
	Credit  int
	Paused  int64         // until when; 0: it is not
	Blocked []BlockedView // the largest, the largest first
}

// KeyView is how a fairness key of a side stands.
type KeyView struct {
	Known       bool // it has messages
	Overridden  bool // its weight
	Weight      int64
	Deficit     int64
	Pending     int64 // ready
	Blocked     int64
	InFlight    int64
	Delayed     int64
	Moving      int64
	Active      bool    // in the schedule: something of it may be delivered
	Share       float64 // of the deliveries while it is active
	Paused      int64
	QueuePaused int64
	Consumers   int // of the side
	Credit      int
	At          []BlockedView // the largest first
}

// ConsumerView is a registration or a fetch.
type ConsumerView struct {
	Name        string
	MaxInFlight int
	InFlight    int
	Credit      int
	Fetch       bool
	ExpiresAt   int64 // 0: never
}

// FlowView is a flow of the schedule.
type FlowView struct {
	Key             string
	Weight, Deficit int64 // thousandths
	Pending         int64 // as far as the machine has tried
	Share           float64
}

// Reading must not hold a queue up: walks over lists and over subqueues go only so
// far.
const (
	readWalk  = 100_000
	readLines = readWalk / 10
)

// Moment reads the figures of a side. Its cost does not depend on the number of
// messages, and is bounded in that of subqueues.
func (m *Queue) Moment(s Role, now int64) Stats {
	var h held
	return m.sides[s].moment(&h, now)
}

func (q *side) moment(h *held, now int64) Stats {
	q.asking(now).all(h)
	n := Stats{
		Pending:   q.links.Len(),
		Blocked:   h.sum(),
		Moving:    int64(len(q.moving)),
		InFlight:  int64(q.leases.live),
		Consumers: q.consumers.registered() + len(q.consumers.fetches),
		Flows:     q.sched.Active(),
		BlockedBy: h.by,
	}
	// What is in none of these waits: for its time, or for a verdict.
	n.Delayed = max(q.slots.Len()-n.Pending-n.InFlight-n.Moving, 0)
	for _, oldest := range q.slots.From(0) {
		n.OldestAge = max(now-oldest.enqueuedAt, 0)
		break
	}
	return n
}

// Find looks for a message by its id among slots messages from the sequence from
// on. next is where to go on, 0 at the end. A dead letter is where it goes, also while that
// is not on disk.
func (m *Queue) Find(s Role, id store.ID, from uint64, slots int, now int64) (v *MessageView, next uint64) {
	q, n := &m.sides[s], 0
	for seq, s := range q.slots.From(from) {
		if n++; n > slots {
			return nil, seq
		}
		if s.id == id {
			found := q.view(q.asking(now), seq, s)
			q.viewGates(s, &found)
			return &found, 0
		}
	}
	for seq, a := range q.dying {
		if a.msg.ID == id {
			return &MessageView{
				Seq: seq, ID: id, Key: a.msg.Key, Attempt: 1, Cost: a.msg.Cost, Size: a.size, EnqueuedAt: a.msg.EnqueuedAt, State: StateMoving,
			}, 0
		}
	}
	return nil, 0
}

// view says what is known of message seq at a cost that does not depend on what
// waits in front of it.
func (q *side) view(a *asking, seq uint64, s *slot) MessageView {
	v := MessageView{
		Seq: seq, ID: s.id, Key: q.keys.name(s.flow), Attempt: s.attempts + 1, Cost: s.cost, Priority: s.priority, Size: s.size,
		EnqueuedAt: s.enqueuedAt, ReadyAt: s.readyAt, ExpiresAt: q.expiresAt(seq, s),
	}
	switch s.state {
	case slotDelayed:
		v.State, v.Why = StateDelayed, a.paused(s.flow)
	case slotWaiting, slotOrdered:
		v.Why = a.message(s)
		switch {
		case v.By == ByOrder:
			v.State = StateOrdered
		case v.parks():
			v.State = StateBlocked
			if id := q.subOf(s); id != 0 {
				v.BlockedSince = q.gating.subs.at(id).since
			}
		default:
			v.State = StatePending
		}
	case slotLeased:
		le := &q.leases.items[s.ref]
		v.State, v.Consumer, v.LeaseUntil = StateLeased, le.consumer.name, le.deadline
	case slotFailing:
		v.State = StateFailing
	default:
		v.State = StateMoving
	}
	return v
}

// viewGates adds what view leaves out.
func (q *side) viewGates(s *slot, v *MessageView) {
	if s.sub != 0 {
		sub := q.gating.subs.at(s.sub)
		v.Throttles, v.Circuit = sub.set.Gates(), sub.circuit
	}
	if id := q.subOf(s); v.State == StateBlocked && id != 0 {
		if sub := q.gating.subs.at(id); sub.wait != 0 && q.gate(sub.wait) == v.At {
			v.Share = q.shareAt(sub)
		}
	}
	if v.State == StateBlocked || v.State == StateOrdered {
		v.Ahead = q.ahead(s)
		v.First = v.Ahead == 0
	}
}

// gate describes the gate of a wait list.
func (q *side) gate(id waitID) Place {
	wl := q.gating.waits.at(id)
	p := Place{Throttle: wl.gate, Circuit: wl.circuit}
	if wl.kind == waitPause {
		p.Paused, p.Until = true, q.pauses.keys[q.keys.name(wl.flow)]
	}
	return p
}

// ahead counts the messages in front of one that waits, as far as is reasonable.
func (q *side) ahead(s *slot) (n int64) {
	if s.state == slotWaiting {
		list := &q.keys.entries[s.flow].plain
		if id := q.subOf(s); id != 0 {
			list = &q.gating.subs.at(id).list
		}
		return q.links.Ahead(list, s.priority, s.ref, readWalk)
	}
	for i := q.links.Prev(s.ref); i != 0 && n < readWalk; i = q.links.Prev(i) {
		n++
	}
	return n
}

// shareAt is the part of a gate that the flow of a subqueue gets among the flows
// that wait there with it, or 0 if there are too many to look at.
func (q *side) shareAt(sub *subqueue) float64 {
	line := &q.gating.waits.at(sub.wait).line
	if line.Len() > readLines {
		return 0
	}
	var mine, all int64
	seen := make(map[drr.Flow]bool)
	for id := range line.All() {
		f := q.gating.subs.at(subID(id)).flow
		if seen[f] {
			continue
		}
		seen[f] = true
		w := q.keys.weight(f)
		all += w
		if f == sub.flow {
			mine = w
		}
	}
	if all == 0 {
		return 0
	}
	return float64(mine) / float64(all)
}

// credit is how many more messages the consumers take.
func (q *side) credit() int {
	n := q.consumers.wanted
	for _, c := range q.consumers.byName {
		n += max(c.credit(), 0)
	}
	return n
}

// State says what a side waits for, and names up to most places, the largest; none if
// most is below 1.
func (m *Queue) State(s Role, most int, now int64) StateView {
	q := &m.sides[s]
	var h held
	if most > 0 {
		h.places = newPlaces()
	}
	v := StateView{Stats: q.moment(&h, now), Credit: q.credit()}
	if q.pauses.until > now {
		v.Paused = q.pauses.until
	}
	if most > 0 {
		v.Blocked = h.places.largest(most)
	}
	return v
}

// WaitingAt counts the messages of a side, and their flows, that wait at a throttle key or,
// if that is empty, at a circuit. Its cost is that of Moment at most: messages that do not
// go through the gate are not asked about.
func (m *Queue) WaitingAt(s Role, throttleKey, circuitKey string, now int64) (messages int64, flows int) {
	q := &m.sides[s]
	if q.links.Len() == 0 {
		return 0, 0
	}
	h := held{at: &oneGate{throttle: throttleKey, circuit: circuitKey}}
	q.asking(now).all(&h)
	return h.at.messages, h.at.flows
}

// Key says how a fairness key stands.
func (m *Queue) Key(s Role, key string, now int64) KeyView {
	q := &m.sides[s]
	v := KeyView{Credit: q.credit(), Consumers: q.consumers.registered() + len(q.consumers.fetches)}
	if until := q.pauses.keys[key]; until > now {
		v.Paused = until
	}
	if q.pauses.until > now {
		v.QueuePaused = q.pauses.until
	}
	_, v.Overridden = q.keys.overrides[key]
	f, ok := q.keys.ids[key]
	if !ok {
		return v
	}
	v.Known, v.Weight = true, q.keys.weight(f)
	var all int64
	for _, other := range q.sched.All() {
		all += other.Weight
	}
	in, active := q.sched.Flow(f)
	if v.Active = active; active {
		v.Deficit = in.Deficit
	} else {
		all += v.Weight
	}
	v.Share = float64(v.Weight) / float64(all)
	q.asking(now).flow(f, &v)
	for i := q.leases.head; i != 0; i = q.leases.items[i-1].next {
		if q.slots.Get(q.leases.items[i-1].seq).flow == f {
			v.InFlight++
		}
	}
	for _, of := range q.moving {
		if of == f {
			v.Moving++
		}
	}
	v.Delayed = max(int64(q.keys.entries[f].refs)-v.Pending-v.Blocked-v.InFlight-v.Moving, 0)
	return v
}

// unblocked counts the messages of a flow that no gate holds back as far as the
// machine has tried.
func (q *side) unblocked(f drr.Flow) int64 {
	n := int64(q.links.Count(&q.keys.entries[f].plain))
	for sub := range q.gating.subs.of(f) {
		n += int64(q.links.Count(&sub.list) - sub.counted)
	}
	return n
}

// Consumers lists registrations and fetches by name.
func (m *Queue) Consumers(s Role) []ConsumerView {
	q := &m.sides[s]
	list := []ConsumerView{}
	add := func(c *consumer) {
		list = append(list, ConsumerView{
			Name: c.name, MaxInFlight: c.limit, InFlight: c.inFlight, Credit: max(c.credit(), 0), Fetch: c.fetch, ExpiresAt: c.expiresAt,
		})
	}
	for _, c := range q.consumers.byName {
		if !c.gone {
			add(c)
		}
	}
	for _, c := range q.consumers.waiting() {
		add(c)
	}
	slices.SortStableFunc(list, func(a, b ConsumerView) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

// Flows returns the n flows with the most pending messages, of equal ones those with
// the most weight. It looks at every active flow once and keeps n of them in a heap.
func (m *Queue) Flows(s Role, n int) []FlowView {
	q := &m.sides[s]
	top := flowHeap{}
	var weights int64
	for f, info := range q.sched.All() {
		weights += info.Weight
		r := rankedFlow{f, q.unblocked(f), info}
		switch {
		case len(top) < n:
			heap.Push(&top, r)
		case n > 0 && top[0].below(r):
			top[0] = r
			heap.Fix(&top, 0)
		}
	}
	list := make([]FlowView, len(top))
	for i := len(top) - 1; i >= 0; i-- {
		r := heap.Pop(&top).(rankedFlow)
		list[i] = FlowView{
			Key: q.keys.name(r.flow), Weight: r.info.Weight, Deficit: r.info.Deficit,
			Pending: r.pending, Share: float64(r.info.Weight) / float64(weights),
		}
	}
	return list
}

type rankedFlow struct {
	flow    drr.Flow
	pending int64
	info    drr.Info
}

func (r rankedFlow) below(o rankedFlow) bool {
	return cmp.Or(cmp.Compare(r.pending, o.pending), cmp.Compare(r.info.Weight, o.info.Weight), cmp.Compare(o.flow, r.flow)) < 0
}

// flowHeap has the flow on top that is below all others.
type flowHeap []rankedFlow

func (h flowHeap) Len() int           { return len(h) }
func (h flowHeap) Less(i, j int) bool { return h[i].below(h[j]) }
func (h flowHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *flowHeap) Push(v any)        { *h = append(*h, v.(rankedFlow)) }
func (h *flowHeap) Pop() any {
	last := len(*h) - 1
	v := (*h)[last]
	*h = (*h)[:last]
	return v
}
