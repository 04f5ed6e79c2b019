package cli

import (
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/mattn/go-runewidth"
	"golang.org/x/term"
)

// isTerminal reports whether somebody looks at w.
func isTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// style colours text, or leaves it as it is. The zero value leaves it.
type style struct{ on bool }

// styleFor says whether output on w may have colours: only on a terminal that
// knows them, and not against the user's will (https://no-color.org).
func styleFor(w io.Writer) style {
	return style{isTerminal(w) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
}

func (s style) paint(code, text string) string {
	if !s.on || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

func (s style) bold(text string) string   { return s.paint("1", text) }
func (s style) dim(text string) string    { return s.paint("2", text) }
func (s style) red(text string) string    { return s.paint("31", text) }
func (s style) green(text string) string  { return s.paint("32", text) }
func (s style) yellow(text string) string { return s.paint("33", text) }

// Escape sequences for a view that is drawn again and again.
const (
	enterView = "\x1b[?1049h\x1b[?25l" // another screen, no cursor
	leaveView = "\x1b[?25h\x1b[?1049l"
	homeView  = "\x1b[H"
	eraseLine = "\x1b[K"
	eraseRest = "\x1b[J"
)

// terminalSize returns columns and lines of the terminal that w is: those of
// COLUMNS and LINES, or else what the terminal says, or else 80 by 24.
func terminalSize(w io.Writer) (width, height int) {
	width, height = 80, 24
	if file, ok := w.(*os.File); ok {
		if columns, lines, err := term.GetSize(int(file.Fd())); err == nil && columns > 0 && lines > 0 {
			width, height = columns, lines
		}
	}
	for _, given := range []struct {
		name string
		into *int
	}{{"COLUMNS", &width}, {"LINES", &height}} {
		if n, err := strconv.Atoi(os.Getenv(given.name)); err == nil && n > 0 {
			*given.into = n
		}
	}
	return width, height
}

// draw writes lines over what was drawn before, as many as fit.
func draw(w io.Writer, lines []string, height int) error {
	var b strings.Builder
	b.WriteString(homeView)
	for i, line := range lines {
		if i == height-1 && len(lines) > height {
			break
		}
		if i > 0 {
			b.WriteString("\r\n")
		}
		b.WriteString(line)
		b.WriteString(eraseLine)
	}
	b.WriteString(eraseRest)
	_, err := io.WriteString(w, b.String())
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

// short prints a count in five columns at most: 1234, 12.3k, 4.5M.
func short(n float64) string {
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

// grouped prints a count with commas between thousands.
func grouped(n int64) string {
	text := strconv.FormatInt(n, 10)
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
