package ownership

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The model has machines of one shard at several nodes, and a log that follows the rules of epochs.
// Everything between them may be slow, cut or lost. Time passes in steps; messages arrive when they
// are due.

const step = int64(25 * time.Millisecond)

type record struct {
	epoch  uint64
	owner  string
	resign bool
	to     string
	at     int64
}

type node struct {
	w       *world
	name    string
	run     int // number of its process; messages to an earlier process are lost
	alive   bool
	frozen  int64 // until
	cut     int64 // from the log, until
	mute    int64 // from other nodes, until
	delay   int64 // of the log
	fails   bool  // it cannot start a shard
	m       *Machine
	read    int
	seen    Seen
	leaving bool
	hand    bool
	to      string
	done    *Done
	failed  error

	// The store of an owner.
	store   bool
	epoch   uint64
	acked   int64 // sending time of the last acked write
	writing bool
	wrote   int64
}

type event struct {
	at int64
	do func()
}

type world struct {
	t      *testing.T
	rnd    *rand.Rand
	now    int64
	log    []record
	nodes  []*node
	events []event
	story  []string
}

func newWorld(t *testing.T, seed uint64, nodes int) *world {
	w := &world{t: t, rnd: rand.New(rand.NewPCG(seed, 7)), now: int64(time.Minute)}
	for i := range nodes {
		n := &node{w: w, name: string(rune('a' + i)), delay: 2 * step}
		w.nodes = append(w.nodes, n)
		n.start()
	}
	return w
}

func (w *world) tell(format string, args ...any) {
	w.story = append(w.story, fmt.Sprintf("%8.3f ", float64(w.now)/1e9)+fmt.Sprintf(format, args...))
}

func (w *world) later(d int64, do func()) {
	w.events = append(w.events, event{w.now + d, do})
}

func (w *world) epoch() (epoch uint64) {
	for _, r := range w.log {
		epoch = max(epoch, r.epoch)
	}
	return epoch
}

func (n *node) start() {
	n.run++
	n.alive, n.leaving, n.hand, n.done, n.failed, n.store, n.writing = true, false, false, nil, nil, false, false
	n.m = NewMachine(Config{Node: n.name, Silence: DefaultSilence}, n.w.now)
	n.read, n.seen = 0, Seen{At: n.w.now}
}

// reach calls do at the node after d, once it is not frozen and if its process is still the same.
func (n *node) reach(d int64, do func()) {
	run := n.run
	var arrive func()
	arrive = func() {
		switch {
		case !n.alive || n.run != run:
		case n.frozen > n.w.now:
			n.w.later(n.frozen-n.w.now, arrive)
		default:
			do()
		}
	}
	n.w.later(d, arrive)
}

func (n *node) outcome(d int64, make func() Done) {
	n.reach(d, func() { done := make(); n.done = &done })
}

func (n *node) owns() bool { return n.store && n.w.now-n.acked <= n.m.cfg.Fence() }

// delivers reports whether the node delivers: it checks its fence each time.
func (n *node) delivers() bool {
	return n.alive && n.frozen <= n.w.now && n.owns() && n.m.Started() && !n.m.Fenced() && n.m.State() >= Owning && n.m.State() < Losing
}

// follow reads the records of the log that have arrived.
func (n *node) follow() {
	if n.cut > n.w.now {
		return
	}
	for ; n.read < len(n.w.log) && n.w.log[n.read].at+n.delay <= n.w.now; n.read++ {
		r := n.w.log[n.read]
		n.seen.Seq, n.seen.At = uint64(n.read+1), n.w.now
		if r.epoch > n.seen.Epoch {
			n.seen.Epoch, n.seen.Owner, n.seen.Resigned, n.seen.To = r.epoch, r.owner, false, ""
		}
		if r.resign && r.epoch == n.seen.Epoch {
			n.seen.Resigned, n.seen.To = true, r.to
		}
	}
}

// write sends a record of the owner and retries until it is in the log or a higher epoch is, as
// store/replog does.
func (n *node) write(r record, then func(error)) {
	sent := n.w.now
	var try func()
	try = func() {
		if n.cut > n.w.now {
			n.reach(4*step, try)
			return
		}
		if n.w.epoch() > r.epoch {
			n.reach(n.delay, func() { then(errors.New("fenced")) })
			return
		}
		r.at = n.w.now
		n.w.log = append(n.w.log, r)
		n.reach(n.delay, func() {
			n.acked = sent
			then(nil)
		})
	}
	n.reach(n.delay, try)
}

