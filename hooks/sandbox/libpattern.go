package sandbox

import (
	"strings"

	lua "github.com/yuin/gopher-lua"
)

func strFind(L *lua.LState) int  { return find(L, true) }
func strMatch(L *lua.LState) int { return find(L, false) }

func find(L *lua.LState, positions bool) int {
	s, p := argStr(L, 1), argStr(L, 2)
	x := execOf(L)
	init := max(fromEnd(optInt(L, 3, 1), len(s)), 1)
	if init > len(s)+1 {
		return push(L, lua.LNil)
	}
	if positions && (lua.LVAsBool(L.Get(4)) || !strings.ContainsAny(p, "^$*+?.([%-")) {
		x.chargeWork((len(s) + len(p)) >> 4)
		i := strings.Index(s[init-1:], p)
		if i < 0 {
			return push(L, lua.LNil)
		}
		return push(L, lua.LNumber(init+i), lua.LNumber(init+i+len(p)-1))
	}
	pat, anchor := strings.CutPrefix(p, "^")
	m := matcher{L: L, x: x, src: s, pat: pat}
	x.chargeBytes(640) // the matcher
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

// strGmatch returns an iterator with a state of its own. Calling an iterator that
// an earlier run or the top level made is a write to shared state.
func strGmatch(L *lua.LState) int {
	s, p := argStr(L, 1), argStr(L, 2)
	x := execOf(L)
	x.chargeBytes(1200)
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
	text    string // repl if it is a string or number
	buf     []byte
	charged int
}

func strGsub(L *lua.LState) int {
	s, p := argStr(L, 1), argStr(L, 2)
	x := execOf(L)
	pat, anchor := strings.CutPrefix(p, "^")
	x.chargeBytes(700) // the matcher
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
			g.appendReplacement(pos, e)
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
		x.chargeBytes(32)
		return push(L, lua.LString(s), lua.LNumber(0))
	}
	g.buf = append(g.buf, s[min(pos, len(s)):]...)
	x.chargeString(len(g.buf))
	return push(L, lua.LString(g.buf), lua.LNumber(n))
}

// charge charges for the buffer, which append grows by doubling.
func (g *gsub) charge() {
	if n := len(g.buf) - g.charged; n > 512 {
		g.x.limitString(len(g.buf))
		g.x.chargeBytes(2 * n)
		g.charged = len(g.buf)
	}
}

