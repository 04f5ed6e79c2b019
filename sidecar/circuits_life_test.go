package sidecar

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/breaker"
	"github.com/filaq/fila/wire"
)

func TestCircuitLife(t *testing.T) {
	r := newCircuitRig(t)
	ci := r.cs.use("stripe")
	slow := r.allow(ci) // begins before the outage
	r.fail(ci, 9)
	r.succeed(ci)
	r.fail(ci, 9)
	r.admits(ci, all, 0)
	require.Empty(t, r.news())
	r.fail(ci, 1)
	require.Equal(t, "closed -> open: failures", r.news())
	r.refused(ci)
	r.admits(ci, 0, 5*time.Minute)

	r.pass(5*time.Minute - 1)
	r.refused(ci)
	r.pass(1)
	r.admits(ci, 3, 0)
	probes := []*circuitPass{r.allow(ci), r.allow(ci), r.allow(ci)}
	require.Equal(t, "open -> half-open: time", r.news())
	r.refused(ci)
	r.admits(ci, 0, -1)
	ci.done(slow, r.now.Load(), breaker.Success)
	r.admits(ci, 0, -1)
	ci.done(probes[0], r.now.Load(), breaker.Neutral)
	ci.done(probes[0], r.now.Load(), breaker.Failure) // cleared by the first call
	r.admits(ci, 1, 0)
	ci.done(probes[1], r.now.Load(), breaker.Failure)
	require.Equal(t, "half-open -> open: failures", r.news())
	r.admits(ci, 0, 5*time.Minute)
	ci.done(probes[2], r.now.Load(), breaker.Success)
	r.admits(ci, 0, 5*time.Minute)

	r.pass(5 * time.Minute)
	r.succeed(ci)
	require.Equal(t, "open -> half-open: time, half-open -> closed: success", r.news())
	r.admits(ci, all, 0)
	r.fail(ci, 9)
	r.admits(ci, all, 0)
	ci.done(&circuitPass{}, r.now.Load(), breaker.Failure)
	r.admits(ci, all, 0)
}

func TestCircuitEvent(t *testing.T) {
	r := newCircuitRig(t)
	ci := r.cs.use("a b")
	r.fail(ci, 10)
	require.Equal(t, told{wire.EventCircuitChanged, wire.Event{Key: "a b", Data: map[string]any{
		"old": "closed", "new": "open", "consecutive_failures": 10, "cause": "failures",
		"at": timestamp(r.now.Load()), "until": timestamp(r.now.Load() + 300*second),
	}}}, r.events[0])
	r.cs.resume("a b")
	ci.open(r.now.Load(), math.MaxInt64, breaker.HalfOpen)
	require.Len(t, r.events, 2, "resume does not end what failures have opened")
	require.Equal(t, "closed", r.events[1].Data["until"])
}

func TestCircuitRetryAfter(t *testing.T) {
	r := newCircuitRig(t)
	ci := r.cs.use("stripe")
	late, probe := r.allow(ci), (*circuitPass)(nil)
	r.fail(ci, 4)
	ci.retryAfter(r.now.Load(), r.now.Load()+30*second)
	require.Equal(t, "closed -> open: retry_after", r.news())
	require.Equal(t, "retry_after", ci.info(r.now.Load()).Cause)
	ci.done(late, r.now.Load(), breaker.Failure)
	ci.retryAfter(r.now.Load(), r.now.Load()+10*second)
	r.admits(ci, 0, 30*time.Second)
	ci.retryAfter(r.now.Load(), r.now.Load()+40*second)
	r.admits(ci, 0, 40*time.Second)
	r.pass(40 * time.Second)
	r.admits(ci, all, 0)
	require.Empty(t, r.news())
	r.fail(ci, 5)
	r.admits(ci, all, 0)
	require.Equal(t, "open -> closed: time", r.news())
	r.fail(ci, 1) // the tenth in a row
	r.admits(ci, 0, 5*time.Minute)

	ci.retryAfter(r.now.Load(), r.now.Load()+second)
	r.admits(ci, 0, 5*time.Minute)
	ci.retryAfter(r.now.Load(), r.now.Load()+600*second)
	require.Equal(t, "closed -> open: failures", r.news(), "it was open, and is")
	r.pass(10 * time.Minute)
	probe = r.allow(ci)
	ci.retryAfter(r.now.Load(), r.now.Load()+second)
	require.Equal(t, "open -> half-open: time, half-open -> open: retry_after", r.news())
	ci.done(probe, r.now.Load(), breaker.Success)
	r.pass(time.Second)
	r.admits(ci, 3, 0)

	ci.close(r.now.Load(), true)
	ci.retryAfter(r.now.Load(), r.now.Load()+second)
	r.pass(2 * time.Second)
	r.news()
	ci.retryAfter(r.now.Load(), r.now.Load()+second)
	require.Equal(t, "open -> closed: time, closed -> open: retry_after", r.news())
	r.pass(time.Second)
	r.admits(ci, all, 0)
}

