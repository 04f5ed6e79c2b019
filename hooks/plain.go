package hooks

import (
	"math"
	"slices"

	lua "github.com/yuin/gopher-lua"
)

// Bounds of what plain takes out of a result.
const (
	maxPlainDepth = 8
	maxPlainItems = 1000
	maxPlainText  = 4096
)

// plain turns a Lua value into what encoding/json can write, as far as it is
// plain data: functions are left out, cycles and what is too deep, too long or
// too much is cut.
func plain(v lua.LValue) any {
	p := plainer{left: maxPlainItems}
	return p.value(v, 0)
}

type plainer struct {
	left int
	path []*lua.LTable
}

func (p *plainer) value(v lua.LValue, depth int) any {
	p.left--
	switch v := v.(type) {
	case lua.LBool:
		return bool(v)
	case lua.LNumber:
		f := float64(v)
		switch {
		case math.IsNaN(f) || math.IsInf(f, 0):
			return fmtNum(v)
		case isInt(f):
			return int64(f)
		}
		return f
	case lua.LString:
		if len(v) > maxPlainText {
			v = v[:maxPlainText]
		}
		return string(v)
	case *lua.LTable:
		if depth >= maxPlainDepth || slices.Contains(p.path, v) {
			return nil
		}
		p.path = append(p.path, v)
		defer func() { p.path = p.path[:len(p.path)-1] }()
		return p.table(v, depth)
	}
	return nil
}

// table gives a list for a table that has items and no other keys.
func (p *plainer) table(t *lua.LTable, depth int) any {
	n := t.MaxN()
	if k, _ := t.Next(lua.LNumber(n)); n > 0 && k == lua.LNil {
		list := make([]any, 0, min(n, p.left+1))
		for i := 1; i <= n && p.left > 0; i++ {
			list = append(list, p.value(t.RawGetInt(i), depth+1))
		}
		return list
	}
	m := map[string]any{}
	for k, v := t.Next(lua.LNil); k != lua.LNil && p.left > 0; k, v = t.Next(k) {
		switch k := k.(type) {
		case lua.LString:
			m[string(k[:min(len(k), maxPlainText)])] = p.value(v, depth+1)
		case lua.LNumber:
			m[fmtNum(k)] = p.value(v, depth+1)
		}
	}
	return m
}
