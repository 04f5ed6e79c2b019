package queuetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/breaker"
	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/wire"
)

// ask records an expected answer and returns its subject.
func (s *Sim) ask(a ask) string {
	s.asked++
	subject := fmt.Sprint("ask.", s.asked)
	s.asks[subject] = &a
	return subject
}

func (s *Sim) nodeOf(d *queue.Delivery) *node {
	m := s.byID[d.ID]
	if !slices.Contains(s.nodes, m.node) {
		return nil
	}
	return m.node
}

// answer answers a delivery, current or not.
func (s *Sim) answer() {
	if len(s.open) == 0 {
		return
	}
	i := s.rnd.IntN(len(s.open))
	d := s.open[i]
	if !s.chance(3) { // otherwise it may be answered again
		s.open = slices.Delete(s.open, i, i+1)
	}
	s.say(&d, s.drawAck())
}

func (s *Sim) drawAck() wire.Ack {
	a := wire.Ack{Kind: pick(s, []wire.AckKind{
		wire.AckDone, wire.AckDone, wire.AckNack, wire.AckNack, wire.AckProgress, wire.AckTerm, wire.AckNoResponders,
	})}
	if a.Kind == wire.AckDone || s.learns && s.chance(3) {
		a = s.drawDone()
	}
	if a.Kind == wire.AckNack {
		s.drawCost(&a)
		a.Error = pick(s, []string{"", "boom"})
		if s.chance(2) {
			a.HasDelay, a.Delay = true, time.Duration(s.rnd.IntN(1500))*time.Millisecond
		}
		if s.chance(3) {
			a.RetryAfter = time.Duration(s.rnd.IntN(2000)) * time.Millisecond
		}
		if s.learns && s.chance(2) {
			a.ErrorCode = pick(s, []string{"429", "503", "529", "400"})
		}
	}
	if s.learns && (a.Kind == wire.AckNack || a.Kind == wire.AckDone) && s.chance(6) {
		a.Feedback = &wire.Feedback{Remaining: pick(s, []int64{0, 500, 3000}), Reset: time.Duration(s.rnd.IntN(3000)) * time.Millisecond}
	}
	return a
}

// drawDone is an ack, which may say what the message has cost.
func (s *Sim) drawDone() wire.Ack {
	a := wire.Ack{Kind: wire.AckDone}
	s.drawCost(&a)
	return a
}

func (s *Sim) drawCost(a *wire.Ack) {
	if s.corrects && s.chance(2) {
		a.HasCost, a.Cost = true, pick(s, []uint32{0, 1, 500, 1000, 3000, 20_000})
	}
}

// answerMany answers all open deliveries in one step of each machine.
func (s *Sim) answerMany() {
	kind := pick(s, []wire.AckKind{wire.AckDone, wire.AckDone, wire.AckNoResponders, wire.AckNack})
	open := s.open
	s.open = nil
	for i := range open {
		a := wire.Ack{Kind: kind}
		if kind == wire.AckDone {
			a = s.drawDone()
		}
		s.say(&open[i], a)
	}
}

// say answers a delivery.
func (s *Sim) say(d *queue.Delivery, a wire.Ack) {
	n := s.nodeOf(d)
	if n == nil {
		return
	}
	if a.Kind == wire.AckNoResponders && s.chance(2) {
		n.Post(queue.Input{Kind: queue.Undelivered, Role: d.Role, Token: d.Token})
		n.later(func() {
			if f := n.current(d.Role, d.Token); f != nil {
				n.takeBack(f)
			}
		})
		return
	}
	reply, q := "", ask{node: n}
	if a.Kind != wire.AckNoResponders && !s.chance(4) {
		reply = s.ask(q)
	}
	n.Post(queue.Input{Kind: queue.Acked, Role: d.Role, Token: d.Token, Ack: a, Confirm: queue.Confirmation{Subject: reply}})
	n.later(func() { n.heard(d.Role, d.Token, a, reply) })
}

// wrongToken answers with a token that is not, or no longer, valid: nothing happens.
func (s *Sim) wrongToken() {
	s.Run()
	n, side := s.anyNode(), s.anySide()
	token := wire.Token{Seq: s.rnd.Uint64N(n.sides[side].seq + 2), Attempt: 1, Lease: s.rnd.Uint64()}
	if len(s.open) > 0 && !s.chance(4) {
		d := pick(s, s.open)
		if n = s.nodeOf(&d); n == nil {
			return
		}
		side, token = d.Role, d.Token
		switch s.rnd.IntN(5) {
		case 0:
			token.Lease ^= 1 << s.rnd.IntN(64)
		case 1:
			token.Attempt += pick(s, []uint32{1, ^uint32(0)})
		case 2:
			token.Seq += pick(s, []uint64{1, ^uint64(0)})
		case 3:
			side = 1 - side
		case 4: // as it was
		}
	}
	if n.current(side, token) != nil {
		return
	}
	n.Step() // what is due by now is no effect of it
	before := n.dump()
	steps := n.Steps
	a := s.drawAck()
	if a.Kind == wire.AckNoResponders {
		n.Post(queue.Input{Kind: queue.Undelivered, Role: side, Token: token})
		n.later(func() {})
	} else {
		reply := s.ask(ask{node: n})
		n.Post(queue.Input{Kind: queue.Acked, Role: side, Token: token, Ack: a, Confirm: queue.Confirmation{Subject: reply}})
		n.later(func() { n.heard(side, token, a, reply) })
	}
	n.Step()
	require.Equal(s.T, steps+1, n.Steps)
	if out := &n.out; len(out.Commits)+len(out.Publish)+len(out.Judge)+len(out.Wake)+len(out.Circuits)+len(out.Notes) > 0 ||
		out.Counters != [queue.Roles]queue.Counters{} {
		require.Fail(s.T, "a wrong token has an effect", "%+v", *out)
	}
	require.Equal(s.T, before, n.dump(), "a wrong token changes something")
}

