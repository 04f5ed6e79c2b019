package web

import "strings"

// diffLine is a line of two texts: of both, or only of the one before or after.
type diffLine struct {
	Sign string // "", "-" or "+"
	Text string
}

// maxDiff bounds the work of a diff: lines before times lines after.
const maxDiff = 1 << 20

// linesOf returns the lines of a text; an empty one has none.
func linesOf(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(strings.TrimSuffix(text, "\n"), "\n")
}

// diffOf returns the lines of two texts in order, with as many lines of both as possible. Of texts
// that are too long it keeps only what both begin and end with.
func diffOf(before, after string) (list []diffLine) {
	a, b := linesOf(before), linesOf(after)
	var tail []diffLine
	for len(a) > 0 && len(b) > 0 && a[0] == b[0] {
		list, a, b = append(list, diffLine{"", a[0]}), a[1:], b[1:]
	}
	for len(a) > 0 && len(b) > 0 && a[len(a)-1] == b[len(b)-1] {
		tail, a, b = append(tail, diffLine{"", a[len(a)-1]}), a[:len(a)-1], b[:len(b)-1]
	}
	common := func(int, int) int { return 0 }
	if len(a)*len(b) <= maxDiff {
		common = commonLines(a, b)
	}
	for i, j := 0, 0; i < len(a) || j < len(b); {
		switch {
		case i < len(a) && j < len(b) && a[i] == b[j] && common(i, j) > 0:
			list, i, j = append(list, diffLine{"", a[i]}), i+1, j+1
		case j == len(b) || i < len(a) && common(i+1, j) >= common(i, j+1):
			list, i = append(list, diffLine{"-", a[i]}), i+1
		default:
			list, j = append(list, diffLine{"+", b[j]}), j+1
		}
	}
	for i := len(tail) - 1; i >= 0; i-- {
		list = append(list, tail[i])
	}
	return list
}

// commonLines returns how many lines the ends of two lists, from i and j on, have in common in
// order.
func commonLines(a, b []string) func(i, j int) int {
	width := len(b) + 1
	n := make([]int32, (len(a)+1)*width)
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			if a[i] == b[j] {
				n[i*width+j] = n[(i+1)*width+j+1] + 1
			} else {
				n[i*width+j] = max(n[(i+1)*width+j], n[i*width+j+1])
			}
		}
	}
	return func(i, j int) int { return int(n[i*width+j]) }
}
