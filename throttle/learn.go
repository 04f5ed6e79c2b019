package throttle

import (
	"maps"
	"slices"

	"github.com/filaq/fila/throttle/adapt"
)

// learner learns the limits of a gate between Adapt.Min and a ceiling. The gate's mutex
// guards it. Gate.mu.limits are the learned limits, set is what they were learned from.
type learner struct {
	set    Limits
	bounds adapt.Bounds
	level  adapt.Level
	steps  []Step // the oldest first; at most MaxSteps
	lesson Lesson // for the fleet, which has the level of a gate that depends on its leases
	known  int64  // Unix ns when this process came to know of the last cut
}

// Lesson is what this process has seen of the level that a fleet learns, and the fleet does not
// know yet.
type Lesson struct {
	Overload  bool   // a message that was delivered when Cuts cuts were known has found one
	Cuts      uint64 // of the level
	Cause     string // of the overload
	Successes int64  // thousandths, while the gate held messages back
}

// Add adds a later lesson.
func (l *Lesson) Add(m Lesson) {
	l.Successes += m.Successes
	if m.Overload {
		l.Overload, l.Cuts, l.Cause = true, m.Cuts, m.Cause
	}
}

// lessonPart is the part of a limit's worth of successes that a gate reports to the fleet at once.
const lessonPart = 8

// MaxSteps is how many steps of a learned limit a gate remembers.
const MaxSteps = 20

// learnedRest is how long (ns) the registry keeps a gate without limits of its own for the
// level that it has learned.
const learnedRest = 3600 * int64(second)

// Step is a change of a learned level: a cut, or the growth since the step before. Levels are
// thousandths.
type Step struct {
	From, To int64
	// Began and At are when the step began and when it ended (Unix ns). A cut has no time in
	// between.
	Began, At int64
	// Cause is what made a cut, and empty for growth.
	Cause string
}

// Learned is the state of a limit that learns. Levels are thousandths of messages at once
// or, if the ceiling is a rate, of cost per second.
type Learned struct {
	Level, Ceiling, Min int64
	Rate                bool  // the ceiling is a rate
	Fixed               bool  // Limits.Level fixes it
	Target              int64 // up to here the level grows fast
	Cuts                uint64
	CutAt               int64  // Unix ns; 0: never
	Steps               []Step // the oldest first
}

// Overload is a sign that the destination of a message has too much to do.
type Overload struct {
	Delivered int64  // when the message was delivered, Unix ns
	Expired   bool   // its lease has expired: counts only with Adapt.Expired
	Cause     string // for people, such as "429 of message 01J..."
}

// OnCut sets a function that is called after a gate has cut its limit. It is called with the
// gate locked: it must neither block nor call the registry. Call OnCut before any other
// method.
func (g *Gates) OnCut(fn func(key string)) { g.onCut = fn }

// Learns reports whether a limit of the set learns. It takes no lock.
func (s *Set) Learns() bool {
	for _, g := range s.Gates() {
		if g.learns.Load() {
			return true
		}
	}
	return false
}

// Succeeded tells the learning limits of the set that the message of a grant has succeeded, and
// that it has cost delta thousandths more than Acquire took: a rate grows by actual costs. Call it
// before the grant is returned. It appends the waiters to notify to wake (see Wait.Pass).
func (s *Set) Succeeded(t *Grant, delta, now int64, wake []*Wait) []*Wait {
	for _, g := range s.Gates() {
		if !g.learns.Load() || !t.Active() {
			continue
		}
		g.mu.Lock()
		v, last := g.gates.clock.tick(now)
		if a := g.mu.learner; a != nil && a.set.Level == 0 && g.holdsBack(v, last) {
			n := int64(One)
			if a.bounds.Rate {
				n = clampCost(int64(t.cost) + delta)
			}
			if s := g.mu.share; s != nil && s.by == leased {
				if a.lesson.Successes += n; a.lesson.Successes >= a.level.Thousandths(&a.bounds)/lessonPart {
					g.request()
				}
			} else if a.grow(n, last) {
				g.applyLevel(v)
				wake = g.notifyIfEarlier(v, last, wake)
			}
		}
		g.mu.Unlock()
	}
	return wake
}

// Overloaded cuts the learning limits of the set, each once for all messages that were
// delivered before its last cut.
func (s *Set) Overloaded(o Overload, now int64) {
	for _, g := range s.Gates() {
		if !g.learns.Load() {
			continue
		}
		g.mu.Lock()
		v, last := g.gates.clock.tick(now)
		if a := g.mu.learner; a != nil && a.set.Level == 0 && (!o.Expired || a.bounds.Expired) {
			if s := g.mu.share; s != nil && s.by == leased {
				if o.Delivered > a.known {
					a.lesson.Add(Lesson{Overload: true, Cuts: a.level.Cuts, Cause: o.Cause})
					g.request()
				}
			} else if a.cut(&o, last) {
				g.applyLevel(v)
				g.announceCut()
			}
		}
		g.mu.Unlock()
	}
}

