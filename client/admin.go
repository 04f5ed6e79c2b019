package client

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// Call makes a request of an admin verb and returns the reply. The tail is the queue or key
// that the verb is about, "" if its subject names none. The methods of [Client] are shorter
// for most verbs; those that return whole lists ask for page after page.
func Call[Req, Reply any](ctx context.Context, c *Client, v *api.Verb[Req, Reply], tail string, req Req) (reply Reply, err error) {
	switch v.Tail {
	case api.TailNewQueue, api.TailQueue, api.TailMainQueue, api.TailDeadLetters:
		err = checkQueue(tail)
	case api.TailConfigKey:
		err = badRequest(wire.CodeBadConfigKey, wire.CheckConfigKey(tail))
	case api.TailGateKey:
		err = checkGateKey(tail)
		tail = v.NameKey(&req, tail)
	}
	if err != nil {
		return reply, err
	}
	var body any = req
	if _, empty := body.(api.Empty); empty {
		body = nil
	}
	err = c.call(ctx, c.subjects.Admin(v.Name, tail), body, &reply)
	return reply, err
}

// checkGateKey refuses a key that JSON would change on its way.
func checkGateKey(key string) error {
	return badRequest(wire.CodeBadField, wire.CheckNamedKey(key))
}

// place is where a page of a list begins.
type place struct {
	after  string // next of the previous page
	offset int    // instead of it, if fila is too old to return next
}

func (p place) list() api.ListRequest {
	return api.ListRequest{After: p.after, Offset: p.offset, Limit: api.MaxListLimit}
}

func (p place) keys(prefix string) api.KeyListRequest {
	return api.KeyListRequest{Prefix: prefix, After: p.after, Offset: p.offset, Limit: api.MaxListLimit}
}

// list collects the pages of a list, all within the client's timeout unless ctx has a
// deadline. Each entry that exists all the time is in the list once. From an old fila, which
// does not return next, list asks for the next page by offset: then a list that changes
// meanwhile may show an entry twice or not at all.
func list[Req, Reply, Item any](
	ctx context.Context, c *Client, v *api.Verb[Req, Reply], pageOf func(*Reply) api.PageOf[Item], request func(from place) Req,
) ([]Item, error) {
	ctx, cancel := c.withTimeout(ctx)
	defer cancel()
	all := []Item{}
	var from place
	var missing []int // shards that no node serves
	for {
		reply, err := Call(ctx, c, v, "", request(from))
		if err != nil {
			return nil, err
		}
		page := pageOf(&reply)
		all = append(all, *page.Items...)
		if page.Missing != nil {
			missing = append(missing, *page.Missing...)
		}
		ended := len(*page.Items) == 0 || len(all) >= *page.Total || from.after != ""
		if *page.Next == "" && ended {
			if len(missing) > 0 {
				slices.Sort(missing)
				return all, wire.ShardsMissing(slices.Compact(missing))
			}
			return all, nil
		}
		from = place{after: *page.Next}
		if *page.Next == "" {
			from.offset = len(all)
		}
	}
}

// QueueCreate makes a queue with its dead letter queue and returns the full settings. When it
// returns, the queue can be published to. Creating it again with the same settings changes
// nothing; with others it is a conflict (409).
func (c *Client) QueueCreate(ctx context.Context, queue string, settings QueueSettings) (api.QueueReply, error) {
	body, err := json.Marshal(settings)
	if err != nil {
		return api.QueueReply{}, err
	}
	return Call(ctx, c, api.VerbQueueCreate, queue, body)
}

// EnsureQueue makes a queue, or changes one that exists to these settings, and returns the full
// settings. Calling it again changes nothing, so that a service can do so at each start. Settings
// that are left out stay as they are, for instance as an operator has set them; QueueUpdate can
// set them to 0 or "".
func (c *Client) EnsureQueue(ctx context.Context, queue string, settings QueueSettings) (reply api.QueueReply, err error) {
	ctx, cancel := c.withTimeout(ctx)
	defer cancel()
	body, err := json.Marshal(settings)
	if err != nil {
		return reply, err
	}
	for err = ctx.Err(); ctx.Err() == nil; {
		reply, err = Call(ctx, c, api.VerbQueueCreate, queue, body)
		if refusalIn(err).ErrCode != wire.CodeQueueExists {
			break
		}
		reply, err = Call(ctx, c, api.VerbQueueUpdate, queue, body)
		if refusalIn(err).ErrCode != wire.CodeQueueNotFound {
			break // otherwise it was deleted meanwhile
		}
	}
	return reply, err
}

