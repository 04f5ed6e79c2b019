package terminal

import (
	"slices"
	"strings"
)

// bars are the levels of a sparkline; the lowest means 0.
var bars = []rune("▁▂▃▄▅▆▇█")

// Sparkline draws the last width values as bars, one column each, the newest at the right. The
// highest bar is the largest value and the lowest is 0. Negative values are unknown and stay
// empty.
func Sparkline(values []float64, width int) string {
	values = values[max(len(values)-max(width, 0), 0):]
	top := 0.0
	if len(values) > 0 {
		top = slices.Max(values)
	}
	var b strings.Builder
	b.WriteString(strings.Repeat(" ", max(width-len(values), 0)))
	for _, v := range values {
		switch {
		case v < 0:
			b.WriteByte(' ')
		case v == 0:
			b.WriteRune(bars[0])
		default:
			b.WriteRune(bars[1+min(int(v/top*float64(len(bars)-1)), len(bars)-2)])
		}
	}
	return b.String()
}
