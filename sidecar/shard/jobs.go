package shard

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/filaq/fila/sidecar/deadletter"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
)

const (
	// jobsKeptFor is how long jobs are shown that have ended.
	jobsKeptFor = deadletter.KeptFor
	// maxJobsKept is how many of them a shard keeps, the newest.
	maxJobsKept = 1000
	// maxJobsOpen is how many jobs a shard has that have not ended.
	maxJobsOpen = 1000
)

// jobs are those of a shard. Of the jobs of a queue and its dead letters one runs at a
// time, the oldest first.
type jobs struct {
	mu struct {
		sync.Mutex
		byID    map[string]*job
		working map[*Queue]bool
		started bool
		ended   bool
	}
	work sync.WaitGroup
}

// list returns the jobs, the newest first.
func (s *Shard) listJobs() []*job {
	s.jobs.mu.Lock()
	defer s.jobs.mu.Unlock()
	list := make([]*job, 0, len(s.jobs.mu.byID))
	for _, j := range s.jobs.mu.byID {
		list = append(list, j)
	}
	slices.SortFunc(list, func(a, b *job) int { return cmp.Compare(b.ID, a.ID) })
	return list
}

// addJob takes a job in, and has it run when it is its turn.
func (s *Shard) addJob(j *job) {
	s.jobs.mu.Lock()
	if s.jobs.mu.byID == nil {
		s.jobs.mu.byID = make(map[string]*job)
	}
	s.jobs.mu.byID[j.ID] = j
	s.jobs.mu.Unlock()
	s.runJobs(j.q.main())
}

// startJobs has jobs run that were recovered.
func (s *Shard) startJobs() {
	s.jobs.mu.Lock()
	s.jobs.mu.started = true
	s.jobs.mu.Unlock()
	for _, j := range s.listJobs() {
		s.runJobs(j.q.main())
	}
}

// endJobs waits until no job does anything any more. The shard has ended.
func (s *Shard) endJobs() {
	s.jobs.mu.Lock()
	s.jobs.mu.ended = true
	s.jobs.mu.Unlock()
	s.jobs.work.Wait()
}

// runJobs works on the jobs of a queue, unless somebody does.
func (s *Shard) runJobs(q *Queue) {
	s.jobs.mu.Lock()
	defer s.jobs.mu.Unlock()
	if !s.jobs.mu.started || s.jobs.mu.ended || s.jobs.mu.working[q] {
		return
	}
	if s.nextJob(q) == nil {
		return
	}
	if s.jobs.mu.working == nil {
		s.jobs.mu.working = make(map[*Queue]bool)
	}
	s.jobs.mu.working[q] = true
	s.jobs.work.Go(func() {
		for {
			s.jobs.mu.Lock()
			j := s.nextJob(q)
			if j == nil || s.jobs.mu.ended || s.ended.Err() != nil {
				delete(s.jobs.mu.working, q)
				s.jobs.mu.Unlock()
				return
			}
			s.jobs.mu.Unlock()
			if !j.work() {
				select {
				case <-time.After(jobRetry):
				case <-s.ended.Done():
				}
			}
		}
	})
}

// nextJob is the job of a queue that runs next; nil: there is none. Its caller holds the
// lock of the jobs.
func (s *Shard) nextJob(q *Queue) (next *job) {
	for _, j := range s.jobs.mu.byID {
		if at, _, _ := j.standing(); j.q.main() == q && at.State == wire.JobWaiting && !j.q.deleted.Load() && (next == nil || j.ID < next.ID) {
			next = j
		}
	}
	return next
}

// recoverJobs takes in what the store has kept of jobs.
func (s *Shard) recoverJobs(kept []store.Entry, byName map[string]recovering) {
	specs, at, out, broken := recoveredJobs(kept)
	for _, name := range broken {
		s.Log.Error("a job cannot be read; it does nothing any more", "job", name)
		delete(specs, name)
	}
	for id, spec := range specs {
		if r, ok := byName[spec.Queue]; ok {
			r.from.Used(r.id, spec.Last) // what comes later is none of its messages
			s.addJob(newJob(r.Queue, spec, at[id], out[id]))
		}
	}
}

// forgetJobs has the jobs not be known any more of which fn is true, and returns under
// which keys they are kept.
func (s *Shard) forgetJobs(fn func(*job) bool) (keys []string) {
	s.jobs.mu.Lock()
	defer s.jobs.mu.Unlock()
	for id, j := range s.jobs.mu.byID {
		if fn(j) {
			delete(s.jobs.mu.byID, id)
			keys = append(keys, j.keys()...)
		}
	}
	return keys
}

