package sandbox

import (
	lua "github.com/yuin/gopher-lua"

	"github.com/filaq/fila/hooks/sandbox/source"
)

// maxArrayIndex is the first index that goes to the hash part. gopher-lua fills
// an array with nils up to the written index: with its own limit of 67 million,
// one assignment takes half a minute and 6 GiB.
const maxArrayIndex = 1<<16 + 1

func init() {
	// Process-wide variables of gopher-lua, set before any state exists.
	lua.MaxArrayIndex = maxArrayIndex
	lua.CompatVarArg = false // no hidden table per call of a vararg function
}

// set is t[k] = v with metamethods, like OP_SETTABLE.
func (x *exec) set(o lua.LValue, k, v lua.LValue) {
	L := x.L
	for range lua.MaxTableGetLoop {
		t, ok := o.(*lua.LTable)
		if !ok {
			x.badIndex(o, k)
		}
		if t.Metatable == lua.LNil {
			x.rawSet(t, k, v)
			return
		}
		mt, _ := t.Metatable.(*lua.LTable)
		if mt == nil || t.RawGet(k) != lua.LNil {
			x.rawSet(t, k, v)
			return
		}
		switch h := mt.RawGetString("__newindex").(type) {
		case *lua.LNilType:
			x.rawSet(t, k, v)
			return
		case *lua.LFunction:
			L.Push(h)
			L.Call(push(L, t, k, v), 0)
			return
		default:
			o = h
		}
	}
	L.RaiseError("'__newindex' chain too long")
}

func (x *exec) badIndex(o, k lua.LValue) {
	name := display(k)
	if len(name) > 64 {
		name = name[:64] + "..."
	}
	x.L.RaiseError("attempt to index a %s value with key '%s'", o.Type().String(), name)
}

// rawSet charges for t[k] = v and does it without metamethods.
func (x *exec) rawSet(t *lua.LTable, k, v lua.LValue) {
	x.beforeWrite(t)
	switch key := k.(type) {
	case lua.LString:
		if v != lua.LNil && t.RawGetString(string(key)) == lua.LNil {
			x.chargeKey(t)
		}
		t.RawSetString(string(key), v)
		return
	case lua.LNumber:
		if i := int(key); lua.LNumber(i) == key && i > 0 && i < maxArrayIndex {
			x.chargeElem(t, i)
			t.RawSetInt(i, v)
			return
		}
		if key != key {
			x.L.RaiseError("table index is NaN")
		}
	case *lua.LNilType:
		x.L.RaiseError("table index is nil")
	}
	if v != lua.LNil && t.RawGetH(k) == lua.LNil {
		x.chargeKey(t)
	}
	t.RawSetH(k, v)
}

// chargeKey charges for a new key of the hash part of t.
func (x *exec) chargeKey(t *lua.LTable) {
	if hashEmpty(t) {
		x.chargeBytes(source.CostFirstKey)
		return
	}
	x.chargeBytes(source.CostKey)
}

func hashEmpty(t *lua.LTable) bool {
	if n := t.MaxN(); n > 0 {
		k, _ := t.Next(lua.LNumber(n))
		return k == lua.LNil
	}
	k, _ := t.Next(lua.LNil)
	return k == lua.LNil
}

// chargeElem charges for a write to t[i] with 0 < i < maxArrayIndex.
func (x *exec) chargeElem(t *lua.LTable, i int) {
	switch {
	case t.RawGetInt(i) != lua.LNil || i > 1 && t.RawGetInt(i-1) != lua.LNil:
		x.chargeBytes(source.CostElem) // in place or at the end
		return
	case i == 1:
		x.chargeBytes(source.CostFirstElem)
		return
	}
	x.chargeScan()
	n := t.MaxN()
	if i <= n {
		x.chargeBytes(source.CostElem)
		return
	}
	x.chargeBytes(source.CostElem * (i - n)) // the gap is filled with nils
	x.chargeWork((i - n) >> 1)
}

// tableLen is #t without metamethods. It skips trailing nils one by one.
func (x *exec) tableLen(t *lua.LTable) int {
	x.chargeScan()
	return t.Len()
}

// fnSet is the helper for t[k] = v.
func fnSet(L *lua.LState) int {
	execOf(L).set(L.Get(1), L.Get(2), L.Get(3))
	return 0
}

// fnSetGlobal is the helper for name = v if name is no local.
func fnSetGlobal(L *lua.LState) int {
	x := execOf(L)
	x.set(x.globals, L.Get(1), L.Get(2))
	return 0
}

// fnSetKeys is the helper for the keys of a constructor that are not constant
// strings. It takes the table and pairs of keys and values.
func fnSetKeys(L *lua.LState) int {
	x := execOf(L)
	t, _ := L.Get(1).(*lua.LTable)
	for i := 2; i < L.GetTop(); i += 2 {
		x.rawSet(t, L.Get(i), L.Get(i+1))
	}
	L.SetTop(1)
	return 1
}

// fnCharge is the helper that charges the constructors and function expressions of
// a statement.
func fnCharge(L *lua.LState) int {
	execOf(L).charge(L.Get(1), L.Get(2))
	return 0
}

// charge accounts for bytes, and for work units unless they are nil.
func (x *exec) charge(bytes, units lua.LValue) {
	if u, ok := units.(lua.LNumber); ok {
		x.chargeWork(int(u))
	}
	if n, ok := bytes.(lua.LNumber); ok {
		x.chargeBytes(int(n))
	}
}

// fnCharged is the helper that charges an expression when it is evaluated. It
// returns its first argument.
func fnCharged(L *lua.LState) int {
	execOf(L).charge(L.Get(2), L.Get(3))
	L.SetTop(1)
	return 1
}

// fnSpread is the helper for a constructor that ends in ... or a call. It charges the
// table by its length, which the registry bounds, and returns it.
func fnSpread(L *lua.LState) int {
	x := execOf(L)
	t, _ := L.Get(1).(*lua.LTable)
	n := t.MaxN()
	x.chargeWork(n >> 3)
	x.chargeBytes(int(lua.LVAsNumber(L.Get(2))) + source.CostElem*n)
	L.SetTop(1)
	return 1
}

// fnBox is the helper that makes the box of a local, see rewriter.boxes.
func fnBox(L *lua.LState) int {
	x := execOf(L)
	x.chargeBytes(source.CostTable + 16)
	t := L.CreateTable(1, 0)
	t.RawSetInt(1, L.Get(1))
	return push(L, t)
}

// fnMarkOuter is called before a function assigns to a local of the top level.
func fnMarkOuter(L *lua.LState) int {
	if x := execOf(L); !x.loading {
		x.dirty = true
	}
	return 0
}

// fnMarkInner is called before a closure assigns to a local of an inner function,
// which may outlive the run.
func fnMarkInner(L *lua.LState) int {
	if x := execOf(L); x.sharesInner && !x.loading {
		x.dirty = true
	}
	return 0
}
