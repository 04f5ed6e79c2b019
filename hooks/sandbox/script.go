package sandbox

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	lua "github.com/yuin/gopher-lua"
	"github.com/yuin/gopher-lua/parse"
)

// MaxSource is the size of the largest script that Compile accepts, in bytes.
const MaxSource = 64 << 10

// Script is a checked and compiled script. It is immutable and may be shared
// by any number of VMs.
type Script struct {
	name     string
	text     string
	proto    *lua.FunctionProto
	longest  int // string constant, in bytes
	defines  []string
	warnings []Warning
	codeFrom map[int]int // see translated
}

// Name returns the name that errors use.
func (s *Script) Name() string { return s.name }

// Defines returns the names of the functions that the script defines, out of
// those that Compile looked for.
func (s *Script) Defines() []string { return s.defines }

// Warnings returns hints about a script that works, by line.
func (s *Script) Warnings() []Warning { return s.warnings }

// loading serialises the work on sources: the worst source within the limits
// takes a few MiB and a few tens of milliseconds.
var loading sync.Mutex

// Compile checks and compiles a script and runs its top level once, within the
// limits, to see which of functions it defines as globals. The error is a
// *LoadError. While the top level runs here, fila.get knows no key.
func Compile(name, text string, functions []string, l Limits) (*Script, error) {
	loading.Lock()
	defer loading.Unlock()
	s := &Script{name: name, text: text}
	if err := s.compile(); err != nil {
		return nil, s.refused(err)
	}
	v := New(s, "", l, Env{})
	re := v.load()
	for range 2 { // a busy machine must not refuse a queue at start
		if re != nil && re.Cause == CauseTimeout {
			re = v.load()
		}
	}
	if re != nil {
		msg := "the top level of the script fails: " + re.Message
		return nil, &LoadError{Name: name, Line: re.Line, Column: re.Column, Message: msg, Source: re.Source}
	}
	for _, f := range functions {
		if _, ok := v.x.globals.RawGetString(f).(*lua.LFunction); ok {
			s.defines = append(s.defines, f)
		}
	}
	if v.x.volatile {
		s.warnings = append(s.warnings, Warning{Message: "the top level calls fila.get: it runs again for each message (about 15 us); call it in the function"})
	}
	return s, nil
}

// compile turns the text into code, within the load limits.
func (s *Script) compile() (err error) {
	defer func() { // some panics of the compiler are no CompileError
		if r := recover(); r != nil {
			err = &sourceError{msg: fmt.Sprintf("cannot compile the script: %v", r)}
		}
	}()
	if len(s.text) > MaxSource {
		return &sourceError{msg: fmt.Sprintf("the script has %d bytes, at most %d are allowed", len(s.text), MaxSource)}
	}
	src, err := translate(s.text)
	if err != nil {
		return err
	}
	s.codeFrom = src.codeFrom
	open, err := prescan(s.name, src.text)
	if err != nil {
		return src.placed(err)
	}
	chunk, err := parse.Parse(strings.NewReader(src.text), s.name)
	if err != nil {
		return src.placed(asSourceError(err, open))
	}
	if err := checkTree(chunk); err != nil {
		return err
	}
	r := resolve(chunk)
	if r.err != nil {
		return r.err
	}
	s.warnings = r.warnings
	chunk = rewrite(chunk, r)
	if err := checkTree(chunk); err != nil {
		return err
	}
	proto, err := lua.Compile(chunk, s.name)
	if err != nil {
		var ce *lua.CompileError
		if errors.As(err, &ce) {
			return compileError(ce)
		}
		return err
	}
	if err := checkProto(proto); err != nil {
		return err
	}
	s.longest = link(proto)
	s.proto = proto
	return nil
}

// compileError takes the line of a goto without a label from the message, because
// the compiler reports the end of the function.
func compileError(ce *lua.CompileError) *sourceError {
	line := ce.Line
	if before, after, ok := strings.Cut(ce.Message, "for <goto> at line "); ok && before != "" {
		if n, err := strconv.Atoi(after); err == nil {
			line = n
		}
	}
	return &sourceError{line: line, msg: ce.Message}
}

func (s *Script) refused(err error) *LoadError {
	e := &LoadError{Name: s.name, Message: err.Error()}
	var se *sourceError
	if errors.As(err, &se) && se.line > 0 {
		e.Line = se.line
		e.Source, e.Column = s.locate(se.line, se.msg)
		if se.column > 0 && se.column <= len(e.Source)+1 {
			e.Column = se.column
		}
	}
	return e
}
