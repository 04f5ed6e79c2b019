package queue_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/throttle"
	"github.com/filaq/fila/wire"
)

// costing is an ack that says what a message has cost.
func costing(cost int64) wire.Ack {
	return wire.Ack{Kind: wire.AckDone, HasCost: true, Cost: uint32(cost)}
}

// costFlow is a flow whose messages cost something else than was expected.
type costFlow struct {
	weight int64
	left   int   // messages that wait
	served int64 // cost, as far as it is known: what was expected of those in flight
	under  int64 // by what those in flight are underestimated
	over   int64
	most   [2]int64 // the largest of both
}

type costMessage struct {
	expected, said int64
	real           int64 // as it counts
}

// costs holds deliveries to invariant 4 with costs that are corrected: over every
// interval in which two flows have a backlog
//
//	|S_i/w_i - S_j/w_j| <= quantum + (C+M_i)/w_i + (C+M_j)/w_j
//
// with S the cost served as far as it is known, C the largest that was expected, and
// M = U + O: the messages of a flow that were in flight at one moment were underestimated
// by U in all at most, and overestimated by O at most.
//
// The argument: a turn adds w*quantum to the deficit D of a flow, and whatever is added to
// S is taken off D, corrections included. So over an interval with m turns
//
//	S = m*w*quantum + D(begin) - D(end)
//
// and D stays in [-U, C+O): a message goes only if D covers what is expected of it, so D >= 0
// when it has gone, and until the next one goes only messages that were in flight then can
// take something off D, U in all. When a turn ends D is less than the cost of the next
// message, and until the next turn corrections bring back O at most. So S/w and m*quantum
// differ by (C+M)/w at most, and the turns of two flows that have a backlog all the time
// differ by one. Where a gate decides, start tags take the place of deficits (drr.Line),
// with nothing for the quantum.
type costs struct {
	t              require.TestingT
	quantum, large int64
	flows          map[string]*costFlow
	keys           []string
	messages       map[store.ID]costMessage
	span           map[[2]string][2]int64
	worst          float64 // the largest difference, as a part of the bound
}

// look compares a flow that has been charged with all others. Intervals begin when nothing was
// served.
func (c *costs) look(key string) {
	for _, other := range c.keys {
		if other == key {
			continue
		}
		pair := [2]string{min(key, other), max(key, other)}
		x, y, s := c.flows[pair[0]], c.flows[pair[1]], c.span[pair]
		d := x.served*y.weight - y.served*x.weight
		s[0], s[1] = min(s[0], d), max(s[1], d)
		c.span[pair] = s
		most := c.quantum*x.weight*y.weight + (c.large+x.most[0]+x.most[1])*y.weight + (c.large+y.most[0]+y.most[1])*x.weight
		c.worst = max(c.worst, float64(s[1]-s[0])/float64(most))
		if s[1]-s[0] > most {
			require.Fail(c.t, "the bound", "%s and %s are %d apart, %d is allowed", pair[0], pair[1], s[1]-s[0], most)
		}
	}
}

func (c *costs) delivered(d delivery) {
	f, m := c.flows[d.Key], c.messages[d.ID]
	f.left--
	f.served += m.expected
	f.under += max(0, m.real-m.expected)
	f.over += max(0, m.expected-m.real)
	f.most = [2]int64{max(f.most[0], f.under), max(f.most[1], f.over)}
	c.look(d.Key)
}

func (c *costs) acked(d delivery) {
	f, m := c.flows[d.Key], c.messages[d.ID]
	f.served += m.real - m.expected
	f.under -= max(0, m.real-m.expected)
	f.over -= max(0, m.expected-m.real)
	c.look(d.Key)
}

// backlogged reports whether all flows still have something to send.
func (c *costs) backlogged() bool {
	for _, f := range c.flows {
		if f.left == 0 {
			return false
		}
	}
	return true
}

