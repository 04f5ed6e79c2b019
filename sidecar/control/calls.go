package control

import (
	"maps"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// calls counts the guard's calls that are under way by throttle key, and stores until
// when they may go on. Permits are in memory only, so after a crash their number is
// unknown. To keep concurrency limits, the next start pauses such a key until the time
// on disk.
//
// The invariant: a permit that a caller has received ends no later than the time on
// disk of each of its keys. The time is raised on disk before the caller gets the
// permit, and lowered only to the latest end of the permits that are out.
type calls struct {
	mu struct {
		sync.Mutex
		keys      map[string]*keyCalls // with calls under way or a time on disk
		changed   map[string]bool      // keys whose time on disk may be later than needed
		scheduled bool                 // lowerCalls is scheduled
		closed    bool                 // CloseCalls was called: no call begins any more
	}
}

// keyCalls are the calls under one key.
type keyCalls struct {
	until   int64      // Unix ns; on disk, or lower if a lower one is on its way; 0: none
	writing *callsKept // the newest higher time on its way to the disk; nil: none
	classes [callClasses]callClass
}

// callClass counts the calls with permits of about the same lifetime: class c has
// lifetimes from 2^(c-1) to 2^c seconds, class 0 below one second.
type callClass struct {
	live int
	last int64 // Unix ns: the latest end, unless a call ends earlier
	left int64 // Unix ns: since when live is 0
}

// callsKept is a time on its way to the disk.
type callsKept struct {
	until int64
	over  chan struct{} // closed when err is set
	err   error
}

const (
	// callClasses is one class more than the bits of api.MaxPermitMs in seconds.
	callClasses = 13

	// The time on disk is ahead of the end of a permit by half of the permit's lifetime,
	// within these bounds, so that it is written once in that time and not for each call.
	callsAheadMin = time.Second
	callsAheadMax = time.Minute

	// callsDelay is how long a key has to be without calls, or without long ones, before
	// its time on disk is lowered, and how often lowerCalls runs at most.
	callsDelay = time.Second
	// callsBatch is how many keys one write lowers, and callsNext the pause after it.
	callsBatch = 1000
	callsNext  = 50 * time.Millisecond
)

// callsAhead returns how far the time on disk is ahead of the end of a permit with
// this lifetime.
func callsAhead(ttl int64) int64 { return min(max(ttl/2, int64(callsAheadMin)), int64(callsAheadMax)) }

// classOf returns the class of a permit with this lifetime (ns).
func classOf(ttl int64) int {
	return min(bits.Len64(uint64(max(ttl, 0)/int64(time.Second))), callClasses-1)
}

// needed returns until when calls may go on, or 0 if there are none and were none
// within callsDelay.
func (k *keyCalls) needed(now int64) (until int64) {
	for i := range k.classes {
		if c := &k.classes[i]; c.live > 0 || c.last != 0 && now-c.left < int64(callsDelay) {
			until = max(until, c.last)
		}
	}
	return until
}

// KeepCall counts a call under the keys until the caller calls ended, and stores that
// the call may go on until a time (Unix ns). It does not block. onDisk waits for the
// disk; it is nil if the time on disk is late enough already, which is the usual case.
// ended is nil in a cluster, where nothing is counted.
func (c *Control) KeepCall(keys []string, until int64) (ended func(), onDisk func() *wire.Error) {
	if c.shared() { // other nodes count the permits, and outlive this one
		return nil, nil
	}
	now := c.opt.Now()
	ttl := max(until-now, 0)
	class := classOf(ttl)
	ks := &c.calls
	ks.mu.Lock()
	defer ks.mu.Unlock()
	if ks.mu.closed {
		return nil, wire.Draining
	}
	var put Batch
	var awaited []*callsKept
	next := &callsKept{until: until + callsAhead(ttl), over: make(chan struct{})}
	for _, key := range keys {
		k := ks.mu.keys[key]
		if k == nil {
			k = &keyCalls{}
			ks.mu.keys[key] = k
		}
		k.classes[class].live++
		k.classes[class].last = max(k.classes[class].last, until)
		if k.until >= until {
			continue
		}
		if k.writing == nil || k.writing.until < until {
			k.writing = next
			put.put(stateCalls+key, strconv.FormatInt(next.until, 10))
		}
		if !slices.Contains(awaited, k.writing) {
			awaited = append(awaited, k.writing)
		}
	}
	if len(put.Put) > 0 {
		go ks.finish(next, put.Put, c.opt.KV.Write(put))
	}
	ended = func() { c.endCall(keys, class) }
	if len(awaited) == 0 {
		return ended, nil
	}
	return ended, func() *wire.Error {
		for _, kept := range awaited {
			if <-kept.over; kept.err != nil {
				return outcome(kept.err)
			}
		}
		return nil
	}
}

// finish waits for a write and releases everyone who waits for it.
func (ks *calls) finish(kept *callsKept, written []store.Entry, done <-chan error) {
	kept.err = <-done
	ks.mu.Lock()
	defer ks.mu.Unlock()
	for _, e := range written {
		k := ks.mu.keys[strings.TrimPrefix(e.Key, stateCalls)]
		if k == nil { // CloseCalls has removed it
			continue
		}
		if k.writing != kept {
			continue // a higher time is on its way, or the key was lowered since
		}
		k.writing = nil
		if kept.err == nil {
			k.until = kept.until
		}
	}
	close(kept.over)
}

// endCall records the end of a call that KeepCall has counted.
func (c *Control) endCall(keys []string, class int) {
	ks, now := &c.calls, c.opt.Now()
	ks.mu.Lock()
	defer ks.mu.Unlock()
	for _, key := range keys {
		k := ks.mu.keys[key]
		if k == nil { // CloseCalls has removed it
			continue
		}
		if k.classes[class].live--; k.classes[class].live == 0 {
			k.classes[class].left = now
			ks.mu.changed[key] = true
		}
	}
	c.scheduleLowering(now, callsDelay)
}

// scheduleLowering schedules lowerCalls if there are changed keys. It needs mu of the
// calls.
func (c *Control) scheduleLowering(now int64, after time.Duration) {
	if len(c.calls.mu.changed) > 0 && !c.calls.mu.scheduled {
		c.calls.mu.scheduled = true
		c.schedule.set(stateCalls, now+int64(after))
	}
}

// lowerCalls lowers the times on disk of keys without calls, or without long ones, so
// that a crash pauses them no longer than necessary.
func (c *Control) lowerCalls(now int64) {
	ks := &c.calls
	ks.mu.Lock()
	defer ks.mu.Unlock()
	ks.mu.scheduled = false
	var lower Batch
	after := callsDelay
	for key := range ks.mu.changed {
		if len(lower.Put)+len(lower.Delete) == callsBatch {
			after = callsNext
			break
		}
		if ks.lowerKey(key, now, &lower) {
			delete(ks.mu.changed, key)
		}
	}
	if len(lower.Put)+len(lower.Delete) > 0 {
		done := c.opt.KV.Write(lower)
		go func() {
			if err := <-done; err != nil { // what is on disk is later than it need be
				c.opt.Log.Error("the end of the guard's calls cannot be updated; a crash pauses their throttle keys for longer", "error", err)
			}
		}()
	}
	c.scheduleLowering(now, after)
}

// lowerKey adds a key to lower if its time on disk is later than needed. done reports that
// the key needs no other check before a call ends. It needs mu.
func (ks *calls) lowerKey(key string, now int64, lower *Batch) (done bool) {
	k := ks.mu.keys[key]
	if k == nil {
		return true
	}
	if k.writing != nil {
		return false // after the write that is under way
	}
	done = true
	for i := range k.classes {
		if cl := &k.classes[i]; cl.live == 0 && cl.last != 0 {
			if now-cl.left < int64(callsDelay) {
				done = false
			} else {
				*cl = callClass{}
			}
		}
	}
	needed := k.needed(now)
	if needed == 0 {
		lower.Delete = append(lower.Delete, stateCalls+key)
		delete(ks.mu.keys, key)
		return true
	}
	if want := needed + callsAhead(needed-now); want+int64(callsAheadMin) <= k.until {
		k.until = want
		lower.put(stateCalls+key, strconv.FormatInt(want, 10))
	}
	return done
}

// CloseCalls ends the counting of calls at an orderly stop, before Stop. For each key with
// calls under way it stores when the last one ends, so that the next start pauses only
// these keys.
func (c *Control) CloseCalls() {
	ks := &c.calls
	ks.mu.Lock()
	defer ks.mu.Unlock()
	var kept Batch
	for _, key := range slices.Sorted(maps.Keys(ks.mu.keys)) {
		until := int64(0)
		for _, class := range ks.mu.keys[key].classes {
			if class.live > 0 {
				until = max(until, class.last)
			}
		}
		if until > 0 {
			kept.put(stateCalls+key, strconv.FormatInt(until, 10))
		} else {
			kept.Delete = append(kept.Delete, stateCalls+key)
		}
	}
	clear(ks.mu.keys)
	clear(ks.mu.changed)
	ks.mu.closed = true
	if err := <-c.opt.KV.Write(kept); err != nil {
		c.opt.Log.Error("keys of the guard's calls may be paused at the next start", "error", err)
	}
}

// restoreCalls pauses the keys under which calls of the process before may go on.
func (c *Control) restoreCalls(kept []store.Entry, now int64) {
	c.calls.mu.keys, c.calls.mu.changed = make(map[string]*keyCalls), make(map[string]bool)
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
			c.opt.Log.Error("the end of the guard's calls cannot be read and is ignored", "throttle", key, "error", err)
			continue
		}
		id := pauseID{kind: api.PauseThrottle, name: key}
		had, again := ps.mu.all[id]
		if until <= now || again && had.Until >= until {
			continue
		}
		p := pause{Since: now, Until: until, By: byCalls}
		ch := ps.replace(id, &p)
		c.opening.Delete = slices.DeleteFunc(c.opening.Delete, func(state string) bool { return state == id.state() }) // an earlier one that is over
		c.opening.putJSON(id.state(), p)
		c.audit.record(&c.opening, now, Actor{By: byCalls}, ch)
		paused++
	}
	if paused > 0 {
		c.opt.Log.Warn("fila ended while calls of the guard were under way: their throttle keys are paused until the last call may be over, so that no concurrency limit is exceeded", "keys", paused)
	}
}