func TestCircuitByHand(t *testing.T) {
	r := newCircuitRig(t)
	ci := r.cs.use("stripe")
	now := r.now.Load
	ci.open(now(), now()+60*second, breaker.HalfOpen)
	r.admits(ci, 0, time.Minute)
	ci.retryAfter(now(), now()+second)
	r.admits(ci, 0, time.Minute)
	ci.open(now(), math.MaxInt64, breaker.HalfOpen)
	require.Equal(t, "closed -> open: by hand, open -> open: by hand", r.news())
	r.pass(1000 * time.Hour)
	r.admits(ci, 0, -1)
	r.refused(ci)
	ci.open(now(), math.MaxInt64, breaker.HalfOpen)
	require.Empty(t, r.news(), "nothing new")
	ci.close(now(), false)
	require.Equal(t, "open -> closed: by hand", r.news())
	ci.close(now(), false)
	require.Empty(t, r.news())

	r.fail(ci, 10)
	r.news()
	ci.close(now(), false)
	r.admits(ci, all, 0)
	r.fail(ci, 1)
	require.Equal(t, "open -> closed: by hand, closed -> open: failures", r.news(), "the row is kept in mind")
	ci.close(now(), true)
	r.fail(ci, 9)
	r.admits(ci, all, 0)
	ci.close(now(), true)
	r.fail(ci, 9)
	r.admits(ci, all, 0)
}

func TestCircuitPause(t *testing.T) {
	for name, tc := range map[string]struct {
		before func(r *circuitRig, ci *circuit)
		after  int64 // what it admits afterwards
	}{
		"closed":      {func(*circuitRig, *circuit) {}, all},
		"retry after": {func(r *circuitRig, ci *circuit) { ci.retryAfter(r.now.Load(), r.now.Load()+second) }, all},
		"open":        {func(r *circuitRig, ci *circuit) { r.fail(ci, 10) }, 3},
		"half-open":   {func(r *circuitRig, ci *circuit) { r.fail(ci, 10); r.pass(time.Hour); r.allow(ci) }, 3},
	} {
		for _, byHand := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, by hand %v", name, byHand), func(t *testing.T) {
				r := newCircuitRig(t)
				ci := r.cs.use("stripe")
				q := &queue{name: "a"}
				tc.before(r, ci)
				r.cs.pause("stripe", r.now.Load()+3600*second)
				ci.wait(q)
				r.wakes()
				r.admits(ci, 0, time.Hour)
				require.Equal(t, "by hand", ci.info(r.now.Load()).Cause)
				if byHand {
					r.cs.resume("stripe")
					require.Equal(t, []string{"a"}, r.wakes())
				} else {
					r.pass(time.Hour)
				}
				r.admits(ci, tc.after, 0)
			})
		}
	}
	r := newCircuitRig(t)
	r.cs.resume("nothing of that name")
	require.Empty(t, r.cs.mu.byKey)
	r.cs.pause("new", math.MaxInt64)
	require.Equal(t, "closed", r.cs.mu.byKey["new"].info(r.now.Load()).OpenUntil)
}

func TestCircuitMaxFailures(t *testing.T) {
	r := newCircuitRig(t)
	limits, _ := circuitLimits(CircuitDefaults{MaxFailures: 4, FailureWindowMs: 10_000, FailureHoldMs: 60_000}, nil, nil)
	r.cs.configure(limits, nil)
	ci := r.cs.use("stripe")
	for range 3 {
		r.fail(ci, 1)
		r.succeed(ci) // never two in a row
		r.pass(time.Second)
	}
	r.pass(7 * time.Second) // the first one is 10 s old
	r.fail(ci, 2)
	r.admits(ci, all, 0)
	require.Empty(t, r.news())
	r.fail(ci, 1)
	require.Equal(t, told{wire.EventHeld, wire.Event{Key: "stripe", Data: map[string]any{
		"kind": "circuit", "cause": "max_failures", "failures": int64(5), "window_ms": int64(10_000),
		"until": timestamp(r.now.Load() + 60*second),
	}}}, r.events[1])
	require.Equal(t, "closed -> open: max_failures, held", r.news())
	r.admits(ci, 0, time.Minute)
	require.Equal(t, "max_failures", ci.info(r.now.Load()).Cause)
	r.pass(time.Minute)
	r.admits(ci, 3, 0)

	t.Run("until it is closed", func(t *testing.T) {
		limits.failureHold = 0
		r.cs.configure(limits, nil)
		r.succeed(ci)
		r.fail(ci, 5)
		r.pass(1000 * time.Hour)
		r.admits(ci, 0, -1)
		r.news()
		ci.close(r.now.Load(), false)
		require.Equal(t, "open -> closed: by hand", r.news())
		r.fail(ci, 4)
		r.admits(ci, all, 0)
	})
	t.Run("at the threshold", func(t *testing.T) {
		limits.breaker.Threshold = 5
		r.cs.configure(limits, nil)
		ci.close(r.now.Load(), true)
		r.news()
		r.fail(ci, 5)
		require.Equal(t, "closed -> open: max_failures, held", r.news())
	})
	t.Run("of a probe", func(t *testing.T) {
		limits.maxFailures = 1
		r.cs.configure(limits, nil)
		ci.close(r.now.Load(), true)
		r.fail(ci, 1)
		ci.open(r.now.Load(), r.now.Load(), breaker.HalfOpen)
		r.news()
		r.fail(ci, 1)
		require.Equal(t, "open -> half-open: time, half-open -> open: max_failures, held", r.news())
		r.admits(ci, 0, -1)
	})
	t.Run("switched off", func(t *testing.T) {
		limits.maxFailures, limits.breaker.Threshold = 0, 1000
		r.cs.configure(limits, nil)
		ci.close(r.now.Load(), true)
		r.fail(ci, 999)
		r.admits(ci, all, 0)
	})
}

