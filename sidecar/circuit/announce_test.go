package circuit

import (
	"bytes"
	"errors"
	"log/slog"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/breaker"
	"github.com/filaq/fila/sidecar/fleet/fleettest"
	"github.com/filaq/fila/sidecar/queue/gates"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
)

func TestNothingLeavesACircuitBeforeItIsAnnounced(t *testing.T) {
	r := newRig(t)
	limits := standard
	limits.Breaker.Threshold = 1
	r.reg.Configure(limits, nil, nil)
	c, now := r.use("stripe"), r.now.Load()
	quiet := func(pending bool) {
		t.Helper()
		require.True(t, pending)
		require.Empty(t, r.events)
		require.Empty(t, r.woken)
		require.Empty(t, r.disk.mu.waiting)
	}
	pass, pending := c.Allow(now)
	require.False(t, pending)
	quiet(c.Done(pass, now, breaker.Failure))
	quiet(c.Wait(r.owner("a"), now))
	quiet(c.RetryAfter(now, now+3600*second))
	c.Admits(now)
	now = r.now.Add(3600 * second)
	pass, pending = c.Allow(now)
	quiet(pending)
	quiet(c.Done(pass, now, breaker.Success))

	c.Announce()
	require.Equal(t, "closed -> open: failures, open -> half-open: time, half-open -> closed: success", r.news())
	require.Equal(t, []string{"a"}, r.wakes())
	require.Empty(t, r.disk.mu.waiting, "it was never written that it is open")
	c.Announce()
	require.Empty(t, r.news())
	require.Equal(t, []string{}, r.wakes())
	r.wait(c, r.owner("a")) // closed: woken at once
	r.retryAfter(c, now+second)
	require.Len(t, r.disk.mu.waiting, 1)
	require.Equal(t, "closed -> open: retry_after", r.news())
}

// The log line of an opening has the number of failures, the threshold and the duration.
func TestTheLineOfAnOpening(t *testing.T) {
	r := newRig(t)
	var log bytes.Buffer
	r.reg.opt.Log = slog.New(slog.NewTextHandler(&log, nil))
	limits := standard
	limits.Breaker.Threshold, limits.Breaker.Cooldown = 2, 90*time.Second
	r.reg.Configure(limits, nil, nil)
	c, now := r.use("stripe"), r.now.Load()
	for range 2 {
		pass, _ := c.Allow(now)
		c.Done(pass, now, breaker.Failure)
	}
	c.Announce()
	require.Contains(t, log.String(), `level=WARN msg="circuit open" circuit=stripe was=closed cause=failures failures=2 threshold=2 timeout=1m30s`)
	c.close(now, true)
	require.Contains(t, log.String(), `level=INFO msg="circuit closed" circuit=stripe was=open cause="by hand" failures=0`)
	c.open(now, math.MaxInt64, breaker.HalfOpen, "")
	require.Contains(t, log.String(), `cause="by hand" failures=0 threshold=2 timeout="until closed" until=closed`)
	c.close(now, true)
	log.Reset()
	r.retryAfter(c, now+90*second)
	require.Contains(t, log.String(), `level=WARN msg="circuit open" circuit=stripe was=closed cause=retry_after failures=0 threshold=2 timeout=1m30s until=`+wire.Timestamp(now+90*second))
	r.retryAfter(c, now+91*second)
	require.Equal(t, 1, strings.Count(log.String(), "\n"), "it is open already")
}

// TestTheLineOfASharedOpening: the fila that caused the opening says why in its log, and the others
// say which fila it was.
func TestTheLineOfASharedOpening(t *testing.T) {
	crew(t, 2, func(t *testing.T, _ *fleettest.Bucket, all []*fila) {
		var logs [2]bytes.Buffer
		for i, f := range all {
			f.reg.opt.Log = slog.New(slog.NewTextHandler(&logs[i], nil))
			f.use("stripe")
		}
		until := all[0].clock() + 90*second
		if all[0].use("stripe").RetryAfter(all[0].clock(), until) {
			all[0].use("stripe").Announce()
		}
		after(0)
		require.Contains(t, logs[0].String(), `level=WARN msg="circuit open" circuit=stripe was=closed cause=retry_after failures=0 threshold=5 timeout=1m30s until=`+wire.Timestamp(until)+" by=a")
		require.Contains(t, logs[1].String(), `level=WARN msg="circuit open" circuit=stripe was=closed cause=retry_after`)
		require.Contains(t, logs[1].String(), "by=a")
	})
}

func TestDropSaysWhatIsToBeAnnounced(t *testing.T) {
	r := newRig(t)
	r.disk.auto = true
	now := r.now.Load()
	old := r.use("old")
	r.retryAfter(old, now+second)
	r.reg.giveBack(old)
	r.news()

	now = r.now.Add(second)
	a, b := r.reg.Use("new", now), r.reg.Use("new", now)
	before := []gates.Circuit{r.use("other")}
	pending := r.reg.Drop(a, now, before)
	require.Equal(t, before, pending)
	pending = r.reg.Drop(b, now, pending)
	require.Equal(t, append(before, gates.Circuit(old)), pending, "its time is over, and nobody uses it")
	require.Empty(t, r.news())
	old.Announce()
	require.Equal(t, "open -> closed: time", r.news())
	require.Empty(t, r.disk.stored())
	_, ok := r.reg.Info("old")
	require.False(t, ok)
}

