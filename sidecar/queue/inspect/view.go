package inspect

import (
	"cmp"
	"slices"

	"github.com/filaq/fila/drr"
	"github.com/filaq/fila/sidecar/queue/backlog"
	"github.com/filaq/fila/sidecar/queue/gates"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/throttle"
)

// Reader reads one role of a queue. Monitor.Init makes it.
type Reader struct {
	t       *backlog.Tables
	g       *gates.Gates
	monitor *Monitor
}

// MessageState says where a message is.
type MessageState uint8

// The states.
const (
	StateDelayed MessageState = iota
	StatePending              // ready
	StateBlocked              // by a pause or a gate
	StateOrdered              // another message of its key comes first
	StateLeased
	StateFailing // its last attempt is being judged
	StateMoving  // claimed by a job, or being moved to the DLQ
)

// StateOf is the state of s without what it waits for: a blocked message is pending.
func StateOf(s *backlog.Slot) MessageState {
	switch s.State {
	case backlog.Delayed:
		return StateDelayed
	case backlog.Waiting, backlog.Ordered:
		return StatePending
	case backlog.Leased:
		return StateLeased
	case backlog.Failing:
		return StateFailing
	default:
		return StateMoving
	}
}

// MessageView is the state of a message.
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

	WaitReason           // unless it is leased, failing or moving; of a delayed one its pause alone
	BlockedSince int64   // 0: not known
	Ahead        int64   // messages in front of it at the same place, up to a bound
	First        bool    // Ahead is 0
	Share        float64 // of its flow among those that wait at the same place; 0: not known
	Throttles    []*throttle.Gate
	Circuit      gates.Circuit
	Routes       []RouteView // of a message with a choice, which has no Throttles and no Circuit
	Route        string      // by which it was delivered, if it is leased and had a choice
}

// RouteView is a route of a message.
type RouteView struct {
	Name       string
	Weight     uint32 // thousandths; 0: the routes have an order
	WaitReason        // the gate of the route that is shut; ByNothing: none
	Throttles  []*throttle.Gate
	Circuit    gates.Circuit
}

// Stats are the figures of a queue at one time.
type Stats struct {
	Pending   int64 // waiting for a consumer or a gate
	Blocked   int64 // pending messages that a pause, a gate or their order blocks
	Delayed   int64 // waiting for their time, or for a verdict
	Moving    int64 // claimed by a job, or parked until another queue has them
	InFlight  int64
	OldestAge int64 // ns
	Consumers int   // registrations and fetches
	Flows     int   // fairness keys in the schedule
	BlockedBy [gates.BlockKinds]int64
}

// BlockedView is a place with its waiting messages. DeadLetter and Unbooked are true if they are for all.
type BlockedView struct {
	WaitReason
	Key      string // of a pause of a key
	Messages int64
	Flows    int
	Wait     int64 // ns since the first message of a subqueue here became ready; 0: not known
}

// StateView is what a queue waits for.
type StateView struct {
	Stats
	Credit  int
	Paused  int64         // until when; 0: it is not
	Blocked []BlockedView // the largest first
}

// KeyView describes a fairness key.
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
	Consumers   int // of the queue
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
	Form        store.DeliveryForm
	ExpiresAt   int64 // 0: never
}

// FlowView is a flow of the schedule.
type FlowView struct {
	Key             string
	Weight, Deficit int64 // thousandths
	Pending         int64 // not known to be blocked
	Share           float64
}

// Bounds of walks over messages, and over subqueues and keys.
const (
	readWalk  = 100_000
	readLines = readWalk / 10
)

// Stats reads the figures. The cost does not depend on the number of messages, and is
// bounded in the number of subqueues.
func (r *Reader) Stats(now int64) Stats {
	var sum blocked
	return r.stats(&sum, now)
}

