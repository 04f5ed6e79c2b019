package control

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/filaq/fila/sidecar/config"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// Owners. An object is a throttle or circuit key, a table, a weight, any other key of the runtime
// configuration, a queue or a schedule; its name is <kind>:<name>. Its owner is the value of
// owner:<kind>:<name>, which a change of the object writes in the same transaction or, for queues
// and schedules, before it. Without an owner the client of the newest change stands for it.

const ownerPrefix = "owner:"

func ownerKey(object string) string { return ownerPrefix + object }

// objectOf returns the object that a key of the runtime configuration or the audit log is about.
func objectOf(key string) string {
	if object, ok := strings.CutPrefix(key, ownerPrefix); ok {
		return object
	}
	if name, s := splitSetting(key); s != nil {
		return s.kind + ":" + name
	}
	if object, ok := strings.CutSuffix(key, overrideSuffix); ok && strings.HasPrefix(key, kindThrottle+":") {
		return object
	}
	return key
}

// QueueObject names a queue as an object with an owner and in the audit log.
func QueueObject(queue string) string { return "queue:" + queue }

// ScheduleObject names a schedule as an object.
func ScheduleObject(queue, name string) string { return "schedule:" + queue + "/" + name }

// Owner returns the owner of an object; the zero value: it has none.
func (c *Control) Owner(object string) api.Owner {
	text, _ := c.values.Get(ownerKey(object))
	owner, _ := api.ReadOwner(text) // what cannot be read is no name: it owns the object
	return owner
}

// ownChanges completes changes of the runtime configuration, as values by key, with the owners of their
// objects. It refuses a change of an object of another owner, unless the sender forces it or
// expects the present value. The warnings name values that others have set. Call it within an edit.
func (c *Control) ownChanges(by Actor, next map[string]*string, expects func(object string) bool) (warnings []string, err *wire.Error) {
	objects := make(map[string]map[string]*string)
	for key, value := range next {
		object := objectOf(key)
		if objects[object] == nil {
			objects[object] = make(map[string]*string)
		}
		objects[object][key] = value
	}
	for _, object := range slices.Sorted(maps.Keys(objects)) {
		values := objects[object]
		if _, given := values[ownerKey(object)]; !given {
			value := c.ownerAfter(by, object, values)
			values[ownerKey(object)], next[ownerKey(object)] = value, value
		}
		changes := c.values.changes(values)
		if len(changes) == 0 {
			continue
		}
		warning, err := c.checkOwner(by, object, changeTexts(object, changes), expects(object))
		if err != nil {
			return nil, err
		}
		warnings = append(warnings, warning...)
	}
	return warnings, nil
}

// ownerAfter returns the value of an object's owner key after changes: an object without values has
// no owner.
func (c *Control) ownerAfter(by Actor, object string, changes map[string]*string) *string {
	now := c.values.now(ownerKey(object))
	remains := false
	for key, value := range changes {
		_, s := splitSetting(key)
		remains = remains || value != nil
		for other := range settingsOf(settingKind(s)) {
			kept := other.key(strings.TrimPrefix(object, s.kind+":"))
			if _, changed := changes[kept]; !changed {
				remains = remains || c.values.now(kept) != nil
			}
		}
	}
	if !remains {
		return nil
	}
	return c.claimed(by, object, now)
}

// settingKind is the kind of a setting; empty for nil.
func settingKind(s *setting) string {
	if s == nil {
		return ""
	}
	return s.kind
}

// claimed returns the value of an object's owner key, which is now, after a change by an actor.
func (c *Control) claimed(by Actor, object string, now *string) *string {
	had := c.Owner(object)
	if by.Owner == "" || by.Owner == had.Owner && (by.Reason == "" || by.Reason == had.Reason) {
		return now
	}
	return new(api.Owner{Owner: by.Owner, Reason: by.Reason}.Text())
}

// checkOwner refuses a change of an object of another owner, unless the sender forces it or expects
// the present value. The warning names the owner, or the client of the newest change if there is no
// owner.
func (c *Control) checkOwner(by Actor, object, changes string, expected bool) (warning []string, err *wire.Error) {
	owner := c.Owner(object).Owner
	switch {
	case owner == "":
	case owner == by.Owner:
		return nil, nil
	case !by.Force && !expected:
		return nil, wire.Owned(wire.ShowKey(object), owner, changes)
	default:
		return []string{fmt.Sprintf("%s belongs to %s: %s", wire.ShowKey(object), owner, changes)}, nil
	}
	c.audit.each(wire.ShowKey(object), func(e *api.ConfigLogEntry) bool {
		if objectOf(e.Key) != wire.ShowKey(object) || setsNothing[e.By] {
			return true
		}
		if e.Client != "" && e.Client != by.Client {
			warning = []string{fmt.Sprintf("%s had been set by %s at %s; changed now: %s", wire.ShowKey(object), e.Client, e.Time, changes)}
		}
		return false
	})
	return warning, nil
}

// setsNothing are verbs whose entries in the audit log name an object without changing its settings.
var setsNothing = map[string]bool{
	api.VerbQueuePurge.Name: true, api.VerbRedrive.Name: true, api.VerbHookReset.Name: true,
	api.VerbSchedulePause.Name: true, api.VerbScheduleResume.Name: true,
}

// changeTexts describes changes of an object: "rate 41 -> 5, burst 3 -> none". It names the owners only
// if nothing else changes.
func changeTexts(object string, changes []change) string {
	var texts []string
	for _, ch := range changes {
		switch setting, ok := strings.CutPrefix(ch.key, object+":"); {
		case ch.key != ownerKey(object) && ok:
			texts = append(texts, ch.text(setting))
		case ch.key != ownerKey(object):
			texts = append(texts, ch.text("value"))
		case len(changes) == 1:
			texts = append(texts, change{ch.key, ownerName(ch.old), ownerName(ch.new)}.text("owner"))
		}
	}
	return strings.Join(texts, ", ")
}