func TestWaitersAreToldInTheOrderInWhichTheyCame(t *testing.T) {
	r := newRig(t)
	c := r.use("stripe")
	c.open(r.now.Load(), math.MaxInt64, breaker.HalfOpen, "")
	names := []string{"d", "b", "a", "c", "e"}
	owners := map[string]*owner{}
	for _, name := range names {
		owners[name] = r.owner(name)
		r.wait(c, owners[name])
	}
	c.close(r.now.Load(), true)
	require.Equal(t, names, r.wakes())
	r.retryAfter(c, r.now.Load()+second)
	r.admits(c, 0, time.Second)
	c.Leave(owners["b"])
	r.wait(c, owners["b"])
	require.Equal(t, []string{"b"}, r.wakes(), "there is a time now")
	r.admits(c, 0, time.Second)
	c.Leave(owners["e"])
	c.close(r.now.Load(), true)
	require.Equal(t, []string{"d", "a", "c", "b"}, r.wakes())
}

// Both roles of a machine may wait, under one owner.
func TestAnOwnerMayWaitTwice(t *testing.T) {
	r := newRig(t)
	c, both := r.use("stripe"), r.owner("both")
	shut := func() {
		r.retryAfter(c, r.now.Load()+second)
		r.admits(c, 0, time.Second)
		r.wakes()
	}
	shut()
	r.wait(c, both)
	r.wait(c, both)
	require.Equal(t, 1, c.info(r.now.Load()).Waiting)
	shut()
	c.close(r.now.Load(), true)
	require.Equal(t, []string{"both"}, r.wakes())
	c.Leave(both)
	shut()
	c.close(r.now.Load(), true)
	require.Equal(t, []string{"both"}, r.wakes())
	c.Leave(both)
	shut()
	c.close(r.now.Load(), true)
	require.Equal(t, []string{}, r.wakes())
}

func TestWhoLeavesIsNotTold(t *testing.T) {
	r := newRig(t)
	c, a := r.use("stripe"), r.owner("a")
	c.open(r.now.Load(), r.now.Load()+second, breaker.HalfOpen, "")
	require.True(t, c.Wait(a, r.now.Load()))
	c.Leave(a)
	c.Announce()
	require.Equal(t, []string{}, r.wakes())
}

func TestARefusedProbeIsToldAgain(t *testing.T) {
	r := newRig(t)
	r.reg.Configure(Settings{Breaker: breaker.Config{
		Threshold: 1, Cooldown: time.Second, HalfOpenMaxCalls: 1, HalfOpenSuccesses: 1,
	}}, nil, nil)
	c := r.use("c")
	r.fail(c, 1)
	r.wait(c, r.owner("a")) // open until +1 s
	r.admits(c, 0, time.Second)
	r.pass(time.Second)
	r.admits(c, 1, 0)   // a checks
	other := r.allow(c) // another queue is faster
	r.refused(c)        // a tries
	r.wakes()
	r.done(c, other, breaker.Neutral)
	require.Equal(t, []string{"a"}, r.wakes())
	// It checks, and is too late once more.
	r.admits(c, 1, 0)
	other = r.allow(c)
	r.refused(c)
	r.done(c, other, breaker.Success)
	require.Equal(t, []string{"a"}, r.wakes())
}

func TestByHandIsOnDiskWhenItSaysSo(t *testing.T) {
	r := newRig(t)
	i, saved := r.reg.Open("stripe", r.now.Load()+60*second, "")
	require.Equal(t, "open", i.State)
	require.Equal(t, "by hand", i.Cause)
	require.Equal(t, "closed -> open: by hand", r.news())
	require.Empty(t, saved)
	r.disk.commitAll()
	require.NoError(t, <-saved)
	require.Len(t, r.disk.stored(), 1)
	r.pass(time.Minute)
	r.admits(r.use("stripe"), 3, 0)

	i, saved, ok := r.reg.Close("stripe", false)
	require.True(t, ok)
	require.Equal(t, "closed", i.State)
	r.disk.commitAll()
	require.NoError(t, <-saved)
	require.Empty(t, r.disk.stored())

	_, saved, ok = r.reg.Close("unknown", true)
	require.False(t, ok)
	require.Nil(t, saved)
	r.reg.Configure(standard, map[string]Settings{"set": {Breaker: breaker.Config{Threshold: 7}}}, nil)
	i, saved, ok = r.reg.Close("set", true)
	require.True(t, ok, "it need not be in use")
	require.Equal(t, 7, i.Threshold)
	require.Nil(t, saved)

	r.disk.mu.err = errors.New("disk on fire")
	_, saved = r.reg.Open("stripe", math.MaxInt64, "")
	r.disk.commitAll()
	require.ErrorIs(t, <-saved, r.disk.mu.err)
	r.disk.mu.err = store.ErrClosed
	_, saved = r.reg.Open("another", math.MaxInt64, "")
	r.disk.commitAll()
	require.ErrorIs(t, <-saved, store.ErrClosed)
}