func (r *Reader) stats(sum *blocked, now int64) Stats {
	r.evaluator(now).all(sum)
	n := Stats{
		Pending:   r.t.Links.Len(),
		Blocked:   sum.total(),
		Moving:    int64(len(r.t.Moving)),
		InFlight:  int64(r.t.Leases.Live),
		Consumers: r.consumers(),
		Flows:     r.t.Sched.Active(),
		BlockedBy: sum.by,
	}
	// All other messages are delayed, or wait for a verdict.
	n.Delayed = max(r.t.Slots.Len()-n.Pending-n.InFlight-n.Moving, 0)
	for _, oldest := range r.t.Slots.From(0) {
		n.OldestAge = max(now-oldest.EnqueuedAt, 0)
		break
	}
	return n
}

// consumers counts registrations and fetches.
func (r *Reader) consumers() int { return r.t.Consumers.Registered() + len(r.t.Consumers.Fetches) }

// Find looks for a message by its id among slots messages from the sequence from on.
// next is where to go on, 0 at the end. A dead letter is found in the DLQ even before
// its move is on disk.
func (r *Reader) Find(id store.ID, from uint64, slots int, now int64) (v *MessageView, next uint64) {
	n := 0
	for seq, s := range r.t.Slots.From(from) {
		if n++; n > slots {
			return nil, seq
		}
		if s.ID == id {
			found := r.view(r.evaluator(now), seq, s)
			r.viewGates(s, &found, now)
			return &found, 0
		}
	}
	for seq, a := range r.t.Arriving {
		if m := &a.Message; m.ID == id {
			return &MessageView{
				Seq: seq, ID: id, Key: m.Key, Attempt: 1, Cost: m.Cost, Size: a.Size, EnqueuedAt: m.EnqueuedAt, State: StateMoving,
			}, 0
		}
	}
	return nil, 0
}

// MessageState returns the state of message seq.
func (r *Reader) MessageState(seq uint64, s *backlog.Slot, now int64) MessageState {
	return r.view(r.evaluator(now), seq, s).State
}

// view describes message seq at a cost that does not depend on what waits in front of
// it.
func (r *Reader) view(e *evaluator, seq uint64, s *backlog.Slot) MessageView {
	v := MessageView{
		Seq: seq, ID: s.ID, Key: r.t.Name(s.Flow), State: StateOf(s), Attempt: s.Attempts + 1, Cost: s.Cost, Priority: s.Priority,
		Size: s.Size, EnqueuedAt: s.EnqueuedAt, ReadyAt: s.ReadyAt, ExpiresAt: r.t.ExpiresAt(seq, s),
	}
	switch v.State {
	case StateDelayed:
		v.WaitReason = e.paused(s.Flow)
	case StatePending:
		id := r.t.Subqueue(s)
		var sub *gates.Subqueue
		if id != 0 {
			sub = r.g.Subs.At(id)
		}
		v.WaitReason = e.reason(s.Flow, sub, s.State == backlog.Ordered)
		switch {
		case v.By == gates.ByOrder:
			v.State = StateOrdered
		case v.Blocks():
			v.State = StateBlocked
			if sub != nil {
				v.BlockedSince = sub.Since
			}
		}
	case StateLeased:
		le := &r.t.Leases.Items[s.Ref]
		v.Consumer, v.LeaseUntil = le.Consumer.Name, le.Deadline
		if s.Sub != 0 {
			v.Route = r.g.Subs.At(s.Sub).RouteName(le.Permits.Route())
		}
	}
	return v
}

// viewGates adds what view leaves out.
func (r *Reader) viewGates(s *backlog.Slot, v *MessageView, now int64) {
	if s.Sub != 0 {
		sub := r.g.Subs.At(s.Sub)
		if sub.HasChoice() {
			e := r.evaluator(now)
			for i := range sub.Routes() {
				rt, why := sub.RouteAt(i), e.route(sub, i).WaitReason
				why.DeadLetter = why.DeadLetter && v.DeadLetter
				v.Routes = append(v.Routes, RouteView{
					Name: sub.RouteName(i), Weight: sub.RouteWeight(i), WaitReason: why,
					Throttles: rt.Set.Gates(), Circuit: rt.Circuit,
				})
			}
		} else {
			v.Throttles, v.Circuit = sub.Set.Gates(), sub.Circuit
		}
	}
	if id := r.t.Subqueue(s); v.State == StateBlocked && id != 0 {
		sub := r.g.Subs.At(id)
		for i := range sub.Routes() {
			if at := sub.RouteAt(i).Wait; at != 0 && r.place(at) == v.At {
				v.Share = r.shareAt(sub, at)
				break
			}
		}
	}
	if v.State == StateBlocked || v.State == StateOrdered {
		v.Ahead = r.ahead(s)
		v.First = v.Ahead == 0
	}
}

