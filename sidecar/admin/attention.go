package admin

import (
	"cmp"
	"context"
	"strings"
	"sync"
	"time"

	"github.com/filaq/fila/sidecar/attention"
	"github.com/filaq/fila/sidecar/deadletter"
	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/sidecar/queue/gates"
	"github.com/filaq/fila/sidecar/queue/inspect"
	"github.com/filaq/fila/sidecar/shard"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// sampler reads all queues of this node: for the findings, for the pages, and for other
// nodes. It takes a sample every sampleEvery, so that what rises is seen, and for a request,
// unless the last sample is fresh.
type sampler struct {
	limits     func() []attention.Limit // nil: not known
	sharedAway func() error             // nil: nothing is shared
	shares     Shares                   // nil: nothing is shared

	mu struct {
		sync.Mutex
		monitor attention.Monitor
		last    sample
		took    time.Duration // by the last sample
	}
}

// sample is what was read at one time. It is immutable.
type sample struct {
	at       time.Time
	queues   map[string]*api.QueueSummary // with Detail; also dead letter queues
	findings []api.Finding
}

const (
	sampleEvery = 10 * time.Second
	// A sample is fresh for freshFor, and for freshFactor times as long as it took: requests
	// take at most one in freshFactor of a core.
	freshFor, freshFactor = time.Second / 2, 20
	// namedFlows is how many noisy, waiting and starving flows of a queue a finding knows.
	namedFlows = 3
	// sampledCircuits and sampledPauses bound a sample.
	sampledCircuits, sampledPauses = 1000, 1000
	// sampledFailures is how many circuits of a sample have their last failures.
	sampledFailures = 20
)

// Watch takes a sample whenever the last one is sampleEvery old, until ctx ends.
func (a *Admin) Watch(ctx context.Context) {
	for {
		last := a.sampled(sampleEvery)
		a.measureWanted()
		select {
		case <-ctx.Done():
			return
		case <-time.After(max(sampleEvery-a.now().Sub(last.at), freshFor)):
		}
	}
}

// attention returns the findings of this node.
func (a *Admin) attention(req api.AttentionRequest) api.Attention {
	return reportOf(a.sampled(freshFor).findings, req)
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
	reply := reportOf(attention.Merge(findings), api.AttentionRequest{Limit: req.Limit}) // each node has left out other queues
	reply.Total, reply.Truncated = reply.Total+hidden, reply.Truncated+hidden
	for _, f := range failed {
		reply.Unanswered = append(reply.Unanswered, f.node)
	}
	return v.a.encode(&reply)
}

// reportOf returns the findings that a request asks for.
func reportOf(findings []api.Finding, req api.AttentionRequest) api.Attention {
	if req.Queue != "" {
		findings = attention.About(wire.Source(req.Queue), findings)
	}
	reply := api.Attention{Total: len(findings), Findings: []api.Finding{}}
	if len(findings) > 0 {
		reply.Severity = findings[0].Severity
	}
	reply.Findings = append(reply.Findings, findings[:min(len(findings), req.Limit)]...)
	for i := range reply.Findings {
		f := &reply.Findings[i]
		f.Queues = f.Queues[:min(len(f.Queues), api.MaxFindingQueues)]
	}
	reply.Truncated = reply.Total - len(reply.Findings)
	return reply
}

// sampled returns the last sample, or a new one if that is not fresh. Requests that come while
// a sample is taken get this one.
func (a *Admin) sampled(fresh time.Duration) sample {
	s := &a.sampler
	s.mu.Lock()
	defer s.mu.Unlock()
	began := a.now()
	if age := began.Sub(s.mu.last.at); age >= 0 && age < max(fresh, freshFactor*s.mu.took) {
		return s.mu.last
	}
	read, known := a.readNode(began)
	a.blocked.note(read)
	findings := s.mu.monitor.Find(read)
	a.addBefore(len(findings), func(i int) (queue, at string, before *[]api.Mark) {
		f := &findings[i]
		if !attention.MayFollow(f.Condition) {
			return "", "", nil
		}
		return f.Queue, f.Since, &f.Before
	})
	s.mu.last = sample{began, known, findings}
	s.mu.took = a.now().Sub(began)
	return s.mu.last
}

// readNode reads what this node knows of itself and of its queues, and returns also all queues
// by name.
func (a *Admin) readNode(now time.Time) (*attention.Sample, map[string]*api.QueueSummary) {
	s := &attention.Sample{
		At: now, Node: a.node,
		Circuits: a.control.CircuitList(api.CircuitListRequest{KeyListRequest: api.KeyListRequest{Limit: sampledCircuits}, NotClosed: true, Opened: true}).Circuits,
		Pauses:   a.control.PauseList(api.ListRequest{Limit: sampledPauses}).Pauses,
	}
	for i := range s.Circuits[:min(len(s.Circuits), sampledFailures)] {
		c := &s.Circuits[i]
		c.LastFailure = a.control.LastFailure(wire.NamedKey(c.Key))
	}
	if d := a.shards.Disk(); d != nil {
		s.Disk = &attention.Disk{Low: d.Low, Free: d.Free}
	}
	if a.sampler.limits != nil {
		s.Limits = a.sampler.limits()
	}
	if a.sampler.sharedAway != nil {
		s.SharedAway = a.sampler.sharedAway()
	}
	if a.cluster != nil {
		st := a.cluster.Status()
		s.Cluster = &st
	}
	queues := a.shards.Queues()
	s.Queues = make([]attention.Queue, 0, len(queues)) // known refers to its elements
	known := make(map[string]*api.QueueSummary, len(queues))
	changes := make(map[string]*api.LimitsChange)
	for _, q := range queues {
		r := queueReading{tenants: api.SampledTenants, conditions: true}
		if !a.read(q, &r) {
			continue
		}
		if q.IsDLQ() {
			known[q.Name()] = &r.summary
			continue
		}
		s.Queues = append(s.Queues, a.watched(q, &r, now))
		a.addHookVersions(q, &s.Queues[len(s.Queues)-1])
		a.addChanges(s.Queues[len(s.Queues)-1].Blocked, changes)
		known[q.Name()] = &s.Queues[len(s.Queues)-1].QueueSummary
	}
	return s, known
}

// queueReading is what a list of queues says of one of them and, if conditions is set, what else
// the conditions need.
type queueReading struct {
	tenants    int // fairness keys to name
	conditions bool

	summary api.QueueSummary // with Detail
	noise   inspect.NoiseView
	blocked []inspect.BlockedView
}

// read reads a queue. It names gates and flows only if some block or wait. It reports false if
// the queue has ended.
func (a *Admin) read(q *shard.Queue, v *queueReading) bool {
	var stepped, at int64
	var all inspect.ServedView
	var served []inspect.LaneView
	if !q.View(func(m *queue.Queue, side queue.Role, now int64) {
		r := m.Inspect(side)
		v.noise, stepped, at = r.Noise(0, now), m.Stepped(), now
		all, served = r.Served(now), r.MostServed(v.tenants, now)
		if !v.conditions {
			return
		}
		if len(v.noise.Noisy) > 0 || v.noise.Starving > 0 {
			v.noise = r.Noise(namedFlows, now)
		}
		if v.noise.Stats.Blocked > 0 {
			v.blocked = r.State(explainGates, now).Blocked
		}
	}) {
		return false
	}
	v.summary = a.summary(q, &v.noise.Stats)
	d := q.Detail(stepped, at)
	d.AtMs = at / 1e6
	d.NoisyFlows, d.QuietReady, d.QuietOldestAgeMs, d.StarvedFlows = len(v.noise.Noisy), v.noise.QuietReady, v.noise.QuietOldest/1e6, v.noise.Starving
	d.QuietPending = d.QuietReady
	d.Ended, d.MaxWaitMs = all.Ended, float64(all.Waits.Longest)/1e6
	for i := range served {
		d.Tenants = append(d.Tenants, api.EndedCount{Key: wire.ShowKey(served[i].Key), Ended: served[i].Ended})
	}
	v.summary.Detail = &d
	return true
}

// watched is a queue as the conditions see it.
func (a *Admin) watched(q *shard.Queue, v *queueReading, now time.Time) attention.Queue {
	w := attention.Queue{QueueSummary: v.summary, Tenants: v.noise.Stats.Flows, Hooks: q.Hooks(), Dead: q.DLQ().Depth(), Late: lateSchedule(q, now)}
	if w.Consumers == 0 && w.Ready > 0 {
		w.Departures = q.Departures(now.Add(-api.DepartureWindow).UnixNano())
	}
	if w.Dead > 0 && w.Detail.DeadLettered > 0 {
		w.MostDead = mostDead(q, now)
	}
	if w.Detail.Refused > 0 {
		w.RefusedBy = q.Metrics().MostRefused()
	}
	if len(v.noise.Noisy) > 0 || v.noise.Starving > 0 {
		reply := noisyReply(q.Name(), &v.noise)
		w.Noise = &attention.Noise{Noisy: reply.Noisy, Waiting: reply.Waiting, Starved: reply.Starved}
	}
	for _, b := range v.blocked {
		w.Blocked = append(w.Blocked, attention.Blocked{
			GateState: a.gates.state(b.WaitReason, q.Name(), b.Key), Messages: b.Messages, Tenants: b.Flows, Wait: time.Duration(b.Wait), Shared: a.sampler.shared(b.At),
		})
	}
	return w
}

// mostDead returns the error of most messages of a queue that became dead letters lately.
func mostDead(q *shard.Queue, now time.Time) *api.DeadRate {
	rates := newDeadRates(api.DeadRatesRequest{Minutes: int(attention.RisingWithin / time.Minute)}, now.Truncate(time.Minute))
	q.DeadRates(&rates, now.UnixNano())
	if deadletter.Largest(&rates, 1); len(rates.Groups) == 0 {
		return nil
	}
	return &rates.Groups[0]
}

// addHookVersions adds who set the hooks that do not run well.
func (a *Admin) addHookVersions(q *shard.Queue, w *attention.Queue) {
	for i := range w.Hooks {
		h := &w.Hooks[i]
		if h.State == "closed" && h.Failures+h.Bypassed == 0 {
			continue
		}
		if w.HookVersions == nil {
			w.HookVersions = make(map[string]api.HookVersion)
		}
		settings := q.Settings()
		w.HookVersions[h.Hook], _ = a.control.HookVersions(q.Name(), h.Hook, *scriptOf(&settings, h.Hook))
	}
}

// addChanges adds the latest change of their limits to throttles that block messages for long. known
// has the changes that this sample has read, by the origin of the limits.
func (a *Admin) addChanges(blocked []attention.Blocked, known map[string]*api.LimitsChange) {
	for i := range blocked {
		b := &blocked[i]
		key, ok := strings.CutPrefix(b.Gate, "throttle:")
		if !ok || b.Wait < attention.HeldAfter {
			continue
		}
		from := key
		if strings.HasPrefix(b.SetBy, "prefix ") {
			from = b.SetBy // all keys of a prefix have the same change
		}
		change, ok := known[from]
		if !ok {
			change = a.control.LimitsChange(wire.NamedKey(key))
			known[from] = change
		}
		b.Change = change
	}
}

// shared reports whether several filas share a gate.
func (s *sampler) shared(at gates.Place) bool {
	switch {
	case s.shares == nil:
		return false
	case at.Throttle != nil:
		return s.shares.SharesThrottle(at.Throttle.Key())
	}
	return at.Circuit != nil && s.shares.SharesCircuit(at.Circuit.Key())
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
