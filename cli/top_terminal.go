package cli

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"unicode/utf8"
)

// isTerminal reports whether somebody looks at w. Character devices are
// terminals here, except the null device.
func isTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return false
	}
	null, err := os.Stat(os.DevNull)
	return err != nil || !os.SameFile(info, null)
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

// terminalSize returns columns and lines: those of COLUMNS and LINES, or else
// what stty knows, or else 80 by 24.
func terminalSize() (width, height int) {
	width, height = 80, 24
	if tty, err := os.Open("/dev/tty"); err == nil {
		defer func() { _ = tty.Close() }()
		stty := exec.Command("stty", "size")
		stty.Stdin = tty
		if out, err := stty.Output(); err == nil {
			var h, w int
			if _, err := fmt.Sscan(string(bytes.TrimSpace(out)), &h, &w); err == nil && h > 0 && w > 0 {
				width, height = w, h
			}
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

// fit cuts plain text to width columns; what was cut ends in a tilde. It counts
// a rune as a column.
func fit(text string, width int) string {
	if utf8.RuneCountInString(text) <= width {
		return text
	}
	if width <= 0 {
		return ""
	}
	runes := []rune(text)
	return string(runes[:width-1]) + "~"
}

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
