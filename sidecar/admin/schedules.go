package admin

import (
	"cmp"

	"github.com/filaq/fila/sidecar/control"
	"github.com/filaq/fila/sidecar/shard"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

func (a *Admin) scheduleAdd(by control.Actor, q *shard.Queue, req api.ScheduleAddRequest) (api.ScheduleInfo, *wire.Error) {
	return a.keepSchedule(by, q, req.Name, func() (info api.ScheduleInfo, err *wire.Error) {
		object, changes := control.ScheduleObject(q.Name(), req.Name), "made"
		before, missing := q.Schedule(req.Name)
		if missing == nil {
			changes = "schedule " + wire.Quote(before.Schedule) + " -> " + wire.Quote(req.Schedule)
		}
		warnings, err := a.control.Claim(by, object, changes)
		if err != nil {
			return info, err
		}
		info, err = q.AddSchedule(req)
		if err != nil && missing != nil && err.ErrCode != wire.CodeOutcomeUnknown {
			a.control.Disown(by, object)
		}
		info.Warnings = warnings
		return info, err
	})
}

func (a *Admin) scheduleDelete(by control.Actor, q *shard.Queue, req api.ScheduleRequest) (api.ScheduleInfo, *wire.Error) {
	return a.keepSchedule(by, q, req.Name, func() (info api.ScheduleInfo, err *wire.Error) {
		object := control.ScheduleObject(q.Name(), req.Name)
		warnings, err := a.control.ClaimDeletion(by, object)
		if err != nil {
			return info, err
		}
		if info, err = q.DeleteSchedule(req.Name); err == nil {
			a.control.Disown(by, object)
		}
		info.Warnings = warnings
		return info, err
	})
}

func scheduleShow(q *shard.Queue, req api.ScheduleRequest) (api.ScheduleInfo, *wire.Error) {
	return q.Schedule(req.Name)
}

// changeSchedule returns the function of a verb that changes one schedule.
func (a *Admin) changeSchedule(change func(*shard.Queue, string) (api.ScheduleInfo, *wire.Error)) func(control.Actor, *shard.Queue, api.ScheduleRequest) (api.ScheduleInfo, *wire.Error) {
	return func(by control.Actor, q *shard.Queue, req api.ScheduleRequest) (api.ScheduleInfo, *wire.Error) {
		return a.keepSchedule(by, q, req.Name, func() (api.ScheduleInfo, *wire.Error) { return change(q, req.Name) })
	}
}

// keepSchedule makes a change of one schedule and records it.
func (a *Admin) keepSchedule(by control.Actor, q *shard.Queue, name string, change func() (api.ScheduleInfo, *wire.Error)) (api.ScheduleInfo, *wire.Error) {
	object := control.ScheduleObject(q.Name(), name)
	defer a.objects.lock(object)()
	info, err := change()
	unknown := err != nil && err.ErrCode == wire.CodeOutcomeUnknown && info.Name != "" // it may be on disk
	if err == nil && !info.Unchanged || unknown {
		a.audit(by, object, info)
	}
	return info, err
}

func (a *Admin) scheduleList(req api.ScheduleListRequest) (l api.ScheduleList, err *wire.Error) {
	if req.Queue != "" {
		if _, err := a.queue(req.Queue); err != nil {
			return l, err
		}
	}
	return a.shards.Schedules(wire.Source(req.Queue), req.After, req.Limit), nil
}

// listSchedules lists the schedules of all nodes by queue and name.
var listSchedules = listAll(api.VerbScheduleList, (*api.ScheduleList).Page, func(r api.ScheduleListRequest) int { return r.Limit },
	func(a, b api.ScheduleInfo) int {
		return cmp.Or(cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.Name, b.Name))
	})
