package sidecar

import (
	"cmp"
	"container/heap"
	"slices"

	"github.com/filaq/fila/drr"
	"github.com/filaq/fila/wire"
)

// counts is one moment of a queue.
type counts struct {
	parked, pending, delayed, inFlight, oldestAge int64
	consumers, flows                              int
	parkedBy                                      [blockKinds]int64
}

// counts reads the loop's figures. Its cost hardly depends on the backlog.
func (l *loop) counts() counts {
	n := counts{
		parked:    l.parked + l.orderWaiting,
		inFlight:  int64(l.leases.live),
		consumers: l.consumers.registered() + len(l.consumers.fetches),
		flows:     l.sched.Active(),
	}
	n.pending = int64(l.sched.Len()) + n.parked
	n.parkedBy = l.parkedBy
	n.parkedBy[byOrder] += l.orderWaiting
	// What is neither pending nor leased waits: for its time, for its commit,
	// or for on_failure.
	n.delayed = max(l.slots.live-n.pending-n.inFlight, 0)
	if at := l.slots.oldest(); at != 0 {
		n.oldestAge = max(l.q.core.clock.Now()-at, 0)
	}
	return n
}

// summary is the queue in one line.
func (q *queue) summary() (wire.QueueSummary, bool) {
	var n counts
	ok := q.call(func(l *loop) { n = l.counts() })
	return q.summarize(n), ok
}

func (q *queue) summarize(n counts) wire.QueueSummary {
	s := wire.QueueSummary{
		Name: q.name, Pending: n.pending, Parked: n.parked, Delayed: n.delayed, InFlight: n.inFlight,
		Consumers: n.consumers, Bytes: q.bytes.Load(), OldestAgeMs: n.oldestAge / 1e6,
	}
	if q.dlq != nil {
		s.DLQ = q.dlq.name
	}
	return s
}

// gauges reads all queues for a scrape of the metrics.
func (s *Server) gauges() []QueueGauges {
	var all []QueueGauges
	for _, q := range s.queues.all() {
		var n counts
		if !q.call(func(l *loop) { n = l.counts() }) {
			continue
		}
		all = append(all, QueueGauges{
			Queue: q.name, Depth: q.depth.Load(), Pending: n.pending, Parked: n.parkedBy, Delayed: n.delayed, InFlight: n.inFlight,
			Bytes: q.bytes.Load(), OldestAgeSeconds: float64(n.oldestAge) / 1e9, Consumers: n.consumers, Flows: n.flows,
		})
	}
	return all
}

// inspect is everything about a queue, with its top flows.
func (q *queue) inspect(flows int) (wire.QueueInfo, bool) {
	p := q.policy.Load()
	info := wire.QueueInfo{Settings: p.settings, Quantum: p.settings.Quantum, Hooks: p.hooks(), Counters: q.metrics.snapshot()}
	ok := q.call(func(l *loop) {
		n := l.counts()
		info.QueueSummary, info.Flows = q.summarize(n), n.flows
		info.ConsumerList = l.consumerList()
		info.TopFlows = l.topFlows(flows)
	})
	return info, ok
}

// hooks describes the hooks of a policy.
func (p *policy) hooks() []wire.HookInfo {
	list := []wire.HookInfo{}
	for _, g := range []*guard{p.onEnqueue, p.onFailure} {
		if g == nil {
			continue
		}
		s := g.hook.Stats()
		list = append(list, wire.HookInfo{
			Hook: s.Hook, State: s.State, Runs: s.Runs, Failures: s.Failures, Bypassed: s.Bypassed,
			Warnings: s.Warnings, ConsecutiveFailures: s.ConsecutiveFailures, LastError: s.LastError,
		})
	}
	return append(list, p.broken...)
}

func (l *loop) consumerList() []wire.ConsumerInfo {
	list := []wire.ConsumerInfo{}
	add := func(c *consumer) {
		info := wire.ConsumerInfo{
			Name: c.name, MaxInFlight: c.limit, InFlight: c.inFlight, Credit: max(c.credit(), 0), Fetch: c.fetch,
		}
		if c.expiresAt != 0 {
			info.ExpiresAt = timestamp(c.expiresAt)
		}
		list = append(list, info)
	}
	for _, c := range l.consumers.byName {
		if !c.gone {
			add(c)
		}
	}
	for c := range l.consumers.fetches {
		add(c)
	}
	slices.SortFunc(list, func(a, b wire.ConsumerInfo) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

// topFlows returns the n flows with the most pending messages. It looks at
// every active flow once and keeps n of them in a heap.
func (l *loop) topFlows(n int) []wire.FlowInfo {
	top := flowHeap{}
	var weights int64
	for f, info := range l.sched.All() {
		weights += info.Weight
		switch {
		case len(top) < n:
			heap.Push(&top, rankedFlow{f, info})
		case n > 0 && top[0].info.Pending < info.Pending:
			top[0] = rankedFlow{f, info}
			heap.Fix(&top, 0)
		}
	}
	list := make([]wire.FlowInfo, len(top))
	for i := len(top) - 1; i >= 0; i-- {
		r := heap.Pop(&top).(rankedFlow)
		list[i] = wire.FlowInfo{
			Key: l.keys.name(r.flow), Weight: float64(r.info.Weight) / thousand, Deficit: float64(r.info.Deficit) / thousand,
			Pending: r.info.Pending, Share: float64(r.info.Weight) / float64(weights),
		}
	}
	return list
}

type rankedFlow struct {
	flow drr.Flow
	info drr.Info
}

// flowHeap has the flow with the fewest pending messages on top.
type flowHeap []rankedFlow

func (h flowHeap) Len() int           { return len(h) }
func (h flowHeap) Less(i, j int) bool { return h[i].info.Pending < h[j].info.Pending }
func (h flowHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *flowHeap) Push(v any)        { *h = append(*h, v.(rankedFlow)) }
func (h *flowHeap) Pop() any {
	last := len(*h) - 1
	v := (*h)[last]
	*h = (*h)[:last]
	return v
}
