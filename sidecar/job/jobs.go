package job

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

const (
	maxEnded   = 1000             // jobs of a shard that have ended and are kept, the newest
	maxOpen    = 1000             // jobs of a shard that have not ended
	openRetry  = 10 * time.Second // after which a client may try again to make another one
	writeRetry = time.Second      // before a job runs again whose state could not be written
)

// Jobs are the jobs of a shard, and the receipts of transfers from other shards. Of the
// jobs of a queue and its dead letters one runs at a time, the oldest first.
type Jobs struct {
	Options
	mu struct {
		sync.Mutex
		byID     map[string]*Job
		running  map[string]bool // queues whose jobs are run, by name
		started  bool
		stopped  bool
		incoming map[string]*incoming // by job
	}
	work sync.WaitGroup
}

// New returns the jobs of a shard that has none.
func New(o Options) *Jobs {
	js := &Jobs{Options: o}
	js.mu.byID, js.mu.running, js.mu.incoming = make(map[string]*Job), make(map[string]bool), make(map[string]*incoming)
	return js
}

// Recover reads jobs and receipts from the configuration in the store. queue returns the queue of a
// job, which does not use sequences up to last again; nil: there is no such queue.
func (js *Jobs) Recover(config []store.Entry, queue func(name string, last uint64) Queue) error {
	jobs, broken := readStored(config)
	for _, id := range broken {
		js.Log.Error("a job cannot be read; it does not run any more", "job", id)
		delete(jobs, id)
	}
	for _, s := range jobs {
		if s.spec == nil {
			continue
		}
		if q := queue(s.spec.Queue, s.spec.Last); q != nil {
			js.add(newJob(&js.Options, q, s))
		}
	}
	return js.recoverReceipts(config)
}

// Start runs jobs.
func (js *Jobs) Start() {
	js.mu.Lock()
	js.mu.started = true
	js.mu.Unlock()
	for _, j := range js.All() {
		js.runNext(j)
	}
}

// Stop waits until no job does anything any more. The shard has ended.
func (js *Jobs) Stop() {
	js.mu.Lock()
	js.mu.stopped = true
	js.mu.Unlock()
	js.work.Wait()
}

// All returns the jobs, the newest first.
func (js *Jobs) All() []*Job {
	js.mu.Lock()
	defer js.mu.Unlock()
	list := make([]*Job, 0, len(js.mu.byID))
	for _, j := range js.mu.byID {
		list = append(list, j)
	}
	slices.SortFunc(list, newestFirst)
	return list
}

func newestFirst(a, b *Job) int { return cmp.Compare(b.ID, a.ID) }

// Get finds a job by its id; nil: there is none.
func (js *Jobs) Get(id string) *Job {
	js.mu.Lock()
	defer js.mu.Unlock()
	return js.mu.byID[id]
}

func (js *Jobs) add(j *Job) {
	j.jobs = js
	js.mu.Lock()
	js.mu.byID[j.ID] = j
	js.mu.Unlock()
	js.runNext(j)
}

// runNext runs the jobs of the queue of j, unless they are being run.
func (js *Jobs) runNext(j *Job) {
	name := j.source()
	js.mu.Lock()
	defer js.mu.Unlock()
	if !js.mu.started || js.mu.stopped || js.mu.running[name] || js.next(name) == nil {
		return
	}
	js.mu.running[name] = true
	js.work.Go(func() {
		for {
			js.mu.Lock()
			j := js.next(name)
			if j == nil || js.mu.stopped || js.Ended.Err() != nil {
				delete(js.mu.running, name)
				js.mu.Unlock()
				return
			}
			js.mu.Unlock()
			if !j.run() {
				select {
				case <-time.After(writeRetry):
				case <-js.Ended.Done():
				}
			}
		}
	})
}

// Wake runs the waiting jobs of a queue.
func (js *Jobs) Wake(source string) {
	for _, j := range js.All() {
		if j.source() == source {
			js.runNext(j)
			return
		}
	}
}

// next returns the next job of a queue; nil: there is none. Its caller holds the lock.
func (js *Jobs) next(source string) (next *Job) {
	for _, j := range js.mu.byID {
		if j.source() == source && (next == nil || j.ID < next.ID) && !j.queue.Deleted() && j.shown().State == api.JobWaiting {
			next = j
		}
	}
	return next
}

// Forget removes the jobs of a queue that is deleted, and returns the keys of their entries
// in the store.
func (js *Jobs) Forget(queue string) []string {
	return js.forget(func(j *Job) bool { return j.source() == queue })
}

func (js *Jobs) forget(which func(*Job) bool) (keys []string) {
	js.mu.Lock()
	defer js.mu.Unlock()
	for id, j := range js.mu.byID {
		if which(j) {
			delete(js.mu.byID, id)
			keys = append(keys, j.keys()...)
		}
	}
	return keys
}

