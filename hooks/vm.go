package hooks

import (
	"cmp"
	"context"
	"log/slog"
	"strconv"
	"strings"
	"time"

	lua "github.com/yuin/gopher-lua"
)

// env is what a script reaches outside of its sandbox.
type env struct {
	get func(string) (string, bool)
	log func(slog.Level, string)
}

// vm runs one hook of one script. It keeps its state between runs as long as
// no run wrote to it. Owned by one goroutine at a time.
type vm struct {
	script *Script
	kind   Kind
	x      exec
	L      *lua.LState // nil before the first run and after a kill
	fn     lua.LValue  // the hook; nil when the globals have to be made afresh
	in     input
	keep   *any // where a Runner wants the returned table
}

var startOfClock = time.Now()

func newVM(s *Script, kind Kind, l Limits, e env) *vm {
	v := &vm{script: s, kind: kind}
	v.x.Context = context.Background()
	v.x.lim = l.withDefaults()
	v.x.maxStr = int(max(v.x.lim.MemoryBytes/16, min(v.x.lim.MemoryBytes/4, 16<<10)))
	v.x.env = e
	v.x.lib = libraryTables
	v.x.clock = func() int64 { return int64(time.Since(startOfClock)) }
	v.x.sleep = time.Sleep
	return v
}

// drop forgets the Lua state: nothing of a killed run is used again.
func (v *vm) drop() {
	v.L, v.fn = nil, nil
	v.in.drop()
	x := &v.x
	x.L, x.globals, x.guard, x.lastSafe = nil, nil, nil, nil
}

func (v *vm) newState() {
	v.L = lua.NewState(lua.Options{
		SkipOpenLibs: true, CallStackSize: 200,
		RegistrySize: 1024, RegistryMaxSize: 8192, RegistryGrowStep: 1024,
	})
	v.L.SetContext(&v.x)
	v.L.SetMetatable(lua.LString(""), stringMeta)
	v.x.L = v.L
	v.x.guard = map[*lua.LTable]guardKind{}
}

// load makes fresh globals and runs the top level of the script.
func (v *vm) load() *RunError {
	if v.L == nil {
		v.newState()
	}
	x := &v.x
	v.fn = nil
	v.in.drop()
	clear(x.guard)
	x.base, x.shared1, x.volatile = 0, false, false
	x.kept = v.script.longest
	x.globals = newGlobals()
	v.L.Env = x.globals
	x.begin()
	x.loading = true
	_, err := v.call(v.L.NewFunctionFromProto(v.script.proto), nil)
	x.loading = false
	if err != nil {
		return err
	}
	x.base, x.kept = x.used, x.longest
	v.fn = x.globals.RawGetString(string(v.kind))
	v.freeze()
	return nil
}

// freeze notes every table that outlives a run, and whether a closure does
// that shares a variable which closures assign.
func (v *vm) freeze() {
	x := &v.x
	var stack []lua.LValue
	seen := map[*lua.LFunction]struct{}{}
	push := func(o lua.LValue) {
		switch o := o.(type) {
		case *lua.LTable:
			if x.lib[o] == 0 && x.guard[o] == 0 {
				x.guard[o] = outlives
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
				if strings.HasSuffix(o.Proto.DbgUpvalues[i], innerMark) {
					x.shared1 = true
				}
			}
		}
	}
}

// call runs fn and returns its first result. After a kill or a crash the state
// is gone; after any error the globals are made afresh.
func (v *vm) call(fn, arg lua.LValue) (result lua.LValue, re *RunError) {
	defer v.x.leaveSlow()
	defer func() {
		if r := recover(); r != nil { // even PCall let it out
			re = v.placed(cmp.Or(v.x.killed, &RunError{Cause: CauseMemory, Message: stackOverflow}))
			v.drop()
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
		v.drop()
	case fatal(err):
		re = &RunError{Cause: CauseMemory, Message: stackOverflow}
		v.drop()
	default:
		re = v.scriptError(err.(*lua.ApiError).Object) //nolint:errorlint // PCall returns it bare
		L.SetTop(0)
		v.fn = nil
	}
	return nil, v.placed(re)
}

// maxMessage bounds the text of an error that a script raised.
const maxMessage = 500

func (v *vm) scriptError(o lua.LValue) *RunError {
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

// placed adds the name and the line of the script to an error. A limit has no place
// within its line: what met it may be anything there.
func (v *vm) placed(re *RunError) *RunError {
	re.Name = v.script.name
	re.Source = sourceLine(v.script.text, re.Line)
	if re.Cause == CauseError {
		re.Source, re.Column = v.script.locate(re.Line, re.Message)
	}
	return re
}

// hook runs the hook on what fill put into the message table, which is given
// to read before anything else runs; what read says is wrong with the result is a
// failure of the run.
func (v *vm) hook(fill func() *lua.LTable, read func(*lua.LTable) (wrong string)) *RunError {
	if v.fn == nil {
		if err := v.load(); err != nil {
			return err
		}
	}
	fn, ok := v.fn.(*lua.LFunction)
	if !ok {
		v.fn = nil
		return v.placed(&RunError{Cause: CauseMissing, Message: "the script does not define function " + string(v.kind) + "(msg)"})
	}
	x := &v.x
	x.begin()
	r, err := v.call(fn, fill())
	if err != nil {
		return err
	}
	t, ok := r.(*lua.LTable)
	wrong := ""
	if ok {
		wrong = read(t)
		if v.keep != nil {
			*v.keep = plain(t)
		}
	}
	if x.dirty || x.volatile {
		v.fn = nil
	}
	if !ok {
		wrong = "a table, it returned " + article(r.Type().String())
	}
	if wrong != "" {
		return v.placed(&RunError{Cause: CauseType, Message: string(v.kind) + " must return " + wrong})
	}
	return nil
}

func article(word string) string {
	switch word {
	case "nil":
		return "nothing or nil"
	case "userdata", "function", "string", "number", "boolean", "table":
		return "a " + word
	}
	return word
}

func (v *vm) enqueue(in *EnqueueInput, w *warner) (d EnqueueDecision, err *RunError) {
	d = DefaultEnqueueDecision()
	err = v.hook(
		func() *lua.LTable { return v.in.enqueue(&v.x, in) },
		func(t *lua.LTable) string { d = enqueueDecision(t, w); return "" })
	return d, err
}

func (v *vm) failure(in *FailureInput, w *warner) (d FailureDecision, err *RunError) {
	err = v.hook(
		func() *lua.LTable { return v.in.failure(&v.x, in) },
		func(t *lua.LTable) (wrong string) { d, wrong = failureDecision(t, w); return wrong })
	return d, err
}
