package source

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// intDivName stands between two divisions in place of //, which has the same
// precedence. Rewriting turns the two divisions into a call.
const intDivName = "_fila_idiv_"

// translated is a source that gopher-lua can read, with the positions of the
// original source.
type translated struct {
	text   string
	pieces []piece // in order
	source string
	// codeFrom is the column where the code begins, for lines in which a string or
	// comment of an earlier line ends.
	codeFrom map[int]int
}

// piece is the offset of a piece of text in text and in the source. It is a copy of
// the source or replaces a part of it.
type piece struct {
	text, source int
	replaced     bool
}

// placed converts the position of an error in text to the position in the source.
func (t *translated) placed(err error) error {
	var se *Error
	if !errors.As(err, &se) || se.Column < 1 {
		return err
	}
	at := lineStart(t.text, se.Line) + se.Column - 1
	i, _ := slices.BinarySearchFunc(t.pieces, at+1, func(p piece, at int) int { return p.text - at })
	p := t.pieces[i-1]
	if p.replaced {
		at = p.source
	} else {
		at = min(p.source+at-p.text, len(t.source))
	}
	before := t.source[:at]
	return &Error{1 + strings.Count(before, "\n"), at - strings.LastIndexByte(before, '\n'), se.Message}
}

// lineStart returns the offset of line n, from 1, or the length of text.
func lineStart(text string, n int) int {
	at := 0
	for ; n > 1; n-- {
		i := strings.IndexByte(text[at:], '\n')
		if i < 0 {
			return len(text)
		}
		at += i + 1
	}
	return at
}

// translate rewrites the lexical forms of Lua 5.4 that gopher-lua rejects or
// misreads: a // b, <const>, and \x, \u{} and \z in strings. Lines keep their
// numbers. It refuses bit operators and operators of other languages with a hint
// at the alternative, and reports an unterminated string or comment where it
// begins.
func translate(src string) (*translated, error) {
	t := translator{src: src, pieces: []piece{{}}, codeFrom: map[int]int{}}
	for t.i < len(src) {
		if err := t.step(); err != nil {
			return nil, err
		}
	}
	return &translated{text: t.out.String(), pieces: t.pieces, source: src, codeFrom: t.codeFrom}, nil
}

type translator struct {
	src      string
	i        int
	out      strings.Builder
	pieces   []piece
	codeFrom map[int]int
	inLocal  bool // between local and its = or end of line
	line     int  // line ends before counted
	counted  int
	lines    int // line ends that \z removed, to be added at the next line end
}

func (t *translator) copy(n int) {
	n = min(n, len(t.src)-t.i)
	t.out.WriteString(t.src[t.i : t.i+n])
	t.i += n
}

// replace writes text in place of the next n bytes.
func (t *translator) replace(n int, text string) {
	t.pieces = append(t.pieces, piece{t.out.Len(), t.i, true})
	t.out.WriteString(text)
	t.i += n
	t.pieces = append(t.pieces, piece{t.out.Len(), t.i, false})
}

// place returns the line and the column of an offset, which must not be smaller
// than in earlier calls: sources are adversarial, so no line is counted twice.
func (t *translator) place(at int) (line, column int) {
	t.line += strings.Count(t.src[t.counted:at], "\n")
	t.counted = at
	return 1 + t.line, at - strings.LastIndexByte(t.src[:at], '\n')
}

func (t *translator) refuseAt(at int, msg string) error {
	line, column := t.place(at)
	return &Error{line, column, msg}
}

// passed notes the end of a string or comment that began at offset began.
func (t *translator) passed(began int) {
	if strings.Contains(t.src[began:t.i], "\n") {
		line, column := t.place(t.i)
		t.codeFrom[line] = column
	}
}

// long copies a long bracket of n bytes that begins after skip bytes.
func (t *translator) long(skip, n int, what string) error {
	began := t.i
	if !strings.HasSuffix(t.src[began:began+skip+n], longEnd(t.src[began+skip:])) {
		return t.refuseAt(began, "a "+what+" that begins here has no end")
	}
	t.copy(skip + n)
	t.passed(began)
	return nil
}

// foreignOperators are operators of Lua 5.4 and of other languages.
var foreignOperators = []struct{ operator, instead string }{
	{"<<", "bit32.lshift(a, n)"},
	{">>", "bit32.rshift(a, n)"},
	{"&&", "and"},
	{"||", "or"},
	{"!=", "~="},
	{"!", "not"},
	{"&", "bit32.band(a, b)"},
	{"|", "bit32.bor(a, b)"},
	{"~", "bit32.bxor(a, b) or bit32.bnot(a), or ~= for 'not equal'"},
}