// announceCut needs g.mu.
func (g *Gate) announceCut() {
	if g.gates.onCut != nil {
		g.gates.onCut(g.key)
	}
	if s := g.mu.share; s != nil {
		g.request() // the fleet keeps the level of a gate that this process owns
	}
}

// TakeLesson returns and clears what the fleet does not know of the level of a gate.
func (g *Gates) TakeLesson(key string) (l Lesson) {
	g.onShared(key, func(gate *Gate, _ *share) {
		if a := gate.mu.learner; a != nil {
			l, a.lesson = a.lesson, Lesson{}
		}
	})
	return l
}

// Learned returns the level of a shared gate and what made its last cut.
func (g *Gates) Learned(key string) (level adapt.Level, cause string) {
	g.onShared(key, func(gate *Gate, _ *share) {
		a := gate.mu.learner
		if a == nil {
			return
		}
		level = a.level
		for _, s := range a.steps {
			if s.Cause != "" {
				cause = s.Cause
			}
		}
	})
	return level, cause
}

// SetLevel puts the level that a fleet has learned in force. cause is what made its last cut;
// announce says whether to call the function of OnCut if the level has been cut since. It
// appends the waiters to notify to wake (see Wait.Pass).
func (g *Gates) SetLevel(key string, level adapt.Level, cause string, announce bool, now int64, wake []*Wait) []*Wait {
	g.onShared(key, func(gate *Gate, s *share) {
		a := gate.mu.learner
		if a == nil || s.by == owned || level == a.level || level == (adapt.Level{}) && s.by != leased {
			return
		}
		v, last := g.clock.tick(now)
		from, cuts := a.level.Thousandths(&a.bounds), a.level.Cuts
		a.level = level
		a.level.Fit(&a.bounds)
		to := a.level.Thousandths(&a.bounds)
		switch {
		case level.Cuts > cuts:
			a.known = last
			a.step(Step{From: int64(level.Last * One), To: to, Began: level.CutAt, At: level.CutAt, Cause: cause})
			if announce && g.onCut != nil {
				g.onCut(key)
			}
			if gate.mu.limits.Concurrency != 0 && s.by == leased {
				// The next permits would find the overload again. The fleet divides what is left.
				s.crowded, s.fair = true, max(1, s.permits*to/max(from, 1))
				s.permits = max(gate.mu.inFlight, min(s.permits, s.fair))
			}
		case to > from:
			a.grew(from, to, last)
		}
		gate.applyLevel(v)
		wake = gate.notifyIfEarlier(v, last, wake)
	})
	return wake
}

// Levels returns the learned levels that are below their ceilings, by key.
func (g *Gates) Levels() map[string]adapt.Level {
	levels := make(map[string]adapt.Level)
	g.levels.Range(func(key, level any) bool {
		levels[key.(string)] = level.(adapt.Level)
		return true
	})
	g.mu.Lock()
	defer g.mu.Unlock()
	for key, gate := range g.mu.gates.all {
		if level, ok := gate.Level(); ok {
			levels[key] = level
		}
	}
	return levels
}