func (n *node) beat() {
	if !n.store || n.writing || n.w.now-n.wrote < int64(500*time.Millisecond) {
		return
	}
	n.writing, n.wrote = true, n.w.now
	n.write(record{epoch: n.epoch, owner: n.name}, func(err error) {
		n.writing = false
		if err != nil && n.failed == nil {
			n.failed = err
		}
	})
}

func (n *node) turn(rank int) {
	if !n.alive || n.frozen > n.w.now {
		return
	}
	n.follow()
	n.beat()
	in := Input{
		Seen: n.seen, Rank: rank, Leaving: n.leaving, Done: n.done, Owns: n.owns(), Failed: n.failed, Fenced: true,
		Hand: n.hand, To: n.to,
	}
	n.done = nil
	for _, a := range n.m.Step(n.w.now, in, nil) {
		n.act(a)
	}
}

func (n *node) act(a Action) {
	w := n.w
	if a.Do != Ask {
		w.tell("%s does %d to %q", n.name, a.Do, a.To)
	}
	switch a.Do {
	case Ask:
		i := slices.IndexFunc(w.nodes, func(o *node) bool { return o.name == a.To })
		n.outcome(int64(300*time.Millisecond), func() Done {
			o := w.nodes[i]
			if !o.alive || o.frozen > w.now || o.mute > w.now || n.mute > w.now {
				return Done{}
			}
			return Done{Answer: o.m.Answer(o.owns())}
		})
	case Promote:
		n.promote(a.Seen)
	case Own:
		n.outcome(w.rnd.Int64N(12)*step, func() Done {
			if n.fails {
				return Done{Err: errors.New("broken")}
			}
			return Done{}
		})
	case Drain:
		n.hand = false
		n.outcome(w.rnd.Int64N(8)*step, func() Done { return Done{} })
	case Resign:
		answered := false
		answer := func(err error) {
			if !answered {
				answered, n.done = true, &Done{Err: err}
			}
		}
		n.write(record{epoch: n.epoch, owner: n.name, resign: true, to: a.To}, answer)
		n.reach(int64(2*time.Second), func() { answer(errors.New("timeout")) })
	case Lose:
		n.store, n.failed = false, nil
		n.outcome(2*step, func() Done { return Done{} })
	}
}

// promote appends an epoch record if nothing is newer than seen. Its answer may be lost.
func (n *node) promote(over Seen) {
	w, sent, cut := n.w, n.w.now, n.cut > n.w.now
	if cut {
		n.outcome(int64(time.Second), func() Done { return Done{Err: errors.New("timeout")} })
		return
	}
	run, name := n.run, n.name
	w.later(n.delay, func() {
		won := uint64(len(w.log)) == over.Seq
		if won {
			w.log = append(w.log, record{epoch: over.Epoch + 1, owner: name, at: w.now})
			w.tell("epoch %d of %s", over.Epoch+1, name)
		}
		if n.run != run {
			return
		}
		n.outcome(n.delay, func() Done {
			switch {
			case !won:
				return Done{Err: errors.New("lost")}
			case n.cut > w.now:
				return Done{Err: errors.New("nobody knows")}
			}
			n.store, n.epoch, n.acked, n.wrote, n.failed, n.writing = true, over.Epoch+1, sent, w.now, nil, false
			return Done{Epoch: over.Epoch + 1}
		})
	})
}

// pass lets time pass and checks the invariants after each step.
func (w *world) pass(d time.Duration, each func()) {
	for end := w.now + int64(d); w.now < end; w.now += step {
		due := w.events
		w.events = nil
		for _, e := range due {
			if e.at <= w.now {
				e.do()
			} else {
				w.events = append(w.events, e)
			}
		}
		for i, n := range w.nodes {
			rank := 0
			for _, o := range w.nodes[:i] {
				if o.alive && o.name != n.seen.Owner {
					rank++
				}
			}
			n.turn(rank)
		}
		var serving []string
		for _, n := range w.nodes {
			if n.delivers() {
				serving = append(serving, n.name)
			}
		}
		if len(serving) > 1 {
			require.FailNow(w.t, "two deliver at once", "%v\n%v", serving, w.story)
		}
		if each != nil {
			each()
		}
	}
}

