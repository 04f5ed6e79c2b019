package control

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"

	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// Sources of values: the configuration in force says what the file has set, and the newest
// entry of the audit log about a value says who has changed it and when. Values that were
// changed before the beginning of the log have no client and no time.

// sourceOf returns the source of a value that an operator, or the file, has set. last is the
// newest entry about it; nil: the log has none.
func sourceOf(inFile bool, last *api.ConfigLogEntry) api.Source {
	s := api.Source{By: api.SetByOperator}
	if inFile {
		s.By = api.SetByFile
	}
	if last != nil && (last.By == byFile) == inFile {
		s.Client, s.Owner, s.Reason, s.At = last.Client, last.Owner, last.Reason, last.Time
	}
	return s
}

// keySources returns the sources of the settings of a throttle or circuit key, without an
// override. A setting that has no value has the source unset, or none if that is "".
func (c *Control) keySources(kind, key, unset string) api.Sources {
	last := make(map[string]*api.ConfigLogEntry)
	prefix := wire.ShowKey(kind + ":" + key + ":")
	c.audit.each(prefix, func(e *api.ConfigLogEntry) bool {
		if name := e.Key[len(prefix):]; last[name] == nil {
			last[name] = new(*e)
		}
		return true
	})
	declared, sources := c.applied.Load().values, make(api.Sources)
	for s := range settingsOf(kind) {
		now, ok := c.values.Get(s.key(key))
		file := declared[s.key(key)]
		switch {
		case ok:
			sources[s.name] = sourceOf(file != nil && s.same(now, *file), last[s.name])
		case unset != "":
			sources[s.name] = api.Source{By: unset}
		}
	}
	return sources
}

// throttleSources returns who set each limit that is in force for a throttle key, here.
func (c *Control) throttleSources(key string) api.Sources {
	c.throttles.mu.Lock()
	from := c.limiting(key)
	c.throttles.mu.Unlock()
	sources := c.keySources(kindThrottle, from.key, "")
	if from.override == nil {
		return sources
	}
	over := api.Source{By: api.SetByOverride}
	c.audit.each(wire.ShowKey(overrideKey(from.key)), func(e *api.ConfigLogEntry) bool {
		over.Client, over.Owner, over.Reason, over.At = e.Client, e.Owner, e.Reason, e.Time
		return false
	})
	for name := range from.override.Set {
		sources[name] = over
	}
	for _, name := range from.override.Unset {
		delete(sources, name)
	}
	return sources
}

// LimitsChange returns the latest change at run time of the limits that are in force for a throttle
// key; nil: the log has none, or an override or the limits of another fila are in force. Entries of one
// change have the same time.
func (c *Control) LimitsChange(key string) (change *api.LimitsChange) {
	if c.ofAnotherFila(key) != nil {
		return nil
	}
	c.throttles.mu.Lock()
	from := c.own(key)
	if _, ok := isPrefix(key); !ok {
		from = c.limiting(key)
	}
	c.throttles.mu.Unlock()
	if from.override != nil {
		return nil
	}
	prefix := wire.ShowKey(kindThrottle + ":" + from.key + ":")
	c.audit.each(prefix, func(e *api.ConfigLogEntry) bool {
		name, is := e.Key[len(prefix):], change
		if is == nil {
			is = &api.LimitsChange{Key: wire.ShowKey(from.key), At: e.Time, By: e.By, Client: e.Client, Reason: e.Reason}
		}
		switch {
		case !new(api.ThrottleLimits).Put(name, nil):
			return true // of a longer key
		case e.Time != is.At || e.Client != is.Client || e.By == byFile:
			return false
		}
		is.Old.Put(name, e.Old)
		is.New.Put(name, e.New)
		change = is
		return true
	})
	return change
}

// circuitSources returns who set each setting of a circuit.
func (c *Control) circuitSources(info *api.CircuitInfo) api.Sources {
	sources := c.keySources(kindCircuit, wire.NamedKey(info.Key), api.SetByDefault)
	if info.LimitsBy != "" {
		for _, name := range []string{"threshold", "cooldown_ms", "half_open_max_calls", "half_open_successes"} {
			sources[name] = api.Source{By: info.Source, At: info.LimitsChangedAt}
		}
	}
	return sources
}

// QueueSources returns who set each setting of a queue. A setting that is empty, as it is by
// default, has none.
func (c *Control) QueueSources(now wire.QueueSettings) api.Sources {
	fields, defaults := settingFields(now), settingFields(wire.DefaultQueueSettings(now.Name))
	last := c.settingChanges(now.Name)
	var declared map[string]json.RawMessage
	for _, q := range c.applied.Load().config.Queues {
		if q.Name == now.Name {
			declared = settingFields(q)
		}
	}
	sources := make(api.Sources)
	for name, value := range fields {
		isDefault := bytes.Equal(value, defaults[name])
		switch e := last[name]; {
		case !isDefault && bytes.Equal(value, declared[name]):
			sources[name] = api.Source{By: api.SetByFile}
		case !isDefault, e != nil && e.By != api.VerbQueueCreate.Name && declared == nil:
			sources[name] = sourceOf(false, e)
		case !emptySetting(value):
			sources[name] = api.Source{By: api.SetByDefault}
		}
	}
	return sources
}

// settingChanges returns the newest entry of the audit log about each setting of a queue, since the
// queue was made.
func (c *Control) settingChanges(queue string) map[string]*api.ConfigLogEntry {
	last, object := make(map[string]*api.ConfigLogEntry), wire.ShowKey("queue:"+queue)
	c.audit.each(object, func(e *api.ConfigLogEntry) bool {
		if e.Key != object {
			return true
		}
		for _, name := range ChangedSettings(e) {
			if last[name] == nil {
				last[name] = new(*e)
			}
		}
		return e.By != api.VerbQueueCreate.Name && e.By != api.VerbQueueDelete.Name
	})
	return last
}

// ChangedSettings returns the settings of a queue that an entry of the audit log has changed, in the
// order of their names. It knows none if the entry was too long for the log.
func ChangedSettings(e *api.ConfigLogEntry) []string {
	change := make(map[string]json.RawMessage)
	settings := e.By == api.VerbQueueCreate.Name || e.By == api.VerbQueueUpdate.Name
	if !settings && e.By != api.VerbHookSet.Name || e.New == nil || json.Unmarshal([]byte(*e.New), &change) != nil {
		return nil
	}
	if settings {
		return slices.Sorted(maps.Keys(change))
	}
	var hook string
	if json.Unmarshal(change["hook"], &hook) != nil {
		return nil
	}
	return []string{hook}
}

// settingFields returns the settings of a queue by name, without its name.
func settingFields(s wire.QueueSettings) map[string]json.RawMessage {
	var fields map[string]json.RawMessage
	text, err := json.Marshal(s)
	if err == nil {
		err = json.Unmarshal(text, &fields)
	}
	if err != nil {
		panic("control: settings of a queue: " + err.Error()) // texts and numbers
	}
	delete(fields, "name")
	return fields
}

// emptySetting reports whether a setting has no value.
func emptySetting(value json.RawMessage) bool {
	switch string(value) {
	case `""`, "0", "null", "[]":
		return true
	}
	return false
}
