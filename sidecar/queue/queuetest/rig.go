package queuetest

import (
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/sidecar/queue/gates"
	"github.com/filaq/fila/sidecar/queue/inspect"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/throttle"
	"github.com/filaq/fila/wire"
)

// Rig is one machine of a fleet with its inputs and effects.
type Rig struct {
	*Fleet
	Name     string
	IDs      [queue.Roles]store.QueueID
	Settings queue.Settings
	M        *queue.Queue

	Sent    []queue.Delivery // messages and statuses, since they were taken
	Answers []Answer
	Judge   []queue.Failure // failures that nobody has judged yet
	Notes   []queue.Note
	Ended   []queue.Ended
	Picked  *queue.Claimed // the last
	Handled *queue.Handled // the last

	Counters    [queue.Roles]queue.Counters // all steps together
	Depth       [queue.Roles]int64          // as the owner counts it
	Bytes       [queue.Roles]int64
	Uncommitted int64 // bytes that wait for the disk

	inputs []queue.Input
	wakeAt int64 // of Fleet.mono
}

// Answer is an answer published to Subject.
type Answer struct {
	Subject string
	queue.Reply
	Err *wire.Error // a refusal
}

// NewRig returns the only machine of a fleet, whose queue is called orders.
func NewRig(t T, change func(*queue.Settings)) *Rig {
	t.Helper()
	s := queue.Settings{QueueSettings: wire.DefaultQueueSettings("orders")}
	if change != nil {
		change(&s)
	}
	f := NewFleet(t)
	f.Create(s)
	f.Run()
	return f.Rigs[0]
}

// start makes an empty machine.
func (r *Rig) start() {
	r.leases += 1 << 32
	r.M = queue.New(queue.Options{
		Name: r.Name, IDs: r.IDs, Settings: r.Settings, Gates: r.Gates, Circuits: r.Circuits, Owner: r,
		FirstLease: r.leases, Pacing: r.Pacing,
	}, r.Now)
	r.inputs, r.Judge, r.Picked = nil, nil, nil
	r.Depth, r.Bytes, r.Uncommitted = [queue.Roles]int64{}, [queue.Roles]int64{}, 0
	r.wakeAt = r.mono
	r.Post(queue.Input{Kind: queue.Changed, Change: queue.Dispatch{On: true}})
}

// GateOpened implements gates.Owner.
func (r *Rig) GateOpened(g *throttle.Gate) { r.Post(queue.Input{Kind: queue.GateOpened, Gate: g}) }

// CircuitOpened implements gates.Owner.
func (r *Rig) CircuitOpened(c gates.Circuit) {
	r.Post(queue.Input{Kind: queue.CircuitOpened, Circuit: c})
}

// Post adds an input for the next step.
func (r *Rig) Post(in queue.Input) { r.inputs = append(r.inputs, in) }

// Tell posts a change.
func (r *Rig) Tell(s queue.Role, c queue.Change) {
	r.Post(queue.Input{Kind: queue.Changed, Role: s, Change: c})
}

// Do posts a change and makes the steps that follow.
func (r *Rig) Do(s queue.Role, c queue.Change) {
	r.T.Helper()
	r.Tell(s, c)
	r.Run()
}

// Step makes one step.
func (r *Rig) Step() {
	in := r.inputs
	r.inputs = nil
	r.Steps++
	r.Before(r)
	r.out.Reset()
	next := r.M.Step(r.Now, in, &r.out)
	r.wakeAt = r.mono
	if next > r.Now {
		r.wakeAt += next - r.Now // what the owner's timer is set to
	}
	r.carryOut()
}

// Finish makes the last step.
func (r *Rig) Finish(deleted bool) {
	r.T.Helper()
	for len(r.inputs) > 0 {
		r.Step()
	}
	r.Before(r)
	r.out.Reset()
	r.M.Finish(r.Now, deleted, &r.out)
	r.carryOut()
	r.wakeAt = queue.Forever
}

