package inspect

import (
	"cmp"
	"slices"

	"github.com/filaq/fila/drr"
	"github.com/filaq/fila/sidecar/queue/gates"
)

// A flow is noisy if it has more than its fair share and a tenth of the messages in flight,
// and at least leastNoisy, or of the recent work of consumers, for at least leastNoisy
// messages, while a message of another flow is ready. Its fair share is its weight among
// the weights of the flows that compete for consumers: a flow that has what it is entitled
// to disturbs nobody. On a queue where nobody else waits, a flow disturbs nobody, however
// much it uses.
const (
	noisyPart  = 10
	leastNoisy = 30
)

// NoisyFlow is a flow that uses much of what the consumers can do.
type NoisyFlow struct {
	Key      string
	InFlight int64
	Took     int64   // ns that consumers have worked on deliveries that ended lately
	Ended    int64   // deliveries that ended lately
	Pending  int64   // ready
	Fair     float64 // its fair share, 0 to 1
}

// WaitingFlow is a flow that is not noisy and whose first message is not blocked.
type WaitingFlow struct {
	Key     string
	Pending int64 // not known to be blocked
	Wait    int64 // ns since its first message became ready
}

// NoiseView is the noisy-neighbour report: which flows are noisy, and how long the
// quiet ones, all others, wait.
type NoiseView struct {
	Stats       Stats         // of the queue
	InFlight    int64         // of all flows
	Took        int64         // ns, of all flows
	Noisy       []NoisyFlow   // the one with the most work first
	QuietReady  int64         // ready
	QuietOldest int64         // ns: the longest Wait
	Waiting     []WaitingFlow // the longest Wait first
	Starving    int           // flows that starve, see Monitor
	Starved     []WaitingFlow // these, the longest Wait first
}

// Noise reports how flows disturb each other, and names up to most flows that wait, and
// up to most that starve. Its cost is bounded: of more active flows it looks at those
// that the schedule serves first.
func (r *Reader) Noise(most int, now int64) NoiseView {
	v := NoiseView{InFlight: int64(r.t.Leases.Live), Took: r.monitor.work.total(now), Starving: r.monitor.starving}
	v.Noisy = r.noisy(now)
	v.Starved = r.starved(most, now)
	noisy := make(map[string]bool, len(v.Noisy))
	v.Stats = r.Stats(now)
	v.QuietReady = v.Stats.Pending - v.Stats.Blocked
	for i := range v.Noisy {
		n := &v.Noisy[i]
		noisy[n.Key] = true
		v.QuietReady -= n.Pending
	}
	v.QuietReady = max(v.QuietReady, 0)
	if r.t.Pauses.Until > now {
		return v
	}
	n, e := 0, r.evaluator(now)
	for f := range r.t.Sched.All() {
		if n++; n > readLines {
			break
		}
		id, link := r.g.First(f)
		if link == 0 || noisy[r.t.Name(f)] {
			continue
		}
		var sub *gates.Subqueue
		if id != 0 {
			sub = r.g.Subs.At(id)
		}
		if w := e.reason(f, sub, false); w.Blocks() {
			continue // nothing has tried yet, as no consumer has credit
		}
		wait := r.headWait(f, now)
		v.QuietOldest = max(v.QuietOldest, wait)
		if most > 0 {
			v.Waiting = append(v.Waiting, WaitingFlow{Key: r.t.Name(f), Pending: r.unblocked(f), Wait: wait})
		}
	}
	v.Waiting = longest(v.Waiting, most)
	return v
}

// longest keeps up to most flows, those with the longest waits, in this order.
func longest(list []WaitingFlow, most int) []WaitingFlow {
	slices.SortStableFunc(list, func(a, b WaitingFlow) int {
		return cmp.Or(cmp.Compare(b.Wait, a.Wait), cmp.Compare(a.Key, b.Key))
	})
	return list[:min(len(list), most)]
}

// headWait is how long (ns) the first message that a flow may send has been ready.
func (r *Reader) headWait(f drr.Flow, now int64) int64 {
	_, link := r.g.First(f)
	if link == 0 {
		return 0
	}
	return max(now-r.t.Slots.Get(r.t.Links.Seq(link)).ReadyAt, 0)
}

