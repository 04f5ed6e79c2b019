package hooks

import (
	"math"
	"slices"
	"strings"

	lua "github.com/yuin/gopher-lua"
)

// The builtins, the library tables and the metatable of strings are made once
// and shared by all states: nothing can write to them (exec.touch), and they
// have no environment.

type lib map[string]lua.LValue

func goFunc(f lua.LGFunction) *lua.LFunction { return &lua.LFunction{IsG: true, GFunction: f} }

// These refer to builtins that refer to them.
var fnNext, fnIpairs, fnProtect *lua.LFunction

var (
	baseFunctions []libEntry // globals, in the order in which they are set
	libraryTables = map[*lua.LTable]guardKind{}
	stringMeta    *lua.LTable
	helpers       map[string]*lua.LFunction // what rewritten code calls
)

type libEntry struct {
	name string
	v    lua.LValue
}

func init() {
	fnNext, fnIpairs, fnProtect = goFunc(baseNext), goFunc(ipairsNext), goFunc(protect)
	for name, f := range map[string]lua.LGFunction{
		"assert": baseAssert, "error": baseError, "pcall": basePCall, "xpcall": baseXPCall,
		"getmetatable": baseGetMetatable, "setmetatable": baseSetMetatable,
		"ipairs": baseIpairs, "pairs": basePairs,
		"rawequal": baseRawEqual, "rawget": baseRawGet, "rawset": baseRawSet, "rawlen": baseRawLen,
		"select": baseSelect, "tonumber": baseToNumber, "tostring": baseToString, "type": baseType,
		"unpack": tabUnpack, "print": basePrint, "collectgarbage": baseCollectGarbage,
	} {
		baseFunctions = append(baseFunctions, libEntry{name, goFunc(f)})
	}
	baseFunctions = append(baseFunctions, libEntry{"next", fnNext}, libEntry{"_VERSION", lua.LString("Lua 5.1")})
	for name, entries := range libraries() {
		t := &lua.LTable{Metatable: lua.LNil}
		for k, v := range entries {
			t.RawSetString(k, v)
		}
		libraryTables[t] = readOnly
		baseFunctions = append(baseFunctions, libEntry{name, t})
		if name == "string" {
			stringMeta = &lua.LTable{Metatable: lua.LNil}
			stringMeta.RawSetString("__index", t)
			stringMeta.RawSetString("__metatable", lua.LFalse)
			libraryTables[stringMeta] = readOnly
		}
	}
	slices.SortFunc(baseFunctions, func(a, b libEntry) int { return strings.Compare(a.name, b.name) })
	helpers = map[string]*lua.LFunction{
		"set": goFunc(fnSet), "setglobal": goFunc(fnSetGlobal), "setkeys": goFunc(fnSetKeys),
		"charge": goFunc(fnCharge), "charged": goFunc(fnCharged), "spread": goFunc(fnSpread),
		"mark0": goFunc(fnMark0), "mark1": goFunc(fnMark1),
		"concat": goFunc(fnConcat), "idiv": goFunc(fnIntDiv),
		"box": goFunc(fnBox),
	}
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

func libraries() map[string]lib {
	return map[string]lib{
		"string": functions(map[string]lua.LGFunction{
			"byte": strByte, "char": strChar, "find": strFind, "format": strFormat, "gmatch": strGmatch,
			"gsub": strGsub, "len": strLen, "lower": strLower, "match": strMatch, "rep": strRep,
			"reverse": strReverse, "sub": strSub, "upper": strUpper,
		}),
		"table": functions(map[string]lua.LGFunction{
			"concat": tabConcat, "insert": tabInsert, "remove": tabRemove, "sort": tabSort,
			"unpack": tabUnpack, "pack": tabPack, "getn": tabLen, "maxn": tabLen,
		}),
		"math": mathLibrary(),
		"os":   functions(map[string]lua.LGFunction{"time": osTime, "clock": osClock}),
		"fila": functions(map[string]lua.LGFunction{
			"get": filaGet, "backoff": filaBackoff, "hash": filaHash, "log": filaLog,
		}),
		"utf8": functions(map[string]lua.LGFunction{"char": utf8Char, "len": utf8Len, "codepoint": utf8Codepoint}).
			with("charpattern", lua.LString("[\x01-\x7F\xC2-\xFD][\x80-\xBF]*")),
		"bit32": functions(map[string]lua.LGFunction{
			"band":   bits(^uint32(0), func(a, b uint32) uint32 { return a & b }),
			"bor":    bits(0, func(a, b uint32) uint32 { return a | b }),
			"bxor":   bits(0, func(a, b uint32) uint32 { return a ^ b }),
			"lshift": shift(true), "rshift": shift(false),
			"bnot": func(L *lua.LState) int {
				L.Push(lua.LNumber(^uint32(int64(argInt(L, 1))))) //nolint:gosec // modulo 2^32 is meant
				return 1
			},
		}),
	}
}

func functions(m map[string]lua.LGFunction) lib {
	l := lib{}
	for k, f := range m {
		l[k] = goFunc(f)
	}
	return l
}

func (l lib) with(name string, v lua.LValue) lib {
	l[name] = v
	return l
}

func mathLibrary() lib {
	return functions(map[string]lua.LGFunction{
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
		"random": mathRandom, "randomseed": func(*lua.LState) int { return 0 }, // the generator is shared
		"tointeger": mathToInteger, "type": mathType,
	}).with("pi", lua.LNumber(math.Pi)).with("huge", lua.LNumber(math.Inf(1))).
		with("maxinteger", lua.LNumber(1<<53)).with("mininteger", lua.LNumber(-(1 << 53)))
}
