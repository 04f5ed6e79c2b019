package shard

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/hooks"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
)

// TestPrioritiesHaveOneBound in packages that do not import each other.
func TestPrioritiesHaveOneBound(t *testing.T) {
	require.EqualValues(t, wire.MaxPriority, hooks.MaxPriority)
	require.EqualValues(t, wire.MaxPriority, store.MaxPriority)
}
