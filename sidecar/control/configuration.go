package control

import (
	"cmp"
	"maps"
	"slices"

	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// ConfigSet sets a key of the runtime configuration. Like ConfigGet and ConfigDelete
// it takes what has passed [wire.CheckConfigKey].
func (c *Control) ConfigSet(by Actor, key string, req api.ConfigSetRequest) (api.ConfigSetReply, *wire.Error) {
	if err := checkMeaning(key, req.Value); err != nil {
		return api.ConfigSetReply{}, err
	}
	previous, warnings, err := c.changeValue(by, key, &req.Value, req.IfValue != nil, func(now *string) *wire.Error {
		if req.IfValue != nil && (now == nil || *now != *req.IfValue) {
			return wire.ConfigMismatch(key, now)
		}
		return nil
	})
	if err != nil {
		return api.ConfigSetReply{}, err
	}
	return api.ConfigSetReply{Key: key, Value: req.Value, Previous: previous, Warnings: warnings}, nil
}

// ConfigEdit changes several keys of the runtime configuration: all of them or none.
func (c *Control) ConfigEdit(by Actor, req api.ConfigEditRequest) (api.ConfigEditReply, *wire.Error) {
	for key, value := range req.Set {
		if value != nil {
			if err := checkMeaning(key, *value); err != nil {
				return api.ConfigEditReply{}, err
			}
		}
	}
	var changes []change
	var warnings []string
	expects := func(object string) bool {
		for key := range req.If {
			if objectOf(key) == object {
				return true
			}
		}
		return false
	}
	decide := func() (map[string]*string, *wire.Error) {
		for _, key := range slices.Sorted(maps.Keys(req.If)) {
			if now := c.values.now(key); !equalTexts(now, req.If[key]) {
				return nil, wire.ConfigMismatch(key, now)
			}
		}
		next := maps.Clone(req.Set)
		var owned *wire.Error
		warnings, owned = c.ownChanges(by, next, expects)
		changes = c.values.changes(next)
		return next, cmp.Or(owned, c.checkTables(changes))
	}
	var err *wire.Error
	if req.DryRun {
		_, err = decide()
	} else if changes, err = c.values.edit(decide, c.writeAs(by)); err == nil {
		c.act(changes)
		c.warnOwners(by, warnings)
	}
	reply := api.ConfigEditReply{DryRun: req.DryRun, Warnings: warnings, Changes: make([]api.ConfigChange, len(changes))}
	for i, ch := range changes {
		reply.Changes[i] = api.ConfigChange{Key: ch.key, Value: ch.new, Previous: ch.old}
		if table := c.tableInFile(ch.key); table != "" && !slices.Contains(reply.InFile, table) {
			reply.InFile = append(reply.InFile, table)
		}
	}
	return reply, err
}

// tableInFile names the table of the configuration file that has a setting; empty: there is none.
func (c *Control) tableInFile(key string) string {
	name, s := splitSetting(key)
	if s == nil || !c.declaredInFile(s.kind, name) {
		return ""
	}
	return s.kind + " " + name
}

// ConfigGet returns a key of the runtime configuration.
func (c *Control) ConfigGet(key string) (api.ConfigEntry, *wire.Error) {
	text, ok := c.values.Get(key)
	if !ok {
		return api.ConfigEntry{}, wire.ConfigKeyNotFound(key)
	}
	owner := c.Owner(objectOf(key))
	return api.ConfigEntry{Key: key, Value: text, Owner: owner.Owner, Reason: owner.Reason}, nil
}

// ConfigDelete deletes a key of the runtime configuration and returns what it was.
func (c *Control) ConfigDelete(by Actor, key string) (api.ConfigEntry, *wire.Error) {
	previous, warnings, err := c.changeValue(by, key, nil, false, func(now *string) *wire.Error {
		if now == nil {
			return wire.ConfigKeyNotFound(key)
		}
		return nil
	})
	if err != nil {
		return api.ConfigEntry{}, err
	}
	return api.ConfigEntry{Key: key, Value: *previous, Warnings: warnings}, nil
}

// ConfigList lists the runtime configuration.
func (c *Control) ConfigList(req api.KeyListRequest) api.ConfigList {
	list := c.values.list(req)
	for i := range list.Entries {
		list.Entries[i].Key = wire.ShowKey(list.Entries[i].Key)
	}
	return list
}

// changeValue sets a key of the runtime configuration, or deletes it if value is nil,
// once check accepts the present value; expected means that the sender knows it. It returns the
// value before, and warnings about values of others.
func (c *Control) changeValue(by Actor, key string, value *string, expected bool, check func(now *string) *wire.Error) (old *string, warnings []string, err *wire.Error) {
	changes, err := c.values.edit(func() (map[string]*string, *wire.Error) {
		old = c.values.now(key)
		next := map[string]*string{key: value}
		var owned *wire.Error
		warnings, owned = c.ownChanges(by, next, func(string) bool { return expected })
		return next, cmp.Or(check(old), owned, c.checkTables([]change{{key, old, value}}))
	}, c.writeAs(by))
	if err != nil {
		return nil, nil, err
	}
	if name, s := splitSetting(key); s != nil {
		c.warnDeclared(s.kind, name)
	}
	if equalTexts(old, value) {
		changes = append(changes, change{key, old, value}) // an event confirms it
	}
	c.act(changes)
	c.warnOwners(by, warnings)
	return old, warnings, nil
}

// writeAs hands on changes of the runtime configuration, with their entries in the
// audit log.
func (c *Control) writeAs(by Actor) func(Batch, []change) <-chan error {
	return func(kept Batch, changes []change) <-chan error {
		if len(changes) == 0 {
			done := make(chan error, 1)
			done <- nil
			return done
		}
		c.audit.record(&kept, c.opt.Now(), by, changes...)
		c.noteChanges(&kept, changes)
		return c.opt.KV.Write(kept)
	}
}

// act applies changes of the runtime configuration and publishes events. Hooks read
// the new values by themselves. It applies what is in force now, since two changes may
// arrive here out of order.
func (c *Control) act(changes []change) {
	c.enforce(changes)
	for _, ch := range changes {
		c.changeEvent(ch)
	}
}

// enforce is act without events.
func (c *Control) enforce(changes []change) {
	throttles := make(map[string]bool)
	circuits, tables := false, false
	for _, ch := range changes {
		if queue, key, ok := splitWeight(ch.key); ok {
			c.weigh(ch.key, queue, key)
		}
		if kind, _ := splitTable(ch.key); kind != "" {
			tables = true
		}
		switch name, s := splitSetting(ch.key); {
		case s == nil:
		case s.kind == kindThrottle:
			throttles[name] = true
		default:
			circuits = true
		}
	}
	for _, key := range slices.Sorted(maps.Keys(throttles)) {
		c.refreshThrottle(key)
	}
	if circuits {
		c.configureCircuits()
	}
	if tables {
		c.acting.Lock()
		c.enforceTables(c.applied.Load())
		c.acting.Unlock()
	}
}

// weigh sends a queue the weight of a fairness key that is in force.
func (c *Control) weigh(setting, queue, key string) {
	c.acting.Lock()
	defer c.acting.Unlock()
	text, _ := c.values.Get(setting)
	weight, _ := parseWeight(text)
	c.opt.Queues.Weigh(queue, key, weight)
}

func (c *Control) changeEvent(ch change) {
	c.opt.Event(wire.EventConfigChanged, ch.key, wire.Event{Key: ch.key, Data: map[string]any{"value": ch.new, "previous": ch.old}})
}
