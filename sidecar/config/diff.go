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

// Change is one difference between two configurations, or between what the file
// says and what is in force: of a field or, if Field is empty, of a whole table.
type Change struct {
	Table string // circuit_defaults, throttle, circuit, retry_policy, error_rule or queue
	Name  string // of the table: its name or key; empty for circuit_defaults and for the order of error rules
	Field string // the key of the field; empty: the table as a whole
	// Old and New are the values of the field, or the tables. Nil: there was none,
	// or there is none any more.
	Old, New any
}

// String returns the change as people read it: "error_rule timeouts: severity
// medium -> high".
func (c Change) String() string { return c.subject() + ": " + c.what() }

// subject is the table that has changed.
func (c Change) subject() string {
	if c.Name == "" {
		return c.Table
	}
	return c.Table + " " + c.Name
}

// what is the difference, without the table.
func (c Change) what() string {
	switch {
	case c.Field != "":
		before, short := shown(reflect.ValueOf(c.Old))
		after, alsoShort := shown(reflect.ValueOf(c.New))
		if !short || !alsoShort {
			return c.Field + " changed"
		}
		return c.Field + " " + before + " -> " + after
	case c.Old == nil:
		return "added"
	case c.New == nil:
		switch c.Table {
		case "throttle", "queue":
			return "not in the file any more; what it has set stays"
		case "circuit":
			return "not in the file any more; what it has set in the runtime configuration stays"
		}
		return "removed"
	}
	return "the order has changed, the first that fits counts"
}

// Lines returns changes as people read them, one line for each table: changes in a
// row of fields of one table share it.
func Lines(changes []Change) []string {
	var lines []string
	for i, c := range changes {
		if i > 0 && c.Field != "" && changes[i-1].Field != "" && c.subject() == changes[i-1].subject() {
			lines[len(lines)-1] += ", " + c.what()
			continue
		}
		lines = append(lines, c.String())
	}
	return lines
}

// Diff says how two configurations differ, as far as the file alone decides.
// Limits of throttles and circuits and settings of queues are compared with what
// is in force when they are declared; of them, here are the tables that are gone.
func Diff(old, next *Config) []Change {
	changes := fieldChanges("circuit_defaults", "", "", reflect.ValueOf(old.CircuitDefaults), reflect.ValueOf(next.CircuitDefaults))
	changes = append(changes, gone("circuit", old.Circuits, next.Circuits, CircuitTable.name)...)
	changes = append(changes, tableChanges("retry_policy", old.RetryPolicies, next.RetryPolicies, policyName)...)
	changes = append(changes, tableChanges("error_rule", old.ErrorRules, next.ErrorRules, ruleName)...)
	before, after := commonOrder(old.ErrorRules, next.ErrorRules), commonOrder(next.ErrorRules, old.ErrorRules)
	if !slices.Equal(before, after) {
		changes = append(changes, Change{Table: "error_rule", Old: before, New: after})
	}
	changes = append(changes, gone("throttle", old.Throttles, next.Throttles, ThrottleTable.name)...)
	return append(changes, gone("queue", old.Queues, next.Queues, queueName)...)
}

// QueueChanges says how the settings of a queue differ from those that it has.
func QueueChanges(old, next wire.QueueSettings) []Change {
	return fieldChanges("queue", next.Name, "", reflect.ValueOf(old), reflect.ValueOf(next))
}

func (t ThrottleTable) name() string        { return t.Key }
func (t CircuitTable) name() string         { return t.Key }
func policyName(p rules.RetryPolicy) string { return p.Name }
func ruleName(r rules.ErrorRule) string     { return r.Name }
func queueName(q wire.QueueSettings) string { return q.Name }

// tableChanges compares tables by name, in the order of next, then those that are
// gone.
func tableChanges[T any](kind string, old, next []T, name func(T) string) []Change {
	had := make(map[string]T, len(old))
	for _, t := range old {
		had[name(t)] = t
	}
	var changes []Change
	for _, t := range next {
		if before, ok := had[name(t)]; ok {
			changes = append(changes, fieldChanges(kind, name(t), "", reflect.ValueOf(before), reflect.ValueOf(t))...)
		} else {
			changes = append(changes, Change{Table: kind, Name: name(t), New: t})
		}
	}
	return append(changes, gone(kind, old, next, name)...)
}

// gone names the tables that next does not have.
func gone[T any](kind string, old, next []T, name func(T) string) []Change {
	has := make(map[string]bool, len(next))
	for _, t := range next {
		has[name(t)] = true
	}
	var changes []Change
	for _, t := range old {
		if !has[name(t)] {
			changes = append(changes, Change{Table: kind, Name: name(t), Old: t})
		}
	}
	return changes
}

// commonOrder returns the names of those tables that others have, too, in order.
func commonOrder(tables, others []rules.ErrorRule) []string {
	var names []string
	lacking := gone("", tables, others, ruleName)
	for _, r := range tables {
		if len(lacking) > 0 && lacking[0].Name == r.Name {
			lacking = lacking[1:]
			continue
		}
		names = append(names, r.Name)
	}
	return names
}

// RestartKeys names the keys that differ and that only a start applies. Their
// values are not shown, since some are secrets.
func RestartKeys(running, next *Config) []string {
	a, b := *running, *next
	for _, c := range []*Config{&a, &b} {
		c.CircuitDefaults = CircuitLimits{}
		c.Queues, c.Throttles, c.Circuits, c.RetryPolicies, c.ErrorRules = nil, nil, nil, nil, nil
	}
	var keys []string
	for _, change := range fieldChanges("", "", "", reflect.ValueOf(a), reflect.ValueOf(b)) {
		keys = append(keys, change.Field)
	}
	return keys
}

// fieldChanges compares two structs of the configuration by their keys, which
// begin with prefix.
func fieldChanges(table, name, prefix string, old, next reflect.Value) []Change {
	var changes []Change
	for field := range old.Type().Fields() {
		key := field.Tag.Get("koanf")
		if key == "" || key == "-" {
			continue
		}
		a, b := old.FieldByIndex(field.Index), next.FieldByIndex(field.Index)
		switch {
		case a.Kind() == reflect.Struct:
			changes = append(changes, fieldChanges(table, name, prefix+key+".", a, b)...)
		case a.Kind() == reflect.Slice && a.Len() == 0 && b.Len() == 0:
		case !reflect.DeepEqual(a.Interface(), b.Interface()):
			changes = append(changes, Change{Table: table, Name: name, Field: prefix + key, Old: a.Interface(), New: b.Interface()})
		}
	}
	return changes
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
