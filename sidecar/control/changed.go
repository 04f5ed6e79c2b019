package control

import (
	"encoding/json"
	"reflect"
	"strings"

	"github.com/filaq/fila/wire"
)

// Changed is told that other nodes may have changed what is kept under keys, and makes
// it count here: values of the runtime configuration and when they were set, overrides,
// pauses, the audit log.
// Being told of what is known already does no harm. The node that makes a change tells
// of it by an event; the others do not. It waits for edits that are under way here, and
// one call of it runs at a time.
//
// Each key is looked up with the lock of what it is about: a change that this node makes
// meanwhile has begun its Write under the same lock, so the key is not settled, or its
// value is this node's.
func (c *Control) Changed(keys []string) {
	var values, entries []string
	for _, key := range keys {
		name, override := strings.CutPrefix(key, stateOverride)
		id, paused := parsePause(key)
		switch {
		case override:
			c.learnOverride(name)
		case paused:
			c.learnPause(id)
		case strings.HasPrefix(key, stateLog):
			entries = append(entries, key)
		case strings.HasPrefix(key, stateChanged):
			c.setTimes.learn(key, c.opt.Shared.Newest)
		case !isState(key):
			values = append(values, key)
		}
	}
	c.audit.learn(entries, c.opt.Shared.Newest, c.opt.Log)
	c.enforce(c.values.learn(values, c.opt.Shared.Newest))
}

// learnPause takes over a pause that has begun, ended or got another end. The other node
// has told a circuit itself, which all share.
func (c *Control) learnPause(id pauseID) {
	ps := &c.pauses
	ps.mu.Lock()
	defer ps.mu.Unlock()
	value, kept, settled := c.opt.Shared.Newest(id.state())
	if !settled {
		return
	}
	var p pause
	if err := json.Unmarshal([]byte(value), &p); kept && err != nil {
		c.opt.Log.Error("a pause of another node cannot be read and is ignored", "pause", id.audited(), "error", err)
		return
	}
	had, paused := ps.mu.all[id]
	switch {
	case kept && paused && had == p, !kept && !paused:
		return
	case kept && !paused && p.Until <= c.opt.Now():
		return // it has ended here, and that is about to be kept
	case kept:
		ps.mu.all[id] = p
		ps.mu.listed.Add(id.cursor())
	default:
		delete(ps.mu.all, id)
		ps.mu.listed.Remove(id.cursor())
	}
	c.schedule.set(id.state(), p.Until)
	if id.kind != wire.PauseCircuit {
		c.tellPaused(id, p.Until)
	}
}

// learnOverride takes over limits of a throttle key that are set for a time, or not any
// more.
func (c *Control) learnOverride(key string) {
	t := &c.throttles
	t.mu.Lock()
	value, kept, settled := c.opt.Shared.Newest(stateOverride + key)
	var next *override
	var err error
	if kept {
		next, err = readOverride(value)
	}
	had := t.mu.overrides[key]
	if next != nil && had == nil && next.Until <= c.opt.Now() {
		next = nil // it has ended here, and that is about to be kept
	}
	if err != nil || !settled || reflect.DeepEqual(had, next) {
		t.mu.Unlock()
		if err != nil {
			c.opt.Log.Error("an override of another node cannot be read and is ignored", "throttle", key, "error", err)
		}
		return
	}
	if next == nil {
		delete(t.mu.overrides, key)
		c.schedule.set(stateOverride+key, 0)
	} else {
		t.mu.overrides[key] = next
		c.schedule.set(stateOverride+key, next.Until)
	}
	wake := c.applyLimits(key)
	t.mu.Unlock()
	Tell(wake)
}
