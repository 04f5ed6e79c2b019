package control

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// ownerKey is the key of the owner of an object in the runtime configuration. Its value is a name, or
// JSON with the name and what the owner has noted.
func ownerKey(kind, name string) string { return "owner:" + kind + ":" + name }

// owner returns the owner of an object; empty: it has none.
func (c *Control) owner(kind, name string) string {
	text, _ := c.values.Get(ownerKey(kind, name))
	var noted struct {
		Owner string `json:"owner"`
	}
	if json.Unmarshal([]byte(text), &noted) == nil {
		return noted.Owner
	}
	return text
}

// throttleOwner refuses to change the limits of another owner for good, unless the request expects them or
// has force. It warns of limits that another owner or client has set.
func (c *Control) throttleOwner(by Actor, req *api.ThrottleSetRequest) (warnings []string, err *wire.Error) {
	c.throttles.mu.Lock()
	now := WireLimits(c.values.throttle(req.Key))
	c.throttles.mu.Unlock()
	if now == (api.ThrottleLimits{}) {
		return nil, nil
	}
	if owner := c.owner(kindThrottle, req.Key); owner != "" {
		switch {
		case owner == req.Owner:
			return nil, nil
		case !req.Force && req.If == nil && req.ForMs == 0:
			return nil, wire.ThrottleOwned(req.Key, owner, now.Text())
		}
		return []string{fmt.Sprintf("the limits were %s, set by their owner %s", now.Text(), owner)}, nil
	}
	last, ok := c.audit.last(func(e *api.ConfigLogEntry) bool {
		return strings.HasPrefix(e.Key, kindThrottle+":"+wire.ShowKey(req.Key)+":")
	})
	if !ok || last.Client == "" || last.Client == by.Client {
		return nil, nil
	}
	return []string{fmt.Sprintf("the limits were %s, set by %s at %s", now.Text(), last.Client, last.Time)}, nil
}

// last returns the newest entry that fits.
func (a *audit) last(fits func(*api.ConfigLogEntry) bool) (e api.ConfigLogEntry, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := len(a.mu.entries) - 1; i >= 0; i-- {
		if fits(&a.mu.entries[i]) {
			return a.mu.entries[i], true
		}
	}
	return e, false
}
