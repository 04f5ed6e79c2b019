package throttle

import (
	"encoding/json"
	"fmt"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// longHistories takes a second or so.
const longHistories = 1500

// history drives a registry with random calls and records the messages that went.
type history struct {
	t       require.TestingT
	c       choices
	g       *Gates
	now     int64
	clock   *modelClock
	keys    []string
	sets    []*Set
	flights []*flightRecord
	buckets map[string][]*period // the last one is in force
	windows map[string][]*period
	limits  map[string]Limits
	paused  map[string]int64 // until when, in force or over
	prefix  bool             // prefixes have the limits, so that gates can be dormant
	slept   int              // gates that were
	style   style
	steps   int
	reserve *Reservation
	wanted  *flightRecord // what the reservation is for
	waits   []*Wait
}

type flightRecord struct {
	set   *Set
	grant Grant
	cost  int64
	went  *went
}

// style is the range that a history draws from: the first has everything, the others
// little, so that the same states recur.
type style struct {
	rates   []Rate
	bursts  []int64
	limits  []int64
	windows []int64
	atOnce  []int64
	costs   []int64
	steps   []int64
}

var (
	shortSteps = []int64{0, 0, 1, sec / 10, sec / 3, sec / 2, sec, 2 * sec, -sec / 2}
	styles     = []style{
		{
			rates:   []Rate{{}, PerSecond(500), PerSecond(1000), PerSecond(10_000), {1000, 3 * sec}, {7, 3}, PerSecond(MaxRate * One), {1, MaxWindow}},
			bursts:  []int64{0, 1, 500, 1000, 5000, 10_000, MaxBurst},
			limits:  []int64{0, 1, 2, 3, 10, 1025},
			windows: []int64{1, 1000, sec / 10, sec, 10 * sec, MaxWindow},
			atOnce:  []int64{0, 1, 2, 3, 4},
			costs:   []int64{1, 500, 1000, 1000, 1000, 2000, 3000, 7000, MaxCost},
			steps: []int64{
				0, 0, 1, 1000, sec / 10, sec / 3, sec / 2, sec, 2 * sec, 30 * sec,
				-1, -sec / 2, -sec, -2 * sec, -100 * sec, MaxWindow, -MaxWindow, 1 << 62, -1 << 62,
			},
		},
		{ // buckets
			rates: []Rate{PerSecond(1000), PerSecond(3000)}, bursts: []int64{5000, 10_000}, limits: []int64{0}, windows: []int64{1},
			atOnce: []int64{0}, costs: []int64{500, 1000, 2000, 3000, 5000}, steps: shortSteps,
		},
		{ // windows, and none
			rates: []Rate{{}}, bursts: []int64{0}, limits: []int64{0, 1, 2, 3, 5}, windows: []int64{sec, 3 * sec},
			atOnce: []int64{0}, costs: []int64{One}, steps: shortSteps,
		},
		{ // everything, little of it
			rates: []Rate{{}, PerSecond(2000)}, bursts: []int64{3000}, limits: []int64{0, 1, 2}, windows: []int64{sec},
			atOnce: []int64{0, 1, 2, 3}, costs: []int64{One, 2 * One, 4 * One}, steps: shortSteps,
		},
	}
)

func newHistory(t require.TestingT, c choices) *history {
	h := &history{
		t: t, c: c, now: start, clock: newModelClock(start), keys: []string{"a", "b", "c"},
		g: New(Start{Crashed: c.pick(3) == 0, WindowHold: sec}, start), limits: map[string]Limits{},
		paused: map[string]int64{}, buckets: map[string][]*period{}, windows: map[string][]*period{},
	}
	h.style = styles[c.pick(len(styles))]
	h.prefix = c.pick(2) == 0
	h.g.mu.awakeIdle = c.pick(3)
	for _, k := range h.keys {
		h.change(k)
	}
	h.makeSets()
	return h
}

func (h *history) makeSets() {
	h.sets, h.waits = nil, nil
	for _, ks := range [][]string{{"a"}, {"b"}, {"b", "a"}, {"a", "c", "b"}} {
		s, err := h.g.Set(ks, h.now)
		require.NoError(h.t, err)
		h.sets = append(h.sets, s)
	}
	for _, gate := range h.sets[3].Gates() {
		for owner := range 2 {
			h.waits = append(h.waits, NewWait(gate, owner))
		}
	}
}

func (h *history) change(key string) {
	l := Limits{Rate: one(h.c, h.style.rates), Concurrency: one(h.c, h.style.atOnce)}
	if l.Rate != (Rate{}) {
		l.Burst = one(h.c, h.style.bursts)
	}
	if l.Limit = one(h.c, h.style.limits); l.Limit != 0 {
		l.Window = one(h.c, h.style.windows)
	}
	h.set(key, l)
	h.c.log("%v: %s has %+v", h.clock.tick(h.now), key, l)
	old, known := h.limits[key]
	if !known || l.Rate != old.Rate || l.Burst != old.Burst {
		h.buckets[key] = append(h.buckets[key], &period{limits: l})
	}
	if !known || l.Limit != old.Limit || l.Window != old.Window {
		h.windows[key] = append(h.windows[key], &period{limits: l})
	}
	h.limits[key] = l
}

// set gives a key its limits. No key is a prefix of another one.
func (h *history) set(key string, l Limits) {
	set := h.g.SetLimits
	if h.prefix {
		set = h.g.SetPrefix
	}
	_, err := set(key, l, h.now, nil)
	require.NoError(h.t, err)
}

func (h *history) record(f *flightRecord) {
	h.c.log("%v: %d went through %q", h.clock.tick(h.now), f.cost, f.set.name)
	f.went = &went{at: new(big.Int).Set(h.clock.tick(h.now)), cost: f.cost, step: h.steps}
	for _, gate := range f.set.Gates() {
		k := gate.Key()
		for _, ps := range []map[string][]*period{h.buckets, h.windows} {
			p := ps[k][len(ps[k])-1]
			p.went = append(p.went, f.went)
		}
		if c := h.limits[k].Concurrency; c != 0 {
			require.LessOrEqual(h.t, h.inFlight(k)+1, c, k)
		}
		if until, paused := h.paused[k]; paused {
			require.True(h.t, until <= h.clock.last && until != Never, "%s is paused", k)
		}
	}
	h.flights = append(h.flights, f)
}

// inFlight counts the messages in flight, without the reservation.
func (h *history) inFlight(key string) (n int64) {
	for _, f := range h.flights {
		for _, gate := range f.set.Gates() {
			if gate.Key() == key {
				n++
			}
		}
	}
	return n
}

// advance ends a flight with the final cost of the message.
func (h *history) correct(f *flightRecord) {
	cost := h.style.costs[h.c.pick(len(h.style.costs))] * int64(h.c.pick(3)) / 2
	h.c.log("%d that went at %v has cost %d", f.cost, f.went.at, cost)
	if f.grant.state == granted || cost > f.cost {
		f.went.settled, f.went.realCost = h.steps, cost
	}
	f.set.ReleaseCorrected(&f.grant, cost-f.cost, h.now, nil)
	f.set.ReleaseCorrected(&f.grant, cost-f.cost, h.now, nil) // returned: nothing
}

func (h *history) step() {
	h.steps++
	h.clock.tick(h.now)
	h.g.clock.tick(h.now) // both see every time, even in a step without a call
	switch h.c.pick(16) {
	case 0, 1, 2:
		h.now = safeAdd(h.now, one(h.c, h.style.steps))
	case 3, 4, 5, 6:
		f := &flightRecord{set: one(h.c, h.sets), cost: one(h.c, h.style.costs)}
		owner := []any{nil, nil, 0, 1}[h.c.pick(4)]
		var ok bool
		if f.grant, _, ok = f.set.Acquire(h.now, f.cost, owner); ok {
			h.record(f)
		}
	case 7, 8:
		if f := h.drop(); f != nil {
			h.c.log("undo of %d, went at %v", f.cost, f.went.at)
			f.set.Undo(&f.grant, h.now, nil)
			f.went.undone = true
		}
	case 9:
		if f := h.drop(); f != nil && h.c.pick(2) == 0 {
			f.set.Release(&f.grant, h.now, nil)
		} else if f != nil {
			h.correct(f)
		}
	case 10:
		if h.c.pick(3) == 0 {
			h.change(one(h.c, h.keys))
		}
	case 11:
		h.reserveStep()
	case 12:
		w := one(h.c, h.waits)
		switch h.c.pick(4) {
		case 0:
			w.Join(h.now, One)
		case 1:
			w.Turn(h.now)
		case 2:
			w.Pass(nil)
		case 3:
			w.Leave(nil)
		}
	case 13:
		if h.c.pick(4) == 0 {
			h.restart()
		}
	case 14:
		h.pause(one(h.c, h.keys))
	case 15:
		h.leaveIdle()
	}
	h.seePauses()
}

// seePauses removes the pauses that are over for good, since their gates have seen the end.
func (h *history) seePauses() {
	h.clock.tick(h.now)
	h.g.clock.tick(h.now)
	for k, until := range h.paused {
		_, ok, _ := h.g.Look(k, h.now)
		if until <= h.clock.last && until != Never {
			delete(h.paused, k)
		} else {
			require.True(h.t, ok, "it is paused")
		}
	}
}

// pause shuts a gate for a while or until it is resumed, or resumes it, which is
// more likely.
func (h *history) pause(key string) {
	until := int64(0)
	switch h.c.pick(4) {
	case 0:
		until = Never
	case 1:
		until = safeAdd(h.now, one(h.c, h.style.steps))
	}
	h.c.log("%s is paused until %d", key, until)
	h.g.Pause(key, until, h.now, nil)
	delete(h.paused, key)
	if until != 0 && until > h.clock.last || until == Never {
		h.paused[key] = until
	}
}

// leaveIdle leaves the gates idle for some time, so that they become dormant. Time, limits and
// pauses go on.
func (h *history) leaveIdle() {
	if h.reserve != nil {
		h.reserve.Cancel(h.now, nil)
		h.reserve = nil
	}
	for _, w := range h.waits {
		w.Leave(nil)
	}
	for _, f := range h.flights {
		f.set.Release(&f.grant, h.now, nil)
	}
	h.flights = nil
	for _, s := range h.sets {
		h.g.Close(s, h.now)
	}
	for range 1 + h.c.pick(4) {
		h.clock.tick(h.now)
		h.g.clock.tick(h.now)
		switch h.c.pick(6) {
		case 0:
			h.change(one(h.c, h.keys))
		case 1:
			h.pause(one(h.c, h.keys))
		case 2:
			h.now = safeAdd(h.now, one(h.c, h.style.steps))
		default:
			h.c.log("all sleep")
			h.slept += h.g.sleepAll(h.now)
		}
		h.seePauses()
	}
	h.makeSets()
}

func (h *history) drop() *flightRecord {
	if len(h.flights) == 0 {
		return nil
	}
	i := h.c.pick(len(h.flights))
	f := h.flights[i]
	h.flights = append(h.flights[:i:i], h.flights[i+1:]...)
	return f
}

func (h *history) reserveStep() {
	if h.reserve == nil {
		f := &flightRecord{set: one(h.c, h.sets), cost: one(h.c, h.style.costs)}
		r, ok := h.g.Reserve(f.set, f.cost)
		require.True(h.t, ok)
		_, ok = h.g.Reserve(f.set, f.cost)
		require.False(h.t, ok)
		h.reserve, h.wanted = r, f
		h.c.log("reservation of %d for %q", f.cost, f.set.name)
	}
	if h.c.pick(4) == 0 {
		h.reserve.Cancel(h.now, nil)
		h.reserve = nil
		return
	}
	grant, _, _ := h.reserve.Acquire(h.now, nil, nil)
	if grant.Active() {
		h.wanted.grant, h.reserve = grant, nil
		h.record(h.wanted)
	}
}

// restart is a clean stop and a new start with the messages in flight adopted.
// The new process starts at a time that the clock of the old one has seen.
func (h *history) restart() {
	if h.reserve != nil {
		h.reserve.Cancel(h.now, nil)
		h.reserve = nil
	}
	h.now = max(h.now, h.clock.last)
	h.c.log("restart")
	stored, err := json.Marshal(h.g.Snapshot(h.now))
	require.NoError(h.t, err)
	var states []State
	require.NoError(h.t, json.Unmarshal(stored, &states))
	asleep := h.g.mu.awakeIdle
	h.g = New(Start{}, h.now)
	h.g.mu.awakeIdle = asleep
	for k, l := range h.limits {
		h.set(k, l)
	}
	h.g.Restore(states, h.now)
	for k, until := range h.paused {
		h.g.Pause(k, until, h.now, nil)
	}
	old := h.sets
	h.makeSets()
	for _, f := range h.flights {
		for i := range old {
			if f.set == old[i] {
				f.set = h.sets[i]
				break
			}
		}
		f.grant = f.set.Adopt()
	}
}

func (h *history) check() {
	for _, ps := range h.buckets {
		for _, p := range ps {
			p.checkBucket(h.t)
		}
	}
	for _, ps := range h.windows {
		for _, p := range ps {
			p.checkWindow(h.t)
		}
	}
	held := map[string]int64{}
	if h.reserve != nil {
		for i, gate := range h.reserve.set.Gates() {
			held[gate.Key()] = int64(h.reserve.collected >> i & 1)
		}
	}
	for _, k := range h.keys {
		gate, ok := h.g.Find(k)
		require.True(h.t, ok)
		require.Equal(h.t, h.inFlight(k)+held[k], gate.Info(h.now).InFlight, k)
	}
}

// The bounds of every kind hold over every interval of unchanged limits, for messages
// that were not undone, whatever the clock, undo, reservations, restarts and changes do.
// No place in flight is lost.
func TestBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := newHistory(t, rapidChoices{t})
		for range rapid.IntRange(1, 250).Draw(t, "steps") {
			h.step()
		}
		h.check()
	})
}

// The same over long histories without a bias to small numbers.
func TestBoundsOfLongHistories(t *testing.T) {
	slept := 0
	defer func() { require.Greater(t, slept, longHistories) }()
	for range longHistories {
		seed := rand.Uint64()
		rig := &seeded{T: t, r: rand.New(rand.NewPCG(seed, 0))}
		h := newHistory(rig, rig)
		for range 400 {
			h.step()
		}
		slept += h.slept
		rig.said = append(rig.said, fmt.Sprintf("seed %d", seed))
		h.check()
	}
}

func FuzzHistory(f *testing.F) {
	f.Add([]byte("a token bucket, a sliding window and a limit of concurrency"))
	f.Add([]byte{0, 3, 5, 0, 0, 0, 0, 0, 3, 0, 4, 0, 0, 5, 0, 0, 6, 1, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		c := &byteChoices{b[:min(len(b), 800)]}
		h := newHistory(t, c)
		for len(c.b) > 0 {
			h.step()
		}
		h.check()
	})
}
