package record

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/breaker"
)

// The model: a bucket with one record, and two instances with a Replica each. The tests make
// all moves in every order up to a depth and visit each state once. The bounds hold after each
// move, and from each state the fleet comes to rest.

// instance is an instance of the model.
type instance struct {
	r       Replica
	name    string
	calls   []breaker.Pass // unfinished
	write   *Circuit       // pending write
	over    uint64
	answer  *uint64 // pending reply: the revision, or 0 if refused
	written Circuit
	reached bool // the bucket is reachable
}

// world is a state of the model. Dead instances are gone from it; only the record may still
// know them.
type world struct {
	rec     Circuit
	rev     uint64
	now     int64
	fleet   [2]instance
	deaths  int
	buried  int // of the deaths are known
	outages int
	failed  int // failed calls of the first generation
	clean   bool
	opened  [2]map[uint64]int // announced openings by turn
}

var modelConfig = breaker.Config{Threshold: 2, Cooldown: time.Second, HalfOpenMaxCalls: 2, HalfOpenSuccesses: 1}

func (w *world) live(name string) bool {
	return name == w.fleet[0].name || name == w.fleet[1].name || w.buried < w.deaths
}

func (w *world) clone() *world {
	n := *w
	for i := range n.fleet {
		f := &n.fleet[i]
		f.calls = slices.Clone(f.calls)
		f.r.sent, f.r.open, f.r.news = cloneSteps(f.r.sent), cloneSteps(f.r.open), nil
		n.opened[i] = make(map[uint64]int)
		for k, v := range w.opened[i] {
			n.opened[i][k] = v
		}
	}
	return &n
}

func cloneSteps(s []Step) []Step {
	if s == nil {
		return nil
	}
	return slices.Clone(s)
}

// key is equal for states that behave alike. Apart from the record, times are the same in all
// states of a test.
func (w *world) key() string {
	rec := w.rec
	return fmt.Sprint(rec, w.rev, w.now, w.deaths, w.buried, w.outages, w.failed, w.clean, w.opened, w.fleetKey())
}

func (w *world) fleetKey() (key string) {
	for i := range w.fleet {
		f := &w.fleet[i]
		r := f.r
		r.unused = 0
		key += fmt.Sprintf("%+v %v %v %d %v %v |", r, f.calls, f.write, f.over, f.reached, f.name)
		if f.answer != nil {
			key += fmt.Sprint(*f.answer, f.written)
		}
	}
	return key
}

// move is a possible event at an instance. do reports whether it was possible.
type move struct {
	name string
	do   func(w *world, f *instance) bool
}

const second = int64(time.Second)

var allow = move{"allow", func(w *world, f *instance) bool {
	if len(f.calls) >= 2 {
		return false
	}
	p := f.r.Allow(w.now)
	if p != 0 {
		f.calls = append(f.calls, p)
	}
	return true
}}

func done(o breaker.Outcome) move {
	return move{fmt.Sprint("done ", o), func(w *world, f *instance) bool {
		if len(f.calls) == 0 {
			return false
		}
		p := f.calls[0]
		f.calls = f.calls[1:]
		if o == breaker.Failure && (p == 1 || uint64(p) == f.r.parted[1]) {
			w.failed++
		}
		if o == breaker.Success {
			w.clean = false // it may have ended a row of failures
		}
		f.r.Done(w.now, p, o)
		return true
	}}
}

