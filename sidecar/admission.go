package sidecar

import (
	"math"
	"sync"
	"time"

	"github.com/filaq/fila/hooks"
	"github.com/filaq/fila/throttle"
	"github.com/filaq/fila/wire"
)

// admission limits what producers may send to a queue: how fast, and how much of
// one fairness key. The rates belong to the intake's goroutine.
type admission struct {
	gates   *throttle.Gates // keys: allProducers, and perKey + fairness key
	applied wire.QueueSettings
	keys    [2]string // scratch
}

const (
	allProducers = "all"
	perKeyPrefix = "key:"
)

// admit takes a message of that fairness key, or says which rate is exceeded.
func (a *admission) admit(q *queue, s *wire.QueueSettings, key string, now int64) *wire.Error {
	if s.EnqueueRate == "" && s.EnqueueRatePerKey == "" {
		a.gates = nil
		return nil
	}
	a.apply(q, s, now)
	keys := a.keys[:0]
	if s.EnqueueRate != "" {
		keys = append(keys, allProducers)
	}
	if s.EnqueueRatePerKey != "" {
		keys = append(keys, perKeyPrefix+key)
	}
	set, err := a.gates.Set(keys, now)
	if err != nil {
		return wire.Internal(err.Error())
	}
	defer a.gates.Close(set, now)
	ticket, block, ok := set.Acquire(now, throttle.One, nil)
	if ok {
		set.Release(&ticket, now, nil)
		return nil
	}
	which := ""
	if block.Gate.Key() != allProducers {
		which = key
	}
	return wire.EnqueueRate(q.name, which, rateLimit(block.Gate.Info(now)), time.Duration(max(block.At-now, 1)))
}

// apply makes the limits of the settings count, keeping what has been used.
func (a *admission) apply(q *queue, s *wire.QueueSettings, now int64) {
	if a.gates == nil {
		a.gates, a.applied = throttle.New(throttle.Start{}, now), wire.QueueSettings{}
	}
	old := &a.applied
	if old.EnqueueRate == s.EnqueueRate && old.EnqueueBurst == s.EnqueueBurst &&
		old.EnqueueRatePerKey == s.EnqueueRatePerKey && old.EnqueueBurstPerKey == s.EnqueueBurstPerKey {
		return
	}
	a.applied = *s
	_, err := a.gates.SetLimits(allProducers, enqueueLimits(s.EnqueueRate, s.EnqueueBurst), now, nil)
	if err == nil {
		_, err = a.gates.SetPrefix(perKeyPrefix, enqueueLimits(s.EnqueueRatePerKey, s.EnqueueBurstPerKey), now, nil)
	}
	if err != nil {
		q.core.log.Error("an enqueue limit cannot be set", "queue", q.name, "error", err)
	}
}

// enqueueLimits are the limits of validated settings.
func enqueueLimits(rate wire.Rate, burst int64) throttle.Limits {
	r, err := throttle.ParseRate(string(rate))
	if rate == "" || err != nil {
		return throttle.Limits{}
	}
	return throttle.Limits{Rate: r, Burst: burst * throttle.One}
}

// rateLimit says in whole messages what is left of a rate.
func rateLimit(i throttle.Info) wire.RateLimit {
	missing := float64(i.Limits.Burst - i.Tokens)
	full := missing * float64(i.Limits.Rate.Per) / float64(i.Limits.Rate.Cost)
	return wire.RateLimit{
		Limit:     i.Limits.Burst / throttle.One,
		Remaining: max(i.Tokens/throttle.One, 0),
		Reset:     time.Duration(min(full, math.MaxInt64/2)),
	}
}

// keyCounts counts the unfinished messages of each fairness key of a queue that
// limits them. The intake takes places, the loop gives them back.
type keyCounts struct {
	mu struct {
		sync.Mutex
		n map[string]int64
	}
}

// take counts one more message of key, unless there are limit of them.
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

func (k *keyCounts) give(key string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if n := k.mu.n[key] - 1; n > 0 {
		k.mu.n[key] = n
	} else {
		delete(k.mu.n, key)
	}
}

// giveBack gives a place back that was taken for a message which is refused. A
// nil receiver has none.
func (k *keyCounts) giveBack(key string) {
	if k != nil {
		k.give(key)
	}
}

// applyLimits begins or ends the counting of messages per fairness key, as the
// settings say. It counts what the loop has; what is on its way was counted by
// the intake, or is when it arrives.
func (l *loop) applyLimits() {
	on := l.q.policy.Load().settings.MaxPendingPerKey > 0 && !l.q.isDLQ()
	switch {
	case !on:
		l.perKey = nil
	case l.perKey == nil:
		l.perKey = &keyCounts{}
		l.perKey.mu.n = make(map[string]int64, len(l.keys.ids))
		for key, f := range l.keys.ids {
			l.perKey.mu.n[key] = int64(l.keys.entries[f].refs)
		}
	}
	l.q.perKey.Store(l.perKey)
}

// countKey counts a message of that key in, unless it was counted already.
func (l *loop) countKey(key string, counted *keyCounts) {
	if l.perKey != nil && l.perKey != counted {
		l.perKey.take(key, math.MaxInt64)
	}
}

// pendingLimit counts a message of that key in, or refuses it.
func (q *queue) pendingLimit(s *wire.QueueSettings, key string) (*keyCounts, *wire.Error) {
	counts := q.perKey.Load()
	if counts == nil || s.MaxPendingPerKey <= 0 {
		return nil, nil
	}
	if !counts.take(key, s.MaxPendingPerKey) {
		return nil, wire.KeyPending(q.name, key, s.MaxPendingPerKey, fullRetryAfter)
	}
	return counts, nil
}

// circuitKey is the circuit key that a header gives, without a hook.
func circuitKey(headers map[string][]string, s *wire.QueueSettings) string {
	if key := first(headers, s.CircuitHeader); len(key) <= hooks.MaxKeyBytes {
		return key
	}
	return ""
}