// Level returns the learned level of the gate; ok is false if it learns nothing or is at its ceiling.
func (g *Gate) Level() (level adapt.Level, ok bool) {
	if !g.learns.Load() {
		return level, false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if a := g.mu.learner; a != nil {
		level = a.level
	}
	return level, level.At != 0
}

// LearnedOf returns the states of keys with limits of their own that learn, for the first
// `most` of these keys.
func (g *Gates) LearnedOf(most int, now int64) map[string]*Learned {
	g.mu.Lock()
	own := maps.Clone(g.mu.own)
	g.mu.Unlock()
	states := make(map[string]*Learned)
	for _, key := range slices.Sorted(maps.Keys(own)) {
		if len(states) < most && own[key].learns.Load() {
			states[key] = own[key].Info(now).Learned
		}
	}
	return states
}

// RestoreLevels restores learned levels of an earlier process. Call it before setting limits.
// The level of a key whose limits do not learn is kept until they do.
func (g *Gates) RestoreLevels(levels map[string]adapt.Level) {
	for key, level := range levels {
		g.levels.Store(key, level)
	}
}

// The functions below need g.mu of the gate.

// limitsSet returns the limits that were set, from which others may have been learned.
func (g *Gate) limitsSet() Limits {
	if a := g.mu.learner; a != nil {
		return a.set
	}
	return g.mu.limits
}

// learn begins, continues or ends the learning of limits l, and returns the limits in force.
func (g *Gate) learn(l Limits) Limits {
	if l.Adapt == (adapt.Settings{}) {
		if g.mu.learner != nil {
			g.mu.learner = nil
			g.learns.Store(false)
		}
		return l
	}
	a := g.mu.learner
	if a == nil {
		a = &learner{}
		if level, ok := g.gates.levels.LoadAndDelete(g.key); ok {
			a.level = level.(adapt.Level)
		}
		g.mu.learner = a
		g.learns.Store(true)
	}
	a.setLimits(l)
	return a.limits()
}

// applyLevel puts the learned level in force.
func (g *Gate) applyLevel(v instant) {
	g.advance(v)
	l := g.mu.learner.limits()
	g.mu.limits = l
	if b := g.mu.bucket; b != nil {
		if s := g.mu.share; s != nil {
			l = s.part(l)
		}
		b.setRate(l.Rate)
	}
}

// holdsBack reports whether the limit that learns is what held messages back: it is used
// within 90 %, and not beyond after a cut.
func (g *Gate) holdsBack(v instant, last int64) bool {
	if s := g.mu.share; s != nil && s.by == leased { // the fleet knows whether all is used
		return g.mu.limits.Concurrency == 0 || g.mu.inFlight*10 >= s.permits*9
	}
	if c := g.mu.limits.Concurrency; c != 0 {
		return g.mu.inFlight*10 >= c*9 && g.mu.inFlight <= c
	}
	kind, _ := g.admit(v, last, One)
	return kind == ByRate || g.mu.waiting.head != nil && kind == Open
}

// LevelBounds returns what the level of limits that learn is within; ok is false if they do not
// learn.
func LevelBounds(l Limits) (b adapt.Bounds, ok bool) {
	if l.Adapt == (adapt.Settings{}) {
		return b, false
	}
	b = adapt.Bounds{Settings: l.Adapt, Ceiling: l.Concurrency * One}
	if l.Concurrency == 0 {
		b.Ceiling, b.Rate = max(1, l.Rate.Gives(second)), true
	}
	return b, true
}

func (a *learner) setLimits(l Limits) {
	a.set = l
	a.bounds, _ = LevelBounds(l)
	a.level.Fit(&a.bounds)
	if l.Level != 0 {
		a.level.Set(float64(l.Level)/One, a.level.GrownAt, &a.bounds)
	}
}

// limits returns the limits at the learned level.
func (a *learner) limits() Limits { return a.set.AtLevel(&a.level) }

// AtLevel returns the limits in force at a level that was learned. The burst stays.
func (l Limits) AtLevel(level *adapt.Level) Limits {
	b, ok := LevelBounds(l)
	if !ok {
		return l
	}
	at := level.Thousandths(&b)
	if l.Rate != (Rate{}) {
		l.Burst = l.burst()
	}
	if at >= b.Ceiling {
		return l
	}
	if l.Rate != (Rate{}) {
		perSecond := at
		if !b.Rate {
			n, _, _ := mulDiv(uint64(max(1, l.Rate.Gives(second))), uint64(at), 0, uint64(b.Ceiling))
			perSecond = max(1, int64(n))
		}
		l.Rate = PerSecond(perSecond)
	}
	if l.Concurrency != 0 {
		l.Concurrency = max(1, at/One)
	}
	return l
}

// cut cuts the level, unless the message was delivered before the last cut.
func (a *learner) cut(o *Overload, now int64) bool {
	from := a.level.Thousandths(&a.bounds)
	if !a.level.Cut(o.Delivered, now, &a.bounds) {
		return false
	}
	a.known = now
	a.step(Step{From: from, To: a.level.Thousandths(&a.bounds), Began: now, At: now, Cause: o.Cause})
	return true
}

// grow counts n thousandths of successes, and reports whether the level has grown.
func (a *learner) grow(n, now int64) bool {
	from := a.level.Thousandths(&a.bounds)
	if !a.level.Succeed(n, now, &a.bounds) {
		return false
	}
	to := a.level.Thousandths(&a.bounds)
	if to == from {
		return false
	}
	a.grew(from, to, now)
	return true
}

// grew records growth.
func (a *learner) grew(from, to, now int64) {
	if last := len(a.steps) - 1; last >= 0 && a.steps[last].Cause == "" {
		a.steps[last].To, a.steps[last].At = to, now
	} else {
		a.step(Step{From: from, To: to, Began: now, At: now})
	}
}

func (a *learner) step(s Step) {
	if len(a.steps) == MaxSteps {
		copy(a.steps, a.steps[1:])
		a.steps = a.steps[:MaxSteps-1]
	}
	a.steps = append(a.steps, s)
}

// rests reports whether to keep the gate for the level that it has learned.
func (a *learner) rests(now int64) bool {
	return a != nil && a.level.At != 0 && a.set.Level == 0 && now-max(a.level.CutAt, a.level.GrownAt) < learnedRest
}

func (a *learner) state() *Learned {
	if a == nil {
		return nil
	}
	target := int64(a.level.Target(&a.bounds) * One)
	return &Learned{
		Level: a.level.Thousandths(&a.bounds), Ceiling: a.bounds.Ceiling, Min: min(a.bounds.Min, a.bounds.Ceiling), Rate: a.bounds.Rate,
		Fixed: a.set.Level != 0, Target: target, Cuts: a.level.Cuts, CutAt: a.level.CutAt, Steps: slices.Clone(a.steps),
	}
}
