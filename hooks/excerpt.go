package hooks

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/mattn/go-runewidth"
)

// maxQuote bounds how much of a line an error quotes, in bytes.
const maxQuote = 120

// cells measures text as terminals draw it. Characters whose width depends on the
// locale count as narrow.
var cells = &runewidth.Condition{StrictEmojiNeutral: true}

// quoteLine adds a line of a script below an error, and a mark under the byte at
// column; 0: without a mark.
func quoteLine(b *strings.Builder, line string, column int) {
	if line == "" {
		return
	}
	column = min(column, len(line)+1)
	from, to := 0, len(line)
	if to > maxQuote {
		from = max(0, min(column-maxQuote/2, to-maxQuote))
		to = from + maxQuote
	}
	for from > 0 && !utf8.RuneStart(line[from]) {
		from--
	}
	for to < len(line) && !utf8.RuneStart(line[to]) {
		to++
	}
	before, after := "", ""
	if from > 0 {
		before = "..."
	}
	if to < len(line) {
		after = "..."
	}
	b.WriteString("\n    " + before + drawn(line[from:to]) + after)
	if column > 0 {
		b.WriteString("\n    " + strings.Repeat(" ", cells.StringWidth(before+drawn(line[from:column-1]))) + "^")
	}
}

// drawn is text as it can be shown: tabs are four spaces, what has no picture is a
// question mark.
func drawn(text string) string {
	var b strings.Builder
	for i := 0; i < len(text); {
		r, n := utf8.DecodeRuneInString(text[i:])
		switch {
		case r == '\t':
			b.WriteString("    ")
		case r == utf8.RuneError && n == 1, !unicode.IsPrint(r):
			b.WriteByte('?')
		default:
			b.WriteRune(r)
		}
		i += n
	}
	return b.String()
}
