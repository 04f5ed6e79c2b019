package sidecar

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/filaq/fila/store"
	"github.com/filaq/fila/throttle"
)

// throttles decides what the limits of a throttle key are. From above:
//
//   - an override (throttle-set with for_ms), limit by limit, over
//   - the runtime configuration throttle:<key>:<limit>, which the [[throttle]]
//     tables of the configuration file overwrite at every start and reload, over
//   - if nothing of that limits anything: the same of the longest prefix, a key
//     that ends in '*'.
//
// What it decides is in core.gates. After every change the limits are worked out
// afresh from what is stored, under mu: changes that are applied in another order
// than they were made end in the newest state.
type throttles struct {
	start    throttle.Start // how the gates began
	startAt  int64
	schedule schedule // of overrides and pauses
	audit    audit
	opening  *store.Batch // to be written when the recovery is over

	mu struct {
		sync.Mutex
		overrides map[string]*override
		prefixes  map[string]bool // with limits in force; without their '*'
		declared  map[string]bool // named by a [[throttle]]
	}
}

// isPrefix reports whether a throttle key stands for all that begin alike.
func isPrefix(key string) (prefix string, ok bool) { return strings.CutSuffix(key, "*") }

// settingKey is the configuration key of a limit.
func settingKey(key, limit string) string { return kindThrottle + ":" + key + ":" + limit }

// overrideKey is how the audit log and events name an override.
func overrideKey(key string) string { return settingKey(key, "override") }

// startThrottles makes the gates with their limits, and puts back what the last
// process has left: their state, overrides and pauses. It waits for the disk, so
// that a crash from now on is recognised as one. The runtime configuration and
// the circuits must be there; queues are told of pauses by pausesOf, and the
// [[throttle]] tables come later (declareThrottles).
func (s *Server) startThrottles(snap store.Snapshot) error {
	c, t := s.core, &s.throttles
	now := c.clock.Now()
	t.audit.restore(snap.Config, c.log)
	b := &store.Batch{}
	saved, err := readGates(snap.Config)
	if err != nil {
		c.log.Error("the state of the gates is lost; they begin as after a crash", "error", err)
	}
	b.DeleteConfig = append(b.DeleteConfig, saved.keys...)
	// Limits hold over a crash, whatever it takes: what was used before it is not
	// known, so all of it counts as used. A window of a day that began to fill
	// just before the crash must not admit its limit again, and so admits nothing
	// for a day; whoever knows better takes the limit away and sets it again.
	t.start = throttle.Start{
		Crashed:    !saved.found && hadLimits(snap.Config),
		WindowHold: throttle.MaxWindow,
	}
	t.startAt = now
	c.gates = throttle.New(t.start, now)
	if t.start.Crashed {
		c.log.Warn("fila was not stopped in order: so that no limit is exceeded, token buckets begin empty and windows full")
	}
	t.schedule.init(c.clock, s.endDue)
	s.restoreOverrides(snap.Config, b, now)
	s.applyAll()
	c.gates.Restore(saved.states, now)
	s.restorePauses(snap, b, now)
	t.opening = b
	return nil
}

// saveStart writes what startThrottles has found to be over, the mark of an
// orderly stop among it. It comes after the recovery, which is the first thing
// that a store is asked to do.
func (s *Server) saveStart() error {
	b := s.throttles.opening
	s.throttles.opening = nil
	if err := <-s.core.submit(b); err != nil {
		return fmt.Errorf("the state of the gates: %w", err)
	}
	return nil
}

// hadLimits reports whether an earlier process has limited anything. Without limits
// there is nothing that a crash could have made to be exceeded; so a store from
// before there were any begins like a new one.
func hadLimits(entries []store.Entry) bool {
	for _, e := range entries {
		if strings.HasPrefix(e.Key, kindThrottle+":") || strings.HasPrefix(e.Key, stateOverride) {
			return true
		}
	}
	return false
}

// stopThrottles keeps the state of the gates for the next start. The queues have
// ended, the store has not.
func (s *Server) stopThrottles() {
	c := s.core
	s.throttles.schedule.stop()
	if c.gates == nil {
		return
	}
	now := c.clock.Now()
	batches, err := gateBatches(c.gates.Snapshot(now), now)
	for _, b := range batches {
		err = errors.Join(err, <-c.submit(b))
	}
	if err != nil {
		c.log.Error("the state of the gates is not kept; they begin as after a crash", "error", err)
	}
}

// restoreOverrides takes the overrides from the store. Those that have ended
// while nobody was there are deleted in b.
func (s *Server) restoreOverrides(entries []store.Entry, b *store.Batch, now int64) {
	c, t := s.core, &s.throttles
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.overrides = make(map[string]*override)
	t.mu.prefixes = make(map[string]bool)
	for _, e := range entries {
		key, ok := strings.CutPrefix(e.Key, stateOverride)
		if !ok {
			continue
		}
		o := &override{}
		if err := json.Unmarshal([]byte(e.Value), o); err != nil {
			c.log.Error("a stored override cannot be read and is ignored", "throttle", key, "error", err)
			continue
		}
		if o.Until <= now {
			b.DeleteConfig = append(b.DeleteConfig, e.Key)
			t.audit.record(b, now, byOverrideEnded, change{overrideKey(key), o.audited(), nil})
			continue
		}
		t.mu.overrides[key] = o
		t.schedule.set(e.Key, o.Until)
	}
}

