package shard

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/throttle"
	"github.com/filaq/fila/wire"
)

// rates limits how fast producers enqueue to a queue, in all and per fairness key. Its
// methods are called under the lock of the intake, except used.
type rates struct {
	gates   atomic.Pointer[throttle.Gates] // keys: allProducers, and perKeyPrefix + fairness key
	applied wire.QueueSettings
	keys    [2]string // buffer
}

const (
	allProducers = "all"
	perKeyPrefix = "key:"
)

// admit counts a message with a fairness key against the rates, or refuses it. A message of an
// atomic batch t is counted until that is taken or refused.
func (a *rates) admit(q *Queue, s *wire.QueueSettings, key string, now int64, t *taking) *wire.Error {
	if s.EnqueueRate == "" && s.EnqueueRatePerKey == "" {
		if a.gates.Load() != nil {
			a.gates.Store(nil)
		}
		return nil
	}
	gates := a.apply(q, s, now)
	keys := a.keys[:0]
	if s.EnqueueRate != "" {
		keys = append(keys, allProducers)
	}
	if s.EnqueueRatePerKey != "" {
		keys = append(keys, perKeyPrefix+key)
	}
	others := int64(len(keys) - 1) // the gate of allProducers does not count
	if limit := q.shard.Caps.RateKeys; limit > 0 && s.EnqueueRatePerKey != "" && gates.Full(keys, limit+others, now) {
		return wire.LimitReached("fairness keys under enqueue_rate_per_key in queue "+q.name+" (limits.max_rate_keys)", limit, capRetryAfter)
	}
	set, err := gates.Set(keys, now)
	if err != nil {
		return wire.Internal(err.Error())
	}
	grant, block, ok := set.Acquire(now, throttle.One, nil)
	if ok && t != nil && t.atomic {
		t.charges = append(t.charges, charge{gates, set, grant})
		return nil
	}
	defer gates.Close(set, now)
	if ok {
		set.Release(&grant, now, nil)
		return nil
	}
	which := ""
	if block.Gate.Key() != allProducers {
		which = key
	}
	return wire.EnqueueRate(q.name, which, rateLimit(block.Gate.Info(now)), time.Duration(max(block.At-now, 1)))
}

// apply returns the gates with the limits of the settings. Gates keep what has been used.
func (a *rates) apply(q *Queue, s *wire.QueueSettings, now int64) *throttle.Gates {
	gates := a.gates.Load()
	if gates == nil {
		gates = throttle.New(throttle.Start{}, now)
		a.gates.Store(gates)
		a.applied = wire.QueueSettings{}
	}
	old := &a.applied
	if old.EnqueueRate == s.EnqueueRate && old.EnqueueBurst == s.EnqueueBurst &&
		old.EnqueueRatePerKey == s.EnqueueRatePerKey && old.EnqueueBurstPerKey == s.EnqueueBurstPerKey {
		return gates
	}
	a.applied = *s
	_, err := gates.SetLimits(allProducers, enqueueLimits(s.EnqueueRate, s.EnqueueBurst), now, nil)
	if err == nil {
		_, err = gates.SetPrefix(perKeyPrefix, enqueueLimits(s.EnqueueRatePerKey, s.EnqueueBurstPerKey), now, nil)
	}
	if err != nil {
		q.shard.Log.Error("an enqueue limit cannot be set", "queue", q.name, "error", err)
	}
	return gates
}

// used returns how many fairness keys have used some of their rate.
func (a *rates) used() int64 {
	gates := a.gates.Load()
	if gates == nil {
		return 0
	}
	n := gates.Count()
	if _, ok := gates.Find(allProducers); ok {
		n-- // not a fairness key
	}
	return n
}

// enqueueLimits returns the limits that validated settings describe.
func enqueueLimits(rate wire.Rate, burst int64) throttle.Limits {
	r, err := throttle.ParseRate(string(rate))
	if rate == "" || err != nil {
		return throttle.Limits{}
	}
	return throttle.Limits{Rate: r, Burst: burst * throttle.One}
}

// rateLimit describes a rate in whole messages.
func rateLimit(i throttle.Info) wire.RateLimit {
	return wire.RateLimit{
		Limit:     i.Limits.Burst / throttle.One,
		Remaining: max(i.Tokens/throttle.One, 0),
		Reset:     time.Duration(i.BucketFull),
	}
}

// budget refuses a message that costs more than is left of a budget with on_empty = "refuse", by each of its
// routes, unless it is delayed beyond the end of the period.
func (q *Queue) budget(c *store.Class, notBefore, now int64) *wire.Error {
	gates := q.shard.Control.Gates()
	key, until, refused := gates.Refuses(c.ThrottleKeys, int64(c.Cost), now)
	for i := 0; i < len(c.Routes) && (i == 0 || refused); i++ {
		keys, _ := c.Gates(&c.Routes[i])
		k, end, no := gates.Refuses(keys, int64(c.Cost), now)
		if refused = no; i == 0 || end < until { // the route that opens first
			key, until = k, end
		}
	}
	if !refused || notBefore >= until {
		return nil
	}
	return wire.BudgetEmpty(key, until, time.Duration(until-now))
}

// keyCounts counts the unfinished messages of each fairness key of a queue with
// max_pending_per_key. The intake counts up, the machine counts down.
type keyCounts struct {
	mu struct {
		sync.Mutex
		n map[string]int64
	}
}

func newKeyCounts() *keyCounts {
	k := &keyCounts{}
	k.mu.n = make(map[string]int64)
	return k
}

// take counts one more message of key, unless there are limit already.
func (k *keyCounts) take(key string, limit int64) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	n := k.mu.n[key]
	if n >= limit {
		return false
	}
	k.mu.n[key] = n + 1
	return true
}

// of returns how many messages of key there are.
func (k *keyCounts) of(key string) int64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.mu.n[key]
}

// Add adds n, which may be negative, to the count of key.
func (k *keyCounts) Add(key string, n int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if n += k.mu.n[key]; n > 0 {
		k.mu.n[key] = n
	} else {
		delete(k.mu.n, key)
	}
}

// countPending counts a message of a fairness key, or refuses it. It returns the counts that
// it has used, nil if messages are not counted.
func (q *Queue) countPending(s *wire.QueueSettings, key string) (queue.KeyCounts, *wire.Error) {
	counts := q.perKey.Load()
	if counts == nil || s.MaxPendingPerKey <= 0 {
		return nil, nil
	}
	if !counts.take(key, s.MaxPendingPerKey) {
		return nil, wire.KeyPending(q.name, key, s.MaxPendingPerKey, fullRetryAfter)
	}
	return counts, nil
}

// uncountKey takes back the count of a message that is refused.
func uncountKey(counts queue.KeyCounts, key string) {
	if counts != nil {
		counts.Add(key, -1)
	}
}
