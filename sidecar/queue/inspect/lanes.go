package inspect

import (
	"cmp"
	"slices"

	"github.com/filaq/fila/drr"
)

// LaneView is a fairness key of a queue: its backlog, and what it was served lately.
type LaneView struct {
	Key             string
	Weight, Deficit int64   // thousandths
	Share           float64 // of the weights of all keys with a backlog, as if it had one; 0 of a paused key, which the share of others leaves out
	Ready, Blocked  int64
	InFlight        int64
	At              []BlockedView // what blocks its messages, the largest first
	Oldest          int64         // ns for which the first of its messages has been ready
	ServedView
}

// ServedView is what a key was served since it has a row of work: keys with much of the work
// of consumers have one, until a minute passes in which no delivery of them ends.
type ServedView struct {
	Ended int64 // deliveries that have ended
	Took  int64 // ns that consumers have worked on the ones that ended lately
	Waits Waits // before the ones that ended lately
}

// LanesView is a queue by fairness key.
type LanesView struct {
	State StateView
	Keys  int // with a backlog
	All   ServedView
	Lanes []LaneView
}

// Lanes describes the most keys with the largest backlogs, and after them keys without one
// that were served most lately. It visits every key and subqueue once, up to readWalk of
// each.
func (r *Reader) Lanes(most int, now int64) LanesView {
	v := LanesView{State: r.State(0, now), All: r.Served(now), Lanes: []LaneView{}}
	backlog := r.backlogs()
	largest := top[rankedFlow]{n: most, compare: rankedFlow.compare}
	var weights int64
	for i, n := range backlog {
		if f := drr.Flow(i); n > 0 {
			info := drr.Info{Weight: r.t.Weight(f)}
			largest.add(rankedFlow{f, n, info})
			if !r.keyPaused(f, now) {
				weights += info.Weight
			}
			v.Keys++
		}
	}
	served, leases, e := r.served(now), r.flowLeases(), r.evaluator(now)
	for _, f := range largest.first() {
		l := LaneView{
			Key: r.t.Name(f.flow), Weight: f.info.Weight, InFlight: leases[f.flow], Oldest: r.oldestWait(f.flow, now),
		}
		if !r.keyPaused(f.flow, now) {
			l.Share = float64(l.Weight) / float64(weights)
		}
		var k KeyView
		e.flow(f.flow, &k)
		l.Ready, l.Blocked, l.At = k.Pending, k.Blocked, k.At
		if info, active := r.t.Sched.Flow(f.flow); active {
			l.Deficit = info.Deficit
		}
		if s := served[l.Key]; s != nil {
			l.ServedView = s.view(now, &r.monitor.work)
			delete(served, l.Key)
		}
		v.Lanes = append(v.Lanes, l)
	}
	rest := make([]*workRow, 0, len(served))
	for _, s := range served {
		rest = append(rest, s)
	}
	slices.SortFunc(rest, func(a, b *workRow) int {
		return cmp.Or(cmp.Compare(b.ended[0]+b.ended[1], a.ended[0]+a.ended[1]), cmp.Compare(a.key, b.key))
	})
	for _, s := range rest[:min(len(rest), most-len(v.Lanes))] {
		l := LaneView{Key: s.key, ServedView: s.view(now, &r.monitor.work)}
		if f, live := r.t.Keys.IDs[s.key]; live {
			l.Weight, l.InFlight = r.t.Weight(f), leases[f]
			if !r.keyPaused(f, now) {
				l.Share = float64(l.Weight) / float64(weights+l.Weight)
			}
		}
		v.Lanes = append(v.Lanes, l)
	}
	return v
}

// keyPaused reports whether the key of a flow is paused, and changes nothing.
func (r *Reader) keyPaused(f drr.Flow, now int64) bool {
	return len(r.t.Pauses.Keys) > 0 && r.t.Pauses.Keys[r.t.Name(f)] > now
}

// backlogs counts the messages of each flow that wait, ready or blocked.
func (r *Reader) backlogs() []int64 {
	n := make([]int64, min(len(r.t.Keys.Entries), readWalk))
	for i := range n {
		n[i] = int64(r.t.Links.Count(&r.t.Keys.Entries[i].Flow.Plain))
	}
	for f, o := range r.t.Order.Keys {
		if int(f) < len(n) {
			n[f] += o.Plain
		}
	}
	items := r.g.Subs.Items
	for i := range items[:min(len(items), readWalk)] {
		if sub := &items[i]; int(sub.Flow) < len(n) {
			n[sub.Flow] += int64(r.t.Links.Count(&sub.List)) + int64(sub.Ordered)
		}
	}
	return n
}

// oldestWait is how long (ns) a message has been ready that is the first of a flow, or of one
// of its subqueues.
func (r *Reader) oldestWait(f drr.Flow, now int64) (wait int64) {
	ready := func(link uint32) {
		if link != 0 {
			wait = max(wait, now-r.t.Slots.Get(r.t.Links.Seq(link)).ReadyAt)
		}
	}
	ready(r.t.Links.First(&r.t.Flow(f).Plain))
	n := 0
	for sub := range r.g.Subs.Of(f) {
		if n++; n > readLines {
			break
		}
		ready(r.t.Links.First(&sub.List))
	}
	return wait
}

// served returns the rows of the keys of which deliveries ended lately.
func (r *Reader) served(now int64) map[string]*workRow {
	w := &r.monitor.work
	rows := make(map[string]*workRow)
	for i := range w.rows {
		if row := &w.rows[i]; w.lately(row.ended, now) > 0 {
			rows[row.key] = row
		}
	}
	return rows
}

func (r *workRow) view(now int64, w *work) ServedView {
	return ServedView{Ended: r.sum, Took: w.lately(r.took, now), Waits: w.lastWaits(r.waits, now)}
}

// Served is what all keys were served since the process started.
func (r *Reader) Served(now int64) ServedView {
	w := &r.monitor.work
	return ServedView{Ended: w.ended, Took: w.total(now), Waits: w.lastWaits([2]*Waits{&w.waits[0], &w.waits[1]}, now)}
}

// MostServed returns up to most keys of which the most deliveries ended lately, without
// their waits.
func (r *Reader) MostServed(most int, now int64) (keys []LaneView) {
	w := &r.monitor.work
	t := top[*workRow]{n: most, compare: func(a, b *workRow) int {
		return cmp.Or(cmp.Compare(b.ended[0]+b.ended[1], a.ended[0]+a.ended[1]), cmp.Compare(a.key, b.key))
	}}
	for i := range w.rows {
		if row := &w.rows[i]; w.lately(row.ended, now) > 0 {
			t.add(row)
		}
	}
	for _, row := range t.first() {
		keys = append(keys, LaneView{Key: row.key, ServedView: ServedView{Ended: row.sum}})
	}
	return keys
}
