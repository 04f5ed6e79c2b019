package sidecar

import (
	"cmp"
	"encoding/json"
	"math"
	"slices"
	"strings"
	"sync"

	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
)

// pauses are what operators and safety limits hold: queues, fairness keys,
// throttles and circuits. A pause counts at once; it is on disk when whoever
// asked for it has the answer.
//
// Each change is made in memory and handed to the store under mu, and what is
// paused looks under mu what counts: so all of them agree about the order.
type pauses struct {
	mu struct {
		sync.Mutex
		all map[pauseID]pause
	}
}

// pauseID names what is paused. The queue is that of a fairness key.
type pauseID struct{ kind, queue, name string }

// pause says since when, until when and by whom.
type pause struct {
	Since int64  `json:"since"` // Unix ns
	Until int64  `json:"until"` // Unix ns; math.MaxInt64: until it is resumed
	By    string `json:"by"`    // operator or max_failures
}

// state is the key in the store.
func (id pauseID) state() string { return statePause + id.kind + "/" + id.queue + "/" + id.name }

// parsePause is the opposite of state. Queues have no slash in their names.
func parsePause(state string) (pauseID, bool) {
	rest, ok := strings.CutPrefix(state, statePause)
	parts := strings.SplitN(rest, "/", 3)
	if !ok || len(parts) != 3 {
		return pauseID{}, false
	}
	return pauseID{parts[0], parts[1], parts[2]}, true
}

// audited is the key in the audit log: pause:<kind>:<name>, or
// pause:key:<queue>:<name>.
func (id pauseID) audited() string {
	if id.queue != "" {
		return "pause:" + id.kind + ":" + id.queue + ":" + id.name
	}
	return "pause:" + id.kind + ":" + id.name
}

// audited is the value in the audit log.
func (p *pause) audited() *string {
	if p == nil {
		return nil
	}
	s := "until resumed"
	if p.Until != math.MaxInt64 {
		s = "until " + timestamp(p.Until)
	}
	return &s
}

func (p pause) info(id pauseID) wire.PauseInfo {
	i := wire.PauseInfo{Kind: id.kind, Queue: id.queue, Name: id.name, Since: timestamp(p.Since), By: p.By}
	if p.Until != math.MaxInt64 {
		i.Until = timestamp(p.Until)
	}
	return i
}

// until is when a pause ends: 0 if there is none, math.MaxInt64 if it only ends
// by hand.
func (ps *pauses) until(id pauseID) int64 {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	return ps.mu.all[id].Until
}

// throttles returns the throttle keys that are paused.
func (ps *pauses) throttles() []string {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	var keys []string
	for id := range ps.mu.all {
		if id.kind == wire.PauseThrottle {
			keys = append(keys, id.name)
		}
	}
	return keys
}

// pausesOf returns the pauses of a queue and of its fairness keys: until when
// (Unix ns; math.MaxInt64: until resumed; 0: the queue is not paused).
func (s *Server) pausesOf(q *queue) (until int64, keys map[string]int64) {
	ps := &s.pauses
	ps.mu.Lock()
	defer ps.mu.Unlock()
	keys = make(map[string]int64)
	for id, p := range ps.mu.all {
		switch {
		case id.kind == wire.PauseQueue && id.name == q.name:
			until = p.Until
		case id.kind == wire.PauseKey && id.queue == q.name:
			keys[id.name] = p.Until
		}
	}
	return until, keys
}

