package admin

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"github.com/filaq/fila/sidecar/finder"
	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/sidecar/queue/gates"
	"github.com/filaq/fila/sidecar/queue/inspect"
	"github.com/filaq/fila/sidecar/shard"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

const (
	// explainWalk is how many messages ahead of another one a queue counts.
	explainWalk = 100_000
	// explainGates is how many gates the explanation of a queue or key names.
	explainGates = 20
)

// explain says why a message, a fairness key or a queue waits.
func (a *Admin) explain(req api.ExplainRequest) (any, *wire.Error) {
	if req.Kind == "message" {
		return a.explainMessage(req)
	}
	q, err := a.queue(req.Queue)
	if err != nil {
		return nil, err
	}
	if req.Kind == "key" {
		var v inspect.KeyView
		if !q.View(func(m *queue.Queue, side queue.Role, now int64) { v = m.Inspect(side).Key(req.Key, now) }) {
			return nil, q.Gone()
		}
		if !v.Known && v.Paused == 0 && !v.Overridden {
			return nil, wire.KeyNotFound(q.Name(), req.Key)
		}
		e := a.gates.key(q.Name(), req.Key, &v)
		if v.Known || v.Overridden {
			e.WeightBy = weightBy(&v, q.Settings())
		}
		return e, nil
	}
	var v inspect.StateView
	if !q.View(func(m *queue.Queue, side queue.Role, now int64) { v = m.Inspect(side).State(explainGates, now) }) {
		return nil, q.Gone()
	}
	return a.gates.queue(q.Name(), &v), nil
}

// weightBy returns the origin of the weight of a fairness key. Messages are stored without
// the origin of their weight, so it follows from the present settings of the queue.
func weightBy(v *inspect.KeyView, s wire.QueueSettings) string {
	standard := v.Weight == thousand
	switch {
	case v.Overridden:
		return api.SetByOperator
	case s.OnEnqueue != "":
		return api.SetByHook
	case standard:
		return api.SetByDefault
	case s.WeightHeader != "":
		return api.SetByHeader
	}
	return api.SetByMessage
}

// explainMessage explains a message, also one that does not exist.
func (a *Admin) explainMessage(req api.ExplainRequest) (any, *wire.Error) {
	at, err := a.message(req.Queue, req.ID)
	switch {
	case err != nil:
		return nil, err
	case at == nil:
		return api.ExplainMessage{
			ID: req.ID, State: api.StateUnknown,
			Reason: "No queue has this message: it was acked, or expired and was removed, or never confirmed.",
		}, nil
	}
	return a.explained(at), nil
}

// located is a message with the queue that has it.
type located struct {
	q *shard.Queue
	v *inspect.MessageView
}

// message finds a message in a queue and its dead letter queue, or in all queues; nil: it
// does not exist.
func (a *Admin) message(name, id string) (*located, *wire.Error) {
	queues := a.shards.Queues()
	if name != "" {
		q, err := a.queue(name)
		if err != nil {
			return nil, err
		}
		if queues = []*shard.Queue{q}; q.DLQ() != nil {
			queues = append(queues, q.DLQ())
		}
	}
	parsed, err := uuid.Parse(id)
	if err != nil {
		return nil, wire.BadField("id", strconv.Quote(id), "a message id is a UUID, as in the reply to an enqueue and in Fila-Id")
	}
	for _, q := range queues {
		if v := a.find(q, store.ID(parsed)); v != nil {
			return &located{q, v}, nil
		}
	}
	return nil, nil
}

// explained explains a message.
func (a *Admin) explained(at *located) api.ExplainMessage {
	dead := ""
	if at.q.IsDLQ() {
		dead = whyDead(at.q.Store(), store.Ref{Queue: at.q.ID(), Seq: at.v.Seq})
	}
	e := a.gates.message(at.q.Name(), at.v, dead)
	e.History = readHistory(at.q.Store(), store.Ref{Queue: at.q.ID(), Seq: at.v.Seq})
	return e
}