// The cost served by weight is the cost that acks report, within the bound, whether only the
// schedule decides or also one gate.
func TestCorrectedCostsKeepTheBound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := &costs{
			t: t, quantum: rapid.SampledFrom([]int64{1, 1, 5}).Draw(t, "quantum"),
			flows: make(map[string]*costFlow), messages: make(map[store.ID]costMessage), span: make(map[[2]string][2]int64),
		}
		r := newRig(t, func(s *queue.Settings) { s.Quantum, s.VisibilityTimeoutMs = c.quantum, 1e9 })
		var gates []string
		credit := rapid.IntRange(1, 12).Draw(t, "credit")
		if rapid.Bool().Draw(t, "gate") {
			gates = []string{"gate"}
			r.LimitNow("gate", throttle.Limits{Concurrency: int64(credit)})
			r.Consume(queue.Main, "w", 100, 0)
		} else {
			r.Consume(queue.Main, "w", credit, 0)
		}
		draw := func(what string) int64 {
			return rapid.SampledFrom([]int64{1000, 1000, 1, 250, 3000, 40_000}).Draw(t, what)
		}
		put := func(key string) {
			f, m := c.flows[key], costMessage{expected: draw("expected"), said: draw("real")}
			if rapid.IntRange(0, 3).Draw(t, "nothing") == 0 {
				m.said = 0
			}
			m.real = max(m.said, 1)
			c.large = max(c.large, m.expected)
			id := r.Enqueue(key, func(sm *store.Message) {
				sm.Weight, sm.Cost, sm.ThrottleKeys = uint32(f.weight), uint32(m.expected), gates
			})
			c.messages[id] = m
			f.left++
		}
		for i := range rapid.IntRange(2, 4).Draw(t, "flows") {
			key := fmt.Sprint("flow-", i)
			c.flows[key] = &costFlow{weight: rapid.SampledFrom([]int64{1000, 1000, 3000, 500, 2500}).Draw(t, "weight")}
			c.keys = append(c.keys, key)
		}
		// All have a backlog, behind something that lets nothing go yet. As many messages
		// as there is credit may go before the first of them is replaced: a flow that
		// runs empty has no backlog, and the bound says nothing about it.
		r.Do(queue.Main, queue.Dispatch{})
		for range credit + 3 {
			for _, key := range c.keys {
				put(key)
			}
		}
		r.Commit()
		r.Do(queue.Main, queue.Dispatch{On: true})
		r.Commit()
		if gates != nil { // flows join the line when they are blocked first
			for _, d := range r.Deliveries() {
				c.flows[d.Key].left--
				r.Ack(d, done, "")
			}
			for _, key := range c.keys {
				for range 2*credit + 3 {
					put(key)
				}
			}
			r.Commit()
		}
		var open []delivery
		begun := gates == nil
		for range rapid.IntRange(1, 150).Draw(t, "steps") {
			for _, d := range r.Deliveries() {
				if begun {
					c.delivered(d)
					open = append(open, d)
				} else {
					c.flows[d.Key].left--
					r.Ack(d, done, "")
				}
				for c.flows[d.Key].left < 3 {
					put(d.Key)
				}
			}
			begun = true
			if len(open) > 0 {
				i := rapid.IntRange(0, len(open)-1).Draw(t, "ack")
				d := open[i]
				open = slices.Delete(open, i, i+1)
				r.Ack(d, costing(c.messages[d.ID].said), "")
				c.acked(d)
			}
			r.Commit()
		}
		check(r)
	})
}

// A key whose messages come one at a time owes what the last one has cost while others
// wait, and nothing when nobody does.
func TestAKeyOwesWhileItHasNoMessages(t *testing.T) {
	for _, others := range []bool{true, false} {
		t.Run(fmt.Sprint("others wait=", others), func(t *testing.T) {
			r := newRig(t, nil)
			r.Consume(queue.Main, "w", 1, 0)
			one := func(key string) delivery {
				t.Helper()
				r.Commit()
				d := r.One()
				require.Equal(t, key, d.Key)
				return d
			}
			r.Enqueue("dear", nil)
			d := one("dear")
			if others {
				for range 20 {
					r.Enqueue("cheap", nil)
				}
			}
			r.Ack(d, costing(10*throttle.One), "")
			if !others {
				r.Commit()
				for range 20 {
					r.Enqueue("cheap", nil)
				}
			}
			d = one("cheap")
			r.Enqueue("dear", nil)
			before := 1
			for {
				r.Finished(d)
				r.Commit()
				if d = r.One(); d.Key == "dear" {
					break
				}
				before++
			}
			if others {
				require.Equal(t, 9, before)
			} else {
				require.LessOrEqual(t, before, 2)
			}
			check(r)
		})
	}
}

// A rate is charged with what messages have cost: a tenant's budget for tokens.
func TestRateIsChargedTheCorrectedCost(t *testing.T) {
	r := newRig(t, nil)
	r.Consume(queue.Main, "w", 10, 0)
	r.LimitNow("tokens", throttle.Limits{Rate: throttle.PerSecond(10 * throttle.One), Burst: 100 * throttle.One})
	for range 5 {
		r.Enqueue("k", func(m *store.Message) { m.ThrottleKeys, m.Cost = []string{"tokens"}, 50*throttle.One })
	}
	r.Commit()
	ds := r.Deliveries()
	require.Len(t, ds, 2)
	r.Ack(ds[0], costing(10*throttle.One), "") // 40 come back
	r.Commit()
	require.Empty(t, r.Deliveries(), "50 are needed")
	r.Pass(time.Second)
	d := r.One()
	r.Ack(ds[1], costing(150*throttle.One), "") // the flow carries 100
	r.Ack(d, done, "")
	r.Commit()
	r.Pass(14 * time.Second)
	require.Empty(t, r.Deliveries())
	r.Pass(time.Second)
	r.One()
}

