package sidecar

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/filaq/fila/store"
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
		c.mu.values[e.Key] = e.Value
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

// page returns items[offset:offset+limit] as far as it exists.
func page[T any](items []T, offset, limit int) []T {
	offset = min(offset, len(items))
	return items[offset:min(offset+limit, len(items))]
}

// put stores value under key, or deletes it if value is nil, when check agrees
// with the present value. save writes it to disk.
func (c *runtimeConfig) put(key string, value *string, check func(now *string) *wire.Error, save func(*store.Batch) error) (*string, *wire.Error) {
	c.change.Lock()
	defer c.change.Unlock()
	var previous *string
	if v, ok := c.Get(key); ok {
		previous = &v
	}
	if err := check(previous); err != nil {
		return nil, err
	}
	b := &store.Batch{}
	if value != nil {
		b.PutConfig = []store.Entry{{Key: key, Value: *value}}
	} else {
		b.DeleteConfig = []string{key}
	}
	if err := save(b); err != nil {
		return nil, wire.OutcomeUnknown()
	}
	c.mu.Lock()
	if value != nil {
		c.mu.values[key] = *value
	} else {
		delete(c.mu.values, key)
	}
	c.mu.Unlock()
	return previous, nil
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

// meanings says what the values of keys with a meaning must be, by the kind of
// key and its last part.
var meanings = map[string]struct {
	allowed string
	valid   func(string) bool
}{
	"throttle:rate":               {"a number of messages per second above 0, such as 10 or 0.5", positive},
	"throttle:burst":              {"a number of messages of at least 1", atLeast(1)},
	"throttle:concurrency":        {"a whole number of messages of at least 1", whole(1)},
	"throttle:limit":              {"a whole number of messages of at least 1", whole(1)},
	"throttle:window_ms":          {"a whole number of milliseconds of at least 1", whole(1)},
	"circuit:threshold":           {"a whole number of failures of at least 1", whole(1)},
	"circuit:cooldown_ms":         {"a whole number of milliseconds of at least 1", whole(1)},
	"circuit:half_open_max_calls": {"a whole number of at least 1", whole(1)},
}

func positive(s string) bool {
	f, err := strconv.ParseFloat(s, 64)
	return err == nil && f > 0 && f <= 1e9
}

func atLeast(low float64) func(string) bool {
	return func(s string) bool {
		f, err := strconv.ParseFloat(s, 64)
		return err == nil && f >= low && f <= 1e9
	}
}

func whole(low int64) func(string) bool {
	return func(s string) bool {
		n, err := strconv.ParseInt(s, 10, 64)
		return err == nil && n >= low && n <= 1e15
	}
}

// checkMeaning refuses a value that a key with a meaning cannot have. Other
// keys mean what hooks make of them.
func checkMeaning(key, value string) *wire.Error {
	kind, rest, _ := strings.Cut(key, ":")
	switch kind {
	case "weight":
		if _, _, ok := splitWeight(key); !ok {
			return wire.BadConfigValue(key, value, "the key must be weight:<queue>:<fairness key>")
		}
		if _, ok := parseWeight(value); !ok {
			return wire.BadConfigValue(key, value, "allowed is a number from 1 to 1000000")
		}
	case "throttle", "circuit":
		cut := strings.LastIndexByte(rest, ':')
		m, ok := meanings[kind+":"+rest[cut+1:]]
		if cut <= 0 || !ok {
			return wire.BadConfigValue(key, value, fmt.Sprintf("the key must be %s:<key>:<one of %s>", kind, settingsOf(kind)))
		}
		if !m.valid(value) {
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
