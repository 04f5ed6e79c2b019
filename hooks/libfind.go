package hooks

import (
	"strings"

	lua "github.com/yuin/gopher-lua"
)

func strFind(L *lua.LState) int  { return find(L, true) }
func strMatch(L *lua.LState) int { return find(L, false) }

func find(L *lua.LState, positions bool) int {
	s, p := argStr(L, 1), argStr(L, 2)
	x := ctx(L)
	init := max(relPos(optInt(L, 3, 1), len(s)), 1)
	if init > len(s)+1 {
		return push(L, lua.LNil)
	}
	if positions && (lua.LVAsBool(L.Get(4)) || !strings.ContainsAny(p, "^$*+?.([%-")) {
		x.burn((len(s) + len(p)) >> 4)
		i := strings.Index(s[init-1:], p)
		if i < 0 {
			return push(L, lua.LNil)
		}
		return push(L, lua.LNumber(init+i), lua.LNumber(init+i+len(p)-1))
	}
	pat, anchor := strings.CutPrefix(p, "^")
	m := matcher{L: L, x: x, src: s, pat: pat}
	x.need(640) // the matcher
	for i := init - 1; i <= len(s); i++ {
		m.reset()
		if e := m.match(i, 0); e >= 0 {
			if positions {
				return push(L, lua.LNumber(i+1), lua.LNumber(e)) + m.push(i, e, false)
			}
			return m.push(i, e, true)
		}
		m.tick()
		if anchor {
			break
		}
	}
	return push(L, lua.LNil)
}

// strGmatch returns an iterator, which has a state of its own: using one that
// an earlier run or the top level made is a write to shared state.
func strGmatch(L *lua.LState) int {
	s, p := argStr(L, 1), argStr(L, 2)
	x := ctx(L)
	x.need(1200)
	m := &matcher{L: L, x: x, src: s, pat: p}
	pos, last, epoch := 0, -1, x.epoch
	L.Push(&lua.LFunction{IsG: true, GFunction: func(L *lua.LState) int {
		if x.epoch != epoch {
			x.dirty = true
		}
		for ; pos <= len(m.src); pos++ {
			m.reset()
			if e := m.match(pos, 0); e >= 0 && e != last {
				from := pos
				pos, last = e, e
				return m.push(from, e, true)
			}
			m.tick()
		}
		return push(L, lua.LNil)
	}})
	return 1
}

// gsub is one call of string.gsub.
type gsub struct {
	matcher
	repl    lua.LValue
	text    string // of a string or number repl
	buf     []byte
	charged int
}

func strGsub(L *lua.LState) int {
	s, p := argStr(L, 1), argStr(L, 2)
	x := ctx(L)
	pat, anchor := strings.CutPrefix(p, "^")
	x.need(700) // the matcher
	g := &gsub{matcher: matcher{L: L, x: x, src: s, pat: pat}, repl: L.Get(3)}
	switch g.repl.(type) {
	case lua.LString, lua.LNumber:
		g.text = argStr(L, 3)
	case *lua.LTable, *lua.LFunction:
	default:
		L.ArgError(3, "string, function or table expected")
	}
	most := optInt(L, 4, len(s)+1)
	n, pos, last := 0, 0, -1
	for n < most {
		g.reset()
		if e := g.match(pos, 0); e >= 0 && e != last {
			n++
			g.add(pos, e)
			pos, last = e, e
		} else if pos < len(s) {
			g.buf = append(g.buf, s[pos])
			pos++
		} else {
			break
		}
		g.tick()
		g.charge()
		if anchor {
			break
		}
	}
	if n == 0 {
		x.need(32)
		return push(L, lua.LString(s), lua.LNumber(0))
	}
	g.buf = append(g.buf, s[min(pos, len(s)):]...)
	x.needStr(len(g.buf))
	return push(L, lua.LString(g.buf), lua.LNumber(n))
}

// charge accounts for the buffer, which append grows by doubling.
func (g *gsub) charge() {
	if n := len(g.buf) - g.charged; n > 512 {
		g.x.boundStr(len(g.buf))
		g.x.need(2 * n)
		g.charged = len(g.buf)
	}
}

// add appends the replacement of the match from s to e.
func (g *gsub) add(s, e int) {
	var v lua.LValue
	switch r := g.repl.(type) {
	case *lua.LTable:
		g.x.burn(4)
		v = g.L.GetTable(r, g.value(0, s, e))
	case *lua.LFunction:
		g.x.burn(4)
		g.L.Push(r)
		g.L.Call(g.push(s, e, true), 1)
		v = pop(g.L)
	default:
		g.expand(s, e)
		return
	}
	switch r := v.(type) {
	case lua.LString:
		g.x.boundStr(len(g.buf) + len(r))
		g.buf = append(g.buf, r...)
	case lua.LNumber:
		g.buf = append(g.buf, fmtNum(r)...)
	default:
		if lua.LVAsBool(r) {
			g.L.RaiseError("invalid replacement value (a %s)", typeOf(r))
		}
		g.buf = append(g.buf, g.src[s:e]...)
	}
}

// expand appends a replacement string with its %0 to %9.
func (g *gsub) expand(s, e int) {
	for i := 0; i < len(g.text); i++ {
		c := g.text[i]
		if c != '%' {
			g.buf = append(g.buf, c)
			continue
		}
		i++
		switch {
		case i < len(g.text) && g.text[i] == '%':
			g.buf = append(g.buf, '%')
		case i < len(g.text) && g.text[i] == '0':
			g.buf = append(g.buf, g.src[s:e]...)
		case i < len(g.text) && isDigit(g.text[i]):
			g.buf = append(g.buf, tostr(g.L, g.value(int(g.text[i]-'1'), s, e))...)
		default:
			g.fail("invalid use of '%' in replacement string")
		}
		g.charge()
	}
	g.x.burn(4 + len(g.text)>>3)
}