// place describes the gate of a wait list.
func (r *Reader) place(id gates.WaitID) gates.Place {
	wl := r.g.Waits.At(id)
	p := wl.Place()
	if f, ok := wl.PausedFlow(); ok {
		p.Until = r.t.Pauses.Keys[r.t.Name(f)]
	}
	return p
}

// ahead counts the messages in front of s, which waits, up to a bound.
func (r *Reader) ahead(s *backlog.Slot) (n int64) {
	if s.State == backlog.Waiting {
		list := &r.t.Flow(s.Flow).Plain
		if id := r.t.Subqueue(s); id != 0 {
			list = &r.g.Subs.At(id).List
		}
		return r.t.Links.Ahead(list, s.Priority, s.Ref, readWalk)
	}
	for i := r.t.Links.Prev(s.Ref); i != 0 && n < readWalk; i = r.t.Links.Prev(i) {
		n++
	}
	return n
}

// shareAt is the part of a gate that the flow of a subqueue gets among the flows that
// wait there with it, or 0 if there are too many to look at.
func (r *Reader) shareAt(sub *gates.Subqueue, at gates.WaitID) float64 {
	waiters := &r.g.Waits.At(at).Waiters
	if waiters.Len() > readLines {
		return 0
	}
	var all int64
	seen := make(map[drr.Flow]bool)
	for _, f := range waiters.All() {
		if !seen[f] {
			seen[f] = true
			all += r.t.Weight(f)
		}
	}
	if !seen[sub.Flow] {
		return 0
	}
	return float64(r.t.Weight(sub.Flow)) / float64(all)
}

// State says what the queue waits for, and names up to most places, the largest; none
// if most is below 1.
func (r *Reader) State(most int, now int64) StateView {
	var sum blocked
	if most > 0 {
		sum.places = newPlaces()
	}
	v := StateView{Stats: r.stats(&sum, now), Credit: r.t.Consumers.Credit()}
	if r.t.Pauses.Until > now {
		v.Paused = r.t.Pauses.Until
	}
	if most > 0 {
		v.Blocked = sum.places.largest(most)
	}
	return v
}

// WaitingAt counts the messages, and their flows, that wait at a throttle key or, if that is empty,
// at a circuit. It costs at most as much as Stats: it does not evaluate messages that do not pass
// the gate.
func (r *Reader) WaitingAt(throttleKey, circuitKey string, now int64) (messages int64, flows int) {
	if r.t.Links.Len() == 0 {
		return 0, 0
	}
	sum := blocked{at: &oneGate{throttle: throttleKey, circuit: circuitKey}}
	r.evaluator(now).all(&sum)
	return sum.at.messages, sum.at.flows
}

