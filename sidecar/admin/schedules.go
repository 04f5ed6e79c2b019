package admin

import (
	"cmp"

	"github.com/filaq/fila/sidecar/control"
	"github.com/filaq/fila/sidecar/shard"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

func (a *Admin) scheduleAdd(by control.Actor, q *shard.Queue, req api.ScheduleAddRequest) (api.ScheduleInfo, *wire.Error) {
	return a.changeOwnedSchedule(by, q, req.Name, false, func(before *api.ScheduleInfo) string {
		return api.ScheduleChange(before.Schedule, req.Schedule)
	}, func() (api.ScheduleInfo, *wire.Error) { return q.AddSchedule(req) })
}

func (a *Admin) scheduleDelete(by control.Actor, q *shard.Queue, req api.ScheduleRequest) (api.ScheduleInfo, *wire.Error) {
	return a.changeOwnedSchedule(by, q, req.Name, true, func(*api.ScheduleInfo) string { return "deleted" },
		func() (api.ScheduleInfo, *wire.Error) { return q.DeleteSchedule(req.Name) })
}

// changeOwnedSchedule changes a schedule, unless it belongs to another owner. changes describes the
// change of a schedule that exists.
func (a *Admin) changeOwnedSchedule(
	by control.Actor, q *shard.Queue, name string, deletes bool, changes func(before *api.ScheduleInfo) string, change func() (api.ScheduleInfo, *wire.Error),
) (info api.ScheduleInfo, err *wire.Error) {
	o := control.ObjectChange{Object: control.ScheduleObject(q.Name(), name), Deleted: deletes}
	defer a.objects.lock(o.Object)()
	if before, missing := q.Schedule(name); missing != nil {
		o.New = true
	} else {
		o.Changes = changes(&before)
	}
	warnings, err := a.control.ChangeObject(by, o, func() (err *wire.Error) {
		info, err = a.auditSchedule(by, o.Object, change)
		return err
	})
	info.Warnings = warnings
	return info, err
}

func scheduleShow(q *shard.Queue, req api.ScheduleRequest) (api.ScheduleInfo, *wire.Error) {
	return q.Schedule(req.Name)
}

// changeSchedule returns the function of a verb that stops or starts one schedule, which needs no owner.
func (a *Admin) changeSchedule(change func(*shard.Queue, string) (api.ScheduleInfo, *wire.Error)) func(control.Actor, *shard.Queue, api.ScheduleRequest) (api.ScheduleInfo, *wire.Error) {
	return func(by control.Actor, q *shard.Queue, req api.ScheduleRequest) (api.ScheduleInfo, *wire.Error) {
		object := control.ScheduleObject(q.Name(), req.Name)
		defer a.objects.lock(object)()
		return a.auditSchedule(by, object, func() (api.ScheduleInfo, *wire.Error) { return change(q, req.Name) })
	}
}

// auditSchedule makes a change of one schedule and records it.
func (a *Admin) auditSchedule(by control.Actor, object string, change func() (api.ScheduleInfo, *wire.Error)) (api.ScheduleInfo, *wire.Error) {
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
