package sandbox

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// channels are ways to leave state for the next message. The result of each script
// shows the state that it found.
var channels = []struct{ name, text string }{
	{"global", `n = 0 function on_enqueue(m) n = n + 1 return { n = n } end`},
	{"new global", `function on_enqueue(m) local r = tostring(x) x = m.headers.tenant return { r = r } end`},
	{"global by _G", `function on_enqueue(m) local r = tostring(_G.x) _G.x = 1 rawset(_G, "y", 1) return { r = r, y = tostring(y) } end`},
	{"global function replaced", `function on_enqueue(m) local r = tostring(tostring == nil) tostring2 = tostring print = nil type = function() return "evil" end return { r = r, t = type(1) } end`},
	{"builtin removed", `function on_enqueue(m) local r = pairs ~= nil pairs = nil return { r = r } end`},
	{"hook replaced", `function on_enqueue(m) on_enqueue = function() return { r = "evil" } end return { r = "good" } end`},
	{"upvalue", `local n = 0 function on_enqueue(m) n = n + 1 return { n = n } end`},
	{"upvalue by another function", `local n = 0 local function inc() n = n + 1 return n end function on_enqueue(m) return { n = inc() } end`},
	{"upvalue of a block", `do local n = 0 function bump() n = n + 1 return n end end function on_enqueue(m) return { n = bump() } end`},
	{"upvalue in multiple assignment", `local a, b = 0, 0 function on_enqueue(m) a, b = b + 1, a + 1 return { a = a, b = b } end`},
	{"upvalue with a call in multiple assignment", `local a, b = 0, 0 local function two(x) return x + 1, x + 2 end function on_enqueue(m) a, b = two(a) return { a = a, b = b } end`},
	{"upvalue in a loop variable", `local f for i = 1, 3 do local n = i f = function() n = n + 1 return n end end function on_enqueue(m) return { n = f() } end`},
	{"closure made at load", `local function counter() local n = 0 return function() n = n + 1 return n end end local c = counter() function on_enqueue(m) return { n = c() } end`},
	{"closure in a closure made at load", `local function mk() local n = 0 return function() local function inc() n = n + 1 end inc() return n end end local c = mk() function on_enqueue(m) return { n = c() } end`},
	{"closure in a table made at load", `local t = { f = (function() local n = 0 return function() n = n + 1 return n end end)() } function on_enqueue(m) return { n = t.f() } end`},
	{"closure with a shared parameter", `local function mk(n) return function() n = n + 1 return n end, function() return n end end local inc, get = mk(0) function on_enqueue(m) inc() return { n = get() } end`},
	{"closure behind a metatable", `local t = setmetatable({}, { __index = (function() local n = 0 return function() n = n + 1 return n end end)() }) function on_enqueue(m) return { n = t.x } end`},
	{"table", `local t = {} function on_enqueue(m) t[#t + 1] = 1 return { n = #t } end`},
	{"nested table", `local t = { a = { b = {} } } function on_enqueue(m) local x = t.a.b x.n = (x.n or 0) + 1 return { n = x.n } end`},
	{"table as a key", `local k = {} local t = { [k] = 1 } function on_enqueue(m) for key in pairs(t) do key.n = (key.n or 0) + 1 return { n = key.n } end end`},
	{"table by rawset", `local t = {} function on_enqueue(m) rawset(t, 1, (t[1] or 0) + 1) return { n = t[1] } end`},
	{"table by insert", `local t = {} function on_enqueue(m) table.insert(t, 1) return { n = #t } end`},
	{"table by remove", `local t = { 1, 2, 3, 4, 5 } function on_enqueue(m) table.remove(t) return { n = #t } end`},
	{"table by sort", `local t = { 3, 1, 2 } function on_enqueue(m) local r = t[1] table.sort(t) return { r = r } end`},
	{"table by __newindex table", `local t = {} local p = setmetatable({}, { __newindex = t }) function on_enqueue(m) local r = tostring(t.x) p.x = 1 return { r = r } end`},
	{"table by __newindex function", `local t = {} local p = setmetatable({}, { __newindex = function(_, k, v) rawset(t, k, v) end }) function on_enqueue(m) local r = tostring(t.x) p.x = 1 return { r = r } end`},
	{"table by method definition", `local t = {} function on_enqueue(m) local r = tostring(t.f ~= nil) function t.f() end function t:g() end return { r = r } end`},
	{"table by multiple assignment", `local t = {} function on_enqueue(m) local r = tostring(t.a) t.a, t.b = 1, 2 return { r = r } end`},
	{"removed key", `local t = { a = 1, b = 2 } function on_enqueue(m) local n = 0 for _ in pairs(t) do n = n + 1 end t.a = nil return { n = n } end`},
	{"metatable", `local t = {} function on_enqueue(m) local r = tostring(t.x) setmetatable(t, { __index = function() return "evil" end }) return { r = r } end`},
	{"metatable of _G", `function on_enqueue(m) local r = tostring(undefined) setmetatable(_G, { __index = function() return "evil" end }) return { r = r } end`},
	{"field of a metatable", `local mt = {} local t = setmetatable({}, mt) function on_enqueue(m) local r = tostring(t.x) mt.__index = { x = "evil" } return { r = r } end`},
	{"metatable fetched", `local t = setmetatable({}, {}) function on_enqueue(m) local r = tostring(t.x) getmetatable(t).__index = { x = "evil" } return { r = r } end`},
	{"metatable of strings", `function on_enqueue(m) local r = ("a"):upper() pcall(function() getmetatable("").__index = {} end) pcall(setmetatable, "", {}) pcall(rawset, string, "upper", nil) return { r = r } end`},
	{"library tables", `function on_enqueue(m) local r = tostring(string.evil) .. tostring(math.pi > 3) pcall(function() string.evil = 1 end) pcall(function() math.pi = 2 end) pcall(table.insert, table, 1) pcall(table.sort, string) pcall(setmetatable, fila, {}) pcall(rawset, os, "x", 1) return { r = r } end`},
	{"library by __newindex", `local p = setmetatable({}, { __newindex = string }) function on_enqueue(m) local r = tostring(string.evil) pcall(function() p.evil = 1 end) return { r = r } end`},
	{"message", `function on_enqueue(m) local r = tostring(m.seen) m.seen = 1 return { r = r } end`},
	{"headers", `function on_enqueue(m) local r = tostring(m.headers.seen) m.headers.seen = 1 return { r = r } end`},
	{"header changed", `function on_enqueue(m) local r = m.headers.tenant m.headers.tenant = "evil" m.headers.region = nil return { r = r, g = m.queue } end`},
	{"message kept", `local kept function on_enqueue(m) local r = kept and kept.headers.tenant or "none" kept = m return { r = r } end`},
	{"headers kept", `local kept = {} function on_enqueue(m) local r = kept.h and kept.h.tenant or "none" kept.h = m.headers return { r = r } end`},
	{"message with a metatable", `function on_enqueue(m) local r = tostring(m.x) setmetatable(m, { __index = { x = "evil" } }) setmetatable(m.headers, { __index = function() return "evil" end }) return { r = r } end`},
	{"header names by pairs", `function on_enqueue(m) local t = {} for k in pairs(m.headers) do t[#t + 1] = k end return { t = t } end`},
	{"header names by next", `function on_enqueue(m) return { r = tostring(next(m.headers, "x-secret")), s = tostring(next(m.headers, "region")) } end`},
	{"iterator", `local it = ("a b c d e f"):gmatch("%a") function on_enqueue(m) return { r = it() } end`},
	{"iterator in a table", `local t = { it = ("a b c d e f"):gmatch("%a") } function on_enqueue(m) return { r = t.it() } end`},
	{"error object", `local e = { n = 0 } function on_enqueue(m) local _, x = pcall(error, e) x.n = x.n + 1 return { n = x.n } end`},
	{"varargs of the chunk", `local t = { ... } function on_enqueue(m) t[1] = (t[1] or 0) + 1 return { n = t[1] } end`},
	{"result kept", `local r = { n = 0 } function on_enqueue(m) r.n = r.n + 1 return r end`},
	{"write, then fail", `local n = 0 function on_enqueue(m) n = n + 1 if m.payload_size == 2 then error("x") end return { n = n } end`},
	{"write, then be killed", `n = 0 function on_enqueue(m) n = n + 1 if m.payload_size == 2 then while true do end end return { n = n } end`},
	{"write within pcall, then fail", `local t = {} function on_enqueue(m) pcall(function() t.x = (t.x or 0) + 1 error("x") end) return { n = t.x } end`},
	{"registers", `function on_enqueue(m) local a, b, c, d, e, f, g, h return { a = tostring(a), h = tostring(h) } end`},
	{"memory count", `function on_enqueue(m) return { n = collectgarbage("count") } end`},
	{"limits used up", `function on_enqueue(m) local s = "" for i = 1, 300 do s = s .. "x" end return { n = #s } end`},
	{"address of a key", `function on_enqueue(m) local _, e = pcall(function() return m.queue.x[{}] end) local _, f = pcall(function() local n n[print] = 1 end) local _, g = pcall(function() return m.nothing[on_enqueue] end) return { e = e, f = f, g = g } end`},
	{"address in an error", `function on_enqueue(m) return m.nothing[{}] end`},
	{"address of a key that is set", `function on_enqueue(m) m.nothing[{}] = 1 end`},
	{"configuration", `local v = fila.get("k") function on_enqueue(m) return { r = v } end`},
}