// appendReplacement appends the replacement for the match from s to e.
func (g *gsub) appendReplacement(s, e int) {
	var v lua.LValue
	switch r := g.repl.(type) {
	case *lua.LTable:
		g.x.chargeWork(4)
		v = g.L.GetTable(r, g.value(0, s, e))
	case *lua.LFunction:
		g.x.chargeWork(4)
		g.L.Push(r)
		g.L.Call(g.push(s, e, true), 1)
		v = pop(g.L)
	default:
		g.expand(s, e)
		return
	}
	switch r := v.(type) {
	case lua.LString:
		g.x.limitString(len(g.buf) + len(r))
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

// expand appends the replacement string with %0 to %9 replaced.
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
	g.x.chargeWork(4 + len(g.text)>>3)
}

const (
	maxCaptures   = 32
	maxMatchDepth = 200

	capOpen     = -1 // a capture whose ) was not reached yet
	capPosition = -2 // ()
)

type capture struct{ start, length int }

// matcher matches Lua patterns as described in the Lua 5.1 reference manual,
// section 5.4.1. It backtracks, charges every step and bounds its depth. The
// matcher of gopher-lua compiles eagerly and recurses without a bound.
type matcher struct {
	L     *lua.LState
	x     *exec
	src   string
	pat   string
	level int // captures in use
	depth int
	steps int
	caps  [maxCaptures]capture
}

// tick charges for one step.
func (m *matcher) tick() {
	if m.steps++; m.steps&63 == 0 {
		m.x.chargeWork(32)
	}
}

func (m *matcher) fail(msg string) { m.L.RaiseError("%s", msg) }

func (m *matcher) reset() { m.level, m.depth = 0, 0 }

// itemEnd returns the index after the single-character class at p.
func (m *matcher) itemEnd(p int) int {
	c := m.pat[p]
	p++
	switch c {
	case '%':
		if p >= len(m.pat) {
			m.fail("malformed pattern (ends with '%')")
		}
		return p + 1
	case '[':
		if p < len(m.pat) && m.pat[p] == '^' {
			p++
		}
		for first := true; ; first = false {
			if p >= len(m.pat) {
				m.fail("malformed pattern (missing ']')")
			}
			if m.pat[p] == ']' && !first {
				return p + 1
			}
			if m.pat[p] == '%' {
				p++
			}
			p++
			m.tick()
		}
	}
	return p
}

func inRange(c, lo, hi byte) bool { return c >= lo && c <= hi }

func isAlpha(c byte) bool { return inRange(c|32, 'a', 'z') }
func isDigit(c byte) bool { return inRange(c, '0', '9') }

// inClass reports whether c belongs to class cl (a for %a).
func inClass(c, cl byte) bool {
	var in bool
	switch cl | 32 {
	case 'a':
		in = isAlpha(c)
	case 'c':
		in = c < 32 || c == 127
	case 'd':
		in = isDigit(c)
	case 'g':
		in = inRange(c, 33, 126)
	case 'l':
		in = inRange(c, 'a', 'z')
	case 'p':
		in = inRange(c, 33, 126) && !isDigit(c) && !isAlpha(c)
	case 's':
		in = c == ' ' || inRange(c, 9, 13)
	case 'u':
		in = inRange(c, 'A', 'Z')
	case 'w':
		in = isDigit(c) || isAlpha(c)
	case 'x':
		in = isDigit(c) || inRange(c|32, 'a', 'f')
	case 'z':
		in = c == 0
	default:
		return cl == c
	}
	if inRange(cl, 'A', 'Z') {
		return !in
	}
	return in
}

// inSet reports whether c is in the set from '[' at p to ']' at end.
func (m *matcher) inSet(c byte, p, end int) bool {
	want := true
	p++
	if m.pat[p] == '^' {
		want = false
		p++
	}
	for ; p < end; p++ {
		m.tick()
		switch {
		case m.pat[p] == '%' && p+1 < end:
			p++
			if inClass(c, m.pat[p]) {
				return want
			}
		case p+2 < end && m.pat[p+1] == '-':
			if inRange(c, m.pat[p], m.pat[p+2]) {
				return want
			}
			p += 2
		case m.pat[p] == c:
			return want
		}
	}
	return !want
}

// one reports whether the byte at s matches the item from p to end.
func (m *matcher) one(s, p, end int) bool {
	m.tick()
	if s >= len(m.src) {
		return false
	}
	c := m.src[s]
	switch m.pat[p] {
	case '.':
		return true
	case '%':
		return inClass(c, m.pat[p+1])
	case '[':
		return m.inSet(c, p, end-1)
	}
	return m.pat[p] == c
}

// match matches the pattern from p at s and returns the end of the match, or -1.
func (m *matcher) match(s, p int) int {
	if m.depth++; m.depth > maxMatchDepth {
		m.fail("pattern too complex")
	}
	defer func() { m.depth-- }()
	for p < len(m.pat) {
		m.tick()
		switch m.pat[p] {
		case '(':
			if p+1 < len(m.pat) && m.pat[p+1] == ')' {
				return m.open(s, p+2, capPosition)
			}
			return m.open(s, p+1, capOpen)
		case ')':
			return m.close(s, p+1)
		case '$':
			if p+1 == len(m.pat) {
				if s == len(m.src) {
					return s
				}
				return -1
			}
		case '%':
			var next int
			if s, next = m.special(s, p); next == 0 {
				break
			}
			if s < 0 {
				return -1
			}
			p = next
			continue
		}
		end := m.itemEnd(p)
		suffix := byte(0)
		if end < len(m.pat) {
			suffix = m.pat[end]
		}
		switch suffix {
		case '?':
			if m.one(s, p, end) {
				if r := m.match(s+1, end+1); r >= 0 {
					return r
				}
			}
			p = end + 1
		case '+', '*':
			return m.greedy(s, p, end, suffix == '+')
		case '-':
			return m.lazy(s, p, end)
		default:
			if !m.one(s, p, end) {
				return -1
			}
			s, p = s+1, end
		}
	}
	return s
}

// special handles %b, %f and %1 at p. next is 0 if the item is none of them. newS
// is negative if it does not match.
func (m *matcher) special(s, p int) (newS, next int) {
	if p+1 >= len(m.pat) {
		return s, 0
	}
	switch c := m.pat[p+1]; {
	case c == 'b':
		return m.balanced(s, p+2), p + 4
	case c == 'f':
		p += 2
		if p >= len(m.pat) || m.pat[p] != '[' {
			m.fail("missing '[' after '%f' in pattern")
		}
		end := m.itemEnd(p)
		var before, here byte
		if s > 0 {
			before = m.src[s-1]
		}
		if s < len(m.src) {
			here = m.src[s]
		}
		if m.inSet(before, p, end-1) || !m.inSet(here, p, end-1) {
			return -1, end
		}
		return s, end
	case isDigit(c):
		i := m.captured(c)
		n := m.caps[i].length
		m.x.chargeWork(n >> 6)
		if len(m.src)-s < n || m.src[m.caps[i].start:m.caps[i].start+n] != m.src[s:s+n] {
			return -1, p + 2
		}
		return s + n, p + 2
	}
	return s, 0
}

func (m *matcher) greedy(s, p, end int, atLeastOne bool) int {
	n := 0
	for m.one(s+n, p, end) {
		n++
	}
	low := 0
	if atLeastOne {
		low = 1
	}
	for ; n >= low; n-- {
		m.tick()
		if r := m.match(s+n, end+1); r >= 0 {
			return r
		}
	}
	return -1
}

func (m *matcher) lazy(s, p, end int) int {
	for {
		if r := m.match(s, end+1); r >= 0 {
			return r
		}
		if !m.one(s, p, end) {
			return -1
		}
		s++
	}
}

func (m *matcher) balanced(s, p int) int {
	if p+1 >= len(m.pat) {
		m.fail("malformed pattern (missing arguments to '%b')")
	}
	if s >= len(m.src) || m.src[s] != m.pat[p] {
		return -1
	}
	opening, closing, depth := m.pat[p], m.pat[p+1], 1
	for i := s + 1; i < len(m.src); i++ {
		m.tick()
		switch m.src[i] {
		case closing:
			if depth--; depth == 0 {
				return i + 1
			}
		case opening:
			depth++
		}
	}
	return -1
}

func (m *matcher) open(s, p, what int) int {
	if m.level >= maxCaptures {
		m.fail("too many captures")
	}
	m.caps[m.level] = capture{s, what}
	m.level++
	r := m.match(s, p)
	if r < 0 {
		m.level--
	}
	return r
}

func (m *matcher) close(s, p int) int {
	i := m.level - 1
	for i >= 0 && m.caps[i].length != capOpen {
		i--
	}
	if i < 0 {
		m.fail("invalid pattern capture")
	}
	m.caps[i].length = s - m.caps[i].start
	r := m.match(s, p)
	if r < 0 {
		m.caps[i].length = capOpen
	}
	return r
}

func (m *matcher) captured(c byte) int {
	i := int(c) - '1'
	if i < 0 || i >= m.level || m.caps[i].length < 0 {
		m.fail("invalid capture index")
	}
	return i
}

// value returns capture i of a match from s to e. Without captures, capture 0 is the
// whole match.
func (m *matcher) value(i, s, e int) lua.LValue {
	if i >= m.level {
		if i != 0 {
			m.fail("invalid capture index")
		}
		return m.x.sub(m.src, s, e)
	}
	switch c := m.caps[i]; c.length {
	case capOpen:
		m.fail("unfinished capture")
		return lua.LNil
	case capPosition:
		return lua.LNumber(c.start + 1)
	default:
		return m.x.sub(m.src, c.start, c.start+c.length)
	}
}

// push pushes the captures, or the whole match if there are none and whole is
// set, and returns their number.
func (m *matcher) push(s, e int, whole bool) int {
	n := m.level
	if n == 0 && whole {
		n = 1
	}
	for i := range n {
		m.L.Push(m.value(i, s, e))
	}
	return n
}