func (w *world) owner() *node {
	for _, n := range w.nodes {
		if n.delivers() {
			return n
		}
	}
	return nil
}

// settle waits for an owner.
func (w *world) settle() *node {
	w.t.Helper()
	w.pass(8*time.Second, nil)
	n := w.owner()
	require.NotNil(w.t, n, "%v", w.story)
	return n
}

// until returns how long it takes until another node serves.
func (w *world) until(atMost time.Duration, not *node) time.Duration {
	w.t.Helper()
	begin, end := w.now, int64(0)
	w.pass(atMost, func() {
		if o := w.owner(); end == 0 && o != nil && o != not {
			end = w.now
		}
	})
	require.NotZero(w.t, end, "nobody has taken over\n%v", w.story)
	return time.Duration(end - begin)
}

// rest checks that the owner stays the same.
func (w *world) rest(d time.Duration) {
	w.t.Helper()
	owner, epoch := w.owner(), w.epoch()
	require.NotNil(w.t, owner, "%v", w.story)
	w.pass(d, func() {
		if w.owner() != owner || w.epoch() != epoch {
			require.FailNow(w.t, "the shard has moved", "%v", w.story)
		}
	})
}

var (
	simSeed  = flag.Uint64("seed", 0, "one history of TestHistories alone")
	simSeeds = flag.Uint64("seeds", 300, "how many histories")
)

// TestHistories kills, freezes, cuts off, slows and drains nodes and makes starts fail, at random.
// Two nodes never deliver at once, and in the end one serves for good.
func TestHistories(t *testing.T) {
	seeds := []uint64{*simSeed}
	if *simSeed == 0 {
		seeds = seeds[:0]
		for s := range *simSeeds {
			seeds = append(seeds, s+1)
		}
	}
	moved := 0
	for _, seed := range seeds {
		w := newWorld(t, seed, 2+int(seed%3))
		ok := t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			w.t = t
			w.pass(time.Minute+time.Duration(w.rnd.Int64N(int64(time.Minute))), func() {
				if w.rnd.IntN(60) == 0 {
					w.disturb()
				}
			})
			w.tell("peace")
			for _, n := range w.nodes {
				n.frozen, n.cut, n.mute, n.delay, n.fails, n.hand = 0, 0, 0, 2*step, false, false
				if !n.alive || n.leaving {
					n.start()
				}
			}
			w.pass(30*time.Second, nil)
			w.rest(30 * time.Second)
		})
		if !ok {
			t.Fatalf("again with -seed %d", seed)
		}
		moved += int(w.epoch())
	}
	require.Greater(t, moved, 3*len(seeds), "histories in which nothing happens show nothing")
}

func (w *world) disturb() {
	n := w.nodes[w.rnd.IntN(len(w.nodes))]
	long := w.now + w.rnd.Int64N(int64(20*time.Second))
	what := w.rnd.IntN(9)
	w.tell("%s meets %d until %.3f", n.name, what, float64(long)/1e9)
	switch what {
	case 0:
		n.alive = false
		run := n.run
		w.later(long-w.now, func() {
			if n.run == run {
				n.start()
			}
		})
	case 1:
		n.frozen = long
	case 2:
		n.cut = long
	case 3:
		n.mute = long
	case 4:
		n.cut, n.mute = long, long
	case 5:
		n.delay = w.rnd.Int64N(80) * step
	case 6:
		n.fails = !n.fails
	case 7:
		n.hand, n.to = n.m.State() == Owning, w.nodes[w.rnd.IntN(len(w.nodes))].name
		if w.rnd.IntN(4) == 0 {
			n.to = ""
		}
	case 8:
		for _, o := range w.nodes { // NATS has no leader
			o.cut = w.now + w.rnd.Int64N(int64(9*time.Second))
		}
	}
}

