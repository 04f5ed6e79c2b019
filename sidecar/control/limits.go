package control

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/filaq/fila/throttle"
	"github.com/filaq/fila/throttle/adapt"
	"github.com/filaq/fila/throttle/budget"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// limitTexts returns the limits of a request as texts by name. Zero becomes an empty text.
func limitTexts(l api.ThrottleLimits) map[string]string {
	texts := make(map[string]string)
	if l.Rate != nil {
		texts["rate"] = string(*l.Rate)
	}
	if l.Burst != nil {
		texts["burst"] = strconv.FormatFloat(*l.Burst, 'f', -1, 64)
	}
	if l.Level != nil {
		texts["level"] = strconv.FormatFloat(*l.Level, 'f', -1, 64)
	}
	if l.Adapt != nil {
		texts["adapt"] = l.Adapt.Text()
	}
	for name, n := range map[string]*int64{"concurrency": l.Concurrency, "limit": l.Limit, "window_ms": l.WindowMs} {
		if n != nil {
			texts[name] = strconv.FormatInt(*n, 10)
		}
	}
	if l.Budget != nil {
		texts["budget"] = costText(*l.Budget)
	}
	for name, text := range map[string]*string{"period": l.Period, "zone": l.Zone, "on_empty": l.OnEmpty} {
		if text != nil {
			texts[name] = *text
		}
	}
	if l.WarnAt != nil {
		texts["warn_at"] = api.PartsText(*l.WarnAt)
	}
	for name, text := range texts {
		if text == "0" {
			texts[name] = ""
		}
	}
	return texts
}

// checkLimits refuses invalid texts of limits.
func checkLimits(texts map[string]string) *wire.Error {
	for s := range settingsOf(kindThrottle) {
		if text, ok := texts[s.name]; ok && !s.read(&limits{}, text) {
			return wire.BadThrottle(fmt.Sprintf("%s is %q: allowed is %s", s.name, text, s.allowed))
		}
	}
	return nil
}

// WireLimits returns limits in the form of the protocol.
func WireLimits(l throttle.Limits) api.ThrottleLimits {
	return api.ThrottleLimits{
		Rate: orNil(wire.Rate(rateText(l.Rate))), Burst: orNil(float64(l.Burst) / throttle.One),
		Concurrency: orNil(l.Concurrency), Limit: orNil(l.Limit), WindowMs: orNil(l.Window / int64(time.Millisecond)),
		Adapt: api.AdaptOf(l.Adapt), Level: orNil(float64(l.Level) / throttle.One),
		Budget: orNil(cost(l.Budget.Amount)), Period: orNil(l.Budget.Unit.String()), Zone: orNil(l.Budget.Zone), WarnAt: partsOrNil(l.Budget.WarnAt),
		OnEmpty: orNil(l.OnEmpty.String()),
	}
}

func partsOrNil(at [budget.MaxWarnings]int16) *[]float64 {
	if parts := warnings(at); parts != nil {
		return &parts
	}
	return nil
}

// Sharing describes how a fleet shares the limits of a throttle key.
type Sharing struct {
	api.ThrottleShared
	InForce throttle.Limits
}

// addSharing adds to info how the limits of a key are shared. If another fila has set them
// later, its limits are in force.
func (c *Control) addSharing(info *api.ThrottleInfo, key string) {
	if c.opt.Sharing == nil {
		return
	}
	s := c.opt.Sharing(key)
	if s == nil {
		return
	}
	info.Shared = &s.ThrottleShared
	if s.By != "" {
		own := info.ThrottleLimits
		info.Shared.Own, info.ThrottleLimits, info.Source = &own, WireLimits(s.InForce), setByFila(s.By)
	}
}

// ofAnotherFila returns the limits of another fila that are in force for a throttle key; nil: the limits
// of this one are.
func (c *Control) ofAnotherFila(key string) *Sharing {
	if c.opt.Sharing == nil {
		return nil
	}
	if s := c.opt.Sharing(key); s != nil && s.By != "" {
		return s
	}
	return nil
}

// setByFila is the source of the limits of another fila.
func setByFila(name string) string { return "fila " + name }

// orNil returns nil for a zero value, and a pointer to it otherwise.
func orNil[T comparable](value T) *T {
	var none T
	if value == none {
		return nil
	}
	return &value
}

