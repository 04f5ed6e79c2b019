package terminal

import (
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/term"
)

// IsTerminal reports whether somebody looks at w.
func IsTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// Style colours text, or leaves it as it is. The zero value leaves it.
type Style struct{ On bool }

// StyleFor says whether output on w may have colours: only on a terminal that
// knows them, and not against the user's will (https://no-color.org).
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

// Escape sequences for a view that is drawn again and again.
const (
	EnterView = "\x1b[?1049h\x1b[?25l" // another screen, no cursor
	LeaveView = "\x1b[?25h\x1b[?1049l"
	homeView  = "\x1b[H"
	EraseLine = "\x1b[K"
	eraseRest = "\x1b[J"
)

// ScreenSize returns columns and lines of the terminal that w is: those of
// COLUMNS and LINES, or else what the terminal says, or else 80 by 24.
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

// Draw writes lines over what was drawn before, as many as fit.
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

// IsTerminalInput reports whether in is a terminal, or anything else that is a
// character device and so has no data for us.
func IsTerminalInput(in io.Reader) bool {
	file, ok := in.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err != nil || info.Mode()&os.ModeCharDevice != 0
}