// carryOut carries out the effects of a step.
func (r *Rig) carryOut() {
	out := &r.out
	r.After(r, out)
	r.keepCuts()
	for _, c := range out.Commits {
		c.Queue = r.IDs[queue.Main]
		r.Disk.submit(submitted{rig: r, commit: c, batch: &c.Batch})
	}
	for i := range out.Counters {
		add(&r.Counters[i], &out.Counters[i])
		r.Depth[i] += out.Counters[i].Messages
		r.Bytes[i] += out.Counters[i].Bytes
	}
	r.Uncommitted -= out.Written
	for i := range out.Publish {
		if d := &out.Publish[i]; d.Kind == queue.DeliverReply {
			r.answer(d.Reply)
		} else {
			r.Sent = append(r.Sent, *d)
		}
	}
	r.Judge = append(r.Judge, out.Judge...)
	r.Notes = append(r.Notes, out.Notes...)
	r.Ended = append(r.Ended, out.Ended...)
	for _, no := range out.Refuse {
		r.Answered(r, Answer{Subject: no.Confirm.Subject, Err: no.Err})
	}
	if out.Claimed != nil {
		r.Picked = out.Claimed
	}
	if out.Handled != nil {
		r.Handled = out.Handled
	}
	wake(out.Wake)
	for _, c := range out.Circuits {
		c.Announce()
	}
}

func add(sum, t *queue.Counters) {
	sum.Delivered += t.Delivered
	sum.Acked += t.Acked
	sum.Nacked += t.Nacked
	sum.Expired += t.Expired
	sum.TTLExpired += t.TTLExpired
	sum.Redriven += t.Redriven
	sum.TakenBack += t.TakenBack
	sum.Removed += t.Removed
	sum.Failed += t.Failed
	sum.Messages += t.Messages
	sum.Bytes += t.Bytes
	for kind, n := range t.Blocked {
		sum.Blocked[kind] += n
	}
}

func (r *Rig) answer(reply queue.Reply) {
	if reply.Subject != "" {
		r.Answered(r, Answer{Subject: reply.Subject, Reply: reply})
	}
}

// done handles a finished commit as an owner does.
func (r *Rig) done(c *queue.Commit, err error) {
	r.Fleet.Done(r, c, err)
	r.Uncommitted -= c.Bytes
	if err == nil {
		for i, confirm := range c.Confirm {
			r.answer(queue.Reply{Kind: queue.ReplyEnqueued, Confirmation: confirm, ID: c.Add[i].ID})
		}
		for _, reply := range c.Replies {
			r.answer(reply)
		}
		r.Notes = append(r.Notes, c.Notes...)
	} else {
		for _, reply := range c.Replies {
			if reply.Subject != "" {
				r.Answered(r, Answer{Subject: reply.Subject, Err: wire.OutcomeUnknown()})
			}
		}
	}
	r.Post(queue.Input{Kind: queue.Committed, Commit: c, Err: err})
}

// Message is one as the intake makes it: of 10 bytes, weight 1 and cost 1.
func (r *Rig) Message(key string, change func(*store.Message)) *queue.Message {
	m := &queue.Message{Size: 10, Confirm: queue.Confirmation{Subject: "reply"}, Message: store.Message{
		Ref: store.Ref{Queue: r.IDs[queue.Main]}, ID: r.NewID(), EnqueuedAt: r.Now,
		Class: store.Class{Weight: 1000, Cost: 1000, Key: key}, Payload: []byte("0123456789"),
	}}
	if change != nil {
		change(&m.Message)
	}
	return m
}

// Accept posts a message and counts it, as the intake does.
func (r *Rig) Accept(m *queue.Message) {
	r.count(m)
	r.Post(queue.Input{Kind: queue.Enqueue, Message: m})
}

// AcceptAll posts messages of an atomic batch, which it counts as Accept does.
func (r *Rig) AcceptAll(all []*queue.Message) {
	for _, m := range all {
		r.count(m)
	}
	r.Post(queue.Input{Kind: queue.Changed, Change: queue.EnqueueAll{Messages: all}})
}

func (r *Rig) count(m *queue.Message) {
	r.Depth[queue.Main]++
	r.Bytes[queue.Main] += m.Size
	r.Uncommitted += m.Size
}

