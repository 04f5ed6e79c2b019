package cli

import (
	"errors"
	"math"
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestGCPercent(t *testing.T) {
	for alive, want := range map[uint64]int{
		0: 400, 1 << 20: 400, 10 << 20: 400, 20 << 20: 200, 40 << 20: 100, 160 << 20: 25, 1 << 40: 25, math.MaxUint64: 25,
	} {
		require.Equal(t, want, gcPercentFor(alive), alive)
	}
}

// TestTuneMemory: environment variables take precedence, and the end restores the settings.
func TestTuneMemory(t *testing.T) {
	was := debug.SetGCPercent(100)
	defer debug.SetGCPercent(was)
	percent := func() int {
		p := debug.SetGCPercent(100)
		debug.SetGCPercent(p)
		return p
	}
	stop := tuneMemory(func(string) string { return "" })
	runtime.GC()
	require.Positive(t, percent())
	stop()
	require.Equal(t, 100, percent())
	tuneMemory(func(string) string { return "50" })()
	require.Equal(t, 100, percent())
}

func TestContainerMemory(t *testing.T) {
	for text, want := range map[string]int64{"1073741824\n": 1 << 30, "max\n": 0, "": 0, "-1": 0} {
		limit, ok := containerMemory(func(string) ([]byte, error) { return []byte(text), nil })
		require.Equal(t, want > 0, ok, text)
		if ok {
			require.Equal(t, want, limit)
		}
	}
	_, ok := containerMemory(func(string) ([]byte, error) { return nil, errors.New("none") })
	require.False(t, ok)
}
