package hooks

import (
	lua "github.com/yuin/gopher-lua"
)

// Charges in bytes, from the sizes that Go's allocator and maps have on 64-bit
// machines, rounded up.
const (
	costTable     = 112
	costFunc      = 128
	costUpvalue   = 88
	costElem      = 40   // of an array, with the growth of the slice
	costFirstElem = 560  // gopher-lua makes room for 32
	costKey       = 200  // of a hash part that exists: both maps, the key list, the boxed key
	costFirstKey  = 2800 // gopher-lua makes room for 32 keys
	costMap8      = 700  // the hash part of a constructor with up to 8 keys
)

// constructorCost is the charge of a constructor with that many items.
func constructorCost(items, keys int) int {
	n := costTable + 24*items
	switch {
	case keys > 8:
		n += costMap8 + costKey*keys
	case keys > 0:
		n += costMap8
	}
	return n
}

// maxArrayIndex is the first index that goes to the hash part. gopher-lua fills
// an array with nils up to the index that is written: with its own limit of 67
// million one assignment takes half a minute and 6 GiB.
const maxArrayIndex = 1<<16 + 1

func init() {
	// Process-wide knobs of gopher-lua, set before any state exists.
	lua.MaxArrayIndex = maxArrayIndex
	lua.CompatVarArg = false // no hidden table per call of a vararg function
}

// set is t[k] = v with metamethods, what OP_SETTABLE does.
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

// rawSet charges for what t[k] = v may add and does it.
func (x *exec) rawSet(t *lua.LTable, k, v lua.LValue) {
	x.touch(t)
	switch key := k.(type) {
	case lua.LString:
		if v != lua.LNil && t.RawGetString(string(key)) == lua.LNil {
			x.needKey(t)
		}
		t.RawSetString(string(key), v)
		return
	case lua.LNumber:
		if i := int(key); lua.LNumber(i) == key && i > 0 && i < maxArrayIndex {
			x.needElem(t, i)
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
		x.needKey(t)
	}
	t.RawSetH(k, v)
}

// needKey charges for a new key of the hash part of t.
func (x *exec) needKey(t *lua.LTable) {
	if hashEmpty(t) {
		x.need(costFirstKey)
		return
	}
	x.need(costKey)
}

func hashEmpty(t *lua.LTable) bool {
	if n := t.MaxN(); n > 0 {
		k, _ := t.Next(lua.LNumber(n))
		return k == lua.LNil
	}
	k, _ := t.Next(lua.LNil)
	return k == lua.LNil
}

// needElem charges for a write to t[i] with 0 < i < maxArrayIndex.
func (x *exec) needElem(t *lua.LTable, i int) {
	switch {
	case t.RawGetInt(i) != lua.LNil || i > 1 && t.RawGetInt(i-1) != lua.LNil:
		x.need(costElem) // in place or at the end
		return
	case i == 1:
		x.need(costFirstElem)
		return
	}
	x.burnHeld()
	n := t.MaxN()
	if i <= n {
		x.need(costElem)
		return
	}
	x.need(costElem * (i - n)) // the gap is filled with nils
	x.burn((i - n) >> 1)
}

// tlen is #t without metamethods. It looks at trailing nils one by one.
func (x *exec) tlen(t *lua.LTable) int {
	x.burnHeld()
	return t.Len()
}

// fnSet is what t[k] = v becomes.
func fnSet(L *lua.LState) int {
	ctx(L).set(L.Get(1), L.Get(2), L.Get(3))
	return 0
}

// fnSetGlobal is what name = v becomes where name is no local.
func fnSetGlobal(L *lua.LState) int {
	x := ctx(L)
	x.set(x.globals, L.Get(1), L.Get(2))
	return 0
}

// fnSetKeys takes a table and pairs of keys and values: what a constructor
// does for keys that are not constant strings.
func fnSetKeys(L *lua.LState) int {
	x := ctx(L)
	t, _ := L.Get(1).(*lua.LTable)
	for i := 2; i < L.GetTop(); i += 2 {
		x.rawSet(t, L.Get(i), L.Get(i+1))
	}
	L.SetTop(1)
	return 1
}

// fnCharge charges the constructors and function expressions of a statement.
func fnCharge(L *lua.LState) int {
	ctx(L).charge(L.Get(1), L.Get(2))
	return 0
}

// charge accounts for bytes, and for units unless they are nil.
func (x *exec) charge(bytes, units lua.LValue) {
	if u, ok := units.(lua.LNumber); ok {
		x.burn(int(u))
	}
	if n, ok := bytes.(lua.LNumber); ok {
		x.need(int(n))
	}
}

// fnCharged passes its first value on and charges it: an expression that may
// not be reached, or is evaluated by a loop.
func fnCharged(L *lua.LState) int {
	ctx(L).charge(L.Get(2), L.Get(3))
	L.SetTop(1)
	return 1
}

// fnSpread passes on a constructor that ended in ... or a call, and charges it
// by its length, which the registry bounds.
func fnSpread(L *lua.LState) int {
	x := ctx(L)
	t, _ := L.Get(1).(*lua.LTable)
	n := t.MaxN()
	x.burn(n >> 3)
	x.need(int(lua.LVAsNumber(L.Get(2))) + costElem*n)
	L.SetTop(1)
	return 1
}

// fnBox makes the box of a local, see rewriter.boxes.
func fnBox(L *lua.LState) int {
	x := ctx(L)
	x.need(costTable + 16)
	t := L.CreateTable(1, 0)
	t.RawSetInt(1, L.Get(1))
	return push(L, t)
}

// fnMark0 is called before a function assigns to a local of the top level.
func fnMark0(L *lua.LState) int {
	if x := ctx(L); !x.loading {
		x.dirty = true
	}
	return 0
}

// fnMark1 is called before a closure assigns to a local of an inner function,
// which may be one that outlives the run.
func fnMark1(L *lua.LState) int {
	if x := ctx(L); x.shared1 && !x.loading {
		x.dirty = true
	}
	return 0
}
