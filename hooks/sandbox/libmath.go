package sandbox

import (
	"math"
	"math/bits"
	"math/rand/v2"

	lua "github.com/yuin/gopher-lua"
)

func math1(f func(float64) float64) lua.LGFunction {
	return func(L *lua.LState) int {
		return push(L, lua.LNumber(f(argNum(L, 1))))
	}
}

func math2(f func(a, b float64) float64) lua.LGFunction {
	return func(L *lua.LState) int {
		return push(L, lua.LNumber(f(argNum(L, 1), argNum(L, 2))))
	}
}

func mathFold(pick func(a, b float64) bool) lua.LGFunction {
	return func(L *lua.LState) int {
		r := argNum(L, 1)
		for i := 2; i <= L.GetTop(); i++ {
			if v := argNum(L, i); pick(v, r) {
				r = v
			}
		}
		execOf(L).chargeWork(L.GetTop() >> 2)
		return push(L, lua.LNumber(r))
	}
}

func mathRandom(L *lua.LState) int {
	if L.GetTop() == 0 {
		return push(L, lua.LNumber(rand.Float64()))
	}
	lo, hi := 1, argInt(L, 1)
	if L.GetTop() >= 2 {
		lo, hi = hi, argInt(L, 2)
	}
	if lo > hi {
		L.ArgError(1, "interval is empty")
	}
	return push(L, lua.LNumber(lo+rand.IntN(hi-lo+1)))
}

// mathRandomSeed does nothing: the generator is shared.
func mathRandomSeed(*lua.LState) int { return 0 }

func mathModf(L *lua.LState) int {
	i, f := math.Modf(argNum(L, 1))
	return push(L, lua.LNumber(i), lua.LNumber(f))
}

func mathFrexp(L *lua.LState) int {
	f, e := math.Frexp(argNum(L, 1))
	return push(L, lua.LNumber(f), lua.LNumber(e))
}

func isInt(f float64) bool { return f == math.Trunc(f) && math.Abs(f) <= 1<<53 }

func mathToInteger(L *lua.LState) int {
	if n, ok := toNum(L.Get(1)); ok && isInt(float64(n)) {
		return push(L, n)
	}
	return push(L, lua.LNil)
}

func mathType(L *lua.LState) int {
	n, ok := L.CheckAny(1).(lua.LNumber)
	switch {
	case !ok:
		return push(L, lua.LNil)
	case isInt(float64(n)):
		return push(L, lua.LString("integer"))
	}
	return push(L, lua.LString("float"))
}

func mathLog(L *lua.LState) int {
	v := math.Log(argNum(L, 1))
	if L.Get(2) != lua.LNil {
		v /= math.Log(argNum(L, 2))
	}
	return push(L, lua.LNumber(v))
}

// fnIntDiv is the helper for a // b.
func fnIntDiv(L *lua.LState) int {
	a, ok1 := toNum(L.Get(1))
	b, ok2 := toNum(L.Get(2))
	if !ok1 || !ok2 {
		L.RaiseError("cannot perform // between %s and %s", typeOf(L.Get(1)), typeOf(L.Get(2)))
	}
	return push(L, lua.LNumber(math.Floor(float64(a)/float64(b))))
}

// bitLibrary is bit32 of Lua 5.2: arguments are reduced modulo 2^32, and results are
// from 0 to 2^32-1.
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
	execOf(L).chargeWork(L.GetTop() >> 2)
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

// argField reads a bit field: its first bit at argument i and its width, by default 1,
// at argument i+1. mask has as many low bits as the field.
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
