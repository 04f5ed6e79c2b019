package shard

import (
	"cmp"
	"container/heap"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
)

const (
	// maxSchedules is how many schedules a shard has, and maxScheduleBytes how much they
	// are: they are all in memory.
	maxSchedules     = 10_000
	maxScheduleBytes = 64 << 20
	// scheduleRetry is when a run is tried again that was refused, at the earliest.
	scheduleRetry = time.Second
	// lookAtClock is how often the wall clock is looked at, which may be set, or have gone
	// on while the machine slept.
	lookAtClock = 30 * time.Second
)

// schedules are those of a shard. One goroutine makes their runs; there is none before the
// first schedule.
type schedules struct {
	mu struct {
		sync.Mutex
		due     dueHeap // those that have a run to come
		count   int     // of all
		bytes   int64
		started bool
		working bool
	}
	wake chan struct{}
	work sync.WaitGroup
}

// dueHeap is a heap of schedules, the one that is due first at its top.
type dueHeap []*scheduled

func (h dueHeap) Len() int           { return len(h) }
func (h dueHeap) Less(i, j int) bool { return h[i].due < h[j].due }
func (h dueHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i]; h[i].index, h[j].index = i, j }
func (h *dueHeap) Push(x any)        { sc := x.(*scheduled); sc.index = len(*h); *h = append(*h, sc) }

func (h *dueHeap) Pop() any {
	last := len(*h) - 1
	sc := (*h)[last]
	(*h)[last], sc.index = nil, -1
	*h = (*h)[:last]
	return sc
}

// wall is the time of day, Unix ns. It follows the clock of the machine, which [Options.Now]
// does not: schedules are about that.
func (s *Shard) wall() int64 { return time.Now().UnixNano() }

// roomForSchedule counts a schedule of that size in, beside the one that it replaces, or
// says why it has no room.
func (s *Shard) roomForSchedule(bytes int64, had *scheduled) *wire.Error {
	s.schedules.mu.Lock()
	defer s.schedules.mu.Unlock()
	m := &s.schedules.mu
	count, all := m.count, m.bytes
	if had != nil {
		count, all = count-1, all-had.bytes
	}
	switch {
	case count >= maxSchedules:
		return wire.LimitReached("schedules of a shard", maxSchedules, capRetryAfter)
	case all+bytes > maxScheduleBytes:
		return wire.LimitReached("bytes of the schedules of a shard", maxScheduleBytes, capRetryAfter)
	}
	m.count++
	m.bytes += bytes
	return nil
}

// countSchedules counts so many schedules with so many bytes, fewer if they are negative.
func (s *Shard) countSchedules(n int, bytes int64) {
	s.schedules.mu.Lock()
	defer s.schedules.mu.Unlock()
	s.schedules.mu.count += n
	s.schedules.mu.bytes += bytes
}

// planSchedule has a schedule looked at when it is due; 0: it is not.
func (s *Shard) planSchedule(sc *scheduled, due int64) {
	s.schedules.mu.Lock()
	defer s.schedules.mu.Unlock()
	if sc.index >= 0 {
		heap.Remove(&s.schedules.mu.due, sc.index)
	}
	if due == 0 {
		return
	}
	sc.due = due
	heap.Push(&s.schedules.mu.due, sc)
	s.workOnSchedules()
	if sc.index == 0 {
		select {
		case s.schedules.wake <- struct{}{}:
		default:
		}
	}
}

// startSchedules has runs be made.
func (s *Shard) startSchedules() {
	s.schedules.mu.Lock()
	defer s.schedules.mu.Unlock()
	s.schedules.mu.started = true
	s.workOnSchedules()
}

// workOnSchedules begins the work on schedules. Its caller holds their lock.
func (s *Shard) workOnSchedules() {
	m := &s.schedules.mu
	if !m.started || m.working || len(m.due) == 0 || s.ended.Err() != nil {
		return
	}
	m.working = true
	s.schedules.work.Go(s.makeRuns)
}

