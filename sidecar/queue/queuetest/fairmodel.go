package queuetest

import (
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/queue"
)

// plainKeys are the fairness keys whose messages have no gates: their flows stay
// eligible as long as they have messages.
var plainKeys = [3]string{"p", "q", "r"}

// fairModel checks the deliveries of a role against the bound of deficit round robin: for two
// flows that stay backlogged over an interval with unchanged weights,
//
//	|S_i/w_i - S_j/w_j| <= quantum + (C+D_i)/w_i + (C+D_j)/w_j
//
// with S the cost served, as far as it is known, C the largest cost that was expected, and
// D the largest deficit of a flow: at most what acks have added since the flow was served
// last, since a flow with a deficit is not served. The model keeps the smallest and the
// largest value of S_i*w_j - S_j*w_i since both have been backlogged, which holds for all
// intervals at once.
type fairModel struct {
	flows [len(plainKeys)]fairFlow
	pairs [len(plainKeys)][len(plainKeys)]fairPair
}

type fairFlow struct {
	weight  int64 // 0: not known
	served  int64
	backlog bool  // it had one when it was looked at last
	spoilt  bool  // its key has been paused: it takes its turns at the pause, until it is empty
	back    int64 // cost of what was put back, or was expected too high: it may be served in addition, until it is empty
	raised  int64 // what acks have said beyond what was expected, since it was served last
	most    int64 // the largest of that, until it is empty
}

type fairPair struct {
	begun     bool
	lo, hi    int64
	delivered int // of both, since begun
}

func plainKey(key string) int {
	for i, k := range plainKeys {
		if k == key {
			return i
		}
	}
	return -1
}

// reset begins new intervals for a flow, of a plain key or not.
func (f *fairModel) reset(key string) {
	i := plainKey(key)
	if i < 0 {
		return
	}
	for j := range f.pairs {
		f.pairs[i][j], f.pairs[j][i] = fairPair{}, fairPair{}
	}
}

func (f *fairModel) resetAll() {
	for _, key := range plainKeys {
		f.reset(key)
	}
}

// weigh notes the weight of a flow.
func (f *fairModel) weigh(key string, weight int64) {
	if i := plainKey(key); i >= 0 && f.flows[i].weight != weight {
		f.flows[i].weight = weight
		f.reset(key)
	}
}

// spoil ignores a flow until it is empty.
func (f *fairModel) spoil(key string) {
	if i := plainKey(key); i >= 0 {
		f.flows[i].spoilt = true
		f.reset(key)
	}
}

// putBack notes that something of a flow was put back.
func (f *fairModel) putBack(key string, cost int64) {
	if i := plainKey(key); i >= 0 {
		f.flows[i].back += cost
		f.reset(key)
	}
}

// correct notes that a message of a flow has cost more or less than was expected.
func (f *fairModel) correct(key string, delta int64) {
	i := plainKey(key)
	switch {
	case i < 0:
	case delta < 0:
		f.putBack(key, -delta)
	default:
		fl := &f.flows[i]
		fl.served += delta
		fl.raised += delta
		fl.most = max(fl.most, fl.raised)
	}
}

// backlog counts the messages of a plain flow that could be delivered, and all of its messages.
func (f *fairModel) backlog(i, ready, all int) {
	fl := &f.flows[i]
	if all == 0 {
		fl.spoilt, fl.back, fl.most = false, 0, fl.raised
	}
	if fl.backlog = ready > 0 && !fl.spoilt; !fl.backlog {
		f.reset(plainKeys[i])
	}
}

// deliver models the delivery of a message that the backlog of its flow includes.
func (f *fairModel) deliver(t T, what, key string, cost, quantum, largest int64) {
	k := plainKey(key)
	f.flows[k].served += cost
	f.flows[k].raised = 0
	for i := range f.flows {
		for j := i + 1; j < len(f.flows); j++ {
			x, y, p := &f.flows[i], &f.flows[j], &f.pairs[i][j]
			if !x.backlog || !y.backlog {
				continue
			}
			d := x.served*y.weight - y.served*x.weight
			if !p.begun {
				// The interval begins before this delivery.
				*p = fairPair{begun: true}
				before := d
				if i == k {
					before -= cost * y.weight
				}
				if j == k {
					before += cost * x.weight
				}
				p.lo, p.hi = before, before
			}
			p.lo, p.hi = min(p.lo, d), max(p.hi, d)
			if i == k || j == k {
				p.delivered++
			}
			if p.hi-p.lo > quantum*x.weight*y.weight+(largest+x.back+x.most)*y.weight+(largest+y.back+y.most)*x.weight {
				require.Fail(t, "deficit round robin", "%s: keys %s and %s of weights %d and %d, quantum %d: %d apart after %d deliveries",
					what, plainKeys[i], plainKeys[j], x.weight, y.weight, quantum, p.hi-p.lo, p.delivered)
			}
		}
	}
}

// checkFair checks m, which is delivered, against the bound of deficit round robin.
func (n *node) checkFair(m *message) {
	f := &n.sides[m.side].fair
	if n.ordered() && m.side == queue.Main || !n.s.exact { // a key may still be paused
		f.resetAll()
		return
	}
	if plainKey(m.Key) < 0 {
		return
	}
	ready := n.countPlain(m.side)
	f.deliver(n.T, m.String(), m.Key, int64(m.Cost), n.settings.Quantum, n.s.largest)
	if ready[plainKey(m.Key)] == 1 {
		f.reset(m.Key) // its flow runs empty
	}
}

// countPlain updates the model of fairness, and returns how many messages of
// each plain key could be delivered.
func (n *node) countPlain(s queue.Role) (ready [len(plainKeys)]int) {
	var all [len(plainKeys)]int
	for _, m := range n.s.all {
		i := plainKey(m.Key)
		if i < 0 || m.node != n || m.side != s || !m.here() {
			continue
		}
		all[i]++
		if m.isReady() {
			ready[i]++
		}
	}
	for i := range plainKeys {
		n.sides[s].fair.backlog(i, ready[i], all[i])
	}
	return ready
}