// messages differ in values and in header names.
func isolationMessages() []*message {
	return []*message{
		{Headers: map[string][]string{"tenant": {"alpha"}, "x-secret": {"s"}, "region": {"eu"}}, PayloadSize: 1, Queue: "orders"},
		{Headers: map[string][]string{"tenant": {"beta"}, "region": {"us"}, "zone": {"1"}}, PayloadSize: 2, Queue: "orders"},
		{Headers: map[string][]string{"tenant": {"beta"}, "region": {"us"}, "zone": {"1"}}, PayloadSize: 3, Queue: "orders"},
		{Headers: map[string][]string{"tenant": {"alpha"}, "empty": {}}, PayloadSize: 4, Queue: "other"},
		{Headers: nil, PayloadSize: 5, Queue: "orders"},
	}
}

// requireIsolated runs a script on several messages in one VM, and on each of
// them in a VM of its own: every result must be the same, down to the number
// of instructions and bytes. The clock stands still, so only steps limit a run.
func requireIsolated(t testing.TB, name, text string, steps int64) {
	t.Helper()
	limits := Limits{Steps: steps, Timeout: time.Hour}
	script, err := compileHook(name, text, limits)
	if err != nil {
		return
	}
	fresh := func() hook {
		v := New(script, onEnqueue, limits, Env{Get: func(string) (string, bool) { return "v", true }})
		v.x.clock = func() int64 { return 0 }
		return hook{v}
	}
	one := fresh()
	for i, in := range isolationMessages() {
		got, want := one.run(in), fresh().run(in)
		require.Equal(t, fmt.Sprintf("%+v", want.Err), fmt.Sprintf("%+v", got.Err), "message %d of\n%s", i, text)
		want.Err, got.Err = nil, nil
		require.Equal(t, want, got, "message %d of\n%s", i, text)
	}
}

