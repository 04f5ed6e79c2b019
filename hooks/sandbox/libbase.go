package sandbox

import (
	"log/slog"
	"strconv"
	"strings"

	lua "github.com/yuin/gopher-lua"

	"github.com/filaq/fila/hooks/sandbox/source"
)

// The builtins of this file and its siblings replace the builtins of gopher-lua. Each
// charges its allocations before it makes them, and its work.

func baseAssert(L *lua.LState) int {
	if lua.LVAsBool(L.CheckAny(1)) {
		return L.GetTop()
	}
	if L.GetTop() >= 2 {
		throw(L, L.Get(2))
	}
	throw(L, lua.LString("assertion failed!"))
	return 0
}

// throw raises v by L.Error, which closes the open upvalues of the frames that
// it leaves: surviving closures would read dead registers otherwise.
func throw(L *lua.LState, v lua.LValue) { L.Error(v, 0) }

func baseError(L *lua.LState) int {
	v := L.Get(1)
	if s, ok := v.(lua.LString); ok {
		if level := optInt(L, 2, 1); level > 0 && level < 200 {
			x := execOf(L)
			x.chargeString(len(s) + 300)
			if where := L.Where(level); where != "" && !strings.HasPrefix(where, "[G]") { // not called by a builtin
				v = lua.LString(where + " " + string(s))
			}
		}
	}
	throw(L, v)
	return 0
}

func basePCall(L *lua.LState) int {
	L.CheckAny(1)
	if failure := attempt(L); failure != nil {
		return push(L, lua.LFalse, failure)
	}
	return L.GetTop()
}

// attempt calls the first value of the stack with the other values. It replaces
// them by true and the results, or returns the error.
func attempt(L *lua.LState) (failure lua.LValue) {
	x := execOf(L)
	x.chargeWork(16 + L.GetTop())
	L.Insert(fnProtect, 1)
	if err := x.pcall(L.GetTop()-1, lua.MultRet); err != nil {
		return x.caughtValue(err)
	}
	L.Insert(lua.LTrue, 1)
	return nil
}

// baseXPCall runs the handler after unwinding, so that a failing handler cannot
// recurse.
func baseXPCall(L *lua.LState) int {
	h := L.CheckFunction(2)
	L.Remove(2)
	failure := attempt(L)
	if failure == nil {
		return L.GetTop()
	}
	x := execOf(L)
	push(L, fnProtect, h, failure)
	if err := x.pcall(2, 1); err != nil {
		return push(L, lua.LFalse, x.caughtValue(err))
	}
	return push(L, lua.LFalse, pop(L))
}

// protect calls its first argument with a Panic function that keeps PCall from
// making a stack trace for every error.
func protect(L *lua.LState) int {
	L.Panic = quietPanic // PCall restores the previous one
	L.Call(L.GetTop()-1, lua.MultRet)
	return L.GetTop()
}

func baseGetMetatable(L *lua.LState) int {
	var mt lua.LValue = lua.LNil
	switch v := L.CheckAny(1).(type) {
	case *lua.LTable:
		mt = v.Metatable
	case lua.LString:
		mt = lua.LFalse
	}
	if t, ok := mt.(*lua.LTable); ok {
		if p := t.RawGetString("__metatable"); p != lua.LNil {
			mt = p
		}
	}
	return push(L, mt)
}

// baseSetMetatable accepts tables only, so scripts cannot change the metatable of
// strings.
func baseSetMetatable(L *lua.LState) int {
	t := L.CheckTable(1)
	mt := L.Get(2)
	if mt.Type() != lua.LTNil && mt.Type() != lua.LTTable || L.GetTop() < 2 {
		L.ArgError(2, "nil or table expected")
	}
	if o, ok := t.Metatable.(*lua.LTable); ok && o.RawGetString("__metatable") != lua.LNil {
		L.RaiseError("cannot change a protected metatable")
	}
	execOf(L).beforeWrite(t)
	t.Metatable = mt
	L.SetTop(1)
	return 1
}

func baseNext(L *lua.LState) int {
	t := L.CheckTable(1)
	execOf(L).chargeScan() // Next skips deleted keys and holes one by one
	k, v := t.Next(L.Get(2))
	if k == lua.LNil {
		return push(L, k)
	}
	return push(L, k, v)
}

func basePairs(L *lua.LState) int {
	t := L.CheckTable(1)
	return push(L, fnNext, t, lua.LNil)
}

func ipairsNext(L *lua.LState) int {
	t := L.CheckTable(1)
	i := argInt(L, 2) + 1
	v := t.RawGetInt(i)
	if v == nil || v == lua.LNil {
		return 0
	}
	return push(L, lua.LNumber(i), v)
}

func baseIpairs(L *lua.LState) int {
	t := L.CheckTable(1)
	return push(L, fnIpairs, t, lua.LNumber(0))
}

func baseRawEqual(L *lua.LState) int {
	return push(L, lua.LBool(L.RawEqual(L.CheckAny(1), L.CheckAny(2))))
}

