package throttle

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Used reports which limits have applied to any message.
func TestUsed(t *testing.T) {
	g := New(Start{}, 0)
	limit := Limits{Concurrency: 5}
	set := func(key string) {
		_, err := g.SetLimits(key, limit, 0, nil)
		require.NoError(t, err)
	}
	prefix := func(key string) {
		_, err := g.SetPrefix(key, limit, 0, nil)
		require.NoError(t, err)
	}
	use := func(key string) {
		s, err := g.Set([]string{key}, 0)
		require.NoError(t, err)
		g.Close(s, 0)
	}
	set("a")
	prefix("tenant:")
	prefix("tenant:x")
	require.False(t, g.Used("a", false))
	require.False(t, g.Used("tenant:", true))
	use("a")
	use("tenant")
	require.True(t, g.Used("a", false))
	require.False(t, g.Used("tenant:", true), "the key is shorter")
	use("tenant:acme")
	require.True(t, g.Used("tenant:", true))
	require.False(t, g.Used("tenant:x", true))
	set("tenant:xy")
	use("tenant:xy")
	require.False(t, g.Used("tenant:x", true), "the key has limits of its own")
	use("tenant:xz")
	require.True(t, g.Used("tenant:x", true))
	s, err := g.Set([]string{"vendor:1"}, 0)
	require.NoError(t, err)
	prefix("vendor:")
	require.True(t, g.Used("vendor:", true), "keys that are there already")
	g.Close(s, 0)
	_, err = g.SetPrefix("tenant:", Limits{}, 0, nil)
	require.NoError(t, err)
	prefix("tenant:")
	require.True(t, g.Used("a", false))
}
