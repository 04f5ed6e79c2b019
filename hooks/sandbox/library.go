package sandbox

import (
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	lua "github.com/yuin/gopher-lua"

	"github.com/filaq/fila/hooks/sandbox/source"
)

// All Lua states share the builtins, the library tables and the metatable of
// strings: nothing can write to them (exec.beforeWrite), and they have no
// environment.

func goFunc(f lua.LGFunction) *lua.LFunction { return &lua.LFunction{IsG: true, GFunction: f} }

// Set by init, because the builtins that they hold refer to them.
var fnNext, fnIpairs, fnProtect *lua.LFunction

var (
	baseFunctions []libEntry // globals, in the order in which they are set
	libraryTables = map[*lua.LTable]tableKind{}
	stringMeta    *lua.LTable
	helpers       = map[string]*lua.LFunction{} // what rewritten code calls
)

type libEntry struct {
	name string
	v    lua.LValue
}

func init() {
	fnNext, fnIpairs, fnProtect = goFunc(baseNext), goFunc(ipairsNext), goFunc(protect)
	globals := entries{
		"assert": baseAssert, "error": baseError, "pcall": basePCall, "xpcall": baseXPCall,
		"getmetatable": baseGetMetatable, "setmetatable": baseSetMetatable,
		"ipairs": baseIpairs, "pairs": basePairs, "next": fnNext,
		"rawequal": baseRawEqual, "rawget": baseRawGet, "rawset": baseRawSet, "rawlen": baseRawLen,
		"select": baseSelect, "tonumber": baseToNumber, "tostring": baseToString, "type": baseType,
		"unpack": tabUnpack, "print": basePrint, "collectgarbage": baseCollectGarbage,
		"_VERSION": lua.LString("Lua 5.1"),
	}
	for name, library := range libraries() {
		t := library.readOnlyTable()
		globals[name] = t
		if name == "string" {
			stringMeta = entries{"__index": t, "__metatable": lua.LFalse}.readOnlyTable()
		}
	}
	for _, name := range slices.Sorted(maps.Keys(globals)) {
		baseFunctions = append(baseFunctions, libEntry{name, asValue(globals[name])})
	}
	for name, f := range map[string]lua.LGFunction{
		"set": fnSet, "setglobal": fnSetGlobal, "setkeys": fnSetKeys,
		"charge": fnCharge, "charged": fnCharged, "spread": fnSpread,
		"markouter": fnMarkOuter, "markinner": fnMarkInner, "concat": fnConcat, "idiv": fnIntDiv, "box": fnBox,
	} {
		helpers[name] = goFunc(f)
	}
}

// entries are builtins and constants by name: functions or Lua values.
type entries map[string]any

func asValue(v any) lua.LValue {
	switch v := v.(type) {
	case lua.LGFunction:
		return goFunc(v)
	case func(*lua.LState) int:
		return goFunc(v)
	}
	return v.(lua.LValue)
}

func (e entries) readOnlyTable() *lua.LTable {
	t := &lua.LTable{Metatable: lua.LNil}
	for _, name := range slices.Sorted(maps.Keys(e)) {
		t.RawSetString(name, asValue(e[name]))
	}
	libraryTables[t] = readOnly
	return t
}

// newGlobals makes a fresh table of globals.
func newGlobals() *lua.LTable {
	t := &lua.LTable{Metatable: lua.LNil}
	for _, e := range baseFunctions {
		t.RawSetString(e.name, e.v)
	}
	t.RawSetString("_G", t)
	return t
}