func baseRawGet(L *lua.LState) int {
	v := L.CheckTable(1).RawGet(L.CheckAny(2))
	if v == nil {
		v = lua.LNil
	}
	return push(L, v)
}

func baseRawLen(L *lua.LState) int {
	if t, ok := L.Get(1).(*lua.LTable); ok {
		return push(L, lua.LNumber(execOf(L).tableLen(t)))
	}
	return push(L, lua.LNumber(len(argStr(L, 1))))
}

func baseRawSet(L *lua.LState) int {
	t := L.CheckTable(1)
	execOf(L).rawSet(t, L.CheckAny(2), L.CheckAny(3))
	L.SetTop(1)
	return 1
}

func baseSelect(L *lua.LState) int {
	n := L.GetTop() - 1
	if s, ok := L.Get(1).(lua.LString); ok && s == "#" {
		return push(L, lua.LNumber(n))
	}
	i := argInt(L, 1)
	if i < 0 {
		i = n + i + 1
	}
	if i < 1 {
		L.ArgError(1, "index out of range")
	}
	return max(n-i+1, 0)
}

func baseToNumber(L *lua.LState) int {
	v := L.CheckAny(1)
	if L.Get(2) == lua.LNil {
		if n, ok := toNum(v); ok {
			return push(L, n)
		}
		return push(L, lua.LNil)
	}
	base := argInt(L, 2)
	if base < 2 || base > 36 {
		L.ArgError(2, "base out of range")
	}
	s := argStr(L, 1)
	if len(s) > source.MaxNumeral {
		s = ""
	}
	n, err := strconv.ParseInt(strings.ToLower(strings.Trim(s, " \t\n\r")), base, 64)
	if err != nil {
		return push(L, lua.LNil)
	}
	return push(L, lua.LNumber(n))
}

func baseToString(L *lua.LState) int {
	v := L.CheckAny(1)
	if _, ok := v.(lua.LString); ok {
		return push(L, v)
	}
	s := tostr(L, v)
	execOf(L).chargeBytes(len(s) + 32)
	return push(L, lua.LString(s))
}

var typeNames = func() (a [9]lua.LValue) {
	for i := range a {
		a[i] = lua.LString(lua.LValueType(i).String())
	}
	return a
}()

func baseType(L *lua.LState) int {
	return push(L, typeNames[L.CheckAny(1).Type()])
}

// joinArgs formats all arguments like print, and cuts after 1 KiB.
func joinArgs(L *lua.LState) string {
	x := execOf(L)
	var b []byte
	for i := 1; i <= L.GetTop(); i++ {
		if i > 1 {
			b = append(b, '\t')
		}
		s := tostr(L, L.Get(i))
		b = append(b, s[:min(len(s), 1025)]...)
		x.chargeBytes(min(len(s), 1025) + 16)
		if len(b) > 1024 {
			break
		}
	}
	return string(b)
}

func basePrint(L *lua.LState) int {
	execOf(L).log(slog.LevelDebug, joinArgs(L))
	return 0
}

// baseCollectGarbage collects nothing: that would block the whole process.
func baseCollectGarbage(L *lua.LState) int {
	if s, ok := L.Get(1).(lua.LString); ok && s == "count" {
		return push(L, lua.LNumber(float64(execOf(L).used)/1024))
	}
	return push(L, lua.LNumber(0))
}

// tostr is tostring with __tostring, without addresses.
func tostr(L *lua.LState, v lua.LValue) string {
	if s, ok := asText(v); ok {
		return s
	}
	if fn := metaField(v, "__tostring"); fn != lua.LNil {
		s, ok := asText(callScript(L, fn, v))
		if !ok {
			L.RaiseError("'__tostring' must return a string")
		}
		return s
	}
	return display(v)
}

// display is tostring without metamethods. It leaves out the address of a table or
// function, which would make equal runs differ.
func display(v lua.LValue) string {
	switch v.Type() {
	case lua.LTTable, lua.LTFunction, lua.LTUserData, lua.LTThread:
		return v.Type().String() + noAddress
	}
	if s, ok := asText(v); ok {
		return s
	}
	return v.String()
}

const noAddress = ": ?"

// withoutAddress removes the address from an error of gopher-lua that names a table
// or function as a key, like display. It leaves other texts alone, because scripts
// may raise any text.
func withoutAddress(text lua.LString) lua.LString {
	s := string(text)
	const key = ") with key '"
	at := strings.LastIndex(s, key)
	if at < 0 || !strings.HasSuffix(s, "'") || !strings.Contains(s[:at], "attempt to index a non-table object(") {
		return text
	}
	at += len(key)
	kind, address, ok := strings.Cut(s[at:len(s)-1], ": 0x")
	if !ok || kind == "" || strings.Trim(kind, "abcdefghijklmnopqrstuvwxyz") != "" || strings.Trim(address, "0123456789abcdef") != "" {
		return text
	}
	return lua.LString(s[:at] + kind + noAddress + "'")
}
