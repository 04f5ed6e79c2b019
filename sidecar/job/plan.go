package job

import (
	"cmp"
	"container/heap"
	"time"

	"github.com/filaq/fila/sidecar/queue/inspect"
	"github.com/filaq/fila/wire/api"
)

const (
	// maxSelected bounds how many of its next messages a job selects. In the order of arrival
	// each selection scans the whole queue: memory is bounded, and scans are repeated.
	maxSelected = 65_536
	maxSorted   = 512 // of them are sorted at a time: sorting all takes tens of milliseconds
	// A step of a scan returns up to scanMessages messages and visits up to scanSlots: the
	// queue stands still meanwhile.
	scanMessages = 4096
	scanSlots    = 4 * scanMessages
	// A batch is batchSize messages or batchBytes: all queues of the shard wait while it is
	// written, so it takes the disk about as long as a few commits of others. Batches shrink
	// while the queue needs longer than targetStep for one. On a disk where the fastest of
	// the first sampledBatches took longer than targetCommit all commits are slow, however
	// small, so batches grow, up to maxGrowth times.
	batchSize      = 160
	batchBytes     = 1 << 20
	sampledBatches = 4
	maxGrowth      = 16
	targetStep     = 5 * time.Millisecond
	targetCommit   = 4 * time.Millisecond
	// defaultRate (messages a second) applies to jobs without a rate. After each batch and each
	// step of a scan a job rests as long as that took, at most maxRest, so that others get the
	// disk and the processors.
	defaultRate = 40_000
	maxRest     = 20 * time.Millisecond
)

// candidate is a message that matches what the queue knows of the filter.
type candidate struct {
	position
	size uint32
}

// plan selects the messages of a job and sets its pace.
type plan struct {
	scan     *scan // under way; nil: none is
	selected selection
	next     []candidate // sorted, in front of selected
	sorted   []candidate // buffer of next
	more     bool        // behind selected there may be others

	size    int   // messages of the next batch, at most
	due     int64 // Unix ns: the next batch does not begin earlier
	batches int
	fastest time.Duration // of the first commits
}

// empty reports whether all messages of the job have been taken.
func (p *plan) empty() bool { return len(p.next)+len(p.selected.list) == 0 && !p.more }

// newScan begins to look for the next messages, behind the position at.
func (p *plan) newScan(match inspect.Match, order string, at position) {
	p.scan = &scan{match: match, behind: at, inSeqOrder: order == api.OrderDeath}
	p.scan.chosen = selection{order: byArrival, list: p.selected.list[:0]}
	if p.scan.inSeqOrder {
		p.scan.from, p.scan.chosen.order = at.Seq+1, bySeq
	} else {
		p.scan.match.Since = max(match.Since, at.EnqueuedAt)
	}
}

// endScan takes over what the scan has found.
func (p *plan) endScan() {
	p.selected, p.more = p.scan.chosen, p.scan.chosen.full()
	p.selected.reverse()
	p.scan = nil
}

// sort makes the first of the selected messages the next ones.
func (p *plan) sort() {
	if len(p.next) < p.size && len(p.selected.list) > 0 {
		p.sorted = append(p.sorted[:0], p.next...)
		p.sorted = p.selected.first(max(maxSorted, p.size)-len(p.sorted), p.sorted)
		p.next = p.sorted
	}
}

// batch returns the messages of the next batch of a job at a progress.
func (p *plan) batch(s *spec, done int64) []candidate {
	most := p.size
	if s.Limit > 0 {
		most = int(min(int64(most), s.Limit-done))
	}
	if s.Rate > 0 {
		most = min(most, int(max(s.Rate/10, 1)))
	}
	n, bytes := 0, int64(0)
	for n < min(most, len(p.next)) && (n == 0 || bytes < batchBytes) {
		bytes += int64(p.next[n].size)
		n++
	}
	return p.next[:n]
}

// passed drops the next messages up to a position.
func (p *plan) passed(at position) {
	for i := range p.next {
		if p.next[i].position == at {
			p.next = p.next[i+1:]
			return
		}
	}
}

// rest delays the next operation by as long as the work since began has taken.
func (p *plan) rest(began, now int64) {
	p.due = max(p.due, now+min(max(now-began, 0), int64(maxRest)))
}

