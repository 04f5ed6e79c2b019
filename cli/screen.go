package cli

import (
	"io"
	"os"
	"strconv"
	"strings"

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

// stdinIsTerminal reports whether in is a terminal, or anything else that is a
// character device and so has no data for us.
func stdinIsTerminal(in io.Reader) bool {
	file, ok := in.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err != nil || info.Mode()&os.ModeCharDevice != 0
}
