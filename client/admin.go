package client

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/filaq/fila/wire"
)

// QueueChanges are settings to change, under their names in config.toml, with
// values of the types of [QueueSettings]. What is not named stays.
type QueueChanges map[string]any

// QueueCreate makes a queue with its dead letter queue and returns the full
// settings. When it returns, the queue can be published to. Creating it again
// with the same settings changes nothing; with others it is a conflict (409).
func (c *Client) QueueCreate(ctx context.Context, settings QueueSettings) (QueueReply, error) {
	return aboutQueue[QueueReply](ctx, c, wire.VerbQueueCreate, settings.Name, settings)
}

// QueueUpdate changes settings of a queue and returns the full settings.
func (c *Client) QueueUpdate(ctx context.Context, queue string, changes QueueChanges) (QueueReply, error) {
	if changes == nil {
		changes = QueueChanges{}
	}
	return aboutQueue[QueueReply](ctx, c, wire.VerbQueueUpdate, queue, changes)
}

// QueueDelete deletes a queue and its dead letter queue. Without force it is a
// conflict (409) if there are messages in them.
func (c *Client) QueueDelete(ctx context.Context, queue string, force bool) (QueueDeleteReply, error) {
	return aboutQueue[QueueDeleteReply](ctx, c, wire.VerbQueueDelete, queue, wire.QueueDeleteRequest{Force: force})
}

// QueuePurge removes what waits in a queue, or in a dead letter queue, among the
// messages that are there when it begins: ready, delayed and retrying ones. Those that
// are in flight stay. It goes on until all are gone, within the client's timeout
// unless ctx has a deadline, and returns how many it has removed, also with an error.
func (c *Client) QueuePurge(ctx context.Context, queue string) (removed int64, err error) {
	ctx, cancel := c.withTimeout(ctx)
	defer cancel()
	req := wire.QueuePurgeRequest{}
	for {
		reply, err := aboutQueue[wire.QueuePurgeReply](ctx, c, wire.VerbQueuePurge, queue, req)
		removed += reply.Purged
		if req.After = reply.Next; err != nil || reply.Next == "" {
			return removed, err
		}
	}
}

// QueueListPage returns up to limit queues from offset on, in the order of
// their names. A limit of 0 is the server's default.
func (c *Client) QueueListPage(ctx context.Context, offset, limit int) (QueueList, error) {
	return admin[QueueList](ctx, c, wire.VerbQueueList, "", wire.ListRequest{Offset: offset, Limit: limit})
}

// QueueList returns all queues, page by page. While no node of a cluster serves some of
// them, it returns the others and an error.
func (c *Client) QueueList(ctx context.Context) ([]QueueSummary, error) {
	var missing []int
	queues, err := pages(ctx, c, func(ctx context.Context, from place) ([]QueueSummary, int, string, error) {
		page, err := listPage[QueueList](ctx, c, wire.VerbQueueList, from)
		missing = append(missing, page.Missing...)
		return page.Queues, page.Total, page.Next, err
	})
	return queues, cmp.Or(err, notWhole(missing))
}

// notWhole is the error of a list without what is in shards that nobody serves; nil if
// there are none.
func notWhole(missing []int) error {
	if len(missing) == 0 {
		return nil
	}
	slices.Sort(missing)
	return wire.ShardsMissing(slices.Compact(missing))
}

// QueueInspect describes a queue with its consumers, hooks and up to flows of
// the flows with the most pending messages (0 to 1000).
func (c *Client) QueueInspect(ctx context.Context, queue string, flows int) (QueueInfo, error) {
	return aboutQueue[QueueInfo](ctx, c, wire.VerbQueueInspect, queue, wire.QueueInspectRequest{Flows: flows})
}

// Noisy says which flows of a queue use much of what its consumers do, and names up to
// limit (0 to 1000) of the others that wait, the longest wait first.
func (c *Client) Noisy(ctx context.Context, queue string, limit int) (NoisyReply, error) {
	return aboutQueue[NoisyReply](ctx, c, wire.VerbNoisy, queue, wire.NoisyRequest{Limit: limit})
}

