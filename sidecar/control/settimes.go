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

// setTimes are when what is set for throttle and circuit keys was changed last, by the
// file or at run time: of filas that share a key the newest one's counts. It is kept on
// disk, since a start changes nothing. Only a fila that shares anything notes it.
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

// learn takes over when another node of a cluster has changed something.
func (c *setTimes) learn(state string, newest func(key string) (string, bool, bool)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if text, ok, settled := newest(state); ok && settled {
		c.put(strings.TrimPrefix(state, stateChanged), text)
	}
}

// note has a key changed at a time, in memory and in what is to be kept. A change is newer
// than the one before, whichever node's clock that went by.
func (c *setTimes) note(kept *Batch, kind, key string, at int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at = max(at, c.at[kind+":"+key]+1)
	c.at[kind+":"+key] = at
	kept.put(stateChanged+kind+":"+key, strconv.FormatInt(at, 10))
}

// forget drops what is noted of keys with a prefix, and returns the last of the times.
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

// noteChanged notes that what is set for a key is changed now.
func (c *Control) noteChanged(kept *Batch, kind, key string) {
	if c.opt.Share != nil {
		c.setTimes.note(kept, kind, key, c.opt.Now())
	}
}

// noteChanges is noteChanged for the keys of settings.
func (c *Control) noteChanges(kept *Batch, changes []change) {
	noted := make(map[string]bool)
	for _, ch := range changes {
		if key, s := splitSetting(ch.key); s != nil && !noted[s.kind+":"+key] {
			noted[s.kind+":"+key] = true
			c.noteChanged(kept, s.kind, key)
		}
	}
}

// kindCircuitDefaults is that of set times of [circuit_defaults], whose key says what was
// set: the node, which has a file of its own, a slash and the limits.
const kindCircuitDefaults = "circuit_defaults"

func (c *Control) defaultsKey(l *config.CircuitLimits) string {
	return fmt.Sprintf("%s/%d,%d,%d,%d", c.opt.Node, l.Threshold, l.CooldownMs, l.HalfOpenMaxCalls, l.HalfOpenSuccesses)
}

// noteDefaults notes that [circuit_defaults] are others than before. Those of fila count
// as never set as long as there were no others.
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

// ThrottleSetAt is when the limits in force of a throttle key were set here (Unix ns),
// by itself or a prefix; 0: not known.
func (c *Control) ThrottleSetAt(key string) int64 {
	c.throttles.mu.Lock()
	from := c.limiting(key).key
	c.throttles.mu.Unlock()
	return max(c.setTimes.of(kindThrottle, key), c.setTimes.of(kindThrottle, from))
}