// pruneJobs forgets jobs that have ended long ago, or are too many.
func (s *Shard) pruneJobs() {
	since, kept := s.Now()-int64(jobsKeptFor), 0
	old := make(map[*job]bool)
	for _, j := range s.listJobs() {
		if at, _, _ := j.standing(); at.ended() {
			if kept++; kept > maxJobsKept || at.Ended < since {
				old[j] = true
			}
		}
	}
	if len(old) == 0 {
		return
	}
	keys := s.forgetJobs(func(j *job) bool { return old[j] })
	s.store.Submit(&store.Batch{DeleteConfig: keys}) // what is lost of that is done the next time
}

// CreateJob begins a job that has been checked, or after a dry run says what it would do.
// The answer is on disk.
func (q *Queue) CreateJob(req wire.JobCreateRequest) (wire.JobInfo, *wire.Error) {
	if req.DryRun || req.IfCount != nil {
		info, werr := q.dryRun(req)
		switch {
		case werr != nil || req.DryRun:
			return info, werr
		case info.Matched != *req.IfCount:
			return wire.JobInfo{}, wire.JobCount(*req.IfCount, info.Matched)
		}
	}
	j, werr := q.createJob(req, false)
	if werr != nil {
		return wire.JobInfo{}, werr
	}
	return j.info(), nil
}

func (q *Queue) createJob(req wire.JobCreateRequest, asked bool) (*job, *wire.Error) {
	s := q.shard
	main := q.main()
	main.admin.Lock() // it is there, or the queue is deleted
	defer main.admin.Unlock()
	if main.deleted.Load() {
		return nil, wire.QueueNotFound(q.name)
	}
	s.pruneJobs()
	open := 0
	for _, j := range s.listJobs() {
		if at, _, _ := j.standing(); !at.ended() {
			open++
		}
	}
	if open >= maxJobsOpen {
		return nil, wire.LimitReached("jobs of a shard that have not ended", maxJobsOpen, capRetryAfter)
	}
	spec := jobSpec{JobCreateRequest: req, ID: formatID(newID()), CreatedAt: s.Now(), Asked: asked}
	if n := spec.kept(); n > store.MaxHeaderBytes {
		return nil, wire.BadField("the job", fmt.Sprintf("%d bytes as it is kept", n), fmt.Sprintf("at most %d", store.MaxHeaderBytes))
	}
	j := newJob(q, spec, jobProgress{State: wire.JobWaiting}, parcel{})
	if werr := j.keep(jobProgress{State: wire.JobWaiting}, true); werr != nil {
		return nil, werr
	}
	j.event(wire.EventJobCreated)
	s.Log.Info("job created", "job", j.ID, "op", j.Op, "queue", q.name, "reason", j.Reason)
	s.addJob(j)
	return j, nil
}

// job finds a job by its id.
func (s *Set) job(id string) (*job, *wire.Error) {
	for _, sh := range s.all() {
		if sh.silent() {
			continue
		}
		sh.jobs.mu.Lock()
		j := sh.jobs.mu.byID[id]
		sh.jobs.mu.Unlock()
		if j != nil {
			return j, nil
		}
	}
	return nil, wire.JobNotFound(id)
}

// Job shows a job.
func (s *Set) Job(id string) (wire.JobInfo, *wire.Error) {
	j, werr := s.job(id)
	if werr != nil {
		return wire.JobInfo{}, werr
	}
	return j.info(), nil
}

// Jobs returns a page of the jobs, newest first: those of a queue and its dead letters, or
// of all queues if queue is empty, after the job of id after. Total counts all pages.
func (s *Set) Jobs(queue, after string, limit int) (list wire.JobList) {
	var all []*job
	since := s.Now() - int64(jobsKeptFor)
	for _, sh := range s.all() {
		if !sh.silent() {
			all = append(all, sh.listJobs()...)
		}
	}
	all = slices.DeleteFunc(all, func(j *job) bool {
		at, _, _ := j.standing()
		return queue != "" && j.q.main().name != wire.Source(queue) || at.ended() && at.Ended < since
	})
	list = wire.JobList{Total: len(all), Jobs: []wire.JobInfo{}}
	if after != "" {
		all = slices.DeleteFunc(all, func(j *job) bool { return j.ID >= after })
	}
	slices.SortFunc(all, func(a, b *job) int { return cmp.Compare(b.ID, a.ID) })
	for _, j := range all[:min(limit, len(all))] {
		list.Jobs = append(list.Jobs, j.info())
	}
	if len(all) > limit {
		list.Next = list.Jobs[limit-1].ID
	}
	return list
}

// PauseJob has a job do nothing until ResumeJob. What it has done is on disk when the
// answer comes.
func (s *Set) PauseJob(id string) (wire.JobInfo, *wire.Error) { return s.stopJob(id, wire.JobPaused) }

