package record

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/breaker"
)

// bucket is one record, whose writes succeed at once.
type bucket struct {
	t   *testing.T
	rec Circuit
	rev uint64
}

func (b *bucket) replica(name string) *Replica {
	return NewReplica(name, modelConfig, second, b.rev, b.rec)
}

// swap writes the pending steps of r, and reports whether there were any.
func (b *bucket) swap(r *Replica, now int64) bool {
	b.t.Helper()
	next, over, _, ok := r.Swap(now, everybody)
	if !ok {
		return false
	}
	require.Equal(b.t, b.rev, over)
	b.rec, b.rev = next, b.rev+1
	r.Learn(now, b.rev, b.rec, false)
	return true
}

// halfOpen returns a replica with a permit for a probe at 2 s.
func (b *bucket) halfOpen(name string) *Replica {
	b.t.Helper()
	r := b.replica(name)
	fail(b.t, r, second, 2)
	require.True(b.t, b.swap(r, second))
	r.Admits(2*second, false)
	require.True(b.t, b.swap(r, 2*second))
	return r
}

func fail(t *testing.T, r *Replica, now int64, n int) {
	t.Helper()
	var passes []breaker.Pass
	for range n {
		p := r.Allow(now)
		require.NotZero(t, p)
		passes = append(passes, p)
	}
	for _, p := range passes {
		r.Done(now, p, breaker.Failure)
	}
}

func admits(t *testing.T, r *Replica, now, n, at int64) {
	t.Helper()
	gotN, gotAt := r.Admits(now, true)
	require.Equal(t, []int64{n, at}, []int64{gotN, gotAt})
}

func TestSuccessesWriteNothing(t *testing.T) {
	b := &bucket{t: t}
	r := b.replica("a")
	r.Done(second, r.Allow(second), breaker.Success)
	r.Done(second, r.Allow(second), breaker.Neutral)
	require.False(t, r.Pending())
	require.False(t, b.swap(r, second))

	fail(t, r, second, 1)
	r.Done(second, r.Allow(second), breaker.Success) // it ends a row that is pending
	require.True(t, r.Pending())
	require.False(t, b.swap(r, second), "a failure and then a success are nothing")
	require.False(t, r.Pending())
}

// Pending failures block calls before the record has them.
func TestOwnFailuresHoldBackAtOnce(t *testing.T) {
	b := &bucket{t: t}
	r := b.replica("a")
	fail(t, r, second, 2)
	admits(t, r, second, 0, math.MaxInt64)
	require.Zero(t, r.Allow(second))
	require.Equal(t, 2, r.Failures(second))
	require.True(t, b.swap(r, second))
	admits(t, r, second, 0, 2*second)
	news, stirred := r.News()
	require.True(t, stirred)
	require.Len(t, news, 1)
	require.Equal(t, News{
		Change: breaker.Change{Old: breaker.Closed, New: breaker.Open, ConsecutiveFailures: 2, At: second},
		Cause:  CauseFailures, Until: 2 * second, Version: 1, ChangedAt: second, By: "a",
	}, news[0])
}

// A success of another instance ends a row that would have opened the circuit: calls go on.
func TestHeldBackForNothing(t *testing.T) {
	b := &bucket{t: t}
	a, c := b.replica("a"), b.replica("c")
	fail(t, c, second, 1)
	require.True(t, b.swap(c, second))
	a.Learn(second, b.rev, b.rec, false)
	fail(t, a, second, 1)
	admits(t, a, second, 0, math.MaxInt64)
	c.Done(second, c.Allow(second), breaker.Success)
	require.True(t, b.swap(c, second))
	a.Learn(second, b.rev, b.rec, false)
	admits(t, a, second, math.MaxInt64, 0)
	require.True(t, b.swap(a, second))
	require.Equal(t, 1, b.rec.Failures)
}

func TestPermitIsAskedForAndUsed(t *testing.T) {
	b := &bucket{t: t}
	r := b.replica("a")
	fail(t, r, second, 2)
	b.swap(r, second)
	now := 2 * second
	admits(t, r, now, 0, math.MaxInt64)
	require.False(t, r.Pending(), "it was only a look")
	require.Zero(t, r.Allow(now))
	require.True(t, r.Pending())
	require.True(t, b.swap(r, now))
	admits(t, r, now, 1, 0)
	p := r.Allow(now)
	require.NotZero(t, p)
	require.Equal(t, 1, r.Busy())
	require.True(t, r.Done(now, p, breaker.Success))
	require.False(t, r.Done(now, p, breaker.Success), "twice")
	require.True(t, b.swap(r, now))
	admits(t, r, now, math.MaxInt64, 0)
	require.False(t, r.Done(now, p, breaker.Failure), "late")
}

