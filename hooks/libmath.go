package hooks

import (
	"math"
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
		ctx(L).burn(L.GetTop() >> 2)
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

// fnIntDiv is what a // b becomes.
func fnIntDiv(L *lua.LState) int {
	a, ok1 := toNum(L.Get(1))
	b, ok2 := toNum(L.Get(2))
	if !ok1 || !ok2 {
		L.RaiseError("cannot perform // between %s and %s", typeOf(L.Get(1)), typeOf(L.Get(2)))
	}
	return push(L, lua.LNumber(math.Floor(float64(a)/float64(b))))
}
