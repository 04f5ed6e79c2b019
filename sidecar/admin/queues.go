package admin

import (
	"cmp"
	"encoding/json"
	"slices"
	"strconv"

	"github.com/filaq/fila/sidecar/control"
	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/sidecar/queue/inspect"
	"github.com/filaq/fila/sidecar/shard"
	"github.com/filaq/fila/sidecar/telemetry"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

func (a *Admin) queueCreateVerb() Verb {
	v := row(api.VerbQueueCreate, a.queueCreate)
	v.about = byTail
	return v
}

func (a *Admin) queueCreate(by control.Actor, name string, body json.RawMessage) (reply api.QueueReply, _ *wire.Error) {
	if err := wire.CheckQueueName(name); err != nil {
		return reply, wire.BadQueueName(err)
	}
	if wire.IsDLQ(name) {
		return reply, wire.ReservedName(name)
	}
	settings, err := a.patch(wire.DefaultQueueSettings(name), body)
	if err != nil {
		return reply, err
	}
	defer a.objects.lock(control.QueueObject(name))()
	o := control.ObjectChange{Object: control.QueueObject(name), New: a.shards.Queue(name) == nil}
	warnings, err := a.control.ChangeObject(by, o, func() (err *wire.Error) {
		if settings, err = a.shards.Create(settings); err == nil && o.New {
			a.auditSettings(by, name, body)
		}
		return err
	})
	if err != nil {
		return reply, err
	}
	return a.queueReply(settings, warnings), nil
}

func (a *Admin) queueUpdate(by control.Actor, q *shard.Queue, body json.RawMessage) (reply api.QueueReply, _ *wire.Error) {
	settings, warnings, err := a.changeQueue(by, q,
		func(old wire.QueueSettings) (wire.QueueSettings, *wire.Error) { return a.patch(old, body) },
		func(wire.QueueSettings) { a.auditSettings(by, q.Name(), body) })
	if err != nil {
		return reply, err
	}
	return a.queueReply(settings, warnings), nil
}

// changeQueue changes the settings of a queue, unless they belong to another owner, keeps the scripts
// that it replaces, and calls audit with settings that differ.
func (a *Admin) changeQueue(
	by control.Actor, q *shard.Queue, change func(old wire.QueueSettings) (wire.QueueSettings, *wire.Error), audit func(after wire.QueueSettings),
) (after wire.QueueSettings, warnings []string, err *wire.Error) {
	defer a.objects.lock(control.QueueObject(q.Name()))()
	before := q.Settings()
	if after, err = change(before); err != nil {
		return after, nil, err
	}
	warnings, err = a.control.ChangeObject(by, control.QueueChange(before, after), func() (err *wire.Error) {
		after, err = q.Update(func(old wire.QueueSettings) (wire.QueueSettings, *wire.Error) {
			before = old
			return change(old)
		})
		if err == nil && !after.Equal(before) {
			audit(after)
		}
		return err
	})
	if err != nil {
		return after, nil, err
	}
	if !after.Equal(before) && a.control.InFile(q.Name()) {
		a.log.Warn("a queue of the configuration file is changed at run time; the file wins at the next reload or start", "queue", q.Name())
		warnings = append(warnings, "the configuration file has queue "+q.Name()+": the next reload or start gives it the settings of the file again")
	}
	return after, warnings, a.keepHooks(by, before, after, by.Reason)
}

// auditSettings records the body of a request that changed the settings of a queue. If it is too
// long for the audit log, it has the lengths of scripts instead of the scripts.
func (a *Admin) auditSettings(by control.Actor, queue string, body json.RawMessage) {
	var change map[string]json.RawMessage
	if len(body) > control.MaxAuditValue && json.Unmarshal(body, &change) == nil {
		for _, hook := range []string{wire.HookOnEnqueue, wire.HookOnFailure} {
			var script string
			if json.Unmarshal(change[hook], &script) == nil && script != "" {
				change[hook] = json.RawMessage(strconv.Quote(wire.Plural(int64(len(script)), "byte")))
			}
		}
		a.audit(by, control.QueueObject(queue), change)
		return
	}
	a.control.Audit(by, control.QueueObject(queue), cmp.Or(string(body), "{}"))
}

// queueReply answers a change of settings with warnings about owners and keys, and logs the latter.
func (a *Admin) queueReply(settings wire.QueueSettings, owners []string) api.QueueReply {
	keys := a.control.KeyWarnings(settings)
	for _, warning := range keys {
		a.log.Warn("the throttle keys of a queue are probably a mistake", "queue", settings.Name, "warning", warning)
	}
	return api.QueueReply{QueueSettings: settings, Warnings: append(owners, keys...)}
}

// patch changes settings as a request says. A retry policy must be in the configuration
// file, unless the queue has it already.
func (a *Admin) patch(old wire.QueueSettings, body []byte) (wire.QueueSettings, *wire.Error) {
	settings, err := old.Patch(body)
	if err != nil {
		return settings, err
	}
	if name := settings.RetryPolicy; name != old.RetryPolicy && !a.control.Rules().HasPolicy(name) {
		return old, wire.BadQueueSettings(&wire.SettingError{
			Field: "retry_policy", Value: strconv.Quote(name), Allowed: "allowed is the name of a [[retry_policy]] of the configuration file",
		})
	}
	return settings, nil
}

func (a *Admin) queueDelete(by control.Actor, q *shard.Queue, req api.QueueDeleteRequest) (reply api.QueueDeleteReply, err *wire.Error) {
	object := control.QueueObject(q.Name())
	defer a.objects.lock(object)()
	reply.Warnings, err = a.control.ChangeObject(by, control.ObjectChange{Object: object, Changes: "deleted", Deleted: true}, func() (err *wire.Error) {
		if reply.Deleted, err = q.Delete(by.Client, req.Force); err == nil {
			a.control.ForgetHooks(q.Name())
			a.audit(by, object, reply)
		}
		return err
	})
	if err != nil {
		return reply, err
	}
	if a.control.InFile(q.Name()) {
		a.log.Warn("a queue of the configuration file is deleted; the next reload or start creates it again", "queue", q.Name())
		reply.Warnings = append(reply.Warnings, "the configuration file has queue "+q.Name()+": the next reload or start makes it again, unless its table is removed")
	}
	return reply, nil
}

func (a *Admin) queuePurge(by control.Actor, q *shard.Queue, req api.QueuePurgeRequest) (api.QueuePurgeReply, *wire.Error) {
	at, _ := req.Cursor() // checked
	n, next, last, err := q.Purge(at.From, at.Last)
	reply := api.QueuePurgeReply{Purged: n}
	if next != 0 {
		reply.Next = api.PurgeCursor{From: next, Last: last}.String()
	}
	return reply, a.auditMessages(by, q, n, reply, err)
}

// redrive waits for the job that it makes, so it must not hold the queue as an object.
func (a *Admin) redrive(by control.Actor, dlq *shard.Queue, req api.RedriveRequest) (api.RedriveReply, *wire.Error) {
	reply, err := dlq.Redrive(req.Count)
	return reply, a.auditMessages(by, dlq, reply.Redriven, reply, err)
}

// auditMessages records that a request changed n messages of a queue, and adds n to the
// error of a request that failed then.
func (a *Admin) auditMessages(by control.Actor, q *shard.Queue, n int64, reply any, err *wire.Error) *wire.Error {
	if n == 0 {
		return err
	}
	a.audit(by, control.QueueObject(q.Name()), reply)
	if err != nil {
		return err.After(n)
	}
	return nil
}

func (a *Admin) hookReset(by control.Actor, q *shard.Queue, req api.HookResetRequest) (api.HookResetReply, *wire.Error) {
	defer a.objects.lock(control.QueueObject(q.Name()))()
	before := q.Hooks()
	if !q.ResetHooks(req.Hook) {
		return api.HookResetReply{}, wire.HookNotFound(q.Name(), req.Hook)
	}
	reply := api.HookResetReply{Queue: q.Name(), Hooks: q.Hooks()}
	if !slices.EqualFunc(before, reply.Hooks, func(a, b api.HookInfo) bool {
		return a.Hook == b.Hook && a.State == b.State && a.ConsecutiveFailures == b.ConsecutiveFailures
	}) {
		a.audit(by, control.QueueObject(q.Name()), req)
	}
	return reply, nil
}

func (a *Admin) queueList(req api.QueueListRequest) api.QueueList {
	for {
		list := a.queuePage(req)
		if len(list.Queues) > 0 || list.Next == "" {
			return list
		}
		req.After, req.Offset = list.Next, 0 // its queues were deleted meanwhile: an empty page would look like the end
	}
}

func (a *Admin) queuePage(req api.QueueListRequest) api.QueueList {
	page, total, next := a.shards.QueuePage(req.After, req.Offset, req.Limit)
	list := api.QueueList{Total: total, Next: next, Queues: make([]api.QueueSummary, 0, len(page))}
	var known sample
	if req.Sampled {
		known = a.sampled(freshFor)
		req.Detail, req.Tenants = true, api.SampledTenants
	}
	for _, q := range page {
		if s := known.queues[q.Name()]; s != nil {
			list.Queues = append(list.Queues, *s)
			continue
		}
		if r := (queueReading{tenants: req.Tenants}); req.Detail && a.read(q, &r) {
			list.Queues = append(list.Queues, r.summary)
		} else if stats, ok := statsOf(q); ok {
			list.Queues = append(list.Queues, a.summary(q, &stats))
		}
	}
	return list
}

// statsOf returns the figures of a queue. It reports false if the queue has ended.
func statsOf(q *shard.Queue) (stats inspect.Stats, ok bool) {
	ok = q.View(func(m *queue.Queue, side queue.Role, now int64) { stats = m.Inspect(side).Stats(now) })
	return stats, ok
}

// Queues is [api.VerbQueueList] for the pages of this process, which ask once a second.
// Without a cluster it encodes nothing.
func (a *Admin) Queues(req api.QueueListRequest) (list api.QueueList, err *wire.Error) {
	if a.peers == nil {
		return a.queueList(req), nil
	}
	body, err := a.encode(req)
	if err != nil {
		return list, err
	}
	v, _ := a.verb(api.VerbQueueList.Name)
	data, err := v.Do(api.Sender{Client: "web"}, "", body)
	if err == nil {
		err = decode(data, &list)
	}
	return list, err
}

// Gauges returns all queues for a scrape of the metrics.
func (a *Admin) Gauges() []telemetry.Gauges {
	queues := a.shards.Queues()
	all := make([]telemetry.Gauges, 0, len(queues))
	for _, q := range queues {
		g := telemetry.Gauges{Queue: q.Name(), Depth: q.Depth(), Bytes: q.Bytes(), Counters: q.Metrics()}
		g.Schedules, g.NextRun = q.Scheduled()
		if q.View(func(m *queue.Queue, side queue.Role, now int64) {
			g.Noise, g.Totals = m.Inspect(side).Noise(0, now), m.Cumulative(side, now)
			g.Stats = g.Noise.Stats
		}) {
			if w, ok := a.wanted(q, wire.DefaultHorizon); ok {
				g.Wanted = w.Wanted
			}
			for _, h := range q.Hooks() {
				g.Hooks = append(g.Hooks, telemetry.HookState{Hook: h.Hook, State: h.State})
			}
			all = append(all, g)
		}
	}
	return all
}

// noisy returns the noisy and the waiting flows of a queue.
func (a *Admin) noisy(q *shard.Queue, req api.NoisyRequest) (api.NoisyReply, *wire.Error) {
	var v inspect.NoiseView
	if !q.View(func(m *queue.Queue, side queue.Role, now int64) { v = m.Inspect(side).Noise(req.Limit, now) }) {
		return api.NoisyReply{}, q.Gone()
	}
	return noisyReply(q.Name(), &v), nil
}

func noisyReply(name string, v *inspect.NoiseView) api.NoisyReply {
	reply := api.NoisyReply{
		Queue: name, InFlight: v.InFlight, BusyMs: v.Took / 1e6, Noisy: []api.NoisyFlow{},
		QuietReady: v.QuietReady, QuietPending: v.QuietReady, QuietOldestAgeMs: v.QuietOldest / 1e6,
	}
	for i := range v.Noisy {
		n := &v.Noisy[i]
		reply.Noisy = append(reply.Noisy, api.NoisyFlow{
			Key: wire.ShowKey(n.Key), InFlight: n.InFlight, InFlightShare: part(n.InFlight, v.InFlight),
			BusyMs: n.Took / 1e6, BusyShare: part(n.Took, v.Took), Ended: n.Ended, Ready: n.Pending, Pending: n.Pending, FairShare: n.Fair,
		})
	}
	reply.Waiting = waitingFlows(v.Waiting)
	reply.StarvedFlows, reply.Starved = v.Starving, waitingFlows(v.Starved)
	return reply
}

func waitingFlows(flows []inspect.WaitingFlow) []api.WaitingFlow {
	list := []api.WaitingFlow{}
	for i := range flows {
		f := &flows[i]
		list = append(list, api.WaitingFlow{Key: wire.ShowKey(f.Key), Ready: f.Pending, Pending: f.Pending, WaitMs: f.Wait / 1e6})
	}
	return list
}

// part returns n as a part of all, 0 to 1.
func part(n, all int64) float64 {
	if all <= 0 {
		return 0
	}
	return float64(n) / float64(all)
}

// summary returns a queue in one line.
func (a *Admin) summary(q *shard.Queue, n *inspect.Stats) api.QueueSummary {
	s := api.QueueSummary{
		Name: q.Name(), Pending: n.Pending, Ready: n.Pending - n.Blocked, Blocked: n.Blocked, Parked: n.Blocked, Delayed: n.Delayed, InFlight: n.InFlight, Moving: n.Moving,
		Consumers: n.Consumers, Bytes: q.Bytes(), OldestAgeMs: n.OldestAge / 1e6,
	}
	if dlq := q.DLQ(); dlq != nil {
		s.DLQ = dlq.Name()
	}
	if a.node != "" {
		number := q.Shard()
		s.Shard, s.Owner = &number, a.node
	}
	return s
}

// queueInspect returns everything about a queue, with its top flows.
func (a *Admin) queueInspect(q *shard.Queue, req api.QueueInspectRequest) (api.QueueInfo, *wire.Error) {
	settings := q.Settings()
	info := api.QueueInfo{
		Settings: settings, Sources: a.control.QueueSources(settings), Quantum: settings.Quantum, Hooks: q.Hooks(), Counters: q.Metrics().Snapshot(),
		ConsumerList: []api.ConsumerInfo{}, TopFlows: []api.FlowInfo{}, Departures: q.Departures(a.now().Add(-api.DepartureWindow).UnixNano()),
	}
	var consumers []inspect.ConsumerView
	var flows []inspect.FlowView
	var uses []inspect.UseView
	var noise inspect.NoiseView
	var all inspect.UseView
	ok := q.View(func(m *queue.Queue, side queue.Role, now int64) {
		noise, consumers, flows = m.Inspect(side).Noise(0, now), m.Inspect(side).Consumers(), m.Inspect(side).Flows(req.Flows)
		keys := make([]string, len(flows))
		for i := range flows {
			keys[i] = flows[i].Key
		}
		uses, all = m.Inspect(side).Uses(keys, now)
	})
	if !ok {
		return info, q.Gone()
	}
	n := noise.Stats
	info.QueueSummary, info.Flows, info.StarvedFlows = a.summary(q, &n), n.Flows, noise.Starving
	for i := range noise.Noisy {
		info.NoisyFlows = append(info.NoisyFlows, wire.ShowKey(noise.Noisy[i].Key))
	}
	for _, c := range consumers {
		i := api.ConsumerInfo{Name: c.Name, MaxInFlight: c.MaxInFlight, InFlight: c.InFlight, Credit: c.Credit, Fetch: c.Fetch}
		if c.ExpiresAt != 0 {
			i.ExpiresAt = wire.Timestamp(c.ExpiresAt)
		}
		if c.Form.MinHeaders {
			i.Headers = wire.HeadersMin
		}
		i.Batch = int(c.Form.Batch)
		info.ConsumerList = append(info.ConsumerList, i)
	}
	info.BusyMs = all.Took / 1e6
	if w, ok := a.wanted(q, wire.DefaultHorizon); ok {
		info.Wanted = w.Wanted
	}
	for i, f := range flows {
		info.TopFlows = append(info.TopFlows, api.FlowInfo{
			Key: wire.ShowKey(f.Key), Weight: float64(f.Weight) / thousand, Deficit: float64(f.Deficit) / thousand, Ready: f.Pending, Pending: f.Pending, Share: f.Share,
			InFlight: uses[i].InFlight, BusyShare: part(uses[i].Took, all.Took),
		})
	}
	return info, nil
}
