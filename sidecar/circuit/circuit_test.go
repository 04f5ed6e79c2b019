package circuit

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/breaker"
	"github.com/filaq/fila/wire"
)

// TestCircuitLife: package breaker decides; the circuit says so.
func TestCircuitLife(t *testing.T) {
	r := newRig(t)
	c := r.use("stripe")
	r.fail(c, 9)
	r.done(c, 0, breaker.Failure) // of no pass
	r.admits(c, all, 0)
	require.Empty(t, r.news())
	r.fail(c, 1)
	require.Equal(t, "closed -> open: failures", r.news())
	r.refused(c)
	r.admits(c, 0, 5*time.Minute)
	r.pass(5 * time.Minute)
	r.admits(c, 3, 0)
	r.fail(c, 1)
	require.Equal(t, "open -> half-open: time, half-open -> open: failures", r.news())
	r.pass(5 * time.Minute)
	r.succeed(c)
	require.Equal(t, "open -> half-open: time, half-open -> closed: success", r.news())
	r.admits(c, all, 0)
}

func TestCircuitEvent(t *testing.T) {
	r := newRig(t)
	c := r.use("a b")
	r.fail(c, 10)
	require.Equal(t, told{wire.EventCircuitChanged, wire.Event{Key: "a b", Data: map[string]any{
		"old": "closed", "new": "open", "consecutive_failures": 10, "cause": "failures",
		"at": wire.Timestamp(r.now.Load()), "until": wire.Timestamp(r.now.Load() + 300*second),
	}}}, r.events[0])
	r.reg.Resume("a b")
	c.open(r.now.Load(), math.MaxInt64, breaker.HalfOpen, "")
	require.Len(t, r.events, 2, "resume does not end what failures have opened")
	require.Equal(t, "closed", r.events[1].Data["until"])
}

func TestCircuitRetryAfter(t *testing.T) {
	r := newRig(t)
	c := r.use("stripe")
	r.retryAfter(c, r.now.Load()+30*second)
	require.Equal(t, "closed -> open: retry_after", r.news())
	require.Equal(t, "retry_after", c.info(r.now.Load()).Cause)
	r.retryAfter(c, r.now.Load()+10*second)
	r.retryAfter(c, r.now.Load()+40*second)
	r.admits(c, 0, 40*time.Second)
	require.Empty(t, r.news(), "it was open, and is")
	r.pass(40 * time.Second)
	r.admits(c, all, 0)
	require.Empty(t, r.news(), "nobody has gone")
	r.fail(c, 10)
	require.Equal(t, "open -> closed: time, closed -> open: failures", r.news())
	r.pass(10 * time.Minute)
	probe := r.allow(c)
	r.retryAfter(c, r.now.Load()+second)
	require.Equal(t, "open -> half-open: time, half-open -> open: retry_after", r.news())
	r.done(c, probe, breaker.Success)
	c.close(r.now.Load(), true)
	r.retryAfter(c, r.now.Load()+second)
	r.pass(2 * time.Second)
	r.news()
	r.retryAfter(c, r.now.Load()+second)
	require.Equal(t, "open -> closed: time, closed -> open: retry_after", r.news())
}

func TestCircuitByHand(t *testing.T) {
	r := newRig(t)
	c := r.use("stripe")
	now := r.now.Load
	c.open(now(), now()+60*second, breaker.HalfOpen, "")
	r.admits(c, 0, time.Minute)
	r.retryAfter(c, now()+second)
	r.admits(c, 0, time.Minute)
	c.open(now(), math.MaxInt64, breaker.HalfOpen, "")
	require.Equal(t, "closed -> open: by hand, open -> open: by hand", r.news())
	r.pass(1000 * time.Hour)
	r.admits(c, 0, -1)
	r.refused(c)
	c.open(now(), math.MaxInt64, breaker.HalfOpen, "")
	require.Empty(t, r.news(), "nothing new")
	c.close(now(), false)
	require.Equal(t, "open -> closed: by hand", r.news())
	c.close(now(), false)
	require.Empty(t, r.news())
}

