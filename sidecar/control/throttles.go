package control

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/filaq/fila/sidecar/config"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/throttle"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// throttles computes the limits of throttle keys, from these sources in descending priority:
//
//   - an override (throttle-set with for_ms), limit by limit;
//   - the runtime configuration throttle:<key>:<limit>;
//   - if neither limits anything: both of them for the longest prefix, a key that ends
//     in '*'.
//
// gates has the result. After every change the limits are computed from the sources, under mu.
type throttles struct {
	gates   *throttle.Gates
	start   throttle.Start // how the gates began
	startAt int64

	mu struct {
		sync.Mutex
		overrides map[string]*override
		prefixes  map[string]bool // with limits in force; without their '*'
	}
}

// isPrefix reports whether a throttle key stands for all keys with a prefix.
func isPrefix(key string) (prefix string, ok bool) { return strings.CutSuffix(key, "*") }

// overrideKey returns the name of an override in the audit log and in events.
func overrideKey(key string) string { return kindThrottle + ":" + key + overrideSuffix }

const overrideSuffix = ":override"

// startThrottles makes the gates with their limits, and restores their state and the
// overrides of the process before.
func (c *Control) startThrottles(kept []store.Entry, now int64) {
	t := &c.throttles
	saved, err := readGates(kept)
	if err != nil {
		c.opt.Log.Error("the state of the gates is lost; they start as after a crash", "error", err)
	}
	c.opening.Delete = append(c.opening.Delete, saved.keys...)
	// Limits hold across a crash: the usage before it is unknown, so all of it counts
	// as used. A window of a day that began to fill just before the crash must not
	// admit its limit again, so it admits nothing for a day. An operator who knows
	// better sets a short window for a moment (docs/gates.md).
	t.start = throttle.Start{Crashed: !c.shared() && !saved.found && hadLimits(kept), WindowHold: throttle.MaxWindow}
	t.startAt = now
	t.gates = throttle.New(t.start, now)
	c.learned.start(c, kept, now)
	if c.opt.Share != nil {
		c.opt.Share(t.gates)
	}
	t.gates.Bank(bank{c}, c.readBudgets(kept))
	if t.start.Crashed {
		c.opt.Log.Warn("fila was not stopped cleanly: token buckets start empty and windows full, so that no limit is exceeded")
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.prefixes = make(map[string]bool)
	c.restoreOverrides(kept, now)
	for _, key := range slices.Concat(c.values.throttles(), slices.Collect(maps.Keys(t.mu.overrides))) {
		c.applyLimits(key)
	}
	t.gates.Restore(saved.states, now)
}

// hadLimits reports whether an earlier process has limited anything. Without limits a crash
// cannot have made fila exceed one, so such a store begins like a new one.
func hadLimits(kept []store.Entry) bool {
	return slices.ContainsFunc(kept, func(e store.Entry) bool {
		return strings.HasPrefix(e.Key, kindThrottle+":") || strings.HasPrefix(e.Key, stateOverride)
	})
}

// restoreOverrides restores the stored overrides. The ones that are over are deleted once the
// process has started. It needs mu.
func (c *Control) restoreOverrides(kept []store.Entry, now int64) {
	c.throttles.mu.overrides = make(map[string]*override)
	for _, e := range kept {
		key, ok := strings.CutPrefix(e.Key, stateOverride)
		if !ok {
			continue
		}
		o, err := readOverride(e.Value)
		if err != nil {
			c.opt.Log.Error("a stored override cannot be read and is ignored", "throttle", key, "error", err)
			continue
		}
		if !c.shared() && o.Until <= now {
			c.end(&c.opening, e.Key, o, Actor{By: byOverrideEnded}, change{overrideKey(key), o.audited(), nil})
			continue
		}
		c.throttles.mu.overrides[key] = o
	}
}

// ownLimits are the limits of a throttle key or prefix itself.
type ownLimits struct {
	key      string
	lasting  throttle.Limits // by the runtime configuration
	override *override       // nil: there is none
	inForce  throttle.Limits // both; some of it may have no effect
}

// own returns the limits of key itself. It needs mu.
func (c *Control) own(key string) ownLimits {
	lasting, o := c.values.throttle(key), c.throttles.mu.overrides[key]
	return ownLimits{key, lasting, o, o.over(lasting)}
}

// limiting returns the limits that apply to key: its own or, if they limit nothing, the ones
// of its longest prefix. It needs mu.
func (c *Control) limiting(key string) ownLimits {
	own := c.own(key)
	if complete(own.inForce) != (throttle.Limits{}) {
		return own
	}
	for n := len(key); n >= 0; n-- {
		if c.throttles.mu.prefixes[key[:n]] {
			return c.own(key[:n] + "*")
		}
	}
	return own
}

// applyLimits gives the gates the limits of key, and returns the waiters to notify. A key with
// any setting is listed. It needs mu.
func (c *Control) applyLimits(key string) []*throttle.Wait {
	t, now := &c.throttles, c.opt.Now()
	own := c.own(key)
	t.gates.Name(key, own.override != nil || own.lasting != (throttle.Limits{}))
	l := complete(own.inForce)
	var wake []*throttle.Wait
	var err error
	if prefix, ok := isPrefix(key); ok {
		if l != (throttle.Limits{}) {
			t.mu.prefixes[prefix] = true
		} else {
			delete(t.mu.prefixes, prefix)
		}
		wake, err = t.gates.SetPrefix(prefix, l, now, nil)
	} else {
		wake, err = t.gates.SetLimits(key, l, now, nil)
	}
	if err != nil { // every value was checked when it was set
		c.opt.Log.Error("limits are not applied", "throttle", key, "error", err)
	}
	return wake
}

// refreshThrottle applies the limits of key now.
func (c *Control) refreshThrottle(key string) {
	c.throttles.mu.Lock()
	wake := c.applyLimits(key)
	c.throttles.mu.Unlock()
	Tell(wake)
}

// Tell notifies the owners of waits that they have the turn.
func Tell(waits []*throttle.Wait) {
	for _, w := range waits {
		w.Owner.(interface{ GateOpened(g *throttle.Gate) }).GateOpened(w.Gate())
	}
}

// setOverride sets limits for a time and replaces an earlier override. If compares with the
// limits in force. The warnings are about limits of others, which come back.
func (c *Control) setOverride(by Actor, req api.ThrottleSetRequest, o *override) (warnings []string, err *wire.Error) {
	t := &c.throttles
	o.Until = c.opt.Now() + req.ForMs*int64(time.Millisecond)
	t.mu.Lock()
	old := c.own(req.Key)
	if err := cmp.Or(expect(req, old.inForce), checkEffect(req, o.over(old.lasting))); err != nil {
		t.mu.Unlock()
		return nil, err
	}
	ch := change{overrideKey(req.Key), old.override.audited(), o.audited()}
	if old.inForce != (throttle.Limits{}) {
		warnings, _ = c.checkOwner(by, objectOf(ch.key), ch.text("override"), true)
	}
	t.mu.overrides[req.Key] = o
	var kept Batch
	c.begin(&kept, stateOverride+req.Key, o, o.Until, by, ch)
	c.noteChanged(&kept, kindThrottle, req.Key)
	done := c.opt.KV.Write(kept)
	wake := c.applyLimits(req.Key)
	t.mu.Unlock()
	Tell(wake)
	if err := outcome(<-done); err != nil {
		return nil, err
	}
	c.changeEvent(ch)
	return warnings, nil
}

// endOverride ends an override whose time is over.
func (c *Control) endOverride(key string, now int64) {
	t := &c.throttles
	t.mu.Lock()
	o := t.mu.overrides[key]
	if o == nil || o.Until > now {
		t.mu.Unlock()
		return
	}
	delete(t.mu.overrides, key)
	var kept Batch
	ch := change{overrideKey(key), o.audited(), nil}
	c.end(&kept, stateOverride+key, o, Actor{By: byOverrideEnded}, ch)
	c.noteChanged(&kept, kindThrottle, key)
	done := c.opt.KV.Write(kept)
	wake := c.applyLimits(key)
	t.mu.Unlock()
	Tell(wake)
	c.whenEnded(done, func() { c.changeEvent(ch) })
}

// LimitsOf returns the limits that are in force for a throttle key and their source, for
// explanations: "file", "operator" or "override until <time>", after "prefix <prefix>*" if a
// prefix limits the key, or "fila <name>" of another fila. setBy is empty if there are no limits.
func (c *Control) LimitsOf(key string) (limits api.ThrottleLimits, setBy string) {
	if s := c.ofAnotherFila(key); s != nil {
		return WireLimits(s.InForce), setByFila(s.By)
	}
	c.throttles.mu.Lock()
	defer c.throttles.mu.Unlock()
	s := c.limiting(key)
	inForce := complete(s.inForce)
	if inForce == (throttle.Limits{}) {
		return limits, ""
	}
	limits, setBy = WireLimits(inForce), c.setBy(kindThrottle, s.key)
	if s.override != nil {
		setBy = api.SetByOverride + " until " + wire.Timestamp(s.override.Until)
	}
	if s.key != key {
		setBy = setByPrefix(s.key, setBy)
	}
	return limits, setBy
}

// setByPrefix returns the source of limits of a prefix that `by` has set.
func setByPrefix(prefix, by string) string { return "prefix " + wire.ShowKey(prefix) + ", " + by }

// expect compares the If of a request with the limits that are set.
func expect(req api.ThrottleSetRequest, now throttle.Limits) *wire.Error {
	if req.If == nil {
		return nil
	}
	texts := limitTexts(*req.If)
	if err := checkLimits(texts); err != nil {
		return err
	}
	for s := range settingsOf(kindThrottle) {
		text, ok := texts[s.name]
		want, _ := s.canonical(text)
		if have := s.show(&limits{Limits: now}); ok && have != want {
			return wire.ThrottleMismatch(req.Key, s.name, have)
		}
	}
	return nil
}

// warnDeclared warns that the configuration file will undo a change of a throttle or circuit
// key.
func (c *Control) warnDeclared(kind, key string) {
	if c.declaredInFile(kind, key) {
		c.opt.Log.Warn("a "+kind+" of the configuration file is changed at run time; the file wins at the next start or reload", kind, key)
	}
}

// declaredInFile reports whether the configuration file has a table of a throttle or circuit key.
func (c *Control) declaredInFile(kind, key string) bool {
	file := &c.applied.Load().config
	return kind == kindThrottle && slices.ContainsFunc(file.Throttles, func(t config.ThrottleTable) bool { return t.Key == key }) ||
		kind == kindCircuit && slices.ContainsFunc(file.Circuits, func(t config.CircuitTable) bool { return t.Key == key })
}

// ThrottleSet changes limits of a throttle key for good, or by an override for a
// time: all of them as one change, or none.
func (c *Control) ThrottleSet(by Actor, req api.ThrottleSetRequest) (api.ThrottleInfo, *wire.Error) {
	texts := limitTexts(req.ThrottleLimits)
	err := checkLimits(texts)
	var warnings []string
	if err == nil && req.ForMs > 0 {
		warnings, err = c.setOverride(by, req, &override{Set: texts, Unset: req.Unset})
	} else if err == nil {
		warnings, err = c.setLimits(by, req, texts)
	}
	if err != nil {
		return api.ThrottleInfo{}, err
	}
	info, _ := c.throttleInfo(req.Key)
	info.Warnings = warnings
	c.warnOwners(by, warnings)
	return info, nil
}

// setLimits changes the runtime configuration. If compares with it. The warnings are about limits of
// others.
func (c *Control) setLimits(by Actor, req api.ThrottleSetRequest, texts map[string]string) (warnings []string, err *wire.Error) {
	changes, err := c.values.edit(func() (map[string]*string, *wire.Error) {
		next := make(map[string]*string)
		for s := range settingsOf(kindThrottle) {
			if text, ok := texts[s.name]; ok || slices.Contains(req.Unset, s.name) {
				next[s.key(req.Key)] = orNil(text)
			}
		}
		lasting := c.values.throttle(req.Key)
		after := &override{Set: texts, Unset: req.Unset}
		var owned *wire.Error
		warnings, owned = c.ownChanges(by, next, func(string) bool { return req.Expects() })
		return next, cmp.Or(owned, expect(req, lasting), checkEffect(req, after.over(lasting)))
	}, c.writeAs(by))
	if err != nil {
		return nil, err
	}
	c.warnDeclared(kindThrottle, req.Key)
	c.act(changes)
	if slices.Contains(req.Unset, "level") {
		return warnings, c.release(by, req.Key)
	}
	return warnings, nil
}

// ThrottleClear removes everything that is set for a throttle key itself.
func (c *Control) ThrottleClear(by Actor, req api.GateKeyRequest) (api.ThrottleInfo, *wire.Error) {
	var warnings []string
	var ended *override
	t := &c.throttles
	changes, err := c.values.edit(func() (map[string]*string, *wire.Error) {
		next := make(map[string]*string)
		for s := range settingsOf(kindThrottle) {
			next[s.key(req.Key)] = nil
		}
		var owned *wire.Error
		warnings, owned = c.ownChanges(by, next, func(string) bool { return false })
		return next, owned
	}, func(kept Batch, changes []change) <-chan error {
		c.audit.record(&kept, c.opt.Now(), by, changes...)
		c.noteChanges(&kept, changes)
		t.mu.Lock()
		defer t.mu.Unlock()
		if ended = t.mu.overrides[req.Key]; ended != nil {
			c.end(&kept, stateOverride+req.Key, ended, by, change{overrideKey(req.Key), ended.audited(), nil})
			c.noteChanged(&kept, kindThrottle, req.Key)
		}
		return c.opt.KV.Write(kept)
	})
	if err != nil {
		return api.ThrottleInfo{}, err
	}
	if len(changes) == 0 && ended == nil {
		return api.ThrottleInfo{}, wire.ThrottleNotFound(req.Key)
	}
	t.mu.Lock()
	if ended != nil && t.mu.overrides[req.Key] == ended { // unless there is another one already
		delete(t.mu.overrides, req.Key)
	}
	t.mu.Unlock()
	c.warnDeclared(kindThrottle, req.Key)
	c.act(changes)
	c.refreshThrottle(req.Key)
	if ended != nil {
		c.changeEvent(change{overrideKey(req.Key), ended.audited(), nil})
	}
	info, _ := c.throttleInfo(req.Key)
	info.Warnings = warnings
	c.warnOwners(by, warnings)
	return info, nil
}

// ThrottleShow describes a throttle key.
func (c *Control) ThrottleShow(req api.GateKeyRequest) (api.ThrottleInfo, *wire.Error) {
	info, ok := c.throttleInfo(req.Key)
	if !ok {
		return info, wire.ThrottleNotFound(req.Key)
	}
	if info.Shared == nil || info.Shared.By == "" {
		info.Sources = c.throttleSources(req.Key)
	}
	info.Change = c.LimitsChange(req.Key)
	return info, nil
}

// ThrottleList lists the keys for which anything is set, and those that have a gate
// at this moment. It looks at the gates of the page alone.
func (c *Control) ThrottleList(req api.KeyListRequest) api.ThrottleList {
	list := api.ThrottleList{Throttles: []api.ThrottleInfo{}}
	after := wire.NamedKey(req.After)
	for {
		page := c.throttles.gates.Page(req.Prefix, after, req.Offset, req.Limit)
		list.Total, list.Next = page.Total, wire.ShowKey(page.Next)
		for _, key := range page.Keys {
			state, gate, listed := c.throttles.gates.Look(key, c.opt.Now())
			if !listed { // nobody needed its gate any more
				list.Total--
				continue
			}
			info, _ := c.describe(key, state, gate)
			list.Throttles = append(list.Throttles, info)
		}
		if len(list.Throttles) > 0 || list.Next == "" {
			return list
		}
		after, req.Offset = page.Next, 0 // an empty page would look like the end
	}
}

// throttleInfo describes a throttle key. It reports false if the key has no settings, no
// prefix with limits and no gate.
func (c *Control) throttleInfo(key string) (api.ThrottleInfo, bool) {
	state, gate, _ := c.throttles.gates.Look(key, c.opt.Now())
	return c.describe(key, state, gate)
}

// describe is throttleInfo for a key whose gate, if there is one, has this state.
func (c *Control) describe(key string, state throttle.Info, gate bool) (api.ThrottleInfo, bool) {
	info, known := c.throttleSource(key)
	beginning, prefix := isPrefix(key)
	info.Unused = c.opt.Node == "" && api.SetForKey(info.Source) && !c.throttles.gates.Used(beginning, prefix)
	if prefix {
		return info, known
	}
	known = known || gate
	if !gate {
		state = c.throttles.unused(key, c.opt.Now())
		state.Admitted, state.Blocked = c.throttles.gates.Counts(key)
	}
	spending, hasBudget := c.budget(key)
	if hasBudget && !gate && spending.Left() < throttle.One {
		state.Kind, state.At = throttle.ByBudget, spending.End
	}
	info.State = state.Kind.String()
	info.Tokens = float64(state.Tokens) / throttle.One
	info.InWindow, info.InFlight, info.Waiting = state.InWindow, state.InFlight, state.Waiting
	info.Admitted, info.Blocked = state.Admitted, state.Blocked
	info.Learned = WireLearned(state.Learned)
	if gate {
		c.addSharing(&info, key)
	}
	if hasBudget {
		info.Spending = new(c.spending(key, spending))
	}
	if state.Kind != throttle.Open && state.At != throttle.Never {
		info.AdmitsAt = wire.Timestamp(state.At)
	}
	if until := c.pausedUntil(pauseID{kind: api.PauseThrottle, name: key}); until != 0 {
		known = true
		info.State, info.PausedUntil, info.AdmitsAt = "paused", "resumed", ""
		if until != throttle.Never {
			info.PausedUntil = wire.Timestamp(until)
			info.AdmitsAt = info.PausedUntil
		}
	}
	info.Admits, info.OpensAt = info.State == throttle.Open.String(), info.AdmitsAt
	return info, known
}

// throttleSource returns the limits of a key and their source.
func (c *Control) throttleSource(key string) (info api.ThrottleInfo, known bool) {
	c.throttles.mu.Lock()
	defer c.throttles.mu.Unlock()
	own := c.own(key)
	from := own
	if _, ok := isPrefix(key); !ok {
		from = c.limiting(key)
	}
	info = api.ThrottleInfo{Key: wire.ShowKey(key), Source: c.setBy(kindThrottle, from.key), State: throttle.Open.String(), ThrottleLimits: WireLimits(from.inForce)}
	if from.override != nil {
		info.Source = api.SetByOverride
	}
	info.Owner = c.Owner(kindThrottle + ":" + key).Owner
	if own.override != nil {
		info.OverrideUntil = wire.Timestamp(own.override.Until)
	}
	if from.key != key {
		info.Source = setByPrefix(from.key, info.Source)
	}
	info.Source = cmp.Or(info.Source, api.SetByNobody)
	return info, info.Source != api.SetByNobody
}

// unused returns the state that a new gate of a key would have.
func (t *throttles) unused(key string, now int64) throttle.Info {
	gates := throttle.New(t.start, t.startAt)
	if _, err := gates.SetLimits(key, t.gates.Limits(key), now, nil); err != nil {
		return throttle.Info{}
	}
	if gate, ok := gates.Find(key); ok {
		return gate.Info(now)
	}
	return throttle.Info{}
}
