// Package source turns the text of a script into code that meters itself: it
// translates forms of Lua 5.4, refuses sources that gopher-lua cannot load safely,
// rewrites the syntax tree and compiles it. See package sandbox for the whole.
package source

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	lua "github.com/yuin/gopher-lua"
	"github.com/yuin/gopher-lua/parse"
)

// MaxSize is the size of the largest source in bytes.
const MaxSize = 64 << 10

// MaxNumeral bounds the length of a string that converts to a number.
const MaxNumeral = 200

// Code is a compiled source.
type Code struct {
	Proto    *lua.FunctionProto
	Longest  int // bytes of the longest string constant
	Warnings []Warning

	text     string
	codeFrom map[int]int // see translated
}

// Warning is a hint about a script that works.
type Warning struct {
	Line    int // 0 if the warning has no place
	Message string
}

// Error is a reason to refuse a source, with its position.
type Error struct {
	Line, Column int // from 1; 0 if unknown
	Message      string
}

func (e *Error) Error() string { return e.Message }

// Compile compiles a source within the load limits. helpers are the functions that
// rewritten code calls. The code is never nil: after an error it can locate it.
func Compile(name, text string, helpers map[string]*lua.LFunction) (c *Code, err error) {
	c = &Code{text: text}
	defer func() { // some panics of the compiler are no CompileError
		if r := recover(); r != nil {
			err = &Error{Message: fmt.Sprintf("cannot compile the script: %v", r)}
		}
	}()
	if len(text) > MaxSize {
		return c, &Error{Message: fmt.Sprintf("the script has %d bytes, at most %d are allowed", len(text), MaxSize)}
	}
	src, err := translate(text)
	if err != nil {
		return c, err
	}
	c.codeFrom = src.codeFrom
	open, err := prescan(name, src.text)
	if err != nil {
		return c, src.placed(err)
	}
	chunk, err := parse.Parse(strings.NewReader(src.text), name)
	if err != nil {
		return c, src.placed(asError(err, open))
	}
	if err := checkTree(chunk); err != nil {
		return c, err
	}
	r := resolve(chunk)
	if r.err != nil {
		return c, r.err
	}
	c.Warnings = r.warnings
	chunk = rewrite(chunk, r)
	if err := checkTree(chunk); err != nil {
		return c, err
	}
	proto, err := lua.Compile(chunk, name)
	if err != nil {
		var ce *lua.CompileError
		if errors.As(err, &ce) {
			return c, compileError(ce)
		}
		return c, err
	}
	if err := checkProto(proto); err != nil {
		return c, err
	}
	c.Longest = link(proto, helpers)
	c.Proto = proto
	return c, nil
}

// compileError takes the line of a goto without a label from the message, because
// the compiler reports the end of the function.
func compileError(ce *lua.CompileError) *Error {
	line := ce.Line
	if before, after, ok := strings.Cut(ce.Message, "for <goto> at line "); ok && before != "" {
		if n, err := strconv.Atoi(after); err == nil {
			line = n
		}
	}
	return &Error{Line: line, Message: ce.Message}
}

// link replaces the constants that stand for helpers by the helpers. It returns
// the length of the longest string constant.
func link(p *lua.FunctionProto, helpers map[string]*lua.LFunction) (longest int) {
	for i, c := range p.Constants {
		s, ok := c.(lua.LString)
		switch {
		case !ok:
		case strings.HasPrefix(string(s), helperPrefix):
			p.Constants[i] = helpers[string(s[len(helperPrefix):])]
		default:
			longest = max(longest, len(s))
		}
	}
	for _, q := range p.FunctionPrototypes {
		longest = max(longest, link(q, helpers))
	}
	return longest
}