// An unused permit is given back; a probe of another generation takes no slot.
func TestUnusedPermitGoesBack(t *testing.T) {
	b := &bucket{t: t}
	r, now := b.halfOpen("a"), 2*second
	_, _, again, ok := r.Swap(now, everybody)
	require.False(t, ok)
	require.Equal(t, UnusedFor, again)
	require.True(t, b.swap(r, now+int64(UnusedFor)))
	require.Empty(t, b.rec.Permits)

	// A permit is used, and its time ends.
	now += second
	r.Allow(now)
	b.swap(r, now)
	old := r.Allow(now)
	require.NotZero(t, old)
	other := b.replica("b")
	other.Do(now, Step{Kind: Open, At: now, Until: now + second, After: breaker.HalfOpen, Cause: CauseByHand})
	require.True(t, b.swap(other, now))
	r.Learn(now, b.rev, b.rec, false)
	require.Zero(t, r.Busy())
	now += second
	r.Allow(now)
	require.True(t, b.swap(r, now))
	admits(t, r, now, 1, 0)
	require.False(t, r.Done(now, old, breaker.Success))
}

// An instance that wants a permit asks again, since the holders may have died.
func TestAsksAgain(t *testing.T) {
	b := &bucket{t: t}
	r, other := b.replica("a"), b.replica("b")
	fail(t, r, second, 2)
	b.swap(r, second)
	other.Learn(second, b.rev, b.rec, false)
	now := 2 * second
	for range 2 {
		other.Allow(now)
		b.swap(other, now)
		require.NotZero(t, other.Allow(now))
	}
	r.Learn(now, b.rev, b.rec, false)
	require.Zero(t, r.Allow(now))
	_, _, again, ok := r.Swap(now, everybody)
	require.False(t, ok)
	require.Equal(t, askAgain, again)
	require.True(t, r.Pending())
	_, _, _, ok = r.Swap(now, func(name string) bool { return name != "b" })
	require.True(t, ok)

	// Also if the request was pending, and another instance was faster.
	b.rev++
	r.Learn(now, b.rev, b.rec, false)
	_, _, again, ok = r.Swap(now, everybody)
	require.False(t, ok)
	require.Equal(t, askAgain, again)
}

func TestAloneGoesOn(t *testing.T) {
	b := &bucket{t: t}
	r := b.replica("a")
	fail(t, r, second, 1)
	p := r.Allow(second)
	r.Away(second)
	require.True(t, r.Alone())
	require.True(t, r.Settled())
	_, _, _, ok := r.Swap(second, everybody)
	require.False(t, ok)
	// The permission and the failure from before count.
	require.True(t, r.Done(second, p, breaker.Failure))
	admits(t, r, second, 0, 2*second)
	news, _ := r.News()
	require.Len(t, news, 1)
	require.Zero(t, news[0].Version)
	// Its own probe closes the circuit.
	now := 2 * second
	probe := r.Allow(now)
	require.NotZero(t, probe)
	require.True(t, r.Done(now, probe, breaker.Success))
	admits(t, r, now, math.MaxInt64, 0)

	// Its state is newer than the record, so the fleet takes it over.
	other := b.replica("b")
	other.Do(second, Step{Kind: Open, At: second, Until: math.MaxInt64, After: breaker.HalfOpen, Cause: CauseByHand})
	b.swap(other, second)
	r.Back(now, b.rev, b.rec)
	admits(t, r, now, math.MaxInt64, 0)
	require.True(t, b.swap(r, now))
	require.False(t, r.Alone())
	require.Equal(t, breaker.Closed, b.rec.State)
}

