package store

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSpaceOf(t *testing.T) {
	space, known := SpaceOf(t.TempDir())
	if known {
		require.Positive(t, space.Free)
		require.GreaterOrEqual(t, space.Total, space.Free)
	}
	_, known = SpaceOf(filepath.Join(t.TempDir(), "none"))
	require.False(t, known)
}
