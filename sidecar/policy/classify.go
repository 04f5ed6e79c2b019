package policy

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/filaq/fila/hooks"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// keyTemplates compute the keys of messages in a queue without on_enqueue.
type keyTemplates struct {
	fairness, circuit wire.KeyTemplate
	throttles         []wire.KeyTemplate
}

// newKeyTemplates parses the templates of checked settings.
func newKeyTemplates(s *wire.QueueSettings) (k keyTemplates) {
	read := func(text string) wire.KeyTemplate {
		t, err := wire.ParseKeyTemplate(text)
		if err != nil {
			return wire.KeyTemplate{} // a later version wrote it
		}
		return t
	}
	k.fairness, k.circuit = read(s.FairnessHeader), read(s.CircuitHeader)
	for _, text := range s.ThrottleHeaders {
		k.throttles = append(k.throttles, read(text))
	}
	return k
}

// Classify classifies a message by on_enqueue or by the headers that the settings name. An
// invalid value refuses the message; the class next to the error is then what remains
// without that value.
func (p *Policy) Classify(headers map[string][]string, size int) (store.Class, *wire.Error) {
	if g := p.hooks[hooks.OnEnqueue]; g != nil {
		c := classOf(g.enqueue(&hooks.EnqueueInput{Headers: headers, PayloadSize: size, Queue: p.Settings.Name}))
		return c, checkKeys(&c)
	}
	h := headerReader{headers: headers}
	c := classOf(hooks.DefaultEnqueueDecision())
	s := &p.Settings
	if key := h.key("fairness", &p.keys.fairness); key != "" {
		c.Key = key
	}
	if weight := h.weight(s.WeightHeader); weight != 0 {
		c.Weight = weight
	}
	for i := range p.keys.throttles {
		if key := h.key("throttle", &p.keys.throttles[i]); key != "" && !slices.Contains(c.ThrottleKeys, key) {
			c.ThrottleKeys = append(c.ThrottleKeys, key)
		}
	}
	c.CircuitKey = h.key("circuit", &p.keys.circuit)
	c.Priority = h.priority(s.PriorityHeader)
	c.Routes = h.choice(s.RouteHeader, p.routes)
	if h.werr == nil {
		h.werr = checkKeys(&c)
	}
	return c, h.werr
}

// classOf is a decision as the class of a message.
func classOf(d hooks.EnqueueDecision) store.Class {
	c := store.Class{
		Key: d.Key, Weight: d.Weight, Cost: d.Cost, ThrottleKeys: d.ThrottleKeys, CircuitKey: d.CircuitKey, Priority: d.Priority,
	}
	for _, r := range d.Routes {
		c.Routes = append(c.Routes, store.Route(r))
	}
	return c
}

// Reclassify classifies a message of a job, whose request may set key and weight. Headers that
// were accepted before do not refuse it.
func (p *Policy) Reclassify(headers map[string][]string, size int, acceptedBefore bool, req *api.JobCreateRequest) (store.Class, *wire.Error) {
	c, werr := p.Classify(headers, size)
	if acceptedBefore && !p.Has(hooks.OnEnqueue) {
		werr = nil
	}
	if req.Weight != 0 {
		c.Weight = uint32(req.Weight*thousandths + 0.5)
	}
	if req.Key != "" {
		if c.Key = wire.NamedKey(req.Key); werr == nil {
			werr = checkKeys(&c)
		}
	}
	return c, werr
}

// checkKeys refuses keys that no request could name, whether a header or on_enqueue gave
// them. It does not count as a failure of the hook: one producer could open the hook's
// breaker for all others.
func checkKeys(c *store.Class) *wire.Error {
	if wire.CheckKey(c.Key) != nil {
		return wire.BadMessageKey("fairness", c.Key)
	}
	werr := checkGates(c.ThrottleKeys, c.CircuitKey)
	for i := range c.Routes {
		if r := &c.Routes[i]; werr == nil {
			if werr = checkGates(r.ThrottleKeys, r.CircuitKey); wire.CheckKey(r.Name) != nil {
				werr = wire.BadMessageKey("route", r.Name)
			}
		}
	}
	return werr
}

func checkGates(throttleKeys []string, circuitKey string) *wire.Error {
	for _, key := range throttleKeys {
		if wire.CheckKey(key) != nil {
			return wire.BadMessageKey("throttle", key)
		}
	}
	if circuitKey != "" && wire.CheckKey(circuitKey) != nil {
		return wire.BadMessageKey("circuit", circuitKey)
	}
	return nil
}

// thousandths is the unit of weights and costs.
const thousandths = 1000

// headerReader reads the headers that the settings of a queue name. Empty values count as
// absent; invalid ones set werr.
type headerReader struct {
	headers map[string][]string
	werr    *wire.Error // of the first invalid value
}

// bad records an invalid value.
func (h *headerReader) bad(werr *wire.Error) {
	if h.werr == nil {
		h.werr = werr
	}
}

// key reads a key of allowed length; checkKeys checks the rest.
func (h *headerReader) key(which string, template *wire.KeyTemplate) string {
	key := template.Key(h.headers)
	if len(key) > hooks.MaxKeyBytes {
		h.bad(wire.BadMessageKey(which, key))
		return ""
	}
	return key
}

// weight reads a weight from 1 to 1,000,000 and returns it in thousandths, 0 if there is none.
func (h *headerReader) weight(name string) uint32 {
	text := first(h.headers, name)
	if text == "" {
		return 0
	}
	w, err := strconv.ParseFloat(text, 64)
	if err != nil || !(w >= 1 && w <= hooks.MaxThousandths/thousandths) {
		h.bad(wire.BadHeaderValue(name, text, "allowed is a weight from 1 to 1,000,000"))
		return 0
	}
	return uint32(w*thousandths + 0.5)
}

// priority reads a priority from 0 to 9.
func (h *headerReader) priority(name string) uint8 {
	text := first(h.headers, name)
	switch {
	case text == "":
		return 0
	case len(text) > 1 || text[0] < '0' || text[0] > '0'+store.MaxPriority:
		h.bad(wire.BadHeaderValue(name, text, "allowed is a priority from 0 to 9"))
		return 0
	}
	return text[0] - '0'
}

// choice reads the name of a choice of routes and returns these.
func (h *headerReader) choice(name string, routes func() map[string][]store.Route) []store.Route {
	text := first(h.headers, name)
	if text == "" {
		return nil
	}
	var choices map[string][]store.Route
	if routes != nil {
		choices = routes()
	}
	if list, ok := choices[text]; ok {
		return list
	}
	const most = 8
	allowed := slices.Sorted(maps.Keys(choices))
	switch {
	case len(allowed) == 0:
		h.bad(wire.BadHeaderValue(name, text, "the configuration has no choice of routes"))
	case len(allowed) > most:
		h.bad(wire.BadHeaderValue(name, text, fmt.Sprintf("allowed is one of the %d choices of routes, such as %s", len(allowed), strings.Join(allowed[:most], ", "))))
	default:
		h.bad(wire.BadHeaderValue(name, text, "allowed is a choice of routes: "+strings.Join(allowed, ", ")))
	}
	return nil
}

// first returns the first value of a header, empty if there is none or name is empty.
func first(headers map[string][]string, name string) string {
	if name == "" {
		return ""
	}
	if v := headers[name]; len(v) > 0 {
		return v[0]
	}
	return ""
}