// endSchedules waits until no run is made any more. The shard has ended.
func (s *Shard) endSchedules() {
	s.schedules.mu.Lock()
	s.schedules.mu.started = false
	s.schedules.mu.Unlock()
	s.schedules.work.Wait()
}

func (s *Shard) makeRuns() {
	timer := time.NewTimer(lookAtClock)
	defer timer.Stop()
	for s.ended.Err() == nil {
		sc, wait := s.dueSchedule()
		if sc != nil {
			sc.run()
			continue
		}
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-s.schedules.wake:
		case <-s.ended.Done():
		}
	}
}

// dueSchedule takes out the schedule that is due, or says how long there is none.
func (s *Shard) dueSchedule() (sc *scheduled, wait time.Duration) {
	s.schedules.mu.Lock()
	defer s.schedules.mu.Unlock()
	due := &s.schedules.mu.due
	if len(*due) == 0 {
		return nil, lookAtClock
	}
	if wait = time.Duration((*due)[0].due - s.wall()); wait > 0 {
		return nil, min(wait, lookAtClock)
	}
	return heap.Pop(due).(*scheduled), 0
}

// recoverSchedules takes in what the store has kept of schedules.
func (s *Shard) recoverSchedules(kept []store.Entry, byName map[string]recovering) {
	specs, at, broken := recoveredSchedules(kept)
	for name, spec := range specs {
		of, _, _ := strings.Cut(name, "/")
		r, ok := byName[of]
		if !ok {
			continue
		}
		q := r.Queue
		sc, err := newScheduled(q, spec)
		if err = cmp.Or(broken[name], err); err != nil {
			s.Log.Error("a schedule cannot be read; it does not run any more", "schedule", name, "error", err)
			continue
		}
		if sc.state, ok = at[name]; !ok {
			sc.state.Last = sc.runs.Begin(time.Unix(0, sc.CreatedAt)).UnixNano()
		}
		sc.nextAt = sc.runAfter(sc.state.Last)
		q.intake.putSchedule(sc)
		s.countSchedules(1, sc.bytes)
		s.planSchedule(sc, sc.next())
	}
}

func (in *intake) putSchedule(sc *scheduled) {
	if in.schedules == nil {
		in.schedules = make(map[string]*scheduled)
	}
	in.schedules[sc.Name] = sc
	in.countSchedule(sc, 1)
}

// countSchedule counts a schedule that has come (1) or gone (-1), for metrics, views and limits:
// they take no lock. Its caller holds the lock of the intake.
func (in *intake) countSchedule(sc *scheduled, n int64) {
	in.scheduled.Add(n)
	if sc.ByEnqueue {
		in.enqueued.Add(n)
	}
	in.nextRunStale.Store(true)
}

// roomForSchedule says why the queue takes no further schedule beside had, which the new one
// replaces; nil: it does. Its caller holds the lock of the intake.
func (q *Queue) roomForSchedule(had *scheduled, byEnqueue bool) *wire.Error {
	caps := &q.shard.Caps
	count, enqueued := q.intake.scheduled.Load(), q.intake.enqueued.Load()
	if had != nil {
		count--
		if had.ByEnqueue {
			enqueued--
		}
	}
	switch {
	case caps.Schedules > 0 && count >= caps.Schedules:
		return wire.LimitReached("schedules of queue "+q.name+" (limits.max_schedules)", caps.Schedules, capRetryAfter)
	case byEnqueue && caps.EnqueuedSchedules > 0 && enqueued >= caps.EnqueuedSchedules:
		return wire.LimitReached("schedules of queue "+q.name+" made by enqueues (limits.max_enqueued_schedules)", caps.EnqueuedSchedules, capRetryAfter)
	}
	return nil
}

// AddSchedule makes a schedule of the queue, or replaces the one of that name. What the
// answer says is on disk.
func (q *Queue) AddSchedule(req wire.ScheduleAddRequest) (wire.ScheduleInfo, *wire.Error) {
	done := make(chan error, 1)
	info, werr := q.addSchedule(req, false, func(wire.ScheduleInfo) queue.WriteEntries { return queue.WriteEntries{} }, func(err error) { done <- err })
	if werr != nil {
		return info, werr
	}
	return info, q.wrote(done)
}

