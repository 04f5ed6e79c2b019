package admin

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/filaq/fila/sidecar/attention"
	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/sidecar/queue/inspect"
	"github.com/filaq/fila/sidecar/shard"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// watcher finds what is wrong at this node. It takes a sample every watchEvery, so that
// what rises is seen, and for a request, unless the last sample is fresh.
type watcher struct {
	limits     func() []attention.Limit // nil: not known
	sharedAway func() error             // nil: nothing is shared

	mu struct {
		sync.Mutex
		monitor  attention.Monitor
		at       time.Time
		took     time.Duration // by the last sample
		findings []api.Finding // read-only
	}
}

const (
	watchEvery = 10 * time.Second
	// A sample is fresh for freshFor, and for freshFactor times as long as it took: requests
	// take at most one in freshFactor of a core.
	freshFor, freshFactor = time.Second, 20
	// namedFlows is how many noisy, waiting and starving flows of a queue a finding knows.
	namedFlows = 3
	// watchedCircuits and watchedPauses bound a sample.
	watchedCircuits, watchedPauses = 1000, 1000
)

// Watch takes samples until ctx ends.
func (a *Admin) Watch(ctx context.Context) {
	ticker := time.NewTicker(watchEvery)
	defer ticker.Stop()
	for {
		a.findings()
		a.measureWanted()
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// attention returns the findings of this node.
func (a *Admin) attention(req api.AttentionRequest) api.Attention {
	return reportOf(a.findings(), req)
}

// attentionOfAll returns the findings of all nodes of a cluster.
func attentionOfAll(v Verb, r request) ([]byte, *wire.Error) {
	req, err := api.VerbAttention.Parse("", r.body)
	if err != nil {
		return nil, err
	}
	all := r
	if all.body, err = v.a.encode(api.AttentionRequest{Queue: req.Queue, Limit: api.MaxListLimit}); err != nil {
		return nil, err
	}
	var findings []api.Finding
	hidden := 0
	failed, err := gatherNodes(v, all, func(_ string, reply api.Attention) {
		findings, hidden = append(findings, reply.Findings...), hidden+reply.Truncated
	})
	if err != nil {
		return nil, err
	}
	reply := reportOf(attention.Merge(findings), req)
	reply.Total, reply.Truncated = reply.Total+hidden, reply.Truncated+hidden
	for _, f := range failed {
		reply.Unanswered = append(reply.Unanswered, f.node)
	}
	return v.a.encode(&reply)
}

// reportOf returns the findings that a request asks for.
func reportOf(findings []api.Finding, req api.AttentionRequest) api.Attention {
	if req.Queue != "" {
		name := wire.Source(req.Queue)
		findings = slices.DeleteFunc(slices.Clone(findings), func(f api.Finding) bool { return f.Queue != name })
	}
	reply := api.Attention{Total: len(findings), Findings: []api.Finding{}}
	if len(findings) > 0 {
		reply.Severity = findings[0].Severity
	}
	reply.Findings = append(reply.Findings, findings[:min(len(findings), req.Limit)]...)
	reply.Truncated = reply.Total - len(reply.Findings)
	return reply
}

// findings returns what is wrong now, from a fresh sample.
func (a *Admin) findings() []api.Finding {
	w := &a.watcher
	w.mu.Lock() // requests that come meanwhile get the result of this sample
	defer w.mu.Unlock()
	began := a.now()
	if age := began.Sub(w.mu.at); age >= 0 && age < max(freshFor, freshFactor*w.mu.took) {
		return w.mu.findings
	}
	w.mu.findings = w.mu.monitor.Find(a.sample(began))
	w.mu.at, w.mu.took = began, a.now().Sub(began)
	return w.mu.findings
}

// sample reads what this node knows of itself and of its queues.
func (a *Admin) sample(now time.Time) *attention.Sample {
	s := &attention.Sample{
		At: now, Node: a.node,
		Circuits: a.control.CircuitList(api.CircuitListRequest{KeyListRequest: api.KeyListRequest{Limit: watchedCircuits}, NotClosed: true}).Circuits,
		Pauses:   a.control.PauseList(api.ListRequest{Limit: watchedPauses}).Pauses,
	}
	if d := a.shards.Disk(); d != nil {
		s.Disk = &attention.Disk{Low: d.Low, Free: d.Free}
	}
	if a.watcher.limits != nil {
		s.Limits = a.watcher.limits()
	}
	if a.watcher.sharedAway != nil {
		s.SharedAway = a.watcher.sharedAway()
	}
	if a.cluster != nil {
		st := a.cluster.Status()
		s.Cluster = &st
	}
	for _, q := range a.shards.Queues() {
		if q.IsDLQ() {
			continue
		}
		if seen, ok := a.watched(q, now); ok {
			s.Queues = append(s.Queues, seen)
		}
	}
	return s
}

// watched reads a queue for a sample. It names gates and flows only if some block or wait.
func (a *Admin) watched(q *shard.Queue, now time.Time) (w attention.Queue, ok bool) {
	var noise inspect.NoiseView
	var blocked []inspect.BlockedView
	var stepped, at int64
	ok = q.View(func(m *queue.Queue, side queue.Role, now int64) {
		r := m.Inspect(side)
		noise, stepped, at = r.Noise(0, now), m.Stepped(), now
		if len(noise.Noisy) > 0 || noise.Starving > 0 {
			noise = r.Noise(namedFlows, now)
		}
		if noise.Stats.Blocked > 0 {
			blocked = r.State(explainGates, now).Blocked
		}
	})
	if !ok {
		return w, false
	}
	w = attention.Queue{QueueSummary: a.summary(q, &noise.Stats), Tenants: noise.Stats.Flows, Hooks: q.Hooks(), Dead: q.DLQ().Depth()}
	d := q.Detail(stepped, at)
	d.NoisyFlows, d.QuietPending, d.QuietOldestAgeMs, d.StarvedFlows = len(noise.Noisy), noise.QuietPending, noise.QuietOldest/1e6, noise.Starving
	if w.Detail = &d; d.Refused > 0 {
		w.RefusedBy = q.Metrics().MostRefused()
	}
	if len(noise.Noisy) > 0 || noise.Starving > 0 {
		reply := noisyReply(q.Name(), &noise)
		w.Noise = &attention.Noise{Noisy: reply.Noisy, Waiting: reply.Waiting, Starved: reply.Starved}
	}
	for _, b := range blocked {
		w.Blocked = append(w.Blocked, attention.Blocked{
			GateState: a.gates.state(b.At, b.By, q.Name(), b.Key), Messages: b.Messages, Tenants: b.Flows, Wait: time.Duration(b.Wait),
		})
	}
	w.Late = lateSchedule(q, now)
	return w, true
}

// lateSchedule returns the schedule of a queue whose run is due longest, nil if none is due.
func lateSchedule(q *shard.Queue, now time.Time) (late *attention.LateSchedule) {
	n, next := q.Scheduled()
	if n == 0 || next == 0 || next >= now.UnixNano() {
		return nil
	}
	after := ""
	for {
		list := q.ListSchedules(after, api.DefaultListLimit)
		for i := range list {
			s := &list[i]
			if s.State != api.ScheduleActive || len(s.Next) == 0 {
				continue
			}
			due, err := time.Parse(time.RFC3339, s.Next[0])
			if err == nil && due.Before(now) && (late == nil || cmp.Compare(due.UnixNano(), late.Due.UnixNano()) < 0) {
				late = &attention.LateSchedule{Name: s.Name, Due: due, Why: s.Why}
			}
		}
		if len(list) < api.DefaultListLimit {
			return late
		}
		after = list[len(list)-1].Name
	}
}
