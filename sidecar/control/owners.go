package control

import (
	"encoding/json"
	"fmt"

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
	c.audit.each(wire.ShowKey(kindThrottle+":"+req.Key+":"), func(e *api.ConfigLogEntry) bool {
		if e.Client != "" && e.Client != by.Client {
			warnings = []string{fmt.Sprintf("the limits were %s, set by %s at %s", now.Text(), e.Client, e.Time)}
		}
		return false
	})
	return warnings, nil
}
