package sandbox

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	lua "github.com/yuin/gopher-lua"
)

// directive is one conversion of a format. Width and precision are -1 for none.
type directive struct {
	flags       string
	width, prec int
	verb        byte
}

// spec returns the directive for Go's fmt, with another verb.
func (d directive) spec(verb byte) string {
	b := append(make([]byte, 0, 16), '%')
	b = append(b, d.flags...)
	if d.width >= 0 {
		b = strconv.AppendInt(b, int64(d.width), 10)
	}
	if d.prec >= 0 {
		b = strconv.AppendInt(append(b, '.'), int64(d.prec), 10)
	}
	return string(append(b, verb))
}

// parseDirective reads the directive after the % before f[i]. Width and precision
// have two digits at most, as in C Lua.
func parseDirective(L *lua.LState, f string, i int) (d directive, next int) {
	start := i
	for i < len(f) && strings.IndexByte("-+ #0", f[i]) >= 0 {
		i++
	}
	if i-start > 5 {
		L.RaiseError("invalid format (repeated flags)")
	}
	d.flags, d.prec = f[start:i], -1
	number := func() int {
		n, from := -1, i
		for i < len(f) && f[i] >= '0' && f[i] <= '9' {
			n = max(n, 0)*10 + int(f[i]-'0')
			if i++; i-from > 2 {
				L.RaiseError("invalid format (width or precision too long)")
			}
		}
		return n
	}
	d.width = number()
	if i < len(f) && f[i] == '.' {
		i++
		d.prec = max(number(), 0)
	}
	if i >= len(f) {
		L.RaiseError("invalid format string to 'format'")
	}
	d.verb = f[i]
	return d, i + 1
}

func strFormat(L *lua.LState) int {
	x := execOf(L)
	f := argStr(L, 1)
	x.chargeWork(len(f) >> 4)
	var buf []byte
	arg, top, charged := 1, L.GetTop(), 0
	for i := 0; i < len(f); {
		c := f[i]
		i++
		if c != '%' {
			buf = append(buf, c)
			continue
		}
		if i < len(f) && f[i] == '%' {
			buf = append(buf, '%')
			i++
			continue
		}
		var d directive
		d, i = parseDirective(L, f, i)
		if arg++; arg > top {
			L.ArgError(arg, "no value")
		}
		x.chargeWork(8)
		buf = formatOne(L, x, buf, d, arg)
		if n := len(buf) - charged; n > 1024 {
			x.chargeString(n)
			charged = len(buf)
		}
		x.limitString(len(buf))
	}
	x.chargeString(len(buf))
	return push(L, lua.LString(buf))
}

func formatOne(L *lua.LState, x *exec, buf []byte, d directive, arg int) []byte {
	switch d.verb {
	case 'd', 'i':
		return fmt.Appendf(buf, d.spec('d'), int64(argInt(L, arg)))
	case 'u':
		return fmt.Appendf(buf, d.spec('d'), uint64(int64(argInt(L, arg)))) //nolint:gosec // two's complement is meant
	case 'o', 'x', 'X':
		return fmt.Appendf(buf, d.spec(d.verb), uint64(int64(argInt(L, arg)))) //nolint:gosec // two's complement is meant
	case 'c':
		return append(buf, byte(argInt(L, arg)))
	case 'e', 'E', 'f', 'F', 'g', 'G':
		n := argNum(L, arg)
		if math.IsInf(n, 0) || n != n {
			return pad(buf, fmtNum(lua.LNumber(n)), d)
		}
		if d.prec < 0 && d.verb|32 == 'g' {
			d.prec = 6
		}
		return fmt.Appendf(buf, d.spec(d.verb), n)
	case 'a', 'A':
		return fmt.Appendf(buf, d.spec(d.verb-'a'+'x'), argNum(L, arg))
	case 's':
		s := tostr(L, L.Get(arg))
		x.limitString(len(s))
		x.chargeWork(len(s) >> 6)
		if d.prec >= 0 && d.prec < len(s) {
			s = s[:d.prec]
		}
		return pad(buf, s, d)
	case 'q':
		s := argStr(L, arg)
		x.chargeString(4*len(s) + 2)
		x.chargeWork(len(s) >> 3)
		return quote(buf, s)
	}
	L.RaiseError("invalid option '%%%s' to 'format'", string(rune(d.verb)))
	return nil
}

func pad(buf []byte, s string, d directive) []byte {
	spaces := strings.Repeat(" ", max(d.width-len(s), 0))
	if strings.Contains(d.flags, "-") {
		return append(append(buf, s...), spaces...)
	}
	return append(append(buf, spaces...), s...)
}

func quote(buf []byte, s string) []byte {
	buf = append(buf, '"')
	for k := range len(s) {
		switch c := s[k]; c {
		case '"', '\\', '\n':
			buf = append(buf, '\\', c)
		case '\r':
			buf = append(buf, `\r`...)
		case 0:
			buf = append(buf, `\000`...)
		default:
			buf = append(buf, c)
		}
	}
	return append(buf, '"')
}
