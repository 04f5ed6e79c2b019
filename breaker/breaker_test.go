package breaker

import (
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const sec = int64(time.Second)

func fail(t *testing.T, b *Breaker, now int64) (Change, bool) {
	t.Helper()
	tk, ok := b.Allow(now)
	require.True(t, ok)
	return b.Done(now, tk, Failure)
}

func TestOpensAtTheThreshold(t *testing.T) {
	b := New(Config{})
	for range 2 {
		_, changed := fail(t, b, sec)
		require.False(t, changed)
	}
	tk, _ := b.Allow(sec)
	b.Done(sec, tk, Success) // ends the row
	for range 2 {
		_, changed := fail(t, b, sec)
		require.False(t, changed)
	}
	c, changed := fail(t, b, 2*sec)
	require.True(t, changed)
	require.Equal(t, Change{Closed, Open, 3, 2 * sec}, c)
	require.Equal(t, 12*sec, b.OpenUntil())
	_, ok := b.Allow(12*sec - 1)
	require.False(t, ok)
	require.Equal(t, Open, b.State(12*sec-1))
	require.Equal(t, HalfOpen, b.State(12*sec))
}

func TestHalfOpen(t *testing.T) {
	for name, tc := range map[string]struct {
		outcome Outcome
		want    State
		row     int
	}{
		"success closes":        {Success, Closed, 0},
		"failure opens again":   {Failure, Open, 4},
		"neutral lets the next": {Neutral, HalfOpen, 3},
	} {
		t.Run(name, func(t *testing.T) {
			b := New(Config{})
			for range 3 {
				fail(t, b, 0)
			}
			probe, ok := b.Allow(10 * sec)
			require.True(t, ok)
			c, turned := probe.Change()
			require.True(t, turned)
			require.Equal(t, Change{Open, HalfOpen, 3, 10 * sec}, c)
			_, ok = b.Allow(10 * sec)
			require.False(t, ok, "one probe at a time")
			b.Done(11*sec, probe, tc.outcome)
			require.Equal(t, tc.want, b.State(11*sec))
			require.Equal(t, tc.row, b.Info(11*sec).ConsecutiveFailures)
			if tc.outcome == Failure {
				require.Equal(t, 21*sec, b.OpenUntil())
			} else {
				_, ok = b.Allow(11 * sec)
				require.True(t, ok)
			}
		})
	}
}

func TestLateResultsDoNotCount(t *testing.T) {
	b := New(Config{Threshold: 1})
	slow, _ := b.Allow(0) // begins before the outage
	fail(t, b, 0)
	oldProbe, ok := b.Allow(10 * sec)
	require.True(t, ok)
	b.Open(11*sec, 12*sec) // ends that half-open phase
	newProbe, ok := b.Allow(12 * sec)
	require.True(t, ok)

	_, changed := b.Done(12*sec, oldProbe, Success)
	require.False(t, changed, "a probe of an earlier half-open phase")
	require.Equal(t, 1, b.Info(12*sec).Probes)
	c, changed := b.Done(12*sec, newProbe, Success)
	require.True(t, changed)
	require.Equal(t, Closed, c.New)
	_, changed = b.Done(13*sec, slow, Failure)
	require.False(t, changed, "a call from before the outage")
	require.Equal(t, Closed, b.State(13*sec))
	_, changed = b.Done(13*sec, Ticket{}, Failure)
	require.False(t, changed)
	require.Zero(t, b.Info(13*sec).ConsecutiveFailures)
}

func TestATicketGivenBackTwice(t *testing.T) {
	b := New(Config{Threshold: 1, HalfOpenMaxCalls: 2, HalfOpenSuccesses: 5})
	fail(t, b, 0)
	p, _ := b.Allow(10 * sec)
	b.Done(10*sec, p, Neutral)
	b.Done(10*sec, p, Neutral)
	for range 2 {
		_, ok := b.Allow(10 * sec)
		require.True(t, ok)
	}
	_, ok := b.Allow(10 * sec)
	require.False(t, ok, "at most two probes")
}

func TestTheClockJumpsBack(t *testing.T) {
	b := New(Config{Threshold: 1})
	fail(t, b, 1000*sec)
	_, ok := b.Allow(5 * sec) // 995 s back
	require.False(t, ok)
	require.Equal(t, 15*sec, b.OpenUntil())
	_, ok = b.Allow(15 * sec)
	require.True(t, ok, "a jump costs one cooldown, not 995 s")

	b = New(Config{Threshold: 1})
	fail(t, b, math.MinInt64)
	_, ok = b.Allow(math.MaxInt64)
	require.True(t, ok)
	b = New(Config{Threshold: 1})
	fail(t, b, math.MaxInt64)
	require.EqualValues(t, math.MaxInt64, b.OpenUntil())
}

func TestByHand(t *testing.T) {
	b := New(Config{})
	c, changed := b.Open(sec, math.MaxInt64)
	require.True(t, changed)
	require.Equal(t, Open, c.New)
	_, ok := b.Allow(math.MaxInt64 - 1)
	require.False(t, ok)
	b.SetConfig(Config{Cooldown: time.Nanosecond})
	require.False(t, b.Ready(100*sec), "a cooldown does not end what was opened by hand")
	c, changed = b.Reset(2 * sec)
	require.True(t, changed)
	require.Equal(t, Change{Open, Closed, 0, 2 * sec}, c)
	_, changed = b.Reset(2 * sec)
	require.False(t, changed)
	require.True(t, b.Ready(2*sec))
}

func TestSetConfig(t *testing.T) {
	b := New(Config{Threshold: 5})
	for range 3 {
		fail(t, b, 0)
	}
	b.SetConfig(Config{Threshold: 2, Cooldown: time.Second})
	require.Equal(t, Closed, b.State(0), "it takes effect with the next failure")
	_, changed := fail(t, b, 0)
	require.True(t, changed)
	require.Equal(t, sec, b.OpenUntil())
	b.SetConfig(Config{Cooldown: 3 * time.Second})
	require.Equal(t, 3*sec, b.OpenUntil())
}

func TestStateNames(t *testing.T) {
	require.Equal(t, []string{"closed", "open", "half-open", "unknown"},
		[]string{Closed.String(), Open.String(), HalfOpen.String(), State(9).String()})
}

// TestConcurrentProbes lets many goroutines ask at once: never more probes than
// allowed.
func TestConcurrentProbes(t *testing.T) {
	b := New(Config{Threshold: 1, HalfOpenMaxCalls: 3, HalfOpenSuccesses: 1 << 30})
	fail(t, b, 0)
	var underWay, most atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 1000 {
				tk, ok := b.Allow(20 * sec)
				if !ok {
					continue
				}
				n := underWay.Add(1)
				for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
				}
				underWay.Add(-1)
				b.Done(20*sec, tk, Success)
			}
		})
	}
	wg.Wait()
	require.LessOrEqual(t, most.Load(), int64(3))
	require.Zero(t, b.Info(20*sec).Probes)
}

func BenchmarkAllowDone(b *testing.B) {
	br := New(Config{})
	b.ReportAllocs()
	for b.Loop() {
		t, _ := br.Allow(1)
		br.Done(1, t, Success)
	}
}