// noisy lists the noisy flows.
func (r *Reader) noisy(now int64) []NoisyFlow {
	w := &r.monitor.work
	inFlight, took := int64(r.t.Leases.Live), w.total(now)
	if inFlight < leastNoisy && took == 0 {
		return nil
	}
	byKey := make(map[string]*NoisyFlow)
	flows := len(r.t.Keys.IDs)
	for i := range w.rows {
		row := &w.rows[i]
		ended := w.lately(row.ended, now)
		if ended == 0 {
			continue
		}
		byKey[row.key] = &NoisyFlow{Key: row.key, Took: w.lately(row.took, now), Ended: ended}
		if _, live := r.t.Keys.IDs[row.key]; !live {
			flows++
		}
	}
	if flows < 2 {
		return nil
	}
	for f, n := range r.flowLeases() {
		key := r.t.Name(f)
		if byKey[key] == nil {
			byKey[key] = &NoisyFlow{Key: key}
		}
		byKey[key].InFlight = n
	}
	var list []NoisyFlow
	all := r.competing(byKey)
	for _, n := range byKey {
		n.Fair = float64(r.weightOf(n.Key)) / float64(all)
		if n.InFlight >= leastNoisy && exceeds(n.InFlight, inFlight, n.Fair) || n.Ended >= leastNoisy && exceeds(n.Took, took, n.Fair) {
			list = append(list, *n)
		}
	}
	list = r.disturbing(list, now)
	slices.SortFunc(list, func(a, b NoisyFlow) int {
		return cmp.Or(cmp.Compare(b.Took, a.Took), cmp.Compare(b.InFlight, a.InFlight), cmp.Compare(a.Key, b.Key))
	})
	return list
}

// exceeds reports whether n of all is more than a fair share and a tenth.
func exceeds(n, all int64, fair float64) bool {
	return float64(n) > (fair+1./noisyPart)*float64(all)
}

// competing sums up the weights of the flows that use consumers, which byKey has, and of the
// flows in the schedule, the first readLines of them.
func (r *Reader) competing(byKey map[string]*NoisyFlow) (all int64) {
	for key := range byKey {
		all += r.weightOf(key)
	}
	n := 0
	for f := range r.t.Sched.All() {
		if n++; n > readLines {
			break
		}
		if byKey[r.t.Name(f)] == nil {
			all += r.t.Weight(f)
		}
	}
	return all
}

// weightOf is the weight of a fairness key, 1 if none of its messages is left.
func (r *Reader) weightOf(key string) int64 {
	const one = 1000 // thousandths
	if f, ok := r.t.Keys.IDs[key]; ok {
		return r.t.Weight(f)
	}
	if w, ok := r.t.Keys.Overrides[key]; ok {
		return int64(w)
	}
	return one
}

// disturbing keeps the flows beside which a message of another flow is ready, and
// counts their own ready messages.
func (r *Reader) disturbing(list []NoisyFlow, now int64) []NoisyFlow {
	if len(list) == 0 {
		return nil
	}
	stats := r.Stats(now)
	ready := stats.Pending - stats.Blocked
	kept := list[:0]
	for _, n := range list {
		var k KeyView
		if f, ok := r.t.Keys.IDs[n.Key]; ok {
			r.evaluator(now).flow(f, &k)
			n.Pending = k.Pending
		}
		if ready > k.Pending-k.Blocked {
			kept = append(kept, n)
		}
	}
	return kept
}

// UseView is how much of what consumers do a fairness key has, or all of them.
type UseView struct {
	InFlight int64
	Took     int64 // ns that consumers have worked on deliveries that ended lately
}

// Uses returns how much of the work of consumers each of some fairness keys has, and
// all keys together. Took of a key that never had much of it may be unknown, and 0.
func (r *Reader) Uses(keys []string, now int64) (each []UseView, all UseView) {
	w := &r.monitor.work
	all = UseView{InFlight: int64(r.t.Leases.Live), Took: w.total(now)}
	took := make(map[string]int64, len(w.rows))
	for i := range w.rows {
		if row := &w.rows[i]; w.lately(row.ended, now) > 0 {
			took[row.key] = w.lately(row.took, now)
		}
	}
	leases := r.flowLeases()
	each = make([]UseView, len(keys))
	for i, key := range keys {
		each[i].Took = took[key]
		if f, ok := r.t.Keys.IDs[key]; ok {
			each[i].InFlight = leases[f]
		}
	}
	return each, all
}

// flowLeases counts the leases of each flow, the first readWalk of them.
func (r *Reader) flowLeases() map[drr.Flow]int64 {
	counts := make(map[drr.Flow]int64)
	n := 0
	for le := r.t.Leases.First(); le != nil && n < readWalk; le = r.t.Leases.Next(le) {
		counts[r.t.Slots.Get(le.Seq).Flow]++
		n++
	}
	return counts
}
