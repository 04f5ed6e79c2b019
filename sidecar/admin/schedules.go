package admin

import (
	"cmp"
	"encoding/json"
	"slices"

	"github.com/filaq/fila/sidecar/shard"
	"github.com/filaq/fila/wire"
)

// bySchedule is what a verb does about a schedule that is named.
func bySchedule(do func(*shard.Queue, string) (wire.ScheduleInfo, *wire.Error)) func(*shard.Queue, wire.ScheduleRequest) (wire.ScheduleInfo, *wire.Error) {
	return func(q *shard.Queue, req wire.ScheduleRequest) (wire.ScheduleInfo, *wire.Error) {
		return do(q, req.Name)
	}
}

func (a *Admin) scheduleList(req wire.ScheduleListRequest) (l wire.ScheduleList, err *wire.Error) {
	if req.Queue != "" {
		if _, err := a.queue(req.Queue); err != nil {
			return l, err
		}
	}
	return a.shards.Schedules(wire.Source(req.Queue), req.After, req.Limit), nil
}

// listSchedules lists the schedules of all nodes by queue and name.
func listSchedules(v Verb, r request) (reply []byte, werr *wire.Error) {
	req, werr := wire.ParseScheduleList(r.body)
	if werr != nil {
		return nil, werr
	}
	all := wire.ScheduleList{Schedules: []wire.ScheduleInfo{}}
	more := false
	all.Missing = v.everywhere(r, func(reply []byte, refused *wire.Error) bool {
		var part wire.ScheduleList
		if refused != nil || json.Unmarshal(reply, &part) != nil {
			werr = cmp.Or(refused, wire.Internal("a list of schedules cannot be read"))
			return false
		}
		all.Total += part.Total
		all.Schedules, more = append(all.Schedules, part.Schedules...), more || part.Next != ""
		return true
	})
	if werr != nil {
		return nil, werr
	}
	slices.SortFunc(all.Schedules, func(a, b wire.ScheduleInfo) int {
		return cmp.Or(cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.Name, b.Name))
	})
	// One whose queue has been handed over meanwhile is there twice.
	all.Schedules = slices.CompactFunc(all.Schedules, func(a, b wire.ScheduleInfo) bool { return a.Cursor() == b.Cursor() })
	if n := len(all.Schedules); n > req.Limit || more && n > 0 {
		all.Schedules = all.Schedules[:min(req.Limit, n)]
		all.Next = all.Schedules[len(all.Schedules)-1].Cursor()
	}
	data, werr := encode(all)
	if werr == nil && int64(len(data)) > v.most() {
		return encode(all.Shorten(int(v.most())))
	}
	return data, werr
}
