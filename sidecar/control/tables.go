package control

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/filaq/fila/sidecar/config"
	"github.com/filaq/fila/sidecar/rules"
	"github.com/filaq/fila/wire"
)

// Kinds of tables that the runtime configuration can have, each as a JSON object under
// <kind>:<name>. They stand behind the tables of the configuration file, whose names they cannot
// have.
const (
	kindPolicy = "retry_policy"
	kindRule   = "error_rule"
	kindGuard  = "guard"
	kindChoice = "route_choice" // the [[route]] tables of one choice
)

var tableKinds = []string{kindPolicy, kindRule, kindGuard, kindChoice}

// splitTable splits the key of a table; kind is empty for other keys.
func splitTable(key string) (kind, name string) {
	if kind, name, _ = strings.Cut(key, ":"); slices.Contains(tableKinds, kind) {
		return kind, name
	}
	return "", ""
}

// tables are the tables of the runtime configuration, by their kind.
type tables struct {
	policies []rules.RetryPolicy
	rules    []rules.OrderedRule
	guards   []config.GuardTable
	routes   []config.RouteTable
}

// add adds a table. The error says what is wrong with its value.
func (t *tables) add(kind, name, value string) error {
	var err *wire.Error
	switch kind {
	case kindPolicy:
		p := rules.DefaultRetryPolicy(name)
		err = wire.DecodeStrict([]byte(value), &p)
		p.Name = name
		t.policies = append(t.policies, p)
	case kindRule:
		var r rules.OrderedRule
		if err = wire.DecodeStrict([]byte(value), &r); err == nil {
			err = wire.CheckBounds(r)
		}
		r.Name = name
		t.rules = append(t.rules, r)
	case kindGuard:
		var g config.GuardTable
		err = wire.DecodeStrict([]byte(value), &g)
		g.Key = name
		t.guards = append(t.guards, g)
	case kindChoice:
		var r config.RouteChoice
		if err = wire.DecodeStrict([]byte(value), &r); err != nil {
			break
		}
		routes, err := r.Tables(name)
		if err != nil {
			return err
		}
		t.routes = append(t.routes, routes...)
	}
	if err != nil {
		return err
	}
	return nil
}

// over returns a configuration with these tables behind its own.
func (t *tables) over(file config.Config) config.Config {
	slices.SortStableFunc(t.rules, func(a, b rules.OrderedRule) int {
		return cmp.Or(cmp.Compare(a.Order, b.Order), cmp.Compare(a.Name, b.Name))
	})
	all := file
	all.RetryPolicies = slices.Concat(file.RetryPolicies, t.policies)
	all.ErrorRules = slices.Clone(file.ErrorRules)
	for _, r := range t.rules {
		all.ErrorRules = append(all.ErrorRules, r.ErrorRule)
	}
	all.Guards = slices.Concat(file.Guards, t.guards)
	all.Routes = slices.Concat(file.Routes, t.routes)
	return all
}

// declares reports whether a configuration file has a table of this kind and name.
func declares(file *config.Config, kind, name string) bool {
	switch kind {
	case kindPolicy:
		return slices.ContainsFunc(file.RetryPolicies, func(p rules.RetryPolicy) bool { return p.Name == name })
	case kindRule:
		return slices.ContainsFunc(file.ErrorRules, func(r rules.ErrorRule) bool { return r.Name == name })
	case kindChoice:
		return slices.ContainsFunc(file.Routes, func(r config.RouteTable) bool { return r.Choice == name })
	}
	return slices.ContainsFunc(file.Guards, func(g config.GuardTable) bool { return g.Key == name })
}

// checkTables refuses changes of tables that have an invalid value or the name of a table of the file, or
// that break other tables or a queue.
func (c *Control) checkTables(changes []change) *wire.Error {
	file := &c.applied.Load().config
	changed := make(map[string]*string)
	for _, ch := range changes {
		kind, name := splitTable(ch.key)
		switch {
		case kind == "":
			continue
		case ch.new != nil && declares(file, kind, name):
			return wire.BadConfigValue(ch.key, *ch.new, "the configuration file has "+kind+" "+name+", which wins")
		}
		changed[ch.key] = ch.new
	}
	if len(changed) == 0 {
		return nil
	}
	t, key, err := c.readTables(file, changed)
	if err == nil {
		_, _, err = compileTables(t, *file)
	}
	for _, q := range c.opt.Queues.Settings() {
		if value, ok := changed[kindPolicy+":"+q.RetryPolicy]; err == nil && ok && value == nil {
			err = fmt.Errorf("queue %s has this retry_policy", q.Name)
		}
	}
	if err == nil {
		return nil
	}
	if key == "" {
		key = slices.Sorted(maps.Keys(changed))[0]
	}
	text := ""
	if value := changed[key]; value != nil {
		text = *value
	}
	return wire.BadConfigValue(key, text, err.Error())
}

// readTables reads the tables of the runtime configuration that the file does not have, with changed values;
// nil: it is removed. An error comes with the key that it is about.
func (c *Control) readTables(file *config.Config, changed map[string]*string) (t *tables, key string, err error) {
	t = &tables{}
	add := func(key, value string) error {
		kind, name := splitTable(key)
		if declares(file, kind, name) {
			return nil
		}
		return t.add(kind, name, value)
	}
	for _, kind := range tableKinds {
		for _, e := range c.values.all(kind + ":") {
			if _, ok := changed[e.Key]; ok {
				continue
			}
			if err := add(e.Key, e.Value); err != nil {
				return nil, e.Key, err
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(changed)) {
		if value := changed[key]; value != nil {
			if err := add(key, *value); err != nil {
				return nil, key, err
			}
		}
	}
	return t, "", nil
}

// compileTables checks tables together with the ones of a file.
func compileTables(t *tables, file config.Config) (config.Config, *rules.Rules, error) {
	all := t.over(file)
	compiled, err := rules.Compile(all.RetryPolicies, all.ErrorRules)
	if err == nil {
		err = all.CheckGuards()
	}
	return all, compiled, err
}

// withTables returns a plan with the tables of the runtime configuration.
func (c *Control) withTables(p *applied) (*applied, error) {
	t, key, err := c.readTables(&p.config, nil)
	if err != nil {
		return nil, fmt.Errorf("%s of the runtime configuration: %w", key, err)
	}
	all, compiled, err := compileTables(t, p.config)
	if err != nil {
		return nil, fmt.Errorf("with the tables of the runtime configuration: %w", err)
	}
	return &applied{p.config, all, compiled, routesOf(all.Routes), p.values}, nil
}

// enforceTables puts a plan in force with the tables of the runtime configuration. If these do not go
// together, it logs that and leaves them out: the file is in force.
func (c *Control) enforceTables(p *applied) {
	next, err := c.withTables(p)
	if err != nil {
		c.opt.Log.Error("retry policies, error rules, guards and routes of the runtime configuration have no effect", "error", err)
		compiled, _ := rules.Compile(p.config.RetryPolicies, p.config.ErrorRules) // it was compiled before
		next = &applied{p.config, p.config, compiled, routesOf(p.config.Routes), p.values}
	}
	c.applied.Store(next)
}
