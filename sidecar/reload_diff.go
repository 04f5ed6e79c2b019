package sidecar

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/filaq/fila/wire"
)

// rulesDiff says in lines how the rules of two configurations differ, as far as
// the file alone decides: "error_rule timeouts: severity medium -> high".
// Throttles, circuits and queues are compared with what is in force when they
// are declared.
func rulesDiff(old, next *Config) []string {
	var lines []string
	if diff := fieldsDiff(old.CircuitDefaults, next.CircuitDefaults); diff != "" {
		lines = append(lines, "circuit_defaults: "+diff)
	}
	lines = append(lines, circuitsDiff(old.Circuits, next.Circuits)...)
	lines = append(lines, tablesDiff("retry_policy", old.RetryPolicies, next.RetryPolicies, func(p RetryPolicy) string { return p.Name }, "removed")...)
	lines = append(lines, tablesDiff("error_rule", old.ErrorRules, next.ErrorRules, ruleName, "removed")...)
	if order := commonOrder(old.ErrorRules, next.ErrorRules); !slices.Equal(order, commonOrder(next.ErrorRules, old.ErrorRules)) {
		lines = append(lines, "error_rule: the order has changed, the first that fits counts")
	}
	stay := "not in the file any more; what it has set stays"
	lines = append(lines, gone("throttle", old.Throttles, next.Throttles, func(t ThrottleTable) string { return t.Key }, stay)...)
	return append(lines, gone("queue", old.Queues, next.Queues, func(q wire.QueueSettings) string { return q.Name }, stay)...)
}

func ruleName(r ErrorRule) string { return r.Name }

// circuitsDiff compares what the runtime configuration does not hold.
func circuitsDiff(old, next []CircuitTable) []string {
	key := func(t CircuitTable) string { return t.Key }
	fileOnly := func(tables []CircuitTable) []CircuitTable {
		var kept []CircuitTable
		for _, t := range tables {
			kept = append(kept, CircuitTable{
				Key: t.Key, MaxFailures: t.MaxFailures, FailureWindowMs: t.FailureWindowMs, FailureHoldMs: t.FailureHoldMs,
			})
		}
		return kept
	}
	return tablesDiff("circuit", fileOnly(old), fileOnly(next), key, "not in the file any more; what it has set in the runtime configuration stays")
}

// tablesDiff compares tables by name, in the order of next, then those that are
// gone.
func tablesDiff[T any](kind string, old, next []T, name func(T) string, removed string) []string {
	had := make(map[string]T, len(old))
	for _, t := range old {
		had[name(t)] = t
	}
	var lines []string
	for _, t := range next {
		before, ok := had[name(t)]
		if !ok {
			lines = append(lines, kind+" "+name(t)+": added")
		} else if diff := fieldsDiff(before, t); diff != "" {
			lines = append(lines, kind+" "+name(t)+": "+diff)
		}
	}
	return append(lines, gone(kind, old, next, name, removed)...)
}

// gone names the tables that next does not have.
func gone[T any](kind string, old, next []T, name func(T) string, what string) []string {
	has := make(map[string]bool, len(next))
	for _, t := range next {
		has[name(t)] = true
	}
	var lines []string
	for _, t := range old {
		if !has[name(t)] {
			lines = append(lines, kind+" "+name(t)+": "+what)
		}
	}
	return lines
}

// commonOrder returns the names of those rules that others have, too, in order.
func commonOrder(rules, others []ErrorRule) []string {
	has := make(map[string]bool, len(others))
	for _, r := range others {
		has[r.Name] = true
	}
	var names []string
	for _, r := range rules {
		if has[r.Name] {
			names = append(names, r.Name)
		}
	}
	return names
}

// restartKeys names the keys that differ and that only a start applies. Their
// values are not shown, since some are secrets.
func restartKeys(running, next *Config) []string {
	a, b := *running, *next
	for _, c := range []*Config{&a, &b} {
		c.CircuitDefaults = CircuitDefaults{}
		c.Queues, c.Throttles, c.Circuits, c.RetryPolicies, c.ErrorRules = nil, nil, nil, nil, nil
	}
	var keys []string
	for _, f := range fieldChanges("", reflect.ValueOf(a), reflect.ValueOf(b)) {
		keys = append(keys, f.key)
	}
	return keys
}

// fieldChange is a key whose value differs.
type fieldChange struct {
	key      string
	old, new reflect.Value
}

// fieldChanges compares two structs of the configuration by their keys.
func fieldChanges(prefix string, old, next reflect.Value) []fieldChange {
	var changes []fieldChange
	for field := range old.Type().Fields() {
		key := field.Tag.Get("koanf")
		if key == "" || key == "-" {
			continue
		}
		a, b := old.FieldByIndex(field.Index), next.FieldByIndex(field.Index)
		switch {
		case a.Kind() == reflect.Struct:
			changes = append(changes, fieldChanges(prefix+key+".", a, b)...)
		case a.Kind() == reflect.Slice && a.Len() == 0 && b.Len() == 0:
		case !reflect.DeepEqual(a.Interface(), b.Interface()):
			changes = append(changes, fieldChange{prefix + key, a, b})
		}
	}
	return changes
}

// fieldsDiff says how two tables differ: "rate 10 -> 20, burst 0 -> 5". Nothing
// if they do not.
func fieldsDiff(old, next any) string {
	var parts []string
	for _, f := range fieldChanges("", reflect.ValueOf(old), reflect.ValueOf(next)) {
		a, shortA := shown(f.old)
		b, shortB := shown(f.new)
		if !shortA || !shortB {
			parts = append(parts, f.key+" changed")
			continue
		}
		parts = append(parts, fmt.Sprintf("%s %s -> %s", f.key, a, b))
	}
	return strings.Join(parts, ", ")
}

// shown writes a value for a difference. It reports false for texts that are
// scripts or as long.
func shown(v reflect.Value) (string, bool) {
	switch v.Kind() {
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
