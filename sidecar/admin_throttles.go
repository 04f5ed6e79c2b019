package sidecar

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/filaq/fila/store"
	"github.com/filaq/fila/throttle"
	"github.com/filaq/fila/wire"
)

// throttleSet changes limits of a throttle key for good, or by an override for a
// time: all of them as one change, or none.
func (s *Server) throttleSet(tail string, body []byte) (any, *wire.Error) {
	req, err := wire.ParseThrottleSet(tail, body)
	if err != nil {
		return nil, err
	}
	texts := textsOf(req.ThrottleLimits)
	if err := texts.check(); err != nil {
		return nil, err
	}
	if req.ForMs > 0 {
		err = s.setOverride(req, texts)
	} else {
		err = s.setLimits(req, texts)
	}
	if err != nil {
		return nil, err
	}
	info, _ := s.throttleInfo(req.Key)
	return info, nil
}

// setLimits changes what the runtime configuration says. If compares with that.
func (s *Server) setLimits(req wire.ThrottleSetRequest, texts limitTexts) *wire.Error {
	config := s.core.config
	changes, err := config.edit(func() (map[string]*string, *wire.Error) {
		if err := expect(req, config.limits(req.Key)); err != nil {
			return nil, err
		}
		values := make(map[string]*string)
		for name, text := range texts {
			values[settingKey(req.Key, name)] = &text
		}
		for _, name := range req.Unset {
			values[settingKey(req.Key, name)] = nil
		}
		return values, nil
	}, s.saveAs(wire.VerbThrottleSet))
	if err != nil {
		return err
	}
	s.warnDeclared(req.Key)
	s.configChanged(changes...)
	return nil
}

// setOverride sets limits for a time, instead of an earlier override. If compares
// with what is in force.
func (s *Server) setOverride(req wire.ThrottleSetRequest, texts limitTexts) *wire.Error {
	c, t := s.core, &s.throttles
	now := c.clock.Now()
	o := &override{Set: texts, Unset: req.Unset, Until: now + req.ForMs*int64(time.Millisecond)}
	value, err := json.Marshal(o)
	if err != nil {
		return wire.Internal(err.Error())
	}
	t.mu.Lock()
	inForce, _ := t.set(c.config, req.Key)
	if err := expect(req, inForce); err != nil {
		t.mu.Unlock()
		return err
	}
	ch := change{overrideKey(req.Key), t.mu.overrides[req.Key].audited(), o.audited()}
	state := stateOverride + req.Key
	b := &store.Batch{PutConfig: []store.Entry{{Key: state, Value: string(value)}}}
	t.audit.record(b, now, wire.VerbThrottleSet, ch)
	t.mu.overrides[req.Key] = o
	done := c.submit(b)
	wake := s.apply(req.Key)
	t.schedule.set(state, o.Until)
	t.mu.Unlock()
	c.wake(wake)
	if err := <-done; err != nil {
		return c.commitError(err)
	}
	c.configEvent(ch)
	return nil
}

// expect compares what a request expects with what is set.
func expect(req wire.ThrottleSetRequest, now limitTexts) *wire.Error {
	if req.If == nil {
		return nil
	}
	want := textsOf(*req.If)
	for _, name := range limitNames {
		if text, ok := want[name]; ok && !sameLimit(name, text, now[name]) {
			return wire.ThrottleMismatch(req.Key, name, now[name])
		}
	}
	return nil
}

// warnDeclared says that the configuration file will undo a change.
func (s *Server) warnDeclared(key string) {
	t := &s.throttles
	t.mu.Lock()
	declared := t.mu.declared[key]
	t.mu.Unlock()
	if declared {
		s.core.log.Warn("a throttle of the configuration file is changed at run time; the file wins at the next start or reload", "throttle", key)
	}
}

// throttleClear removes everything that is set for a throttle key itself.
func (s *Server) throttleClear(tail string, body []byte) (any, *wire.Error) {
	req, err := wire.ParseThrottleKey(tail, body)
	if err != nil {
		return nil, err
	}
	c, t := s.core, &s.throttles
	var ended []change
	changes, err := c.config.edit(func() (map[string]*string, *wire.Error) {
		values := make(map[string]*string)
		for _, name := range limitNames {
			values[settingKey(req.Key, name)] = nil
		}
		return values, nil
	}, func(b *store.Batch, changes []change) error {
		t.mu.Lock()
		if o := t.mu.overrides[req.Key]; o != nil {
			delete(t.mu.overrides, req.Key)
			t.schedule.set(stateOverride+req.Key, 0)
			b.DeleteConfig = append(b.DeleteConfig, stateOverride+req.Key)
			ended = append(ended, change{overrideKey(req.Key), o.audited(), nil})
		}
		t.audit.record(b, c.clock.Now(), wire.VerbThrottleClear, slices.Concat(changes, ended)...)
		done := c.submit(b)
		t.mu.Unlock()
		return <-done
	})
	if err != nil {
		return nil, err
	}
	if len(changes)+len(ended) == 0 {
		return nil, wire.ThrottleNotFound(req.Key)
	}
	s.warnDeclared(req.Key)
	s.configChanged(changes...)
	s.refreshThrottle(req.Key)
	for _, ch := range ended {
		c.configEvent(ch)
	}
	info, _ := s.throttleInfo(req.Key)
	return info, nil
}

