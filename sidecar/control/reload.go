package control

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/filaq/fila/sidecar/config"
	"github.com/filaq/fila/sidecar/rules"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// applied is a configuration in force, or one that can be put in force. It is immutable.
type applied struct {
	config config.Config            // the file
	all    config.Config            // the same with the tables of the runtime configuration
	rules  *rules.Rules             // of all
	routes map[string][]store.Route // of all, by choice
	values map[string]*string       // of the runtime configuration, as the tables say; nil: the table does not say it
}

// plan finds everything that would keep a configuration from being applied. It changes
// nothing.
func (c *Control) plan(next config.Config) (*applied, error) {
	if err := next.Validate(); err != nil {
		return nil, err
	}
	for i := range next.Queues {
		if err := c.opt.Queues.Check(next.Queues[i]); err != nil {
			return nil, err
		}
	}
	p, err := newPlan(next)
	if err != nil {
		return nil, err
	}
	return c.withTables(p)
}

// newPlan makes a plan of a configuration whose values and queues have been checked.
func newPlan(next config.Config) (*applied, error) {
	compiled, err := rules.Compile(next.RetryPolicies, next.ErrorRules)
	if err != nil {
		return nil, err
	}
	p := &applied{config: next, all: next, rules: compiled, routes: routesOf(next.Routes), values: make(map[string]*string)}
	for i := range next.Throttles {
		t := &next.Throttles[i]
		l, err := t.Limits()
		if err != nil {
			return nil, fmt.Errorf("throttle[%s]%w", t.Key, err)
		}
		p.declare(kindThrottle, t.Key, limits{Limits: l})
	}
	for _, t := range next.Circuits {
		p.declare(kindCircuit, t.Key, limits{CircuitLimits: t.CircuitLimits}, t.Zeros...)
	}
	return p, nil
}

// routesOf returns the routes of tables by choice.
func routesOf(tables []config.RouteTable) map[string][]store.Route {
	choices := make(map[string][]store.Route)
	for _, t := range tables {
		choices[t.Choice] = append(choices[t.Choice], store.Route{
			Name: t.Name, Weight: uint32(t.Weight*1000 + 0.5), ThrottleKeys: t.ThrottleKeys, CircuitKey: t.CircuitKey,
		})
	}
	return choices
}

// declare adds the settings of a table, and marks the settings that it does not have as
// unset. zeros are settings whose value is 0.
func (p *applied) declare(kind, key string, table limits, zeros ...string) {
	for s := range settingsOf(kind) {
		text := s.show(&table)
		if text == "" && slices.Contains(zeros, s.name) {
			text = "0"
		}
		p.values[s.key(key)] = orNil(text)
	}
}

// putInForce applies all settings of a plan or none, and returns the changes of the
// runtime configuration.
func (c *Control) putInForce(p *applied) ([]change, *wire.Error) {
	if err := c.noteDefaults(&p.config.CircuitDefaults); err != nil {
		return nil, err
	}
	changes, err := c.values.edit(func() (map[string]*string, *wire.Error) { return c.differing(p), nil }, c.writeAs(Actor{By: byFile}))
	if err != nil {
		return nil, err
	}
	c.acting.Lock()
	c.enforceTables(p)
	c.acting.Unlock()
	c.configureCircuits()
	c.act(changes)
	throttlesFirst(changes)
	return changes, nil
}

// differing returns the values of a plan that mean something else than the values in
// force: 10.0 is the same as 10.
func (c *Control) differing(p *applied) map[string]*string {
	next := make(map[string]*string, len(p.values))
	for key, value := range p.values {
		_, s := splitSetting(key)
		if now, ok := c.values.Get(key); !ok || value == nil || !s.same(now, *value) {
			next[key] = value
		}
	}
	return next
}