// DeadGroups groups the messages of a dead letter queue by their errors, and returns up to
// limit groups (1 to 1000), the largest first.
func (c *Client) DeadGroups(ctx context.Context, queue string, limit int) (DeadGroups, error) {
	return aboutQueue[DeadGroups](ctx, c, wire.VerbDeadGroups, queue, wire.DeadGroupsRequest{Limit: limit})
}

// Peek shows messages of a queue without leasing them, a page at a time: all of them, or
// those that a filter means. What all fields of one page say has to be said for the next,
// but for times that are durations, which mean another time then.
func (c *Client) Peek(ctx context.Context, queue string, what PeekRequest) (PeekReply, error) {
	return aboutQueue[PeekReply](ctx, c, wire.VerbPeek, queue, what)
}

// MessageShow shows a message, its headers and up to payloadBytes of its payload, and
// says what it waits for. It is looked for in all queues if queue is empty, and in the
// dead letter queue of a queue as well; one that is nowhere is a 404.
func (c *Client) MessageShow(ctx context.Context, queue, id string, payloadBytes int) (MessageInfo, error) {
	what := wire.MessageShowRequest{MessageRequest: wire.MessageRequest{ID: id, Queue: queue}, PayloadBytes: payloadBytes}
	return admin[MessageInfo](ctx, c, wire.VerbMessageShow, "", what)
}

// MessageDelete removes a message that waits or is dead, found as MessageShow does. One
// that is in flight is a conflict (409).
func (c *Client) MessageDelete(ctx context.Context, queue, id string) (MessageReply, error) {
	return admin[MessageReply](ctx, c, wire.VerbMessageDelete, "", wire.MessageRequest{ID: id, Queue: queue})
}

// MessageRunNow ends the delay of a message, found as MessageShow does: pauses, gates
// and the order of its key hold it back as before. One that is in flight is a conflict
// (409).
func (c *Client) MessageRunNow(ctx context.Context, queue, id string) (MessageReply, error) {
	return admin[MessageReply](ctx, c, wire.VerbMessageRunNow, "", wire.MessageRequest{ID: id, Queue: queue})
}

// ConfigSet sets a key of the runtime configuration. If ifValue is not nil, it
// must be the present value; otherwise it is a conflict (409).
func (c *Client) ConfigSet(ctx context.Context, key, value string, ifValue *string) (ConfigSetReply, error) {
	body := wire.ConfigSetRequest{Value: value, IfValue: ifValue}
	return aboutConfig[ConfigSetReply](ctx, c, wire.VerbConfigSet, key, body)
}

// ConfigGet returns a key of the runtime configuration.
func (c *Client) ConfigGet(ctx context.Context, key string) (ConfigEntry, error) {
	return aboutConfig[ConfigEntry](ctx, c, wire.VerbConfigGet, key, nil)
}

// ConfigDelete deletes a key and returns what it was.
func (c *Client) ConfigDelete(ctx context.Context, key string) (ConfigEntry, error) {
	return aboutConfig[ConfigEntry](ctx, c, wire.VerbConfigDelete, key, nil)
}

// ConfigList returns all keys that start with prefix, in order.
func (c *Client) ConfigList(ctx context.Context, prefix string) ([]ConfigEntry, error) {
	return pages(ctx, c, func(ctx context.Context, from place) ([]ConfigEntry, int, string, error) {
		page, err := keyList[ConfigList](ctx, c, wire.VerbConfigList, prefix, from)
		return page.Entries, page.Total, page.Next, err
	})
}

// Redrive moves up to count messages (0: all) of a dead letter queue back to
// its queue, oldest first. It returns how many; leased ones are skipped.
func (c *Client) Redrive(ctx context.Context, dlq string, count int64) (RedriveReply, error) {
	return aboutQueue[RedriveReply](ctx, c, wire.VerbRedrive, dlq, wire.RedriveRequest{Count: count})
}

// HookReset closes the circuit of a queue's hook, on_enqueue or on_failure, or
// of both if hook is empty.
func (c *Client) HookReset(ctx context.Context, queue, hook string) (HookResetReply, error) {
	return aboutQueue[HookResetReply](ctx, c, wire.VerbHookReset, queue, wire.HookResetRequest{Hook: hook})
}