func TestCircuitPause(t *testing.T) {
	for name, tc := range map[string]struct {
		before func(r *rig, c *Circuit)
		after  int64 // what it then admits
	}{
		"closed":      {func(*rig, *Circuit) {}, all},
		"retry after": {func(r *rig, c *Circuit) { r.retryAfter(c, r.now.Load()+second) }, all},
		"open":        {func(r *rig, c *Circuit) { r.fail(c, 10) }, 3},
		"half-open":   {func(r *rig, c *Circuit) { r.fail(c, 10); r.pass(time.Hour); r.allow(c) }, 3},
	} {
		for _, byHand := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, by hand %v", name, byHand), func(t *testing.T) {
				r := newRig(t)
				c := r.use("stripe")
				q := r.owner("a")
				tc.before(r, c)
				r.reg.Pause("stripe", 0, r.now.Load()+3600*second, "")
				r.wait(c, q)
				r.wakes()
				r.admits(c, 0, time.Hour)
				require.Equal(t, "by hand", c.info(r.now.Load()).Cause)
				if byHand {
					r.reg.Resume("stripe")
					require.Equal(t, []string{"a"}, r.wakes())
				} else {
					r.pass(time.Hour)
				}
				r.admits(c, tc.after, 0)
			})
		}
	}
	r := newRig(t)
	r.reg.Resume("nothing of that name")
	require.Empty(t, r.reg.mu.byKey)
	r.reg.Pause("new", 0, math.MaxInt64, "")
	require.Equal(t, "closed", r.reg.mu.byKey["new"].info(r.now.Load()).OpenUntil)
}

func TestCircuitMaxFailures(t *testing.T) {
	r := newRig(t)
	limits := standard
	limits.MaxFailures, limits.FailureWindow, limits.FailureHold = 4, 10*time.Second, time.Minute
	r.reg.Configure(limits, nil, nil)
	c := r.use("stripe")
	for range 3 {
		r.fail(c, 1)
		r.succeed(c) // never two failures in a row
		r.pass(time.Second)
	}
	r.pass(7 * time.Second) // the first failure is 10 s old
	r.fail(c, 2)
	r.admits(c, all, 0)
	require.Empty(t, r.news())
	r.fail(c, 1)
	require.Equal(t, told{wire.EventHeld, wire.Event{Key: "stripe", Data: map[string]any{
		"kind": "circuit", "cause": "max_failures", "failures": int64(5), "window_ms": int64(10_000),
		"until": wire.Timestamp(r.now.Load() + 60*second),
	}}}, r.events[1])
	require.Equal(t, "closed -> open: max_failures, held", r.news())
	r.admits(c, 0, time.Minute)
	require.Equal(t, "max_failures", c.info(r.now.Load()).Cause)
	r.pass(time.Minute)
	r.admits(c, 3, 0)

	t.Run("until it is closed", func(t *testing.T) {
		limits.FailureHold = 0
		r.reg.Configure(limits, nil, nil)
		r.succeed(c)
		r.fail(c, 5)
		r.pass(1000 * time.Hour)
		r.admits(c, 0, -1)
		r.news()
		c.close(r.now.Load(), false)
		require.Equal(t, "open -> closed: by hand", r.news())
		r.fail(c, 4)
		r.admits(c, all, 0)
	})
	t.Run("at the threshold", func(t *testing.T) {
		limits.Breaker.Threshold = 5
		r.reg.Configure(limits, nil, nil)
		c.close(r.now.Load(), true)
		r.news()
		r.fail(c, 5)
		require.Equal(t, "closed -> open: max_failures, held", r.news())
	})
	t.Run("of a probe", func(t *testing.T) {
		limits.MaxFailures = 1
		r.reg.Configure(limits, nil, nil)
		c.close(r.now.Load(), true)
		r.fail(c, 1)
		c.open(r.now.Load(), r.now.Load(), breaker.HalfOpen, "")
		r.news()
		r.fail(c, 1)
		require.Equal(t, "open -> half-open: time, half-open -> open: max_failures, held", r.news())
		r.admits(c, 0, -1)
	})
	t.Run("switched off", func(t *testing.T) {
		limits.MaxFailures, limits.Breaker.Threshold = 0, 1000
		r.reg.Configure(limits, nil, nil)
		c.close(r.now.Load(), true)
		r.fail(c, 999)
		r.admits(c, all, 0)
	})
}