// find finds a message by its id, reading the queue in pieces; nil: q does not have it.
func (a *Admin) find(q *shard.Queue, id store.ID) *inspect.MessageView {
	var v *inspect.MessageView
	var from uint64
	for {
		ok := q.View(func(m *queue.Queue, side queue.Role, now int64) {
			v, from = m.Inspect(side).Find(id, from, a.piece, now)
		})
		if !ok || v != nil || from == 0 {
			return v
		}
	}
}

// whyDead says why a message is a dead letter, empty if it does not exist any more.
func whyDead(from store.Store, ref store.Ref) (reason string) {
	err := from.Dead([]store.Ref{ref}, func(_ int, d *store.Dead) {
		if d == nil {
			return
		}
		reason = fmt.Sprintf("It was dead-lettered from %s at %s after %s: %s.", d.SourceQueue, wire.Timestamp(d.At), wire.Plural(int64(d.Attempts), "attempt"), d.Reason)
		if d.Error != "" {
			reason += " Last error: " + d.Error
		}
	})
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return "Why it is a dead letter cannot be read: " + err.Error()
	}
	return reason
}

// message explains a message of a queue. dead is the reason of a dead letter, empty for other
// messages.
func (g *gateStates) message(name string, v *inspect.MessageView, dead string) api.ExplainMessage {
	e := api.ExplainMessage{
		ID: uuid.UUID(v.ID).String(), State: finder.StateName(v.State, wire.IsDLQ(name)), Queue: name, Key: wire.ShowKey(v.Key),
		Attempt: v.Attempt, EnqueuedAt: wire.Timestamp(v.EnqueuedAt), Gates: g.all(v), Routes: g.routes(name, v), Route: v.Route, Ahead: v.Ahead,
	}
	switch v.State {
	case inspect.StateDelayed:
		e.ReadyAt = wire.Timestamp(v.ReadyAt)
	case inspect.StateLeased:
		e.Consumer, e.LeaseUntil = v.Consumer, wire.Timestamp(v.LeaseUntil)
	default:
		if v.BlockedSince != 0 {
			e.BlockedSince = wire.Timestamp(v.BlockedSince)
		}
	}
	switch {
	case dead != "":
		e.Reason = dead
	case v.State == inspect.StateFailing:
		e.Reason = "Its last attempt failed, and on_failure is deciding about a retry."
	case v.State == inspect.StateMoving:
		e.Reason = "It is moving to another queue, or a job has claimed it."
	case v.State == inspect.StateLeased:
		e.Reason = fmt.Sprintf("It is leased to consumer %s until %s.", e.Consumer, e.LeaseUntil)
		if v.Route != "" {
			e.Reason = fmt.Sprintf("It went by route %s to consumer %s, which has it until %s.", v.Route, e.Consumer, e.LeaseUntil)
		}
	default:
		g.waiting(&e, v)
	}
	return e
}

// waiting explains what a message waits for that is not in flight.
func (g *gateStates) waiting(e *api.ExplainMessage, v *inspect.MessageView) {
	switch {
	case v.State == inspect.StateDelayed:
		e.Reason, e.Estimate = "It is delayed until "+e.ReadyAt+".", e.ReadyAt
		if v.By == gates.ByPause {
			st := g.state(v.WaitReason, e.Queue, v.Key)
			e.BlockedBy, e.Reason = &st, pauseText(v.At, e.Queue, v.Key)+" "+e.Reason
		}
	case v.State == inspect.StateBlocked, v.State == inspect.StateOrdered:
		g.blocked(e, v)
	case v.By == gates.ByNoConsumer:
		e.Reason = "It is ready, but no consumer is registered."
	case v.By == gates.ByNoCredit:
		e.Reason = "It is ready and waits for a consumer with credit."
	default:
		e.Reason = "It is ready and waits for the turn of its key."
	}
}

