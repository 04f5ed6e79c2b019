package control

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/filaq/fila/wire"
)

// KeyWarnings returns sentences about throttle limits that no queue can reach by its
// headers, and about two headers of a queue that make the same key, as far as they
// concern a queue with these settings. The settings need not be in force yet.
func (c *Control) KeyWarnings(settings wire.QueueSettings) []string {
	about := "queue " + settings.Name + ":"
	return slices.DeleteFunc(c.keyWarnings(nil, settings), func(line string) bool { return !strings.HasPrefix(line, about) })
}

// keyWarnings returns the warnings of all queues, with the declared settings in place of
// the ones in force, and with the limits of a plan unless it is nil. In a cluster no node
// knows all queues, so there are no warnings.
func (c *Control) keyWarnings(p *applied, declared ...wire.QueueSettings) []string {
	if c.opt.Node != "" {
		return nil
	}
	queues := make(map[string]wire.QueueSettings)
	for _, q := range slices.Concat(c.opt.Queues.Settings(), declared) {
		queues[q.Name] = q
	}
	sorted := slices.SortedFunc(maps.Values(queues), func(a, b wire.QueueSettings) int { return cmp.Compare(a.Name, b.Name) })
	limits := c.values.throttles()
	if p != nil {
		for _, t := range p.config.Throttles {
			limits = append(limits, t.Key)
		}
	}
	slices.Sort(limits)
	return keyWarnings(slices.Compact(limits), sorted)
}

// headerQueue is a queue with throttle keys from headers.
type headerQueue struct {
	name      string
	templates []wire.KeyTemplate
}

// maxKeysNamed is how many keys a warning names.
const maxKeysNamed = 3

func keyWarnings(limits []string, settings []wire.QueueSettings) (lines []string) {
	var queues []headerQueue
	hooked := false // a hook can give its messages any key, and routes have keys of their own
	for i := range settings {
		s := &settings[i]
		hooked = hooked || s.OnEnqueue != "" || s.RouteHeader != ""
		q := headerQueue{name: s.Name}
		for _, text := range s.ThrottleHeaders {
			if t, err := wire.ParseKeyTemplate(text); err == nil {
				q.templates = append(q.templates, t)
			}
		}
		if len(q.templates) > 0 {
			queues = append(queues, q)
		}
	}
	for i := range queues {
		lines = append(lines, queues[i].collisions(limits)...)
	}
	if hooked || len(queues) == 0 {
		return lines
	}
	for _, limit := range limits {
		key, prefix := isPrefix(limit)
		meant := func(q headerQueue) bool {
			return slices.ContainsFunc(q.templates, func(t wire.KeyTemplate) bool { return t.Meant(key, prefix) })
		}
		if !slices.ContainsFunc(queues, meant) {
			lines = append(lines, unreached(limit, key, prefix, queues)...)
		}
	}
	return lines
}

// unreached warns of a limit whose keys no queue makes, and shows how one could.
func unreached(limit, key string, prefix bool, queues []headerQueue) (lines []string) {
	name, isName := strings.CutSuffix(key, ":")
	for i := range queues {
		for j := range queues[i].templates {
			header, bare := queues[i].templates[j].Bare()
			if bare && prefix && isName && strings.EqualFold(header, name) {
				lines = append(lines, fmt.Sprintf("queue %s: its throttle_headers give messages the bare value of header %s as a key, so the limit of %s holds back none of them; a key for each value is %q",
					queues[i].name, header, limit, key+"{"+header+"}"))
			}
		}
	}
	if len(lines) > 0 {
		return lines
	}
	return []string{fmt.Sprintf("throttle %s: no queue gives its messages such a key by throttle_headers; only calls of the guard can use its limit", limit)}
}

// collisions warns of limits that apply to a message by another header than the intended
// one.
func (q *headerQueue) collisions(limits []string) (lines []string) {
	for i := range q.templates {
		for j := range q.templates[:i] {
			a, b := &q.templates[j], &q.templates[i]
			if !a.Same(b) {
				continue
			}
			var keys []string
			for _, limit := range limits {
				if key, prefix := isPrefix(limit); !prefix && a.Meant(key, false) {
					keys = append(keys, key)
				}
			}
			if len(keys) == 0 {
				continue
			}
			more := ""
			if len(keys) > maxKeysNamed {
				more = fmt.Sprintf(" and %d more", len(keys)-maxKeysNamed)
				keys = keys[:maxKeysNamed]
			}
			lines = append(lines, fmt.Sprintf("queue %s: the headers %s and %s make the same throttle keys, so a message is under the limits of %s%s by the value of either; tell them apart by templates such as %q",
				q.name, a.Headers()[0], b.Headers()[0], strings.Join(keys, ", "), more, a.Headers()[0]+":{"+a.Headers()[0]+"}"))
		}
	}
	return lines
}