// CancelJob ends a job. What it has done stays done.
func (s *Set) CancelJob(id string) (wire.JobInfo, *wire.Error) {
	return s.stopJob(id, wire.JobCanceled)
}

func (s *Set) stopJob(id, state string) (wire.JobInfo, *wire.Error) {
	j, werr := s.job(id)
	if werr == nil {
		werr = j.become(state)
	}
	if werr != nil {
		return wire.JobInfo{}, werr
	}
	return j.info(), nil
}

// become pauses or cancels a job, by whoever works on it if that is somebody.
func (j *job) become(state string) *wire.Error {
	for {
		changed, free := j.claim(state)
		if free {
			defer j.release()
			at, _, _ := j.standing()
			switch {
			case at.State == state:
				return nil
			case at.ended():
				return wire.JobEnded(j.ID, at.State)
			}
			if state == wire.JobCanceled {
				if werr := j.recall(); werr != nil {
					return werr
				}
				at, _, _ = j.standing()
			}
			return j.end(at, state, "")
		}
		select {
		case <-changed:
		case <-j.q.shard.ended.Done():
			return j.q.Gone()
		}
	}
}

// ResumeJob has a paused job go on.
func (s *Set) ResumeJob(id string) (wire.JobInfo, *wire.Error) {
	j, werr := s.job(id)
	if werr == nil {
		werr = j.resume()
	}
	if werr != nil {
		return wire.JobInfo{}, werr
	}
	j.q.shard.runJobs(j.q.main())
	return j.info(), nil
}

func (j *job) resume() *wire.Error {
	if _, free := j.claim(""); !free { // it runs, or is just being stopped
		return nil
	}
	defer j.release()
	at, _, _ := j.standing()
	switch {
	case at.ended():
		return wire.JobEnded(j.ID, at.State)
	case at.State != wire.JobPaused:
		return nil
	}
	at.State, at.Why = wire.JobWaiting, ""
	if werr := j.keep(at, false); werr != nil {
		return werr
	}
	j.event(wire.EventJobResumed)
	return nil
}

// end has a job be paused, done or canceled, on disk, and tells it.
func (j *job) end(at jobProgress, state, why string) *wire.Error {
	at.State, at.Why = state, why
	if at.ended() {
		at.Ended = j.q.shard.Now()
	}
	if werr := j.keep(at, false); werr != nil {
		return werr
	}
	event := map[string]string{
		wire.JobPaused: wire.EventJobPaused, wire.JobDone: wire.EventJobDone, wire.JobCanceled: wire.EventJobCanceled,
	}[state]
	j.event(event)
	s := j.q.shard
	if at.ended() {
		s.set.traces.worked(j, &at)
	}
	if at.ended() && j.Op == wire.JobRedrive && at.Done > 0 {
		name := j.q.main().name
		s.event(wire.EventRedriven, name, wire.Event{Queue: name, Data: map[string]any{"redriven": at.Done, "job": j.ID}})
	}
	s.Log.Info("job "+state, "job", j.ID, "op", j.Op, "queue", j.q.name, "done", at.Done, "why", why)
	return nil
}

// event tells news of a job.
func (j *job) event(typ string) {
	at, _, _ := j.standing()
	data := map[string]any{"job": j.ID, "op": j.Op, "matched": at.Matched, "done": at.Done}
	if at.Why != "" {
		data["why"] = at.Why
	}
	j.q.shard.event(typ, j.q.name, wire.Event{Queue: j.q.name, Data: data})
}

// Redrive moves up to count messages (0: all that are there now) of q, a dead letter
// queue, back to its queue, the oldest first: it is a job, and this waits for it. Leased
// ones are skipped, and so are those of a fairness key that is full. It stops where the
// queue is full, and returns how many it moved, and the id of the job.
func (q *Queue) Redrive(count int64) (reply wire.RedriveReply, werr *wire.Error) {
	j, werr := q.createJob(wire.JobCreateRequest{
		Queue: q.name, Op: wire.JobRedrive, Filter: &wire.Filter{All: true}, Order: wire.OrderArrival, Limit: count,
	}, true)
	if werr != nil {
		return reply, werr
	}
	reply.Job = j.ID
	for {
		j.mu.Lock()
		at, busy, refused, failed, changed := j.mu.jobProgress.clone(), j.mu.claimed, j.mu.refused, j.mu.failed, j.mu.changed
		stuck := j.mu.stuck
		j.mu.Unlock()
		reply.Redriven = at.Done
		if stuck != nil {
			return reply, stuck
		}
		if !busy && (at.ended() || at.State == wire.JobPaused) {
			if at.Done > 0 {
				refused = nil
			}
			return reply, cmp.Or(failed, refused)
		}
		select {
		case <-changed:
		case <-q.shard.ended.Done():
			return reply, q.Gone()
		}
	}
}