// blocked explains what blocks a message.
func (g *gateStates) blocked(e *api.ExplainMessage, v *inspect.MessageView) {
	st := g.state(v.WaitReason, e.Queue, v.Key)
	e.BlockedBy = &st
	switch {
	case v.By == gates.ByOrder:
		e.Reason = "Another message of key " + quoteKey(v.Key) + " comes first, and the queue keeps the order of each key."
	case v.At.Queue:
		e.Reason = pauseText(v.At, e.Queue, v.Key)
	case !v.First:
		first := "; the first of them is blocked by "
		if v.Ahead == 1 {
			first = ", blocked by "
		}
		e.Reason = wire.Plural(v.Ahead, "message") + " of the same key and gates" + are(v.Ahead) + "ahead of it" + first + gateText(&st) + "."
	case len(e.Routes) > 1 && !v.At.Paused && v.By != gates.ByTurn:
		e.Reason = "Each of its routes is blocked."
		for i := range e.Routes {
			if by := e.Routes[i].BlockedBy; by != nil {
				e.Reason += " " + e.Routes[i].Name + ": " + gateText(by) + "."
			}
		}
	default:
		e.Reason = "It is blocked by " + gateText(&st) + "."
	}
	if !v.DeadLetter {
		e.Estimate = estimate(v, g.now())
	}
}

// pauseText says in a sentence what is paused.
func pauseText(at gates.Place, name, key string) string {
	if at.Queue {
		return "Queue " + name + " is paused" + untilText(at.Until) + "."
	}
	return "Key " + quoteKey(key) + " is paused" + untilText(at.Until) + "."
}

// estimate returns when a blocked message may go if nothing changes: the time that the gate
// needs for the messages ahead at the flow's share.
func estimate(v *inspect.MessageView, now int64) string {
	at := max(admits(v.At, now), now)
	if at == math.MaxInt64 {
		return ""
	}
	if v.Ahead > 0 && v.At.Throttle != nil {
		perMessage := interval(v.At.Throttle, int64(v.Cost), now)
		if perMessage == 0 || v.Share == 0 || v.Ahead >= explainWalk {
			return ""
		}
		wait := float64(v.Ahead) * perMessage / v.Share
		if wait > math.MaxInt64/4 {
			return ""
		}
		at += int64(wait)
	}
	return wire.Timestamp(at)
}

// queue explains what a queue waits for.
func (g *gateStates) queue(name string, v *inspect.StateView) api.ExplainQueue {
	e := api.ExplainQueue{
		Queue: name, Pending: v.Pending, Ready: v.Pending - v.Stats.Blocked, Blocked: v.Stats.Blocked, Parked: v.Stats.Blocked, Delayed: v.Delayed, InFlight: v.InFlight, Moving: v.Moving,
		Consumers: v.Consumers, Credit: v.Credit, Paused: pausedText(v.Paused), BlockedBy: g.counts(name, v.Blocked),
	}
	blocked := blockedText(e.Blocked, e.BlockedBy)
	switch {
	case v.Paused != 0:
		e.Reason = "The queue is paused" + untilText(v.Paused) + "."
	case e.Pending+e.Delayed+e.InFlight == 0 && e.Moving > 0:
		e.Reason = movingText(e.Moving)
	case e.Pending+e.Delayed+e.InFlight == 0:
		e.Reason = "The queue is empty."
	case e.Ready > 0 && e.Consumers == 0:
		e.Reason = sentences(blocked, wire.Plural(e.Ready, "message")+are(e.Ready)+"ready, but no consumer is registered.")
	case e.Ready > 0 && e.Credit == 0:
		e.Reason = sentences(blocked, fmt.Sprintf("%s%sready and %s for a consumer with credit; %s%sin flight.",
			wire.Plural(e.Ready, "message"), are(e.Ready), verb(e.Ready, "wait"), wire.Grouped(e.InFlight), are(e.InFlight)))
	case blocked != "":
		e.Reason = blocked
	case e.Delayed > 0 && e.InFlight == 0 && e.Ready == 0:
		e.Reason = delayedText(e.Delayed)
	default:
		e.Reason = "Messages are being delivered."
	}
	return e
}