func TestIsolation(t *testing.T) {
	for _, c := range channels {
		t.Run(c.name, func(t *testing.T) {
			_, err := compileHook(c.name, c.text, patient)
			require.NoError(t, err)
			requireIsolated(t, c.name, c.text, 50_000)
		})
	}
}

func TestHostileIsIsolated(t *testing.T) {
	for _, c := range append(hostile(t), readCorpus(t, "good")...) {
		if strings.Contains(c.text, "random") || len(c.text) > MaxSource {
			continue // random numbers differ between VMs
		}
		steps := int64(20_000)
		if strings.Contains(c.name, "compare long strings") {
			steps = 2_000 // each takes as long as thousands of others
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			requireIsolated(t, c.name, c.text, steps)
		})
	}
}

// TestCleanRunsKeepTheirState shows that a script that writes to nothing shared keeps
// its globals.
func TestCleanRunsKeepTheirState(t *testing.T) {
	for _, text := range []string{
		`function on_enqueue(m) local tenant = m.headers["tenant"] or "default" return { fairness_key = tenant, throttle_keys = { "tenant:" .. tenant } } end`,
		`local w = { a = 1 } local function f(t) t.x = 1 return t end function on_enqueue(m) local t = f({}) t[1] = w.a local n = 0 ;("abc"):gsub(".", function() n = n + 1 end) return t end`,
		`local function counter() local n = 0 return function() n = n + 1 return n end end function on_enqueue(m) local c = counter() c() return { weight = c() } end`,
	} {
		h := newHook(t, onEnqueue, text, Limits{})
		in := isolationMessages()[0]
		h.run(in)
		globals, table := h.x.globals, h.arg.table
		for range 3 {
			res := h.run(in)
			require.Nil(t, res.Err)
			require.False(t, res.Dirty)
			require.Same(t, globals, h.x.globals)
			require.Same(t, table, h.arg.table)
		}
	}
}

