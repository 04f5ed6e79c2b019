package sidecar

import (
	"maps"
	"slices"

	"github.com/filaq/fila/wire"
)

func (s *Server) configSet(key string, body []byte) (any, *wire.Error) {
	if err := wire.CheckConfigKey(key); err != nil {
		return nil, wire.BadConfigKey(err)
	}
	req, err := wire.ParseConfigSet(key, body)
	if err != nil {
		return nil, err
	}
	if err := checkMeaning(key, req.Value); err != nil {
		return nil, err
	}
	check := func(now *string) *wire.Error {
		if req.IfValue != nil && (now == nil || *now != *req.IfValue) {
			return wire.ConfigMismatch(key, now)
		}
		return nil
	}
	previous, err := s.changeConfig(key, &req.Value, check, wire.VerbConfigSet)
	if err != nil {
		return nil, err
	}
	return wire.ConfigSetReply{Key: key, Value: req.Value, Previous: previous}, nil
}

func (s *Server) configGet(key string, body []byte) (any, *wire.Error) {
	if err := wire.ParseEmpty(body); err != nil {
		return nil, err
	}
	if err := wire.CheckConfigKey(key); err != nil {
		return nil, wire.BadConfigKey(err)
	}
	v, ok := s.core.config.Get(key)
	if !ok {
		return nil, wire.ConfigKeyNotFound(key)
	}
	return wire.ConfigEntry{Key: key, Value: v}, nil
}

func (s *Server) configDelete(key string, body []byte) (any, *wire.Error) {
	if err := wire.ParseEmpty(body); err != nil {
		return nil, err
	}
	if err := wire.CheckConfigKey(key); err != nil {
		return nil, wire.BadConfigKey(err)
	}
	check := func(now *string) *wire.Error {
		if now == nil {
			return wire.ConfigKeyNotFound(key)
		}
		return nil
	}
	previous, err := s.changeConfig(key, nil, check, wire.VerbConfigDelete)
	if err != nil {
		return nil, err
	}
	return wire.ConfigEntry{Key: key, Value: *previous}, nil
}

func (s *Server) configList(_ string, body []byte) (any, *wire.Error) {
	req, err := wire.ParseConfigList(body)
	if err != nil {
		return nil, err
	}
	entries, total := s.core.config.list(req.Prefix, req.Offset, req.Limit)
	return wire.ConfigList{Total: total, Entries: entries}, nil
}

// changeConfig sets a key of the runtime configuration, or deletes it if value is
// nil, when check agrees with the present value, which it returns.
func (s *Server) changeConfig(key string, value *string, check func(now *string) *wire.Error, by string) (*string, *wire.Error) {
	ch := change{key: key, new: value}
	_, err := s.core.config.edit(func() (map[string]*string, *wire.Error) {
		if v, ok := s.core.config.Get(key); ok {
			ch.old = &v
		}
		return map[string]*string{key: value}, check(ch.old)
	}, s.saveAs(by))
	if err != nil {
		return nil, err
	}
	if kind, name, _, ok := splitSetting(key); ok && kind == kindThrottle {
		s.warnDeclared(name)
	}
	s.configChanged(ch)
	return ch.old, nil
}

// declareSettings gives keys of the runtime configuration the values that the
// configuration file says, all at once; those whose value is nil are deleted. It
// returns what that changes, in the order of the keys.
func (s *Server) declareSettings(values map[string]*string) ([]change, *wire.Error) {
	changes, err := s.core.config.edit(func() (map[string]*string, *wire.Error) {
		for key, value := range values {
			// 10 for 10.0 is no change.
			_, _, name, _ := splitSetting(key)
			if now, ok := s.core.config.Get(key); ok && value != nil && sameLimit(name, now, *value) {
				delete(values, key)
			}
		}
		return values, nil
	}, s.saveAs(byFile))
	if err != nil {
		return nil, err
	}
	s.configChanged(changes...)
	return changes, nil
}

// configChanged makes changes of the runtime configuration act, and tells of
// them. Hooks see them by themselves. Each makes what is in force now act: two
// changes may come here in another order than they were made.
func (s *Server) configChanged(changes ...change) {
	throttles := make(map[string]bool)
	circuits := false
	for _, ch := range changes {
		if name, fairnessKey, ok := splitWeight(ch.key); ok {
			s.weightChanged(ch.key, name, fairnessKey)
		}
		switch kind, name, _, _ := splitSetting(ch.key); kind {
		case kindThrottle:
			throttles[name] = true
		case kindCircuit:
			circuits = true
		}
	}
	for _, key := range slices.Sorted(maps.Keys(throttles)) {
		s.refreshThrottle(key)
	}
	if circuits {
		s.configureCircuits()
	}
	for _, ch := range changes {
		s.core.configEvent(ch)
	}
}

func (s *Server) weightChanged(key, queue, fairnessKey string) {
	if q := s.queues.get(queue); q != nil {
		q.tell(func(l *loop) {
			now, _ := s.core.config.Get(key)
			weight, _ := parseWeight(now)
			l.overrideWeight(fairnessKey, weight)
		})
	}
}

func (c *core) configEvent(ch change) {
	c.event(wire.EventConfigChanged, ch.key, wire.Event{Key: ch.key, Data: map[string]any{"value": ch.new, "previous": ch.old}})
}

// overrideWeight sets the weight of a flow, backlog included, or with 0 gives
// it back to the producers.
func (l *loop) overrideWeight(key string, weight uint32) {
	if f, ok := l.keys.override(key, weight); ok {
		l.sched.SetWeight(f, l.keys.weight(f))
		l.reweighLanes(f)
	}
}