// prune removes jobs that have ended long ago, or are too many, and returns how many have
// not ended.
func (js *Jobs) prune() (open int) {
	since, ended := js.Now()-int64(KeptFor), 0
	old := make(map[*Job]bool)
	for _, j := range js.All() {
		at := j.shown()
		if !at.ended() {
			open++
		} else if ended++; ended > maxEnded || at.Ended < since {
			old[j] = true
		}
	}
	if len(old) > 0 {
		keys := js.forget(func(j *Job) bool { return old[j] })
		js.Submit(&store.Batch{DeleteConfig: keys}) // if that fails, it is done after the next start
	}
	return open
}

// Create creates a job from a checked request, or returns what it would do if the request is a dry
// run. A created job is on disk.
func (js *Jobs) Create(q Queue, req api.JobCreateRequest) (api.JobInfo, *wire.Error) {
	if req.DryRun || req.IfCount != nil {
		info, werr := js.dryRun(q, req)
		switch {
		case werr != nil || req.DryRun:
			return info, werr
		case info.Matched != *req.IfCount:
			return api.JobInfo{}, wire.JobCount(*req.IfCount, info.Matched)
		}
	}
	j, werr := js.create(q, req, false)
	if werr != nil {
		return api.JobInfo{}, werr
	}
	return j.Info(), nil
}

func (js *Jobs) create(q Queue, req api.JobCreateRequest, byRedrive bool) (*Job, *wire.Error) {
	unlock, werr := q.Lock() // the job is there, or the queue is deleted
	if werr != nil {
		return nil, werr
	}
	defer unlock()
	if js.prune() >= maxOpen {
		return nil, wire.LimitReached("jobs of a shard that have not ended", maxOpen, openRetry)
	}
	s := &spec{JobCreateRequest: req, ID: js.NewID(), CreatedAt: js.Now(), ByRedrive: byRedrive}
	if n := s.storedSize(); n > store.MaxHeaderBytes {
		return nil, wire.BadField("the job", fmt.Sprintf("%d bytes as it is kept", n), fmt.Sprintf("at most %d", store.MaxHeaderBytes))
	}
	j := newJob(&js.Options, q, &stored{spec: s, progress: progress{State: api.JobWaiting}})
	if werr := j.worker.write(&j.machine.at, true); werr != nil {
		return nil, werr
	}
	j.worker.event(wire.EventJobCreated, &j.machine.at)
	js.Log.Info("job created", "job", j.ID, "op", j.Op, "queue", q.Name(), "reason", j.Reason)
	js.add(j)
	return j, nil
}

// Redrive moves up to count messages of a dead letter queue back to their queue, 0: all
// that are there now, the oldest first. It is a job, and Redrive waits for it. Messages in
// flight stay, and so do messages of a fairness key that is full. It stops where the queue
// is full.
func (js *Jobs) Redrive(q Queue, count int64) (reply api.RedriveReply, werr *wire.Error) {
	j, werr := js.create(q, api.JobCreateRequest{
		Queue: q.Name(), Op: api.JobRedrive, Filter: &api.Filter{All: true}, Order: api.OrderArrival, Limit: count,
	}, true)
	if werr != nil {
		return reply, werr
	}
	reply.Job = j.ID
	for {
		j.mu.Lock()
		s, idle, changed := j.mu.snapshot, !j.mu.claimed, j.mu.changed
		j.mu.Unlock()
		reply.Redriven = s.Done
		switch {
		case s.stuck != nil:
			return reply, s.stuck
		case !idle || !s.ended() && s.State != api.JobPaused:
		case s.Done > 0:
			return reply, s.failed
		default:
			return reply, cmp.Or(s.failed, s.refused)
		}
		select {
		case <-changed:
		case <-js.Ended.Done():
			return reply, q.Gone()
		}
	}
}

// Page returns a page of jobs, newest first: jobs of a queue and its dead letters, or all
// if queue is empty, after the job with the id after. Total counts all pages.
func Page(jobs []*Job, queue, after string, limit int, now int64) (list api.JobList) {
	since := now - int64(KeptFor)
	jobs = slices.DeleteFunc(jobs, func(j *Job) bool {
		at := j.shown()
		return queue != "" && j.source() != wire.Source(queue) || at.ended() && at.Ended < since
	})
	list = api.JobList{Total: len(jobs), Jobs: []api.JobInfo{}}
	if after != "" {
		jobs = slices.DeleteFunc(jobs, func(j *Job) bool { return j.ID >= after })
	}
	slices.SortFunc(jobs, newestFirst)
	for _, j := range jobs[:min(limit, len(jobs))] {
		list.Jobs = append(list.Jobs, j.Info())
	}
	if len(jobs) > limit {
		list.Next = list.Jobs[limit-1].ID
	}
	return list
}

