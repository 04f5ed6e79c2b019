package sandbox

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/mattn/go-runewidth"

	"github.com/filaq/fila/hooks/sandbox/source"
)

// LoadError is the reason why a script is refused. Its text names the script, the
// place and the reason, and quotes the line.
type LoadError struct {
	Name    string
	Line    int // from 1; 0 if the error has no place
	Column  int // in bytes, from 1; 0 if unknown
	Message string
	Source  string // the line as written
}

// Error returns "name:line:column: message" and the line with a mark under the
// column.
func (e *LoadError) Error() string {
	var b strings.Builder
	writePlace(&b, e.Name, e.Line, e.Column)
	b.WriteString(e.Message)
	quoteLine(&b, e.Source, e.Column)
	return b.String()
}

// Brief returns the error as one line: the place, the message and the quoted line.
func (e *LoadError) Brief() string {
	var b strings.Builder
	writePlace(&b, e.Name, e.Line, e.Column)
	b.WriteString(e.Message)
	if source := strings.TrimSpace(printable(e.Source)); source != "" {
		b.WriteString(", in: " + source)
	}
	return b.String()
}

// writePlace writes as much of "name:line:column: " as is known.
func writePlace(b *strings.Builder, name string, line, column int) {
	b.WriteString(name)
	if line > 0 {
		fmt.Fprintf(b, ":%d", line)
	}
	if column > 0 {
		fmt.Fprintf(b, ":%d", column)
	}
	b.WriteString(": ")
}

// Warning is a hint about a script that works.
type Warning = source.Warning

// Cause classifies the failures of a run.
type Cause string

// The causes of a failure.
const (
	CauseError   Cause = "error"   // the script raised an error
	CauseTimeout Cause = "timeout" // the time or step limit
	CauseMemory  Cause = "memory"  // the allocation or stack limit
	CauseType    Cause = "type"    // the result is no table, or the caller refused it
	CauseMissing Cause = "missing" // the script does not define the function
)

// RunError is the reason why a run failed.
type RunError struct {
	Cause   Cause
	Name    string
	Line    int // from 1; 0 if unknown
	Column  int // in bytes, from 1; 0 if unknown
	Message string
	Source  string

	UsedUp bool // the run used up its running time or its steps
}

// Error returns the cause, the place, the message and the line.
func (e *RunError) Error() string {
	var b strings.Builder
	b.WriteString(string(e.Cause))
	b.WriteString(": ")
	if e.Line > 0 {
		writePlace(&b, e.Name, e.Line, e.Column)
	}
	b.WriteString(e.Message)
	quoteLine(&b, e.Source, e.Column)
	return b.String()
}

// maxQuote bounds how much of a line an error quotes, in bytes.
const maxQuote = 120

// cells measures the width of text in a terminal. Characters whose width depends
// on the locale count as narrow.
var cells = &runewidth.Condition{StrictEmojiNeutral: true}

// quoteLine adds a line of a script below an error, and a mark under the byte at
// column unless that is 0.
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
	b.WriteString("\n    " + before + printable(line[from:to]) + after)
	if column > 0 {
		b.WriteString("\n    " + strings.Repeat(" ", cells.StringWidth(before+printable(line[from:column-1]))) + "^")
	}
}

// printable returns text with four spaces for a tab and a question mark for every
// character that cannot be printed.
func printable(text string) string {
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
