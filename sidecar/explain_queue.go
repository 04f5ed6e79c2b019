package sidecar

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/filaq/fila/drr"
	"github.com/filaq/fila/wire"
)

// blockedAt is a site with what waits there, as the loop knows it.
type blockedAt struct {
	site     site
	kind     blockKind
	gate     string // its name, if the site is none or a pause
	messages int64
	flows    int
}

// explainQueue says what a queue waits for.
func (s *Server) explainQueue(q *queue) (any, *wire.Error) {
	info := wire.ExplainQueue{Queue: q.name, BlockedBy: []wire.BlockedCount{}}
	var blocked []blockedAt
	var paused int64
	ok := q.call(func(l *loop) {
		n := l.counts()
		info.Pending, info.Parked, info.Delayed, info.InFlight = n.pending-n.parked, n.parked, n.delayed, n.inFlight
		info.Consumers, info.Credit = n.consumers, l.credit()
		if l.orderWaiting > 0 {
			blocked = append(blocked, blockedAt{kind: byOrder, gate: "queue:" + q.name, messages: l.orderWaiting, flows: len(l.orders)})
		}
		if l.paused(l.q.core.clock.Now()) {
			paused = l.pausedTo
		}
		for _, st := range l.largestSites() {
			b := blockedAt{site: *st, messages: st.messages, flows: st.line.Len()}
			if st.kind == sitePause {
				b.gate, b.kind = "key:"+l.keys.name(st.flow), byPause
				b.site.at = l.pausedKeys[l.keys.name(st.flow)]
			}
			blocked = append(blocked, b)
		}
	})
	if !ok {
		return nil, q.gone()
	}
	info.BlockedBy = s.blockedCounts(blocked)
	if paused != 0 {
		info.Paused = timestampOrHand(paused)
	}
	switch {
	case paused != 0:
		info.Reason = "The queue is paused" + untilText(paused) + "."
	case info.Pending+info.Parked+info.Delayed+info.InFlight == 0:
		info.Reason = "The queue is empty."
	case info.Pending > 0 && info.Consumers == 0:
		info.Reason = fmt.Sprintf("%d messages are ready, but no consumer is registered.", info.Pending)
	case info.Pending > 0 && info.Credit == 0:
		info.Reason = fmt.Sprintf("%d messages are ready and wait for the consumers, which have %d in flight and no room for more.", info.Pending, info.InFlight)
	case info.Parked > 0 && len(info.BlockedBy) > 0:
		top := &info.BlockedBy[0]
		info.Reason = fmt.Sprintf("%d messages are held back by gates, %d of them by %s.", info.Parked, top.Messages, blockedText(&top.GateState))
	case info.Delayed > 0 && info.InFlight == 0:
		info.Reason = fmt.Sprintf("%d messages wait for their time.", info.Delayed)
	default:
		info.Reason = "Messages are being delivered."
	}
	return info, nil
}

// largestSites returns the sites with the most messages, explainGates of them.
func (l *loop) largestSites() []*site {
	var top []*site
	for _, st := range l.sites.items[1:] {
		if st.kind == siteFree || st.messages == 0 || len(top) == explainGates && st.messages <= top[len(top)-1].messages {
			continue
		}
		if len(top) == explainGates {
			top = top[:explainGates-1]
		}
		i, _ := slices.BinarySearchFunc(top, st, func(a, b *site) int { return cmp.Compare(b.messages, a.messages) })
		top = slices.Insert(top, i, st)
	}
	return top
}

// blockedCounts asks the gates of sites how they stand, the largest first.
func (s *Server) blockedCounts(blocked []blockedAt) []wire.BlockedCount {
	now := s.core.clock.Now()
	slices.SortStableFunc(blocked, func(a, b blockedAt) int { return cmp.Compare(b.messages, a.messages) })
	list := []wire.BlockedCount{}
	for i := range blocked[:min(len(blocked), explainGates)] {
		b := &blocked[i]
		list = append(list, wire.BlockedCount{
			GateState: s.siteState(&b.site, b.kind, b.gate, now), Messages: b.messages, Flows: b.flows,
		})
	}
	return list
}

