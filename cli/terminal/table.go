package terminal

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/mattn/go-runewidth"
)

// PrintJSON writes one indented JSON value and a newline.
func PrintJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// PrintJSONLine writes one JSON value on one line, for streams.
func PrintJSONLine(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// Table collects rows and prints them in aligned columns.
type Table struct{ rows [][]string }

// NewTable returns a table with the given header, or without one.
func NewTable(header ...string) *Table { return &Table{rows: [][]string{header}} }

// Row adds a row and cleans the text of its cells.
func (t *Table) Row(cells ...any) {
	texts := make([]string, len(cells))
	for i, cell := range cells {
		texts[i] = Clean(fmt.Sprint(cell))
	}
	t.rows = append(t.rows, texts)
}

// Fact adds a row with a name and a text, unless the text is empty.
func (t *Table) Fact(name, text string) {
	if text != "" {
		t.Row(name, text)
	}
}

// String returns the table: columns as wide as their widest cell, two apart.
func (t *Table) String() string {
	var widths []int
	for _, row := range t.rows {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], Width(cell))
		}
	}
	var text strings.Builder
	for _, row := range t.rows {
		var line strings.Builder
		for i, cell := range row {
			line.WriteString(Pad(cell, widths[i]+2))
		}
		text.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	return text.String()
}

// Or returns the table, or a line of text if it has no rows below its header.
func (t *Table) Or(none string) string {
	if len(t.rows) > 1 {
		return t.String()
	}
	return Line(none)
}

// Line returns text with a newline, or empty text unchanged.
func Line(text string) string {
	if text == "" {
		return ""
	}
	return text + "\n"
}

// Sections joins the parts of an output with empty lines and skips empty parts.
func Sections(parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(part string) bool { return part == "" }), "\n")
}

// columns measures text. Characters whose width depends on the locale count as narrow, which is
// the default of terminals.
var columns = &runewidth.Condition{StrictEmojiNeutral: true}

// Width returns the number of columns of plain text.
func Width(text string) int { return columns.StringWidth(text) }

// Fit cuts plain text to width columns and marks a cut with a tilde.
func Fit(text string, width int) string {
	if width <= 0 {
		return ""
	}
	return columns.Truncate(text, width, "~")
}

// Pad fills plain text with spaces up to width columns.
func Pad(text string, width int) string { return columns.FillRight(text, width) }