// spend delays the next operation by as long as n messages since began take at a rate.
func (p *plan) spend(n, rate, began int64) {
	p.due = max(p.due, began+n*int64(time.Second)/cmp.Or(rate, defaultRate))
}

// adapt sets the size of the next batch by the time that the queue and the disk took for the last
// one. A slow commit never makes batches smaller than the first ones: then it is slow for other
// reasons.
func (p *plan) adapt(step, commit time.Duration) {
	if p.batches++; p.batches == 1 || p.batches <= sampledBatches && commit < p.fastest {
		p.fastest = commit
	}
	target, most := time.Duration(targetCommit), batchSize
	if p.batches >= sampledBatches && p.fastest > targetCommit {
		target, most = 2*p.fastest, int(min(2*batchSize*p.fastest/targetCommit, batchSize*maxGrowth))
	}
	switch {
	case step > 2*targetStep:
		p.size = max(p.size/2, 1)
	case commit > 2*target:
		p.size = max(p.size/2, min(p.size, batchSize))
	case step < targetStep && (p.size < batchSize || commit < target):
		p.size = max(p.size, min(2*p.size, most))
	}
}

// scan looks through a queue for the next messages of a job, step by step.
type scan struct {
	match      inspect.Match
	behind     position
	inSeqOrder bool
	from       uint64 // sequence of the next step; 0: the end
	chosen     selection
}

// add takes the result of a step: messages, and where the next step begins.
func (s *scan) add(found []inspect.Member, next uint64) {
	s.from = next
	for i := range found {
		m := &found[i]
		c := candidate{position: position{Seq: m.Seq, EnqueuedAt: m.EnqueuedAt, ID: m.ID}, size: m.Size}
		if s.chosen.order(c.position, s.behind) > 0 {
			s.chosen.add(c)
		}
	}
	if s.chosen.full() && !s.inSeqOrder {
		s.match.Before = s.chosen.list[0].EnqueuedAt + 1 // later messages would not be chosen
	}
}

// over reports whether the rest of the queue has nothing to choose.
func (s *scan) over() bool { return s.from == 0 || s.inSeqOrder && s.chosen.full() }

// selection is the first maxSelected messages in an order, as a heap with the last on top.
type selection struct {
	order func(a, b position) int
	list  []candidate
}

func (s *selection) Len() int           { return len(s.list) }
func (s *selection) Less(i, j int) bool { return s.order(s.list[i].position, s.list[j].position) > 0 }
func (s *selection) Swap(i, j int)      { s.list[i], s.list[j] = s.list[j], s.list[i] }
func (s *selection) Push(any)           { panic("job: a selection is not filled by heap.Push") }
func (s *selection) Pop() any           { panic("job: a selection is not emptied by heap.Pop") }

// full reports whether there may be messages behind the selected ones.
func (s *selection) full() bool { return len(s.list) == maxSelected }

// add adds a message if it is one of the first.
func (s *selection) add(c candidate) {
	switch {
	case len(s.list) < maxSelected:
		s.list = append(s.list, c)
		if s.full() {
			heap.Init(s)
		}
	case s.order(c.position, s.list[0].position) < 0:
		s.list[0] = c
		heap.Fix(s, 0)
	}
}

// reverse has the first message on top instead of the last.
func (s *selection) reverse() {
	order := s.order
	s.order = func(a, b position) int { return order(b, a) }
	heap.Init(s)
}

// first moves the first n messages of a reversed selection to out, in order.
func (s *selection) first(n int, out []candidate) []candidate {
	for ; n > 0 && len(s.list) > 0; n-- {
		last := len(s.list) - 1
		s.Swap(0, last)
		out, s.list = append(out, s.list[last]), s.list[:last]
		if last > 0 {
			heap.Fix(s, 0)
		}
	}
	return out
}

// leftBy is why a job leaves messages in a state as they are; empty: it does not.
func leftBy(op string, state inspect.MessageState) string {
	switch state {
	case inspect.StateLeased, inspect.StateFailing:
		return api.LeftInFlight
	case inspect.StateMoving:
		return api.LeftMoving
	case inspect.StateDelayed:
		return ""
	default:
		if op == api.JobRunNow {
			return api.LeftNotDelayed
		}
		return ""
	}
}
