package sidecar

import (
	"sync"

	"github.com/filaq/fila/hooks"
)

// guard lets several goroutines share a hook, one at a time, and keeps its
// metrics.
type guard struct {
	mu   sync.Mutex // held during a run
	hook *hooks.Guard

	counted struct {
		sync.Mutex
		metrics  hookMetrics
		warnings func(float64)
		seen     hooks.GuardStats
	}
}

func newGuard(h *hooks.Guard, kind hooks.Kind, m *queueMetrics) *guard {
	g := &guard{hook: h}
	g.counted.metrics, g.counted.warnings = m.onEnqueue, m.warnings.Add
	if kind == hooks.OnFailure {
		g.counted.metrics = m.onFailure
	}
	return g
}

func (g *guard) enqueue(in *hooks.EnqueueInput) hooks.EnqueueDecision {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.hook.OnEnqueue(in)
}

func (g *guard) failure(in *hooks.FailureInput) hooks.FailureDecision {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.hook.OnFailure(in)
}

// count brings the metrics up to what the hook itself has counted. It is called
// before a scrape, not after each run.
func (g *guard) count() {
	if g == nil {
		return
	}
	s := g.hook.Stats()
	c := &g.counted
	c.Lock()
	defer c.Unlock()
	c.metrics.runs.Add(float64(s.Runs - c.seen.Runs))
	c.metrics.failures.Add(float64(s.Failures - c.seen.Failures))
	c.metrics.bypassed.Add(float64(s.Bypassed - c.seen.Bypassed))
	c.warnings(float64(s.Warnings - c.seen.Warnings))
	c.seen = s
}

func (g *guard) close() {
	if g == nil {
		return
	}
	g.count()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.hook.Close()
}

// countHooks brings the metrics of all hooks up to date.
func (s *Server) countHooks() {
	for _, q := range s.queues.all() {
		p := q.policy.Load()
		p.onEnqueue.count()
		p.onFailure.count()
	}
}
