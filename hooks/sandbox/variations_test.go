package sandbox

import "strings"

// variations are hostile scripts besides the corpus. body is the body of
// on_enqueue, unless it defines the function.
var variations = []struct{ name, body string }{
	// time, in single instructions
	{"arith on long strings", `local s = ("7"):rep(65000) while true do local x = s + 1 end`},
	{"arith on two long strings", `local s = ("7"):rep(60000) while true do local x = s * s end`},
	{"minus of a long string", `local s = ("7"):rep(65000) while true do local x = -s end`},
	{"arith on a long constant", `local s = "` + strings.Repeat("7", 60000) + `" while true do local x = s + 1 end`},
	{"arith on a long string made at load", `local s = ("7"):rep(65000) function on_enqueue() while true do local x = s + 1 end end`},
	{"arith on hex", `local s = "0x" .. ("f"):rep(60000) while true do pcall(function() return s + 1 end) end`},
	{"compare long strings", `local a, b = ("x"):rep(65000), ("x"):rep(64999) .. "y" while true do local x = a < b local y = a <= b end`},
	{"equal long strings", `local a, b = ("x"):rep(65000), ("x"):rep(65000) while true do local x = a == b end`},
	{"index by a long key", `local t, s = {}, ("x"):rep(65000) t[s] = 1 while true do local x = t[s] end`},
	{"index chain of 99", `local t = {} local top = t for i = 1, 98 do local n = {} setmetatable(t, {__index = n}) t = n end while true do local x = top.k end`},
	{"newindex chain of 99", `local t = {} local top = t for i = 1, 98 do local n = {} setmetatable(t, {__newindex = n}) t = n end while true do top.k = 1 top.k = nil end`},
	{"newindex cycle", `local a, b = {}, {} setmetatable(a, {__newindex = b}) setmetatable(b, {__newindex = a}) while true do pcall(function() a.x = 1 end) end`},
	{"length of a table with trailing nils, from load", `local t = {} for i = 1, 20000 do t[i] = 1 end for i = 2, 20000 do t[i] = nil end function on_enqueue() while true do local n = #t end end`},
	{"insert at the front", `local t = {} while true do table.insert(t, 1, 1) end`},
	{"remove from the front", `local t = {} for i = 1, 15000 do t[i] = i end while true do table.remove(t, 1) t[#t + 1] = 1 end`},
	{"next over dead keys", `local t = {} for i = 1, 300 do t["k" .. i] = 1 end for i = 2, 300 do t["k" .. i] = nil end while true do for k in pairs(t) do end end`},
	{"unpack and drop", `local t = {} for i = 1, 1000 do t[i] = i end while true do local n = select("#", unpack(t)) end`},
	{"select from the end", `local t = {} for i = 1, 1000 do t[i] = i end local function f(...) while true do local x = select(-1, ...) end end f(unpack(t))`},
	{"goto loop", `::again:: goto again`},
	{"goto over a closure", `::again:: local f = function() return again end goto again`},
	{"empty for over strings", `for i = 1, 1e300 do end`},
	{"for with a negative step", `for i = 1, -1e300, -1e-300 do end`},
	{"repeat with a closure", `repeat local x = {} local f = function() return x end until f() == nil`},
	{"infinite iterator", `for x in function() return 1 end do end`},
	{"generic for over a builtin", `for x in math.random do end`},
	{"generic for over pcall", `for x in pcall, print do end`},
	{"plain find", `local a, b = ("a"):rep(60000), ("a"):rep(30000) .. "b" while true do a:find(b, 1, true) end`},
	{"balanced match", `local a = ("("):rep(60000) while true do a:match("%b()") end`},
	{"frontier", `local a = ("a"):rep(60000) while true do a:find("%f[b]b") end`},
	{"question marks", `return { fairness_key = ("a"):rep(30):match(("a?"):rep(60) .. ("a"):rep(31)) }`},
	{"set with ranges", `local p = "[" .. ("b-c"):rep(10000) .. "]" while true do ("a"):rep(1000):match(p) end`},
	{"captures", `while true do ("abc"):rep(100):gsub("(.)(.)(.)", "%3%2%1") end`},
	{"gmatch of a gmatch", `for a in ("x"):rep(60000):gmatch(".") do for b in ("x"):rep(60000):gmatch(".") do end end`},
	{"gsub with itself", `local function f(s) return (s:gsub(".", f)) end while true do pcall(f, "ab") end`},
	{"gsub with a table that calls gsub", `local t = setmetatable({}, {}) getmetatable(t).__index = function(_, k) return (k:gsub(".", t)) end while true do pcall(string.gsub, "x", ".", t) end`},
	{"hash of a long string", `local s = ("x"):rep(65000) while true do fila.hash(s, 7) end`},
	{"get in a loop", `while true do fila.get("k") end`},
	{"log in a loop", `while true do fila.log(("x"):rep(2000)) print(1, 2, {}) end`},
	{"log of a table whose tostring loops", `fila.log(setmetatable({}, {__tostring = function() while true do end end}))`},
	{"reverse in a loop", `local s = ("ab"):rep(1000) while true do s = s:reverse() end`},
	{"error level", `local function f(n) if n == 0 then error("x", 150) end return 1 + f(n - 1) end while true do pcall(f, 150) end`},

	// handlers that swallow
	{"pcall in tail position", `local function f() return pcall(f) end while true do f() end`},
	{"xpcall with itself", `while true do xpcall(xpcall, xpcall, xpcall, xpcall) end`},
	{"xpcall whose handler fails", `local function h() error(h) end while true do xpcall(error, h, h) end`},
	{"error in a handler in a handler", `local function h(e) return xpcall(error, h, e) end while true do xpcall(error, h, 1) end`},
	{"pcall of a metamethod", `local t = setmetatable({}, {__call = pcall, __index = pcall, __newindex = pcall, __eq = pcall, __lt = pcall, __concat = pcall, __len = pcall, __unm = pcall, __add = pcall, __tostring = pcall}) while true do pcall(t, t) pcall(tostring, t) local _ = t.x _ = pcall(function() return #t, -t, t + t, t .. t, t < t end) end`},
	{"assert of the error", `while true do pcall(assert, false, {}) pcall(assert) pcall(error) end`},
	{"sort with pcall in the comparator", `while true do pcall(table.sort, {3, 2, 1, 5, 4}, function(a, b) pcall(error) return true end) end`},
	{"a result after a kill", `pcall(function() local s = "x" while true do s = s .. s end end) return { fairness_key = "escaped" }`},
	{"a result after a kill in a handler", `xpcall(function() while true do end end, function() return 1 end) return { fairness_key = "escaped" }`},
	{"a result after a kill in gsub", `pcall(string.gsub, "x", ".", function() while true do end end) return { fairness_key = "escaped" }`},

	// recursion through each kind of callback
	{"recursion by __index", `local t = setmetatable({}, {__index = function(t, k) return t[k .. "x"] end}) return t.a`},
	{"recursion by __newindex", `local t = setmetatable({}, {__newindex = function(t, k, v) t[k] = v end}) while true do pcall(function() t.a = 1 end) end`},
	{"recursion by __eq", `local m = {} m.__eq = function(a, b) return a == b end local a, b = setmetatable({}, m), setmetatable({}, m) while true do pcall(function() return a == b end) end`},
	{"recursion by __lt", `local m = {} m.__lt = function(a, b) return a < b end local a, b = setmetatable({}, m), setmetatable({}, m) while true do pcall(function() return a < b end) end`},
	{"recursion by __le", `local m = {} m.__le = function(a, b) return a <= b end local a, b = setmetatable({}, m), setmetatable({}, m) while true do pcall(function() return a <= b end) end`},
	{"recursion by arithmetic", `local m = {} m.__add = function(a, b) return a + b end m.__pow = function(a, b) return a ^ b end m.__mod = function(a, b) return a % b end local a = setmetatable({}, m) while true do pcall(function() return a + 1 end) pcall(function() return a ^ a end) pcall(function() return 1 % a end) end`},
	{"recursion by __unm and __len", `local m = {} m.__unm = function(a) return -a end m.__len = function(a) return #a end local a = setmetatable({}, m) while true do pcall(function() return -a end) pcall(function() return #a end) end`},
	{"recursion by __call", `local t = setmetatable({}, {}) getmetatable(t).__call = function(self, ...) return self(1, ...) end while true do pcall(t) end`},
	{"recursion by __concat", `local t = setmetatable({}, {}) getmetatable(t).__concat = function(a, b) return "x" .. a .. b end while true do pcall(function() return t .. "y" end) end`},
	{"recursion by __tostring in format", `local t = setmetatable({}, {}) getmetatable(t).__tostring = function(s) return string.format("%s", s) end while true do pcall(tostring, t) end`},
	{"recursion by an iterator", `local function it() for x in it do end end while true do pcall(it) end`},
	{"recursion by sort", `local function f(a, b) table.sort({2, 1}, f) return a < b end while true do pcall(table.sort, {1, 2}, f) end`},
	{"recursion by xpcall", `local function f() xpcall(f, f) end while true do f() end`},
	{"mutual recursion with many registers", `local f local function g(` + params(60) + `) return 1 + f(` + params(60) + `) end f = function(` + params(60) + `) return 1 + g(` + params(60) + `) end while true do pcall(f) end`},
	{"tail calls with growing arguments", `local function f(...) return f(1, ...) end return f()`},
	{"tail calls of pcall with growing arguments", `local function f(...) return pcall(f, 1, ...) end while true do f() end`},
	{"arguments by unpack of unpack", `local t = {} for i = 1, 1000 do t[i] = i end local function f(...) return f(..., unpack(t)) end while true do pcall(f) end`},
	{"calls with thousands of values", `local t = {} for i = 1, 1000 do t[i] = i end local function g(n, ...) if n == 0 then return select("#", ...) end return 1 + g(n - 1, unpack(t)) end while true do pcall(g, 150) end`},

	// allocation
	{"tables", `while true do local t = {} end`},
	{"tables that stay", `local t = {} while true do t = { t, t, t } end`},
	{"tables by and or", `local t while true do t = t and {} or {} end`},
	{"tables in a condition", `while {} do end`},
	{"tables in an until", `repeat until not {}`},
	{"tables in arguments", `while true do type({ {}, {}, {} }) end`},
	{"tables with one late key", `local t = {} for i = 1, 1e9 do local e = { i } e.k = 1 t[i] = e end`},
	{"tables with one late index", `local t = {} for i = 1, 1e9 do local e = {} e[1] = 1 t[i] = e end`},
	{"tables by pack", `local t = {} while true do t[#t + 1] = table.pack(1, 2, 3) end`},
	{"constructor with far index", `while true do local t = { [60000] = 1 } end`},
	{"constructor with computed keys", `local i = 0 while true do i = i + 1 local t = { [i] = 1, [i * 100] = 2, [i .. "x"] = 3, [{}] = 4 } end`},
	{"constructor with a call at the end", `local t = {} for i = 1, 1000 do t[i] = i end while true do local u = { unpack(t) } end`},
	{"constructor of varargs", `local t = {} for i = 1, 1000 do t[i] = i end local function f(...) while true do local u = { ... } end end f(unpack(t))`},
	{"closures", `local t = {} while true do t[#t + 1] = function() return t end end`},
	{"closures with many upvalues", `local ` + params(50) + ` while true do local f = function() return ` + params(50) + ` end end`},
	{"closures in a condition", `while function() end do end`},
	{"closures by or", `local f while true do f = nil f = f or function() return f end end`},
	{"gmatch iterators", `local t = {} while true do t[#t + 1] = ("x"):gmatch("x") end`},
	{"concat of numbers", `local s = "" while true do s = s .. 1 .. 2.5 .. 1e300 end`},
	{"concat in a loop condition", `local s = "x" while s .. s do s = s .. s end`},
	{"concat by __concat", `local t = setmetatable({}, {__concat = function(a, b) return ("x"):rep(60000) end}) while true do local s = "a" .. "b" .. t .. "c" end`},
	{"many long substrings", `local s, t = ("x"):rep(60000), {} while true do t[#t + 1] = s:sub(2) end`},
	{"many short substrings", `local t = {} for i = 1, 1e9 do t[i] = ("abc"):sub(1, 2) end`},
	{"rep with a separator", `while true do local s = ("x"):rep(1e9, "yy") end`},
	{"rep of an empty string with a separator", `local s = (""):rep(1e9, "y")`},
	{"rep to the limit", `local t = {} while true do t[#t + 1] = ("x"):rep(65000) end`},
	{"format to the limit", `local s = ("%99s"):rep(600) while true do local r = s:format() end`},
	{"format with precision", `while true do local r = ("%.99f%.99e%99.99g"):format(1e308, 1e-308, 1) end`},
	{"format of long strings", `local s = ("x"):rep(60000) while true do local r = ("%s%q"):format("", s) end`},
	{"char of many", `local t = {} for i = 1, 1000 do t[i] = 65 end while true do local s = string.char(unpack(t)) .. utf8.char(unpack(t)) end`},
	{"table.concat of long strings", `local t, s = {}, ("x"):rep(1000) for i = 1, 60 do t[i] = s end while true do local r = table.concat(t, s:sub(1, 10)) end`},
	{"table.concat of one key many times", `local t = setmetatable({}, {__index = function() return "x" end}) while true do pcall(table.concat, t, ",", 1, 1e9) end`},
	{"gsub growth by a function", `local s = "x" while true do s = s:gsub(".", function(c) return c .. c end) end`},
	{"gsub growth by a table", `local s, t = "x", { x = ("x"):rep(100) } while true do s = s:gsub(".", t) end`},
	{"gsub growth by a long replacement", `local r = ("y"):rep(60000) while true do local s = ("x"):rep(1000):gsub("x", r) end`},
	{"upper and lower", `local s = ("aB"):rep(30000) while true do local r = s:upper() .. "" end`},
	{"hash keys", `local t = {} for i = 1, 1e9 do t[-i] = i end`},
	{"table keys", `local t = {} while true do t[{}] = 1 end`},
	{"function keys", `local t = {} while true do t[function() end] = 1 end`},
	{"boolean and nan keys", `local t = {} while true do t[true] = 1 pcall(rawset, t, 0/0, 1) pcall(rawset, t, nil, 1) pcall(function() t[0/0] = 1 end) pcall(function() t[nil] = 1 end) end`},
	{"far writes that move closer", `local t = {} for i = 60000, 1, -1 do t[i] = 1 end`},
	{"far writes to many tables", `local t = {} for i = 1, 1e9 do local e = {} e[1000] = 1 t[i] = e end`},
	{"writes by __newindex functions", `local t = setmetatable({}, {__newindex = function(t, k, v) rawset(t, k, v) end}) for i = 1, 1e9 do t[i] = i end`},
	{"writes through __newindex tables", `local u = {} local t = setmetatable({}, {__newindex = u}) for i = 1, 1e9 do t["k" .. i] = i end`},
	{"multiple assignment", `local t, i = {}, 0 while true do t[i], t[i + 1], i = i, {}, i + 2 end`},
	{"assignment of calls", `local t, i = {}, 0 local function f() return {}, {}, {} end while true do i = i + 3 t[i], t[i + 1], t[i + 2] = f() end`},
	{"globals", `local i = 0 while true do i = i + 1 _G["g" .. i] = i end`},
	{"globals by __newindex of _G", `setmetatable(_G, {__newindex = function(t, k, v) rawset(t, k, {v}) end}) local i = 0 while true do i = i + 1 _G["g" .. i] = i end`},
	{"method definitions", `local t = {} while true do function t.f() end function t:g() end end`},
	{"errors with long texts", `local s, t = ("x"):rep(60000), {} while true do t[#t + 1] = { pcall(error, s, 0) } end`},
	{"errors with long keys", `local s = ("x"):rep(60000) while true do pcall(function() local n = nil return n[s] end) pcall(function() local n = nil n[s] = 1 end) end`},
	{"errors with long names of functions", `while true do pcall(function() local t = {} t.` + strings.Repeat("x", 2000) + `() end) end`},
	{"errors of errors", `local e = "x" while true do local _, m = pcall(error, e) e = tostring(m) end`},
	{"numbers that pin chunks", `local t, x = {}, 0.5 for i = 1, 1e9 do t[i] = x + i local a, b, c, d = x + 1, x + 2, x + 3, x + 4 end`},
	{"a result with everything", `local t = {} for i = 1, 5000 do t["k" .. i] = i end t.throttle_keys = t t.fairness_key = ("x"):rep(60000) t.weight = -1 t.cost = 0/0 return t`},

	// builtins with absurd arguments
	{"absurd positions", `local n = { 0/0, 1/0, -1/0, 1e308, -1e308, 2^53, -2^53, 2^31, 0, -1, 1.5 } for _, a in ipairs(n) do for _, b in ipairs(n) do
		pcall(string.sub, "abc", a, b) pcall(string.byte, "abc", a, b) pcall(string.rep, "ab", a == a and a < 100 and a or 1, "x") pcall(string.find, "abc", "b", a) pcall(string.find, "abc", "b", a, true)
		pcall(table.insert, {1, 2}, a, b) pcall(table.remove, {1, 2}, a) pcall(table.concat, {1, 2}, ",", a, b) pcall(unpack, {1}, a, b) pcall(select, a, 1, 2) pcall(rawset, {}, a, b) pcall(rawget, {}, a) pcall(next, {1}, a)
		pcall(math.random, a, b) pcall(math.ldexp, a, b) pcall(math.fmod, a, b) pcall(string.format, "%d %x %c %g %5.2f %i %u %o %e %a", a, a, a, a, b, b, b, b, a, b) pcall(tonumber, "10", a) pcall(utf8.codepoint, "abc", a, b) pcall(utf8.char, a) pcall(string.char, a)
		pcall(bit32.lshift, a, b) pcall(bit32.rshift, a, b) pcall(bit32.band, a, b) pcall(bit32.arshift, a, b) pcall(bit32.lrotate, a, b) pcall(bit32.rrotate, a, b) pcall(bit32.btest, a, b) pcall(bit32.extract, a, b) pcall(bit32.extract, 1, a, b) pcall(bit32.replace, a, b, a, b) pcall(bit32.replace, 1, 2, a, b) pcall(fila.hash, "x", a) pcall(fila.backoff, a, b, a) pcall(error, "x", a) pcall(string.gsub, "abc", "b", "c", a) end end return { fairness_key = "survived" }`},
	{"no arguments", `for _, lib in pairs({ string, table, math, os, utf8, bit32, fila, _G }) do for k, f in pairs(lib) do if type(f) == "function" and f ~= on_enqueue then pcall(f) pcall(f, nil) pcall(f, {}) pcall(f, "x", {}) pcall(f, 1, "x", f) pcall(f, f, f, f) pcall(f, {}, f) end end end return { fairness_key = "survived" }`},
	{"the hook is a builtin", `on_enqueue = pcall`},
	{"the hook is error", `on_enqueue = error`},
	{"the hook is the loop of another", `local function loop() while true do end end on_enqueue = function() return loop() end`},
	{"the hook replaces itself", `function on_enqueue() on_enqueue = nil return {} end`},
	{"the hook calls itself", `function on_enqueue(m) return on_enqueue(m) end`},
}

func params(n int) string {
	names := make([]string, n)
	for i := range names {
		names[i] = "p" + string(rune('a'+i/26)) + string(rune('a'+i%26))
	}
	return strings.Join(names, ", ")
}

// variationScript wraps a body in on_enqueue unless it is a whole script.
func variationScript(body string) string {
	if strings.Contains(body, "on_enqueue(") && !strings.HasPrefix(body, "for _, lib") || strings.Contains(body, "on_enqueue = ") {
		return body
	}
	return "function on_enqueue(msg)\n" + body + "\nend"
}