// Job is a job of a queue.
type Job struct {
	*spec
	jobs    *Jobs
	queue   Queue
	machine machine // used by the goroutine that has claimed the job
	worker  worker  // likewise

	mu struct {
		sync.Mutex
		snapshot
		claimed bool          // a goroutine drives the machine
		stop    string        // the state that a verb waits for; empty: none does
		changed chan struct{} // closed when something of this has changed
	}
}

// snapshot is a copy of the state of a machine for readers.
type snapshot struct {
	progress
	running                bool
	parked                 int
	refused, failed, stuck *wire.Error
}

func newJob(o *Options, q Queue, s *stored) *Job {
	j := &Job{spec: s.spec, queue: q, worker: worker{Options: o, spec: s.spec, queue: q}}
	j.machine = machine{spec: s.spec, at: s.progress, transfer: s.transfer}
	j.mu.changed = make(chan struct{})
	j.publish()
	return j
}

// source is the name of the queue of the job; for a job about dead letters, the queue that they
// died in.
func (j *Job) source() string { return wire.Source(j.queue.Name()) }

// notify wakes all who wait for a change of the job. Its caller holds the lock.
func (j *Job) notify() {
	close(j.mu.changed)
	j.mu.changed = make(chan struct{})
}

// publish publishes the state of the machine. The next change closes the channel that it returns.
func (j *Job) publish() (changed <-chan struct{}) {
	m := &j.machine
	j.mu.Lock()
	defer j.mu.Unlock()
	j.mu.snapshot = snapshot{
		progress: m.at.clone(), running: m.running, parked: len(m.transfer.parked()),
		refused: m.refused, failed: m.failed, stuck: m.stuck,
	}
	j.notify()
	return j.mu.changed
}

// shown returns the progress of the job. Nobody changes what it returns.
func (j *Job) shown() progress {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.mu.progress
}

func (j *Job) wanted() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.mu.stop
}

// claim gives the machine to the caller until release. If another goroutine has it, claim
// asks that one to bring the job to state, unless state is empty; changed is closed with the
// next change.
func (j *Job) claim(state string) (changed <-chan struct{}, ok bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !j.mu.claimed {
		j.mu.claimed = true
		return nil, true
	}
	changed = j.mu.changed
	if state != "" && state != j.mu.stop {
		j.mu.stop = state
		j.notify()
		changed = j.mu.changed
	}
	return changed, false
}

func (j *Job) release() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.mu.claimed, j.mu.stop = false, ""
	j.notify()
}

// run runs the job until it is done, stopped, or the shard ends. It reports false if its
// state cannot be written.
func (j *Job) run() bool {
	changed, ok := j.claim("")
	if !ok {
		select {
		case <-changed:
		case <-j.jobs.Ended.Done():
		}
		return true
	}
	defer j.release()
	_ = j.drive(j.worker.run()) // it waits for no verb
	return j.machine.stuck == nil
}

// Pause stops the job until it is resumed. All that it has done is on disk then.
func (j *Job) Pause() *wire.Error { return j.become(api.JobPaused) }

// Cancel ends the job. Its changes so far stay.
func (j *Job) Cancel() *wire.Error { return j.become(api.JobCanceled) }

// become stops the job, or has the goroutine that drives it stop it.
func (j *Job) become(state string) *wire.Error {
	for {
		changed, free := j.claim(state)
		if free {
			defer j.release()
			return j.drive(stop{state})
		}
		select {
		case <-changed:
		case <-j.jobs.Ended.Done():
			return j.queue.Gone()
		}
	}
}

// Resume has a paused job go on when it is its turn.
func (j *Job) Resume() *wire.Error {
	if _, free := j.claim(""); free { // otherwise it runs, or is just being stopped
		werr := j.drive(resume{})
		j.release()
		if werr != nil {
			return werr
		}
	}
	j.jobs.runNext(j)
	return nil
}

// Info describes the job.
func (j *Job) Info() api.JobInfo {
	j.mu.Lock()
	s := j.mu.snapshot
	j.mu.Unlock()
	i := api.JobInfo{
		ID: j.ID, JobCreateRequest: j.JobCreateRequest, State: s.State, Why: s.Why, CreatedAt: wire.Timestamp(j.CreatedAt),
		Matched: s.Matched, Done: s.Done, Left: s.Left, NewSince: s.NewSince, UnderWay: int64(s.parked),
	}
	i.Payload = nil // it may be large
	if s.running && s.State == api.JobWaiting {
		i.State = api.JobRunning
	}
	if s.Started != 0 {
		i.StartedAt = wire.Timestamp(s.Started)
	}
	if s.Ended != 0 {
		i.EndedAt = wire.Timestamp(s.Ended)
	}
	return i
}