func TestCircuitWaiters(t *testing.T) {
	r := newRig(t)
	c := r.use("stripe")
	a, b := r.owner("a"), r.owner("b")
	both, none := []string{"a", "b"}, []string{}

	r.fail(c, 10)
	r.wait(c, a)
	r.wait(c, b)
	require.Equal(t, both, r.wakes(), "they may not know the time")
	r.admits(c, 0, 5*time.Minute)
	require.Equal(t, 2, c.info(r.now.Load()).Waiting)
	r.pass(5 * time.Minute)
	p := []breaker.Pass{r.allow(c), r.allow(c), r.allow(c)}
	r.admits(c, 0, -1)
	require.Equal(t, none, r.wakes(), "what opens by time they see themselves")

	r.done(c, p[0], breaker.Neutral)
	require.Equal(t, both, r.wakes())
	r.done(c, p[1], breaker.Neutral)
	require.Equal(t, none, r.wakes(), "once until they look")
	r.admits(c, 2, 0)
	require.Equal(t, none, r.wakes())
	p[0], p[1] = r.allow(c), r.allow(c)
	r.admits(c, 0, -1)
	r.done(c, p[0], breaker.Failure)
	require.Equal(t, both, r.wakes(), "there is a time now")
	r.admits(c, 0, 5*time.Minute)

	r.pass(5 * time.Minute)
	for range 3 {
		r.allow(c)
	}
	r.admits(c, 0, -1)
	r.retryAfter(c, r.now.Load()+second)
	require.Equal(t, both, r.wakes(), "it opens by time again")
	r.admits(c, 0, time.Second)

	c.Leave(b)
	c.open(r.now.Load(), r.now.Load()+2*second, breaker.HalfOpen, "")
	require.Equal(t, []string{"a"}, r.wakes(), "the time is another one")
	r.admits(c, 0, 2*time.Second)
	c.close(r.now.Load(), false)
	require.Equal(t, []string{"a"}, r.wakes())
	c.Leave(a)
	c.Leave(a)
	require.Zero(t, c.info(r.now.Load()).Waiting)
	r.fail(c, 1)
	require.Equal(t, none, r.wakes())

	c.open(r.now.Load(), math.MaxInt64, breaker.HalfOpen, "")
	r.wait(c, a)
	require.Equal(t, none, r.wakes(), "there is nothing to see")
	c.close(r.now.Load(), false)
	r.wait(c, b)
	require.Equal(t, both, r.wakes(), "it has opened before b came")
}

func TestCircuitSettingsActAtOnce(t *testing.T) {
	r := newRig(t)
	c := r.use("stripe")
	q := r.owner("a")
	set := func(change func(*Settings)) {
		s := r.reg.settings("stripe")
		change(&s)
		r.reg.Configure(standard, map[string]Settings{"stripe": s}, nil)
	}
	set(func(s *Settings) { s.Breaker.Threshold = 2 })
	r.fail(c, 2)
	r.wait(c, q)
	r.admits(c, 0, 5*time.Minute)
	r.wakes()
	set(func(s *Settings) { s.Breaker.Cooldown = time.Second })
	require.Equal(t, []string{"a"}, r.wakes())
	r.admits(c, 0, time.Second)
	r.pass(time.Second)
	for range 3 {
		r.allow(c)
	}
	r.admits(c, 0, -1)
	set(func(s *Settings) { s.Breaker.HalfOpenMaxCalls = 5 })
	require.Equal(t, []string{"a"}, r.wakes())
	r.admits(c, 2, 0)
	r.reg.Configure(standard, nil, nil)
	require.Equal(t, []string{}, r.wakes(), "it has not looked in vain since")
	require.Equal(t, 3, c.info(0).HalfOpenMaxCalls)
	r.admits(c, 0, -1)
	r.reg.Configure(standard, map[string]Settings{"other": standard}, nil)
	require.Equal(t, []string{}, r.wakes(), "nothing has changed for it")
}
