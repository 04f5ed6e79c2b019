package job

import (
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/filaq/fila/sidecar/finder"
	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/sidecar/queue/inspect"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// maxTried bounds how many messages a dry run offers to the target, so that it ends within
// seconds: it reads each, and runs on_enqueue of the target for it.
const maxTried = 100_000

// trial is a dry run: it offers messages to the target, which takes none.
type trial struct {
	worker
	full           *wire.Error // why no more messages fit
	left           progress    // Left: the messages that the job would leave
	tried, untried int64       // untried messages count as eligible
}

// dryRun returns what a job would do, or for a request with IfCount how many messages match.
func (js *Jobs) dryRun(q Queue, req api.JobCreateRequest) (api.JobInfo, *wire.Error) {
	info := api.JobInfo{JobCreateRequest: req, State: api.JobWaiting}
	info.Payload = nil
	var last uint64
	q.View(func(m *queue.Queue, role queue.Role, _ int64) { last = m.LastSeq(role) })
	fd, werr := q.Finder(*req.Filter, last)
	if werr != nil {
		return info, werr
	}
	t, werr := js.newTrial(q, req)
	if werr != nil {
		return info, werr
	}
	defer t.close()
	var found []inspect.MessageView
	for from, more := uint64(0), true; more; more = from != 0 {
		if found, from, werr = fd.Find(from, scanMessages, scanMessages, found); werr != nil {
			return info, werr
		}
		info.Matched += int64(len(found))
		eligible := slices.DeleteFunc(found, func(v inspect.MessageView) bool {
			why := leftBy(req.Op, v.State)
			if why != "" {
				t.left.leave(why, 1)
			}
			return why != ""
		})
		if req.DryRun && (req.Limit == 0 || info.Eligible < req.Limit) {
			if eligible, werr = t.offer(eligible); werr != nil {
				return info, werr
			}
		}
		info.Eligible += int64(len(eligible))
		for i := range eligible[:min(len(eligible), api.JobSamples-len(info.Samples))] {
			v := &eligible[i]
			info.Samples = append(info.Samples, api.JobSample{
				ID: uuid.UUID(v.ID).String(), Key: wire.ShowKey(v.Key), State: finder.StateName(v.State, q.IsDLQ()), EnqueuedAt: wire.Timestamp(v.EnqueuedAt),
			})
		}
	}
	info.Left = t.left.Left
	if req.Limit > 0 {
		info.Eligible = min(info.Eligible, req.Limit)
	}
	info.Why = t.why(req.Limit == 0 || info.Eligible < req.Limit)
	return info, nil
}

// newTrial begins a trial, or returns why the job could not begin.
func (js *Jobs) newTrial(q Queue, req api.JobCreateRequest) (*trial, *wire.Error) {
	t := &trial{worker: worker{Options: &js.Options, spec: &spec{JobCreateRequest: req}, queue: q, dry: true}}
	if !req.DryRun || !t.rewrites() {
		return t, nil
	}
	if _, remote := t.route(); remote {
		return t, t.refuseTransfers()
	}
	if _, werr := t.findTarget(); werr != nil {
		return nil, werr
	}
	return t, t.barrier() // so that all messages can be read
}

// close ends what the target keeps for the trial.
func (t *trial) close() {
	if t.admission != nil {
		t.admission.Close()
	}
}

// offer returns the messages that the job would change, up to the first one for which there is no
// room.
func (t *trial) offer(list []inspect.MessageView) ([]inspect.MessageView, *wire.Error) {
	if _, remote := t.route(); remote || !t.rewrites() {
		return list, nil
	}
	kept := list[:0]
	for len(list) > 0 && t.full == nil {
		if t.tried >= maxTried {
			t.untried += int64(len(list))
			return append(kept, list...), nil
		}
		part := list[:min(batchSize, len(list))]
		t.tried += int64(len(part))
		list = list[len(part):]
		b := &batch{spec: t.spec}
		for i := range part {
			v := &part[i]
			b.candidates = append(b.candidates, candidate{position{Seq: v.Seq, EnqueuedAt: v.EnqueuedAt, ID: v.ID}, v.Size})
		}
		if werr := t.admit(b); werr != nil {
			return nil, werr
		}
		t.full = b.full
		for i, o := range b.outcomes {
			switch {
			case o == outcomeUnreadable && errors.Is(b.readErr, store.ErrNotFound):
				t.left.leave(api.LeftGone, 1)
			case o != outcomeTaken:
				t.left.leave(leftReasons[o], 1)
			default:
				if t.admission.stay && t.Key != "" {
					t.admission.ReleaseKey(part[i].Key)
				}
				kept = append(kept, part[i])
			}
		}
	}
	return kept, nil
}

// why returns what would stop the job before its limit, or what the trial has not tried.
func (t *trial) why(belowLimit bool) string {
	switch {
	case t.full != nil && belowLimit:
		return t.full.Description
	case t.untried > 0:
		return fmt.Sprintf("the dry run has tried %d messages; it counts %d more as eligible, which the target may refuse", t.tried, t.untried)
	}
	return ""
}
