package control

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/filaq/fila/throttle"
	"github.com/filaq/fila/wire"
)

// limitTexts returns the limits that a request names, as texts by name; one that is
// zero is an empty text.
func limitTexts(l wire.ThrottleLimits) map[string]string {
	texts := make(map[string]string)
	if l.Rate != nil {
		texts["rate"] = string(*l.Rate)
	}
	if l.Burst != nil {
		texts["burst"] = strconv.FormatFloat(*l.Burst, 'f', -1, 64)
	}
	for name, n := range map[string]*int64{"concurrency": l.Concurrency, "limit": l.Limit, "window_ms": l.WindowMs} {
		if n != nil {
			texts[name] = strconv.FormatInt(*n, 10)
		}
	}
	for name, text := range texts {
		if text == "0" {
			texts[name] = ""
		}
	}
	return texts
}

// parseLimits reads texts by name, and refuses those that are no limits.
func parseLimits(texts map[string]string) (l throttle.Limits, err *wire.Error) {
	for _, s := range throttleSettings {
		if text, ok := texts[s.name]; ok && !s.read(&l, text) {
			return l, wire.BadThrottle(fmt.Sprintf("%s is %q: allowed is %s", s.name, text, s.allowed))
		}
	}
	return l, nil
}

// wireLimits returns limits as replies have them.
func wireLimits(l throttle.Limits) wire.ThrottleLimits {
	var reply wire.ThrottleLimits
	if l.Rate != (throttle.Rate{}) {
		rate := wire.Rate(rateText(l.Rate))
		reply.Rate = &rate
	}
	if l.Burst != 0 {
		burst := float64(l.Burst) / throttle.One
		reply.Burst = &burst
	}
	for into, n := range map[**int64]int64{&reply.Concurrency: l.Concurrency, &reply.Limit: l.Limit, &reply.WindowMs: l.Window / 1e6} {
		if n != 0 {
			*into = &n
		}
	}
	return reply
}

// complete are limits without those that have no effect: a burst without a rate, a
// limit without its window or the other way round.
func complete(l throttle.Limits) throttle.Limits {
	if l.Rate == (throttle.Rate{}) {
		l.Burst = 0
	}
	if l.Limit == 0 || l.Window == 0 {
		l.Limit, l.Window = 0, 0
	}
	return l
}

// override are limits of a throttle key for a time, on top of those that are set.
type override struct {
	limits throttle.Limits
	names  []string // of limits that it sets or, where they are zero, takes away
	until  int64    // Unix ns
}

// over returns limits with the override on top of them.
func (o *override) over(l throttle.Limits) throttle.Limits {
	if o == nil {
		return l
	}
	for _, s := range throttleSettings {
		if slices.Contains(o.names, s.name) {
			s.take(&l, &o.limits)
		}
	}
	return l
}

// overrideRecord is an override as it is kept.
type overrideRecord struct {
	Set   map[string]string `json:"set,omitempty"`
	Unset []string          `json:"unset,omitempty"`
	Until int64             `json:"until"`
}

func (o *override) record() overrideRecord {
	r := overrideRecord{Set: make(map[string]string), Until: o.until}
	for _, s := range throttleSettings {
		if text := s.show(&o.limits); text != "" {
			r.Set[s.name] = text
		} else if slices.Contains(o.names, s.name) {
			r.Unset = append(r.Unset, s.name)
		}
	}
	return r
}

func readOverride(text string) (*override, error) {
	var r overrideRecord
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return nil, err
	}
	o := &override{names: r.Unset, until: r.Until}
	for _, s := range throttleSettings {
		if text := r.Set[s.name]; text != "" && s.read(&o.limits, text) {
			o.names = append(o.names, s.name)
		}
	}
	return o, nil
}

// audited is an override in the audit log, "rate 10, without burst, until ..."; nil
// if there is none.
func (o *override) audited() *string {
	if o == nil {
		return nil
	}
	var parts []string
	r := o.record()
	for _, s := range throttleSettings {
		if text, ok := r.Set[s.name]; ok {
			parts = append(parts, s.name+" "+text)
		}
	}
	if len(r.Unset) > 0 {
		slices.Sort(r.Unset)
		parts = append(parts, "without "+strings.Join(r.Unset, ", "))
	}
	text := strings.Join(append(parts, "until "+wire.Timestamp(o.until)), ", ")
	return &text
}
