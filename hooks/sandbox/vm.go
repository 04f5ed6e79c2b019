package sandbox

import (
	"cmp"
	"context"
	"log/slog"
	"strconv"
	"strings"
	"time"

	lua "github.com/yuin/gopher-lua"

	"github.com/filaq/fila/hooks/sandbox/source"
)

// Env is what a script can reach outside of its sandbox.
type Env struct {
	// Get is fila.get: it returns a value of the runtime configuration and must not
	// block. nil knows no key.
	Get func(key string) (value string, ok bool)
	// Log receives what the script logs: fila.log at Info, print at Debug.
	Log func(level slog.Level, line string)
}

// VM calls one function of a script, for one goroutine at a time. It keeps its
// Lua state between runs as long as no run wrote to it.
type VM struct {
	script   *Script
	function string
	x        exec
	L        *lua.LState // nil before the first run and after a kill
	fn       lua.LValue  // the function; nil if the next run needs fresh globals
	arg      Argument
}

var startOfClock = time.Now()

// New returns a VM that calls a global function of the script. It makes the Lua
// state in the first run.
func New(s *Script, function string, l Limits, e Env) *VM {
	v := &VM{script: s, function: function}
	v.arg.x = &v.x
	v.x.Context = context.Background()
	v.x.lim = l.withDefaults()
	v.x.maxStr = int(max(v.x.lim.MemoryBytes/16, min(v.x.lim.MemoryBytes/4, 16<<10)))
	v.x.env = e
	v.x.clock = func() int64 { return int64(time.Since(startOfClock)) }
	v.x.sleep = time.Sleep
	return v
}

// Close drops the Lua state. The next run makes a new one.
func (v *VM) Close() {
	v.L, v.fn = nil, nil
	v.arg.drop()
	x := &v.x
	x.L, x.globals, x.outliving, x.lastSafe = nil, nil, nil, nil
}

// Usage is what the last run used, without the top level of the script.
type Usage struct {
	Instructions int64 // work units
	Allocated    int64 // bytes charged
	Dirty        bool  // the run wrote to state that outlives it, so the script starts afresh
}

// Usage returns what the last run used.
func (v *VM) Usage() Usage {
	return Usage{v.x.steps + int64(v.x.interval-v.x.n), v.x.used, v.x.dirty}
}

func (v *VM) newState() {
	v.L = lua.NewState(lua.Options{
		SkipOpenLibs: true, CallStackSize: 200,
		RegistrySize: 1024, RegistryMaxSize: 8192, RegistryGrowStep: 1024,
	})
	v.L.SetContext(&v.x)
	v.L.SetMetatable(lua.LString(""), stringMeta)
	v.x.L = v.L
	v.x.outliving = map[*lua.LTable]tableKind{}
}

// load makes fresh globals and runs the top level of the script.
func (v *VM) load() *RunError {
	if v.L == nil {
		v.newState()
	}
	x := &v.x
	v.fn = nil
	v.arg.drop()
	clear(x.outliving)
	x.base, x.sharesInner, x.volatile = 0, false, false
	x.kept = v.script.code.Longest
	x.globals = newGlobals()
	v.L.Env = x.globals
	x.begin()
	x.loading = true
	_, err := v.call(v.L.NewFunctionFromProto(v.script.code.Proto), nil)
	x.loading = false
	if err != nil {
		return err
	}
	x.base, x.kept = x.used, x.longest
	v.fn = x.globals.RawGetString(v.function)
	v.markOutliving()
	return nil
}

// markOutliving notes every table that outlives a run, and whether an outliving
// closure shares a variable that closures assign.
func (v *VM) markOutliving() {
	x := &v.x
	var stack []lua.LValue
	seen := map[*lua.LFunction]struct{}{}
	push := func(o lua.LValue) {
		switch o := o.(type) {
		case *lua.LTable:
			if libraryTables[o] == 0 && x.outliving[o] == 0 {
				x.outliving[o] = outlives
				stack = append(stack, o)
			}
		case *lua.LFunction:
			if _, ok := seen[o]; !ok && !o.IsG {
				seen[o] = struct{}{}
				stack = append(stack, o)
			}
		}
	}
	push(x.globals)
	for len(stack) > 0 {
		o := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		switch o := o.(type) {
		case *lua.LTable:
			push(o.Metatable)
			o.ForEach(func(k, e lua.LValue) { push(k); push(e) })
		case *lua.LFunction:
			for i, u := range o.Upvalues {
				if u == nil {
					continue
				}
				push(u.Value())
				if source.IsInner(o.Proto.DbgUpvalues[i]) {
					x.sharesInner = true
				}
			}
		}
	}
}