// scheduleBy makes a schedule of what a producer has sent: of this queue alone, as it may
// send to no other one. It does not wait for the disk.
func (q *Queue) scheduleBy(m *nats.Msg, h *wire.ScheduleHeaders) *wire.Error {
	if q.policy.Load().settings.EnqueueSchedules == wire.SchedulesRefuse {
		return wire.BadSchedule("queue " + q.name + " takes no schedules by enqueues (enqueue_schedules); they need the verb " + wire.VerbScheduleAdd)
	}
	if h.Target != q.name && h.Target != m.Subject {
		return wire.BadSchedule(wire.HeaderScheduleTarget + " names another queue: what comes by an enqueue schedules messages of its own, " +
			q.name + "; others need the verb " + wire.VerbScheduleAdd)
	}
	req := h.ScheduleAddRequest
	if len(m.Data) > 0 {
		req.Payload = m.Data
	}
	for name, values := range m.Header {
		if !wire.Reserved(name) {
			if req.Headers == nil {
				req.Headers = make(map[string][]string)
			}
			req.Headers[name] = values
		}
	}
	_, werr := q.addSchedule(req, true, func(i wire.ScheduleInfo) queue.WriteEntries {
		r := wire.EnqueueReply{Queue: q.name, Schedule: i.Name, Replaced: i.Replaced, Unchanged: i.Unchanged}
		if len(i.Next) > 0 {
			r.Next = i.Next[0]
		}
		return queue.WriteEntries{Reply: m.Reply, Answer: []byte(encodeSchedule(r))}
	}, func(error) {})
	return werr
}

// addSchedule makes a schedule and hands it to the store, with what keep says of it. It
// does not wait for the disk; done is told when it is there.
func (q *Queue) addSchedule(req wire.ScheduleAddRequest, byEnqueue bool, keep func(wire.ScheduleInfo) queue.WriteEntries, done func(error)) (wire.ScheduleInfo, *wire.Error) {
	s := q.shard
	if werr := req.Check(); werr != nil {
		return wire.ScheduleInfo{}, werr
	}
	if disk := s.set.Disk(); disk != nil && disk.Low {
		return wire.ScheduleInfo{}, wire.DiskLow(disk.Free, disk.MinFree, diskLowRetryAfter)
	}
	now := s.wall()
	sc, err := newScheduled(q, scheduleSpec{ScheduleAddRequest: req, CreatedAt: now, ByEnqueue: byEnqueue})
	if err != nil {
		return wire.ScheduleInfo{}, wire.BadSchedule(err.Error())
	}
	if limit := s.Conn.MaxPayload() - wire.HeaderRoom; sc.bytes > limit {
		return wire.ScheduleInfo{}, wire.MessageTooLarge(sc.bytes, limit)
	}
	sc.state.Last = sc.runs.Begin(time.Unix(0, now)).UnixNano()
	sc.nextAt = sc.runAfter(sc.state.Last)
	info, last, werr := q.putSchedule(sc, keep, done)
	if werr == nil {
		sc.showComing(&info, last)
	}
	return info, werr
}

