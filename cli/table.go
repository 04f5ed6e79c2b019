package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/mattn/go-runewidth"
)

// printJSON writes one indented JSON value and a newline.
func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// printJSONLine writes one JSON value on one line, for streams.
func printJSONLine(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// table collects rows and prints them in aligned columns.
type table struct{ rows [][]string }

func newTable(header ...string) *table { return &table{rows: [][]string{header}} }

func (t *table) row(cells ...any) {
	texts := make([]string, len(cells))
	for i, cell := range cells {
		texts[i] = clean(fmt.Sprint(cell))
	}
	t.rows = append(t.rows, texts)
}

// print writes the table: columns as wide as their widest cell, two apart.
func (t *table) print(w io.Writer) error {
	var widths []int
	for _, row := range t.rows {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], columns.StringWidth(cell))
		}
	}
	var text strings.Builder
	for _, row := range t.rows {
		var line strings.Builder
		for i, cell := range row {
			line.WriteString(pad(cell, widths[i]+2))
		}
		text.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	_, err := io.WriteString(w, text.String())
	return err
}

// columns measures text. Characters whose width depends on the locale count as
// narrow, as terminals draw them unless they are told otherwise.
var columns = &runewidth.Condition{StrictEmojiNeutral: true}

// fit cuts plain text to width columns; what was cut ends in a tilde.
func fit(text string, width int) string {
	if width <= 0 {
		return ""
	}
	return columns.Truncate(text, width, "~")
}

// pad fills plain text with spaces up to width columns.
func pad(text string, width int) string { return columns.FillRight(text, width) }
