package sidecar

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/filaq/fila/hooks"
	"github.com/filaq/fila/wire"
)

// reloading is what a reload needs to know.
type reloading struct {
	mu       sync.Mutex             // one reload at a time
	cfg      atomic.Pointer[Config] // the file as it was last applied
	circuits sync.Mutex             // one configuration of circuits at a time, so that the latest wins
}

// startRules makes the rules of the configuration act. It comes after the
// recovery, since it writes to the store, and before the loops start, so that no
// circuit goes without its limits.
func (s *Server) startRules() error {
	cfg := s.cfg
	r, err := compileRules(cfg.RetryPolicies, cfg.ErrorRules)
	if err != nil {
		return err
	}
	s.core.rules.Store(r)
	s.reloading.cfg.Store(&cfg)
	changes, err := s.declareGates(&cfg)
	if err != nil {
		return err
	}
	s.configureCircuits()
	for _, line := range changes {
		if strings.Contains(line, " none -> ") {
			s.core.log.Info("set by the configuration file", "change", line)
		} else {
			s.core.log.Warn("the configuration file wins over what was changed at run time", "change", line)
		}
	}
	for _, line := range s.lostPolicies(r) {
		s.core.log.Warn(line)
	}
	return nil
}

// Reload reads the configuration file again and applies its rules and queues:
// all of them, or none if anything is wrong. What has changed is in the log. The
// error is one line.
func (s *Server) Reload() error {
	switch {
	case s.core.draining.Load():
		return errors.New("fila is stopping")
	case !s.started.Load():
		return errors.New("fila is still starting")
	}
	if _, werr := s.reload(); werr != nil {
		return werr
	}
	return nil
}

func (s *Server) reloadVerb(_ string, body []byte) (any, *wire.Error) {
	if err := wire.ParseEmpty(body); err != nil {
		return nil, err
	}
	reply, err := s.reload()
	if err != nil {
		return nil, err
	}
	return reply, nil
}

// reload checks everything before it changes anything, and changes what is on
// disk before what is in memory. After the checks only the disk or the
// connection can fail.
func (s *Server) reload() (wire.ReloadReply, *wire.Error) {
	s.reloading.mu.Lock()
	defer s.reloading.mu.Unlock()
	c, none := s.core, wire.ReloadReply{}
	old := s.reloading.cfg.Load()
	if old.Reload == nil {
		return none, wire.ReloadFailed(errors.New("fila was started without a configuration file"))
	}
	next, err := old.Reload()
	if err != nil {
		return none, wire.ReloadFailed(err)
	}
	next.Reload = old.Reload
	r, err := s.checkReload(&next)
	if err != nil {
		return none, wire.ReloadFailed(err)
	}

	changes := rulesDiff(old, &next)
	lines, err := s.declareGates(&next)
	changes = append(changes, lines...)
	if err == nil {
		lines, err = s.declareQueues(next.Queues)
		changes = append(changes, lines...)
	}
	if err != nil {
		// The store has failed, which ends fila, or NATS has gone meanwhile.
		c.log.Error("a reload was interrupted; reload again", "error", err, "changed", changes)
		return none, asWire(err)
	}
	s.reloading.cfg.Store(&next)
	c.rules.Store(r)
	s.configureCircuits()

	for _, line := range changes {
		c.log.Info("reloaded", "change", line)
	}
	var warnings []string
	for _, key := range restartKeys(&s.cfg, &next) {
		warnings = append(warnings, key+": differs, but needs a restart; not applied")
	}
	warnings = append(warnings, s.lostPolicies(r)...)
	for _, line := range warnings {
		c.log.Warn(line)
	}
	c.log.Info("configuration file reloaded", "changes", len(changes))
	changes = append(changes, warnings...)
	room := int(c.nc.MaxPayload()) / 2
	c.event(wire.EventRulesReloaded, "", wire.Event{Data: map[string]any{"changes": fitting(changes, min(room, 8<<10))}})
	return wire.ReloadReply{Changes: fitting(changes, room)}, nil
}

// checkReload finds whatever would keep next from being applied.
func (s *Server) checkReload(next *Config) (*rules, error) {
	if err := next.Validate(); err != nil {
		return nil, err
	}
	for i := range next.Queues {
		settings := &next.Queues[i]
		q := s.queues.get(settings.Name)
		if q == nil && s.core.offline.Load() {
			return nil, fmt.Errorf("queue %s cannot be created while NATS is not connected", settings.Name)
		}
		if q != nil && q.policy.Load().settings.Equal(*settings) {
			continue
		}
		if err := s.checkHooks(settings); err != nil {
			return nil, err
		}
	}
	return compileRules(next.RetryPolicies, next.ErrorRules)
}