// setBy returns the source of the settings in force of a throttle or circuit key:
// api.SetByFile if all of them are as in the key's table, api.SetByOperator if any was
// set at run time, or "" if none is set.
func (c *Control) setBy(kind, key string) string {
	declared := c.applied.Load().values
	by := ""
	for s := range settingsOf(kind) {
		name := s.key(key)
		now, ok := c.values.Get(name)
		file := declared[name]
		switch {
		case !ok && file == nil:
		case ok && file != nil && s.same(now, *file):
			by = api.SetByFile
		default:
			return api.SetByOperator
		}
	}
	return by
}

func throttlesFirst(changes []change) {
	kind := func(ch change) string { kind, _, _ := strings.Cut(ch.key, ":"); return kind }
	slices.SortStableFunc(changes, func(a, b change) int { return cmp.Compare(kind(b), kind(a)) })
}

// line describes a change of a setting.
func (ch change) line() string {
	key, s := splitSetting(ch.key)
	return config.Line(s.kind, key, ch.text(s.name))
}

// settingLine describes a change of a setting by the file, with the owner of its object.
func (c *Control) settingLine(ch change) string { return c.withOwner(objectOf(ch.key), ch.line()) }

// queueLines describes what the file changes of a queue, with its owner. had is nil for a new queue.
func (c *Control) queueLines(had *wire.QueueSettings, next wire.QueueSettings) []string {
	lines := config.QueueDiff(had, next)
	if had == nil {
		return lines // a recorded owner is the owner of an earlier one
	}
	for i := range lines {
		lines[i] = c.withOwner(QueueObject(next.Name), lines[i])
	}
	return lines
}

// Start applies a valid configuration before the queues start.
func (c *Control) Start(cfg config.Config) error {
	p, err := newPlan(cfg)
	if err != nil {
		return err
	}
	c.running = cfg
	changes, werr := c.putInForce(p)
	if werr != nil {
		return werr
	}
	for _, ch := range changes {
		if ch.old == nil {
			c.opt.Log.Info("set by the configuration file", "change", c.settingLine(ch))
		} else {
			c.opt.Log.Warn("the configuration file wins over what was changed at run time", "change", c.settingLine(ch))
		}
	}
	for _, line := range append(c.lostPolicies(c.applied.Load()), c.keyWarnings(p, cfg.Queues...)...) {
		c.opt.Log.Warn(line)
	}
	return nil
}

// DeclareMissing creates the queues of the configuration in force that do not exist, as
// far as it can.
func (c *Control) DeclareMissing(ctx context.Context) error {
	var errs []error
	for _, settings := range c.applied.Load().config.Queues {
		if c.opt.Queues.Exists(settings.Name) {
			continue
		}
		if _, err := c.declare(ctx, settings); err != nil {
			errs = append(errs, fmt.Errorf("queue %s: %w", settings.Name, err))
		}
	}
	return errors.Join(errs...)
}

// DeclareQueues creates or updates the queues of the configuration given to Start.
func (c *Control) DeclareQueues(ctx context.Context) error {
	for _, settings := range c.running.Queues {
		had, err := c.declare(ctx, settings)
		if err != nil {
			return err
		}
		if had != nil && !had.Equal(settings) {
			c.opt.Log.Warn("the settings in the configuration file win over those that were changed at run time", "queue", settings.Name)
		}
	}
	return nil
}

// apply applies a plan and returns a line for each change. Its settings are one write,
// before which nothing has changed; the queues follow one by one. It needs applying.
func (c *Control) apply(ctx context.Context, p *applied) ([]string, *wire.Error) {
	old := c.applied.Load()
	changes, err := c.putInForce(p)
	if err != nil {
		return nil, err
	}
	lines := config.Diff(&old.config, &p.config)
	for _, ch := range changes {
		lines = append(lines, c.settingLine(ch))
	}
	for _, settings := range p.config.Queues {
		had, err := c.declare(ctx, settings)
		if err != nil { // the store has failed, or NATS has gone meanwhile
			c.opt.Log.Error("a reload was interrupted; reload again", "error", err, "changed", lines)
			return nil, err
		}
		lines = append(lines, c.queueLines(had, settings)...)
	}
	return lines, nil
}

