package control

import (
	"cmp"
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"

	"github.com/filaq/fila/ordered"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// pauses are the pauses of queues, fairness keys, throttles and circuits by operators
// and safety limits. A pause applies at once, and is on disk when the reply goes out.
//
// Each change is made in memory, handed to the KV and sent to the paused object under
// mu, so that all of them see the same order.
type pauses struct {
	mu struct {
		sync.Mutex
		all    map[pauseID]pause
		listed ordered.Set // cursors of all
	}
}

// pauseID names a paused object. queue is set for fairness keys.
type pauseID struct{ kind, queue, name string }

// pause says since when, until when and by whom.
type pause struct {
	Since int64  `json:"since"` // Unix ns
	Until int64  `json:"until"` // Unix ns; math.MaxInt64: until it is resumed
	By    string `json:"by"`    // operator, max_failures or calls
	// Client made the request, if known.
	Client string `json:"client,omitempty"`
}

// state returns the key under which a pause is stored.
func (id pauseID) state() string { return statePause + id.kind + "/" + id.queue + "/" + id.name }

// cursor returns the position of a pause in lists: by kind, queue and name.
func (id pauseID) cursor() string { return strings.TrimPrefix(id.state(), statePause) }

// parsePause reverses state. Queue names have no slash.
func parsePause(state string) (pauseID, bool) {
	rest, ok := strings.CutPrefix(state, statePause)
	parts := strings.SplitN(rest, "/", 3)
	if !ok || len(parts) != 3 {
		return pauseID{}, false
	}
	return pauseID{parts[0], parts[1], parts[2]}, true
}

// concerns reports whether a pause is about a queue or one of its keys.
func (id pauseID) concerns(queue string) bool {
	return id.kind == api.PauseQueue && id.name == queue || id.kind == api.PauseKey && id.queue == queue
}

// audited returns the key in the audit log: pause:<kind>:<name>, or
// pause:key:<queue>:<name>.
func (id pauseID) audited() string {
	if id.queue != "" {
		return "pause:" + id.kind + ":" + id.queue + ":" + id.name
	}
	return "pause:" + id.kind + ":" + id.name
}

// audited returns the value in the audit log.
func (p pause) audited() *string {
	s := "until resumed"
	if p.Until != math.MaxInt64 {
		s = "until " + wire.Timestamp(p.Until)
	}
	return &s
}

func (p pause) info(id pauseID) api.PauseInfo {
	i := api.PauseInfo{Kind: id.kind, Queue: id.queue, Name: wire.ShowKey(id.name), Since: wire.Timestamp(p.Since), By: p.By, Client: p.Client}
	if p.Until != math.MaxInt64 {
		i.Until = wire.Timestamp(p.Until)
	}
	return i
}

// restorePauses restores the stored pauses. Pauses that are over, or whose queue is
// gone, are deleted once the process has started. In a cluster the node that deletes a
// queue ends its pauses, and pauses that are over end as if it were now.
func (c *Control) restorePauses(kept store.Snapshot, now int64) {
	queues := make(map[string]bool)
	for _, q := range kept.Queues {
		queues[q.Name] = true
	}
	ps := &c.pauses
	ps.mu.Lock()
	defer ps.mu.Unlock()
	ps.mu.all = make(map[pauseID]pause)
	for _, e := range kept.Config {
		id, ok := parsePause(e.Key)
		if !ok {
			continue
		}
		var p pause
		if err := json.Unmarshal([]byte(e.Value), &p); err != nil {
			c.opt.Log.Error("a stored pause cannot be read and is ignored", "pause", id.audited(), "error", err)
			continue
		}
		gone := id.kind == api.PauseQueue && !queues[id.name] || id.kind == api.PauseKey && !queues[id.queue]
		if !c.shared() && (p.Until <= now || gone) {
			c.end(&c.opening, e.Key, p, Actor{By: byPauseEnded}, change{id.audited(), p.audited(), nil})
			continue
		}
		ps.put(id, p)
	}
}

// pausedUntil returns when a pause ends: 0 without a pause, math.MaxInt64 if only a
// resume ends it.
func (c *Control) pausedUntil(id pauseID) int64 {
	c.pauses.mu.Lock()
	defer c.pauses.mu.Unlock()
	return c.pauses.mu.all[id].Until
}

// pausesOf returns the pauses for which wanted is true.
func (c *Control) pausesOf(wanted func(pauseID) bool) map[pauseID]pause {
	c.pauses.mu.Lock()
	defer c.pauses.mu.Unlock()
	found := make(map[pauseID]pause)
	for id, p := range c.pauses.mu.all {
		if wanted(id) {
			found[id] = p
		}
	}
	return found
}

// Pauses returns until when a queue and its fairness keys are paused (Unix ns);
// math.MaxInt64 until a resume; 0: not paused. A new queue must read it before
// Queues.Exists reports it.
func (c *Control) Pauses(queue string) (until int64, keys map[string]int64) {
	keys = make(map[string]int64)
	for id, p := range c.pausesOf(func(id pauseID) bool { return id.concerns(queue) }) {
		if id.kind == api.PauseQueue {
			until = p.Until
		} else {
			keys[id.name] = p.Until
		}
	}
	return until, keys
}

// setPause begins a pause or gives one another end. The channel says when it is on
// disk. It never blocks.
func (c *Control) setPause(id pauseID, until int64, by string, actor Actor) (pause, <-chan error) {
	ps, now := &c.pauses, c.opt.Now()
	ps.mu.Lock()
	had, again := ps.mu.all[id]
	if again && by == byMaxFailures && had.Until >= until {
		ps.mu.Unlock()
		return had, nil // what an operator has paused for longer stays so
	}
	p, changes := pause{Since: now, Until: until, By: by, Client: actor.Client}, []change(nil)
	if again && had.Until == until && had.By == by {
		p = had
	} else {
		changes = append(changes, ps.replace(id, &p))
	}
	var kept Batch
	c.begin(&kept, id.state(), p, until, actor, changes...)
	done := c.opt.KV.Write(kept)
	c.tellPaused(id, until)
	ps.mu.Unlock()
	typ := wire.EventPaused
	if by == byMaxFailures {
		typ = wire.EventHeld
	}
	c.pauseEvent(typ, by, p.info(id))
	return p, done
}

// put adds a pause or changes it. It needs mu.
func (ps *pauses) put(id pauseID, p pause) {
	ps.mu.all[id] = p
	ps.mu.listed.Add(id.cursor())
}

// remove removes a pause. It needs mu.
func (ps *pauses) remove(id pauseID) {
	delete(ps.mu.all, id)
	ps.mu.listed.Remove(id.cursor())
}

// replace puts a pause, which began when an earlier one of the object did. It returns the change
// for the audit log. It needs mu.
func (ps *pauses) replace(id pauseID, p *pause) change {
	ch := change{key: id.audited(), new: p.audited()}
	if had, ok := ps.mu.all[id]; ok {
		p.Since, ch.old = had.Since, had.audited()
	}
	ps.put(id, *p)
	return ch
}

// endPauses ends the pauses among ids that end by a time, for a verb; by is for events.
// It returns the pauses that it ended, and never blocks.
func (c *Control) endPauses(by string, actor Actor, end int64, ids ...pauseID) ([]api.PauseInfo, <-chan error) {
	ps := &c.pauses
	ps.mu.Lock()
	var kept Batch
	var ended []api.PauseInfo
	for _, id := range ids {
		p, ok := ps.mu.all[id]
		if !ok || p.Until > end {
			continue
		}
		ps.remove(id)
		c.end(&kept, id.state(), p, actor, change{id.audited(), p.audited(), nil})
		if by != byTime || id.kind != api.PauseCircuit {
			// A circuit ends by its own timer, and may have been opened for longer
			// since.
			c.tellPaused(id, 0)
		}
		ended = append(ended, p.info(id))
	}
	done := c.opt.KV.Write(kept)
	ps.mu.Unlock()
	return ended, c.whenEnded(done, func() {
		for _, i := range ended {
			c.pauseEvent(wire.EventResumed, by, i)
		}
	})
}

// tellPaused sends a paused object until when it is paused, 0 for a resume. It needs
// mu, so that the newest state is sent last.
func (c *Control) tellPaused(id pauseID, until int64) {
	switch id.kind {
	case api.PauseQueue:
		c.opt.Queues.PauseQueue(id.name, until)
	case api.PauseKey:
		c.opt.Queues.PauseKey(id.queue, id.name, until)
	case api.PauseThrottle:
		Tell(c.throttles.gates.Pause(id.name, until, c.opt.Now(), nil))
	case api.PauseCircuit:
		if until == 0 {
			c.opt.Circuits.Resume(id.name)
		} else {
			p := c.pauses.mu.all[id]
			c.opt.Circuits.Pause(id.name, p.Since, until, p.Client)
		}
	}
}

// HoldKey pauses a fairness key that has failed too often, until a time (Unix ns) or,
// with math.MaxInt64, until a resume. It never blocks.
func (c *Control) HoldKey(queue, key string, until int64) {
	c.setPause(pauseID{api.PauseKey, queue, key}, until, byMaxFailures, Actor{By: byMaxFailures})
}

// ForgetPauses ends the pauses of queues that a client, "" if unknown, has deleted, and of
// their keys.
func (c *Control) ForgetPauses(client string, queues ...string) {
	gone := c.pausesOf(func(id pauseID) bool { return slices.ContainsFunc(queues, id.concerns) })
	deleted := Actor{By: api.VerbQueueDelete.Name, Sender: api.Sender{Client: client}}
	ids := slices.SortedFunc(maps.Keys(gone), comparePauses)
	if c.shared() { // each by itself: another node may have ended one of them
		for _, id := range ids {
			c.endPauses(deleted.By, deleted, math.MaxInt64, id)
		}
		return
	}
	c.endPauses(deleted.By, deleted, math.MaxInt64, ids...)
}

func comparePauses(a, b pauseID) int {
	return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(a.queue, b.queue), cmp.Compare(a.name, b.name))
}

