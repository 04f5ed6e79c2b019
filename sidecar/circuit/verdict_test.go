package circuit

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/breaker"
	"github.com/filaq/fila/sidecar/fleet/fleettest"
)

// TestFailuresBeingJudgedBlock: failures that are being judged count towards the threshold, for
// shared circuits, too. A verdict opens the circuit or lets other messages go. Failures of an earlier
// generation block nothing.
func TestFailuresBeingJudgedBlock(t *testing.T) {
	for _, key := range []string{"shared", "own:x"} {
		t.Run(key, func(t *testing.T) {
			crew(t, 2, func(t *testing.T, _ *fleettest.Bucket, all []*fila) {
				f := all[0]
				c := f.use(key)
				allow := func() breaker.Pass {
					t.Helper()
					for range 3 { // probes of shared circuits need a permit first
						pass, pending := c.Allow(f.clock())
						f.announceAny(c, pending)
						if after(0); pass != 0 {
							return pass
						}
					}
					require.Fail(t, "refused")
					return 0
				}
				decide := func(pass breaker.Pass, o breaker.Outcome) {
					f.announceAny(c, c.Decided(pass, f.clock(), o))
					after(0)
				}
				shut := func() {
					t.Helper()
					n, at := c.Peek(f.clock())
					require.Equal(t, []int64{0, math.MaxInt64}, []int64{n, at}, "until the outcome is known")
					pass, _ := c.Allow(f.clock())
					require.Zero(t, pass)
				}
				for range 2 { // the threshold is 5
					f.call(c, breaker.Failure)
				}
				var passes []breaker.Pass
				for range 3 {
					passes = append(passes, allow())
				}
				for _, pass := range passes[:2] {
					c.AwaitVerdict(pass, f.clock())
				}
				late := allow()
				c.AwaitVerdict(passes[2], f.clock())
				shut()
				decide(passes[0], breaker.Neutral)
				decide(allow(), breaker.Success) // without AwaitVerdict
				decide(passes[1], breaker.Failure)
				decide(passes[2], breaker.Failure)
				require.Equal(t, "closed", f.info(key).State, "a success came between")
				for range 3 {
					f.call(c, breaker.Failure)
					after(0)
				}
				require.Equal(t, "open", f.info(key).State)
				c.AwaitVerdict(late, f.clock()) // of the earlier generation
				after(60e9)
				probe := allow()
				c.AwaitVerdict(probe, f.clock())
				shut()
				decide(probe, breaker.Neutral)
				decide(late, breaker.Failure)
				require.Equal(t, "half-open", f.info(key).State)
				if pass := allow(); c.Done(pass, f.clock(), breaker.Success) {
					c.Announce()
				}
				after(0)
				require.Equal(t, "closed", f.info(key).State)
			})
		})
	}
}

// TestCloseByHandCountsFromZero, shared or not: earlier failures do not count, whether decided,
// awaiting or of calls that are still running.
func TestCloseByHandCountsFromZero(t *testing.T) {
	for _, key := range []string{"shared", "own:x"} {
		for _, forget := range []bool{false, true} {
			t.Run(fmt.Sprint(key, " ", forget), func(t *testing.T) {
				crew(t, 2, func(t *testing.T, _ *fleettest.Bucket, all []*fila) {
					f := all[0]
					c := f.use(key)
					closeByHand := func() {
						t.Helper()
						_, saved, ok := f.reg.Close(key, forget)
						require.True(t, ok)
						require.NoError(t, <-saved)
						after(0)
						require.Equal(t, "closed", f.info(key).State)
						require.Zero(t, f.info(key).ConsecutiveFailures)
					}
					fail := func(n int) {
						t.Helper()
						for range n {
							require.True(t, f.call(c, breaker.Failure))
							after(0)
						}
					}
					fail(5) // the threshold
					require.Equal(t, "open", f.info(key).State)
					closeByHand()
					fail(4)
					require.Equal(t, "closed", f.info(key).State)
					closeByHand() // of a closed circuit
					fail(2)

					var passes []breaker.Pass
					for range 3 {
						pass, _ := c.Allow(f.clock())
						require.NotZero(t, pass)
						c.AwaitVerdict(pass, f.clock())
						passes = append(passes, pass)
					}
					o := f.owner("waits")
					if n, _ := c.Admits(f.clock()); c.Wait(o, f.clock()) {
						require.Zero(t, n)
						c.Announce()
					}
					require.Empty(t, f.wakes())
					closeByHand()
					require.Equal(t, []string{"waits"}, f.wakes())
					for _, pass := range passes {
						f.announceAny(c, c.Decided(pass, f.clock(), breaker.Failure))
						after(0)
					}
					require.Zero(t, f.info(key).ConsecutiveFailures)
					fail(4)
					require.Equal(t, "closed", f.info(key).State)
					fail(1)
					require.Equal(t, "open", f.info(key).State)
				})
			})
		}
	}
}

// TestCloseKeepsTheWindow: only a reset forgets the failures that MaxFailures counts.
func TestCloseKeepsTheWindow(t *testing.T) {
	for forget, state := range map[bool]string{false: "open", true: "closed"} {
		r := newRig(t)
		r.reg.Configure(Settings{Breaker: breaker.Config{Threshold: 10}, MaxFailures: 3, FailureWindow: time.Hour}, nil, nil)
		c := r.use("x")
		r.fail(c, 3)
		_, _, ok := r.reg.Close("x", forget)
		require.True(t, ok)
		r.fail(c, 1)
		i, _ := r.reg.Info("x")
		require.Equal(t, state, i.State)
	}
}