// complete removes limits without effect: a burst without a rate, a limit without a window
// and the reverse, adapt without a ceiling, and a level without adapt.
func complete(l throttle.Limits) throttle.Limits {
	if l.Rate == (throttle.Rate{}) {
		l.Burst = 0
	}
	if l.Limit == 0 || l.Window == 0 {
		l.Limit, l.Window = 0, 0
	}
	if l.Rate == (throttle.Rate{}) && l.Concurrency == 0 {
		l.Adapt = adapt.Settings{}
	}
	if l.Adapt == (adapt.Settings{}) {
		l.Level = 0
	}
	if l.Budget.Amount == 0 || l.Budget.Unit == budget.None {
		l.Budget, l.OnEmpty = budget.Terms{}, throttle.OnEmptyUnset
	}
	return l
}

// checkEffect refuses a request that would set or leave a limit without effect. now has the
// limits of the key after the request.
func checkEffect(req api.ThrottleSetRequest, now throttle.Limits) *wire.Error {
	noWindow, noRate := now.Window == 0, now.Rate == (throttle.Rate{})
	switch {
	case now.Limit != 0 && noWindow && slices.Contains(req.Unset, "window_ms"):
		return wire.BadThrottle(fmt.Sprintf("limit is %d and has no effect without a window: unset limit, too", now.Limit))
	case req.Limit != nil && noWindow:
		return wire.BadThrottle(fmt.Sprintf("limit is %d and has no effect without a window, and the key has none: give window_ms (--window), too", now.Limit))
	case req.WindowMs != nil && now.Limit == 0:
		return wire.BadThrottle(fmt.Sprintf("window_ms is %d and has no effect without a limit, and the key has none: give limit, too", *req.WindowMs))
	case req.Adapt != nil && noRate && now.Concurrency == 0:
		return wire.BadThrottle("adapt has no effect without a ceiling, and the key has none: give concurrency or rate, too")
	case req.Level != nil && now.Adapt == (adapt.Settings{}):
		return wire.BadThrottle("level has no effect on limits that do not learn: give adapt, too")
	case (req.Budget != nil || now.Budget.Amount != 0) && now.Budget.Unit == budget.None:
		return wire.BadThrottle("budget has no effect without a period, and the key has none: give period, too")
	case (req.Period != nil || req.Zone != nil || req.WarnAt != nil || req.OnEmpty != nil) && now.Budget.Amount == 0:
		return wire.BadThrottle("period, zone, warn_at and on_empty have no effect without a budget, and the key has none: give budget, too")
	case req.Burst != nil && noRate:
		return wire.BadThrottle(fmt.Sprintf("burst is %s and has no effect without a rate, and the key has none: give rate, too", strconv.FormatFloat(*req.Burst, 'f', -1, 64)))
	}
	return nil
}

// override is a set of temporary limits of a throttle key, on top of its lasting ones.
type override struct {
	Set   map[string]string `json:"set,omitempty"`
	Unset []string          `json:"unset,omitempty"`
	Until int64             `json:"until"` // Unix ns
}

func readOverride(text string) (*override, error) {
	o := &override{}
	if err := json.Unmarshal([]byte(text), o); err != nil {
		return nil, err
	}
	if err := checkLimits(o.Set); err != nil {
		return nil, err
	}
	return o, nil
}

// over returns limits with the override on top.
func (o *override) over(under throttle.Limits) throttle.Limits {
	if o == nil {
		return under
	}
	l := limits{Limits: under}
	for s := range settingsOf(kindThrottle) {
		if text, ok := o.Set[s.name]; ok || slices.Contains(o.Unset, s.name) {
			s.read(&l, text)
		}
	}
	return l.Limits
}

// audited returns the text of an override in the audit log, "rate 10, without burst, until
// ...", or nil for no override.
func (o *override) audited() *string {
	if o == nil {
		return nil
	}
	var parts []string
	for s := range settingsOf(kindThrottle) {
		if text, ok := o.Set[s.name]; ok {
			parts = append(parts, s.name+" "+text)
		}
	}
	if len(o.Unset) > 0 {
		parts = append(parts, "without "+strings.Join(slices.Sorted(slices.Values(o.Unset)), ", "))
	}
	text := strings.Join(append(parts, "until "+wire.Timestamp(o.Until)), ", ")
	return &text
}
