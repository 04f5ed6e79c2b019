package control

import (
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/filaq/fila/store"
	"github.com/filaq/fila/throttle"
	"github.com/filaq/fila/wire"
)

// values is the runtime configuration: the texts that operators and the
// configuration file set and hooks read. What it holds is on disk.
type values struct {
	editing sync.Mutex // one edit at a time, disk included

	mu struct {
		sync.RWMutex
		texts  map[string]string
		limits map[string]throttle.Limits // of throttle keys and prefixes: what their texts say
	}
}

// change is a key with its values before and after a change; nil is not set.
type change struct {
	key      string
	old, new *string
}

// newValues takes the runtime configuration out of what is kept.
func newValues(kept []store.Entry, log *slog.Logger) *values {
	v := &values{}
	v.mu.texts = make(map[string]string, len(kept))
	v.mu.limits = make(map[string]throttle.Limits)
	for _, e := range kept {
		if isState(e.Key) {
			continue
		}
		v.put(e.Key, &e.Value)
		if checkMeaning(e.Key, e.Value) != nil {
			log.Warn("a setting of the runtime configuration has no effect: fila does not know it, or not its value",
				"key", e.Key, "value", e.Value)
		}
	}
	return v
}

// Get returns the value of key.
func (v *values) Get(key string) (string, bool) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	text, ok := v.mu.texts[key]
	return text, ok
}

// limits are what is set for a throttle key or prefix.
func (v *values) limits(key string) throttle.Limits {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.mu.limits[key]
}

// throttles returns the throttle keys and prefixes that have limits, in no order.
func (v *values) throttles() []string {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return slices.Collect(maps.Keys(v.mu.limits))
}

// list returns the entries whose key starts with prefix, in the order of their
// keys.
func (v *values) list(prefix string) []wire.ConfigEntry {
	entries := []wire.ConfigEntry{}
	v.mu.RLock()
	for key, text := range v.mu.texts {
		if strings.HasPrefix(key, prefix) {
			entries = append(entries, wire.ConfigEntry{Key: key, Value: text})
		}
	}
	v.mu.RUnlock()
	slices.SortFunc(entries, func(a, b wire.ConfigEntry) int { return strings.Compare(a.Key, b.Key) })
	return entries
}

// edit gives keys the values that decide returns, all or none of them; those whose
// value is nil are deleted. No other edit comes between. write gets what changes, in
// the order of the keys, with the entries for it, to hand them on; it is called even
// if that is nothing. edit returns the same when it is in force.
func (v *values) edit(
	decide func() (map[string]*string, *wire.Error), write func(Batch, []change) <-chan error,
) ([]change, *wire.Error) {
	v.editing.Lock()
	defer v.editing.Unlock()
	next, werr := decide()
	if werr != nil {
		return nil, werr
	}
	var kept Batch
	var changes []change
	for _, key := range slices.Sorted(maps.Keys(next)) {
		ch := change{key: key, new: next[key]}
		if text, ok := v.Get(key); ok {
			ch.old = &text
		}
		switch {
		case ch.new == nil && ch.old == nil, ch.new != nil && ch.old != nil && *ch.new == *ch.old:
			continue
		case ch.new != nil:
			kept.put(key, *ch.new)
		default:
			kept.Delete = append(kept.Delete, key)
		}
		changes = append(changes, ch)
	}
	if werr := outcome(<-write(kept, changes)); werr != nil {
		return nil, werr
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, ch := range changes {
		v.put(ch.key, ch.new)
	}
	return changes, nil
}

// put needs mu.
func (v *values) put(key string, text *string) {
	value := ""
	if text != nil {
		v.mu.texts[key], value = *text, *text
	} else {
		delete(v.mu.texts, key)
	}
	name, s := splitSetting(key)
	if s == nil || s.kind != kindThrottle {
		return
	}
	l := limits{Limits: v.mu.limits[name]}
	s.read(&l, value)
	v.mu.limits[name] = l.Limits
	if l == (limits{}) {
		delete(v.mu.limits, name)
	}
}

// weights returns the weight overrides of a queue by fairness key, in thousandths.
func (v *values) weights(queue string) map[string]uint32 {
	found := make(map[string]uint32)
	for _, e := range v.list(kindWeight + ":" + queue + ":") {
		_, key, ok := splitWeight(e.Key)
		if weight, valid := parseWeight(e.Value); ok && valid {
			found[key] = weight
		}
	}
	return found
}
