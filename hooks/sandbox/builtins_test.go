package sandbox

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestExpressions evaluates Lua expressions; ok is tostring of the result, or
// the text that the error contains.
func TestExpressions(t *testing.T) {
	for expr, want := range map[string]string{
		// Lua 5.4
		`7 // 2`: "3", `-7 // 2`: "-4", `7.5 // 2 * 2`: "6", `"7" // 2`: "3", `2 * 7 // 3`: "4", `pcall(function() return {} // 1 end)`: "false",
		`#table.pack(1, nil, 3) .. table.pack(1, nil, 3).n`: "33", `(select("#", table.unpack({1, 2, 3})))`: "3",
		`utf8.len("añb")`: "3", `utf8.char(72, 228, 8364)`: "Hä€", `utf8.codepoint("€")`: "8364", `select("#", utf8.len("\xff"))`: "2",
		`math.tointeger(3.0)`: "3", `math.tointeger(3.5)`: "nil", `math.type(1)`: "integer", `math.type(1.5)`: "float", `math.type("1")`: "nil",
		`string.format("%d", 3.0)`: "3", `"\u{48}\u{20AC}\x41"`: "H€A", "\"a\\z\n   b\"": "ab", `"//" .. '<const>'`: "//<const>", `1 --[[ // ]] + 1`: "2",
		`[[a // b]]`: "a // b", `[==[ ]] ]==]`: " ]] ", `1 < 2`: "true", `1 ~= 2`: "true", `"\"\\" .. '//'`: `"\//`,
		// numbers
		`0.1 + 0.2`: "0.3", `1e15`: "1000000000000000", `2^53`: "9007199254740992", `1e100`: "1e+100", `1/3`: "0.33333333333333", `-0.5`: "-0.5", `1/0`: "inf", `-1/0`: "-inf", `tostring(0/0)`: "nan",
		`tostring({})`: "table: ?", `tostring(print)`: "function: ?",
		`tonumber("0x10")`: "16", `tonumber("1e2")`: "100", `tonumber(" 5 ")`: "5", `tonumber("5x")`: "nil", `tonumber("")`: "nil", `tonumber("inf")`: "nil", `tonumber("nan")`: "nil", `tonumber("1_000")`: "nil", `tonumber("--1")`: "nil",
		`tonumber("ff", 16)`: "255", `tonumber("zz", 36)`: "1295", `tonumber("9", 8)`: "nil", `tonumber(("1"):rep(201))`: "nil", `tonumber("0x1p4")`: "16",
		`math.floor(-1.5)`: "-2", `math.max(1, 5, 3)`: "5", `math.fmod(7, 3)`: "1", `10 % 3`: "1", `-1 % 3`: "2", `math.modf(3.7)`: "3", `math.huge > 1`: "true", `math.abs(-3)`: "3", `select(2, math.frexp(8))`: "4",
		`bit32.band(6, 3)`: "2", `bit32.bor(6, 3)`: "7", `bit32.bxor(6, 3)`: "5", `bit32.bnot(0)`: "4294967295", `bit32.lshift(1, 4)`: "16", `bit32.rshift(16, 4)`: "1", `bit32.lshift(16, -4)`: "1", `bit32.lshift(1, 32)`: "0", `bit32.band()`: "4294967295",
		`bit32.band(0xF0F0F0F0, 0xFF00FF00, -1)`: "4026593280", `bit32.btest(6, 3)`: "true", `bit32.btest(4, 3)`: "false", `bit32.btest()`: "true", `bit32.bnot(-1)`: "0", `bit32.bor(2^32 + 1)`: "1",
		`bit32.arshift(0x80000000, 4)`: "4160749568", `bit32.arshift(0x40000000, 4)`: "67108864", `bit32.arshift(0x80000000, 40)`: "4294967295", `bit32.arshift(0x7fffffff, 40)`: "0", `bit32.arshift(1, -31)`: "2147483648", `bit32.arshift(-1, -32)`: "0",
		`bit32.lrotate(0x80000001, 1)`: "3", `bit32.lrotate(0x12345678, 36)`: "591751041", `bit32.lrotate(3, -1)`: "2147483649", `bit32.rrotate(3, 1)`: "2147483649", `bit32.rrotate(0x12345678, -4)`: "591751041", `bit32.rrotate(7, 32)`: "7",
		`bit32.extract(0x12345678, 4, 8)`: "103", `bit32.extract(0x80000000, 31)`: "1", `bit32.extract(0xdeadbeef, 0, 32)`: "3735928559", `bit32.replace(0x12345678, 0xAB, 4, 8)`: "305420984", `bit32.replace(0, 3, 31)`: "2147483648", `bit32.replace(-1, 0, 0, 32)`: "0",
		`bit32.extract(1, 32)`: "bits are 0 to 31", `bit32.extract(1, -1)`: "bits are 0 to 31", `bit32.extract(1, 30, 3)`: "ends at bit 31", `bit32.extract(1, 0, 0)`: "1 bit or more", `bit32.replace(1, 2)`: "bad argument #3 to replace", `bit32.lshift(1)`: "bad argument #2 to lshift", `bit32.lshift(1, 2^60)`: "0", `bit32.rshift(1, -2^60)`: "0",
		// strings
		`("x"):rep(3, "-")`: "x-x-x", `("abc"):sub(-2)`: "bc", `("abc"):sub(2, 10)`: "bc", `("abc"):sub(3, 2)`: "", `("aBc"):upper() .. ("AbC"):lower()`: "ABCabc", `("abc"):reverse()`: "cba", `#("abc")`: "3", `("abc"):byte(-1)`: "99", `string.char(72, 105)`: "Hi",
		`("k=v; w=x"):gsub("(%w)=(%w)", "%2=%1")`: "v=k; x=w", `("abc"):gsub("", "-")`: "-a-b-c-", `("abc"):gsub("%w", { a = 1, b = true and "B" })`: "1Bc", `("abc"):gsub("b", function() return false end)`: "abc", `("hello world"):find("o w")`: "5", `("a.b"):find(".", 1, true)`: "2", `("x = 1"):match("^(%w+)%s*=%s*(%d+)$")`: "x",
		`("[[x]]"):match("%b[]")`: "[[x]]", `("THE (quick) fox"):find("%((%a+)%)")`: "5", `("hello"):match(".-(l+)")`: "ll", `("abcabc"):match("(abc)%1")`: "abc", `("THE fox"):gsub("%f[%a]%a+", "w")`: "w w", `("  x "):match("^%s*(.-)%s*$")`: "x", `("a-b"):match("[a%-]+")`: "a-", `("]"):match("[]]")`: "]", `("a^"):match("[%^a]+")`: "a^", `("x"):match("()")`: "1", `("äb"):match("[^b]+")`: "ä",
		`string.format("%5.1f|%-5s|%05d|%x|%q|%%|%c|%g", 3.14159, "ab", 42, 255, 'a"b', 65, 1e20)`: `  3.1|ab   |00042|ff|"a\"b"|%|A|1e+20`, `string.format("%s %s", 1, {} ~= nil)`: "1 true", `string.format("%10.3s|", "abcdef")`: "       abc|", `string.format("%i %u", 3.9, 7)`: "3 7", `string.format("%e", 12345.678)`: "1.234568e+04",
		`"a" .. 1 .. 2.5`: "a12.5", `1 .. ""`: "1", `("x"):len()`: "1", `("%d"):format("10")`: "10",
		// tables
		`table.concat({1, 2, "x"}, "-")`: "1-2-x", `table.concat({}, "-")`: "", `table.concat({1, 2, 3}, ",", 2, 3)`: "2,3", `(function() local t = {3, 1, 2} table.sort(t) return table.concat(t) end)()`: "123", `(function() local t = {3, 1, 2} table.sort(t, function(a, b) return a > b end) return table.concat(t) end)()`: "321",
		`(function() local t = {1, 2, 3} table.insert(t, 2, 9) table.remove(t, 1) return table.concat(t, ",") end)()`: "9,2,3", `table.remove({})`: "nil", `(function() local t = {1, 2} table.remove(t) table.insert(t, 5) return #t .. t[2] end)()`: "25", `select(-1, 1, 2, 3)`: "3", `select("#")`: "0", `#{n = 1, 2, 3}`: "2", `({[1] = "a", [2] = "b"})[2]`: "b", `#{[1] = "a", [2] = "b"}`: "2", `({f = 1, ["g"] = 2, [3] = 3}).g`: "2", `next({})`: "nil", `rawlen({1, 2})`: "2", `rawequal("a", "a")`: "true", `rawget(setmetatable({}, {__index = {x = 1}}), "x")`: "nil", `#{unpack({1, 2, 3})}`: "3", `#{(unpack({1, 2, 3}))}`: "1", `#{unpack({1, 2}), unpack({1, 2})}`: "3",
		// assignments
		`(function(x) x = x .. "b" return x end)("a")`: "ab", `(function(x, y) y, x = x, (tostring(y)) return x .. y end)(1, 2)`: "21", `(function() local a, b, c = (function() return 1, 2, 3 end)() return a + b + c end)()`: "6", `(function() local t, i = {}, 1 i, t[i] = 2, "x" return t[1] .. i end)()`: "x2", `(function() local t = {} t.a, t.b = (function() return 1, 2 end)() return t.a + t.b end)()`: "3", `(function() local t = {} function t.x.y() end end)()`: "attempt to index", `(function() local o = { n = 1 } function o:add(k) self.n = self.n + k return self.n end return o:add(2) end)()`: "3",
		`(function(...) local a = ... return a end)(7, 8)`: "7", `(function(...) return select("#", ...) end)(nil, nil)`: "2", `(function() local a <const>, b <close> = 1, 2 return a + b end)()`: "3",
		`(function() for i = 3, 1, -1 do if i == 2 then return i end end end)()`: "2", `(function() local n = 0 for k, v in pairs({ a = 1, b = 2, 3 }) do n = n + v end return n end)()`: "6", `(function() local s = "" for w in ("a b c"):gmatch("%a") do s = w .. s end return s end)()`: "cba", `(function() local i = 0 repeat local j = i i = i + 1 until j == 3 return i end)()`: "4", `(function() for i = 1, 3 do for j = 1, 3 do if j == 2 then goto next end end ::next:: end return "done" end)()`: "done",
		// metamethods
		`setmetatable({}, {__concat = function(a, b) return "cat" end}) .. "x"`: "cat", `"x" .. setmetatable({}, {__concat = function(a, b) return a .. "y" end})`: "xy", `tostring(setmetatable({}, {__tostring = function() return "me" end}))`: "me", `setmetatable({}, {__index = function(_, k) return k .. "!" end}).foo`: "foo!", `(function() local log = {} local t = setmetatable({}, {__newindex = function(t, k, v) rawset(t, k, v * 2) end}) t.x = 4 t.x = 5 return t.x end)()`: "5", `setmetatable({}, {__call = function(_, a) return a end})(9)`: "9", `getmetatable(setmetatable({}, {__metatable = "locked"}))`: "locked", `setmetatable(setmetatable({}, {__metatable = 1}), {})`: "protected metatable", `-setmetatable({}, {__unm = function() return 5 end})`: "5", `setmetatable({}, {__add = function() return "sum" end}) + 1`: "sum", `#setmetatable({}, {__len = function() return 42 end})`: "42", `setmetatable({}, {__eq = function() return true end}) == {}`: "false", `getmetatable("").__index`: "attempt to index",
		// errors
		`select(2, pcall(error, "x"))`: "x", `select(2, pcall(error, { code = 7 })).code`: "7", `select(2, pcall(error))`: "nil", `(select(2, pcall(function() error("at") end)))`: "s:1: at", `(select(2, pcall(function() error("at", 0) end)))`: "at", `select(2, xpcall(function() error("x", 0) end, function(e) return e .. "!" end))`: "x!", `xpcall(function(a) return a end, print, 5)`: "true", `select(2, pcall(assert, false, "no"))`: "no", `select(2, pcall(assert, nil))`: "assertion failed!", `assert(1, "x")`: "1", `pcall(nil)`: "false", `nil .. "x"`: "attempt to concatenate a nil value", `{} .. "x"`: "attempt to concatenate", `("x"):bad()`: "attempt to call", `nil + 1`: "cannot perform add",
		`(nil)[{}]`: "attempt to index a non-table object(nil) with key 'table: ?'", `(nil)[print]`: "with key 'function: ?'", `select(2, pcall(function() local n n[{}] = 1 end))`: "s:1: attempt to index a nil value with key 'table: ?'",
		`(nil)["table: 0x1g"]`: "with key 'table: 0x1g'", `select(2, pcall(error, "table: 0x1f", 0))`: "table: 0x1f", `(nil)[1]`: "with key '1'", `(nil)[true]`: "with key 'true'",
		`("x"):rep(-1)`: "", `unpack({}, 1, 2000)`: "too many results", `string.format("%y", 1)`: "invalid option", `string.format("%d")`: "no value", `string.format("%")`: "invalid format", `string.char(256)`: "out of range", `("x"):match("(")`: "unfinished capture", `("x"):match("[a")`: "missing ']'", `("x"):match("%")`: "ends with '%'", `("x"):gsub("x", "%2")`: "invalid capture index", `("x"):gsub("x", {x = {}})`: "invalid replacement value", `table.insert({}, 5, 1)`: "out of bounds", `table.concat({1, {}, 3})`: "invalid value (table) at index 2", `setmetatable(1, {})`: "table expected", `math.random(0)`: "interval is empty", `tonumber("1", 99)`: "base out of range",
		// locals that closures share, and caught errors
		`(function() local n = 0 local f = function() n = n + 1 end pcall(error) f() f() return n end)()`: "2", `(function() local n = 0 local f = function() return n end pcall(error) n = 5 return f() end)()`: "5",
		`(function(p) local f = function() p = p .. "b" end pcall(error) f() return p end)("a")`: "ab", `(function() local t = {} for i = 1, 2 do t[i] = function() i = i + 1 return i end end pcall(error) return t[1]() .. t[1]() .. t[2]() end)()`: "233",
		`(function() local function f(n) if n == 0 then return "end" end return f(n - 1) end pcall(error) local g = f f = nil return tostring(pcall(g, 3)) end)()`: "false", `(function() local f f = function(n) return n == 0 and "ok" or f(n - 1) end pcall(error) return f(3) end)()`: "ok",
		`(function() local a, b = 1, 2 local f = function() a, b = b, a end xpcall(error, print) f() return a .. b end)()`: "21", `(function() local s = "" for k, v in pairs({ 5 }) do local f = function() k, v = v, k end pcall(error) f() s = k .. v end return s end)()`: "51", `(function() local n = 0 pcall(function() n = 1 error("x") end) return n end)()`: "1", `(function() local n repeat local m = n or 0 local f = function() m = m + 1 end pcall(error) f() n = m until m == 3 return n end)()`: "3",
		// fila
		`fila.backoff(1, 1000, 60000)`: "1000", `fila.backoff(4, 1000, 60000)`: "8000", `fila.backoff(10, 1000, 60000)`: "60000", `fila.backoff(0, 5, 10)`: "5", `fila.backoff(1e9, 1, 1e6)`: "1000000", `fila.backoff(0/0, 3, 9)`: "3", `fila.backoff(1, -1, 1)`: "must be 0 or more", `fila.hash("acme", 16)`: "15", `fila.hash("", 1)`: "0", `fila.hash("x", 0)`: "1 or more", `fila.get("k")`: "v", `fila.get("none")`: "nil", `fila.log("x")`: "nil",
		`type(os.time()) .. type(os.clock())`: "numbernumber", `collectgarbage()`: "0", `type(collectgarbage("count"))`: "number", `_VERSION`: "Lua 5.1", `_G._G == _G`: "true", `type(print)`: "function", `math.randomseed(1)`: "nil", `math.random(3, 3)`: "3", `math.random() < 1`: "true",
		// gone
		`io or debug or coroutine or channel or require or load or loadstring or dofile or loadfile or setfenv or getfenv or newproxy or package or module or _printregs or string.dump or os.exit or os.execute or os.getenv or os.remove or math.evil or arg`: "nil",
	} {
		t.Run(expr, func(t *testing.T) {
			got, failed := evaluate(t, expr)
			if failed {
				require.Contains(t, got, want)
			} else {
				require.Equal(t, want, got)
			}
		})
	}
}

// evaluate returns tostring of the first value of an expression, or its error.
func evaluate(t *testing.T, expr string) (text string, failed bool) {
	t.Helper()
	h := newHook(t, onEnqueue, "function on_enqueue(m) local r = "+expr+"\nreturn { r = tostring(r) } end", Limits{})
	res := h.run(&message{})
	if res.Err != nil {
		return res.Err.Message, true
	}
	return res.field("r").(string), false
}

// TestReadOnlyLibraries tries to write to each library table in each way.
func TestReadOnlyLibraries(t *testing.T) {
	for _, lib := range []string{"string", "table", "math", "os", "utf8", "bit32", "fila"} {
		for _, write := range []string{
			lib + ".x = 1", `rawset(` + lib + `, "x", 1)`, "table.insert(" + lib + ", 1)", "table.sort(" + lib + ")", "setmetatable(" + lib + ", {})",
			"table.remove(" + lib + ")", "function " + lib + ".x() end", "local a a, " + lib + ".x = 1, 2",
			"setmetatable({}, { __newindex = " + lib + " }).x = 1",
		} {
			got, failed := evaluate(t, `"ok" `+write)
			require.True(t, failed, write)
			require.Contains(t, got, "read-only", write)
		}
	}
}
