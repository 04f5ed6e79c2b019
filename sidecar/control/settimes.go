package control

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/filaq/fila/sidecar/config"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
)

// setTimes are the times at which the settings of throttle and circuit keys were changed
// last, by the file or at run time. Among filas that share a key, the latest change wins.
// The times are stored, since a start is no change. Only a fila that shares anything
// records them.
type setTimes struct {
	mu sync.Mutex
	at map[string]int64 // Unix ns by <kind>:<key>
}

func (c *setTimes) restore(kept []store.Entry) {
	c.at = make(map[string]int64)
	for _, e := range kept {
		if key, ok := strings.CutPrefix(e.Key, stateChanged); ok {
			c.put(key, e.Value)
		}
	}
}

func (c *setTimes) put(key, text string) {
	if at, err := strconv.ParseInt(text, 10, 64); err == nil && at > 0 {
		c.at[key] = at
	}
}

// learn takes over a time that another node of a cluster has recorded.
func (c *setTimes) learn(state string, newest newest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if text, ok, settled := newest(state); ok && settled {
		c.put(strings.TrimPrefix(state, stateChanged), text)
	}
}

// note records a change of a key at a time, in memory and in kept. A change is always later
// than the one before, whatever the clocks of the nodes say.
func (c *setTimes) note(kept *Batch, kind, key string, at int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at = max(at, c.at[kind+":"+key]+1)
	c.at[kind+":"+key] = at
	kept.put(stateChanged+kind+":"+key, strconv.FormatInt(at, 10))
}

// forget drops the times of keys with a prefix, and returns the latest of them.
func (c *setTimes) forget(kept *Batch, kind, prefix string) (last int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(c.at)) {
		if strings.HasPrefix(id, kind+":"+prefix) {
			last = max(last, c.at[id])
			delete(c.at, id)
			kept.Delete = append(kept.Delete, stateChanged+id)
		}
	}
	return last
}

func (c *setTimes) of(kind, key string) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at[kind+":"+key]
}

// noteChanged records that the settings of a key change now.
func (c *Control) noteChanged(kept *Batch, kind, key string) {
	if c.opt.Share != nil {
		c.setTimes.note(kept, kind, key, c.opt.Now())
	}
}

// noteChanges is noteChanged for the keys of changed settings.
func (c *Control) noteChanges(kept *Batch, changes []change) {
	noted := make(map[string]bool)
	for _, ch := range changes {
		if key, s := splitSetting(ch.key); s != nil && !noted[s.kind+":"+key] {
			noted[s.kind+":"+key] = true
			c.noteChanged(kept, s.kind, key)
		}
	}
}

// kindCircuitDefaults is the kind of the set times of [circuit_defaults]. Their key is the
// node, since each node has its own file, a slash and the limits.
const kindCircuitDefaults = "circuit_defaults"

func (c *Control) defaultsKey(l *config.CircuitLimits) string {
	return fmt.Sprintf("%s/%d,%d,%d,%d", c.opt.Node, l.Threshold, l.CooldownMs, l.HalfOpenMaxCalls, l.HalfOpenSuccesses)
}

// noteDefaults records a change of [circuit_defaults]. Built-in defaults count as never set
// until they have been changed once.
func (c *Control) noteDefaults(l *config.CircuitLimits) *wire.Error {
	key := c.defaultsKey(l)
	if c.opt.Share == nil || c.setTimes.of(kindCircuitDefaults, key) != 0 {
		return nil
	}
	var kept Batch
	builtIn := config.Default().CircuitDefaults
	last := c.setTimes.forget(&kept, kindCircuitDefaults, c.opt.Node+"/")
	if last == 0 && key == c.defaultsKey(&builtIn) {
		return nil
	}
	c.setTimes.note(&kept, kindCircuitDefaults, key, max(c.opt.Now(), last+1))
	return outcome(<-c.opt.KV.Write(kept))
}

// ThrottleSetAt returns when the limits in force of a throttle key were set here (Unix ns),
// for the key or its prefix; 0: not known.
func (c *Control) ThrottleSetAt(key string) int64 {
	c.throttles.mu.Lock()
	from := c.limiting(key).key
	c.throttles.mu.Unlock()
	return max(c.setTimes.of(kindThrottle, key), c.setTimes.of(kindThrottle, from))
}
