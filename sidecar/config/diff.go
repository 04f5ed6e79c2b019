package config

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/filaq/fila/sidecar/rules"
	"github.com/filaq/fila/wire"
)

// Line is how one table of the configuration differs, as people read it:
// "error_rule timeouts: severity medium -> high". name is its name or key, empty for
// circuit_defaults and for the order of error rules.
func Line(table, name string, what ...string) string {
	if name != "" {
		table += " " + name
	}
	return table + ": " + strings.Join(what, ", ")
}

// Diff says how two configurations differ, as far as the file alone decides, one
// line for each table. Limits of throttles and circuits and settings of queues are
// compared with what is in force when they are declared; of them, here are the
// tables that are gone.
func Diff(old, next *Config) []string {
	const stays = "no longer in the file; its settings stay"
	const circuitStays = "no longer in the file; its settings stay in the runtime configuration"
	lines := slices.Concat(
		tableLine("circuit_defaults", "", old.CircuitDefaults, next.CircuitDefaults),
		goneLines("circuit", circuitStays, old.Circuits, next.Circuits, CircuitTable.name),
		tableLines("retry_policy", old.RetryPolicies, next.RetryPolicies, policyName),
		tableLines("error_rule", old.ErrorRules, next.ErrorRules, ruleName),
		tableLines("guard", old.Guards, next.Guards, GuardTable.name),
		tableLines("route", old.Routes, next.Routes, RouteTable.name))
	if !slices.Equal(commonOrder(old.Routes, next.Routes, RouteTable.name), commonOrder(next.Routes, old.Routes, RouteTable.name)) {
		lines = append(lines, Line("route", "", "the order has changed; a message goes by the first route that admits it"))
	}
	if !slices.Equal(commonOrder(old.ErrorRules, next.ErrorRules, ruleName), commonOrder(next.ErrorRules, old.ErrorRules, ruleName)) {
		lines = append(lines, Line("error_rule", "", "the order has changed; the first matching rule decides"))
	}
	return slices.Concat(lines,
		goneLines("throttle", stays, old.Throttles, next.Throttles, ThrottleTable.name),
		goneLines("queue", stays, old.Queues, next.Queues, queueName))
}

// QueueDiff says in a line how the settings of a queue differ from those that it
// had; nil: it is new.
func QueueDiff(had *wire.QueueSettings, next wire.QueueSettings) []string {
	if had == nil {
		return []string{Line("queue", next.Name, "added")}
	}
	return tableLine("queue", next.Name, *had, next)
}

func (t ThrottleTable) name() string { return t.Key }
func (t CircuitTable) name() string  { return t.Key }
func (t GuardTable) name() string    { return t.Key }

// name is the choice and the name of a route in it.
func (t RouteTable) name() string { return t.Choice + "/" + t.Name }

func policyName(p rules.RetryPolicy) string { return p.Name }
func ruleName(r rules.ErrorRule) string     { return r.Name }
func queueName(q wire.QueueSettings) string { return q.Name }

// tableLines compares tables by name, in the order of next, then those that are
// gone.
func tableLines[T any](kind string, old, next []T, name func(T) string) []string {
	var lines []string
	for _, t := range next {
		if i := slices.IndexFunc(old, func(o T) bool { return name(o) == name(t) }); i >= 0 {
			lines = append(lines, tableLine(kind, name(t), old[i], t)...)
		} else {
			lines = append(lines, Line(kind, name(t), "added"))
		}
	}
	return append(lines, goneLines(kind, "removed", old, next, name)...)
}

// tableLine compares two tables, and says nothing if they are the same.
func tableLine[T any](kind, name string, old, next T) []string {
	what := fieldChanges(old, next)
	if what == nil {
		return nil
	}
	return []string{Line(kind, name, what...)}
}

// fieldChanges describes how the fields of two structs of a type differ.
func fieldChanges(old, next any) (what []string) {
	for _, d := range differences("", reflect.ValueOf(old), reflect.ValueOf(next)) {
		what = append(what, FieldChange(d.key, d.old, d.next))
	}
	return what
}

// QueueChanges describes how settings of a queue differ: "quantum 1 -> 2, ordering none -> strict".
func QueueChanges(old, next wire.QueueSettings) string {
	return strings.Join(fieldChanges(old, next), ", ")
}

// goneLines says what it means that next does not have a table any more.
func goneLines[T any](kind, what string, old, next []T, name func(T) string) []string {
	has := make(map[string]bool, len(next))
	for _, t := range next {
		has[name(t)] = true
	}
	var lines []string
	for _, t := range old {
		if !has[name(t)] {
			lines = append(lines, Line(kind, name(t), what))
		}
	}
	return lines
}

// commonOrder returns the names of the tables that others have, too, in order.
func commonOrder[T any](all, others []T, name func(T) string) []string {
	var names []string
	for _, t := range all {
		if slices.ContainsFunc(others, func(o T) bool { return name(o) == name(t) }) {
			names = append(names, name(t))
		}
	}
	return names
}

// RestartKeys names the keys that differ and that only a start applies. Their
// values are not shown, since some are secrets.
func RestartKeys(running, next *Config) []string {
	a, b := *running, *next
	for _, c := range []*Config{&a, &b} {
		c.CircuitDefaults = CircuitLimits{}
		c.Queues, c.Throttles, c.Circuits, c.RetryPolicies, c.ErrorRules, c.Guards, c.Routes = nil, nil, nil, nil, nil, nil, nil
	}
	var keys []string
	for _, d := range differences("", reflect.ValueOf(a), reflect.ValueOf(b)) {
		keys = append(keys, d.key)
	}
	return keys
}

// difference is a field, by its key, of two structs of the configuration.
type difference struct {
	key       string
	old, next any
}

// differences compares two structs of the configuration by their keys, which begin
// with prefix.
func differences(prefix string, old, next reflect.Value) []difference {
	var all []difference
	for field := range old.Type().Fields() {
		key := field.Tag.Get("koanf")
		if key == "" || key == "-" {
			continue
		}
		a, b := old.FieldByIndex(field.Index), next.FieldByIndex(field.Index)
		switch {
		case a.Kind() == reflect.Struct:
			all = append(all, differences(prefix+key+".", a, b)...)
		case a.Kind() == reflect.Slice && a.Len() == 0 && b.Len() == 0:
		case !reflect.DeepEqual(a.Interface(), b.Interface()):
			all = append(all, difference{prefix + key, a.Interface(), b.Interface()})
		}
	}
	return all
}

// FieldChange says how the field of a key differs: "severity medium -> high". nil is
// no value at all.
func FieldChange(key string, old, next any) string {
	before, short := shown(reflect.ValueOf(old))
	after, alsoShort := shown(reflect.ValueOf(next))
	if !short || !alsoShort {
		return key + " changed"
	}
	return key + " " + before + " -> " + after
}

// shown writes a value for people. It reports false for texts that are scripts
// or as long.
func shown(v reflect.Value) (text string, short bool) {
	switch v.Kind() {
	case reflect.Invalid:
		return "none", true
	case reflect.Pointer:
		if v.IsNil() {
			return "unset", true
		}
		return shown(v.Elem())
	case reflect.Float64:
		return number(v.Float()), true
	case reflect.String:
		s := v.String()
		if s == "" || strings.ContainsFunc(s, func(r rune) bool { return r == ' ' || r == ',' || !unicode.IsGraphic(r) }) {
			return strconv.Quote(s), len(s) <= 100 && !strings.Contains(s, "\n")
		}
		return s, len(s) <= 100
	}
	return fmt.Sprint(v.Interface()), true
}