func (c *Control) pauseEvent(typ, by string, i api.PauseInfo) {
	e := wire.Event{Queue: i.Queue, Key: i.Name, Data: map[string]any{"kind": i.Kind, "by": by}}
	if i.Kind == api.PauseQueue {
		e.Queue, e.Key = i.Name, ""
	}
	if typ != wire.EventResumed && i.Until != "" {
		e.Data["until"] = i.Until
	}
	c.opt.Event(typ, i.Name, e)
}

// checkPaused refuses objects that cannot be paused.
func (c *Control) checkPaused(req *api.PauseRequest) *wire.Error {
	queue := req.Queue
	switch req.Kind {
	case api.PauseThrottle:
		if _, ok := isPrefix(req.Name); ok {
			return wire.BadField("name", req.Name, "allowed is a whole throttle key, not a prefix")
		}
		return nil
	case api.PauseCircuit:
		return nil
	case api.PauseQueue:
		queue = req.Name
	}
	if !c.opt.Queues.Exists(queue) {
		return wire.QueueNotFound(queue)
	}
	return nil
}

// Pause begins a pause or gives one another end.
func (c *Control) Pause(by Actor, req api.PauseRequest) (api.PauseInfo, *wire.Error) {
	if err := c.checkPaused(&req); err != nil {
		return api.PauseInfo{}, err
	}
	until, err := req.End(c.opt.Now())
	if err != nil {
		return api.PauseInfo{}, err
	}
	id := pauseID{req.Kind, req.Queue, req.Name}
	p, done := c.setPause(id, until, byOperator, by)
	return p.info(id), outcome(<-done)
}

