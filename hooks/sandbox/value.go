package sandbox

import (
	"math"
	"slices"

	lua "github.com/yuin/gopher-lua"
)

// Table is a table that a script returned. Reading it runs no metamethods. It is
// valid until the next run of its VM.
type Table struct{ t *lua.LTable }

// Field returns the value of a string key.
func (t Table) Field(name string) Value { return Value{t.t.RawGetString(name)} }

// Item returns the value at index i, from 1.
func (t Table) Item(i int) Value { return Value{t.t.RawGetInt(i)} }

// IsEmpty reports whether the table has no keys.
func (t Table) IsEmpty() bool {
	k, _ := t.t.Next(lua.LNil)
	return k == lua.LNil
}

// Plain returns the table as far as it is plain data for encoding/json: nil,
// bool, int64, float64, string, []any or map[string]any. Functions are left out;
// cycles and data beyond a fixed depth, length and number are cut.
func (t Table) Plain() any {
	if t.t == nil {
		return nil
	}
	p := plainer{left: maxPlainItems}
	return p.value(t.t, 0)
}

// Value is a value in a Table.
type Value struct{ v lua.LValue }

// IsNil reports whether the value is nil, or absent.
func (v Value) IsNil() bool { return v.v == lua.LNil }

// Text returns a string value.
func (v Value) Text() (text string, ok bool) {
	s, ok := v.v.(lua.LString)
	return string(s), ok
}

// Number returns a number value.
func (v Value) Number() (number float64, ok bool) {
	n, ok := v.v.(lua.LNumber)
	return float64(n), ok
}

// Table returns a table value.
func (v Value) Table() (table Table, ok bool) {
	t, ok := v.v.(*lua.LTable)
	return Table{t}, ok
}

// Kind names the type of the value for an error: "a number", "nothing or nil".
func (v Value) Kind() string {
	switch name := v.v.Type().String(); name {
	case "nil":
		return "nothing or nil"
	case "userdata", "function", "string", "number", "boolean", "table":
		return "a " + name
	default:
		return name
	}
}

// Bounds of Plain.
const (
	maxPlainDepth = 8
	maxPlainItems = 1000
	maxPlainText  = 4096
)

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
		return string(v[:min(len(v), maxPlainText)])
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

// table returns a list if the table has items and no other keys.
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
