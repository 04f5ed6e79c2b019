package control

import (
	"cmp"
	"errors"
	"log/slog"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/filaq/fila/ordered"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/throttle"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// values is the runtime configuration: texts that operators and the configuration file set and
// hooks read. All of it is on disk.
type values struct {
	// editing holds one element during an edit, including the write. It is no mutex,
	// since in a bubble of testing/synctest no time passes while a goroutine waits for one.
	editing chan struct{}

	shared  SharedKV       // nil: no other node changes anything
	enforce func([]change) // puts changes of other nodes into force

	mu struct {
		sync.RWMutex
		texts map[string]string
		keys  ordered.Set // of texts
	}
}

// change is a key with its values before and after a change; nil: not set.
type change struct {
	key      string
	old, new *string
}

// newValues reads the runtime configuration from the stored entries.
func newValues(kept []store.Entry, log *slog.Logger) *values {
	v := &values{editing: make(chan struct{}, 1)}
	v.mu.texts = make(map[string]string, len(kept))
	for _, e := range kept {
		if isState(e.Key) {
			continue
		}
		v.mu.texts[e.Key] = e.Value
		v.mu.keys.Add(e.Key)
		if checkMeaning(e.Key, e.Value) != nil {
			log.Warn("a setting of the runtime configuration has no effect: its name or value is unknown",
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

// now returns the value of key, nil if it is not set.
func (v *values) now(key string) *string {
	if text, ok := v.Get(key); ok {
		return &text
	}
	return nil
}

// limits returns the settings of a kind on top of base, for the keys with any such setting.
func (v *values) limits(kind string, base limits) map[string]limits {
	found := make(map[string]limits)
	v.mu.RLock()
	defer v.mu.RUnlock()
	for text, value := range v.mu.texts {
		key, s := splitSetting(text)
		if s == nil || s.kind != kind || value == "" {
			continue
		}
		l, ok := found[key]
		if !ok {
			l = base
		}
		if s.read(&l, value) {
			found[key] = l
		}
	}
	return found
}

// throttles returns the throttle keys and prefixes that have limits, in no order.
func (v *values) throttles() []string {
	return slices.Collect(maps.Keys(v.limits(kindThrottle, limits{})))
}

// throttle returns the limits of a throttle key or prefix.
func (v *values) throttle(key string) throttle.Limits {
	var l limits
	v.mu.RLock()
	defer v.mu.RUnlock()
	for s := range settingsOf(kindThrottle) {
		s.read(&l, v.mu.texts[s.key(key)])
	}
	return l.Limits
}

// list returns a page of entries in the order of their keys.
func (v *values) list(req api.KeyListRequest) api.ConfigList {
	v.mu.RLock()
	defer v.mu.RUnlock()
	page := v.mu.keys.Page(req.Prefix, wire.NamedKey(req.After), req.Offset, req.Limit)
	list := api.ConfigList{Total: page.Total, Next: wire.ShowKey(page.Next), Entries: make([]api.ConfigEntry, len(page.Keys))}
	for i, key := range page.Keys {
		list.Entries[i] = api.ConfigEntry{Key: key, Value: v.mu.texts[key]}
	}
	return list
}

// all returns the entries with a prefix in the order of their keys.
func (v *values) all(prefix string) []api.ConfigEntry {
	return v.list(api.KeyListRequest{Prefix: prefix, Limit: math.MaxInt}).Entries
}

// edit sets the keys that decide returns, all or none of them; nil deletes a key. No other edit
// comes in between, here or at another node: then edit calls decide again. write gets the
// changes in the order of the keys and the entries to store, even if there are none. edit
// returns the changes once they are in force. It reads the newest values before it refuses or finds
// nothing to change.
func (v *values) edit(
	decide func() (map[string]*string, *wire.Error), write func(Batch, []change) <-chan error,
) ([]change, *wire.Error) {
	for range editTries {
		changes, werr, err := v.tryEdit(decide, write)
		if !errors.Is(err, ErrChanged) {
			return changes, cmp.Or(werr, outcome(err))
		}
		time.Sleep(rand.N(editPause)) // the other node's change is on its way
	}
	return nil, wire.OutcomeUnknown()
}

const (
	// 200 tries take some ten seconds while other nodes keep changing the same keys.
	editTries = 200
	editPause = 100 * time.Millisecond
)

func (v *values) tryEdit(
	decide func() (map[string]*string, *wire.Error), write func(Batch, []change) <-chan error,
) ([]change, *wire.Error, error) {
	v.editing <- struct{}{}
	defer func() { <-v.editing }()
	changes, keys, werr := v.decided(decide)
	if len(changes) == 0 && len(keys) > 0 && v.shared != nil { // what has decided that may be old
		if err := v.shared.Refresh(keys); err != nil {
			return nil, werr, err
		}
		v.enforce(v.newer(keys, v.shared.Newest))
		changes, _, werr = v.decided(decide)
	}
	if werr != nil {
		return nil, werr, nil
	}
	var kept Batch
	for _, ch := range changes {
		if ch.new != nil {
			kept.put(ch.key, *ch.new)
		} else {
			kept.Delete = append(kept.Delete, ch.key)
		}
		kept.Was = append(kept.Was, Was{ch.key, ch.old})
	}
	if err := <-write(kept, changes); err != nil {
		return nil, nil, err
	}
	v.put(changes)
	return changes, nil, nil
}

// decided returns the changes that decide asks for, if it does not refuse, and all keys that it sets.
func (v *values) decided(decide func() (map[string]*string, *wire.Error)) (changes []change, keys []string, werr *wire.Error) {
	next, werr := decide()
	if werr == nil {
		changes = v.changes(next)
	}
	return changes, slices.Sorted(maps.Keys(next)), werr
}

// changes returns the difference between next, where nil deletes, and the present values, in the
// order of the keys.
func (v *values) changes(next map[string]*string) []change {
	var changes []change
	for _, key := range slices.Sorted(maps.Keys(next)) {
		ch := change{key: key, old: v.now(key), new: next[key]}
		if !equalTexts(ch.old, ch.new) {
			changes = append(changes, ch)
		}
	}
	return changes
}

// put applies changes that are on disk.
func (v *values) put(changes []change) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, ch := range changes {
		if ch.new != nil {
			v.mu.texts[ch.key] = *ch.new
			v.mu.keys.Add(ch.key)
		} else {
			delete(v.mu.texts, ch.key)
			v.mu.keys.Remove(ch.key)
		}
	}
}

// learn takes over the newest values under keys, and returns the changes.
func (v *values) learn(keys []string, newest newest) []change {
	v.editing <- struct{}{}
	defer func() { <-v.editing }()
	return v.newer(keys, newest)
}

// newer is learn during an edit.
func (v *values) newer(keys []string, newest newest) []change {
	var changes []change
	for _, key := range keys {
		ch := change{key: key, old: v.now(key)}
		text, ok, settled := newest(key)
		if ok {
			ch.new = &text
		}
		if settled && !equalTexts(ch.old, ch.new) {
			changes = append(changes, ch)
		}
	}
	v.put(changes)
	return changes
}

func equalTexts(a, b *string) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}
