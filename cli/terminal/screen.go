package terminal

import (
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/term"
)

// IsTerminal reports whether w is a terminal.
func IsTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// Style colours text. The zero value leaves text unchanged.
type Style struct{ On bool }

// StyleFor returns the style for output on w: colours only on a terminal that supports them,
// and not if the user turned them off (https://no-color.org).
func StyleFor(w io.Writer) Style {
	return Style{IsTerminal(w) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
}

func (s Style) paint(code, text string) string {
	if !s.On || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// Bold returns the text in bold.
func (s Style) Bold(text string) string { return s.paint("1", text) }

// Dim returns the text dimmed.
func (s Style) Dim(text string) string { return s.paint("2", text) }

// Red returns the text in red.
func (s Style) Red(text string) string { return s.paint("31", text) }

// Green returns the text in green.
func (s Style) Green(text string) string { return s.paint("32", text) }

// Yellow returns the text in yellow.
func (s Style) Yellow(text string) string { return s.paint("33", text) }

// Escape sequences of a screen that is redrawn.
const (
	EnterView = "\x1b[?1049h\x1b[?25l" // alternate screen, no cursor
	LeaveView = "\x1b[?25h\x1b[?1049l"
	homeView  = "\x1b[H"
	EraseLine = "\x1b[K"
	eraseRest = "\x1b[J"
)

// ScreenSize returns the columns and lines of terminal w: from COLUMNS and LINES, else from the
// terminal, else 80 by 24.
func ScreenSize(w io.Writer) (width, height int) {
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

// Draw draws as many lines as fit over the previous ones.
func Draw(w io.Writer, lines []string, height int) error {
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
		b.WriteString(EraseLine)
	}
	b.WriteString(eraseRest)
	_, err := io.WriteString(w, b.String())
	return err
}

// IsTerminalInput reports whether in is a terminal or another character device, which has no
// data for a command.
func IsTerminalInput(in io.Reader) bool {
	file, ok := in.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err != nil || info.Mode()&os.ModeCharDevice != 0
}