// StoreBackup makes fila write a copy of its store into the directory backups of
// its data directory, and returns when it is on disk. fila goes on meanwhile. It
// takes as long as the disk needs for the whole file: give ctx a deadline that
// allows for it, as otherwise the client's timeout counts.
func (c *Client) StoreBackup(ctx context.Context) (StoreBackupReply, error) {
	return admin[StoreBackupReply](ctx, c, wire.VerbStoreBackup, "", nil)
}

// admin makes the request of a verb. The tail has been checked.
func admin[R any](ctx context.Context, c *Client, verb, tail string, body any) (reply R, err error) {
	err = c.call(ctx, c.subjects.Admin(verb, tail), body, &reply)
	return reply, err
}

func aboutQueue[R any](ctx context.Context, c *Client, verb, queue string, body any) (reply R, err error) {
	if err := checkQueue(queue); err != nil {
		return reply, err
	}
	return admin[R](ctx, c, verb, queue, body)
}

func aboutConfig[R any](ctx context.Context, c *Client, verb, key string, body any) (reply R, err error) {
	if err := wire.CheckConfigKey(key); err != nil {
		return reply, badRequest(wire.CodeBadConfigKey, err)
	}
	return admin[R](ctx, c, verb, key, body)
}

// place is where a page of a list begins.
type place struct {
	after  string // next of the page before
	offset int    // instead of it, of a fila that does not know it yet
}

// listPage returns a page of a list without a prefix.
func listPage[R any](ctx context.Context, c *Client, verb string, from place) (R, error) {
	return admin[R](ctx, c, verb, "", wire.ListRequest{After: from.after, Offset: from.offset, Limit: wire.MaxListLimit})
}

// keyList returns a page of a list by prefix.
func keyList[R any](ctx context.Context, c *Client, verb, prefix string, from place) (R, error) {
	return admin[R](ctx, c, verb, "", wire.KeyListRequest{Prefix: prefix, After: from.after, Offset: from.offset, Limit: wire.MaxListLimit})
}

// pages collects what ask returns until there is no more, all within the client's
// timeout unless ctx has a deadline. What comes or goes meanwhile may be missing or
// not; all else is there once. A fila that does not say what is next is asked by
// offset: then a list that changes may show an entry twice or not at all, and the end
// is reached anyway.
func pages[T any](ctx context.Context, c *Client, ask func(ctx context.Context, from place) (page []T, total int, next string, err error)) ([]T, error) {
	ctx, cancel := c.withTimeout(ctx)
	defer cancel()
	all := []T{}
	var from place
	for {
		page, total, next, err := ask(ctx, from)
		if err != nil {
			return nil, err
		}
		all = append(all, page...)
		ended := len(page) == 0 || len(all) >= total || from.after != ""
		if next == "" && ended {
			return all, nil
		}
		from = place{after: next}
		if next == "" {
			from.offset = len(all)
		}
	}
}

// JobCreate begins a job about the messages of a queue, or says what it would do. Its subject
// names the op and the queue, so permissions can tell who may do what. A fila that does not
// know such subjects gets the request on the one without them.
func (c *Client) JobCreate(ctx context.Context, job JobCreateRequest) (JobInfo, error) {
	if err := checkQueue(job.Queue); err != nil {
		return JobInfo{}, err
	}
	if !slices.Contains(wire.JobOps(), job.Op) {
		return JobInfo{}, wire.BadField("op", strconv.Quote(job.Op), "allowed are "+strings.Join(wire.JobOps(), ", "))
	}
	ctx, cancel := c.withTimeout(ctx)
	defer cancel()
	info, err := admin[JobInfo](ctx, c, wire.VerbJobCreate, wire.JobTail(job.Op, job.Queue), job)
	if !errors.Is(err, ErrNoFila) {
		return info, err
	}
	older, olderErr := admin[JobInfo](ctx, c, wire.VerbJobCreate, "", job)
	var denied *PermissionError
	if errors.Is(olderErr, ErrNoFila) || errors.As(olderErr, &denied) {
		return info, err // there is none, or none that may be asked so
	}
	return older, olderErr
}

// JobShow returns a job.
func (c *Client) JobShow(ctx context.Context, id string) (JobInfo, error) {
	return admin[JobInfo](ctx, c, wire.VerbJobShow, "", wire.JobRequest{ID: id})
}

