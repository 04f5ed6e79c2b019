package ordered

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRecent(t *testing.T) {
	var r Recent[int]
	_, ok := r.Get("0")
	require.False(t, ok)
	r.Remove("0")
	const least = 10
	for i := range 100 {
		r.Put(strconv.Itoa(i), i, least)
		require.LessOrEqual(t, r.Len(), 2*least)
		for j := max(i-least+1, 0); j <= i; j++ {
			v, ok := r.Get(strconv.Itoa(j))
			require.True(t, ok, "%d of %d", j, i)
			require.Equal(t, j, v)
		}
	}
	r.Put("95", -1, least)
	r.Put("95", -2, least)
	v, _ := r.Get("95")
	require.Equal(t, -2, v)
	r.Remove("95")
	_, ok = r.Get("95")
	require.False(t, ok)
	_, ok = r.Get("5")
	require.False(t, ok, "others were put since")
}