// Keep posts entries with a message, which it counts as Accept does.
func (r *Rig) Keep(k queue.WriteEntries) {
	r.count(k.Message)
	r.Post(queue.Input{Kind: queue.Changed, Change: k})
}

// Enqueue accepts a message and makes the steps that follow.
func (r *Rig) Enqueue(key string, change func(*store.Message)) store.ID {
	r.T.Helper()
	m := r.Message(key, change)
	id := m.ID
	r.Accept(m)
	r.Run()
	return id
}

// Gated enqueues a message with throttle keys and commits it.
func (r *Rig) Gated(key string, throttleKeys ...string) store.ID {
	r.T.Helper()
	id := r.Enqueue(key, func(m *store.Message) { m.ThrottleKeys = throttleKeys })
	r.Commit()
	return id
}

// Consume registers a consumer.
func (r *Rig) Consume(s queue.Role, name string, credit int, ttl time.Duration) {
	r.T.Helper()
	r.Do(s, queue.Register{
		Consumer: name, Subject: "deliver." + name, MaxInFlight: credit, TTL: int64(ttl), Confirm: queue.Confirmation{Subject: "reply"}, Answer: []byte("{}"),
	})
}

// Leave ends a registration.
func (r *Rig) Leave(s queue.Role, name string) {
	r.T.Helper()
	r.Do(s, queue.Leave{Consumer: name})
}

// Fetch asks for messages once.
func (r *Rig) Fetch(s queue.Role, inbox string, batch int, expires time.Duration) {
	r.T.Helper()
	r.Do(s, queue.Fetch{Inbox: inbox, Batch: batch, Expires: int64(expires)})
}

// Ack answers a delivery.
func (r *Rig) Ack(d queue.Delivery, a wire.Ack, reply string) {
	r.T.Helper()
	r.Post(queue.Input{Kind: queue.Acked, Role: d.Role, Token: d.Token, Ack: a, Confirm: queue.Confirmation{Subject: reply}})
	r.Run()
}

// Finished acks deliveries and commits that.
func (r *Rig) Finished(ds ...queue.Delivery) {
	r.T.Helper()
	for _, d := range ds {
		r.Ack(d, wire.Ack{Kind: wire.AckDone}, "")
	}
	r.Commit()
}

// LimitNow gives a throttle key limits and makes the steps that follow.
func (r *Rig) LimitNow(key string, l throttle.Limits) {
	r.T.Helper()
	r.Limit(key, l)
	r.Run()
}

// Take returns the deliveries since the last call, and the statuses of fetches.
func (r *Rig) Take() (ds []queue.Delivery, statuses map[string]string) {
	statuses = make(map[string]string)
	for _, d := range r.Sent {
		if d.Kind == queue.DeliverStatus {
			statuses[d.Subject] = d.Status
		} else {
			ds = append(ds, d)
		}
	}
	r.Sent = nil
	return ds, statuses
}

// Deliveries is Take without the statuses.
func (r *Rig) Deliveries() []queue.Delivery {
	ds, _ := r.Take()
	return ds
}

// One returns the only delivery since the last Take.
func (r *Rig) One() queue.Delivery {
	r.T.Helper()
	ds := r.Deliveries()
	require.Len(r.T, ds, 1)
	return ds[0]
}

// Find looks for a message in a whole side.
func (r *Rig) Find(s queue.Role, id store.ID) *inspect.MessageView {
	from := uint64(0)
	for {
		v, next := r.M.Inspect(s).Find(id, from, 1000, r.Now)
		if v != nil || next == 0 {
			return v
		}
		from = next
	}
}

// Peek lists the messages of a side, by sequence.
func (r *Rig) Peek(s queue.Role) []inspect.MessageView {
	var all []inspect.MessageView
	from := uint64(0)
	for {
		found, next := r.M.Inspect(s).Select(&inspect.Match{}, from, 100, 100, nil, r.Now)
		all = append(all, found...)
		if next == 0 {
			return all
		}
		from = next
	}
}

// IDs returns the ids of deliveries.
func IDs(ds []queue.Delivery) []store.ID {
	var all []store.ID
	for _, d := range ds {
		all = append(all, d.ID)
	}
	return all
}
