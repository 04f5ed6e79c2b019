package hooks

import (
	"fmt"
	"strconv"
	"strings"
)

// sourceError is a reason to refuse a source, with its place.
type sourceError struct {
	line, column int
	msg          string
}

func (e *sourceError) Error() string { return e.msg }

// intDivName stands between two divisions for //: same precedence, and
// rewriting turns the pair into a call.
const intDivName = "_fila_idiv_"

// translate rewrites the lexical forms of Lua 5.4 that gopher-lua rejects or
// misreads: a // b, <const>, and \x, \u{} and \z in strings. Lines keep their
// numbers. Bit operators, and those of other languages, are refused with a word on what to
// use.
func translate(src string) (string, error) {
	if !strings.ContainsAny(src, "/\\<&|~>!") {
		return src, nil
	}
	t := translator{src: src}
	for t.i < len(src) {
		if err := t.step(); err != nil {
			return "", err
		}
	}
	return t.out.String(), nil
}

type translator struct {
	src     string
	i       int
	out     strings.Builder
	inLocal bool // between local and its = or end of line
	lines   int  // line ends that \z swallowed and that are still owed
}

func (t *translator) copy(n int) {
	n = min(n, len(t.src)-t.i)
	t.out.WriteString(t.src[t.i : t.i+n])
	t.i += n
}

func (t *translator) refuse(op, instead string) error {
	before := t.src[:t.i]
	return &sourceError{
		line:   1 + strings.Count(before, "\n"),
		column: t.i - strings.LastIndexByte(before, '\n'),
		msg:    fmt.Sprintf("hooks are Lua 5.1, which has no operator %s: use %s", op, instead),
	}
}

func (t *translator) step() error {
	rest := t.src[t.i:]
	c := rest[0]
	switch {
	case strings.HasPrefix(rest, "--"):
		if n := longBracket(rest[2:]); n > 0 {
			t.copy(2 + n)
			break
		}
		n := strings.IndexByte(rest, '\n')
		if n < 0 {
			n = len(rest)
		}
		t.copy(n)
	case c == '[':
		t.copy(max(longBracket(rest), 1))
	case c == '"' || c == '\'':
		t.quoted(c)
	case strings.HasPrefix(rest, "//"):
		t.out.WriteString("/" + intDivName + "/")
		t.i += 2
	case strings.HasPrefix(rest, "~="):
		t.copy(2)
	case strings.HasPrefix(rest, "<<"):
		return t.refuse("<<", "bit32.lshift(a, n)")
	case strings.HasPrefix(rest, ">>"):
		return t.refuse(">>", "bit32.rshift(a, n)")
	case strings.HasPrefix(rest, "&&"):
		return t.refuse("&&", "and")
	case strings.HasPrefix(rest, "||"):
		return t.refuse("||", "or")
	case strings.HasPrefix(rest, "!="):
		return t.refuse("!=", "~=")
	case c == '!':
		return t.refuse("!", "not")
	case c == '&':
		return t.refuse("&", "bit32.band(a, b)")
	case c == '|':
		return t.refuse("|", "bit32.bor(a, b)")
	case c == '~':
		return t.refuse("~", "bit32.bxor(a, b) or bit32.bnot(a), or ~= for 'not equal'")
	case c == '<' && t.inLocal && t.attribute(rest):
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
		if c == '\n' {
			t.out.WriteString(strings.Repeat("\n", t.lines))
			t.lines = 0
		}
	}
	return nil
}

func isWord(c byte) bool { return c == '_' || isDigit(c) || isAlpha(c) }

// attribute drops <const> and <close>.
func (t *translator) attribute(rest string) bool {
	word, after, ok := strings.Cut(rest[1:], ">")
	if w := strings.Trim(word, " \t"); !ok || w != "const" && w != "close" {
		return false
	}
	t.i = len(t.src) - len(after)
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
	end := strings.Index(s[n:], "]"+s[1:n]+"]")
	if end < 0 {
		return len(s)
	}
	return n + end + n + 1
}

// quoted copies a string and rewrites its escapes to decimal ones.
func (t *translator) quoted(quote byte) {
	t.copy(1)
	for t.i < len(t.src) {
		c := t.src[t.i]
		switch {
		case c == quote:
			t.copy(1)
			return
		case c == '\n':
			return // unterminated: the scanner says so
		case c != '\\':
			t.copy(1)
		case !t.escape():
			t.copy(2)
		}
	}
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
		fmt.Fprintf(&t.out, "\\%03d", n)
		t.i += 4
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
		for _, b := range []byte(string(rune(n))) {
			fmt.Fprintf(&t.out, "\\%03d", b)
		}
		t.i += end + 1
		return true
	case 'z':
		t.i += 2
		for t.i < len(t.src) && strings.IndexByte(" \t\r\n", t.src[t.i]) >= 0 {
			if t.src[t.i] == '\n' {
				t.lines++
			}
			t.i++
		}
		return true
	}
	return false
}
