package source

import (
	"regexp"
	"slices"
	"strings"
)

// gopher-lua reports the line of an error and rarely its column. Most messages name
// a word of the line. If the word occurs once, the error is at its column.

// word is a token of a line of Lua.
type word struct {
	kind   wordKind
	text   string // without the quotes of a string
	column int    // of its first byte, from 1

	builtin bool // the name of a builtin
}

type wordKind uint8

const (
	nameWord wordKind = iota // or a keyword
	textWord
	signWord // an operator, a bracket, a digit
)

var longSigns = []string{"...", "..", "==", "~=", "<=", ">=", "//", "::"}

// words returns the tokens of a line, which is Lua code from column from on.
func words(line string, from int, builtin func(name string) bool) []word {
	var found []word
	for i := max(from-1, 0); i < len(line); {
		rest, n := line[i:], 1
		switch c := rest[0]; {
		case strings.IndexByte(" \t\r", c) >= 0:
			i++
			continue
		case strings.HasPrefix(rest, "--"):
			n = longBracket(rest[2:])
			if n == 0 {
				return found
			}
			i += 2 + n
			continue
		case isWord(c):
			for n < len(rest) && isWord(rest[n]) {
				n++
			}
			found = append(found, word{nameWord, rest[:n], i + 1, builtin(rest[:n])})
		case c == '"' || c == '\'':
			for n < len(rest) && rest[n] != c {
				if rest[n] == '\\' {
					n++
				}
				n++
			}
			n = min(n, len(rest)) // the string may not end in this line
			found = append(found, word{textWord, rest[1:n], i + 1, false})
			n++
		case longBracket(rest) > 0:
			n = longBracket(rest)
			found = append(found, word{textWord, "", i + 1, false})
		default:
			for _, s := range longSigns {
				if strings.HasPrefix(rest, s) {
					n = len(s)
					break
				}
			}
			found = append(found, word{signWord, rest[:n], i + 1, false})
		}
		i += n
	}
	return found
}

// line is the words of a line.
type line []word

func (l line) is(i int, signs ...string) bool {
	return i >= 0 && i < len(l) && l[i].kind != textWord && slices.Contains(signs, l[i].text)
}

// key reports whether word i is the key of an index expression.
func (l line) key(i int) bool {
	return l[i].kind == nameWord && l.is(i-1, ".", ":") || l.is(i-1, "[") && l.is(i+1, "]")
}

// called reports whether word i is the name in a call.
func (l line) called(i int) bool {
	if l[i].kind != nameWord || slices.Contains(keywords, l[i].text) || i+1 >= len(l) || !l.is(i+1, "(", "{") && l[i+1].kind != textWord {
		return false
	}
	for l.is(i-1, ".", ":") {
		i -= 2
	}
	return !l.is(i-1, "function")
}

var keywords = []string{
	"and", "do", "else", "elseif", "for", "function", "goto", "if", "in", "local", "not", "or", "repeat", "return", "then", "until", "while",
}

// operations maps the names in errors of gopher-lua to operators.
var operations = map[string]string{"add": "+", "sub": "-", "mul": "*", "div": "/", "mod": "%", "pow": "^", "//": "//"}

// clues maps the form of a message to the word of the line that it is about. named
// is the last group of the form.
var clues = []struct {
	form *regexp.Regexp
	fits func(l line, i int, named string) bool
}{
	{regexp.MustCompile(`(?s)^attempt to index a .* with key '(.*)'$`), func(l line, i int, key string) bool { return l.key(i) && l[i].text == key }},
	{regexp.MustCompile(`^attempt to call a non-function object$`), func(l line, i int, _ string) bool {
		return l.called(i) && (l.is(i-1, ".", ":") || !l[i].builtin)
	}},
	{regexp.MustCompile(`^cannot perform (\S+) `), func(l line, i int, name string) bool { return l.is(i, operations[name]) }},
	{regexp.MustCompile(`^attempt to compare `), func(l line, i int, _ string) bool { return l.is(i, "<", "<=", ">", ">=") }},
	{regexp.MustCompile(`^attempt to concatenate `), func(l line, i int, _ string) bool { return l.is(i, "..") }},
	{regexp.MustCompile(`^__len undefined$`), func(l line, i int, _ string) bool { return l.is(i, "#") }},
	{regexp.MustCompile(`^__unm undefined$`), func(l line, i int, _ string) bool { return l.is(i, "-") }},
	{regexp.MustCompile(`^for statement `), func(l line, i int, _ string) bool { return l.is(i, "for") }},
	{regexp.MustCompile(`^bad argument #\d+ to (\S+) `), callOf},
	{regexp.MustCompile(`^invalid .* (?:to|for) '(\w+)'$`), callOf},
	{regexp.MustCompile(`^wrong number of arguments to '(\w+)'$`), callOf},
	{regexp.MustCompile(`^too many results to (\w+) `), callOf},
	{regexp.MustCompile(`^no visible label '(\w+)'`), func(l line, i int, label string) bool { return l.is(i-1, "goto") && l.is(i, label) }},
	{regexp.MustCompile(`^no loop to break$`), func(l line, i int, _ string) bool { return l.is(i, "break") }},
	{regexp.MustCompile(``), func(l line, i int, _ string) bool { return callOf(l, i, "error") }}, // raised by the script
}

func callOf(l line, i int, name string) bool { return l[i].text == name && l.called(i) }

// columnOf returns the column, from 1, that a message about the line refers to, or 0
// if that is not certain.
func columnOf(l line, message string) int {
	for _, c := range clues {
		m := c.form.FindStringSubmatch(message)
		if m == nil {
			continue
		}
		column := 0
		for i := range l {
			if !c.fits(l, i, m[len(m)-1]) {
				continue
			}
			if column > 0 {
				return 0
			}
			column = l[i].column
		}
		return column
	}
	return 0
}

// maxLocated bounds the length of a line that is searched for the column: splitting
// it into words takes ten times its memory.
const maxLocated = 4 << 10

// Locate returns line n of the script, from 1, as written, and the column of the
// error in it.
func (c *Code) Locate(n int, message string, builtin func(name string) bool) (source string, column int) {
	source = c.Line(n)
	if len(source) > maxLocated {
		return source, 0
	}
	return source, columnOf(words(source, c.codeFrom[n], builtin), message)
}

// Line returns line n of the script, from 1.
func (c *Code) Line(n int) string {
	text := c.text
	if n < 1 {
		return ""
	}
	for ; n > 1; n-- {
		i := strings.IndexByte(text, '\n')
		if i < 0 {
			return ""
		}
		text = text[i+1:]
	}
	found, _, _ := strings.Cut(text, "\n")
	return strings.TrimSuffix(found, "\r")
}