var (
	send = move{"send", func(w *world, f *instance) bool {
		if f.write != nil || f.answer != nil || !f.reached {
			return false
		}
		next, over, _, ok := f.r.Swap(w.now, w.live)
		if ok {
			f.write, f.over = &next, over
		}
		return ok
	}}
	land = move{"land", func(w *world, f *instance) bool {
		if f.write == nil {
			return false
		}
		rev := uint64(0)
		if f.over == w.rev {
			w.rev++
			rev = w.rev
			w.rec = *f.write
		}
		f.written, f.write, f.answer = *f.write, nil, &rev
		return true
	}}
	// hear delivers the reply of a write.
	hear = move{"hear", func(w *world, f *instance) bool {
		if f.answer == nil || !f.reached {
			return false
		}
		rev := *f.answer
		f.answer = nil
		if rev != 0 {
			f.r.Learn(w.now, rev, f.written, false)
		}
		return true
	}}
	// watch delivers the newest record.
	watch = move{"watch", func(w *world, f *instance) bool {
		if !f.reached || f.r.rev == w.rev {
			return false
		}
		f.r.Learn(w.now, w.rev, w.rec, false)
		return true
	}}
	// cut makes the bucket unreachable for an instance: a pending write may still land, its
	// reply is lost.
	cut = move{"cut", func(w *world, f *instance) bool {
		if !f.reached || w.outages >= 1 {
			return false
		}
		w.outages++
		f.reached, f.answer = false, nil
		f.r.Away(w.now)
		return true
	}}
	mend = move{"mend", func(w *world, f *instance) bool {
		if f.reached || f.write != nil {
			return false
		}
		f.reached, f.answer = true, nil
		f.r.Back(w.now, w.rev, w.rec)
		return true
	}}
	// die replaces an instance by a new one. A pending write may still land.
	die = move{"die", func(w *world, f *instance) bool {
		if w.deaths >= 1 {
			return false
		}
		w.deaths++
		w.clean = false
		if f.write != nil && f.over == w.rev {
			w.rev++
			w.rec = *f.write
		}
		*f = instance{name: f.name + "'", reached: true}
		f.r = *NewReplica(f.name, modelConfig, w.now, w.rev, w.rec)
		return true
	}}
	// bury makes the deaths known.
	bury = move{"bury", func(w *world, _ *instance) bool {
		if w.buried == w.deaths {
			return false
		}
		w.buried = w.deaths
		return true
	}}
	wait = move{"wait", func(w *world, _ *instance) bool {
		if w.now > 12*second {
			return false
		}
		w.now += second
		return true
	}}
	drop = move{"unused", func(w *world, f *instance) bool { // permits stay unused for too long
		if f.r.free() == 0 || f.r.unused == 0 {
			return false
		}
		f.r.unused = -int64(UnusedFor)
		f.r.unused += w.now
		return true
	}}
)

// check checks the bounds.
func (w *world) check(t *journey) {
	held, busy := 0, 0
	for _, n := range w.rec.Permits {
		held += n
	}
	require.LessOrEqual(t, held, modelConfig.HalfOpenMaxCalls, "permits")
	require.Equal(t, held, w.rec.Probes)
	for i := range w.fleet {
		f := &w.fleet[i]
		if w.outages == 0 && f.r.rec.State == breaker.HalfOpen && f.r.rec.Gen == w.rec.Gen {
			require.LessOrEqual(t, f.r.busy+f.r.free(), w.rec.Permits[f.name]+onTheWay(&f.r), "probes without a permit")
			busy += f.r.busy
		}
		for turn, n := range w.opened[i] {
			require.Equal(t, 1, n, "turn %d was announced twice", turn)
		}
	}
	if w.outages == 0 {
		require.LessOrEqual(t, busy, modelConfig.HalfOpenMaxCalls, "probes of the fleet")
	}
	if w.rec.Gen <= 1 && w.rec.State == breaker.Closed {
		require.LessOrEqual(t, w.rec.Failures, w.failed, "a failure counts twice")
	}
}

func onTheWay(r *Replica) (n int) {
	for _, s := range slices.Concat(r.sent, r.open) {
		if s.Kind == Probe {
			n++
		}
	}
	return n
}

// collectNews collects the news of the instances.
func (w *world) collectNews() {
	for i := range w.fleet {
		news, _ := w.fleet[i].r.News()
		for _, n := range news {
			if n.New == breaker.Open && n.Version != 0 && n.Cause == CauseFailures {
				w.opened[i][w.fleet[i].r.rec.Turn]++
			}
		}
	}
}

