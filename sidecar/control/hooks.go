package control

import (
	"encoding/json"
	"strings"
	"sync"

	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// hookVersions has the version of each hook that verbs have put in force, and the version
// before it, so that an operator can roll it back. Scripts of the configuration file are known
// once a verb replaces them.
type hookVersions struct {
	mu     sync.Mutex
	byHook map[string]hookRecord // by <queue>/<hook>
}

// hookRecord is stored as JSON.
type hookRecord struct {
	Now    api.HookVersion `json:"now"`
	Before api.HookVersion `json:"before"`
}

func (h *hookVersions) restore(kept []store.Entry) {
	h.byHook = make(map[string]hookRecord)
	for _, e := range kept {
		if strings.HasPrefix(e.Key, stateHook) {
			h.put(e.Key, e.Value, true)
		}
	}
}

// put takes over the stored record of a hook. One that cannot be read counts as missing.
func (h *hookVersions) put(state, value string, kept bool) {
	var r hookRecord
	id := strings.TrimPrefix(state, stateHook)
	if !kept || json.Unmarshal([]byte(value), &r) != nil {
		delete(h.byHook, id)
		return
	}
	h.byHook[id] = r
}

// learn takes over a record that another node of a cluster has stored.
func (h *hookVersions) learn(state string, newest newest) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if value, kept, settled := newest(state); settled {
		h.put(state, value, kept)
	}
}

// HookVersions returns the version in force of a hook, whose script is now, and the version
// before it; nil: none is known. A script of the file has no client and no time.
func (c *Control) HookVersions(queue, hook, now string) (inForce api.HookVersion, before *api.HookVersion) {
	c.hooks.mu.Lock()
	defer c.hooks.mu.Unlock()
	r, known := c.hooks.byHook[queue+"/"+hook]
	switch {
	case !known:
		return api.HookVersion{Script: now}, nil
	case r.Now.Script != now: // the file has replaced it
		return api.HookVersion{Script: now}, &r.Now
	}
	return r.Now, &r.Before
}

// KeepHook stores that a verb has replaced the script of a hook. It returns when that is on
// disk.
func (c *Control) KeepHook(by Actor, queue, hook, old, script, reason string) *wire.Error {
	before, _ := c.HookVersions(queue, hook, old)
	r := hookRecord{api.HookVersion{Script: script, Client: by.Client, At: wire.Timestamp(c.opt.Now()), Reason: reason}, before}
	var kept Batch
	kept.putJSON(stateHook+queue+"/"+hook, r)
	c.hooks.mu.Lock()
	c.hooks.byHook[queue+"/"+hook] = r
	done := c.opt.KV.Write(kept)
	c.hooks.mu.Unlock()
	return outcome(<-done)
}

// ForgetHooks removes what is stored about the hooks of a deleted queue.
func (c *Control) ForgetHooks(queue string) {
	var kept Batch
	c.hooks.mu.Lock()
	for _, hook := range []string{wire.HookOnEnqueue, wire.HookOnFailure} {
		if _, ok := c.hooks.byHook[queue+"/"+hook]; ok {
			delete(c.hooks.byHook, queue+"/"+hook)
			kept.Delete = append(kept.Delete, stateHook+queue+"/"+hook)
		}
	}
	done := c.opt.KV.Write(kept)
	c.hooks.mu.Unlock()
	if err := <-done; err != nil {
		c.opt.Log.Error("earlier scripts of a deleted queue stay on disk", "queue", queue, "error", err)
	}
}