func TestTheRecordIsNewer(t *testing.T) {
	b := &bucket{t: t}
	r := b.replica("a")
	r.Away(second)
	fail(t, r, second, 2)
	admits(t, r, second, 0, 2*second)
	other := b.replica("b")
	other.Do(5*second, Step{Kind: Open, At: 5 * second, Until: math.MaxInt64, After: breaker.HalfOpen, Cause: CauseByHand})
	b.swap(other, 5*second)
	r.News()
	r.Back(6*second, b.rev, b.rec)
	require.False(t, r.Alone())
	require.False(t, r.Pending(), "what was counted alone is dropped")
	admits(t, r, 6*second, 0, math.MaxInt64)
	news, _ := r.News()
	require.Len(t, news, 1)
	require.Equal(t, CauseByHand, news[0].Cause)
	require.EqualValues(t, 1, news[0].Version)
}

// Failures of an outage that changed no state are added once.
func TestFailuresOfAnOutageAreAdded(t *testing.T) {
	b := &bucket{t: t}
	cfg := breaker.Config{Threshold: 10}
	r := NewReplica("a", cfg, second, 0, Circuit{})
	fail(t, r, second, 1)
	next, _, _, ok := r.Swap(second, everybody)
	require.True(t, ok)
	r.Away(second)
	b.rec, b.rev = next, 1 // written, but the reply is lost
	fail(t, r, second, 2)
	require.Equal(t, 3, r.Failures(second))
	r.Back(second, b.rev, b.rec)
	require.Equal(t, 3, r.Failures(second))
	require.True(t, b.swap(r, second))
	require.Equal(t, 3, b.rec.Failures)
	require.True(t, r.Settled())
}

// Opening and closing by hand works during an outage.
func TestByHandAlone(t *testing.T) {
	r := (&bucket{t: t}).replica("a")
	r.Away(second)
	r.Do(second, Step{Kind: Open, At: second, Until: 9 * second, After: breaker.Closed, Cause: CauseByHand})
	admits(t, r, second, 0, 9*second)
	require.Equal(t, CauseByHand, r.Cause())
	r.Do(2*second, Step{Kind: Release, At: 2 * second})
	admits(t, r, 2*second, math.MaxInt64, 0)
	news, _ := r.News()
	require.Len(t, news, 2)
}

// An opening whose time has ended is closed without a write, and announced once.
func TestLapse(t *testing.T) {
	b := &bucket{t: t}
	a, c := b.replica("a"), b.replica("c")
	a.Do(second, Step{Kind: RetryAfter, Until: 5 * second})
	b.swap(a, second)
	c.Learn(second, b.rev, b.rec, false)
	a.News()
	c.News()
	fail(t, a, 5*second, 1) // of the next generation
	news, _ := a.News()
	require.Len(t, news, 1)
	require.Equal(t, []any{CauseTime, breaker.Closed, 5 * second}, []any{news[0].Cause, news[0].New, news[0].ChangedAt})
	require.True(t, b.swap(a, 5*second))
	require.Equal(t, 1, b.rec.Failures)
	news, _ = a.News()
	require.Empty(t, news)
	c.Learn(5*second-int64(time.Millisecond), b.rev, b.rec, false) // its clock is behind
	news, _ = c.News()
	require.Len(t, news, 1)
	require.Equal(t, CauseTime, news[0].Cause)
}

func TestReopenedUnseen(t *testing.T) {
	b := &bucket{t: t}
	a, c := b.replica("a"), b.replica("c")
	fail(t, a, second, 2)
	b.swap(a, second)
	c.Learn(second, b.rev, b.rec, false)
	c.News()
	now := 2 * second
	a.Allow(now)
	b.swap(a, now)
	a.Done(now, a.Allow(now), breaker.Failure)
	b.swap(a, now)
	c.Learn(now, b.rev, b.rec, false)
	news, _ := c.News()
	require.Len(t, news, 1)
	require.Equal(t, []breaker.State{breaker.HalfOpen, breaker.Open}, []breaker.State{news[0].Old, news[0].New})
}

func TestLimitsChange(t *testing.T) {
	b := &bucket{t: t}
	r := b.replica("a")
	fail(t, r, second, 1)
	r.SetConfig(breaker.Config{Threshold: 1}, 0)
	admits(t, r, second, 0, math.MaxInt64)
	require.True(t, b.swap(r, second))
	require.Equal(t, breaker.Open, b.rec.State)
}