// ownerName returns the name in the value of an owner key; nil: there is no owner.
func ownerName(value *string) *string {
	if value == nil {
		return nil
	}
	owner, _ := api.ReadOwner(*value)
	return &owner.Owner
}

// text describes a change of a value with a name.
func (ch change) text(name string) string {
	var old, next any
	if ch.old != nil {
		old = *ch.old
	}
	if ch.new != nil {
		next = *ch.new
	}
	return config.FieldChange(name, old, next)
}

// ObjectChange is a change of an object that another package keeps: a queue or a schedule.
type ObjectChange struct {
	Object  string
	Changes string // for warnings and refusals; empty: the change gives the object an owner at most
	New     bool   // there is no such object yet, so that a recorded owner is the owner of an earlier one
	Deleted bool
}

// QueueChange describes a change of the settings of a queue.
func QueueChange(old, next wire.QueueSettings) ObjectChange {
	return ObjectChange{Object: QueueObject(next.Name), Changes: config.QueueChanges(old, next)}
}

// ChangeObject carries out a change of an object that another package keeps, by apply, and then stores
// the owner of the request, or removes the owner of a deleted object. It refuses a change of an object of
// another owner before apply. A change that apply refuses leaves the owner. The warnings are for the reply.
func (c *Control) ChangeObject(by Actor, o ObjectChange, apply func() *wire.Error) (warnings []string, err *wire.Error) {
	key := ownerKey(o.Object)
	if !o.New && (o.Changes != "" || by.Owner != "") {
		_, err = c.values.edit(func() (map[string]*string, *wire.Error) {
			var refused *wire.Error
			warnings, refused = c.checkOwner(by, o.Object, cmp.Or(o.Changes, "no change"), false)
			return map[string]*string{key: c.values.now(key)}, refused // to read the newest one
		}, c.writeAs(by))
		if err != nil {
			return nil, err
		}
	}
	err = apply()
	if err != nil && (o.Deleted || err.ErrCode != wire.CodeOutcomeUnknown) {
		return warnings, err
	}
	if len(warnings) > 0 {
		c.warnOwners(by, warnings)
	}
	return warnings, cmp.Or(err, c.keepOwner(by, o))
}

// keepOwner stores the owner of an object after a change.
func (c *Control) keepOwner(by Actor, o ObjectChange) *wire.Error {
	if by.Owner == "" && !o.New && !o.Deleted {
		return nil
	}
	key := ownerKey(o.Object)
	changes, err := c.values.edit(func() (map[string]*string, *wire.Error) {
		if !o.New && !o.Deleted {
			return map[string]*string{key: c.claimed(by, o.Object, c.values.now(key))}, nil
		}
		next := map[string]*string{key: nil}
		if queue, ok := strings.CutPrefix(o.Object, QueueObject("")); ok {
			for _, e := range c.values.all(ownerKey(ScheduleObject(queue, ""))) {
				next[e.Key] = nil
			}
		}
		if o.New && by.Owner != "" {
			next[key] = new(api.Owner{Owner: by.Owner, Reason: by.Reason}.Text())
		}
		return next, nil
	}, c.writeAs(by))
	c.act(changes)
	return err
}

// ScheduleByEnqueue refuses to let an enqueue replace a schedule of an owner, since an enqueue names none.
// changes describes the change; empty: there is no such schedule yet. Then it forgets the owner of an
// earlier one, after it has returned.
func (c *Control) ScheduleByEnqueue(queue, schedule, changes string) *wire.Error {
	object := ScheduleObject(queue, schedule)
	switch owner := c.Owner(object).Owner; {
	case owner == "":
	case changes != "":
		return wire.Owned(wire.ShowKey(object), owner, changes)
	default:
		c.telling.Go(func() { c.forgetOwner(Actor{By: byTime}, object, owner) })
	}
	return nil
}

// forgetOwner removes the owner of an object that is no more, if it is still this one.
func (c *Control) forgetOwner(by Actor, object, owner string) {
	changes, err := c.values.edit(func() (map[string]*string, *wire.Error) {
		next := map[string]*string{ownerKey(object): nil}
		if c.Owner(object).Owner != owner {
			next[ownerKey(object)] = c.values.now(ownerKey(object))
		}
		return next, nil
	}, c.writeAs(by))
	if err != nil {
		c.opt.Log.Error("the owner of an object that is no more stays", "object", object, "owner", owner, "error", err)
	}
	c.act(changes)
}

// declare creates or changes a queue as the configuration file says. It returns the settings before; nil:
// the queue is new, and an owner of an earlier one is forgotten.
func (c *Control) declare(ctx context.Context, settings wire.QueueSettings) (had *wire.QueueSettings, err *wire.Error) {
	had, err = c.opt.Queues.Declare(ctx, settings)
	object := QueueObject(settings.Name)
	if owner := c.Owner(object).Owner; err == nil && had == nil && owner != "" {
		c.forgetOwner(Actor{By: byFile}, object, owner)
	}
	return had, err
}

// warnOwners logs that values of others have been changed.
func (c *Control) warnOwners(by Actor, warnings []string) {
	for _, warning := range warnings {
		c.opt.Log.Warn("a value that another owner or client has set is changed",
			"change", warning, "verb", by.By, "client", by.Client, "owner", by.Owner, "reason", by.Reason)
	}
}

// withOwner adds the owner of a changed setting to a line about it.
func (c *Control) withOwner(object, line string) string {
	if owner := c.Owner(object).Owner; owner != "" {
		return line + " (it belongs to " + owner + ")"
	}
	return line
}