// TestVMsAreIsolated runs one Script in two VMs.
func TestVMsAreIsolated(t *testing.T) {
	script, err := compileHook("shared", `local t = { n = 0 } x = 0
function on_enqueue(m) local r = t.n .. "/" .. x t.n = t.n + 1 x = x + 1 return { r = m.queue .. r } end`, patient)
	require.NoError(t, err)
	for range 3 {
		for _, q := range []string{"a", "b"} {
			h := hook{New(script, onEnqueue, patient, Env{})}
			require.Equal(t, q+"0/0", h.run(&message{Queue: q}).field("r"))
			require.Equal(t, q+"0/0", h.run(&message{Queue: q}).field("r"))
		}
	}
}

// TestOptionalFieldsComeAndGo shows that a message without a delay or a route does not see
// that an earlier one had them, not even in the order of the fields.
func TestOptionalFieldsComeAndGo(t *testing.T) {
	const text = `function on_failure(m)
	local t = { action = "retry" }
	for k in pairs(m) do t[#t + 1] = k .. "=" .. tostring(m.requested_delay_ms) .. tostring(m.route) end
	t[#t + 1] = tostring(next(m, "requested_delay_ms")) .. tostring(next(m, "route"))
	return t
end`
	used := newHook(t, onFailure, text, Limits{})
	for i, in := range []message{
		{},
		{HasDelay: true, RequestedDelay: 1500 * time.Millisecond},
		{Error: "boom"},
		{HasDelay: true},
		{HasDelay: true, RequestedDelay: 1},
		{},
		{Route: "one"},
		{Route: "two"},
		{HasDelay: true, Route: "two"},
		{HasDelay: true},
		{Route: "two"},
		{},
		{HasDelay: true, Route: "one"},
	} {
		in.failed = true
		got, want := used.run(&in), newHook(t, onFailure, text, Limits{}).run(&in)
		require.Nil(t, got.Err)
		require.False(t, got.Dirty)
		require.Equal(t, want.Returned, got.Returned, i)
		fields := 5
		for _, present := range []bool{in.HasDelay, in.Route != ""} {
			if present {
				fields++
			}
		}
		require.Len(t, got.Returned, fields+2, i)
	}
}
