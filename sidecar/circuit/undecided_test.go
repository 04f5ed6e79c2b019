package circuit

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/breaker"
	"github.com/filaq/fila/sidecar/fleet/fleettest"
)

// TestUndecidedFailuresHoldBack counts failures that are judged towards the threshold, of a
// circuit that is shared and of one that is not; a verdict lets others go or opens it, and
// what belongs to an earlier state of the circuit holds back nothing.
func TestUndecidedFailuresHoldBack(t *testing.T) {
	for _, key := range []string{"shared", "own:x"} {
		t.Run(key, func(t *testing.T) {
			crew(t, 2, func(t *testing.T, _ *fleettest.Bucket, all []*fila) {
				f := all[0]
				c := f.use(key)
				allow := func() breaker.Pass {
					t.Helper()
					for range 3 { // a probe of a shared circuit is asked for first
						pass, pending := c.Allow(f.clock())
						if pending {
							c.Announce()
						}
						if after(0); pass != 0 {
							return pass
						}
					}
					require.Fail(t, "refused")
					return 0
				}
				decide := func(pass breaker.Pass, o breaker.Outcome) {
					if c.Decided(pass, f.clock(), o) {
						c.Announce()
					}
					after(0)
				}
				shut := func() {
					t.Helper()
					n, at := c.Peek(f.clock())
					require.Equal(t, []int64{0, math.MaxInt64}, []int64{n, at}, "until it is told")
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
					c.Undecided(pass, f.clock())
				}
				late := allow()
				c.Undecided(passes[2], f.clock())
				shut()
				decide(passes[0], breaker.Neutral)
				decide(allow(), breaker.Success) // which Undecided never had
				decide(passes[1], breaker.Failure)
				decide(passes[2], breaker.Failure)
				require.Equal(t, "closed", f.info(key).State, "a success came between")
				for range 3 {
					f.call(c, breaker.Failure)
					after(0)
				}
				require.Equal(t, "open", f.info(key).State)
				c.Undecided(late, f.clock()) // of the state before
				after(60e9)
				probe := allow()
				c.Undecided(probe, f.clock())
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