// putSchedule is what addSchedule does under the lock of the intake. It returns up to when
// the runs of what it shows are decided, as well.
func (q *Queue) putSchedule(sc *scheduled, keep func(wire.ScheduleInfo) queue.WriteEntries, done func(error)) (info wire.ScheduleInfo, last int64, werr *wire.Error) {
	s, in := q.shard, &q.intake
	in.mu.Lock()
	defer in.mu.Unlock()
	if q.deleted.Load() {
		return info, 0, q.Gone()
	}
	had := in.schedules[sc.Name]
	if had != nil && had.same(&sc.ScheduleAddRequest) {
		info = had.info()
		info.Unchanged = true
		return info, had.state.Last, q.keep(keep(info), done)
	}
	if werr := q.roomForSchedule(had, sc.ByEnqueue); werr != nil {
		return info, 0, werr
	}
	if werr := s.roomForSchedule(sc.bytes, had); werr != nil {
		return info, 0, werr
	}
	info = sc.info()
	info.Replaced = had != nil
	k := keep(info)
	k.Put = []store.Entry{{Key: sc.key(), Value: encodeSchedule(&sc.scheduleSpec)}, sc.entry(&sc.state)}
	if werr := q.keep(k, func(err error) {
		if err == nil {
			typ := wire.EventScheduleCreated
			if info.Replaced {
				typ = wire.EventScheduleReplaced
			}
			sc.event(typ, nil)
		}
		done(err)
	}); werr != nil {
		s.countSchedules(-1, -sc.bytes)
		return info, 0, werr
	}
	if had != nil {
		q.forgetSchedule(had)
	}
	in.putSchedule(sc)
	s.planSchedule(sc, sc.next())
	return info, sc.state.Last, nil
}

// keep hands what is kept of a schedule to the store, and tells done when it is on disk.
func (q *Queue) keep(k queue.WriteEntries, done func(error)) *wire.Error {
	k.Ticket = done
	if _, ok := q.run.do(q.changed(k)); !ok {
		return q.Gone()
	}
	return nil
}

// wrote waits until what was kept is on disk.
func (q *Queue) wrote(done <-chan error) *wire.Error {
	select {
	case err := <-done:
		if err != nil {
			return commitError(err)
		}
		return nil
	case <-q.shard.lost:
		return wire.OutcomeUnknown()
	}
}

// forgetSchedule has a schedule not be there any more. Its caller holds the lock of the
// intake.
func (q *Queue) forgetSchedule(sc *scheduled) {
	sc.gone = true
	delete(q.intake.schedules, sc.Name)
	q.intake.countSchedule(sc, -1)
	q.shard.planSchedule(sc, 0)
	q.shard.countSchedules(-1, -sc.bytes)
}

// forgetSchedules is forgetSchedule for all of the queue, which is deleted. It returns
// under which keys they are kept.
func (q *Queue) forgetSchedules() (keys []string) {
	q.intake.mu.Lock()
	defer q.intake.mu.Unlock()
	for _, sc := range q.intake.schedules {
		keys = append(keys, sc.keys()...)
		q.forgetSchedule(sc)
	}
	return keys
}

// Schedule shows a schedule.
func (q *Queue) Schedule(name string) (wire.ScheduleInfo, *wire.Error) {
	q.intake.mu.Lock()
	sc := q.intake.schedules[name]
	if sc == nil {
		q.intake.mu.Unlock()
		return wire.ScheduleInfo{}, wire.ScheduleNotFound(q.name, name)
	}
	info, last := sc.info(), sc.state.Last
	q.intake.mu.Unlock()
	sc.showComing(&info, last)
	info.Headers, info.Payload = sc.Headers, sc.Payload
	return info, nil
}

// changeSchedule has change say what is kept of a schedule from now on, and waits for the
// disk.
func (q *Queue) changeSchedule(name, event string, change func(*scheduled) queue.WriteEntries) (wire.ScheduleInfo, *wire.Error) {
	in := &q.intake
	in.mu.Lock()
	sc := in.schedules[name]
	if sc == nil {
		in.mu.Unlock()
		return wire.ScheduleInfo{}, wire.ScheduleNotFound(q.name, name)
	}
	done := make(chan error, 1)
	before, nextBefore := sc.state, sc.nextAt
	k := change(sc)
	werr := q.keep(k, func(err error) { done <- err })
	if werr != nil {
		sc.state, sc.nextAt = before, nextBefore
	} else if len(k.Delete) > 0 {
		q.forgetSchedule(sc)
	} else {
		sc.refused = nil
		in.nextRunStale.Store(true)
		q.shard.planSchedule(sc, sc.next())
	}
	info, last := sc.info(), sc.state.Last
	in.mu.Unlock()
	if werr == nil {
		werr = q.wrote(done)
	}
	if werr != nil {
		return wire.ScheduleInfo{}, werr
	}
	sc.showComing(&info, last)
	sc.event(event, nil)
	return info, nil
}

