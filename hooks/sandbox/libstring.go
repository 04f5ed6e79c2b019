package sandbox

import (
	"strings"
	"unicode/utf8"

	lua "github.com/yuin/gopher-lua"
)

// fnConcat is the helper for a .. b .. c. It takes at least two values.
func fnConcat(L *lua.LState) int {
	x := execOf(L)
	n, total := L.GetTop(), 0
	for i := 1; i <= n; i++ {
		size, ok := textSize(L.Get(i))
		if !ok {
			return concatMeta(L, x, n)
		}
		total += size
	}
	x.chargeString(total)
	if total > 1024 {
		x.chargeWork(total >> 7)
	}
	var b strings.Builder
	b.Grow(total)
	for i := 1; i <= n; i++ {
		s, _ := asText(L.Get(i))
		b.WriteString(s)
	}
	return push(L, lua.LString(b.String()))
}

// concatMeta joins n values from the right, pair by pair, with __concat.
func concatMeta(L *lua.LState, x *exec, n int) int {
	acc := L.Get(n)
	for i := n - 1; i >= 1; i-- {
		x.chargeWork(4)
		left := L.Get(i)
		if lua.LVCanConvToString(left) && lua.LVCanConvToString(acc) {
			a, b := tostr(L, left), tostr(L, acc)
			x.chargeString(len(a) + len(b))
			acc = lua.LString(a + b)
			continue
		}
		h := metaField(left, "__concat")
		if h == lua.LNil {
			h = metaField(acc, "__concat")
		}
		if _, ok := h.(*lua.LFunction); !ok {
			L.RaiseError("attempt to concatenate a %s value with a %s value", typeOf(left), typeOf(acc))
		}
		acc = callScript(L, h, left, acc)
	}
	return push(L, acc)
}

// metaField returns a field of the metatable of a table, nil if there is none.
func metaField(v lua.LValue, event string) lua.LValue {
	if t, ok := v.(*lua.LTable); ok {
		if mt, ok := t.Metatable.(*lua.LTable); ok {
			return mt.RawGetString(event)
		}
	}
	return lua.LNil
}

// sub returns s[i:j] without keeping a much larger s alive.
func (x *exec) sub(s string, i, j int) lua.LValue {
	n := j - i
	x.chargeBytes(n + 32)
	if len(s) > 2*n+64 {
		return lua.LString(strings.Clone(s[i:j]))
	}
	return lua.LString(s[i:j])
}

func strLen(L *lua.LState) int {
	return push(L, lua.LNumber(len(argStr(L, 1))))
}

func strSub(L *lua.LState) int {
	s := argStr(L, 1)
	i, j := fromEnd(argInt(L, 2), len(s)), fromEnd(optInt(L, 3, -1), len(s))
	i, j = max(i, 1), min(j, len(s))
	if i > j {
		return push(L, lua.LString(""))
	}
	return push(L, execOf(L).sub(s, i-1, j))
}

func strLower(L *lua.LState) int { return mapBytes(L, 'A', 'Z') }
func strUpper(L *lua.LState) int { return mapBytes(L, 'a', 'z') }

// mapBytes changes the case of the ASCII letters from lo to hi.
func mapBytes(L *lua.LState, lo, hi byte) int {
	s := argStr(L, 1)
	x := execOf(L)
	x.chargeWork(len(s) >> 4)
	i := 0
	for i < len(s) && !inRange(s[i], lo, hi) {
		i++
	}
	if i == len(s) {
		x.chargeBytes(32)
		return push(L, lua.LString(s))
	}
	x.chargeString(len(s))
	var b strings.Builder
	b.Grow(len(s))
	b.WriteString(s[:i])
	for _, c := range []byte(s[i:]) {
		if inRange(c, lo, hi) {
			c ^= 0x20
		}
		b.WriteByte(c)
	}
	return push(L, lua.LString(b.String()))
}

func strReverse(L *lua.LState) int {
	s := argStr(L, 1)
	x := execOf(L)
	x.chargeString(len(s))
	x.chargeWork(len(s) >> 4)
	var b strings.Builder
	b.Grow(len(s))
	for i := len(s) - 1; i >= 0; i-- {
		b.WriteByte(s[i])
	}
	return push(L, lua.LString(b.String()))
}

func strRep(L *lua.LState) int {
	s, n, sep := argStr(L, 1), argInt(L, 2), optStr(L, 3, "")
	x := execOf(L)
	unit := len(s) + len(sep)
	if n <= 0 || unit == 0 {
		return push(L, lua.LString(""))
	}
	if n > x.maxStr/unit+1 {
		n = x.maxStr/unit + 2 // chargeString stops it, and n*unit cannot overflow
	}
	total := n*unit - len(sep)
	x.chargeString(total)
	x.chargeWork(total >> 6)
	var b strings.Builder
	b.Grow(total)
	for i := range n {
		if i > 0 {
			b.WriteString(sep)
		}
		b.WriteString(s)
	}
	return push(L, lua.LString(b.String()))
}

func strByte(L *lua.LState) int {
	s := argStr(L, 1)
	i := fromEnd(optInt(L, 2, 1), len(s))
	j := fromEnd(optInt(L, 3, i), len(s))
	i, j = max(i, 1), min(j, len(s))
	if i > j {
		return 0
	}
	checkResults(L, j-i+1, "byte")
	for k := i; k <= j; k++ {
		L.Push(lua.LNumber(s[k-1]))
	}
	return j - i + 1
}

func strChar(L *lua.LState) int {
	n := L.GetTop()
	x := execOf(L)
	x.chargeString(n)
	x.chargeWork(n >> 2)
	b := make([]byte, n)
	for i := range b {
		c := argInt(L, i+1)
		if c < 0 || c > 255 {
			L.ArgError(i+1, "value out of range")
		}
		b[i] = byte(c)
	}
	return push(L, lua.LString(b))
}

func utf8Char(L *lua.LState) int {
	n := L.GetTop()
	x := execOf(L)
	x.chargeString(4 * n)
	x.chargeWork(n >> 2)
	var b []byte
	for i := 1; i <= n; i++ {
		c := argInt(L, i)
		if c < 0 || c > utf8.MaxRune {
			L.ArgError(i, "value out of range")
		}
		b = utf8.AppendRune(b, rune(c))
	}
	return push(L, lua.LString(b))
}

func utf8Len(L *lua.LState) int {
	s := argStr(L, 1)
	execOf(L).chargeWork(len(s) >> 3)
	n := 0
	for i := 0; i < len(s); n++ {
		r, w := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && w <= 1 {
			return push(L, lua.LNil, lua.LNumber(i+1))
		}
		i += w
	}
	return push(L, lua.LNumber(n))
}

func utf8Codepoint(L *lua.LState) int {
	s := argStr(L, 1)
	i := fromEnd(optInt(L, 2, 1), len(s))
	j := fromEnd(optInt(L, 3, i), len(s))
	if i < 1 || j > len(s) {
		L.ArgError(2, "out of bounds")
	}
	checkResults(L, max(j-i+1, 0), "codepoint")
	n := 0
	for k := i - 1; k < j; n++ {
		r, w := utf8.DecodeRuneInString(s[k:])
		L.Push(lua.LNumber(r))
		k += w
	}
	return n
}