// Reload reads the configuration file again, plans and applies it, and tells what
// has changed: in the log, by an event and in the reply.
func (c *Control) Reload(ctx context.Context) (api.ReloadReply, *wire.Error) {
	c.applying.Lock()
	defer c.applying.Unlock()
	p, werr := c.readPlan()
	if werr != nil {
		return api.ReloadReply{}, werr
	}
	changes, werr := c.apply(ctx, p)
	if werr != nil {
		return api.ReloadReply{}, werr
	}
	for _, line := range changes {
		c.opt.Log.Info("reloaded", "change", line)
	}
	warnings := c.reloadWarnings(p)
	for _, line := range warnings {
		c.opt.Log.Warn(line)
	}
	c.opt.Log.Info("configuration file reloaded", "changes", len(changes))
	changes = append(changes, warnings...)
	room := c.opt.MaxPayload() / 2
	c.opt.Event(wire.EventRulesReloaded, "", wire.Event{Data: map[string]any{"changes": fitting(changes, min(room, 8<<10))}})
	return api.ReloadReply{Changes: fitting(changes, room)}, nil
}

// ReloadDryRun returns what Reload would change, and changes nothing.
func (c *Control) ReloadDryRun() (api.ReloadReply, *wire.Error) {
	c.applying.Lock()
	defer c.applying.Unlock()
	p, werr := c.readPlan()
	if werr != nil {
		return api.ReloadReply{}, werr
	}
	lines := config.Diff(&c.applied.Load().config, &p.config)
	changes := c.values.changes(c.differing(p))
	throttlesFirst(changes)
	for _, ch := range changes {
		lines = append(lines, c.settingLine(ch))
	}
	for _, next := range p.config.Queues {
		lines = append(lines, c.queueLines(c.opt.Queues.Declared(next), next)...)
	}
	lines = append(lines, c.reloadWarnings(p)...)
	return api.ReloadReply{DryRun: true, Changes: fitting(lines, c.opt.MaxPayload()/2)}, nil
}

// readPlan reads the configuration file and makes a plan of it.
func (c *Control) readPlan() (*applied, *wire.Error) {
	read := c.running.Reload
	if read == nil {
		return nil, wire.ReloadFailed(errors.New("fila was started without a configuration file"))
	}
	next, err := read()
	if err != nil {
		return nil, wire.ReloadFailed(err)
	}
	p, err := c.plan(next)
	if err != nil {
		return nil, wire.ReloadFailed(err)
	}
	return p, nil
}

// reloadWarnings describes what a reload by this plan does not change, and what its rules
// lack.
func (c *Control) reloadWarnings(p *applied) []string {
	var lines []string
	for _, key := range config.RestartKeys(&c.running, &p.config) {
		lines = append(lines, key+": differs, but needs a restart; not applied")
	}
	return slices.Concat(lines, c.lostPolicies(p), c.keyWarnings(p, p.config.Queues...))
}

// lostPolicies returns a sentence for each queue whose retry_policy the plan does not have.
func (c *Control) lostPolicies(p *applied) []string {
	var lines []string
	for _, q := range c.opt.Queues.Settings() {
		declared := slices.IndexFunc(p.config.Queues, func(d wire.QueueSettings) bool { return d.Name == q.Name })
		if declared < 0 && !p.rules.HasPolicy(q.RetryPolicy) {
			lines = append(lines, fmt.Sprintf("queue %s: its retry_policy %s is not in the configuration file; what no error rule fits is retried after the default backoff of the queue", q.Name, q.RetryPolicy))
		}
	}
	return lines
}

// fitting returns as many lines as fit into room bytes of JSON, and the number of lines
// that it leaves out.
func fitting(lines []string, room int64) []string {
	fit := make([]string, 0, len(lines))
	room -= 100 // for the last line
	for i, line := range lines {
		text, err := json.Marshal(line)
		if room -= int64(len(text)) + 1; room < 0 || err != nil {
			return append(fit, fmt.Sprintf("... and %d more, see the log", len(lines)-i))
		}
		fit = append(fit, line)
	}
	return fit
}