// DeleteSchedule ends a schedule, and returns it as it was. Messages that it has made stay.
func (q *Queue) DeleteSchedule(name string) (wire.ScheduleInfo, *wire.Error) {
	return q.changeSchedule(name, wire.EventScheduleDeleted, func(sc *scheduled) queue.WriteEntries {
		return queue.WriteEntries{Delete: sc.keys()}
	})
}

// PauseSchedule has a schedule not run until ResumeSchedule.
func (q *Queue) PauseSchedule(name string) (wire.ScheduleInfo, *wire.Error) {
	return q.changeSchedule(name, wire.EventSchedulePaused, func(sc *scheduled) queue.WriteEntries {
		sc.state.Paused = true
		return queue.WriteEntries{Put: []store.Entry{sc.entry(&sc.state)}}
	})
}

// ResumeSchedule has a paused schedule run again, from now on: the runs of the pause are
// none that it has missed. One that is to run once does so now.
func (q *Queue) ResumeSchedule(name string) (wire.ScheduleInfo, *wire.Error) {
	q.intake.mu.Lock()
	was := q.intake.schedules[name]
	q.intake.mu.Unlock()
	now, next := q.shard.wall(), int64(0)
	if was != nil {
		next = was.runAfter(now)
	}
	return q.changeSchedule(name, wire.EventScheduleResumed, func(sc *scheduled) queue.WriteEntries {
		if sc == was && sc.state.Paused && !sc.runs.Once() {
			sc.state.Last, sc.nextAt = now, next // Last may be in the future, if the clock was wrong
		}
		sc.state.Paused = false
		return queue.WriteEntries{Put: []store.Entry{sc.entry(&sc.state)}}
	})
}

// Schedules returns a page of the schedules by queue and name: those of the queue of, or of
// all queues if it is empty, after the cursor of the page before. Total counts all pages.
func (s *Set) Schedules(of, after string, limit int) (list wire.ScheduleList) {
	list.Schedules = []wire.ScheduleInfo{}
	behind, name, _ := strings.Cut(after, "/")
	for _, q := range s.served() {
		if q.IsDLQ() || of != "" && q.name != of {
			continue
		}
		n, _ := q.Scheduled()
		list.Total += n
		if q.name < behind || len(list.Schedules) > limit {
			continue
		}
		if q.name != behind {
			name = ""
		}
		list.Schedules = append(list.Schedules, q.listSchedules(name, limit+1-len(list.Schedules))...)
	}
	if len(list.Schedules) > limit {
		list.Schedules = list.Schedules[:limit]
		list.Next = list.Schedules[limit-1].Cursor()
	}
	return list
}

// listSchedules lists schedules of the queue by name, behind one.
func (q *Queue) listSchedules(after string, limit int) []wire.ScheduleInfo {
	var found []*scheduled
	var list []wire.ScheduleInfo
	var last []int64
	q.intake.mu.Lock()
	for _, name := range slices.Sorted(maps.Keys(q.intake.schedules)) {
		if name > after && len(list) < limit {
			sc := q.intake.schedules[name]
			found, list, last = append(found, sc), append(list, sc.info()), append(last, sc.state.Last)
		}
	}
	q.intake.mu.Unlock()
	for i, sc := range found {
		sc.showComing(&list[i], last[i])
	}
	return list
}

// Scheduled counts the schedules of the queue, and says when the first of them runs next:
// Unix ns, 0: none does. It waits for no lock: while the intake is busy, the next run is the one
// that was known before.
func (q *Queue) Scheduled() (n int, next int64) {
	in := &q.intake
	if in.nextRunStale.Load() && in.mu.TryLock() {
		in.nextRunStale.Store(false)
		for _, sc := range in.schedules {
			if at := sc.next(); at != 0 && (next == 0 || at < next) {
				next = at
			}
		}
		in.nextRun.Store(next)
		in.mu.Unlock()
	}
	return int(in.scheduled.Load()), in.nextRun.Load()
}