func (t *translator) step() error {
	rest := t.src[t.i:]
	c := rest[0]
	switch {
	case strings.HasPrefix(rest, "--"):
		if n := longBracket(rest[2:]); n > 0 {
			return t.long(2, n, "comment")
		}
		n := strings.IndexByte(rest, '\n')
		if n < 0 {
			n = len(rest)
		}
		t.copy(n)
	case c == '[' && longBracket(rest) > 0:
		return t.long(0, longBracket(rest), "string")
	case c == '"' || c == '\'':
		return t.quoted(c)
	case strings.HasPrefix(rest, "//"):
		t.replace(2, "/"+intDivName+"/")
	case strings.HasPrefix(rest, "~="):
		t.copy(2)
	case strings.IndexByte("<>&|!~", c) >= 0:
		for _, f := range foreignOperators {
			if strings.HasPrefix(rest, f.operator) {
				return t.refuseAt(t.i, fmt.Sprintf("hooks are Lua 5.1, which has no operator %s: use %s", f.operator, f.instead))
			}
		}
		if c != '<' || !t.inLocal || !t.attribute(rest) {
			t.copy(1)
		}
	case isWord(c):
		n := 1
		for n < len(rest) && isWord(rest[n]) {
			n++
		}
		if rest[:n] == "local" {
			t.inLocal = true
		}
		t.copy(n)
	default:
		if strings.IndexByte("=\n;(", c) >= 0 {
			t.inLocal = false
		}
		t.copy(1)
		if c == '\n' && t.lines > 0 {
			t.replace(0, strings.Repeat("\n", t.lines))
			t.lines = 0
		}
	}
	return nil
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }
func isWord(c byte) bool  { return c == '_' || isDigit(c) || c|32 >= 'a' && c|32 <= 'z' }

// attribute drops <const> and <close>.
func (t *translator) attribute(rest string) bool {
	word, after, ok := strings.Cut(rest[1:], ">")
	if w := strings.Trim(word, " \t"); !ok || w != "const" && w != "close" {
		return false
	}
	t.replace(len(rest)-len(after), "")
	return true
}

// longBracket returns the length of the long bracket that s begins with, or 0.
func longBracket(s string) int {
	if s == "" || s[0] != '[' {
		return 0
	}
	n := 1
	for n < len(s) && s[n] == '=' {
		n++
	}
	if n >= len(s) || s[n] != '[' {
		return 0
	}
	end := strings.Index(s[n:], longEnd(s))
	if end < 0 {
		return len(s)
	}
	return n + end + n + 1
}

// longEnd is the end of the long bracket that s begins with.
func longEnd(s string) string {
	n := 1
	for n < len(s) && s[n] == '=' {
		n++
	}
	return "]" + s[1:n] + "]"
}

// quoted copies a string and turns its escapes into decimal ones.
func (t *translator) quoted(quote byte) error {
	began := t.i
	t.copy(1)
	for t.i < len(t.src) {
		c := t.src[t.i]
		switch {
		case c == quote:
			t.copy(1)
			t.passed(began)
			return nil
		case c == '\n':
			return t.refuseAt(began, "unterminated string")
		case c != '\\':
			t.copy(1)
		case !t.escape():
			t.copy(2)
		}
	}
	return t.refuseAt(began, "unterminated string")
}

func (t *translator) escape() bool {
	rest := t.src[t.i:]
	if len(rest) < 2 {
		return false
	}
	switch rest[1] {
	case 'x':
		if len(rest) < 4 {
			return false
		}
		n, err := strconv.ParseUint(rest[2:4], 16, 8)
		if err != nil {
			return false
		}
		t.replace(4, fmt.Sprintf("\\%03d", n))
		return true
	case 'u':
		end := strings.IndexByte(rest[:min(len(rest), 12)], '}')
		if end < 4 || rest[2] != '{' {
			return false
		}
		n, err := strconv.ParseUint(rest[3:end], 16, 31)
		if err != nil {
			return false
		}
		var bytes strings.Builder
		for _, b := range []byte(string(rune(n))) {
			fmt.Fprintf(&bytes, "\\%03d", b)
		}
		t.replace(end+1, bytes.String())
		return true
	case 'z':
		n := 2
		for n < len(rest) && strings.IndexByte(" \t\r\n", rest[n]) >= 0 {
			if rest[n] == '\n' {
				t.lines++
			}
			n++
		}
		t.replace(n, "")
		return true
	}
	return false
}
