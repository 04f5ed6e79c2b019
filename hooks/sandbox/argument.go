package sandbox

import (
	"slices"
	"strings"

	lua "github.com/yuin/gopher-lua"
)

// Argument is the table that a VM passes to the function. The caller sets the same
// fields in the same order for every call, so that only values that differ are
// written: the table is used again as long as no run wrote to it.
//
// A script must not see what an earlier call had, not even in the order of pairs. So
// a field that may be absent (SetOptionalNumber, SetOptionalText) has its place in a
// new table at once, and a map with other keys gets another table (SetMap).
type Argument struct {
	x      *exec
	table  *lua.LTable
	fields []argumentField // in the order in which they are set
	at     int             // of the next field
}

type argumentField struct {
	placed  bool // an optional field has its place in the order of pairs
	present bool
	text    string
	number  float64
	entries []mapEntry  // of a map, by key
	table   *lua.LTable // of a map
}

type mapEntry struct{ key, value string }

// drop forgets the table: the next call makes another one.
func (a *Argument) drop() { a.table, a.fields = nil, a.fields[:0] }

// begin starts a call.
func (a *Argument) begin() {
	a.at = 0
	if a.table == nil {
		a.table = a.x.L.CreateTable(0, 8)
		a.x.outliving[a.table] = outlives
	}
}

// next returns the field that is set now.
func (a *Argument) next() *argumentField {
	if a.at == len(a.fields) {
		a.fields = slices.Grow(a.fields, 1)[:a.at+1] // of a dropped table: its memory for entries is used again
		a.fields[a.at] = argumentField{entries: a.fields[a.at].entries[:0]}
	}
	a.at++
	return &a.fields[a.at-1]
}

// optional returns the field that is set now, which may be absent.
func (a *Argument) optional(name string, present bool) *argumentField {
	f := a.next()
	if !f.placed {
		f.placed = true
		a.table.RawSetString(name, lua.LFalse)
		a.table.RawSetString(name, lua.LNil)
	}
	if !present && f.present {
		f.present = false
		a.table.RawSetString(name, lua.LNil)
	}
	return f
}

func (a *Argument) setText(f *argumentField, name, value string) {
	if !f.present || f.text != value {
		f.present, f.text = true, value
		a.table.RawSetString(name, lua.LString(value))
	}
	a.x.noteString(len(value))
}

func (a *Argument) setNumber(f *argumentField, name string, value float64) {
	if !f.present || f.number != value {
		f.present, f.number = true, value
		a.table.RawSetString(name, lua.LNumber(value))
	}
}

// SetText sets a string field.
func (a *Argument) SetText(name, value string) { a.setText(a.next(), name, value) }

// SetNumber sets a number field.
func (a *Argument) SetNumber(name string, value float64) { a.setNumber(a.next(), name, value) }

// SetOptionalText sets a string field, or leaves it out.
func (a *Argument) SetOptionalText(name, value string, present bool) {
	if f := a.optional(name, present); present {
		a.setText(f, name, value)
	}
}

// SetOptionalNumber sets a number field, or leaves it out.
func (a *Argument) SetOptionalNumber(name string, value float64, present bool) {
	if f := a.optional(name, present); present {
		a.setNumber(f, name, value)
	}
}

// SetMap sets a field to a table with the first string of each key, without keys
// that have none.
func (a *Argument) SetMap(name string, values map[string][]string) {
	f := a.next()
	if f.table != nil && len(values) == len(f.entries) && a.refill(f, values) {
		return
	}
	if f.table != nil {
		delete(a.x.outliving, f.table)
	}
	f.entries = f.entries[:0]
	for k, v := range values {
		if len(v) > 0 {
			f.entries = append(f.entries, mapEntry{k, v[0]})
		}
	}
	// sorted, so that pairs has one order whatever map order Go chose
	slices.SortFunc(f.entries, func(a, b mapEntry) int { return strings.Compare(a.key, b.key) })
	f.table = a.x.L.CreateTable(0, len(f.entries))
	for _, e := range f.entries {
		f.table.RawSetString(e.key, lua.LString(e.value))
		a.x.noteString(len(e.value))
	}
	a.x.outliving[f.table] = outlives
	a.table.RawSetString(name, f.table)
}

// refill writes the values that differ. It reports false if the keys differ.
func (a *Argument) refill(f *argumentField, values map[string][]string) bool {
	for i := range f.entries {
		if len(values[f.entries[i].key]) == 0 {
			return false
		}
	}
	for i := range f.entries {
		e := &f.entries[i]
		if v := values[e.key][0]; v != e.value {
			e.value = v
			f.table.RawSetString(e.key, lua.LString(v))
		}
		a.x.noteString(len(e.value))
	}
	return true
}