// A new bucket, whose revisions start again, gets the open circuit from the first instance that
// knows it; the next one takes it from there.
func TestAnotherBucket(t *testing.T) {
	b := &bucket{t: t}
	a, c := b.replica("a"), b.replica("c")
	a.Do(second, Step{Kind: Open, At: second, Until: math.MaxInt64, After: breaker.HalfOpen, Cause: CauseByHand, Client: "alice"})
	b.swap(a, second)
	c.Learn(second, b.rev, b.rec, false)
	a.Learn(second, 0, Circuit{}, false)
	require.Equal(t, breaker.Open, a.view.State(), "old news")
	b.rec, b.rev = Circuit{}, 0
	for _, r := range []*Replica{a, c} {
		r.News()
		r.Away(2 * second)
		r.Back(2*second, b.rev, b.rec)
		b.swap(r, 2*second)
		require.False(t, r.Alone())
		admits(t, r, 2*second, 0, math.MaxInt64)
		_, _, client := r.Opening()
		require.Equal(t, "alice", client)
	}
	require.EqualValues(t, 1, b.rev)
	// A closed circuit needs no record, and an existing record wins.
	b.rec, b.rev = Circuit{}, 0
	b.replica("d").Back(2*second, 0, b.rec)
	d := b.replica("d")
	d.Do(3*second, Step{Kind: Reset, At: 3 * second})
	fail(t, d, 3*second, 1)
	b.swap(d, 3*second)
	a.Away(4 * second)
	a.Back(4*second, b.rev, b.rec)
	admits(t, a, 4*second, math.MaxInt64, 0)
}

// Callers that waited for probes of an isolated instance check again when it is back: only then
// does it ask for permits.
func TestBackWithCallsThatWait(t *testing.T) {
	b := &bucket{t: t}
	r, now := b.halfOpen("a"), 2*second
	require.NotZero(t, r.Allow(now))
	r.Away(now)
	require.NotZero(t, r.Allow(now))
	require.Zero(t, r.Allow(now), "a call waits")
	r.News()
	r.Back(now, b.rev, b.rec)
	_, stirred := r.News()
	require.True(t, stirred)
	require.Zero(t, r.Allow(now))
	require.True(t, r.Pending(), "a permit is wanted")
}

// Failures on their way block calls. If a record of another instance makes them void, although the
// circuit was and is closed, waiters check again.
func TestFailuresThatCountNoMoreWakeWaiters(t *testing.T) {
	b := &bucket{t: t}
	a, other := b.replica("a"), b.replica("b")
	fail(t, a, second, 2)
	admits(t, a, second, 0, math.MaxInt64)
	a.News()
	other.Do(second, Step{Kind: Open, At: second, Until: 3 * second, After: breaker.HalfOpen, Cause: CauseByHand})
	require.True(t, b.swap(other, second))
	other.Do(second, Step{Kind: Reset, At: second})
	require.True(t, b.swap(other, second))
	a.Learn(second, b.rev, b.rec, false)
	_, stirred := a.News()
	require.True(t, stirred)
	admits(t, a, second, math.MaxInt64, 0)
}

// A state from before a restart is not announced again, another state is.
func TestToldBeforeARestart(t *testing.T) {
	b := &bucket{t: t}
	r := b.replica("a")
	fail(t, r, second, 2)
	b.swap(r, second)
	kept := r.Machine().Save()
	restarted := func() *Replica {
		r := NewReplica("a'", modelConfig, second, 0, Circuit{})
		r.Away(second)
		r.Restore(second, kept, CauseFailures, "")
		r.News()
		return r
	}
	again := restarted()
	again.Back(second, b.rev, b.rec)
	news, _ := again.News()
	require.Empty(t, news)
	again = restarted()
	r.Do(second, Step{Kind: Reset, At: second})
	b.swap(r, second)
	again.Back(second, b.rev, b.rec)
	news, _ = again.News()
	require.Len(t, news, 1)
	require.Equal(t, []any{breaker.Open, breaker.Closed, CauseByHand, uint64(2)}, []any{news[0].Old, news[0].New, news[0].Cause, news[0].Version})
}