// JobPause has a job do nothing until JobResume. What it has done is on disk then.
func (c *Client) JobPause(ctx context.Context, id string) (JobInfo, error) {
	return admin[JobInfo](ctx, c, wire.VerbJobPause, "", wire.JobRequest{ID: id})
}

// JobResume has a paused job go on.
func (c *Client) JobResume(ctx context.Context, id string) (JobInfo, error) {
	return admin[JobInfo](ctx, c, wire.VerbJobResume, "", wire.JobRequest{ID: id})
}

// JobCancel ends a job. What it has done stays done.
func (c *Client) JobCancel(ctx context.Context, id string) (JobInfo, error) {
	return admin[JobInfo](ctx, c, wire.VerbJobCancel, "", wire.JobRequest{ID: id})
}

// JobList returns the jobs of a queue and its dead letters, of all queues if it is empty,
// the newest first. Ended ones are kept for seven days. While no node of a cluster serves
// some of them, it returns the others and an error.
func (c *Client) JobList(ctx context.Context, queue string) ([]JobInfo, error) {
	var all []JobInfo
	var missing []int
	req := wire.JobListRequest{Queue: queue, Limit: wire.MaxListLimit}
	for {
		page, err := admin[wire.JobList](ctx, c, wire.VerbJobList, "", req)
		if err != nil {
			return nil, err
		}
		all, missing = append(all, page.Jobs...), append(missing, page.Missing...)
		if req.After = page.Next; page.Next == "" {
			return all, notWhole(missing)
		}
	}
}

// ScheduleAdd makes a schedule of a queue, or replaces the one of that name; one that is
// there with all of this stays as it is. It is on disk then. Missed is "one" if it is empty.
func (c *Client) ScheduleAdd(ctx context.Context, queue string, schedule ScheduleAddRequest) (ScheduleInfo, error) {
	schedule.Missed = cmp.Or(schedule.Missed, wire.MissedOne)
	return aboutQueue[ScheduleInfo](ctx, c, wire.VerbScheduleAdd, queue, schedule)
}

// ScheduleShow returns a schedule of a queue with its message.
func (c *Client) ScheduleShow(ctx context.Context, queue, name string) (ScheduleInfo, error) {
	return aboutQueue[ScheduleInfo](ctx, c, wire.VerbScheduleShow, queue, wire.ScheduleRequest{Name: name})
}

// ScheduleDelete ends a schedule, and returns it as it was. Messages that it has made stay.
func (c *Client) ScheduleDelete(ctx context.Context, queue, name string) (ScheduleInfo, error) {
	return aboutQueue[ScheduleInfo](ctx, c, wire.VerbScheduleDelete, queue, wire.ScheduleRequest{Name: name})
}

// SchedulePause has a schedule not run until ScheduleResume.
func (c *Client) SchedulePause(ctx context.Context, queue, name string) (ScheduleInfo, error) {
	return aboutQueue[ScheduleInfo](ctx, c, wire.VerbSchedulePause, queue, wire.ScheduleRequest{Name: name})
}

// ScheduleResume has a paused schedule run again, from now on.
func (c *Client) ScheduleResume(ctx context.Context, queue, name string) (ScheduleInfo, error) {
	return aboutQueue[ScheduleInfo](ctx, c, wire.VerbScheduleResume, queue, wire.ScheduleRequest{Name: name})
}

// ScheduleList returns the schedules of a queue, of all queues if it is empty, by queue and
// name. While no node of a cluster serves some of them, it returns the others and an error.
func (c *Client) ScheduleList(ctx context.Context, queue string) ([]ScheduleInfo, error) {
	var all []ScheduleInfo
	var missing []int
	req := wire.ScheduleListRequest{Queue: queue, Limit: wire.MaxListLimit}
	for {
		page, err := admin[wire.ScheduleList](ctx, c, wire.VerbScheduleList, "", req)
		if err != nil {
			return nil, err
		}
		all, missing = append(all, page.Schedules...), append(missing, page.Missing...)
		if req.After = page.Next; page.Next == "" {
			return all, notWhole(missing)
		}
	}
}