func libraries() map[string]entries {
	return map[string]entries{
		"string": {
			"byte": strByte, "char": strChar, "find": strFind, "format": strFormat, "gmatch": strGmatch,
			"gsub": strGsub, "len": strLen, "lower": strLower, "match": strMatch, "rep": strRep,
			"reverse": strReverse, "sub": strSub, "upper": strUpper,
		},
		"table": {
			"concat": tabConcat, "insert": tabInsert, "remove": tabRemove, "sort": tabSort,
			"unpack": tabUnpack, "pack": tabPack, "getn": tabLen, "maxn": tabLen,
		},
		"math": mathLibrary(),
		"os":   {"time": osTime, "clock": osClock},
		"fila": {"get": filaGet, "backoff": filaBackoff, "hash": filaHash, "log": filaLog},
		"utf8": {
			"char": utf8Char, "len": utf8Len, "codepoint": utf8Codepoint,
			"charpattern": lua.LString("[\x01-\x7F\xC2-\xFD][\x80-\xBF]*"),
		},
		"bit32": bitLibrary(),
	}
}

func mathLibrary() entries {
	return entries{
		"abs": math1(math.Abs), "acos": math1(math.Acos), "asin": math1(math.Asin),
		"atan": math1(math.Atan), "atan2": math2(math.Atan2), "ceil": math1(math.Ceil),
		"cos": math1(math.Cos), "cosh": math1(math.Cosh), "exp": math1(math.Exp), "floor": math1(math.Floor),
		"deg":  math1(func(f float64) float64 { return f * 180 / math.Pi }),
		"rad":  math1(func(f float64) float64 { return f * math.Pi / 180 }),
		"fmod": math2(math.Mod), "pow": math2(math.Pow),
		"ldexp": math2(func(a, b float64) float64 { return math.Ldexp(a, toInt(b)) }),
		"log":   mathLog, "log10": math1(math.Log10), "sin": math1(math.Sin), "sinh": math1(math.Sinh),
		"sqrt": math1(math.Sqrt), "tan": math1(math.Tan), "tanh": math1(math.Tanh),
		"modf": mathModf, "frexp": mathFrexp,
		"max":    mathFold(func(a, b float64) bool { return a > b }),
		"min":    mathFold(func(a, b float64) bool { return a < b }),
		"random": mathRandom, "randomseed": mathRandomSeed,
		"tointeger": mathToInteger, "type": mathType,
		"pi": lua.LNumber(math.Pi), "huge": lua.LNumber(math.Inf(1)),
		"maxinteger": lua.LNumber(1 << 53), "mininteger": lua.LNumber(-(1 << 53)),
	}
}

// push returns values from a builtin, which returns their number.
func push(L *lua.LState, vs ...lua.LValue) int {
	for _, v := range vs {
		L.Push(v)
	}
	return len(vs)
}

// callScript calls a function of the script and returns its first result.
func callScript(L *lua.LState, fn lua.LValue, args ...lua.LValue) lua.LValue {
	L.Push(fn)
	L.Call(push(L, args...), 1)
	return pop(L)
}

func pop(L *lua.LState) lua.LValue {
	v := L.Get(-1)
	L.Pop(1)
	return v
}

// argStr returns the string or number at argument i as a string.
func argStr(L *lua.LState, i int) string {
	s, ok := asText(L.Get(i))
	if !ok {
		L.TypeError(i, lua.LTString)
	}
	return s
}

// asText converts a string or number to a string.
func asText(v lua.LValue) (s string, ok bool) {
	switch v := v.(type) {
	case lua.LString:
		return string(v), true
	case lua.LNumber:
		return fmtNum(v), true
	}
	return "", false
}

// textSize is an upper bound of the length of asText, in bytes.
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
	if len(s) > source.MaxNumeral {
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
// value wraps around. NaN is 0.
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

// fmtNum formats a number as Lua does: integers in full, others with 14 digits.
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

// checkResults must be called before a builtin pushes n results.
func checkResults(L *lua.LState, n int, name string) {
	if n > maxResults {
		L.RaiseError("too many results to %s (at most %d)", name, maxResults)
	}
	execOf(L).chargeWork(n >> 2)
}

// fromEnd resolves a position in l bytes; a negative one counts from the end.
func fromEnd(p, l int) int {
	switch {
	case p >= 0:
		return p
	case -p > l:
		return 0
	}
	return l + p + 1
}
