package shard

import (
	"context"

	"github.com/filaq/fila/hooks"
	"github.com/filaq/fila/sidecar/deadletter"
	"github.com/filaq/fila/sidecar/job"
	"github.com/filaq/fila/sidecar/policy"
	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// newJobs returns the jobs of the shard, see [job.Jobs].
func (s *Shard) newJobs() *job.Jobs {
	return job.New(job.Options{
		Shard: s.number, Log: s.Log, Now: s.Now, Signer: s.Signer, Tracer: s.Tracer, Ended: s.ended, Wait: s.wait,
		NewID:      func() string { return formatID(newID()) },
		MaxPayload: s.Conn.MaxPayload,
		Commit:     s.commit,
		Submit:     s.store.Submit,
		Plain:      func() bool { return s.Plain != nil && s.Plain() },
		Event: func(typ, name string, data map[string]any) {
			s.event(typ, name, wire.Event{Queue: name, Data: data})
		},
		Find: func(name string) (job.Queue, *wire.Error) {
			q, werr := s.set.Find(name)
			switch {
			case werr != nil:
				return nil, werr
			case q.shard != s: // it has just been created there
				return nil, wire.NoOwner(name)
			}
			return jobQueue{q}, nil
		},
		Where: func(name string) (int, bool) {
			if s.Placement == nil || s.Send == nil {
				return s.number, true
			}
			return s.Placement.Where(name)
		},
		Send: func(ctx context.Context, shard int, body []byte) ([]byte, error) { return s.Send(ctx, shard, body) },
	})
}

// recoverJobs recovers jobs and receipts.
func (s *Shard) recoverJobs(config []store.Entry, byName map[string]recovering) error {
	return s.jobs.Recover(config, func(name string, last uint64) job.Queue {
		r, ok := byName[name]
		if !ok {
			return nil
		}
		r.from.Used(r.id, last)
		return jobQueue{r.Queue}
	})
}

// jobQueue is a queue as jobs need it.
type jobQueue struct{ *Queue }

func (q jobQueue) Source() job.Queue { return jobQueue{q.source} }

func (q jobQueue) Deleted() bool { return q.deleted.Load() }

func (q jobQueue) Redrives() *deadletter.Redrives { return &q.redrives }

func (q jobQueue) Lock() (unlock func(), werr *wire.Error) {
	main := q.main()
	main.admin.Lock()
	if main.deleted.Load() {
		main.admin.Unlock()
		return nil, wire.QueueNotFound(q.name)
	}
	return main.admin.Unlock, nil
}

func (q jobQueue) Change(changes ...queue.Change) (job.Answer, bool) {
	in := make([]queue.Input, len(changes))
	for i := range changes {
		in[i] = q.changed(changes[i])
	}
	return q.run.do(in...)
}

func (q jobQueue) ClaimAndComplete(c queue.Claim, fn func(c *queue.Claimed, last uint64) queue.Complete) bool {
	r := q.run
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return false
	}
	answer := r.step(append(r.mail.take(r.spare), q.changed(c)))
	r.step([]queue.Input{q.changed(fn(answer.Claimed, r.machine.LastSeq(q.side)))})
	return true
}

func (q jobQueue) AddDepth(messages, bytes int64) {
	q.depth.Add(messages)
	q.bytes.Add(bytes)
}

func (q jobQueue) Admit(dry bool) (job.Target, *wire.Error) {
	to := q.main() // whose policy decides about dead letters, too
	t := jobTarget{queue: q.Queue, main: to, Policy: to.policy.Load()}
	if !dry {
		return t, nil
	}
	p, over, err := q.shard.policies.Trial(t.Policy)
	if err != nil {
		return nil, wire.HookLoad(to.name, string(hooks.OnEnqueue), policy.Brief(err))
	}
	t.Policy = p
	return &dryTarget{jobTarget: t, keys: make(map[string]int64), close: over}, nil
}

// jobTarget is a queue that decides about messages of jobs.
type jobTarget struct {
	queue, main *Queue
	*policy.Policy
}

func (t jobTarget) Room(messages, bytes, size int64) *wire.Error {
	return t.queue.room(t.Policy, messages, bytes, size)
}

