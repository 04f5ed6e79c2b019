package throttle

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Used reports which limits have applied to any message.
func TestUsed(t *testing.T) {
	g := New(Start{}, 0)
	five := Limits{Concurrency: 5}
	limit(t, g, "a", five, 0)
	prefix(t, g, "tenant:", five, 0)
	prefix(t, g, "tenant:x", five, 0)
	require.False(t, g.Used("a", false))
	require.False(t, g.Used("tenant:", true))
	use(t, g, "a", 1, 0)
	use(t, g, "tenant", 1, 0)
	require.True(t, g.Used("a", false))
	require.False(t, g.Used("tenant:", true), "the key is shorter")
	use(t, g, "tenant:acme", 1, 0)
	require.True(t, g.Used("tenant:", true))
	require.False(t, g.Used("tenant:x", true))
	limit(t, g, "tenant:xy", five, 0)
	use(t, g, "tenant:xy", 1, 0)
	require.False(t, g.Used("tenant:x", true), "the key has limits of its own")
	use(t, g, "tenant:xz", 1, 0)
	require.True(t, g.Used("tenant:x", true))
	set(t, g, "vendor:1")
	prefix(t, g, "vendor:", five, 0)
	require.True(t, g.Used("vendor:", true), "keys that are there already")
	prefix(t, g, "tenant:", Limits{}, 0)
	prefix(t, g, "tenant:", five, 0)
	require.True(t, g.Used("a", false))
}