func timestampOrHand(until int64) string {
	if until == byHand {
		return "until resumed"
	}
	return timestamp(until)
}

// explainKey says how a fairness key of a queue stands.
func (s *Server) explainKey(q *queue, key string) (any, *wire.Error) {
	info := wire.ExplainKey{Queue: q.name, Key: key, WeightBy: "producer", BlockedBy: []wire.BlockedCount{}}
	var blocked []blockedAt
	var paused, queuePaused int64
	credit, known := 0, false
	ok := q.call(func(l *loop) {
		now := l.q.core.clock.Now()
		if l.paused(now) {
			queuePaused = l.pausedTo
		}
		paused = l.pausedKeys[key]
		credit = l.credit()
		if _, ok := l.keys.overrides[key]; ok {
			info.WeightBy = "config"
		}
		f, ok := l.keys.ids[key]
		if !ok {
			return
		}
		known = true
		blocked = l.explainFlow(f, &info)
	})
	if !ok {
		return nil, q.gone()
	}
	info.BlockedBy = s.blockedCounts(blocked)
	if paused != 0 {
		info.Paused = timestampOrHand(paused)
	}
	switch {
	case queuePaused != 0:
		info.Reason = "The queue is paused" + untilText(queuePaused) + "."
	case paused != 0:
		info.Reason = fmt.Sprintf("Key %q is paused%s.", key, untilText(paused))
	case !known:
		info.Reason = fmt.Sprintf("Key %q has no messages in queue %s.", key, q.name)
	case info.Pending > 0 && credit == 0:
		info.Reason = fmt.Sprintf("%d messages are ready and wait for a consumer with room.", info.Pending)
	case info.Pending > 0:
		info.Reason = fmt.Sprintf("%d messages are ready; the key gets %.0f %% of the deliveries.", info.Pending, 100*info.Share)
	case len(info.BlockedBy) > 0:
		top := &info.BlockedBy[0]
		info.Reason = fmt.Sprintf("%d messages are held back by %s.", top.Messages, blockedText(&top.GateState))
	case info.InFlight > 0:
		info.Reason = fmt.Sprintf("%d messages are with consumers.", info.InFlight)
	default:
		info.Reason = fmt.Sprintf("%d messages wait for their time.", info.Delayed)
	}
	return info, nil
}

// explainFlow fills in the figures of a flow and returns where its lanes wait.
func (l *loop) explainFlow(f drr.Flow, info *wire.ExplainKey) []blockedAt {
	info.Weight = float64(l.keys.weight(f)) / thousand
	if in, ok := l.sched.Flow(f); ok {
		info.Pending, info.Deficit = in.Pending, float64(in.Deficit)/thousand
		var all int64
		for _, other := range l.sched.All() {
			all += other.Weight
		}
		info.Share = float64(in.Weight) / float64(all)
	}
	bySite := make(map[siteID]*blockedAt)
	var blocked []blockedAt
	for id := l.lanes.first[f]; id != 0; id = l.lanes.at(id).sisters {
		ln := l.lanes.at(id)
		if ln.list.n == 0 {
			continue
		}
		info.Parked += int64(ln.list.n)
		b := bySite[ln.site]
		if b == nil {
			b = &blockedAt{site: *l.sites.at(ln.site), kind: ln.kind, gate: "key:" + l.keys.name(f), flows: 1}
			if b.site.kind == sitePause {
				b.site.at = l.pausedKeys[l.keys.name(f)]
			}
			bySite[ln.site] = b
		}
		b.messages += int64(ln.list.n)
	}
	for _, b := range bySite {
		blocked = append(blocked, *b)
	}
	if o := l.orders[f]; o != nil {
		info.Parked += int64(o.waiting.n)
	}
	for i := l.leases.head; i != 0; i = l.leases.items[i-1].next {
		if l.slots.get(l.leases.items[i-1].seq).flow == f {
			info.InFlight++
		}
	}
	info.Delayed = max(int64(l.keys.entries[f].refs)-info.Pending-info.Parked-info.InFlight, 0)
	return blocked
}
