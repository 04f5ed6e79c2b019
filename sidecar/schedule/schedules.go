package schedule

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// Limits bound the schedules of a queue; 0: no limit.
type Limits struct {
	Schedules int64
	ByEnqueue int64 // those that producers made by an enqueue
}

// Schedules are the schedules of one queue. Its methods may be called from any goroutine.
type Schedules struct {
	runner  *Runner
	queue   Enqueuer
	metrics Metrics
	limits  Limits

	mu     sync.Mutex // held while a run is made or a schedule changes
	byName map[string]*schedule

	// Written under mu, read without it.
	count     atomic.Int64
	byEnqueue atomic.Int64
	nextRun   atomic.Int64 // Unix ns: the first run of all; 0: there is none
	// nextRunStale says that nextRun has to be computed again.
	nextRunStale atomic.Bool
}

// NewSchedules returns the schedules of a queue, none yet.
func (r *Runner) NewSchedules(queue Enqueuer, metrics Metrics, limits Limits) *Schedules {
	return &Schedules{runner: r, queue: queue, metrics: metrics, limits: limits, byName: make(map[string]*schedule)}
}

// AddSchedule adds a schedule, or replaces the one of that name. It waits for the disk.
func (s *Schedules) AddSchedule(req api.ScheduleAddRequest) (api.ScheduleInfo, *wire.Error) {
	done := make(chan error, 1)
	info, werr := s.add(req, false, func(api.ScheduleInfo) (w queue.WriteEntries) { return w }, func(err error) { done <- err })
	if werr == nil {
		werr = queue.CommitError(s.runner.Await(done))
	}
	return info, werr
}

// AddScheduleByEnqueue adds a schedule that a producer has sent by an enqueue, and confirms it
// when it is on disk.
func (s *Schedules) AddScheduleByEnqueue(req api.ScheduleAddRequest, confirm queue.Confirmation) *wire.Error {
	_, werr := s.add(req, true, func(i api.ScheduleInfo) queue.WriteEntries {
		r := wire.EnqueueReply{Queue: i.Queue, Schedule: i.Name, Replaced: i.Replaced, Unchanged: i.Unchanged}
		if len(i.Next) > 0 {
			r.Next = i.Next[0]
		}
		return queue.WriteEntries{Confirm: confirm, Answer: []byte(encode(r))}
	}, func(error) {})
	return werr
}

// add adds a schedule and hands it to the store in the write that begin returns. done is
// called when it is on disk or has failed.
func (s *Schedules) add(req api.ScheduleAddRequest, byEnqueue bool, begin func(api.ScheduleInfo) queue.WriteEntries, done func(error)) (api.ScheduleInfo, *wire.Error) {
	if werr := req.Check(); werr != nil {
		return api.ScheduleInfo{}, werr
	}
	now := wallClock()
	sc, err := newSchedule(s, spec{ScheduleAddRequest: req, CreatedAt: now, ByEnqueue: byEnqueue})
	if err != nil {
		return api.ScheduleInfo{}, wire.BadSchedule(err.Error())
	}
	if werr := s.runner.Admit(sc.bytes); werr != nil {
		return api.ScheduleInfo{}, werr
	}
	sc.state.Last = sc.times.Begin(time.Unix(0, now)).UnixNano()
	sc.nextAt = sc.runAfter(sc.state.Last)
	info, last, werr := s.insert(sc, begin, done)
	if werr == nil {
		sc.addComingRuns(&info, last)
	}
	return info, werr
}