// QueueUpdate changes settings of a queue and returns the full settings.
func (c *Client) QueueUpdate(ctx context.Context, queue string, changes QueueChanges) (api.QueueReply, error) {
	if changes == nil {
		changes = QueueChanges{}
	}
	body, err := json.Marshal(changes)
	if err != nil {
		return api.QueueReply{}, err
	}
	return Call(ctx, c, api.VerbQueueUpdate, queue, body)
}

// QueueDelete deletes a queue and its dead letter queue. Without force it is a
// conflict (409) if there are messages in them.
func (c *Client) QueueDelete(ctx context.Context, queue string, force bool) (api.QueueDeleteReply, error) {
	return Call(ctx, c, api.VerbQueueDelete, queue, api.QueueDeleteRequest{Force: force})
}

// QueuePurge removes the messages of a queue, or of a dead letter queue, that exist when it
// begins and are not in flight: ready, delayed and retrying ones. It continues until all are
// gone, within the client's timeout unless ctx has a deadline, and returns how many it
// removed, also with an error.
func (c *Client) QueuePurge(ctx context.Context, queue string) (removed int64, err error) {
	ctx, cancel := c.withTimeout(ctx)
	defer cancel()
	req := api.QueuePurgeRequest{}
	for {
		reply, err := Call(ctx, c, api.VerbQueuePurge, queue, req)
		removed += reply.Purged
		if req.After = reply.Next; err != nil || reply.Next == "" {
			return removed, err
		}
	}
}

// QueueListPage returns up to limit queues from offset on, in the order of
// their names. A limit of 0 is the server's default.
func (c *Client) QueueListPage(ctx context.Context, offset, limit int) (api.QueueList, error) {
	return Call(ctx, c, api.VerbQueueList, "", api.QueueListRequest{ListRequest: api.ListRequest{Offset: offset, Limit: limit}})
}

// QueueList returns all queues. If no node of a cluster serves some of them, it returns the
// others and an error.
func (c *Client) QueueList(ctx context.Context) ([]api.QueueSummary, error) {
	return list(ctx, c, api.VerbQueueList, (*api.QueueList).Page, func(from place) api.QueueListRequest {
		return api.QueueListRequest{ListRequest: from.list()}
	})
}

// QueueInspect describes a queue with its consumers, hooks and up to flows of
// the flows with the most pending messages (0 to 1000).
func (c *Client) QueueInspect(ctx context.Context, queue string, flows int) (api.QueueInfo, error) {
	return Call(ctx, c, api.VerbQueueInspect, queue, api.QueueInspectRequest{Flows: flows})
}

// QueueWanted says how many messages of a queue could be worked on within a horizon: 0, 30 s, a
// minute or five.
func (c *Client) QueueWanted(ctx context.Context, queue string, horizon time.Duration) (api.QueueWanted, error) {
	return Call(ctx, c, api.VerbQueueWanted, queue, api.QueueWantedRequest{HorizonMs: horizon.Milliseconds()})
}

// Attention returns what is wrong now, the worst first, up to limit findings; only those
// about a queue unless that is empty.
func (c *Client) Attention(ctx context.Context, queue string, limit int) (api.Attention, error) {
	return Call(ctx, c, api.VerbAttention, "", api.AttentionRequest{Queue: queue, Limit: limit})
}

// Noisy returns the flows of a queue that use much of its consumers' work, and up to limit
// (0 to 1000) of the other flows that wait, longest wait first.
func (c *Client) Noisy(ctx context.Context, queue string, limit int) (api.NoisyReply, error) {
	return Call(ctx, c, api.VerbNoisy, queue, api.NoisyRequest{Limit: limit})
}

// Lanes describes the fairness keys of a queue with the largest backlogs, and the next
// deliveries in their order.
func (c *Client) Lanes(ctx context.Context, queue string, req api.LanesRequest) (api.LanesReply, error) {
	return Call(ctx, c, api.VerbLanes, queue, req)
}

// DeadGroups groups the messages of a dead letter queue by their errors, and returns up to
// limit groups (1 to 1000), largest first.
func (c *Client) DeadGroups(ctx context.Context, queue string, limit int) (api.DeadGroups, error) {
	return Call(ctx, c, api.VerbDeadGroups, queue, api.DeadGroupsRequest{Limit: limit})
}

// DeadRates counts the messages that became dead letters in each of the last minutes, by error
// group: of a queue, or of all.
func (c *Client) DeadRates(ctx context.Context, req api.DeadRatesRequest) (api.DeadRates, error) {
	return Call(ctx, c, api.VerbDeadRates, "", req)
}

// HookShow returns the script of a queue's hook, on_enqueue or on_failure, and the version
// before it.
func (c *Client) HookShow(ctx context.Context, queue, hook string) (api.HookReply, error) {
	return Call(ctx, c, api.VerbHookShow, queue, api.HookShowRequest{Hook: hook})
}

