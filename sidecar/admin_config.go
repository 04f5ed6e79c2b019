package sidecar

import (
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
	previous, err := s.core.config.put(key, &req.Value, check, s.core.commit)
	if err != nil {
		return nil, err
	}
	s.configChanged(key, &req.Value, previous)
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
	previous, err := s.core.config.put(key, nil, check, s.core.commit)
	if err != nil {
		return nil, err
	}
	s.configChanged(key, nil, previous)
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

// configChanged makes a change of the runtime configuration act, and tells of
// it. Hooks see it by themselves.
func (s *Server) configChanged(key string, value, previous *string) {
	if name, fairnessKey, ok := splitWeight(key); ok {
		if q := s.queues.get(name); q != nil {
			q.tell(func(l *loop) {
				// What is in force now: two changes may be told in another order
				// than they were made.
				now, _ := s.core.config.Get(key)
				weight, _ := parseWeight(now)
				l.overrideWeight(fairnessKey, weight)
			})
		}
	}
	s.core.event(wire.EventConfigChanged, key, wire.Event{Key: key, Data: map[string]any{"value": value, "previous": previous}})
}

// overrideWeight sets the weight of a flow, backlog included, or with 0 gives
// it back to the producers.
func (l *loop) overrideWeight(key string, weight uint32) {
	if f, ok := l.keys.override(key, weight); ok {
		l.sched.SetWeight(f, l.keys.weight(f))
	}
}
