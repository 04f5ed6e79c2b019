package queue

import (
	"cmp"
	"slices"

	"github.com/filaq/fila/drr"
)

// work is for how long consumers have worked on the messages of each fairness key, in this
// window and in the one before. It is by key, since a flow that never has a backlog comes
// and goes with each message. A key may have any row of one set. Where a set is full, a key
// without a row takes off the least one, and takes its place once nothing is left there: a
// key with a large part of the whole stays.
type work struct {
	since int64 // when this window has begun
	rows  []workRow
	took  [2]int64 // of all keys
}

// workRow is one key; [0] is this window, [1] the one before. Without deliveries it is free.
type workRow struct {
	key   string
	hash  uint32   // of the key
	took  [2]int64 // ns
	ended [2]int64 // deliveries
}

const (
	workWindow = 60 * int64(1e9)
	workSets   = 32
	workWays   = 4
)

// add counts a delivery of a key that has ended after so long (ns).
func (w *work) add(e *keyEntry, took, now int64) {
	if now-w.since >= workWindow {
		w.rotate(now)
	}
	took = max(took, 0)
	w.took[0] += took
	if n := int(e.work); n == 0 || n > len(w.rows) || w.rows[n-1].key != e.name {
		if e.work = w.row(e.name, took); e.work == 0 {
			return
		}
	}
	r := &w.rows[e.work-1]
	r.took[0] += took
	r.ended[0]++
}

// row is the number of the row of a key, from 1 on; 0: it has none, and its time was taken
// off another.
func (w *work) row(key string, took int64) uint16 {
	if w.rows == nil {
		w.rows = make([]workRow, workSets*workWays)
	}
	hash := workHash(key)
	from := int(hash%workSets) * workWays
	least, rest := -1, int64(0)
	for i := from; i < from+workWays; i++ {
		r := &w.rows[i]
		if r.hash == hash && r.key == key && r.ended != [2]int64{} {
			return uint16(i + 1)
		}
		if n := r.took[0] + r.took[1]; least < 0 || n < rest {
			least, rest = i, n
		}
	}
	r := &w.rows[least]
	if rest > took {
		now := min(r.took[0], took)
		r.took[0] -= now
		r.took[1] -= took - now
		return 0
	}
	*r = workRow{key: key, hash: hash}
	return uint16(least + 1)
}

// workHash is a hash of the end of a key: keys often begin alike.
func workHash(key string) uint32 {
	const most = 16
	h := uint32(2166136261) // FNV-1a
	for i := max(0, len(key)-most); i < len(key); i++ {
		h = (h ^ uint32(key[i])) * 16777619
	}
	return h
}

// rotate begins a new window, and forgets the keys without work in the last one.
func (w *work) rotate(now int64) {
	if now-w.since >= 2*workWindow {
		*w = work{since: now}
		return
	}
	w.since += workWindow
	w.took = [2]int64{0, w.took[0]}
	for i := range w.rows {
		r := &w.rows[i]
		if r.took, r.ended = [2]int64{0, r.took[0]}, [2]int64{0, r.ended[0]}; r.ended[1] == 0 {
			*r = workRow{}
		}
	}
}

// lately is the sum of what counts of two windows at a time that may be after the last
// change.
func (w *work) lately(v [2]int64, now int64) int64 {
	switch age := now - w.since; {
	case age < workWindow:
		return v[0] + v[1]
	case age < 2*workWindow:
		return v[0]
	}
	return 0
}

// A flow is noisy if it has more than a tenth of the messages in flight, and at least
// leastNoisy, or more than a tenth of the time for which consumers have worked lately, for
// at least leastNoisy messages, while a message of another flow is ready: on a queue where
// nobody else waits, a flow disturbs nobody, however much it uses.
const (
	noisyPart  = 10
	leastNoisy = 30
)

// NoisyFlow is a flow that uses much of what the consumers can do.
type NoisyFlow struct {
	Key      string
	InFlight int64
	Took     int64 // ns for which consumers have worked on what has ended lately
	Ended    int64 // deliveries that have ended lately
	Pending  int64 // ready
}

// WaitingFlow is a flow that is not noisy, and the first message of which nothing but its
// turn, or consumers, holds back.
type WaitingFlow struct {
	Key     string
	Pending int64 // as far as the machine has tried
	Wait    int64 // ns since its first message became ready
}

// NoiseView says which flows are noisy, and how the quiet ones, all others, fare.
type NoiseView struct {
	Moment       Stats         // of the side
	InFlight     int64         // of all flows
	Took         int64         // ns, of all flows
	Noisy        []NoisyFlow   // the one with most of the time first
	QuietPending int64         // ready
	QuietOldest  int64         // ns: the longest Wait
	Waiting      []WaitingFlow // the longest Wait first
	Starving     int           // flows that starve, see watch
	Starved      []WaitingFlow // these, the longest Wait first
}