// applyAll applies the limits of all keys that have any.
func (s *Server) applyAll() {
	t := &s.throttles
	keys := make(map[string]bool)
	for _, e := range s.core.config.all(kindThrottle + ":") {
		_, key, setting, ok := splitSetting(e.Key)
		if !ok || !isLimit(setting)(e.Value) {
			s.core.log.Warn("a setting of the runtime configuration has no effect: fila does not know it, or not its value",
				"key", e.Key, "value", e.Value)
			continue
		}
		keys[key] = true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for key := range t.mu.overrides {
		keys[key] = true
	}
	for key := range keys {
		s.apply(key)
	}
}

// set returns what is set for key itself, with override and without.
func (t *throttles) set(config *runtimeConfig, key string) (inForce, lasting limitTexts) {
	lasting = config.limits(key)
	inForce = lasting
	if o := t.mu.overrides[key]; o != nil {
		inForce = lasting.with(o.Set, o.Unset)
	}
	return inForce, lasting
}

// apply makes what is set for key its limits, with mu held, and returns whom to
// wake.
func (s *Server) apply(key string) []*throttle.Wait {
	t, gates, now := &s.throttles, s.core.gates, s.core.clock.Now()
	inForce, _ := t.set(s.core.config, key)
	limits := inForce.limits()
	var wake []*throttle.Wait
	var err error
	if prefix, ok := isPrefix(key); ok {
		if limits != (throttle.Limits{}) {
			t.mu.prefixes[prefix] = true
		} else {
			delete(t.mu.prefixes, prefix)
		}
		wake, err = gates.SetPrefix(prefix, limits, now, nil)
	} else {
		wake, err = gates.SetLimits(key, limits, now, nil)
	}
	if err != nil { // every value was checked when it was set
		s.core.log.Error("limits are not applied", "throttle", key, "error", err)
	}
	return wake
}

// refreshThrottle makes what is set for key its limits, at once.
func (s *Server) refreshThrottle(key string) {
	t := &s.throttles
	t.mu.Lock()
	wake := s.apply(key)
	t.mu.Unlock()
	s.core.wake(wake)
}

// endDue ends the override or pause that state names.
func (s *Server) endDue(state string, now int64) {
	if key, ok := strings.CutPrefix(state, stateOverride); ok {
		s.endOverride(key, now)
	} else if id, ok := parsePause(state); ok {
		s.endPause(id, now)
	}
}

func (s *Server) endOverride(key string, now int64) {
	c, t := s.core, &s.throttles
	t.mu.Lock()
	o := t.mu.overrides[key]
	if o == nil || o.Until > now {
		t.mu.Unlock()
		return
	}
	delete(t.mu.overrides, key)
	b := &store.Batch{DeleteConfig: []string{stateOverride + key}}
	t.audit.record(b, now, byOverrideEnded, change{overrideKey(key), o.audited(), nil})
	c.submit(b)
	wake := s.apply(key)
	t.mu.Unlock()
	c.wake(wake)
	c.configEvent(change{overrideKey(key), o.audited(), nil})
}

// prefixOf returns the longest prefix with limits that key begins with, as the
// key that is set. It needs mu.
func (t *throttles) prefixOf(key string) (string, bool) {
	best, found := "", false
	for prefix := range t.mu.prefixes {
		if strings.HasPrefix(key, prefix) && (!found || len(prefix) > len(best)) {
			best, found = prefix, true
		}
	}
	return best + "*", found
}

// limitsOf returns the limits of a throttle key and who has set them, for
// explanations: "config", "override until <time>", "prefix <prefix>*", or empty
// if there are none.
func (s *Server) limitsOf(key string) (limits throttle.Limits, setBy string) {
	t := &s.throttles
	t.mu.Lock()
	defer t.mu.Unlock()
	at, by := key, "config"
	inForce, _ := t.set(s.core.config, key)
	limits = inForce.limits()
	if limits == (throttle.Limits{}) {
		prefix, ok := t.prefixOf(key)
		if !ok {
			return limits, ""
		}
		inForce, _ = t.set(s.core.config, prefix)
		limits, at, by = inForce.limits(), prefix, "prefix "+prefix
	}
	o := t.mu.overrides[at]
	switch {
	case o == nil:
	case at == key:
		by = "override until " + timestamp(o.Until)
	default:
		by += ", override until " + timestamp(o.Until)
	}
	return limits, by
}

// declareThrottles gives the keys that the [[throttle]] tables name their limits,
// and takes away what the tables do not say. Keys that they do not name stay. It
// waits for the disk, and returns what has changed, one line for each limit.
func (s *Server) declareThrottles(tables []ThrottleTable) ([]string, error) {
	values := make(map[string]*string)
	declared := make(map[string]bool)
	for i := range tables {
		key := tables[i].Key
		texts, err := tableTexts(&tables[i])
		if err != nil {
			return nil, err
		}
		declared[key] = true
		for _, name := range limitNames {
			values[settingKey(key, name)] = nil
			if text, ok := texts[name]; ok {
				values[settingKey(key, name)] = &text
			}
		}
	}
	s.throttles.mu.Lock()
	s.throttles.mu.declared = declared
	s.throttles.mu.Unlock()
	changes, werr := s.declareSettings(values)
	if werr != nil {
		return nil, werr
	}
	lines := make([]string, 0, len(changes))
	for _, ch := range changes {
		_, key, name, _ := splitSetting(ch.key)
		lines = append(lines, fmt.Sprintf("throttle %s: %s %s -> %s", key, name, orNone(ch.old), orNone(ch.new)))
	}
	return lines, nil
}

func orNone(value *string) string {
	if value == nil {
		return "none"
	}
	return *value
}