func (t jobTarget) CountKey(key string) (queue.KeyCounts, *wire.Error) {
	return t.main.countPending(&t.Settings, key)
}

func (t jobTarget) ReleaseKey(string) {}
func (t jobTarget) Close()            {}

// dryTarget decides for a dry run: it remembers what the messages so far would have taken.
type dryTarget struct {
	jobTarget
	keys  map[string]int64
	close func()
}

// Room ignores that the disk is behind: a job waits for it.
func (t *dryTarget) Room(messages, bytes, size int64) *wire.Error {
	werr := t.jobTarget.Room(messages, bytes, size)
	if werr != nil && werr.ErrCode == wire.CodeBacklogUncommitted {
		return t.queue.fits(t.Policy, messages, bytes, size)
	}
	return werr
}

func (t *dryTarget) CountKey(key string) (queue.KeyCounts, *wire.Error) {
	counts, limit := t.main.perKey.Load(), t.Settings.MaxPendingPerKey
	if counts == nil || limit <= 0 {
		return nil, nil
	}
	if counts.of(key)+t.keys[key] >= limit {
		return nil, wire.KeyPending(t.main.name, key, limit, fullRetryAfter)
	}
	t.keys[key]++
	return nil, nil
}

func (t *dryTarget) ReleaseKey(key string) { t.keys[key]-- }
func (t *dryTarget) Close()                { t.close() }

// CreateJob creates a job of a checked request, or returns what a dry run would do. The job
// is on disk then.
func (q *Queue) CreateJob(req api.JobCreateRequest) (api.JobInfo, *wire.Error) {
	return q.shard.jobs.Create(jobQueue{q}, req)
}

// Redrive moves up to count messages of q, a dead letter queue, back to their queue, 0: all.
// It creates a job and waits for it, see [job.Jobs.Redrive].
func (q *Queue) Redrive(count int64) (api.RedriveReply, *wire.Error) {
	return q.shard.jobs.Redrive(jobQueue{q}, count)
}

// Receive handles a request of another shard, see [job.Receive].
func (s *Set) Receive(body []byte) ([]byte, *wire.Error) {
	return job.Receive(s.Signer, body, func(number int) *job.Jobs {
		sh := s.Shard(number)
		if sh == nil || sh.silent() || sh.failed() || sh.ended.Err() != nil {
			return nil
		}
		return sh.jobs
	})
}

// Jobs returns a page of jobs, see [job.Page].
func (s *Set) Jobs(queue, after string, limit int) api.JobList {
	var all []*job.Job
	for _, sh := range s.all() {
		if !sh.silent() {
			all = append(all, sh.jobs.All()...)
		}
	}
	return job.Page(all, queue, after, limit, s.Now())
}

// Job describes a job.
func (s *Set) Job(id string) (api.JobInfo, *wire.Error) {
	return s.onJob(id, func(*job.Job) *wire.Error { return nil })
}

// PauseJob pauses a job, see [job.Job.Pause].
func (s *Set) PauseJob(id string) (api.JobInfo, *wire.Error) { return s.onJob(id, (*job.Job).Pause) }

// ResumeJob resumes a job, see [job.Job.Resume].
func (s *Set) ResumeJob(id string) (api.JobInfo, *wire.Error) { return s.onJob(id, (*job.Job).Resume) }

// CancelJob cancels a job, see [job.Job.Cancel].
func (s *Set) CancelJob(id string) (api.JobInfo, *wire.Error) { return s.onJob(id, (*job.Job).Cancel) }

// onJob calls fn for a job, and describes the job then.
func (s *Set) onJob(id string, fn func(*job.Job) *wire.Error) (api.JobInfo, *wire.Error) {
	for _, sh := range s.all() {
		if sh.silent() {
			continue
		}
		if j := sh.jobs.Get(id); j != nil {
			if werr := fn(j); werr != nil {
				return api.JobInfo{}, werr
			}
			return j.Info(), nil
		}
	}
	return api.JobInfo{}, wire.JobNotFound(id)
}

// TransferVerb is [job.TransferVerb].
const TransferVerb = job.TransferVerb
