package shard

import (
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/sidecar/schedule"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// newScheduleRunner returns what makes the runs of the schedules of the shard.
func (s *Shard) newScheduleRunner() *schedule.Runner {
	return schedule.NewRunner(schedule.Options{
		Log: s.Log, Ended: s.ended, Event: s.event, Silent: s.silent, Await: s.wait, Owned: s.Control.ScheduleByEnqueue,
		Admit: func(bytes int64) *wire.Error {
			if disk := s.set.Disk(); disk != nil && disk.Low {
				return wire.DiskLow(disk.Free, disk.MinFree, diskLowRetryAfter)
			}
			if limit := s.Conn.MaxPayload() - wire.HeaderRoom; bytes > limit {
				return wire.MessageTooLarge(bytes, limit)
			}
			return nil
		},
	})
}

func (s *Shard) newSchedules(q *Queue) *schedule.Schedules {
	return s.schedules.NewSchedules(enqueuer{q}, q.metrics, schedule.Limits{Schedules: s.Caps.Schedules, ByEnqueue: s.Caps.EnqueuedSchedules})
}

// enqueuer is the [schedule.Enqueuer] of a queue.
type enqueuer struct{ *Queue }

func (e enqueuer) Deleted() bool { return e.deleted.Load() }

func (e enqueuer) EnqueueRun(m *schedule.Message, describe func(store.ID) queue.WriteEntries) *wire.Error {
	q, in, now := e.Queue, &e.intake, e.shard.Now()
	in.mu.Lock()
	defer in.mu.Unlock()
	in.seen.sweep(now)
	if id, ok := in.seen.find(m.DedupeID, now); ok {
		q.metrics.Duplicate()
		return e.WriteEntries(describe(id))
	}
	msg, werr := in.take(q, m.Headers, m.Payload, &wire.EnqueueOptions{DedupeID: m.DedupeID, TTL: m.TTL}, now, nil)
	if werr != nil {
		return werr
	}
	msg.HeaderMap, msg.ID = m.Headers, m.ID
	entries := describe(m.ID)
	entries.Message = msg
	return in.hand(q, msg, func() bool {
		_, ok := q.run.do(q.changed(entries))
		return ok
	})
}

func (e enqueuer) WriteEntries(w queue.WriteEntries) *wire.Error {
	if e.deleted.Load() {
		return e.Gone()
	}
	if _, ok := e.run.do(e.changed(w)); !ok {
		return e.Gone()
	}
	return nil
}

// addScheduleOf adds the schedule in a message that a producer has sent. It has to be for
// this queue: the producer may not be allowed to enqueue to others. It does not wait for
// the disk.
func (q *Queue) addScheduleOf(m *nats.Msg, h *wire.ScheduleHeaders) *wire.Error {
	if q.policy.Load().Settings.EnqueueSchedules == wire.SchedulesRefuse {
		return wire.BadSchedule("queue " + q.name + " takes no schedules by enqueues (enqueue_schedules); they need the verb " + api.VerbScheduleAdd.Name)
	}
	if h.Target != q.name && h.Target != m.Subject {
		return wire.BadSchedule(wire.HeaderScheduleTarget + " names another queue: an enqueue can only schedule messages of its own queue, " +
			q.name + "; others need the verb " + api.VerbScheduleAdd.Name)
	}
	req := api.ScheduleAddRequest{Name: h.Name, Schedule: h.Schedule, TimeZone: h.TimeZone, Missed: h.Missed, TTLMs: h.TTLMs}
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
	return q.AddScheduleByEnqueue(req, queue.Confirmation{Subject: m.Reply})
}

// Schedules returns a page of the schedules by queue and name, after the cursor of the page
// before: the schedules of one queue, or of all queues if queue is empty. Total counts all pages.
func (s *Set) Schedules(queue, after string, limit int) (list api.ScheduleList) {
	list.Schedules = []api.ScheduleInfo{}
	afterQueue, name, _ := strings.Cut(after, "/")
	for _, q := range s.served() {
		if q.IsDLQ() || queue != "" && q.name != queue {
			continue
		}
		n, _ := q.CountSchedules()
		list.Total += int(n)
		if q.name < afterQueue || len(list.Schedules) > limit {
			continue
		}
		if q.name != afterQueue {
			name = ""
		}
		list.Schedules = append(list.Schedules, q.ListSchedules(name, limit+1-len(list.Schedules))...)
	}
	if len(list.Schedules) > limit {
		list.Schedules = list.Schedules[:limit]
		list.Next = list.Schedules[limit-1].Cursor()
	}
	return list
}
