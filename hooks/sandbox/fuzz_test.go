package sandbox

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// FuzzLoad compiles any text. Compile never panics and refuses with a *LoadError,
// and an accepted script runs within the limits.
func FuzzLoad(f *testing.F) {
	for _, c := range append(readCorpus(f, "good"), readCorpus(f, "hostile")...) {
		if len(c.text) <= 4096 {
			f.Add(c.text)
		}
	}
	for _, v := range variations {
		f.Add(variationScript(v.body))
	}
	for _, s := range []string{
		"x = 7 // 2 --[[ c ]] y = '\\u{48}\\x41\\z\n  b' local z <const> = 1", "goto a ::a:: ::a::", "local a <close> = 1 & 2",
		"x = [==[ ]=] ]==]", "--[[", "x = '\\", "\xff\xfe", "x = 0x", "x = 1e", "x = ..", "return ...", "function a.b.c:d() self = 1 end",
	} {
		f.Add(s)
	}
	// A step may compare strings of 64 KB, and a fuzz input that takes ten seconds fails.
	limits := Limits{Steps: 4_000, Timeout: time.Hour}
	f.Fuzz(func(t *testing.T, text string) {
		script, err := compileHook("fuzz", text, limits)
		if err != nil {
			var le *LoadError
			require.True(t, errors.As(err, &le))
			require.NotEmpty(t, le.Error())
			return
		}
		for _, function := range script.Defines() {
			h := hook{New(script, function, limits, Env{})}
			for range 2 {
				res := h.run(isolationMessages()[0])
				require.LessOrEqual(t, res.Instructions, limits.Steps+1<<20)
			}
		}
	})
}

// program builds a random script from the bytes of a fuzz input. Its constructs
// allocate, write, call back, fail and keep state.
type program struct {
	data  []byte
	depth int
}

func (p *program) next(n int) int {
	if len(p.data) == 0 {
		return 0
	}
	c := int(p.data[0])
	p.data = p.data[1:]
	return c % n
}

func (p *program) pick(choices ...string) string { return choices[p.next(len(choices))] }

// name is one of a few variables: locals of the top level, of functions, globals.
func (p *program) name() string {
	return p.pick("a", "b", "c", "top", "shared", "glob", "msg", "f", "string", "_G", "msg.headers", "it")
}

func (p *program) expr() string {
	p.depth++
	defer func() { p.depth-- }()
	if p.depth > 6 || len(p.data) == 0 {
		return p.pick("1", "nil", `"x"`, "{}", "a", "true", "...", "0.5", "1/0", "0/0")
	}
	switch p.next(20) {
	case 0, 1, 2:
		return p.name()
	case 3:
		return fmt.Sprintf("%d", p.next(200)-20)
	case 4:
		return fmt.Sprintf("%q", strings.Repeat("ab%", p.next(20)))
	case 5:
		return p.expr() + " .. " + p.expr()
	case 6:
		return "(" + p.expr() + p.pick(" + ", " - ", " * ", " / ", " % ", " ^ ", " // ", " == ", " < ", " <= ", " ~= ", " and ", " or ") + p.expr() + ")"
	case 7:
		return "{" + p.expr() + ", " + p.pick("k = ", "[1] = ", `["x"] = `, "[a] = ", "") + p.expr() + ", " + p.pick("...", "f()", "nil") + "}"
	case 8:
		return "function(" + p.pick("...", "a, ...", "a, b, ...", "msg, ...") + ") " + p.block(2) + " end"
	case 9:
		return p.pick("#", "-", "not ") + p.expr()
	case 10:
		return p.name() + p.pick(".x", "[1]", "[a]", ".k", `["y"]`)
	case 11, 12:
		return p.pick("pcall", "f", "tostring", "select", "unpack", "next", "rawget", "type", "tonumber", "xpcall", "math.max", "table.concat", "string.rep", "string.format", "string.sub", "string.byte", "fila.get", "fila.hash", "ipairs", "it", "table.pack", "bit32.bxor", "bit32.lrotate", "bit32.extract", "utf8.char") +
			"(" + p.expr() + ", " + p.expr() + ")"
	case 13:
		return "setmetatable(" + p.pick("{}", p.name()) + ", {" + p.pick("__index", "__newindex", "__call", "__concat", "__eq", "__lt", "__le", "__len", "__unm", "__add", "__metatable") + " = " + p.expr() + "})"
	case 14:
		return "(" + p.expr() + "):" + p.pick("upper()", "rep(3)", "gsub('.', "+p.expr()+")", "match('(a)(b?)')", "gmatch('.')", "find('b')", "len()", "x()")
	case 15:
		return "(" + p.expr() + ")"
	case 16:
		return "getmetatable(" + p.expr() + ")"
	}
	return p.pick("1", "nil", `"x"`, "{}", "a", "true", "msg.payload_size")
}

