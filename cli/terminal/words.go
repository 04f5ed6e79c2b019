package terminal

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
)

// Clean makes text from elsewhere, such as fairness keys and error texts, safe for a line of a
// terminal.
func Clean(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, s)
}

// OneLine joins the lines of a message.
func OneLine(s string) string {
	return strings.Join(strings.FieldsFunc(s, func(r rune) bool { return r == '\n' || r == '\r' }), "; ")
}

// Size prints bytes with a binary unit.
func Size(n int64) string {
	const units = "KMGTPE"
	if n < 1024 {
		return fmt.Sprintf("%d B", n)
	}
	v, unit := float64(n), -1
	for v >= 1024 && unit < len(units)-1 {
		v /= 1024
		unit++
	}
	return fmt.Sprintf("%.1f %ciB", v, units[unit])
}

// OrDash returns a dash for empty text.
func OrDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// Plural prints a count of things: 1 queue, 2 queues.
func Plural(n int64, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %ss", n, one)
}

// Short prints a count in five columns at most: 1234, 12.3k, 4.5M.
func Short(n float64) string {
	switch {
	case n < 0:
		return "-"
	case n < 9.95 && n != float64(int64(n)):
		return strconv.FormatFloat(n, 'f', 1, 64)
	case n < 9999.5:
		return strconv.FormatFloat(n, 'f', 0, 64)
	}
	for _, unit := range "kMGTP" {
		n /= 1000
		if n < 99.95 {
			return strconv.FormatFloat(n, 'f', 1, 64) + string(unit)
		}
		if n < 999.5 {
			return strconv.FormatFloat(n, 'f', 0, 64) + string(unit)
		}
	}
	return "lots"
}

// Grouped prints a count with commas between thousands.
func Grouped(n int64) string {
	text := strconv.FormatInt(n, 10)
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// Number prints a weight or deficit without needless digits.
func Number(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

// Wrap breaks text at spaces into lines of at most width columns. The first line already has
// taken columns.
func Wrap(text string, taken, width int) string {
	var b strings.Builder
	column := taken
	for i, word := range strings.Fields(text) {
		switch {
		case i == 0:
		case column+1+Width(word) > width:
			b.WriteString("\n")
			column = 0
		default:
			b.WriteString(" ")
			column++
		}
		b.WriteString(word)
		column += Width(word)
	}
	return b.String()
}
