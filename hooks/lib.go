package hooks

import (
	"maps"
	"math"
	"slices"

	lua "github.com/yuin/gopher-lua"
)

// The builtins, the library tables and the metatable of strings are made once
// and shared by all states: nothing can write to them (exec.touch), and they
// have no environment.

func goFunc(f lua.LGFunction) *lua.LFunction { return &lua.LFunction{IsG: true, GFunction: f} }

// These refer to builtins that refer to them.
var fnNext, fnIpairs, fnProtect *lua.LFunction

var (
	baseFunctions []libEntry // globals, in the order in which they are set
	libraryTables = map[*lua.LTable]guardKind{}
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
		"mark0": fnMark0, "mark1": fnMark1, "concat": fnConcat, "idiv": fnIntDiv, "box": fnBox,
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
