package record

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/throttle"
)

// TestSlowRateFills: a bucket that is written far more often than it gains a thousandth fills
// at its rate, by any clocks, and never faster.
func TestSlowRateFills(t *testing.T) {
	limits := throttle.Limits{Rate: throttle.Rate{Cost: 1, Per: int64(time.Second)}, Burst: 50 * throttle.One}
	const every = int64(200 * time.Millisecond)
	v := Level{Used: true, Tokens: 100, At: 1}
	for i := range int64(100_000) {
		v.settle(LimitEnv{Reading: Reading{Now: (i+1)*every + 1}, Since: every, Limits: limits})
	}
	require.EqualValues(t, 100+20_000, v.Tokens, "a thousandth for each second")

	v = Level{Used: true, Tokens: 100, At: 1, Rest: math.MaxInt64}
	v.settle(LimitEnv{Reading: Reading{Now: 2}, Since: every, Limits: limits})
	require.EqualValues(t, 101, v.Tokens, "what has not brought a thousandth is less than one takes")
}