// Run calls the function on what fill sets and passes the returned table to read
// before anything else runs. read refuses the table by returning what the function
// must return, which makes the run fail.
func (v *VM) Run(fill func(*Argument), read func(Table) (want string)) *RunError {
	if v.fn == nil {
		if err := v.load(); err != nil {
			return err
		}
	}
	fn, ok := v.fn.(*lua.LFunction)
	if !ok {
		v.fn = nil
		return v.locate(&RunError{Cause: CauseMissing, Message: "the script does not define function " + v.function + "(msg)"})
	}
	x := &v.x
	x.begin()
	v.arg.begin()
	fill(&v.arg)
	r, err := v.call(fn, v.arg.table)
	if err != nil {
		return err
	}
	t, ok := r.(*lua.LTable)
	want := ""
	if ok {
		want = read(Table{t})
	} else {
		want = "a table, it returned " + Value{r}.Kind()
	}
	if x.dirty || x.volatile {
		v.fn = nil
	}
	if want != "" {
		return v.locate(&RunError{Cause: CauseType, Message: v.function + " must return " + want})
	}
	return nil
}

// call runs fn and returns its first result. After a kill or a crash the state
// is gone; after any error the next run gets fresh globals.
func (v *VM) call(fn, arg lua.LValue) (result lua.LValue, re *RunError) {
	defer v.x.leaveSlow()
	defer func() {
		if r := recover(); r != nil { // not even PCall caught it
			re = v.locate(cmp.Or(v.x.killed, &RunError{Cause: CauseMemory, Message: stackOverflow}))
			v.Close()
		}
	}()
	L, n := v.L, 0
	L.Push(fn)
	if arg != nil {
		L.Push(arg)
		n = 1
	}
	err := L.PCall(n, 1, nil)
	if err == nil {
		result = L.Get(-1)
		L.SetTop(0)
		return result, nil
	}
	re = v.x.killed
	switch {
	case re != nil:
		v.Close()
	case fatal(err):
		re = &RunError{Cause: CauseMemory, Message: stackOverflow}
		v.Close()
	default:
		re = v.scriptError(err.(*lua.ApiError).Object) //nolint:errorlint // PCall returns it bare
		L.SetTop(0)
		v.fn = nil
	}
	return nil, v.locate(re)
}

// maxMessage bounds the text of an error that a script raised.
const maxMessage = 500

func (v *VM) scriptError(o lua.LValue) *RunError {
	re := &RunError{Cause: CauseError}
	switch o := o.(type) {
	case lua.LString:
		s := string(withoutAddress(o))
		if rest, ok := strings.CutPrefix(s, v.script.name+":"); ok {
			if num, msg, ok := strings.Cut(rest, ": "); ok {
				if n, err := strconv.Atoi(num); err == nil {
					re.Line, s = n, msg
				}
			}
		}
		re.Message = s
	case lua.LNumber:
		re.Message = fmtNum(o)
	case nil, *lua.LNilType:
		re.Message = "error without a message (nil)"
	case *lua.LTable:
		re.Message = "error object is a table"
		for _, k := range []string{"message", "msg", "error"} {
			if s, ok := o.RawGetString(k).(lua.LString); ok {
				re.Message = string(s)
				break
			}
		}
	default:
		re.Message = "error object is a " + o.Type().String()
	}
	if len(re.Message) > maxMessage {
		re.Message = re.Message[:maxMessage] + "..."
	}
	re.Message = strings.ToValidUTF8(re.Message, "?")
	return re
}

// locate adds the name and the line of the script to an error. Exceeded limits
// have no column: anything in the line may have exceeded them.
func (v *VM) locate(re *RunError) *RunError {
	re.Name = v.script.name
	re.Source = v.script.code.Line(re.Line)
	if re.Cause == CauseError {
		re.Source, re.Column = v.script.code.Locate(re.Line, re.Message, isBuiltin)
	}
	return re
}
