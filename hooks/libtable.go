package hooks

import (
	"sort"
	"strings"

	lua "github.com/yuin/gopher-lua"
)

func tabInsert(L *lua.LState) int {
	t := L.CheckTable(1)
	x := ctx(L)
	x.touch(t)
	n := x.tlen(t)
	switch L.GetTop() {
	case 2:
		x.rawSet(t, lua.LNumber(n+1), L.Get(2))
	case 3:
		pos := argInt(L, 2)
		if pos < 1 || pos > n+1 {
			L.ArgError(2, "position out of bounds")
		}
		if pos == n+1 {
			x.rawSet(t, lua.LNumber(pos), L.Get(3))
			break
		}
		x.need(costElem)
		x.burn((n - pos) >> 5)
		t.Insert(pos, L.Get(3))
	default:
		L.RaiseError("wrong number of arguments to 'insert'")
	}
	return 0
}

func tabRemove(L *lua.LState) int {
	t := L.CheckTable(1)
	x := ctx(L)
	x.touch(t)
	n := x.tlen(t)
	pos := optInt(L, 2, n)
	if n == 0 && (pos == 0 || pos == 1) || pos == n+1 {
		L.Push(lua.LNil)
		return 1
	}
	if pos < 1 || pos > n {
		L.ArgError(2, "position out of bounds")
	}
	x.burn((n - pos) >> 5)
	L.Push(t.Remove(pos))
	return 1
}

func tabConcat(L *lua.LState) int {
	t := L.CheckTable(1)
	x := ctx(L)
	sep := optStr(L, 2, "")
	i := optInt(L, 3, 1)
	j := 0
	if L.Get(4) == lua.LNil {
		j = x.tlen(t)
	} else {
		j = argInt(L, 4)
	}
	if i > j {
		L.Push(lua.LString(""))
		return 1
	}
	total := 0
	for k := i; k <= j; k++ { // stops at the first hole, so it is bounded by the table
		switch v := t.RawGetInt(k).(type) {
		case lua.LString:
			total += len(v)
		case lua.LNumber:
			total += 24
		default:
			L.RaiseError("invalid value (%s) at index %d in table for 'concat'", typeOf(v), k)
		}
		if k < j {
			total += len(sep)
		}
		if total > x.maxStr {
			x.needStr(total)
		}
		if k&63 == 0 {
			x.burn(32)
		}
	}
	x.needStr(total)
	x.burn(total >> 6)
	var b strings.Builder
	b.Grow(total)
	for k := i; k <= j; k++ {
		if k > i {
			b.WriteString(sep)
		}
		switch v := t.RawGetInt(k).(type) {
		case lua.LString:
			b.WriteString(string(v))
		case lua.LNumber:
			b.WriteString(fmtNum(v))
		}
	}
	L.Push(lua.LString(b.String()))
	return 1
}

func typeOf(v lua.LValue) string {
	if v == nil {
		return "nil"
	}
	return v.Type().String()
}

type sorter struct {
	L  *lua.LState
	x  *exec
	fn lua.LValue // nil for <
	a  []lua.LValue
}

func (s *sorter) Len() int      { return len(s.a) }
func (s *sorter) Swap(i, j int) { s.a[i], s.a[j] = s.a[j], s.a[i] }
func (s *sorter) Less(i, j int) bool {
	s.x.burn(4)
	if s.fn == nil {
		if a, ok := s.a[i].(lua.LString); ok && len(a) > 64 {
			s.x.burn(len(a) >> 3)
		}
		return s.L.LessThan(s.a[i], s.a[j])
	}
	s.L.Push(s.fn)
	s.L.Push(s.a[i])
	s.L.Push(s.a[j])
	s.L.Call(2, 1)
	r := lua.LVAsBool(s.L.Get(-1))
	s.L.Pop(1)
	return r
}

// tabSort sorts a copy: a comparator that changes the table cannot hurt.
func tabSort(L *lua.LState) int {
	t := L.CheckTable(1)
	x := ctx(L)
	s := sorter{L: L, x: x}
	if L.Get(2) != lua.LNil {
		s.fn = L.CheckFunction(2)
	}
	x.touch(t)
	n := x.tlen(t)
	x.need(16*n + 64)
	x.burn(n >> 2)
	s.a = make([]lua.LValue, n)
	for i := range s.a {
		v := t.RawGetInt(i + 1)
		if v == nil || v == lua.LNil {
			L.RaiseError("attempt to compare nil with a value (hole in table)")
		}
		s.a[i] = v
	}
	sort.Sort(&s)
	for i, v := range s.a[:min(n, t.MaxN())] {
		t.RawSetInt(i+1, v)
	}
	return 0
}

func tabUnpack(L *lua.LState) int {
	t := L.CheckTable(1)
	i := optInt(L, 2, 1)
	j := 0
	if L.Get(3) == lua.LNil {
		j = ctx(L).tlen(t)
	} else {
		j = argInt(L, 3)
	}
	if i > j {
		return 0
	}
	pushRoom(L, j-i+1, "unpack")
	for k := i; k <= j; k++ {
		if v := t.RawGetInt(k); v != nil {
			L.Push(v)
		} else {
			L.Push(lua.LNil)
		}
	}
	return j - i + 1
}

func tabPack(L *lua.LState) int {
	n := L.GetTop()
	x := ctx(L)
	x.need(constructorCost(n, 1))
	x.burn(n >> 2)
	t := L.CreateTable(n, 1)
	for i := 1; i <= n; i++ {
		t.RawSetInt(i, L.Get(i))
	}
	t.RawSetString("n", lua.LNumber(n))
	L.Push(t)
	return 1
}

func tabLen(L *lua.LState) int {
	L.Push(lua.LNumber(ctx(L).tlen(L.CheckTable(1))))
	return 1
}
