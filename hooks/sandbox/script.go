package sandbox

import (
	"errors"
	"slices"
	"sync"

	lua "github.com/yuin/gopher-lua"

	"github.com/filaq/fila/hooks/sandbox/source"
)

// MaxSource is the size of the largest script that Compile accepts, in bytes.
const MaxSource = source.MaxSize

// Script is a checked and compiled script. It is immutable and may be shared
// by any number of VMs.
type Script struct {
	name     string
	code     *source.Code
	defines  []string
	warnings []Warning
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
	code, err := source.Compile(name, text, helpers)
	s := &Script{name: name, code: code, warnings: code.Warnings}
	if err != nil {
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

// refused converts an error of the source.
func (s *Script) refused(err error) *LoadError {
	e := &LoadError{Name: s.name, Message: err.Error()}
	var se *source.Error
	if errors.As(err, &se) && se.Line > 0 {
		e.Line = se.Line
		e.Source, e.Column = s.code.Locate(se.Line, se.Message, isBuiltin)
		if se.Column > 0 && se.Column <= len(e.Source)+1 {
			e.Column = se.Column
		}
	}
	return e
}

func isBuiltin(name string) bool {
	return slices.ContainsFunc(baseFunctions, func(e libEntry) bool { return e.name == name })
}
