package queue

import (
	"math"

	"github.com/filaq/fila/drr"
)

// watch looks at the flows of a side now and then, to tell when some become noisy or starve,
// and when they no longer do. Between two looks it costs a comparison in each step. It wakes
// a machine as long as a flow may be noisy, or was told to be; whether one starves is only
// decided by what is delivered, which is a step.
//
// A flow starves that could send something at starveLooks looks in a row and was not
// delivered from between them, though other flows of its side were: as long as nothing is
// delivered at all, nobody is preferred to it. A starving flow is in the schedule: who takes
// the flow out of it, or something from the flow, ends that.
type watch struct {
	at int64 // when the next look is

	noiseAt int64
	loud    []loudFlow // noisy flows that have been told of

	starveAt int64
	after    int64 // StarveAfterMs, which the looks so far have counted by (ns)
	walking  bool  // a look is under way, and goes on at next
	next     drr.Flow
	clear    bool  // it forgets what was
	ran      bool  // something was delivered between it and the last one
	given    int64 // leases.given at its beginning
	starving int

	minute int64 // of budget
	budget int   // events that may begin in it
}

// loudFlow is a flow that has been told to be noisy.
type loudFlow struct {
	key    string
	absent int // looks in a row at which it was not
}

const (
	noiseEvery = 10 * int64(1e9)
	// A flow must not be noisy at so many looks for that to have ended.
	noiseEnds = 3
	// The first look that counts finds the flow waiting, four more come in the time after
	// which it starves.
	starveLooks = 5
	// How many flows a step looks at.
	watchPerStep = 4096
	// Of how many flows a minute tells that they have become noisy or starve. Of one that
	// it tells of the end is told as well.
	newsPerMinute = 20
)

// How a flow starves (keyEntry.unserved).
const (
	starvesUntold uint8 = 254 + iota // others are told of
	starvesTold
)

func (e *keyEntry) starves() bool { return e.unserved >= starvesUntold }

// watchFlows makes the looks that are due. It reports whether one goes on in the next step.
func (q *side) watchFlows(now int64) (more bool) {
	w := &q.watch
	if now >= w.noiseAt {
		w.noiseAt = now + noiseEvery
		q.watchNoise(now)
	}
	if now >= w.starveAt || w.walking {
		more = q.watchStarving(now)
	}
	if w.at = min(w.noiseAt, w.starveAt); more {
		w.at = now
	}
	return more
}

// noiseMatters reports whether a flow may be noisy, or was told to be: a message is there
// that is not in flight, and consumers work, or have worked lately, on enough.
func (q *side) noiseMatters(now int64) bool {
	return len(q.watch.loud) > 0 || q.slots.Len() > int64(q.leases.live) &&
		(q.leases.live >= leastNoisy || q.work.lately(q.work.took, now) > 0)
}

// watchNoise tells which flows have become noisy, and which are no longer.
func (q *side) watchNoise(now int64) {
	w := &q.watch
	if !q.noiseMatters(now) {
		return
	}
	v := NoiseView{InFlight: int64(q.leases.live), Took: q.work.lately(q.work.took, now)}
	v.Noisy = q.noisy(&v, now)
	told := make(map[string]int, len(w.loud))
	for i := range w.loud {
		told[w.loud[i].key] = i
		w.loud[i].absent++
	}
	for i := range v.Noisy {
		n := &v.Noisy[i]
		if j, ok := told[n.Key]; ok {
			w.loud[j].absent = 0
		} else if q.mayTell(now) {
			w.loud = append(w.loud, loudFlow{key: n.Key})
			q.note(Note{Kind: NoteNoisy, Key: n.Key, Began: true, InFlight: int(n.InFlight), Flows: len(v.Noisy)})
		}
	}
	rest := w.loud[:0]
	for _, l := range w.loud {
		if l.absent < noiseEnds {
			rest = append(rest, l)
			continue
		}
		q.note(Note{Kind: NoteNoisy, Key: l.key, Flows: len(v.Noisy)})
	}
	if w.loud = rest; len(rest) == 0 {
		w.loud = nil
	}
}

// mayTell takes one from the news of this minute.
func (q *side) mayTell(now int64) bool {
	w := &q.watch
	if minute := now / 60e9; minute != w.minute {
		w.minute, w.budget = minute, newsPerMinute
	}
	if w.budget == 0 {
		return false
	}
	w.budget--
	return true
}

// watchStarving goes on with a look at all flows, or begins one.
func (q *side) watchStarving(now int64) (more bool) {
	w := &q.watch
	if !w.walking {
		after := q.m.settings.StarveAfterMs * 1e6
		if after == 0 && w.after == 0 {
			w.starveAt = math.MaxInt64
			return false
		}
		w.walking, w.next = true, 0
		w.clear, w.after = after != w.after, after
		w.ran, w.given = q.leases.given != w.given, q.leases.given
		w.starveAt = math.MaxInt64
		if after > 0 {
			w.starveAt = now + after/(starveLooks-1)
		}
	}
	last := min(int(w.next)+watchPerStep, len(q.keys.entries))
	for f := w.next; int(f) < last; f++ {
		e := &q.keys.entries[f]
		switch {
		case !e.active:
		case w.clear || q.flowHeld(e, now):
			q.endStarving(e)
			e.unserved = 0
		case w.ran && e.unserved < starveLooks:
			e.unserved++
		}
		if e.active && e.unserved >= starveLooks && e.unserved != starvesTold {
			q.starve(e, f, now)
		}
	}
	w.next = drr.Flow(last)
	w.walking = last < len(q.keys.entries)
	return w.walking
}

// flowHeld reports whether a pause holds a flow that is in the schedule: it has not tried.
func (q *side) flowHeld(e *keyEntry, now int64) bool {
	return q.paused(now) || len(q.pauses.keys) > 0 && q.pauses.keys[e.name] > now
}

// starve notes that a flow starves, and tells of it as far as that is not too much.
func (q *side) starve(e *keyEntry, f drr.Flow, now int64) {
	if !e.starves() {
		q.watch.starving++
		e.unserved = starvesUntold
	}
	if q.mayTell(now) {
		e.unserved = starvesTold
		q.note(Note{Kind: NoteStarved, Key: e.name, Began: true, Waited: q.headWait(f, now), Flows: q.watch.starving})
	}
}

// headWait is for how long (ns) the first message that a flow may send has been ready.
func (q *side) headWait(f drr.Flow, now int64) int64 {
	_, link := q.firstOf(f)
	if link == 0 {
		return 0
	}
	return max(now-q.slots.Get(q.links.Seq(link)).readyAt, 0)
}

// endStarving notes that a flow was delivered from, or has nothing to deliver.
func (q *side) endStarving(e *keyEntry) {
	if !e.starves() {
		return
	}
	q.watch.starving--
	if e.unserved == starvesTold {
		q.note(Note{Kind: NoteStarved, Key: e.name, Flows: q.watch.starving})
	}
	e.unserved = 0
}

// starving lists up to most flows that starve, the longest wait first.
func (q *side) starving(most int, now int64) (list []WaitingFlow) {
	if q.watch.starving == 0 || most == 0 {
		return nil
	}
	for f := range q.keys.entries[:min(len(q.keys.entries), readWalk)] {
		if e := &q.keys.entries[f]; e.starves() {
			list = append(list, WaitingFlow{Key: e.name, Pending: q.unblocked(drr.Flow(f)), Wait: q.headWait(drr.Flow(f), now)})
		}
	}
	return longest(list, most)
}