// restorePauses takes the pauses from the store. Those whose time is over, or
// whose queue is gone, are deleted in b.
func (s *Server) restorePauses(snap store.Snapshot, b *store.Batch, now int64) {
	c, ps := s.core, &s.pauses
	queues := make(map[string]bool)
	for _, q := range snap.Queues {
		queues[q.Name] = true
	}
	ps.mu.Lock()
	defer ps.mu.Unlock()
	ps.mu.all = make(map[pauseID]pause)
	for _, e := range snap.Config {
		id, ok := parsePause(e.Key)
		if !ok {
			continue
		}
		var p pause
		if err := json.Unmarshal([]byte(e.Value), &p); err != nil {
			c.log.Error("a stored pause cannot be read and is ignored", "pause", id.audited(), "error", err)
			continue
		}
		gone := id.kind == wire.PauseQueue && !queues[id.name] || id.kind == wire.PauseKey && !queues[id.queue]
		if p.Until <= now || gone {
			b.DeleteConfig = append(b.DeleteConfig, e.Key)
			s.throttles.audit.record(b, now, byPauseEnded, change{id.audited(), p.audited(), nil})
			continue
		}
		ps.mu.all[id] = p
		s.throttles.schedule.set(e.Key, p.Until)
		s.holdPaused(id, p.Until)
	}
}

// setPause begins a pause or gives one another end. The channel says when it is
// on disk. It never blocks.
func (s *Server) setPause(id pauseID, until int64, by, verb string) (pause, <-chan error) {
	c, ps := s.core, &s.pauses
	now := c.clock.Now()
	ps.mu.Lock()
	var old *pause
	p := pause{Since: now, Until: until, By: by}
	if had, ok := ps.mu.all[id]; ok {
		if old = &had; by == byMaxFailures && had.Until >= until {
			ps.mu.Unlock()
			return had, c.submit(&store.Batch{}) // what an operator has paused for longer stays so
		}
		p.Since = had.Since
	}
	if ps.mu.all == nil {
		ps.mu.all = make(map[pauseID]pause)
	}
	value, err := json.Marshal(p)
	if err != nil {
		panic("sidecar: a pause does not marshal: " + err.Error())
	}
	ps.mu.all[id] = p
	b := &store.Batch{PutConfig: []store.Entry{{Key: id.state(), Value: string(value)}}}
	s.throttles.audit.record(b, now, verb, change{id.audited(), old.audited(), p.audited()})
	done := c.submit(b)
	s.throttles.schedule.set(id.state(), until)
	s.holdPaused(id, until)
	ps.mu.Unlock()
	typ := wire.EventPaused
	if by == byMaxFailures {
		typ = wire.EventHeld
	}
	s.pauseEvent(typ, by, p.info(id))
	return p, done
}

// endPauses ends the pauses that which picks, by verb. by is for events. It
// returns those that it ended, and never blocks.
func (s *Server) endPauses(by, verb string, which func(pauseID, pause) bool, ids ...pauseID) ([]wire.PauseInfo, <-chan error) {
	c, ps := s.core, &s.pauses
	now := c.clock.Now()
	ps.mu.Lock()
	b := &store.Batch{}
	var ended []wire.PauseInfo
	for _, id := range ids {
		p, ok := ps.mu.all[id]
		if !ok || !which(id, p) {
			continue
		}
		delete(ps.mu.all, id)
		b.DeleteConfig = append(b.DeleteConfig, id.state())
		s.throttles.audit.record(b, now, verb, change{id.audited(), p.audited(), nil})
		s.throttles.schedule.set(id.state(), 0)
		if by != byTime || id.kind != wire.PauseCircuit {
			// A circuit sees for itself that its time is over; it may have been
			// opened for longer by other means.
			s.holdPaused(id, 0)
		}
		ended = append(ended, p.info(id))
	}
	done := c.submit(b)
	ps.mu.Unlock()
	for _, i := range ended {
		s.pauseEvent(wire.EventResumed, by, i)
	}
	return ended, done
}

// holdPaused tells what is paused until when it is: 0 is not (any more). It needs
// mu, so that the last to be told is the newest.
func (s *Server) holdPaused(id pauseID, until int64) {
	c := s.core
	switch id.kind {
	case wire.PauseQueue:
		if q := s.queues.get(id.name); q != nil {
			q.tell(func(l *loop) { l.pauseUntil(s.pauses.until(id)) })
		}
	case wire.PauseKey:
		if q := s.queues.get(id.queue); q != nil {
			q.tell(func(l *loop) { l.pauseKey(id.name, s.pauses.until(id)) })
		}
	case wire.PauseThrottle:
		c.wake(c.gates.Pause(id.name, until, c.clock.Now(), nil))
	case wire.PauseCircuit:
		if until == 0 {
			c.circuits.resume(id.name)
		} else {
			c.circuits.pause(id.name, until)
		}
	}
}