func (p *program) block(most int) string {
	p.depth++
	defer func() { p.depth-- }()
	var out []string
	for range p.next(most) + 1 {
		out = append(out, p.stmt())
	}
	return strings.Join(out, " ")
}

// stmt catches the error of most statements, so that the next ones run as well.
func (p *program) stmt() string {
	s := p.bareStmt()
	if p.next(4) == 0 {
		return s
	}
	return "pcall(function(...) " + s + " end, " + p.pick("a", "msg", "shared") + ")"
}

func (p *program) bareStmt() string {
	if p.depth > 5 || len(p.data) == 0 {
		return "glob = 1"
	}
	switch p.next(18) {
	case 0:
		return "local " + p.pick("a", "b", "c", "a, b", "f") + " = " + p.expr()
	case 1, 2:
		return p.pick("a", "b", "c", "top", "shared", "glob", "f", "on_enqueue", "print") + " = " + p.expr()
	case 3, 4:
		return p.name() + p.pick(".x", "[1]", "[a]", ".k", `["y"]`, "[#shared + 1]") + " = " + p.expr()
	case 5:
		return "a, " + p.name() + ".x, glob = " + p.expr() + ", " + p.expr()
	case 6:
		return "top, b = " + p.expr() + ", " + p.expr()
	case 7:
		return "for i = 1, " + p.pick("3", "10", "#shared", "1e9") + " do " + p.block(2) + " end"
	case 8:
		return "for k, v in " + p.pick("pairs(shared)", "pairs(msg.headers)", "ipairs(shared)", "it", "next, shared", "("+p.expr()+")") + " do " + p.block(2) + " end"
	case 9:
		return "while " + p.expr() + " do " + p.block(2) + p.pick("", " break") + " end"
	case 10:
		return "if " + p.expr() + " then " + p.block(2) + " else " + p.block(2) + " end"
	case 11:
		return "repeat local a = 1 " + p.block(2) + " until " + p.expr()
	case 12:
		return p.pick("local function f", "function f", "function shared.f", "function shared:m") + "(" + p.pick("...", "a, ...") + ") " + p.block(2) + " return " + p.expr() + " end"
	case 13, 14:
		return p.pick("pcall", "f", "xpcall", "table.insert", "table.remove", "table.sort", "rawset", "setmetatable", "error", "fila.log", "assert", "math.randomseed") + "(" + p.expr() + ", " + p.expr() + ", " + p.expr() + ")"
	case 15:
		return "do " + p.block(3) + " end"
	case 16:
		return "do goto out " + p.block(1) + " ::out:: end"
	}
	return "pcall(function(...) " + p.block(3) + " end, " + p.expr() + ")"
}

// source is a whole script: state at the top level and a hook that works on it.
func (p *program) source() string {
	top := p.block(3)
	body := p.block(6)
	result := p.expr()
	return `msg = { headers = {}, payload_size = 1 }
local top, it, f, a = 0, ("a b c"):gmatch("%a"), function() return 1 end
shared = { 1, 2, x = { y = 1 } }
` + top + `
function on_enqueue(msg, ...)
  local b, c = 1
  ` + body + `
  local _, r = pcall(function(...) return ` + result + ` end)
  return { r = r, n = top, g = glob, s = #shared, h = msg.headers }
end`
}

// FuzzRun runs random programs. None crashes or exceeds the limits, and no message
// sees what another left behind, down to the count of instructions.
func FuzzRun(f *testing.F) {
	f.Add([]byte("seed"))
	for i := range 64 {
		seed := make([]byte, 40+i*3)
		x := uint32(i + 1)
		for k := range seed {
			x ^= x << 13
			x ^= x >> 17
			x ^= x << 5
			seed[k] = byte(x)
		}
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		p := &program{data: data[:min(len(data), 2000)]}
		requireIsolated(t, "random", p.source(), 50_000)
	})
}