// Key describes a fairness key.
func (r *Reader) Key(key string, now int64) KeyView {
	v := KeyView{Credit: r.t.Consumers.Credit(), Consumers: r.consumers()}
	if until := r.t.Pauses.Keys[key]; until > now {
		v.Paused = until
	}
	if r.t.Pauses.Until > now {
		v.QueuePaused = r.t.Pauses.Until
	}
	_, v.Overridden = r.t.Keys.Overrides[key]
	f, ok := r.t.Keys.IDs[key]
	if !ok {
		return v
	}
	v.Known, v.Weight = true, r.t.Weight(f)
	var all int64
	for _, other := range r.t.Sched.All() {
		all += other.Weight
	}
	in, active := r.t.Sched.Flow(f)
	if v.Active = active; active {
		v.Deficit = in.Deficit
	} else {
		all += v.Weight
	}
	v.Share = float64(v.Weight) / float64(all)
	r.evaluator(now).flow(f, &v)
	for le := r.t.Leases.First(); le != nil; le = r.t.Leases.Next(le) {
		if r.t.Slots.Get(le.Seq).Flow == f {
			v.InFlight++
		}
	}
	for _, of := range r.t.Moving {
		if of == f {
			v.Moving++
		}
	}
	v.Delayed = max(int64(r.t.Keys.Entries[f].Refs)-v.Pending-v.Blocked-v.InFlight-v.Moving, 0)
	return v
}

// unblocked counts the messages of a flow that wait and that the queue has not found
// blocked.
func (r *Reader) unblocked(f drr.Flow) int64 {
	n := int64(r.t.Links.Count(&r.t.Flow(f).Plain))
	for sub := range r.g.Subs.Of(f) {
		n += int64(r.t.Links.Count(&sub.List) - sub.Counted)
	}
	return n
}

// Consumers lists registrations and fetches by name.
func (r *Reader) Consumers() []ConsumerView {
	list := []ConsumerView{}
	add := func(c *backlog.Consumer) {
		list = append(list, ConsumerView{
			Name: c.Name, MaxInFlight: c.Limit, InFlight: c.InFlight, Credit: c.Credit(), Fetch: c.Fetch, ExpiresAt: c.ExpiresAt, Form: c.Form,
		})
	}
	for _, c := range r.t.Consumers.ByName {
		if !c.Gone {
			add(c)
		}
	}
	for _, c := range r.t.Consumers.Waiting() {
		add(c)
	}
	slices.SortStableFunc(list, func(a, b ConsumerView) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

// Registered returns how many consumers are known by name, including those that have
// gone and still have deliveries, and whether name is one of them.
func (r *Reader) Registered(name string) (n int, known bool) {
	_, known = r.t.Consumers.ByName[name]
	return len(r.t.Consumers.ByName), known
}

// Fetches is how many fetches wait.
func (r *Reader) Fetches() int { return len(r.t.Consumers.Fetches) }

// Flows returns the n flows with the most pending messages, among equal ones those
// with the most weight. It visits every active flow once.
func (r *Reader) Flows(n int) []FlowView {
	most := top[rankedFlow]{n: n, compare: rankedFlow.compare}
	var weights int64
	for f, info := range r.t.Sched.All() {
		weights += info.Weight
		most.add(rankedFlow{f, r.unblocked(f), info})
	}
	list := []FlowView{}
	for _, f := range most.first() {
		list = append(list, FlowView{
			Key: r.t.Name(f.flow), Weight: f.info.Weight, Deficit: f.info.Deficit,
			Pending: f.pending, Share: float64(f.info.Weight) / float64(weights),
		})
	}
	return list
}

type rankedFlow struct {
	flow    drr.Flow
	pending int64
	info    drr.Info
}

func (r rankedFlow) compare(o rankedFlow) int {
	return cmp.Or(cmp.Compare(o.pending, r.pending), cmp.Compare(o.info.Weight, r.info.Weight), cmp.Compare(r.flow, o.flow))
}

// top keeps the first n of the values that it is given, in the order of compare. It holds
// twice as many at most.
type top[T any] struct {
	n       int
	compare func(a, b T) int
	list    []T
	full    bool // list begins with the first n of what came before the others, in order
}

func (t *top[T]) add(v T) {
	if t.full && (t.n <= 0 || t.compare(t.list[t.n-1], v) <= 0) {
		return
	}
	if t.list = append(t.list, v); len(t.list)/2 >= t.n {
		t.first()
	}
}

func (t *top[T]) first() []T {
	slices.SortFunc(t.list, t.compare)
	t.list = t.list[:min(len(t.list), max(t.n, 0))]
	t.full = len(t.list) >= t.n
	return t.list
}