// HookSet replaces the script of a queue's hook; an empty one removes the hook. The reason
// goes to the audit log.
func (c *Client) HookSet(ctx context.Context, queue, hook, script, reason string) (api.HookReply, error) {
	return Call(ctx, c, api.VerbHookSet, queue, api.HookSetRequest{Hook: hook, Script: &script, Reason: reason})
}

// HookRollback puts the version of a queue's hook before the present one in force. A second
// rollback undoes the first.
func (c *Client) HookRollback(ctx context.Context, queue, hook, reason string) (api.HookReply, error) {
	return Call(ctx, c, api.VerbHookSet, queue, api.HookSetRequest{Hook: hook, Rollback: true, Reason: reason})
}

// HookReset closes the circuit of a queue's hook, on_enqueue or on_failure, or
// of both if hook is empty.
func (c *Client) HookReset(ctx context.Context, queue, hook string) (api.HookResetReply, error) {
	return Call(ctx, c, api.VerbHookReset, queue, api.HookResetRequest{Hook: hook})
}

// Redrive moves up to count messages (0: all) of a dead letter queue back to
// its queue, oldest first, and returns how many. It skips leased ones.
func (c *Client) Redrive(ctx context.Context, dlq string, count int64) (api.RedriveReply, error) {
	return Call(ctx, c, api.VerbRedrive, dlq, api.RedriveRequest{Count: count})
}

// Peek returns a page of a queue's messages, all or those that match a filter, without
// leasing them. The request for the next page must have the same fields except After. A
// filter's time that is a duration then means a later time.
func (c *Client) Peek(ctx context.Context, queue string, what api.PeekRequest) (api.PeekReply, error) {
	return Call(ctx, c, api.VerbPeek, queue, what)
}

// MessageShow returns a message, its headers, up to payloadBytes of its payload, and what it
// waits for. It searches all queues if queue is empty, otherwise this queue and its
// dead letter queue. A message that does not exist is a 404.
func (c *Client) MessageShow(ctx context.Context, queue, id string, payloadBytes int) (api.MessageInfo, error) {
	what := api.MessageShowRequest{MessageRequest: api.MessageRequest{ID: id, Queue: queue}, PayloadBytes: payloadBytes}
	return Call(ctx, c, api.VerbMessageShow, "", what)
}

// MessageDelete removes a message, which it finds as MessageShow does. If it is in flight it
// is a conflict (409).
func (c *Client) MessageDelete(ctx context.Context, queue, id string) (api.MessageReply, error) {
	return Call(ctx, c, api.VerbMessageDelete, "", api.MessageRequest{ID: id, Queue: queue})
}

// MessageRunNow ends the delay of a message, which it finds as MessageShow does. Pauses,
// gates and the order of its key still block it. If it is in flight it is a conflict (409).
func (c *Client) MessageRunNow(ctx context.Context, queue, id string) (api.MessageReply, error) {
	return Call(ctx, c, api.VerbMessageRunNow, "", api.MessageRequest{ID: id, Queue: queue})
}

// ExplainMessage says where a message is, which gates it has and what it waits for. It
// searches all queues if queue is empty. The state of a message that does not exist is
// "unknown".
func (c *Client) ExplainMessage(ctx context.Context, queue, id string) (api.ExplainMessage, error) {
	return explain[api.ExplainMessage](ctx, c, api.ExplainRequest{Kind: api.ExplainKindMessage, Queue: queue, ID: id})
}

// ExplainKey describes the flow of a fairness key of a queue and what blocks its messages.
func (c *Client) ExplainKey(ctx context.Context, queue, key string) (api.ExplainKey, error) {
	if err := checkGateKey(key); err != nil {
		return api.ExplainKey{}, err
	}
	return explain[api.ExplainKey](ctx, c, api.ExplainRequest{Kind: api.ExplainKindKey, Queue: queue, Key: key})
}

// ExplainQueue says what a queue waits for.
func (c *Client) ExplainQueue(ctx context.Context, queue string) (api.ExplainQueue, error) {
	return explain[api.ExplainQueue](ctx, c, api.ExplainRequest{Kind: api.ExplainKindQueue, Queue: queue})
}

// explain decodes the reply, whose type depends on the kind of the request.
func explain[Reply any](ctx context.Context, c *Client, req api.ExplainRequest) (reply Reply, err error) {
	err = c.call(ctx, c.subjects.Admin(api.VerbExplain.Name, ""), req, &reply)
	return reply, err
}

