package sandbox

import (
	"sort"
	"strings"

	lua "github.com/yuin/gopher-lua"

	"github.com/filaq/fila/hooks/sandbox/source"
)

func tabInsert(L *lua.LState) int {
	t := L.CheckTable(1)
	x := execOf(L)
	x.beforeWrite(t)
	n := x.tableLen(t)
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
		x.chargeBytes(source.CostElem)
		x.chargeWork((n - pos) >> 5)
		t.Insert(pos, L.Get(3))
	default:
		L.RaiseError("wrong number of arguments to 'insert'")
	}
	return 0
}

func tabRemove(L *lua.LState) int {
	t := L.CheckTable(1)
	x := execOf(L)
	x.beforeWrite(t)
	n := x.tableLen(t)
	pos := optInt(L, 2, n)
	if n == 0 && (pos == 0 || pos == 1) || pos == n+1 {
		return push(L, lua.LNil)
	}
	if pos < 1 || pos > n {
		L.ArgError(2, "position out of bounds")
	}
	x.chargeWork((n - pos) >> 5)
	return push(L, t.Remove(pos))
}

// lastIndex returns the index at argument i, by default the length of t.
func lastIndex(L *lua.LState, i int, t *lua.LTable) int {
	if L.Get(i) == lua.LNil {
		return execOf(L).tableLen(t)
	}
	return argInt(L, i)
}

func tabConcat(L *lua.LState) int {
	t := L.CheckTable(1)
	x := execOf(L)
	sep := optStr(L, 2, "")
	i := optInt(L, 3, 1)
	j := lastIndex(L, 4, t)
	if i > j {
		return push(L, lua.LString(""))
	}
	total := 0
	for k := i; k <= j; k++ { // stops at the first hole, so it is bounded by the table
		v := t.RawGetInt(k)
		size, ok := textSize(v)
		if !ok {
			L.RaiseError("invalid value (%s) at index %d in table for 'concat'", typeOf(v), k)
		}
		total += size
		if k < j {
			total += len(sep)
		}
		x.limitString(total)
		if k&63 == 0 {
			x.chargeWork(32)
		}
	}
	x.chargeString(total)
	x.chargeWork(total >> 6)
	var b strings.Builder
	b.Grow(total)
	for k := i; k <= j; k++ {
		if k > i {
			b.WriteString(sep)
		}
		s, _ := asText(t.RawGetInt(k))
		b.WriteString(s)
	}
	return push(L, lua.LString(b.String()))
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
	s.x.chargeWork(4)
	if s.fn == nil {
		if a, ok := s.a[i].(lua.LString); ok && len(a) > 64 {
			s.x.chargeWork(len(a) >> 3)
		}
		return s.L.LessThan(s.a[i], s.a[j])
	}
	return lua.LVAsBool(callScript(s.L, s.fn, s.a[i], s.a[j]))
}

// tabSort sorts a copy, so a comparator may change the table.
func tabSort(L *lua.LState) int {
	t := L.CheckTable(1)
	x := execOf(L)
	s := sorter{L: L, x: x}
	if L.Get(2) != lua.LNil {
		s.fn = L.CheckFunction(2)
	}
	x.beforeWrite(t)
	n := x.tableLen(t)
	x.chargeBytes(16*n + 64)
	x.chargeWork(n >> 2)
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
	j := lastIndex(L, 3, t)
	if i > j {
		return 0
	}
	checkResults(L, j-i+1, "unpack")
	for k := i; k <= j; k++ {
		v := t.RawGetInt(k)
		if v == nil {
			v = lua.LNil
		}
		L.Push(v)
	}
	return j - i + 1
}

func tabPack(L *lua.LState) int {
	n := L.GetTop()
	x := execOf(L)
	x.chargeBytes(source.ConstructorCost(n, 1))
	x.chargeWork(n >> 2)
	t := L.CreateTable(n, 1)
	for i := 1; i <= n; i++ {
		t.RawSetInt(i, L.Get(i))
	}
	t.RawSetString("n", lua.LNumber(n))
	return push(L, t)
}

func tabLen(L *lua.LState) int {
	return push(L, lua.LNumber(execOf(L).tableLen(L.CheckTable(1))))
}