// checkHooks finds what would keep the hooks of a queue from being loaded.
func (s *Server) checkHooks(settings *wire.QueueSettings) error {
	for _, kind := range []hooks.Kind{hooks.OnEnqueue, hooks.OnFailure} {
		text, _ := (&policy{settings: *settings}).script(kind)
		if text == "" {
			continue
		}
		if _, err := hooks.Compile(kind, settings.Name+"/"+string(kind), text, s.hookLimits(*settings)); err != nil {
			return fmt.Errorf("queue %s, %s: %w", settings.Name, kind, err)
		}
	}
	return nil
}

// declareQueues brings the queues of tables about, as at a start, and returns
// what has changed.
func (s *Server) declareQueues(tables []wire.QueueSettings) ([]string, error) {
	var changes []string
	for _, settings := range tables {
		q := s.queues.get(settings.Name)
		if q == nil {
			if _, err := s.create(settings); err != nil {
				return changes, err
			}
			changes = append(changes, "queue "+settings.Name+": added")
			continue
		}
		var diff string
		_, err := s.update(q, func(now wire.QueueSettings) (wire.QueueSettings, *wire.Error) {
			diff = fieldsDiff(now, settings)
			return settings, nil
		})
		if err != nil {
			return changes, err
		}
		if diff != "" {
			changes = append(changes, "queue "+settings.Name+": "+diff)
		}
	}
	return changes, nil
}

// declareGates lets the throttles and circuits of the file win over the runtime
// configuration, and returns what that has changed.
func (s *Server) declareGates(cfg *Config) ([]string, error) {
	changes, err := s.declareThrottles(cfg.Throttles)
	if err != nil {
		return changes, err
	}
	lines, err := s.declareCircuits(cfg.Circuits)
	return append(changes, lines...), err
}

// declareCircuits gives the keys that tables name their limits in the runtime
// configuration, and takes away those that they do not say. It waits for the
// disk, and returns what has changed, one line for each limit.
func (s *Server) declareCircuits(tables []CircuitTable) ([]string, error) {
	values := make(map[string]*string)
	for i := range tables {
		t := &tables[i]
		for _, name := range []string{"threshold", "cooldown_ms", "half_open_max_calls", "half_open_successes"} {
			key := circuitPrefix + t.Key + ":" + name
			values[key] = nil
			if n := *t.field(name); n != 0 {
				values[key] = new(strconv.FormatInt(n, 10))
			}
		}
	}
	decide := func() (map[string]*string, *wire.Error) { return values, nil }
	changes, werr := s.core.config.edit(decide, s.saveAs(byFile))
	if werr != nil {
		return nil, werr
	}
	s.configChanged(changes...)
	var lines []string
	for _, ch := range changes {
		_, key, name, _ := splitSetting(ch.key)
		lines = append(lines, fmt.Sprintf("circuit %s: %s %s -> %s", key, name, orNone(ch.old), orNone(ch.new)))
	}
	return lines, nil
}

// configureCircuits gives the circuits the limits of the file and of the runtime
// configuration. Whoever changes circuit:<key>:... there calls it.
func (s *Server) configureCircuits() {
	s.reloading.circuits.Lock()
	defer s.reloading.circuits.Unlock()
	cfg := s.reloading.cfg.Load()
	s.core.circuits.declare(cfg.CircuitDefaults, cfg.Circuits)
}

// asWire is err as an answer.
func asWire(err error) *wire.Error {
	var werr *wire.Error
	if errors.As(err, &werr) {
		return werr
	}
	return wire.Internal(err.Error())
}

// lostPolicies names the queues whose retry_policy does not exist, in sentences.
func (s *Server) lostPolicies(r *rules) []string {
	var lines []string
	for _, q := range s.queues.all() {
		if name := q.policy.Load().settings.RetryPolicy; !r.hasPolicy(name) {
			lines = append(lines, fmt.Sprintf("queue %s: its retry_policy %s is not in the configuration file; what no error rule fits is retried at once", q.name, name))
		}
	}
	return lines
}

// fitting returns as many lines as fit into so many bytes of JSON, and says how
// many are left out.
func fitting(lines []string, room int) []string {
	fit := make([]string, 0, len(lines))
	room -= 100 // for the last line
	for i, line := range lines {
		text, err := json.Marshal(line)
		if room -= len(text) + 1; room < 0 || err != nil {
			return append(fit, fmt.Sprintf("... and %d more, see the log", len(lines)-i))
		}
		fit = append(fit, line)
	}
	return fit
}
