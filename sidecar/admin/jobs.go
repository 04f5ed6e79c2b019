package admin

import (
	"cmp"
	"time"

	"github.com/filaq/fila/sidecar/control"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

func (a *Admin) jobCreateVerb() Verb {
	v := changes(api.VerbJobCreate, a.jobCreate).at(byBody, nil).waiting()
	v.rewrite = a.jobOfSubject
	return v
}

// jobOfSubject returns the body of a request with op and queue of its subject, and with
// absolute times. Another node, maybe of another version, then carries out exactly the
// request that permissions were checked for.
func (a *Admin) jobOfSubject(tail string, body []byte) ([]byte, *wire.Error) {
	req, err := api.VerbJobCreate.Parse(tail, body)
	if err == nil {
		err = req.Resolve(a.now())
	}
	if err != nil {
		return nil, err
	}
	return a.encode(req)
}

func (a *Admin) jobCreate(by control.Actor, req api.JobCreateRequest) (info api.JobInfo, err *wire.Error) {
	if err := req.Resolve(a.now()); err != nil {
		return info, err
	}
	q, err := a.queue(req.Queue)
	if err != nil {
		return info, err
	}
	if info, err = q.CreateJob(req); err == nil && !req.DryRun {
		a.audit(by, "job:"+info.ID, info)
	}
	return info, err
}

// jobShow returns a job, and of a redrive also how many of its messages came back. One job of a queue and
// its dead letters runs at a time, so the times of redrives say which job made them.
func (a *Admin) jobShow(req api.JobRequest) (api.JobInfo, *wire.Error) {
	info, err := a.shards.Job(req.ID)
	if err != nil || info.Op != api.JobRedrive || info.StartedAt == "" {
		return info, err
	}
	q := a.shards.Queue(wire.DLQ(wire.Source(info.Queue)))
	if q == nil {
		return info, nil // deleted
	}
	since, until := timeOf(info.StartedAt), a.now()
	if info.EndedAt != "" {
		until = timeOf(info.EndedAt)
	}
	n, err := q.CameBack(since.UnixNano(), until.UnixNano())
	if err == nil {
		info.CameBack = &n
	}
	return info, err
}

// timeOf parses a time that this process has written.
func timeOf(text string) time.Time {
	at, _ := time.Parse(time.RFC3339Nano, text)
	return at
}

func (a *Admin) jobList(req api.JobListRequest) (api.JobList, *wire.Error) {
	if req.Queue != "" {
		if _, err := a.queue(req.Queue); err != nil {
			return api.JobList{}, err
		}
	}
	return a.shards.Jobs(req.Queue, req.After, req.Limit), nil
}

// listJobs lists the jobs of all nodes, newest first.
var listJobs = listAll(api.VerbJobList, (*api.JobList).Page, func(r api.JobListRequest) int { return r.Limit },
	func(a, b api.JobInfo) int { return cmp.Compare(b.ID, a.ID) })
