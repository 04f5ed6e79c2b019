package web

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"

	"github.com/filaq/fila/wire/api"
)

// auditData is a page of the audit log.
type auditData struct {
	Prefix    string
	Entries   []*auditEntry
	OlderLink string // address of older entries
	Older     bool   // not the newest page
}

// auditEntry is an entry with what it changed.
type auditEntry struct {
	api.ConfigLogEntry
	Changes []fieldChange
}

// shownChanges is how many changes of an entry are not folded.
const shownChanges = 4

// Head are the first changes.
func (e *auditEntry) Head() []fieldChange { return e.Changes[:min(len(e.Changes), shownChanges)] }

// Tail are the other changes.
func (e *auditEntry) Tail() []fieldChange { return e.Changes[len(e.Head()):] }

// fieldChange is the change of one field. Name is "" if the value has no fields.
type fieldChange struct {
	Name, Old, New string
	HadOld, HasNew bool
}

func auditPage(a *ask) (any, error) {
	d := &auditData{Prefix: a.query("prefix"), Older: a.query("before") != ""}
	var log api.ConfigLog
	if err := a.verb(api.VerbConfigLog, "", api.KeyListRequest{Prefix: d.Prefix, After: a.query("before"), Limit: perPage}, &log); err != nil {
		return nil, err
	}
	for _, e := range log.Entries {
		d.Entries = append(d.Entries, &auditEntry{e, changesOf(e.Old, e.New)})
	}
	if log.Next != "" {
		d.OlderLink = href(a.web.base, "/activity/audit", "prefix", d.Prefix, "before", log.Next)
	}
	return d, nil
}

// changesOf returns the fields that differ between two values, by name, a reason first. A value that is no
// JSON object is one field without a name.
func changesOf(before, after *string) (list []fieldChange) {
	was, wasObject := fieldsOf(before)
	is, isObject := fieldsOf(after)
	if !wasObject || !isObject {
		c := fieldChange{HadOld: before != nil, HasNew: after != nil}
		if before != nil {
			c.Old = *before
		}
		if after != nil {
			c.New = *after
		}
		return []fieldChange{c}
	}
	names := maps.Clone(was)
	if names == nil {
		names = make(map[string]json.RawMessage)
	}
	maps.Copy(names, is)
	order := slices.Sorted(maps.Keys(names))
	if at := slices.Index(order, "reason"); at >= 0 {
		order = slices.Insert(slices.Delete(order, at, at+1), 0, "reason")
	}
	for _, name := range order {
		c := fieldChange{Name: name}
		c.Old, c.HadOld = fieldText(was, name)
		c.New, c.HasNew = fieldText(is, name)
		if !bytes.Equal(was[name], is[name]) && !(isZero(was[name]) && isZero(is[name])) {
			list = append(list, c)
		}
	}
	return list
}

// isZero reports whether a field has no value, or the one that a missing field has.
func isZero(value json.RawMessage) bool {
	switch string(value) {
	case "", "null", `""`, "0", "false", "[]", "{}":
		return true
	}
	return false
}

// fieldsOf returns the fields of a JSON object. A missing value is an object without fields.
func fieldsOf(text *string) (fields map[string]json.RawMessage, ok bool) {
	if text == nil {
		return nil, true
	}
	err := json.Unmarshal([]byte(*text), &fields)
	return fields, err == nil && fields != nil
}

// fieldText returns the value of a field, a string without its quotes.
func fieldText(fields map[string]json.RawMessage, name string) (text string, ok bool) {
	value, ok := fields[name]
	if json.Unmarshal(value, &text) == nil {
		return text, ok
	}
	return string(value), ok
}
