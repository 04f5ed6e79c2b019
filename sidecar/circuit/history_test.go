package circuit

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/filaq/fila/breaker"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// waitingQueue is a queue with blocked messages: it checks when its timer is due or when it is woken.
type waitingQueue struct {
	owner   *owner
	waiting bool
	told    bool
	timer   int64
}

// circuitHistory drives one circuit, with queues that wait at it, through a random history. Changes
// by queues are announced later.
type circuitHistory struct {
	*rig
	c      *Circuit
	queues []*waitingQueue
	passes []breaker.Pass
	states map[string]string // by key, according to the events
}

func (h *circuitHistory) time() int64 { return h.now.Load() }

// follow passes on wake-ups and follows the events.
func (h *circuitHistory) follow(t *rapid.T) {
	for _, name := range h.wakes() {
		for _, w := range h.queues {
			if w.owner.name == name {
				require.True(t, w.waiting, "only a waiting queue is woken")
				w.told = true
			}
		}
	}
	for _, e := range h.events {
		if e.typ == wire.EventCircuitChanged {
			require.Equal(t, h.states[e.Key], e.Data["old"], "events follow each other")
			h.states[e.Key] = e.Data["new"].(string)
		}
	}
	h.events = nil
}

// look is the check of a queue that is woken or whose timer is due.
func (h *circuitHistory) look(w *waitingQueue) {
	w.told = false
	n, at := h.c.Admits(h.time())
	if n > 0 {
		if p, _ := h.c.Allow(h.time()); p != 0 {
			h.passes = append(h.passes, p)
		}
		n, at = h.c.Admits(h.time())
	}
	if n == 0 {
		w.timer = at
		return
	}
	// Nobody waits any more.
	h.c.Leave(w.owner)
	w.waiting = false
}

func (h *circuitHistory) check(t *rapid.T) {
	h.follow(t)
	n, at := h.c.mu.m.Admits(h.time())
	for _, w := range h.queues {
		if w.waiting && !w.told && !h.due(w) && w.timer > h.time() {
			require.Zero(t, n, "queue %s waits although the circuit admits", w.owner.name)
			require.LessOrEqual(t, w.timer, at, "queue %s does not know the time", w.owner.name)
		}
	}
	i := h.c.info(h.time())
	raw, said := h.c.mu.m.State(), h.states["stripe"]
	if raw != breaker.Open {
		require.Equal(t, i.State, raw.String())
	}
	if news := h.c.mu.news; len(news) == 0 {
		require.Equal(t, raw.String(), said)
	} else {
		require.Equal(t, news[0].change.Old.String(), said)
	}
	require.Equal(t, i.State != "closed", i.Cause != "")
}

// due reports whether the next announcement wakes w.
func (h *circuitHistory) due(w *waitingQueue) bool {
	i := h.c.waiting(w.owner)
	return i >= 0 && h.c.mu.waiters[i].due
}