// A nack may say what the attempt has cost, such as nothing of a refused call. The next attempt is
// charged anew.
func TestANackMayHaveACost(t *testing.T) {
	r := newRig(t, nil)
	r.Consume(queue.Main, "w", 10, 0)
	r.LimitNow("tokens", throttle.Limits{Rate: throttle.PerSecond(1), Burst: 100 * throttle.One})
	r.Enqueue("k", func(m *store.Message) { m.ThrottleKeys, m.Cost = []string{"tokens"}, 50*throttle.One })
	r.Commit()
	tokens := func() int64 {
		g, ok, _ := r.Gates.Look("tokens", r.Now)
		require.True(t, ok)
		return g.Tokens
	}
	for range 3 {
		d := r.One()
		require.InDelta(t, 50*throttle.One, tokens(), 10)
		r.Ack(d, wire.Ack{Kind: wire.AckNack, HasCost: true, HasDelay: true, Delay: time.Millisecond}, "")
		require.InDelta(t, 100*throttle.One, tokens(), 10, "a cost of 0 counts as 0.001")
		r.Commit()
		r.Pass(time.Millisecond)
	}
	r.Ack(r.One(), wire.Ack{Kind: wire.AckNack, HasDelay: true, Delay: time.Hour}, "")
	require.InDelta(t, 50*throttle.One, tokens(), 10, "without a cost the estimate stands")
	check(r)
}

// An expired lease keeps the estimate, and its late ack changes nothing.
func TestAnExpiredLeaseKeepsTheEstimate(t *testing.T) {
	r := newRig(t, func(s *queue.Settings) { s.VisibilityTimeoutMs = 1000 })
	r.Consume(queue.Main, "w", 10, 0)
	r.LimitNow("tokens", throttle.Limits{Rate: throttle.PerSecond(1), Burst: 100 * throttle.One})
	r.Enqueue("k", func(m *store.Message) { m.ThrottleKeys, m.Cost = []string{"tokens"}, 50*throttle.One })
	r.Commit()
	d := r.One()
	r.Pass(1100 * time.Millisecond)
	r.Ack(d, costing(1), "reply")
	r.Commit()
	g, ok, _ := r.Gates.Look("tokens", r.Now)
	require.True(t, ok)
	require.Less(t, g.Tokens, int64(51*throttle.One))
}

// A key whose messages cost nothing, as with answers from a cache, does not hold up the
// others for ever, neither in the schedule nor in the line of a gate.
func TestFreeMessagesDoNotStarveOthers(t *testing.T) {
	for _, gates := range [][]string{nil, {"gate"}} {
		t.Run(fmt.Sprint("gates=", gates), func(t *testing.T) {
			r := newRig(t, nil)
			r.LimitNow("gate", throttle.Limits{Concurrency: 1})
			r.Consume(queue.Main, "w", 1, 0)
			put := func(key string) {
				r.Enqueue(key, func(m *store.Message) { m.ThrottleKeys = gates })
			}
			for range 3 {
				put("free")
				put("other")
			}
			r.Commit()
			others := 0
			for range 1100 {
				d := r.One()
				put(d.Key)
				if d.Key == "other" {
					others++
					r.Ack(d, done, "")
				} else {
					r.Ack(d, costing(0), "")
				}
				r.Commit()
			}
			require.Equal(t, 2, others)
			check(r)
		})
	}
}

// A key that waits at a gate is charged there for a message of it that has passed the gate
// together with other ones, and so from another subqueue.
func TestAWaitingKeyIsChargedForItsOtherMessages(t *testing.T) {
	r := newRig(t, nil)
	r.LimitNow("shared", throttle.Limits{Concurrency: 1})
	r.LimitNow("other", throttle.Limits{Concurrency: 9})
	r.Consume(queue.Main, "w", 9, 0)
	r.Gated("a", "shared", "other")
	dear := r.One()
	for range 12 {
		r.Gated("a", "shared")
		r.Gated("b", "shared")
	}
	r.Ack(dear, costing(6*throttle.One), "")
	served := ""
	for range 10 {
		d := r.One()
		served += d.Key
		r.Finished(d)
	}
	require.Equal(t, "bbbbbababa", served, "five more than was estimated")
	check(r)
}