// rest delivers everything pending and adds nothing new.
func (w *world) rest(t *journey) {
	w.buried = w.deaths
	for range 200 {
		moved := false
		for i := range w.fleet {
			f := &w.fleet[i]
			for _, m := range []move{land, mend, hear, watch, done(breaker.Neutral), drop, send, land, hear} {
				if m.do(w, f) {
					moved = true
				}
			}
			w.collectNews()
			w.check(t)
		}
		if !moved {
			break
		}
	}
	for i := range w.fleet {
		f := &w.fleet[i]
		require.False(t, f.r.alone, "alone for ever")
		require.Empty(t, f.r.sent)
		require.Empty(t, f.r.open)
		require.Equal(t, w.rev, f.r.rev)
		view := breaker.Thaw(modelConfig, w.rec.Frozen)
		view.Advance(w.now)
		require.Equal(t, view.Freeze(), f.r.view.Freeze())
	}
	if w.clean && w.outages == 0 && w.rec.Gen <= 1 && w.rec.State == breaker.Closed {
		require.Equal(t, w.failed, w.rec.Failures, "a failure is lost")
	}
	for i := range w.fleet {
		require.Zero(t, w.rec.Permits[w.fleet[i].name], "nobody makes a call, and permits are held")
	}
	// In the end calls pass again: a probe of either instance closes the circuit when it is due.
	w.now += 100 * second
	for i := range w.fleet {
		f := &w.fleet[i]
		for n := 0; ; n++ {
			require.Less(t, n, 50, "stuck")
			if p := f.r.Allow(w.now); p != 0 {
				f.r.Done(w.now, p, breaker.Success)
				break
			}
			for _, m := range []move{send, land, hear, watch} {
				m.do(w, f)
			}
			other := &w.fleet[1-i]
			for _, m := range []move{watch, drop, send, land, hear} {
				m.do(w, other)
			}
		}
	}
}

// journey adds the path of moves to failures.
type journey struct {
	t    *testing.T
	path []string
}

func (j *journey) Errorf(format string, args ...any) {
	j.t.Helper()
	j.t.Errorf("after %q: "+format, append([]any{j.path}, args...)...)
}

func (j *journey) FailNow() { j.t.FailNow() }

// explore makes all moves in all orders. It returns the number of states.
func explore(t *testing.T, start *world, moves []move, depth int) int {
	t.Helper()
	seen := map[string]bool{start.key(): true}
	type node struct {
		*world
		path []string
	}
	layer := []node{{start, nil}}
	for range depth {
		var next []node
		for _, n := range layer {
			for _, m := range moves {
				for i := range n.fleet {
					w := n.clone()
					if !m.do(w, &w.fleet[i]) {
						continue
					}
					w.collectNews()
					k := w.key()
					if seen[k] {
						continue
					}
					seen[k] = true
					path := append(slices.Clip(n.path), fmt.Sprint(i, " ", m.name))
					on := &journey{t, path}
					w.check(on)
					w.clone().rest(on)
					next = append(next, node{w, path})
				}
			}
		}
		layer = next
	}
	return len(seen)
}

func newWorld() *world {
	w := &world{now: second, clean: true}
	for i, name := range []string{"a", "b"} {
		w.fleet[i] = instance{name: name, reached: true}
		w.fleet[i].r = *NewReplica(name, modelConfig, w.now, 0, Circuit{})
		w.opened[i] = make(map[uint64]int)
	}
	return w
}

// halfOpen returns a state whose circuit is open and due for a probe.
func halfOpen() *world {
	w := newWorld()
	next, changed := w.rec.Apply(Batch{"c", 1, []Step{{Kind: Outcomes, Gen: 1, Run: Run{Lead: 2}}}},
		Env{Now: w.now, Live: w.live, Config: modelConfig})
	if !changed {
		panic("it does not open")
	}
	w.rec, w.rev, w.now = next, 1, 3*second
	for i := range w.fleet {
		w.fleet[i].r.Learn(w.now, w.rev, w.rec, false)
		w.fleet[i].r.News()
	}
	return w
}

func TestModelFailuresOfTwo(t *testing.T) {
	n := explore(t, newWorld(), []move{allow, done(breaker.Failure), done(breaker.Success), send, land, hear, watch}, depth(14))
	t.Log(n, "worlds")
}

func TestModelFailuresWithCrashesAndOutages(t *testing.T) {
	n := explore(t, newWorld(), []move{allow, done(breaker.Failure), send, land, hear, watch, cut, mend, die}, depth(11))
	t.Log(n, "worlds")
}

func TestModelProbesOfTwo(t *testing.T) {
	n := explore(t, halfOpen(), []move{
		allow, done(breaker.Failure), done(breaker.Success), done(breaker.Neutral), send, land, hear, watch, drop,
	}, depth(14))
	t.Log(n, "worlds")
}

func TestModelProbesWithCrashes(t *testing.T) {
	n := explore(t, halfOpen(), []move{allow, done(breaker.Success), send, land, hear, watch, die, bury}, depth(14))
	t.Log(n, "worlds")
}

func TestModelProbesWithOutages(t *testing.T) {
	n := explore(t, halfOpen(), []move{allow, done(breaker.Failure), done(breaker.Success), send, land, hear, watch, cut, mend, wait}, depth(9))
	t.Log(n, "worlds")
}
