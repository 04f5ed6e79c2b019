package control

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
)

// calls are the throttle keys under which callers that are no consumers may be in a
// call, and until when at the longest. Their permits are in memory alone, so after a
// crash nobody knows how many there are. So that no limit of concurrency is exceeded by
// what comes then, such a key is paused until the last of them is over.
type calls struct {
	mu struct {
		// Held while the disk is waited for: whoever finds a time here may rely on it.
		sync.Mutex
		until map[string]int64 // Unix ns, by key; on disk
	}
}

const (
	// callsStep is how much longer than asked for a key is kept, so that it is written
	// once in that time, and not for each call.
	callsStep = int64(time.Minute)
	// callsLook is how many keys each write looks at whose time may be over.
	callsLook = 4
)

// KeepCalls waits until it is on disk that calls under the keys may go on until a time
// (Unix ns). Mostly it is there already.
func (c *Control) KeepCalls(keys []string, until int64) *wire.Error {
	ks := &c.calls
	ks.mu.Lock()
	defer ks.mu.Unlock()
	var kept Batch
	keep := min(until, math.MaxInt64-callsStep) + callsStep
	for _, key := range keys {
		if ks.mu.until[key] < until {
			kept.put(stateCalls+key, strconv.FormatInt(keep, 10))
		}
	}
	if len(kept.Put) == 0 {
		return nil
	}
	looked, now := 0, c.opt.Now()
	for key, end := range ks.mu.until {
		if looked++; looked > callsLook {
			break
		}
		if end <= now && !slices.Contains(keys, key) {
			kept.Delete = append(kept.Delete, stateCalls+key)
		}
	}
	if err := <-c.opt.KV.Write(kept); err != nil {
		return outcome(err)
	}
	for _, state := range kept.Delete {
		delete(ks.mu.until, strings.TrimPrefix(state, stateCalls))
	}
	for _, e := range kept.Put {
		ks.mu.until[strings.TrimPrefix(e.Key, stateCalls)] = keep
	}
	return nil
}

// ForgetCalls notes that no call goes on any more. It is for an orderly stop, before
// Stop.
func (c *Control) ForgetCalls() {
	ks := &c.calls
	ks.mu.Lock()
	defer ks.mu.Unlock()
	var kept Batch
	for key := range ks.mu.until {
		kept.Delete = append(kept.Delete, stateCalls+key)
	}
	clear(ks.mu.until)
	if err := <-c.opt.KV.Write(kept); err != nil {
		c.opt.Log.Error("keys of the guard's calls are paused at the next start", "error", err)
	}
}

// restoreCalls pauses the keys under which calls that the last process allowed may
// still go on.
func (c *Control) restoreCalls(kept []store.Entry, now int64) {
	c.calls.mu.until = make(map[string]int64)
	ps := &c.pauses
	ps.mu.Lock()
	defer ps.mu.Unlock()
	paused := 0
	for _, e := range kept {
		key, ok := strings.CutPrefix(e.Key, stateCalls)
		if !ok {
			continue
		}
		c.opening.Delete = append(c.opening.Delete, e.Key)
		until, err := strconv.ParseInt(e.Value, 10, 64)
		if err != nil {
			c.opt.Log.Error("until when calls go on cannot be read and is ignored", "throttle", key, "error", err)
			continue
		}
		id := pauseID{kind: wire.PauseThrottle, name: key}
		had, again := ps.mu.all[id]
		if until <= now || again && had.Until >= until {
			continue
		}
		p, ch := pause{Since: now, Until: until, By: byCalls}, change{key: id.audited()}
		if again {
			p.Since, ch.old = had.Since, had.audited()
		}
		ch.new = p.audited()
		ps.mu.all[id] = p
		ps.mu.listed.Add(id.cursor())
		c.opening.Delete = slices.DeleteFunc(c.opening.Delete, func(state string) bool { return state == id.state() }) // an earlier one that is over
		c.opening.putJSON(id.state(), p)
		c.audit.record(&c.opening, now, byCalls, ch)
		paused++
	}
	if paused > 0 {
		c.opt.Log.Warn("fila ended while calls that the guard allowed went on: so that no limit of concurrency is exceeded, their throttle keys are paused until the last may be over", "keys", paused)
	}
}
