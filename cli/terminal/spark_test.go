package terminal

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSparkline(t *testing.T) {
	for _, tc := range []struct {
		values []float64
		width  int
		want   string
	}{
		{nil, 0, ""},
		{nil, 3, "   "},
		{[]float64{1}, -1, ""},
		{[]float64{0, 0}, 3, " ▁▁"},
		{[]float64{0, 0.001, 1}, 3, "▁▂█"},
		{[]float64{-1, 0, 1, 2, 3, 4, 5, 6, 7}, 9, " ▁▃▄▅▆▇██"},
		{[]float64{100, 5, 10}, 2, "▅█"},
	} {
		require.Equal(t, tc.want, Sparkline(tc.values, tc.width), tc)
		require.Equal(t, max(tc.width, 0), Width(tc.want))
	}
}
