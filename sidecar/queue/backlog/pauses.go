package backlog

import (
	"github.com/filaq/fila/breaker"
	"github.com/filaq/fila/drr"
	"github.com/filaq/fila/sidecar/queue/history"
)

// Pauses are what operators and safety limits have paused.
type Pauses struct {
	Intervals history.Intervals // of pauses of the queue
	Until     int64             // Unix ns: end of the pause of the queue; 0: it is not paused
	Keys      map[string]int64  // ends of the pauses of fairness keys
	failures  map[string]*breaker.FailureWindow
}

// End ends a pause of the queue whose time is over, and reports whether it is still
// paused.
func (p *Pauses) End(now int64) (paused bool) {
	if p.Until == 0 {
		return false
	}
	if p.Until <= now {
		p.Intervals.End(p.Until)
		p.Until = 0
		return false
	}
	return true
}

// SetKey pauses a fairness key until a time; 0 resumes it.
func (p *Pauses) SetKey(key string, until int64) {
	if until == 0 {
		delete(p.Keys, key)
		return
	}
	if p.Keys == nil {
		p.Keys = make(map[string]int64)
	}
	p.Keys[key] = until
}

// KeyPaused returns the end of the pause of a flow's key, or 0. It forgets a pause
// that is over.
func (t *Tables) KeyPaused(f drr.Flow, now int64) int64 {
	if len(t.Pauses.Keys) == 0 {
		return 0
	}
	key := t.Name(f)
	until := t.Pauses.Keys[key]
	if until == 0 || until > now {
		return until
	}
	delete(t.Pauses.Keys, key)
	return 0
}

// maxFailureKeys bounds the fairness keys whose failures are counted.
const maxFailureKeys = 65_536

// CountFailure counts a failure of a key and reports whether there are more than
// limit within span ns. If so, counting begins again.
func (p *Pauses) CountFailure(key string, limit, span, now int64) (exceeded bool) {
	w := p.failures[key]
	if w == nil {
		if p.failures == nil || len(p.failures) >= maxFailureKeys {
			p.failures = make(map[string]*breaker.FailureWindow)
		}
		w = &breaker.FailureWindow{}
		p.failures[key] = w
	}
	w.Set(limit, span, now)
	if !w.Add(now) {
		return false
	}
	delete(p.failures, key)
	return true
}