func (s *Server) endPause(id pauseID, now int64) {
	s.endPauses(byTime, byPauseEnded, func(_ pauseID, p pause) bool { return p.Until <= now }, id)
}

// holdKey pauses a fairness key that has failed too often, until a time (Unix
// ns) or, with math.MaxInt64, until it is resumed. The loop calls it; it never
// blocks.
func (s *Server) holdKey(q *queue, key string, until int64) {
	s.setPause(pauseID{wire.PauseKey, q.name, key}, until, byMaxFailures, byMaxFailures)
}

// forgetPauses ends the pauses of queues that are deleted, and of their keys.
func (s *Server) forgetPauses(queues ...string) {
	s.pauses.mu.Lock()
	var ids []pauseID
	for id := range s.pauses.mu.all {
		if slices.Contains(queues, id.queue) || id.kind == wire.PauseQueue && slices.Contains(queues, id.name) {
			ids = append(ids, id)
		}
	}
	s.pauses.mu.Unlock()
	s.endPauses(wire.VerbQueueDelete, wire.VerbQueueDelete, anyPause, ids...)
}

func anyPause(pauseID, pause) bool { return true }

func (s *Server) pauseEvent(typ, by string, i wire.PauseInfo) {
	e := wire.Event{Queue: i.Queue, Key: i.Name, Data: map[string]any{"kind": i.Kind, "by": by}}
	if i.Kind == wire.PauseQueue {
		e.Queue, e.Key = i.Name, ""
	}
	if typ != wire.EventResumed && i.Until != "" {
		e.Data["until"] = i.Until
	}
	s.core.event(typ, i.Name, e)
}

// checkPaused refuses what cannot be paused.
func (s *Server) checkPaused(id pauseID) *wire.Error {
	switch id.kind {
	case wire.PauseQueue:
		_, err := s.queue(id.name)
		return err
	case wire.PauseKey:
		_, err := s.queue(id.queue)
		return err
	case wire.PauseThrottle:
		if _, ok := isPrefix(id.name); ok {
			return wire.BadField("name", id.name, "allowed is a whole throttle key, not a prefix")
		}
	}
	return nil
}

func (s *Server) pauseVerb(_ string, body []byte) (any, *wire.Error) {
	req, err := wire.ParsePause(body)
	if err != nil {
		return nil, err
	}
	id := pauseID{req.Kind, req.Queue, req.Name}
	if err := s.checkPaused(id); err != nil {
		return nil, err
	}
	until, err := req.End(s.core.clock.Now())
	if err != nil {
		return nil, err
	}
	p, done := s.setPause(id, until, byOperator, wire.VerbPause)
	return p.info(id), s.core.outcome(<-done)
}

func (s *Server) resumeVerb(_ string, body []byte) (any, *wire.Error) {
	req, err := wire.ParseResume(body)
	if err != nil {
		return nil, err
	}
	id := pauseID{req.Kind, req.Queue, req.Name}
	ended, done := s.endPauses(byOperator, wire.VerbResume, anyPause, id)
	if len(ended) == 0 {
		return nil, wire.PauseNotFound(id.kind, id.queue, id.name)
	}
	return ended[0], s.core.outcome(<-done)
}

func (s *Server) pauseList(_ string, body []byte) (any, *wire.Error) {
	req, err := wire.ParsePauseList(body)
	if err != nil {
		return nil, err
	}
	ps := &s.pauses
	ps.mu.Lock()
	all := make([]wire.PauseInfo, 0, len(ps.mu.all))
	for id, p := range ps.mu.all {
		all = append(all, p.info(id))
	}
	ps.mu.Unlock()
	slices.SortFunc(all, func(a, b wire.PauseInfo) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.Name, b.Name))
	})
	return wire.PauseList{Total: len(all), Pauses: page(all, req.Offset, req.Limit)}, nil
}