func (s *Server) throttleShow(tail string, body []byte) (any, *wire.Error) {
	req, err := wire.ParseThrottleKey(tail, body)
	if err != nil {
		return nil, err
	}
	info, ok := s.throttleInfo(req.Key)
	if !ok {
		return nil, wire.ThrottleNotFound(req.Key)
	}
	return info, nil
}

// throttleList lists the keys for which anything is set, and those that have a
// gate at this moment.
func (s *Server) throttleList(_ string, body []byte) (any, *wire.Error) {
	req, err := wire.ParseGateList(body)
	if err != nil {
		return nil, err
	}
	keys := make(map[string]bool)
	add := func(key string) {
		if strings.HasPrefix(key, req.Prefix) {
			keys[key] = true
		}
	}
	for _, e := range s.core.config.all(kindThrottle + ":") {
		if _, key, _, ok := splitSetting(e.Key); ok {
			add(key)
		}
	}
	t := &s.throttles
	t.mu.Lock()
	for key := range t.mu.overrides {
		add(key)
	}
	t.mu.Unlock()
	for _, key := range s.pauses.throttles() {
		add(key)
	}
	s.core.gates.Sweep(s.core.clock.Now())
	for _, key := range s.core.gates.Keys() {
		add(key)
	}
	list := wire.ThrottleList{Total: len(keys), Throttles: []wire.ThrottleInfo{}}
	for _, key := range page(slices.Sorted(maps.Keys(keys)), req.Offset, req.Limit) {
		info, _ := s.throttleInfo(key)
		list.Throttles = append(list.Throttles, info)
	}
	return list, nil
}

// throttleInfo describes a throttle key. It reports false if nothing is set for
// it, no prefix limits it and it has no gate.
func (s *Server) throttleInfo(key string) (wire.ThrottleInfo, bool) {
	info, known := s.throttleSource(key)
	now := s.core.clock.Now()
	if _, ok := isPrefix(key); ok {
		return info, known
	}
	gate, ok := s.core.gates.Find(key)
	if ok && !known {
		s.core.gates.Sweep(now) // it may be a gate that nobody needs any more
		gate, ok = s.core.gates.Find(key)
	}
	known = known || ok
	state := s.throttles.unused(key, s.core.gates.Limits(key), now)
	if ok {
		state = gate.Info(now)
	}
	info.State = state.Kind.String()
	info.Tokens = float64(state.Tokens) / throttle.One
	info.InWindow, info.InFlight, info.Waiting = state.InWindow, state.InFlight, state.Waiting
	if state.Kind != throttle.Open && state.At != throttle.Never {
		info.OpensAt = timestamp(state.At)
	}
	if until := s.pauses.until(pauseID{kind: wire.PauseThrottle, name: key}); until != 0 {
		known = true
		info.State, info.PausedUntil, info.OpensAt = "paused", "resumed", ""
		if until != throttle.Never {
			info.PausedUntil = timestamp(until)
			info.OpensAt = info.PausedUntil
		}
	}
	return info, known
}

// throttleSource fills in the limits of a key and where they come from.
func (s *Server) throttleSource(key string) (info wire.ThrottleInfo, known bool) {
	t := &s.throttles
	t.mu.Lock()
	defer t.mu.Unlock()
	info = wire.ThrottleInfo{Key: key, Source: "none", State: throttle.Open.String()}
	inForce, lasting := t.set(s.core.config, key)
	o := t.mu.overrides[key]
	switch {
	case o != nil:
		info.Source, info.OverrideUntil = "override", timestamp(o.Until)
	case len(lasting) > 0:
		info.Source = "config"
	}
	info.ThrottleLimits = inForce.wire()
	known = len(lasting) > 0 || o != nil
	if _, ok := isPrefix(key); ok || inForce.limits() != (throttle.Limits{}) {
		return info, known
	}
	// Nothing of its own limits the key, so a prefix does.
	prefix, ok := t.prefixOf(key)
	if !ok {
		return info, known
	}
	inForce, _ = t.set(s.core.config, prefix)
	info.ThrottleLimits, info.Source = inForce.wire(), "prefix "+prefix
	return info, true
}

// unused is what the gate of a key would be like if there were one.
func (t *throttles) unused(key string, l throttle.Limits, now int64) throttle.Info {
	gates := throttle.New(t.start, t.startAt)
	if _, err := gates.SetLimits(key, l, now, nil); err != nil {
		return throttle.Info{}
	}
	if gate, ok := gates.Find(key); ok {
		return gate.Info(now)
	}
	return throttle.Info{}
}