// JobCreate begins a job about the messages of a queue, or reports what it would do. The
// subject names op and queue, so that permissions can tell them apart. A fila that is too old
// for such subjects gets the request on the subject without them.
func (c *Client) JobCreate(ctx context.Context, job api.JobCreateRequest) (api.JobInfo, error) {
	if err := checkQueue(job.Queue); err != nil {
		return api.JobInfo{}, err
	}
	if !slices.Contains(api.JobOps(), job.Op) {
		return api.JobInfo{}, wire.BadField("op", strconv.Quote(job.Op), "allowed are "+strings.Join(api.JobOps(), ", "))
	}
	ctx, cancel := c.withTimeout(ctx)
	defer cancel()
	info, err := Call(ctx, c, api.VerbJobCreate, wire.JobTail(job.Op, job.Queue), job)
	if !errors.Is(err, ErrNoFila) {
		return info, err
	}
	older, olderErr := Call(ctx, c, api.VerbJobCreate, "", job)
	if _, denied := errors.AsType[*PermissionError](olderErr); denied || errors.Is(olderErr, ErrNoFila) {
		return info, err
	}
	return older, olderErr
}

// JobShow returns a job.
func (c *Client) JobShow(ctx context.Context, id string) (api.JobInfo, error) {
	return Call(ctx, c, api.VerbJobShow, "", api.JobRequest{ID: id})
}

// JobPause pauses a job until JobResume. Its progress is then on disk.
func (c *Client) JobPause(ctx context.Context, id string) (api.JobInfo, error) {
	return Call(ctx, c, api.VerbJobPause, "", api.JobRequest{ID: id})
}

// JobResume continues a paused job.
func (c *Client) JobResume(ctx context.Context, id string) (api.JobInfo, error) {
	return Call(ctx, c, api.VerbJobResume, "", api.JobRequest{ID: id})
}

// JobCancel ends a job. Finished work is not undone.
func (c *Client) JobCancel(ctx context.Context, id string) (api.JobInfo, error) {
	return Call(ctx, c, api.VerbJobCancel, "", api.JobRequest{ID: id})
}

// JobList returns the jobs of a queue and its dead letters, or of all queues if it is empty,
// newest first. It includes jobs that ended in the last seven days. If no node of a cluster
// serves some of them, it returns the others and an error.
func (c *Client) JobList(ctx context.Context, queue string) ([]api.JobInfo, error) {
	return list(ctx, c, api.VerbJobList, (*api.JobList).Page, func(from place) api.JobListRequest {
		return api.JobListRequest{Queue: queue, After: from.after, Limit: api.MaxListLimit}
	})
}

// ScheduleAdd makes a schedule of a queue, or replaces the one of the same name. Adding it
// unchanged does nothing.
func (c *Client) ScheduleAdd(ctx context.Context, queue string, s api.ScheduleAddRequest) (api.ScheduleInfo, error) {
	s.Missed = cmp.Or(s.Missed, wire.MissedOne)
	return Call(ctx, c, api.VerbScheduleAdd, queue, s)
}

// ScheduleShow returns a schedule of a queue, with its headers and payload.
func (c *Client) ScheduleShow(ctx context.Context, queue, name string) (api.ScheduleInfo, error) {
	return Call(ctx, c, api.VerbScheduleShow, queue, api.ScheduleRequest{Name: name})
}

// ScheduleDelete ends a schedule, and returns it as it was. Its messages stay.
func (c *Client) ScheduleDelete(ctx context.Context, queue, name string) (api.ScheduleInfo, error) {
	return Call(ctx, c, api.VerbScheduleDelete, queue, api.ScheduleRequest{Name: name})
}

// SchedulePause stops the runs of a schedule until ScheduleResume.
func (c *Client) SchedulePause(ctx context.Context, queue, name string) (api.ScheduleInfo, error) {
	return Call(ctx, c, api.VerbSchedulePause, queue, api.ScheduleRequest{Name: name})
}

// ScheduleResume continues a paused schedule. Runs during the pause do not count as missed.
func (c *Client) ScheduleResume(ctx context.Context, queue, name string) (api.ScheduleInfo, error) {
	return Call(ctx, c, api.VerbScheduleResume, queue, api.ScheduleRequest{Name: name})
}

// ScheduleList returns the schedules of a queue, or of all queues if it is empty, by queue
// and name. If no node of a cluster serves some of them, it returns the others and an error.
func (c *Client) ScheduleList(ctx context.Context, queue string) ([]api.ScheduleInfo, error) {
	return list(ctx, c, api.VerbScheduleList, (*api.ScheduleList).Page, func(from place) api.ScheduleListRequest {
		return api.ScheduleListRequest{Queue: queue, After: from.after, Limit: api.MaxListLimit}
	})
}
