package admin

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"

	"github.com/filaq/fila/wire"
)

// jobCreateVerb is the verb that makes jobs. Its subject may say which op it has, about which
// queue.
func (a *Admin) jobCreateVerb() Verb {
	v := bareVerb(wire.VerbJobCreate, a.parseJobCreate, a.jobCreate).at(byBody, nil)
	v.Tail, v.withTail = OpAndQueue, a.jobOfSubject
	return v
}

// jobOfSubject returns a request that says what its subject says. It is written anew, so that
// whoever reads it next, which may be another version, finds the op that was checked.
func (a *Admin) jobOfSubject(tail string, body []byte) ([]byte, *wire.Error) {
	req, err := wire.ParseJobCreateOf(tail, body, time.Unix(0, a.shards.Now()))
	if err != nil {
		return nil, err
	}
	data, merr := json.Marshal(req)
	if merr != nil {
		return nil, wire.Internal(merr.Error())
	}
	return data, nil
}

// parseJobCreate resolves the times of a request against the clock of the queues.
func (a *Admin) parseJobCreate(body []byte) (wire.JobCreateRequest, *wire.Error) {
	return wire.ParseJobCreate(body, time.Unix(0, a.shards.Now()))
}

func (a *Admin) jobCreate(req wire.JobCreateRequest) (wire.JobInfo, *wire.Error) {
	q, err := a.queue(req.Queue)
	if err != nil {
		return wire.JobInfo{}, err
	}
	return q.CreateJob(req)
}

func (a *Admin) jobShow(req wire.JobRequest) (wire.JobInfo, *wire.Error) { return a.shards.Job(req.ID) }

func (a *Admin) jobPause(req wire.JobRequest) (wire.JobInfo, *wire.Error) {
	return a.shards.PauseJob(req.ID)
}

func (a *Admin) jobResume(req wire.JobRequest) (wire.JobInfo, *wire.Error) {
	return a.shards.ResumeJob(req.ID)
}

func (a *Admin) jobCancel(req wire.JobRequest) (wire.JobInfo, *wire.Error) {
	return a.shards.CancelJob(req.ID)
}

func (a *Admin) jobList(req wire.JobListRequest) (wire.JobList, *wire.Error) {
	if req.Queue != "" {
		if _, err := a.queue(req.Queue); err != nil {
			return wire.JobList{}, err
		}
	}
	return a.shards.Jobs(req.Queue, req.After, req.Limit), nil
}

func noJob(_ []byte, err *wire.Error) bool { return err != nil && err.ErrCode == wire.CodeJobNotFound }

// listJobs lists the jobs of all nodes, the newest first.
func listJobs(v Verb, r request) (reply []byte, werr *wire.Error) {
	req, werr := wire.ParseJobList(r.body)
	if werr != nil {
		return nil, werr
	}
	all := wire.JobList{Jobs: []wire.JobInfo{}}
	more := false
	all.Missing = v.everywhere(r, func(reply []byte, refused *wire.Error) bool {
		var part wire.JobList
		if refused != nil || json.Unmarshal(reply, &part) != nil {
			werr = cmp.Or(refused, wire.Internal("a list of jobs cannot be read"))
			return false
		}
		all.Total += part.Total
		all.Jobs, more = append(all.Jobs, part.Jobs...), more || part.Next != ""
		return true
	})
	if werr != nil {
		return nil, werr
	}
	slices.SortFunc(all.Jobs, func(a, b wire.JobInfo) int { return cmp.Compare(b.ID, a.ID) })
	// One whose queue has been handed over meanwhile is there twice.
	all.Jobs = slices.CompactFunc(all.Jobs, func(a, b wire.JobInfo) bool { return a.ID == b.ID })
	if len(all.Jobs) > req.Limit || more && len(all.Jobs) > 0 {
		all.Jobs = all.Jobs[:min(req.Limit, len(all.Jobs))]
		all.Next = all.Jobs[len(all.Jobs)-1].ID
	}
	data, werr := encode(all)
	if werr == nil && int64(len(data)) > v.most() {
		return encode(all.Shorten(int(v.most())))
	}
	return data, werr
}