// insert is the part of add under the lock. last is State.Last of the schedule that info
// describes.
func (s *Schedules) insert(sc *schedule, begin func(api.ScheduleInfo) queue.WriteEntries, done func(error)) (info api.ScheduleInfo, last int64, werr *wire.Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.byName[sc.Name]
	if old != nil && old.matches(&sc.ScheduleAddRequest) {
		info = old.info()
		info.Unchanged = true
		w := begin(info)
		w.Ticket = done
		return info, old.state.Last, s.queue.WriteEntries(w)
	}
	if werr := s.checkLimits(old, sc.ByEnqueue); werr != nil {
		return info, 0, werr
	}
	if sc.ByEnqueue {
		changes := ""
		if old != nil {
			changes = api.ScheduleChange(old.Schedule, sc.Schedule)
		}
		if werr := s.runner.Owned(s.queue.Name(), sc.Name, changes); werr != nil {
			return info, 0, werr
		}
	}
	if werr := s.runner.reserve(sc.bytes, old); werr != nil {
		return info, 0, werr
	}
	info = sc.info()
	info.Replaced = old != nil
	w := begin(info)
	w.Put = []store.Entry{{Key: sc.key(), Value: encode(&sc.spec)}, sc.stateEntry(&sc.state)}
	w.Ticket = func(err error) {
		if err == nil {
			typ := wire.EventScheduleCreated
			if info.Replaced {
				typ = wire.EventScheduleReplaced
			}
			sc.event(typ, nil)
		}
		done(err)
	}
	if werr := s.queue.WriteEntries(w); werr != nil {
		s.runner.count(-1, -sc.bytes)
		return info, 0, werr
	}
	if old != nil {
		s.remove(old)
	}
	s.put(sc)
	s.runner.plan(sc, sc.nextRun())
	return info, sc.state.Last, nil
}

// checkLimits refuses a schedule beyond the limits of the queue; old is the schedule that it
// replaces, or nil. Its caller holds the lock.
func (s *Schedules) checkLimits(old *schedule, byEnqueue bool) *wire.Error {
	limits, count, enqueued := s.limits, s.count.Load(), s.byEnqueue.Load()
	if old != nil {
		count--
		if old.ByEnqueue {
			enqueued--
		}
	}
	name := s.queue.Name()
	switch {
	case limits.Schedules > 0 && count >= limits.Schedules:
		return wire.LimitReached("schedules of queue "+name+" (limits.max_schedules)", limits.Schedules, limitRetryAfter)
	case byEnqueue && limits.ByEnqueue > 0 && enqueued >= limits.ByEnqueue:
		return wire.LimitReached("schedules of queue "+name+" made by enqueues (limits.max_enqueued_schedules)", limits.ByEnqueue, limitRetryAfter)
	}
	return nil
}

// put adds a schedule. Its caller holds the lock and has counted it at the Runner.
func (s *Schedules) put(sc *schedule) {
	s.byName[sc.Name] = sc
	s.addCount(sc, 1)
}

// remove removes a schedule. Its caller holds the lock.
func (s *Schedules) remove(sc *schedule) {
	sc.gone = true
	delete(s.byName, sc.Name)
	s.addCount(sc, -1)
	s.runner.plan(sc, 0)
	s.runner.count(-1, -sc.bytes)
}

func (s *Schedules) addCount(sc *schedule, n int64) {
	s.count.Add(n)
	if sc.ByEnqueue {
		s.byEnqueue.Add(n)
	}
	s.nextRunStale.Store(true)
}

// RemoveSchedules removes all schedules, since the queue is being deleted. It returns their keys
// in the store.
func (s *Schedules) RemoveSchedules() (keys []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sc := range s.byName {
		keys = append(keys, sc.keys()...)
		s.remove(sc)
	}
	return keys
}

// Schedule describes a schedule.
func (s *Schedules) Schedule(name string) (api.ScheduleInfo, *wire.Error) {
	s.mu.Lock()
	sc := s.byName[name]
	if sc == nil {
		s.mu.Unlock()
		return api.ScheduleInfo{}, wire.ScheduleNotFound(s.queue.Name(), name)
	}
	info, last := sc.info(), sc.state.Last
	s.mu.Unlock()
	sc.addComingRuns(&info, last)
	info.Headers, info.Payload = sc.Headers, sc.Payload
	return info, nil
}

