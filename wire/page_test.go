package wire

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPage(t *testing.T) {
	items := []int{1, 2, 3}
	require.Equal(t, []int{2, 3}, Page(items, 1, 2))
	require.Equal(t, []int{3}, Page(items, 2, 100))
	require.Empty(t, Page(items, 4, 1))
	require.Empty(t, Page(items, 0, 0))
	require.Equal(t, []int{2, 3}, Page(items, 1, math.MaxInt))
}