// A killed owner is replaced after 2.5 s of silence plus the rank of the candidate.
func TestAKilledOwnerIsReplaced(t *testing.T) {
	for seed := range uint64(50) {
		w := newWorld(t, seed, 3)
		owner := w.settle()
		w.pass(time.Duration(w.rnd.Int64N(40)*step), nil)
		owner.alive = false
		took := w.until(5*time.Second, owner)
		// 2.5 s after the last heartbeat, which is up to 0.5 s ago, then 0.3 s each for a question
		// and a start.
		require.Greater(t, took, 2*time.Second)
		require.Less(t, took, 3500*time.Millisecond, "%v", w.story)
		require.Equal(t, uint64(2), w.epoch())
		w.rest(20 * time.Second)
	}
}

// The second candidate waits 300 ms longer and does not disturb the first.
func TestCandidatesTakeTurns(t *testing.T) {
	w := newWorld(t, 1, 3)
	owner := w.settle()
	require.Equal(t, "a", owner.name)
	owner.alive, w.nodes[1].fails = false, true
	require.Greater(t, w.until(10*time.Second, owner), 2500*time.Millisecond)
	require.Equal(t, "c", w.owner().name, "b could not start it, and has resigned")
	w.rest(20 * time.Second)
}

// An owner that cannot write is fenced after 2 s and replaced after 12 s.
func TestAStuckOwnerIsGivenTime(t *testing.T) {
	for seed := range uint64(50) {
		w := newWorld(t, seed, 3)
		owner := w.settle()
		owner.cut = w.now + int64(time.Hour)
		w.pass(2250*time.Millisecond, nil)
		require.True(t, owner.m.Fenced())
		took := w.until(14*time.Second, owner)
		require.Greater(t, took, 9*time.Second)
		require.Less(t, took, 11*time.Second)
		owner.cut = 0
		w.rest(20 * time.Second)
		require.Equal(t, Following, owner.m.State())
	}
}

// If the log is back within 12 s, the owner goes on in its epoch.
func TestAnElectionOfNATSChangesNoOwner(t *testing.T) {
	for seed := range uint64(50) {
		w := newWorld(t, seed, 3)
		owner := w.settle()
		back := w.now + int64(4*time.Second) + w.rnd.Int64N(int64(5*time.Second))
		for _, n := range w.nodes {
			n.cut = back
		}
		w.pass(10*time.Second, nil)
		require.Equal(t, owner, w.owner(), "%v", w.story)
		require.Equal(t, uint64(1), w.epoch())
	}
}

// A slow log moves nothing, and neither does a candidate that sees and hears nothing.
func TestAnOwnerThatBeatsIsLeftAlone(t *testing.T) {
	w := newWorld(t, 1, 3)
	w.settle()
	for _, n := range w.nodes {
		n.delay = int64(400 * time.Millisecond)
	}
	w.nodes[1].cut, w.nodes[2].mute = w.now+int64(time.Hour), w.now+int64(time.Hour)
	w.pass(3*time.Second, nil)
	w.rest(time.Minute)
}

// A frozen owner is replaced, and finds itself fenced when it goes on.
func TestAFrozenOwnerIsReplaced(t *testing.T) {
	w := newWorld(t, 1, 3)
	owner := w.settle()
	owner.frozen = w.now + int64(10*time.Second)
	require.Less(t, w.until(5*time.Second, owner), 3500*time.Millisecond)
	w.pass(6*time.Second, func() { require.False(t, owner.delivers()) })
	w.rest(20 * time.Second)
	require.Equal(t, Following, owner.m.State())
}

// A handover reaches its target at once; if that is dead, the others wait as for a dead owner.
func TestHandover(t *testing.T) {
	w := newWorld(t, 1, 3)
	owner := w.settle()
	owner.hand, owner.to = true, "c"
	require.Less(t, w.until(2*time.Second, owner), 1200*time.Millisecond)
	require.Equal(t, "c", w.owner().name)
	w.rest(20 * time.Second)

	owner = w.owner()
	w.nodes[1].alive = false
	owner.hand, owner.to = true, "b"
	w.until(4*time.Second, nil)
	require.Equal(t, "a", w.owner().name, "the first of those that are there")
	w.rest(20 * time.Second)
}

