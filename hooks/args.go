package hooks

import (
	"math"
	"strconv"
	"strings"

	lua "github.com/yuin/gopher-lua"
)

// push returns values from a builtin.
func push(L *lua.LState, vs ...lua.LValue) int {
	for _, v := range vs {
		L.Push(v)
	}
	return len(vs)
}

// ask calls a function of the script and returns its first result.
func ask(L *lua.LState, fn lua.LValue, args ...lua.LValue) lua.LValue {
	L.Push(fn)
	L.Call(push(L, args...), 1)
	return pop(L)
}

func pop(L *lua.LState) lua.LValue {
	v := L.Get(-1)
	L.Pop(1)
	return v
}

// argStr is the string or number at argument i as a string.
func argStr(L *lua.LState, i int) string {
	s, ok := asText(L.Get(i))
	if !ok {
		L.TypeError(i, lua.LTString)
	}
	return s
}

// asText is a string or number as a string.
func asText(v lua.LValue) (s string, ok bool) {
	switch v := v.(type) {
	case lua.LString:
		return string(v), true
	case lua.LNumber:
		return fmtNum(v), true
	}
	return "", false
}

// textSize is what asText gives, or more, in bytes.
func textSize(v lua.LValue) (n int, ok bool) {
	switch v := v.(type) {
	case lua.LString:
		return len(v), true
	case lua.LNumber:
		return 24, true
	}
	return 0, false
}

func optStr(L *lua.LState, i int, def string) string {
	if L.Get(i) == lua.LNil {
		return def
	}
	return argStr(L, i)
}

func toNum(v lua.LValue) (lua.LNumber, bool) {
	switch v := v.(type) {
	case lua.LNumber:
		return v, true
	case lua.LString:
		return parseNum(string(v))
	}
	return 0, false
}

// parseNum reads a Lua numeral, decimal or hexadecimal.
func parseNum(s string) (lua.LNumber, bool) {
	if len(s) > maxNumeral {
		return 0, false
	}
	s = strings.Trim(s, " \t\n\r\f\v")
	digits := strings.TrimLeft(s, "+-")
	if digits == "" || len(s)-len(digits) > 1 {
		return 0, false
	}
	if len(digits) > 2 && digits[0] == '0' && digits[1]|32 == 'x' {
		if !strings.ContainsAny(digits, "pP") {
			s += "p0"
		}
	} else if strings.Trim(digits, "0123456789.eE+-") != "" {
		return 0, false // inf, nan
	}
	if strings.Contains(s, "_") {
		return 0, false
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil && !math.IsInf(f, 0) {
		return 0, false
	}
	return lua.LNumber(f), true
}

func argNum(L *lua.LState, i int) float64 {
	n, ok := toNum(L.Get(i))
	if !ok {
		L.TypeError(i, lua.LTNumber)
	}
	return float64(n)
}

// argInt truncates the number at argument i and saturates at 2^53, so that no
// value wraps around to a surprising one. NaN is 0.
func argInt(L *lua.LState, i int) int { return toInt(argNum(L, i)) }

func toInt(f float64) int {
	const most = 1 << 53
	switch {
	case f != f:
		return 0
	case f >= most:
		return most
	case f <= -most:
		return -most
	}
	return int(f)
}

func optInt(L *lua.LState, i, def int) int {
	if L.Get(i) == lua.LNil {
		return def
	}
	return argInt(L, i)
}

// fmtNum prints a number as Lua does: integers in full, others with 14 digits.
func fmtNum(n lua.LNumber) string {
	f := float64(n)
	switch {
	case f != f:
		return "nan"
	case math.IsInf(f, 1):
		return "inf"
	case math.IsInf(f, -1):
		return "-inf"
	case f == math.Trunc(f) && math.Abs(f) <= 1<<53:
		return strconv.FormatInt(int64(f), 10)
	}
	s := strconv.FormatFloat(f, 'g', 14, 64)
	mantissa, exp, hasExp := strings.Cut(s, "e")
	if strings.Contains(mantissa, ".") {
		mantissa = strings.TrimRight(strings.TrimRight(mantissa, "0"), ".")
	}
	if hasExp {
		return mantissa + "e" + exp
	}
	return mantissa
}

// maxResults bounds the values that one builtin pushes.
const maxResults = 1024

func pushRoom(L *lua.LState, n int, what string) {
	if n > maxResults {
		L.RaiseError("too many results to %s (at most %d)", what, maxResults)
	}
	ctx(L).burn(n >> 2)
}

// relPos resolves a position that may count from the end of l bytes.
func relPos(p, l int) int {
	switch {
	case p >= 0:
		return p
	case -p > l:
		return 0
	}
	return l + p + 1
}