// judgeSome answers failures, in any order.
func (s *Sim) judgeSome() {
	n := s.anyNode()
	for range 1 + s.rnd.IntN(3) {
		if len(n.Judge) > 0 {
			s.judge(n, s.rnd.IntN(len(n.Judge)), s.drawVerdict())
		}
	}
}

func (s *Sim) drawVerdict() queue.Verdict {
	v := queue.Verdict{Outcome: pick(s, []breaker.Outcome{breaker.Failure, breaker.Failure, breaker.Neutral}), DecidedBy: pick(s, []string{wire.DecidedByHook, wire.DecidedByDefault})}
	if s.chance(2) {
		v.Delay = s.rnd.Int64N(2e9)
	}
	if s.chance(5) {
		v.Reason = pick(s, []string{wire.ReasonOnFailure, wire.ReasonCritical})
	}
	v.Overload = s.learns && s.chance(2)
	return v
}

func (s *Sim) judge(n *node, i int, v queue.Verdict) {
	v.Failure = n.Judge[i]
	n.Judge = slices.Delete(n.Judge, i, i+1)
	n.Post(queue.Input{Kind: queue.Judged, Role: v.Role, Verdict: &v})
	n.later(func() {
		m := s.byID[v.ID]
		if m.place != judged || m.attempts != v.Attempts {
			require.Fail(s.T, "a verdict for nobody", "%s", m)
		}
		n.circuitDecided(m, v.Outcome)
		if v.Overload {
			n.overloaded(m.by, m.began, false)
		}
		m.pass = 0
		n.conclude(m, v.Reason, v.Delay, v.DecidedBy)
	})
}

// answerForTheVanished answers as the server does for deliveries that nobody receives.
func (s *Sim) answerForTheVanished() {
	s.open = slices.DeleteFunc(s.open, func(d queue.Delivery) bool {
		n := s.nodeOf(&d)
		if n == nil {
			return true
		}
		if !s.vanished[fmt.Sprint(n.Name, d.Role, d.Subject)] || s.chance(3) {
			return false
		}
		n.Post(queue.Input{Kind: queue.Acked, Role: d.Role, Token: d.Token, Ack: wire.Ack{Kind: wire.AckNoResponders}})
		n.later(func() { n.heard(d.Role, d.Token, wire.Ack{Kind: wire.AckNoResponders}, "") })
		return true
	})
}

// correct applies to the model the cost in an ack or nack, if there is one.
func (n *node) correct(f *flight, a *wire.Ack) {
	if !a.HasCost {
		return
	}
	cost := int64(max(a.Cost, 1))
	n.sides[f.m.side].fair.correct(f.m.Key, cost-int64(f.m.Cost))
	f.spent.cost = cost
	if f.went != nil {
		f.went.cost = cost
	} else if f.spent.taken > cost {
		f.spent.cost = f.spent.taken // the process that took it has ended: nothing comes back
	}
}

// heard applies an answer to the model.
func (n *node) heard(side queue.Role, token wire.Token, a wire.Ack, reply string) {
	f := n.current(side, token)
	q := n.s.asks[reply]
	if q == nil {
		q = &ask{}
	}
	if f == nil {
		if a.Kind != wire.AckNoResponders {
			q.refused = true
			n.want.refused = append(n.want.refused, reply)
		}
		return
	}
	m := f.m
	q.m, q.f = m, f
	switch a.Kind {
	case wire.AckDone:
		n.counters(side).Acked++
		q.kind = askFinish
		n.correct(f, &a)
		n.complete(f, breaker.Success)
	case wire.AckProgress:
		f.deadline = n.Now + n.visibility()
		f.extended = append(f.extended, f.deadline)
		q.kind, q.value = askProgress, int64(len(f.extended))
	case wire.AckNack:
		n.counters(side).Nacked++
		q.kind, q.value = askFail, int64(m.attempts)+1
		n.correct(f, &a)
		n.fail(f, wire.AttemptNack, queue.Failure{
			Error: a.Error, Code: a.ErrorCode, HasDelay: a.HasDelay, Delay: int64(a.Delay), Confirm: queue.Confirmation{Subject: reply},
		}, int64(a.RetryAfter))
	case wire.AckTerm:
		if side == queue.Dead {
			q.kind = askFinish
			n.complete(f, breaker.Neutral)
			return
		}
		q.kind = askMove
		m.attempts++
		p := n.ended(f, wire.AttemptTerm, m.attempts)
		p.Error, p.Code, p.DecidedBy, p.Reason = a.Error, a.ErrorCode, wire.DecidedByConsumer, wire.ReasonTerm
		m.past.expect(p)
		n.land(f, false)
		n.circuitDone(f, breaker.Neutral)
		n.bury(m, wire.ReasonTerm)
	case wire.AckNoResponders:
		m.past.expect(n.ended(f, wire.AttemptNoResponders, m.attempts+1))
		n.takeBack(f)
		n.unreachable(side, f)
	}
}
