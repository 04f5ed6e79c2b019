package inspect

import "github.com/filaq/fila/sidecar/queue/backlog"

// work is how long consumers have worked on the messages of each fairness key, in this
// window and in the one before. It is by key, since a flow that never has a backlog
// comes and goes with each message.
//
// The rows are a set-associative table. Where a set is full, a key without a row
// takes its time off the smallest row, and replaces it once nothing is left there: a
// key with a large part of the whole keeps its row.
type work struct {
	since int64 // Unix ns: begin of this window
	rows  []workRow
	took  [2]int64 // of all keys
	ended int64    // deliveries of all keys, ever
	waits [2]Waits // of all keys
}

// workRow is one key; [0] is this window, [1] the one before. Without deliveries it is
// free.
type workRow struct {
	key   string
	hash  uint32   // of the key
	took  [2]int64 // ns
	ended [2]int64 // deliveries

	sum   int64     // deliveries since the key has the row
	waits [2]*Waits // nil: none
}

// WaitBounds are the upper bounds (ns) of Waits; a wait above the last one counts behind it.
var WaitBounds = [...]int64{
	5e5, 1e6, 25e5, 5e6, 1e7, 25e6, 5e7, 1e8, 25e7, 5e8, 1e9, 25e8, 5e9, 1e10, 3e10, 6e10, 3e11, 9e11, 36e11,
}

// Waits counts deliveries by how long their message was ready before.
type Waits struct {
	Count   [len(WaitBounds) + 1]uint32
	Longest int64 // ns
}

// add counts a wait in range i.
func (w *Waits) add(i int, wait int64) {
	w.Count[i]++
	w.Longest = max(w.Longest, wait)
}

// waitRange returns the range of a wait.
func waitRange(wait int64) int {
	for i, bound := range WaitBounds {
		if wait <= bound {
			return i
		}
	}
	return len(WaitBounds)
}

func (w *Waits) join(other *Waits) {
	for i, n := range other.Count {
		w.Count[i] += n
	}
	w.Longest = max(w.Longest, other.Longest)
}

const (
	workWindow = 60 * int64(1e9)
	workSets   = 32
	workWays   = 4
)

// add counts a delivery of a key that has ended after took ns, and before which its message
// was ready for wait ns.
func (w *work) add(e *backlog.Key, took, wait, now int64) {
	if now-w.since >= workWindow {
		w.rotate(now)
	}
	took = max(took, 0)
	w.took[0] += took
	w.ended++
	in := waitRange(wait)
	w.waits[0].add(in, wait)
	if n := int(e.WorkRow); n == 0 || n > len(w.rows) || w.rows[n-1].key != e.Name {
		if e.WorkRow = w.row(e.Name, took); e.WorkRow == 0 {
			return
		}
	}
	r := &w.rows[e.WorkRow-1]
	r.took[0] += took
	r.ended[0]++
	r.sum++
	if r.waits[0] == nil {
		r.waits[0] = new(Waits)
	}
	r.waits[0].add(in, wait)
}

// row returns the number of the row of a key, from 1 on. It returns 0 if the key gets no row: then
// took was subtracted from another row.
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
	waits := r.waits[0]
	if waits != nil { // reused, since many keys with little work each replace a row with each delivery
		*waits = Waits{}
	}
	*r = workRow{key: key, hash: hash, waits: [2]*Waits{waits, nil}}
	return uint16(least + 1)
}

// workHash hashes the end of a key: keys often begin alike.
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
		*w = work{since: now, ended: w.ended}
		return
	}
	w.since += workWindow
	w.took = [2]int64{0, w.took[0]}
	w.waits = [2]Waits{{}, w.waits[0]}
	for i := range w.rows {
		r := &w.rows[i]
		if r.took, r.ended = [2]int64{0, r.took[0]}, [2]int64{0, r.ended[0]}; r.ended[1] == 0 {
			*r = workRow{}
		}
		r.waits = [2]*Waits{nil, r.waits[0]}
	}
}

// lately sums two windows at a time that may be after the last change.
func (w *work) lately(v [2]int64, now int64) int64 {
	switch age := now - w.since; {
	case age < workWindow:
		return v[0] + v[1]
	case age < 2*workWindow:
		return v[0]
	}
	return 0
}

// lastWaits sums the waits of two windows, as lately does.
func (w *work) lastWaits(v [2]*Waits, now int64) (sum Waits) {
	for i, age := range [2]int64{2 * workWindow, workWindow} {
		if v[i] != nil && now-w.since < age {
			sum.join(v[i])
		}
	}
	return sum
}

// total is the work of all keys.
func (w *work) total(now int64) int64 { return w.lately(w.took, now) }