// Noise says how flows of a side disturb each other, and names up to most that wait, and as
// many that starve. Its cost is bounded: of more flows that can send something, those are
// looked at whose turn comes first.
func (m *Queue) Noise(s Role, most int, now int64) NoiseView {
	q := &m.sides[s]
	v := NoiseView{InFlight: int64(q.leases.live), Took: q.work.lately(q.work.took, now)}
	v.Noisy = q.noisy(&v, now)
	v.Starving, v.Starved = q.watch.starving, q.starving(most, now)
	loud := make(map[string]bool, len(v.Noisy))
	var h held
	v.Moment = q.moment(&h, now)
	v.QuietPending = v.Moment.Pending - v.Moment.Blocked
	for i := range v.Noisy {
		n := &v.Noisy[i]
		loud[n.Key] = true
		v.QuietPending -= n.Pending
	}
	v.QuietPending = max(v.QuietPending, 0)
	if q.paused(now) {
		return v
	}
	looked, ask := 0, q.asking(now)
	for f := range q.sched.All() {
		if looked++; looked > readLines {
			break
		}
		id, link := q.firstOf(f)
		if link == 0 || loud[q.keys.name(f)] {
			continue
		}
		var sub *subqueue
		if id != 0 {
			sub = q.gating.subs.at(id)
		}
		if w := ask.why(f, sub, false); w.parks() {
			continue // nothing has tried yet, as nobody has credit
		}
		wait := max(now-q.slots.Get(q.links.Seq(link)).readyAt, 0)
		v.QuietOldest = max(v.QuietOldest, wait)
		if most > 0 {
			v.Waiting = append(v.Waiting, WaitingFlow{Key: q.keys.name(f), Pending: q.unblocked(f), Wait: wait})
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

// noisy lists the noisy flows.
func (q *side) noisy(v *NoiseView, now int64) []NoisyFlow {
	if q.leases.live < leastNoisy && q.work.lately(q.work.took, now) == 0 {
		return nil
	}
	byKey := make(map[string]*NoisyFlow)
	flows := len(q.keys.ids)
	for i := range q.work.rows {
		r := &q.work.rows[i]
		ended := q.work.lately(r.ended, now)
		if ended == 0 {
			continue
		}
		byKey[r.key] = &NoisyFlow{Key: r.key, Took: q.work.lately(r.took, now), Ended: ended}
		if _, live := q.keys.ids[r.key]; !live {
			flows++
		}
	}
	if flows < 2 {
		return nil
	}
	for f, n := range q.flowLeases() {
		key := q.keys.name(f)
		if byKey[key] == nil {
			byKey[key] = &NoisyFlow{Key: key}
		}
		byKey[key].InFlight = n
	}
	var list []NoisyFlow
	for _, n := range byKey {
		if n.InFlight >= leastNoisy && n.InFlight*noisyPart > v.InFlight ||
			n.Ended >= leastNoisy && n.Took > v.Took/noisyPart {
			list = append(list, *n)
		}
	}
	list = q.disturbing(list, now)
	slices.SortFunc(list, func(a, b NoisyFlow) int {
		return cmp.Or(cmp.Compare(b.Took, a.Took), cmp.Compare(b.InFlight, a.InFlight), cmp.Compare(a.Key, b.Key))
	})
	return list
}

// disturbing keeps those of a list of flows besides which a message of another flow is
// ready, and says how many of their own are.
func (q *side) disturbing(list []NoisyFlow, now int64) []NoisyFlow {
	if len(list) == 0 {
		return nil
	}
	var h held
	moment := q.moment(&h, now)
	ready := moment.Pending - moment.Blocked
	kept := list[:0]
	for _, n := range list {
		var k KeyView
		if f, ok := q.keys.ids[n.Key]; ok {
			q.asking(now).flow(f, &k)
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
	Took     int64 // ns for which consumers have worked on what has ended lately
}

// Uses says how much of what consumers of a side do each of some fairness keys has, and all
// keys together. The time of a key that never had much of it may not be known, and is 0.
func (m *Queue) Uses(s Role, keys []string, now int64) (each []UseView, all UseView) {
	q := &m.sides[s]
	all = UseView{InFlight: int64(q.leases.live), Took: q.work.lately(q.work.took, now)}
	took := make(map[string]int64, len(q.work.rows))
	for i := range q.work.rows {
		if r := &q.work.rows[i]; q.work.lately(r.ended, now) > 0 {
			took[r.key] = q.work.lately(r.took, now)
		}
	}
	leases := q.flowLeases()
	each = make([]UseView, len(keys))
	for i, key := range keys {
		each[i].Took = took[key]
		if f, ok := q.keys.ids[key]; ok {
			each[i].InFlight = leases[f]
		}
	}
	return each, all
}

// flowLeases counts the leases of each flow, the oldest ones as far as is reasonable.
func (q *side) flowLeases() map[drr.Flow]int64 {
	counts := make(map[drr.Flow]int64)
	walked := 0
	for i := q.leases.head; i != 0 && walked < readWalk; i = q.leases.items[i-1].next {
		counts[q.slots.Get(q.leases.items[i-1].seq).flow]++
		walked++
	}
	return counts
}