// A leaving node hands over to any node, which does not wait, and takes over nothing more.
func TestANodeThatEndsTakesNothing(t *testing.T) {
	w := newWorld(t, 1, 2)
	owner := w.settle()
	owner.leaving, owner.hand, owner.to = true, true, ""
	require.Less(t, w.until(2*time.Second, owner), 1200*time.Millisecond)
	next := w.owner()
	next.alive = false
	w.pass(20*time.Second, func() { require.Nil(t, w.owner()) })
	next.start()
	require.Less(t, w.until(3*time.Second, owner), 2*time.Second, "what it owned before it was started anew it takes up again")
}

// An owner that answers is not replaced by a candidate that has seen nothing. It is not replaced
// either if the log grows while the candidate asks it.
func TestAnOwnerThatAnswersIsLeftAlone(t *testing.T) {
	for _, tc := range []struct {
		silent int64
		later  Seen
		answer Answer
		takes  bool
	}{
		{Patience, Seen{Epoch: 1, Owner: "b", Seq: 7}, Well, false},
		{Patience - 1, Seen{Epoch: 1, Owner: "b", Seq: 7}, Stuck, false},
		{Patience, Seen{Epoch: 1, Owner: "b", Seq: 7}, Stuck, true},
		{DefaultSilence, Seen{Epoch: 1, Owner: "b", Seq: 7}, Free, true},
		{DefaultSilence, Seen{Epoch: 1, Owner: "b", Seq: 7}, Silent, true},
		{DefaultSilence, Seen{Epoch: 1, Owner: "b", Seq: 8}, Silent, false},
		{DefaultSilence, Seen{Epoch: 2, Owner: "c", Seq: 8}, Silent, false},
	} {
		m := NewMachine(Config{Node: "a", Silence: DefaultSilence}, 0)
		out := m.Step(tc.silent, Input{Seen: Seen{Epoch: 1, Owner: "b", Seq: 7}}, nil)
		require.Equal(t, []Action{{Do: Ask, To: "b", Seen: Seen{Epoch: 1, Owner: "b", Seq: 7}}}, out)
		out = m.Step(tc.silent, Input{Seen: tc.later, Done: &Done{Answer: tc.answer}}, nil)
		require.Equal(t, tc.takes, len(out) == 1, "%+v", tc)
	}
}

// A node that finds itself as the owner waits for two heartbeats, since another process may run
// under its name.
func TestANodeWaitsForItsOwnName(t *testing.T) {
	m := NewMachine(Config{Node: "a", Silence: DefaultSilence}, 0)
	mine := Seen{Epoch: 3, Owner: "a", At: int64(time.Minute)}
	require.Empty(t, m.Step(mine.At+restartWait-1, Input{Seen: mine}, nil))
	require.Len(t, m.Step(mine.At+restartWait, Input{Seen: mine}, nil), 1)
}

// Nobody campaigns over a log that cannot be followed.
func TestWhoCannotFollowDoesNotCampaign(t *testing.T) {
	m := NewMachine(Config{Node: "a", Silence: DefaultSilence}, 0)
	require.Empty(t, m.Step(int64(time.Hour), Input{Seen: Seen{Epoch: 1, Owner: "b", Err: errors.New("gap")}}, nil))
}

// A node leaves a shard that it could not start, or that has failed there, to others for 12 s.
func TestABrokenShardIsLeftToOthers(t *testing.T) {
	m := NewMachine(Config{Node: "a", Silence: DefaultSilence}, 0)
	now := int64(time.Minute)
	do := func(in Input) Action {
		t.Helper()
		out := m.Step(now, in, nil)
		require.Len(t, out, 1)
		return out[0]
	}
	mine := Seen{Epoch: 4, Owner: "a"}
	require.Equal(t, Promote, do(Input{Seen: mine}).Do)
	require.Equal(t, Own, do(Input{Done: &Done{Epoch: 5}}).Do)
	require.Empty(t, m.Step(now, Input{Done: &Done{}, Owns: true}, nil))
	require.Equal(t, Owning, m.State())
	lost := do(Input{Owns: true, Failed: errors.New("disk full")})
	require.Equal(t, Lose, lost.Do)
	require.True(t, lost.Started)
	require.ErrorContains(t, lost.Why, "disk full")
	require.Empty(t, m.Step(now, Input{Done: &Done{}}, nil))
	now += failedWait - 1
	require.Empty(t, m.Step(now, Input{Seen: mine}, nil))
	now++
	require.Equal(t, Promote, do(Input{Seen: mine}).Do)
}