// change changes a schedule and waits for the disk. apply changes the state and returns
// what to write; the schedule is removed if it deletes keys.
func (s *Schedules) change(name, event string, apply func(*schedule) queue.WriteEntries) (api.ScheduleInfo, *wire.Error) {
	s.mu.Lock()
	sc := s.byName[name]
	if sc == nil {
		s.mu.Unlock()
		return api.ScheduleInfo{}, wire.ScheduleNotFound(s.queue.Name(), name)
	}
	done := make(chan error, 1)
	oldState, oldNext := sc.state, sc.nextAt
	w := apply(sc)
	w.Ticket = done
	werr := s.queue.WriteEntries(w)
	switch {
	case werr != nil:
		sc.state, sc.nextAt = oldState, oldNext
	case len(w.Delete) > 0:
		s.remove(sc)
	default:
		sc.refused = nil
		s.nextRunStale.Store(true)
		s.runner.plan(sc, sc.nextRun())
	}
	info, last := sc.info(), sc.state.Last
	s.mu.Unlock()
	if werr == nil {
		werr = queue.CommitError(s.runner.Await(done))
	}
	if werr != nil {
		return api.ScheduleInfo{}, werr
	}
	sc.addComingRuns(&info, last)
	sc.event(event, nil)
	return info, nil
}

// DeleteSchedule deletes a schedule and returns it as it was. Its messages stay.
func (s *Schedules) DeleteSchedule(name string) (api.ScheduleInfo, *wire.Error) {
	return s.change(name, wire.EventScheduleDeleted, func(sc *schedule) queue.WriteEntries { return queue.WriteEntries{Delete: sc.keys()} })
}

// PauseSchedule stops the runs of a schedule until ResumeSchedule.
func (s *Schedules) PauseSchedule(name string) (api.ScheduleInfo, *wire.Error) {
	return s.change(name, wire.EventSchedulePaused, func(sc *schedule) queue.WriteEntries {
		sc.state.Paused = true
		return queue.WriteEntries{Put: []store.Entry{sc.stateEntry(&sc.state)}}
	})
}

// ResumeSchedule lets a paused schedule run again. Runs during the pause do not count as
// missed; a schedule that runs once, and was due meanwhile, runs now.
func (s *Schedules) ResumeSchedule(name string) (api.ScheduleInfo, *wire.Error) {
	s.mu.Lock()
	before := s.byName[name]
	s.mu.Unlock()
	now, next := wallClock(), int64(0)
	if before != nil {
		next = before.runAfter(now)
	}
	return s.change(name, wire.EventScheduleResumed, func(sc *schedule) queue.WriteEntries {
		if sc == before && sc.state.Paused && !sc.times.Once() {
			sc.state.Last, sc.nextAt = now, next // Last may be in the future if the clock was wrong
		}
		sc.state.Paused = false
		return queue.WriteEntries{Put: []store.Entry{sc.stateEntry(&sc.state)}}
	})
}

// ListSchedules describes up to limit schedules by name, after the name after.
func (s *Schedules) ListSchedules(after string, limit int) (list []api.ScheduleInfo) {
	var found []*schedule
	var last []int64
	s.mu.Lock()
	for _, name := range slices.Sorted(maps.Keys(s.byName)) {
		if name > after && len(list) < limit {
			sc := s.byName[name]
			found, list, last = append(found, sc), append(list, sc.info()), append(last, sc.state.Last)
		}
	}
	s.mu.Unlock()
	for i, sc := range found {
		sc.addComingRuns(&list[i], last[i])
	}
	return list
}

// CountSchedules returns how many schedules there are, and how many of them producers made
// by an enqueue.
func (s *Schedules) CountSchedules() (all, byEnqueue int64) {
	return s.count.Load(), s.byEnqueue.Load()
}

// Scheduled returns how many schedules there are and when the first of them runs next, in
// Unix ns; 0: none does. It does not block: while a schedule changes, the next run is the
// one before the change.
func (s *Schedules) Scheduled() (n int, next int64) {
	if s.nextRunStale.Load() && s.mu.TryLock() {
		s.nextRunStale.Store(false)
		for _, sc := range s.byName {
			if at := sc.nextRun(); at != 0 && (next == 0 || at < next) {
				next = at
			}
		}
		s.nextRun.Store(next)
		s.mu.Unlock()
	}
	return int(s.count.Load()), s.nextRun.Load()
}
