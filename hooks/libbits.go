package hooks

import (
	"math/bits"

	lua "github.com/yuin/gopher-lua"
)

// bitLibrary is bit32 of Lua 5.2: numbers are taken modulo 2^32, results are from 0
// to 2^32-1.
func bitLibrary() entries {
	and := func(a, b uint32) uint32 { return a & b }
	return entries{
		"band":  bitFold(^uint32(0), and),
		"bor":   bitFold(0, func(a, b uint32) uint32 { return a | b }),
		"bxor":  bitFold(0, func(a, b uint32) uint32 { return a ^ b }),
		"btest": func(L *lua.LState) int { return push(L, lua.LBool(foldBits(L, ^uint32(0), and) != 0)) },
		"bnot":  func(L *lua.LState) int { return push(L, lua.LNumber(^argBits(L, 1))) },

		"lshift":  bitShift(func(v uint32, n int) uint32 { return shiftLeft(v, n) }),
		"rshift":  bitShift(func(v uint32, n int) uint32 { return shiftLeft(v, -n) }),
		"arshift": bitShift(arithmeticShift),
		"lrotate": bitShift(func(v uint32, n int) uint32 { return bits.RotateLeft32(v, n&31) }),
		"rrotate": bitShift(func(v uint32, n int) uint32 { return bits.RotateLeft32(v, -(n & 31)) }),

		"extract": bitExtract, "replace": bitReplace,
	}
}

func argBits(L *lua.LState, i int) uint32 {
	return uint32(int64(argInt(L, i))) //nolint:gosec // modulo 2^32 is meant
}

func bitFold(start uint32, f func(a, b uint32) uint32) lua.LGFunction {
	return func(L *lua.LState) int { return push(L, lua.LNumber(foldBits(L, start, f))) }
}

// foldBits applies f to start and all arguments, one after the other.
func foldBits(L *lua.LState, start uint32, f func(a, b uint32) uint32) uint32 {
	r := start
	for i := 1; i <= L.GetTop(); i++ {
		r = f(r, argBits(L, i))
	}
	ctx(L).burn(L.GetTop() >> 2)
	return r
}

func bitShift(f func(v uint32, n int) uint32) lua.LGFunction {
	return func(L *lua.LState) int { return push(L, lua.LNumber(f(argBits(L, 1), argInt(L, 2)))) }
}

// shiftLeft shifts to the right if n is negative.
func shiftLeft(v uint32, n int) uint32 {
	if n < 0 {
		return v >> -n
	}
	return v << n
}

// arithmeticShift shifts to the right and copies the highest bit; to the left if n is
// negative.
func arithmeticShift(v uint32, n int) uint32 {
	if n < 0 {
		return v << -n
	}
	return uint32(int32(v) >> n) //nolint:gosec // two's complement is meant
}

func bitExtract(L *lua.LState) int {
	from, mask := argField(L, 2)
	return push(L, lua.LNumber(argBits(L, 1)>>from&mask))
}

func bitReplace(L *lua.LState) int {
	from, mask := argField(L, 3)
	return push(L, lua.LNumber(argBits(L, 1)&^(mask<<from)|argBits(L, 2)&mask<<from))
}

// argField reads the first bit of a field at argument i and its width, by default 1,
// behind it. mask has as many low bits as the field.
func argField(L *lua.LState, i int) (from int, mask uint32) {
	from = argInt(L, i)
	width := optInt(L, i+1, 1)
	switch {
	case from < 0 || from > 31:
		L.ArgError(i, "bits are 0 to 31")
	case width < 1 || width > 32-from:
		L.ArgError(i+1, "a field has 1 bit or more, and ends at bit 31")
	}
	return from, ^uint32(0) >> (32 - width)
}