func TestCircuitWaiters(t *testing.T) {
	r := newCircuitRig(t)
	ci := r.cs.use("stripe")
	a, b := &queue{name: "a"}, &queue{name: "b"}
	both, none := []string{"a", "b"}, []string{}

	r.fail(ci, 10)
	ci.wait(a)
	ci.wait(b)
	require.Equal(t, both, r.wakes(), "they may not know the time")
	r.admits(ci, 0, 5*time.Minute)
	require.Equal(t, 2, ci.info(r.now.Load()).Waiting)
	r.pass(5 * time.Minute)
	p := []*circuitPass{r.allow(ci), r.allow(ci), r.allow(ci)}
	r.admits(ci, 0, -1)
	require.Equal(t, none, r.wakes(), "what opens by time they see themselves")

	ci.done(p[0], r.now.Load(), breaker.Neutral)
	require.Equal(t, both, r.wakes())
	ci.done(p[1], r.now.Load(), breaker.Neutral)
	require.Equal(t, none, r.wakes(), "once until they look")
	r.admits(ci, 2, 0)
	require.Equal(t, none, r.wakes())
	p[0], p[1] = r.allow(ci), r.allow(ci)
	r.admits(ci, 0, -1)
	ci.done(p[0], r.now.Load(), breaker.Failure)
	require.Equal(t, both, r.wakes(), "there is a time now")
	r.admits(ci, 0, 5*time.Minute)

	r.pass(5 * time.Minute)
	for range 3 {
		r.allow(ci)
	}
	r.admits(ci, 0, -1)
	ci.retryAfter(r.now.Load(), r.now.Load()+second)
	require.Equal(t, both, r.wakes(), "it opens by time again")
	r.admits(ci, 0, time.Second)

	ci.leave(b)
	ci.open(r.now.Load(), r.now.Load()+2*second, breaker.HalfOpen)
	require.Equal(t, []string{"a"}, r.wakes(), "the time is another one")
	r.admits(ci, 0, 2*time.Second)
	ci.close(r.now.Load(), false)
	require.Equal(t, []string{"a"}, r.wakes())
	ci.leave(a)
	ci.leave(a)
	require.Zero(t, ci.info(r.now.Load()).Waiting)
	r.fail(ci, 1)
	require.Equal(t, none, r.wakes())

	ci.open(r.now.Load(), math.MaxInt64, breaker.HalfOpen)
	ci.wait(a)
	require.Equal(t, none, r.wakes(), "there is nothing to see")
	ci.close(r.now.Load(), false)
	ci.wait(b)
	require.Equal(t, both, r.wakes(), "it has opened before b came")
}

func TestCircuitSettingsActAtOnce(t *testing.T) {
	r := newCircuitRig(t)
	ci := r.cs.use("stripe")
	q := &queue{name: "a"}
	set := func(change func(*circuitSettings)) {
		s := r.cs.settings("stripe")
		change(&s)
		r.cs.configure(r.cs.mu.defaults, map[string]circuitSettings{"stripe": s})
	}
	set(func(s *circuitSettings) { s.breaker.Threshold = 2 })
	r.fail(ci, 2)
	ci.wait(q)
	r.admits(ci, 0, 5*time.Minute)
	r.wakes()
	set(func(s *circuitSettings) { s.breaker.Cooldown = time.Second })
	require.Equal(t, []string{"a"}, r.wakes())
	r.admits(ci, 0, time.Second)
	r.pass(time.Second)
	for range 3 {
		r.allow(ci)
	}
	r.admits(ci, 0, -1)
	set(func(s *circuitSettings) { s.breaker.HalfOpenMaxCalls = 5 })
	require.Equal(t, []string{"a"}, r.wakes())
	r.admits(ci, 2, 0)
	r.cs.configure(r.cs.mu.defaults, nil)
	require.Equal(t, []string{}, r.wakes(), "it has not looked in vain since")
	require.Equal(t, 3, ci.info(0).HalfOpenMaxCalls)
	r.admits(ci, 0, -1)
	r.cs.configure(r.cs.mu.defaults, map[string]circuitSettings{"other": r.cs.mu.defaults})
	require.Equal(t, []string{}, r.wakes(), "nothing has changed for it")
}
