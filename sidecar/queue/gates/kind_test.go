package gates

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/throttle"
)

// TestKindsOfThrottleKeys: all that blocks at a throttle key has a kind of the same name.
func TestKindsOfThrottleKeys(t *testing.T) {
	require.Equal(t, ByNothing, BlockOf(throttle.Open))
	for k := throttle.ByRate; k.String() != "unknown"; k++ {
		require.Equal(t, k, throttleKinds[BlockOf(k)])
		require.Equal(t, k.String(), BlockOf(k).String())
	}
}
