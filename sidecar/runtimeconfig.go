package sidecar

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/filaq/fila/store"
	"github.com/filaq/fila/throttle"
	"github.com/filaq/fila/wire"
)

// runtimeConfig is the persisted string map that operators set and hooks read.
// What it holds is on disk.
type runtimeConfig struct {
	// change serialises set and delete, disk included.
	change sync.Mutex

	mu struct {
		sync.RWMutex
		values map[string]string
	}
}

func newRuntimeConfig(entries []store.Entry) *runtimeConfig {
	c := &runtimeConfig{}
	c.mu.values = make(map[string]string, len(entries))
	for _, e := range entries {
		if !isState(e.Key) {
			c.mu.values[e.Key] = e.Value
		}
	}
	return c
}

// Get returns the value of key.
func (c *runtimeConfig) Get(key string) (string, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	v, ok := c.mu.values[key]
	return v, ok
}

// list returns the entries whose key starts with prefix, in the order of their
// keys, and how many there are in all.
func (c *runtimeConfig) list(prefix string, offset, limit int) ([]wire.ConfigEntry, int) {
	c.mu.RLock()
	var keys []string
	for k := range c.mu.values {
		if strings.HasPrefix(k, prefix) {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	total := len(keys)
	entries := []wire.ConfigEntry{}
	for _, k := range page(keys, offset, limit) {
		entries = append(entries, wire.ConfigEntry{Key: k, Value: c.mu.values[k]})
	}
	c.mu.RUnlock()
	return entries, total
}

// all returns the entries whose key starts with prefix, in no order.
func (c *runtimeConfig) all(prefix string) []store.Entry {
	c.mu.RLock()
	defer c.mu.RUnlock()
	var entries []store.Entry
	for k, v := range c.mu.values {
		if strings.HasPrefix(k, prefix) {
			entries = append(entries, store.Entry{Key: k, Value: v})
		}
	}
	return entries
}

// limits returns what is set of the limits of a throttle key.
func (c *runtimeConfig) limits(key string) limitTexts {
	c.mu.RLock()
	defer c.mu.RUnlock()
	t := make(limitTexts)
	for _, name := range limitNames {
		if v, ok := c.mu.values[settingKey(key, name)]; ok {
			t[name] = v
		}
	}
	return t
}

// page returns items[offset:offset+limit] as far as it exists.
func page[T any](items []T, offset, limit int) []T {
	offset = min(offset, len(items))
	return items[offset:min(offset+limit, len(items))]
}

// edit gives keys the values that decide returns, all or none of them; those
// whose value is nil are deleted. No other edit comes between. save writes the
// batch to disk; it gets what changes, in the order of the keys, and is called
// even if that is nothing. edit returns the same when it is in force.
func (c *runtimeConfig) edit(decide func() (map[string]*string, *wire.Error), save func(*store.Batch, []change) error) ([]change, *wire.Error) {
	c.change.Lock()
	defer c.change.Unlock()
	values, err := decide()
	if err != nil {
		return nil, err
	}
	b := &store.Batch{}
	var changes []change
	for _, key := range slices.Sorted(maps.Keys(values)) {
		ch := change{key: key, new: values[key]}
		if v, ok := c.Get(key); ok {
			ch.old = &v
		}
		switch {
		case ch.new == nil && ch.old == nil, ch.new != nil && ch.old != nil && *ch.new == *ch.old:
			continue
		case ch.new != nil:
			b.PutConfig = append(b.PutConfig, store.Entry{Key: key, Value: *ch.new})
		default:
			b.DeleteConfig = append(b.DeleteConfig, key)
		}
		changes = append(changes, ch)
	}
	if err := save(b, changes); err != nil {
		return nil, wire.OutcomeUnknown()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, ch := range changes {
		if ch.new != nil {
			c.mu.values[ch.key] = *ch.new
		} else {
			delete(c.mu.values, ch.key)
		}
	}
	return changes, nil
}

// weights returns the weight overrides of a queue by fairness key, in
// thousandths.
func (c *runtimeConfig) weights(queue string) map[string]uint32 {
	prefix := weightPrefix + queue + ":"
	c.mu.RLock()
	defer c.mu.RUnlock()
	found := make(map[string]uint32)
	for k, v := range c.mu.values {
		if key, ok := strings.CutPrefix(k, prefix); ok {
			if w, ok := parseWeight(v); ok {
				found[key] = w
			}
		}
	}
	return found
}

const weightPrefix = "weight:"

// splitWeight takes `weight:<queue>:<fairness key>` apart. Queue names have no
// colon, fairness keys may.
func splitWeight(key string) (queue, fairnessKey string, ok bool) {
	rest, ok := strings.CutPrefix(key, weightPrefix)
	if !ok {
		return "", "", false
	}
	queue, fairnessKey, ok = strings.Cut(rest, ":")
	return queue, fairnessKey, ok && queue != "" && fairnessKey != ""
}

// splitSetting takes `throttle:<key>:<setting>` and `circuit:<key>:<setting>`
// apart. Keys may have colons, settings have none.
func splitSetting(key string) (kind, name, setting string, ok bool) {
	kind, rest, _ := strings.Cut(key, ":")
	if kind != kindThrottle && kind != kindCircuit {
		return "", "", "", false
	}
	cut := strings.LastIndexByte(rest, ':')
	if cut <= 0 {
		return "", "", "", false
	}
	name, setting = rest[:cut], rest[cut+1:]
	_, ok = meanings[kind+":"+setting]
	return kind, name, setting, ok
}

// Kinds of keys with settings.
const (
	kindThrottle = "throttle"
	kindCircuit  = "circuit"
)

// meanings says what the values of keys with a meaning must be, by the kind of
// key and its last part.
var meanings = map[string]struct {
	allowed string
	valid   func(string) bool
}{
	"throttle:rate": {
		fmt.Sprintf("a number of messages per second such as 10 or 0.5, or a fraction such as 1/3, from 1/31536000 to %d", throttle.MaxRate),
		isLimit(limitRate),
	},
	"throttle:burst": {
		fmt.Sprintf("a number of messages from 1 to %d, with up to three digits after the point", maxBurst), isLimit(limitBurst),
	},
	"throttle:concurrency":        {allowedWhole("messages", 1, throttle.MaxConcurrency), isLimit(limitConcurrency)},
	"throttle:limit":              {allowedWhole("messages", 1, throttle.MaxLimit), isLimit(limitLimit)},
	"throttle:window_ms":          {allowedWhole("milliseconds", 1, wire.MaxSettingMs), isLimit(limitWindow)},
	"circuit:threshold":           {allowedWhole("failures", 1, maxCircuitCounts), whole(1, maxCircuitCounts)},
	"circuit:cooldown_ms":         {allowedWhole("milliseconds", 1, wire.MaxSettingMs), whole(1, wire.MaxSettingMs)},
	"circuit:half_open_max_calls": {allowedWhole("messages", 1, maxCircuitCounts), whole(1, maxCircuitCounts)},
	"circuit:half_open_successes": {allowedWhole("messages", 1, maxCircuitCounts), whole(1, maxCircuitCounts)},
	"circuit:max_failures":        {allowedWhole("failures", 0, maxCircuitCounts) + "; 0 is any number", whole(0, maxCircuitCounts)},
	"circuit:failure_window_ms":   {allowedWhole("milliseconds", 1, wire.MaxSettingMs), whole(1, wire.MaxSettingMs)},
	"circuit:failure_hold_ms": {
		allowedWhole("milliseconds", 0, wire.MaxSettingMs) + "; 0 is until it is closed by hand", whole(0, wire.MaxSettingMs),
	},
}

func allowedWhole(unit string, low, high int64) string {
	return fmt.Sprintf("a whole number of %s from %d to %d", unit, low, high)
}

func whole(low, high int64) func(string) bool {
	return func(s string) bool {
		_, ok := parseWhole(s, low, high)
		return ok
	}
}

// parseWhole reads a number that is written in digits alone.
func parseWhole(s string, low, high int64) (int64, bool) {
	n, err := strconv.ParseUint(s, 10, 63)
	return int64(n), err == nil && int64(n) >= low && int64(n) <= high
}

// checkMeaning refuses a value that a key with a meaning cannot have. Other
// keys mean what hooks make of them.
func checkMeaning(key, value string) *wire.Error {
	kind, _, _ := strings.Cut(key, ":")
	switch kind {
	case "weight":
		if _, _, ok := splitWeight(key); !ok {
			return wire.BadConfigValue(key, value, "the key must be weight:<queue>:<fairness key>")
		}
		if _, ok := parseWeight(value); !ok {
			return wire.BadConfigValue(key, value, "allowed is a number from 1 to 1000000")
		}
	case kindThrottle, kindCircuit:
		_, name, setting, ok := splitSetting(key)
		if !ok || len(name) > wire.MaxKeyBytes {
			return wire.BadConfigValue(key, value, fmt.Sprintf("the key must be %s:<key of up to %d bytes>:<one of %s>",
				kind, wire.MaxKeyBytes, settingsOf(kind)))
		}
		if m := meanings[kind+":"+setting]; !m.valid(value) {
			return wire.BadConfigValue(key, value, "allowed is "+m.allowed)
		}
	}
	return nil
}

// settingsOf lists the settings of a kind of key, for error texts.
func settingsOf(kind string) string {
	var names []string
	for k := range meanings {
		if name, ok := strings.CutPrefix(k, kind+":"); ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}