func TestCircuitHistories(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := &circuitHistory{rig: newRig(t), states: map[string]string{"stripe": "closed"}}
		h.c = h.use("stripe")
		for _, name := range []string{"a", "b", "c"} {
			h.queues = append(h.queues, &waitingQueue{owner: h.owner(name)})
		}
		limits := standard
		until := func(t *rapid.T) int64 {
			if rapid.IntRange(0, 9).Draw(t, "for good") == 0 {
				return math.MaxInt64
			}
			return h.time() + rapid.Int64Range(0, 100).Draw(t, "for")
		}
		t.Repeat(map[string]func(*rapid.T){
			"deliver": func(t *rapid.T) {
				w := rapid.SampledFrom(h.queues).Draw(t, "queue")
				if p, _ := h.c.Allow(h.time()); p != 0 {
					h.passes = append(h.passes, p)
				} else if !w.waiting {
					w.waiting, w.timer = true, math.MaxInt64
					h.c.Wait(w.owner, h.time())
				}
			},
			"look": func(t *rapid.T) {
				for _, w := range h.queues {
					if w.waiting && (w.told || w.timer <= h.time()) && rapid.Bool().Draw(t, "now") {
						h.look(w)
					}
				}
			},
			"done": func(t *rapid.T) {
				if len(h.passes) == 0 {
					t.Skip()
				}
				i := rapid.IntRange(0, len(h.passes)-1).Draw(t, "pass")
				p := h.passes[i]
				h.passes = append(h.passes[:i], h.passes[i+1:]...)
				h.c.Done(p, h.time(), rapid.SampledFrom([]breaker.Outcome{
					breaker.Success, breaker.Failure, breaker.Failure, breaker.Neutral,
				}).Draw(t, "outcome"))
			},
			"time":        func(t *rapid.T) { h.now.Add(rapid.Int64Range(0, 80).Draw(t, "by")) },
			"retry after": func(t *rapid.T) { h.c.RetryAfter(h.time(), until(t)) },
			"open":        func(t *rapid.T) { h.c.open(h.time(), until(t), breaker.HalfOpen, "") },
			"pause":       func(t *rapid.T) { h.reg.Pause("stripe", 0, until(t), "") },
			"resume":      func(*rapid.T) { h.reg.Resume("stripe") },
			"close":       func(t *rapid.T) { h.c.close(h.time(), rapid.Bool().Draw(t, "forget")) },
			"configure": func(t *rapid.T) {
				limits.Breaker = breaker.Config{
					Threshold:         rapid.IntRange(1, 5).Draw(t, "threshold"),
					Cooldown:          time.Duration(rapid.IntRange(1, 100).Draw(t, "cooldown")),
					HalfOpenMaxCalls:  rapid.IntRange(1, 3).Draw(t, "probes"),
					HalfOpenSuccesses: rapid.IntRange(1, 3).Draw(t, "successes"),
				}
				limits.MaxFailures = rapid.Int64Range(0, 4).Draw(t, "max failures")
				limits.FailureWindow = time.Duration(rapid.IntRange(1, 100).Draw(t, "window"))
				limits.FailureHold = time.Duration(rapid.IntRange(0, 100).Draw(t, "hold"))
				h.reg.Configure(limits, nil, nil)
			},
			"announce": func(*rapid.T) { h.c.Announce() },
			"commit":   func(*rapid.T) { h.disk.commit() },
			"restart": func(t *rapid.T) {
				h.reg.giveBack(h.c) // it may be forgotten
				h.c.Announce()
				h.disk.commitAll()
				h.follow(t)
				before, now := h.c.info(h.time()), h.time()
				h.now.Add(rapid.Int64Range(-100, 100).Draw(t, "off"))
				h.restart()
				h.reg.Configure(limits, nil, nil)
				h.c = h.use("stripe")
				h.passes = nil
				for _, w := range h.queues {
					w.waiting, w.told = false, false
				}
				after := h.c.info(h.time())
				before.Openings = nil // a new process has seen none
				h.states["stripe"] = h.c.mu.m.State().String()
				switch {
				case before.State == "open" && h.time() >= now:
					if after.State == "open" {
						require.Equal(t, before, with(after, before.Waiting))
					}
				case before.State == "closed":
					require.Equal(t, "closed", after.State)
				case before.State == "half-open" && h.time() >= now:
					n, _ := h.c.Admits(h.time())
					require.Positive(t, n)
				}
				if before.OpenUntil != "" && before.OpenUntil != "closed" {
					at, err := time.Parse(time.RFC3339Nano, before.OpenUntil)
					require.NoError(t, err)
					require.Equal(t, h.time() < at.UnixNano(), after.State == "open" || h.time() < now,
						"open until its time")
				}
			},
			"": h.check,
		})
	})
}

func with(i api.CircuitInfo, waiting int) api.CircuitInfo {
	i.Waiting = waiting
	return i
}
