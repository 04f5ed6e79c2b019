package control

import (
	"encoding/json"
	"reflect"
	"strings"

	"github.com/filaq/fila/wire/api"
)

// Changed applies changes that other nodes may have made under these keys: values of
// the runtime configuration and their set times, overrides, pauses, audit entries.
// Applying a known change again does no harm. Only the node that makes a change
// publishes the event. Changed waits for edits under way here. Run one call at a time.
//
// Each key is read with the lock of its object held. A change that this node makes
// meanwhile has begun its Write under the same lock, so either the key is not settled or
// its value comes from this node.
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
		case strings.HasPrefix(key, stateHook):
			c.hooks.learn(key, c.opt.Shared.Newest)
		case strings.HasPrefix(key, stateChanged):
			c.setTimes.learn(key, c.opt.Shared.Newest)
		case !isState(key):
			values = append(values, key)
		}
	}
	c.audit.learn(entries, c.opt.Shared.Newest, c.opt.Log)
	c.enforce(c.values.learn(values, c.opt.Shared.Newest))
}

// learnPause takes over a pause that another node has begun, ended or changed. Circuits
// are shared, so the other node has updated the circuit already.
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
		ps.put(id, p)
	default:
		ps.remove(id)
	}
	c.schedule.set(id.state(), p.Until)
	if id.kind != api.PauseCircuit {
		c.tellPaused(id, p.Until)
	}
}

// learnOverride takes over an override that another node has begun, ended or changed.
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