// Resume ends a pause.
func (c *Control) Resume(by Actor, req api.PauseRequest) (api.PauseInfo, *wire.Error) {
	ended, done := c.endPauses(byOperator, by, math.MaxInt64, pauseID{req.Kind, req.Queue, req.Name})
	if len(ended) == 0 && req.Kind == api.PauseCircuit && c.opt.Circuits.Held(req.Name) {
		return c.resumeElsewhere(by, req.Name)
	}
	if len(ended) == 0 {
		if err := c.checkPaused(&req); err != nil {
			return api.PauseInfo{}, err
		}
		return api.PauseInfo{}, wire.PauseNotFound(req.Kind, req.Queue, req.Name)
	}
	return ended[0], outcome(<-done)
}

// resumeElsewhere ends a pause of a shared circuit that another fila has begun, which
// hears of it.
func (c *Control) resumeElsewhere(by Actor, key string) (api.PauseInfo, *wire.Error) {
	info, _ := c.opt.Circuits.Info(key)
	had := "held by " + info.By
	var kept Batch
	c.audit.record(&kept, c.opt.Now(), by, change{pauseID{api.PauseCircuit, "", key}.audited(), &had, nil})
	done := c.opt.KV.Write(kept)
	c.opt.Circuits.Resume(key)
	return api.PauseInfo{Kind: api.PauseCircuit, Name: wire.ShowKey(key), Since: info.ChangedAt, By: byFleet}, outcome(<-done)
}

// PauseList lists pauses, by kind, queue and name.
func (c *Control) PauseList(req api.ListRequest) api.PauseList {
	ps := &c.pauses
	ps.mu.Lock()
	defer ps.mu.Unlock()
	page := ps.mu.listed.Page("", wire.NamedKey(req.After), req.Offset, req.Limit)
	list := api.PauseList{Total: page.Total, Next: wire.ShowKey(page.Next), Pauses: []api.PauseInfo{}}
	for _, cursor := range page.Keys {
		id, _ := parsePause(statePause + cursor)
		list.Pauses = append(list.Pauses, ps.mu.all[id].info(id))
	}
	return list
}