// blockedText says how many messages are blocked, and which gate blocks most; empty if none
// are.
func blockedText(blocked int64, by []api.BlockedCount) string {
	if blocked == 0 || len(by) == 0 {
		return ""
	}
	top := &by[0]
	if top.Messages == blocked {
		return fmt.Sprintf("%s%sblocked by %s.", wire.Plural(blocked, "message"), are(blocked), gateText(&top.GateState))
	}
	return fmt.Sprintf("%s%sblocked by gates, %s of them by %s.", wire.Plural(blocked, "message"), are(blocked), wire.Grouped(top.Messages), gateText(&top.GateState))
}

func sentences(all ...string) string {
	return strings.Join(slices.DeleteFunc(all, func(s string) bool { return s == "" }), " ")
}

func delayedText(n int64) string {
	return wire.Plural(n, "message") + are(n) + "delayed."
}

func movingText(n int64) string {
	return wire.Plural(n, "message") + are(n) + "moving to another queue or claimed by a job."
}

// verb returns the form of a verb for n things.
func verb(n int64, many string) string {
	if n == 1 {
		return many + "s"
	}
	return many
}

func are(n int64) string {
	if n == 1 {
		return " is "
	}
	return " are "
}

// key explains the flow of a fairness key.
func (g *gateStates) key(name, key string, v *inspect.KeyView) api.ExplainKey {
	e := api.ExplainKey{
		Queue: name, Key: wire.ShowKey(key), Pending: v.Pending + v.Blocked, Ready: v.Pending, Blocked: v.Blocked, Parked: v.Blocked, InFlight: v.InFlight, Delayed: v.Delayed, Moving: v.Moving,
		Weight: float64(v.Weight) / thousand, Deficit: float64(v.Deficit) / thousand, Active: v.Active, Share: v.Share,
		Paused: pausedText(v.Paused), BlockedBy: g.counts(name, v.At),
	}
	for i := range e.BlockedBy {
		if b := &e.BlockedBy[i]; b.Kind == gates.ByOrder.String() {
			b.Gate = "key:" + wire.ShowKey(key)
		}
	}
	blocked := blockedText(e.Blocked, e.BlockedBy)
	ready := wire.Plural(e.Ready, "message") + are(e.Ready) + "ready"
	switch {
	case v.QueuePaused != 0:
		e.Reason = "The queue is paused" + untilText(v.QueuePaused) + "."
	case v.Paused != 0:
		e.Reason = "Key " + quoteKey(key) + " is paused" + untilText(v.Paused) + "."
	case !v.Known:
		e.Reason = "Key " + quoteKey(key) + " has no messages in queue " + name + "."
	case e.Ready > 0 && v.Consumers == 0:
		e.Reason = sentences(blocked, ready+", but no consumer is registered.")
	case e.Ready > 0 && v.Credit == 0:
		e.Reason = sentences(blocked, ready+" and "+verb(e.Ready, "wait")+" for a consumer with credit.")
	case e.Ready > 0:
		e.Reason = sentences(blocked, fmt.Sprintf("%s; the key gets %.0f %% of the deliveries.", ready, 100*e.Share))
	case blocked != "":
		e.Reason = blocked
	case e.InFlight > 0:
		e.Reason = wire.Plural(e.InFlight, "message") + are(e.InFlight) + "in flight."
	case e.Delayed == 0 && e.Moving > 0:
		e.Reason = movingText(e.Moving)
	default:
		e.Reason = delayedText(e.Delayed)
	}
	return e
}

// counts returns the state of blocking gates, the one with the most messages first.
func (g *gateStates) counts(name string, blocked []inspect.BlockedView) []api.BlockedCount {
	slices.SortStableFunc(blocked, func(a, b inspect.BlockedView) int { return cmp.Compare(b.Messages, a.Messages) })
	list := []api.BlockedCount{}
	for _, b := range blocked[:min(len(blocked), explainGates)] {
		st := g.state(b.WaitReason, name, b.Key)
		if b.By == gates.ByOrder {
			st.Gate = "queue:" + name
		}
		list = append(list, api.BlockedCount{GateState: st, Messages: b.Messages, Flows: b.Flows})
	}
	return list
}

// quoteKey quotes a key for a sentence.
func quoteKey(key string) string { return `"` + wire.ShowKey(key) + `"` }