// An instance that comes back to a known turn announces that turn.
func TestBackToWhatHolds(t *testing.T) {
	b := &bucket{t: t}
	r := b.replica("a")
	fail(t, r, second, 2)
	b.swap(r, second)
	want, _ := r.News()
	r.Away(second)
	r.Allow(2 * second) // its own half-open state loses against the record
	r.News()
	r.Back(2*second, b.rev, b.rec)
	news, _ := r.News()
	require.Len(t, news, 1)
	require.Equal(t, breaker.Open, news[0].New)
	require.Equal(t, []any{want[0].Cause, want[0].Version, want[0].ChangedAt}, []any{news[0].Cause, news[0].Version, news[0].ChangedAt})
}

// A closing during an outage is announced with its cause.
func TestClosedAlone(t *testing.T) {
	probed := func(r *Replica, now int64) { r.Done(now, r.Allow(now), breaker.Success) }
	for name, tc := range map[string]struct {
		end func(r *Replica, now int64)
		why string
	}{
		"probes":  {end: probed, why: CauseProbes},
		"by hand": {end: func(r *Replica, now int64) { r.Do(now, Step{Kind: Reset}) }, why: CauseByHand},
		"twice": {end: func(r *Replica, now int64) {
			probed(r, now)
			r.Do(now+1, Step{Kind: Reset}) // no further turn
		}, why: CauseByHand},
	} {
		t.Run(name, func(t *testing.T) {
			b := &bucket{t: t}
			r := b.replica("a")
			fail(t, r, second, 2)
			b.swap(r, second)
			other := b.replica("c")
			r.Away(second)
			now := 10 * second
			tc.end(r, now)
			require.Equal(t, breaker.Closed, r.Machine().State())
			require.Empty(t, r.Cause())
			r.Back(now, b.rev, b.rec)
			for b.swap(r, now) {
			}
			require.Equal(t, []any{breaker.Closed, "", tc.why}, []any{b.rec.State, b.rec.Cause, b.rec.Why})
			other.Learn(now, b.rev, b.rec, false)
			news, _ := other.News()
			require.NotEmpty(t, news)
			require.Equal(t, []any{breaker.Closed, tc.why}, []any{news[0].New, news[0].Cause})
		})
	}
}

// An opening that ended by time before another write is announced as such.
func TestLapseUnseen(t *testing.T) {
	b := &bucket{t: t}
	a, c := b.replica("a"), b.replica("c")
	a.Do(second, Step{Kind: RetryAfter, Until: 5 * second})
	b.swap(a, second)
	kept := a.Machine().Save()
	fail(t, a, 5*second, 1)
	b.swap(a, 5*second)
	c.Away(second)
	c.Restore(second, kept, CauseRetryAfter, "")
	c.News()
	c.Back(5*second-int64(time.Millisecond), b.rev, b.rec) // its clock is behind
	news, _ := c.News()
	require.Len(t, news, 1)
	require.Equal(t, []any{breaker.Closed, CauseTime, 5 * second}, []any{news[0].New, news[0].Cause, news[0].ChangedAt})
}

// Probes during an outage use none of the fleet's permits when the fleet has moved on to
// another generation.
func TestBackToAnotherGeneration(t *testing.T) {
	b := &bucket{t: t}
	other := b.replica("b")
	r, now := b.halfOpen("a"), 2*second
	r.Away(now)
	probe := r.Allow(now)
	require.NotZero(t, probe)
	other.Learn(now, b.rev, b.rec, false)
	other.Do(now, Step{Kind: Open, At: now, Until: now + 1, Cause: CauseByHand})
	b.swap(other, now)
	now += second
	other.Admits(now, false)
	b.swap(other, now) // half-open again
	r.Back(now, b.rev, b.rec)
	require.False(t, r.Done(now, probe, breaker.Success))
	r.Admits(now, false)
	b.swap(r, now)
	require.Zero(t, r.Busy())
	require.NotZero(t, r.Allow(now), "it has a permit that nobody uses")
}

// Permits from before an outage are given back, not used: others may be taking them over.
func TestPermitsOfBeforeAnOutage(t *testing.T) {
	b := &bucket{t: t}
	r, now := b.halfOpen("a"), 2*second
	admits(t, r, now, 1, 0)
	r.Away(now)
	r.Back(now+second, b.rev, b.rec)
	admits(t, r, now+second, 0, math.MaxInt64)
	require.True(t, b.swap(r, now+second))
	require.Empty(t, b.rec.Permits)
	r.Admits(now+second, false)
	require.True(t, b.swap(r, now+second))
	require.NotZero(t, r.Allow(now+second))
}
