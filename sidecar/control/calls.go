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
		sync.Mutex
		until   map[string]int64    // Unix ns, by key; on disk
		writing map[string]*keeping // by key: the newest that is on its way there
	}
}

// keeping is a time on its way to the disk.
type keeping struct {
	until int64
	over  chan struct{} // closed when err is known
	err   error
}

const (
	// callsStep is how much longer than asked for a key is kept, so that it is written
	// once in that time, and not for each call.
	callsStep = int64(time.Minute)
	// callsLook is how many keys each write looks at whose time may be over.
	callsLook = 4
)

// KeepCalls has it on disk that calls under the keys may go on until a time (Unix ns). It
// does not block: onDisk waits until it is there, nil is that it is there already, as it
// is mostly.
func (c *Control) KeepCalls(keys []string, until int64) (onDisk func() *wire.Error) {
	if c.shared() { // other nodes count the permits, and outlive this one
		return nil
	}
	ks := &c.calls
	ks.mu.Lock()
	defer ks.mu.Unlock()
	var kept Batch
	var ways []*keeping // that the keys wait for
	next := &keeping{until: min(until, math.MaxInt64-callsStep) + callsStep, over: make(chan struct{})}
	for _, key := range keys {
		if ks.mu.until[key] >= until {
			continue
		}
		way := ks.mu.writing[key]
		if way == nil || way.until < until {
			way = next
			ks.mu.writing[key] = next
			kept.put(stateCalls+key, strconv.FormatInt(next.until, 10))
		}
		if !slices.Contains(ways, way) {
			ways = append(ways, way)
		}
	}
	if len(kept.Put) > 0 {
		ks.forgetSome(&kept, keys, c.opt.Now())
		done := c.opt.KV.Write(kept)
		go ks.finish(next, kept.Put, done)
	}
	if len(ways) == 0 {
		return nil
	}
	return func() *wire.Error {
		for _, way := range ways {
			if <-way.over; way.err != nil {
				return outcome(way.err)
			}
		}
		return nil
	}
}

// forgetSome drops some of the times that are over. Its caller holds mu.
func (ks *calls) forgetSome(kept *Batch, keys []string, now int64) {
	looked := 0
	for key, end := range ks.mu.until {
		if looked++; looked > callsLook {
			return
		}
		if end <= now && !slices.Contains(keys, key) && ks.mu.writing[key] == nil {
			kept.Delete = append(kept.Delete, stateCalls+key)
			delete(ks.mu.until, key) // what is written for it from now on comes later
		}
	}
}

// finish waits for a write, and tells those who wait for it.
func (ks *calls) finish(way *keeping, written []store.Entry, done <-chan error) {
	way.err = <-done
	ks.mu.Lock()
	defer ks.mu.Unlock()
	for _, e := range written {
		key := strings.TrimPrefix(e.Key, stateCalls)
		if ks.mu.writing[key] == way {
			delete(ks.mu.writing, key)
		}
		if way.err == nil {
			ks.mu.until[key] = max(ks.mu.until[key], way.until)
		}
	}
	close(way.over)
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
	for key := range ks.mu.writing { // it is written before
		if _, ok := ks.mu.until[key]; !ok {
			kept.Delete = append(kept.Delete, stateCalls+key)
		}
	}
	clear(ks.mu.until)
	if err := <-c.opt.KV.Write(kept); err != nil {
		c.opt.Log.Error("keys of the guard's calls are paused at the next start", "error", err)
	}
}

// restoreCalls pauses the keys under which calls that the last process allowed may
// still go on.
func (c *Control) restoreCalls(kept []store.Entry, now int64) {
	c.calls.mu.until, c.calls.mu.writing = make(map[string]int64), make(map[string]*keeping)
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
