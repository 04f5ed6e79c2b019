package sidecar

// pacing says when changes are handed to the store. The zero value hands them in
// at the end of each turn.
type pacing struct {
	// hold keeps the changes of a queue back while an earlier batch of it is being
	// committed: what is enqueued and acked meanwhile is never written.
	hold bool
	// linger (ns) is how long a message waits while messages of its batch are with
	// consumers, who may be done with them soon: then it is never written.
	linger int64
	// lingerMost (ns) is how long it waits at most under load, which is four times
	// as long as messages live on average: with the writing of what is acked a
	// moment later, everybody would wait longer. It is load if a batch has that
	// many messages; a producer that waits for each confirmation does not.
	lingerMost int64
	load       int
	// idle (ns) is how long changes wait that nobody waits for.
	idle int64
}

// defaultPacing is what a server does.
var defaultPacing = pacing{hold: true, linger: 1e6, lingerMost: 20e6, load: 16, idle: 5e6}

// holdAtMost is how many changes are held back.
const holdAtMost = 8192

// flushAt is when the changes so far are to be handed in; 0: when something else
// happens.
func (l *loop) flushAt(now int64) int64 {
	b, p := l.main, &l.q.core.pacing
	live := len(b.Add) - b.dropped
	if live == 0 && b.since == 0 {
		return 0
	}
	wait := p.idle
	switch {
	case b.full():
		return now
	case p.hold && l.committing > 0:
		return 0
	case len(b.replies)+len(b.PutConsumers)+len(b.DeleteConsumers) > 0:
		return now
	case l.young > 0:
		wait = l.linger()
	case b.waited > 0:
		return now
	}
	at := b.oldest(now) + wait
	if b.since != 0 {
		at = min(at, b.since+p.idle)
	}
	return at
}

// linger is how long messages wait for their acks before they are written.
func (l *loop) linger() int64 {
	b, p := l.main, &l.q.core.pacing
	live := len(b.Add) - b.dropped
	if live >= p.load {
		b.loaded = true // until nothing is left: the last of many are as close to their acks
	}
	if !b.loaded || 2*l.young < live || l.ackTime > p.lingerMost {
		return p.linger // what waits is few, not with consumers, or with slow ones
	}
	return max(p.linger, min(4*l.ackTime, p.lingerMost))
}

// countAck learns from an ack how long messages live: an average over the latest,
// in which a late one has a bounded part.
func (l *loop) countAck(s *slot, now int64) {
	const latest = 64
	lived := min(max(now-s.readyAt, 0), 2*l.q.core.pacing.lingerMost) // the clock may have been set back
	l.ackTime += (lived - l.ackTime) / latest
}

// flushIfDue hands the changes so far to the store, if they need not wait.
func (l *loop) flushIfDue(now int64) {
	if l.main == nil {
		return
	}
	if at := l.flushAt(now); at == 0 || at > now {
		return
	}
	rest, young := l.keepYoung(now)
	l.flush()
	l.main, l.young = rest, young
}

// keepYoung takes the messages out of main whose acks may come soon, when something
// else in it is due. States and dedupe ids must not come to be on disk before
// their messages.
func (l *loop) keepYoung(now int64) (rest *batch, young int) {
	b := l.main
	if l.young == 0 || b.full() || len(b.State)+len(b.Dedupe) > 0 {
		return nil, 0
	}
	since := now - l.linger()
	b.compact()
	n := 0
	for i := range b.Add {
		m := &b.Add[i]
		if s := l.slots.get(m.Seq); m.EnqueuedAt <= since || s == nil || s.state != slotLeased {
			b.Add[n], b.confirm[n] = *m, b.confirm[i]
			n++
			continue
		}
		if rest == nil {
			rest = newBatch(l.q)
			rest.loaded = b.loaded
		}
		rest.Add = append(rest.Add, *m)
		rest.confirm = append(rest.confirm, b.confirm[i])
		rest.bytes += int64(len(m.Headers) + len(m.Payload))
		if b.confirm[i] != "" {
			rest.waited++
		}
		young++
	}
	if rest != nil {
		b.cut(n)
		b.bytes -= rest.bytes
		b.waited -= rest.waited
	}
	return rest, young
}

// full reports whether a batch has enough to be handed in whatever else there is.
func (b *batch) full() bool {
	return len(b.Add)-b.dropped+len(b.Finish)+len(b.State) >= holdAtMost || b.bytes > maxBatchBytes/8
}

// oldest is when the oldest message among those to be added came; now if there is
// none.
func (b *batch) oldest(now int64) int64 {
	for b.first < len(b.Add) && b.gone(b.first) {
		b.first++
	}
	if b.first == len(b.Add) {
		return now
	}
	return b.Add[b.first].EnqueuedAt
}
