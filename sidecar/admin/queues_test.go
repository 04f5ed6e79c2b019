package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/config"
	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/sidecar/queue/inspect"
	"github.com/filaq/fila/sidecar/rules"
	"github.com/filaq/fila/sidecar/telemetry"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// With detail a list has the counters and the noisy flows of each queue.
func TestQueueListDetail(t *testing.T) {
	withAdmin(t, nil, func(t *testing.T, h *rig) {
		h.must(api.VerbQueueCreate, "orders", `{}`, nil)
		for range 3 {
			h.enqueue("orders", "payload", nil)
		}
		var list api.QueueList
		h.must(api.VerbQueueList, "", `{}`, &list)
		require.Nil(t, list.Queues[0].Detail)
		h.must(api.VerbQueueList, "", `{"detail":true,"limit":1}`, &list)
		require.EqualValues(t, 3, list.Queues[0].Detail.Enqueued)
		require.Len(t, list.Queues[0].Detail.Waits, len(api.WaitBounds)+1)
	})
}

// A sampled list has what the last sample read, and queues that are new since then. Findings are
// from the same sample.
func TestQueueListSampled(t *testing.T) {
	withAdmin(t, nil, func(t *testing.T, h *rig) {
		h.must(api.VerbQueueCreate, "orders", `{"fairness_header":"tenant"}`, nil)
		h.enqueue("orders", "payload", nil)
		sampled := func() (list api.QueueList) {
			t.Helper()
			h.must(api.VerbQueueList, "", `{"sampled":true}`, &list)
			return list
		}
		findings := func() (a api.Attention) {
			t.Helper()
			h.must(api.VerbAttention, "", ``, &a)
			return a
		}
		first := sampled()
		require.Equal(t, []string{"orders", "orders.dlq"}, []string{first.Queues[0].Name, first.Queues[1].Name})
		require.EqualValues(t, 1, first.Queues[0].Detail.Enqueued)
		require.Equal(t, h.now().UnixMilli(), first.Queues[0].Detail.AtMs)
		require.EqualValues(t, 1, findings().Findings[0].Messages)

		require.Nil(t, h.shards.Queue("orders").Accept(&nats.Msg{Subject: "fila.enqueue.orders", Reply: "confirm", Data: []byte("x"), Sub: &nats.Subscription{}}))
		h.must(api.VerbQueueCreate, "new", ``, nil)
		again := sampled()
		require.Equal(t, first.Queues, again.Queues[2:], "the sample is fresh")
		require.Equal(t, "new", again.Queues[0].Name, "it is read")
		require.EqualValues(t, 1, findings().Findings[0].Messages)
		time.Sleep(freshFor)
		require.EqualValues(t, 2, sampled().Queues[2].Detail.Enqueued)
		require.EqualValues(t, 2, findings().Findings[0].Messages)
	})
}

// Watch takes a sample when the last one is ten seconds old, also if a request has taken that.
func TestWatchTakesNoSampleTwice(t *testing.T) {
	withAdmin(t, nil, func(t *testing.T, h *rig) {
		ctx, end := context.WithCancel(t.Context())
		defer end()
		go h.Watch(ctx)
		synctest.Wait()
		last := func() time.Time { return h.sampled(time.Hour).at }
		began := last()
		time.Sleep(6 * time.Second)
		require.Equal(t, began, last())
		h.must(api.VerbQueueList, "", `{"sampled":true}`, nil)
		require.Equal(t, began.Add(6*time.Second), last())
		time.Sleep(6 * time.Second)
		require.Equal(t, began.Add(6*time.Second), last(), "that one serves both")
		time.Sleep(5 * time.Second)
		require.Equal(t, began.Add(16*time.Second), last())
	})
}

// Dead letters are counted by minute, of one queue and of all.
func TestDeadRatesVerb(t *testing.T) {
	withAdmin(t, nil, func(t *testing.T, h *rig) {
		for _, name := range []string{"orders", "mails"} {
			h.must(api.VerbQueueCreate, name, `{"max_deliveries":1}`, nil)
			h.consume(name, 5)
			for range 2 {
				h.enqueue(name, "x", nil)
				h.ack(h.one(), `-NAK {"error":"no such customer"}`)
			}
			time.Sleep(time.Second)
		}
		var one, all, cut api.DeadRates
		h.must(api.VerbDeadRates, "", `{"queue":"orders.dlq","minutes":5}`, &one)
		require.EqualValues(t, []any{"orders", int64(2), 1}, []any{one.Queue, one.Messages, one.Total})
		require.Equal(t, "no such customer", one.Groups[0].Error)
		require.Equal(t, make([]int64, 5), one.Other)
		from, err := time.Parse(time.RFC3339, one.From)
		require.NoError(t, err)
		require.Equal(t, h.now().Truncate(time.Minute).Add(-4*time.Minute).UnixNano(), from.UnixNano())
		h.must(api.VerbDeadRates, "", ``, &all)
		require.EqualValues(t, []any{int64(4), 2, 60}, []any{all.Messages, all.Total, len(all.Other)})
		h.must(api.VerbDeadRates, "", `{"limit":1}`, &cut)
		require.Len(t, cut.Groups, 1)
		var others int64
		for _, n := range cut.Other {
			others += n
		}
		require.EqualValues(t, 2, others)
		for _, bad := range []string{`{"minutes":0}`, `{"minutes":61}`, `{"limit":0}`, `{"limit":65}`} {
			require.Equal(t, wire.CodeBadField, h.ask(api.VerbDeadRates, "", bad, nil).ErrCode)
		}
		require.Equal(t, wire.CodeQueueNotFound, h.ask(api.VerbDeadRates, "", `{"queue":"nothing"}`, nil).ErrCode)
	})
}

func TestQueueVerbs(t *testing.T) {
	withAdmin(t, nil, func(t *testing.T, h *rig) {
		var made, again, changed wire.QueueSettings
		h.must(api.VerbQueueCreate, "orders", `{"quantum":3}`, &made)
		want := wire.DefaultQueueSettings("orders")
		want.Quantum = 3
		require.Equal(t, want, made)
		h.must(api.VerbQueueCreate, "orders", `{"quantum":3}`, &again)
		require.Equal(t, want, again)
		h.must(api.VerbQueueUpdate, "orders", `{"max_depth":5}`, &changed)
		want.MaxDepth = 5
		require.Equal(t, want, changed)

		h.must(api.VerbQueueCreate, "accounts", ``, nil)
		var list api.QueueList
		h.must(api.VerbQueueList, "", `{"offset":1,"limit":2}`, &list)
		require.Equal(t, api.QueueList{
			Total: 4, Queues: []api.QueueSummary{{Name: "accounts.dlq"}, {Name: "orders", DLQ: "orders.dlq"}}, Next: "orders",
		}, list)
		list = api.QueueList{}
		h.must(api.VerbQueueList, "", `{"after":"orders","limit":2}`, &list)
		require.Equal(t, api.QueueList{Total: 4, Queues: []api.QueueSummary{{Name: "orders.dlq"}}}, list)
		h.must(api.VerbQueueList, "", `{"after":"b","limit":1}`, &list)
		require.Equal(t, "orders", list.Next, "a queue that is gone is a place, too")
		h.must(api.VerbQueueList, "", `{"offset":4}`, &list)
		require.Equal(t, 4, list.Total)
		require.NotNil(t, list.Queues, "a list in JSON")

		h.enqueue("orders", "x", nil)
		require.Equal(t, wire.CodeQueueNotEmpty, h.ask(api.VerbQueueDelete, "orders", ``, nil).ErrCode)
		var deleted api.QueueDeleteReply
		h.must(api.VerbQueueDelete, "orders", `{"force":true}`, &deleted)
		require.EqualValues(t, 1, deleted.Deleted)
		require.Equal(t, wire.CodeQueueNotFound, h.ask(api.VerbQueueDelete, "orders", ``, nil).ErrCode)
	})
}

// TestQueueInspect: the reply has counts, consumers, the flows with most pending messages,
// settings, hooks and counters.
func TestQueueInspect(t *testing.T) {
	withAdmin(t, nil, func(t *testing.T, h *rig) {
		h.must(api.VerbQueueCreate, "orders", `{"quantum":2,"on_enqueue":
			"function on_enqueue(msg) return { fairness_key = msg.headers['tenant'], weight = 3 } end"}`, nil)
		for _, tenant := range []string{"a", "b", "b", "b", "c", "c"} {
			h.enqueue("orders", "0123456789", nats.Header{"tenant": {tenant}})
		}
		h.consume("orders", 1)
		h.one()
		var info api.QueueInfo
		h.must(api.VerbQueueInspect, "orders", `{"flows":1}`, &info)
		require.Positive(t, info.OldestAgeMs)
		require.Equal(t, api.QueueSummary{
			Name: "orders", DLQ: "orders.dlq", Pending: 5, Ready: 5, InFlight: 1, Consumers: 1, Bytes: info.Bytes, OldestAgeMs: info.OldestAgeMs,
		}, info.QueueSummary)
		require.GreaterOrEqual(t, info.Bytes, int64(60))
		require.Equal(t, []api.ConsumerInfo{{Name: "w", MaxInFlight: 1, InFlight: 1}}, info.ConsumerList)
		require.Equal(t, 2, info.Flows)
		require.Len(t, info.TopFlows, 1)
		require.Equal(t, "b", info.TopFlows[0].Key)
		require.EqualValues(t, 3, info.TopFlows[0].Pending)
		require.InDelta(t, 3, info.TopFlows[0].Weight, 0)
		require.InDelta(t, 0.5, info.TopFlows[0].Share, 0)
		require.EqualValues(t, 2, info.Settings.Quantum)
		require.Equal(t, info.Settings.Quantum, info.Quantum)
		require.Len(t, info.Hooks, 1)
		require.EqualValues(t, 6, info.Hooks[0].Runs)
		require.EqualValues(t, 6, info.Counters["enqueued"])
		require.EqualValues(t, 1, info.Counters["delivered"])

		var dead api.QueueInfo
		h.must(api.VerbQueueInspect, "orders.dlq", ``, &dead)
		require.Equal(t, api.QueueSummary{Name: "orders.dlq"}, dead.QueueSummary)
		require.NotNil(t, dead.ConsumerList, "a list in JSON")
		require.NotNil(t, dead.TopFlows, "a list in JSON")

		gauges := h.Gauges()
		require.Equal(t, []telemetry.Gauges{
			{
				Queue: "orders", Depth: 6, Bytes: info.Bytes, Wanted: 6, Stats: gauges[0].Stats, Noise: gauges[0].Noise, Totals: gauges[0].Totals,
				Hooks: []telemetry.HookState{{Hook: "on_enqueue", State: "closed"}}, Counters: gauges[0].Counters,
			}, {Queue: "orders.dlq", Stats: inspect.Stats{}, Counters: gauges[1].Counters},
		}, gauges)
		require.EqualValues(t, 5, gauges[0].Pending)
		require.EqualValues(t, 5, gauges[0].Noise.QuietReady)
	})
}

// TestScheduleVerbs: changes of a schedule are audited, calls without effect are not.
func TestScheduleVerbs(t *testing.T) {
	withAdmin(t, nil, func(t *testing.T, h *rig) {
		h.must(api.VerbQueueCreate, "orders", ``, nil)
		var s api.ScheduleInfo
		h.must(api.VerbScheduleAdd, "orders", `{"name":"tick","schedule":"@every 1m","payload":"eA=="}`, &s)
		require.Equal(t, []string{"2000-01-01T00:01:00Z"}, s.Next[:1])
		h.must(api.VerbScheduleAdd, "orders", `{"name":"tick","schedule":"@every 1m","payload":"eA=="}`, &s)
		require.True(t, s.Unchanged)
		h.must(api.VerbSchedulePause, "orders", `{"name":"tick"}`, &s)
		require.Equal(t, api.SchedulePaused, s.State)
		h.must(api.VerbScheduleResume, "orders", `{"name":"tick"}`, nil)
		h.must(api.VerbScheduleShow, "orders", `{"name":"tick"}`, &s)
		require.Equal(t, "x", string(s.Payload))
		time.Sleep(90 * time.Second)
		var list api.ScheduleList
		h.must(api.VerbScheduleList, "", `{"queue":"orders"}`, &list)
		require.Equal(t, 1, list.Total)
		require.EqualValues(t, 1, list.Schedules[0].Runs)
		require.Nil(t, list.Schedules[0].Payload)
		h.must(api.VerbScheduleList, "", `{"queue":"orders.dlq"}`, &list)
		require.Len(t, list.Schedules, 1)
		require.Equal(t, wire.CodeQueueNotFound, h.ask(api.VerbScheduleList, "", `{"queue":"none"}`, nil).ErrCode)
		require.Equal(t, wire.CodeScheduleNotFound, h.ask(api.VerbScheduleShow, "orders", `{"name":"none"}`, nil).ErrCode)
		require.Equal(t, wire.CodeBadSchedule, h.ask(api.VerbScheduleAdd, "orders", `{"name":"x","schedule":"@never"}`, nil).ErrCode)
		gauges := h.Gauges()
		require.Equal(t, 1, gauges[0].Schedules)
		require.EqualValues(t, 2*60*1e9, gauges[0].NextRun-946_684_800*1e9)
		h.must(api.VerbScheduleDelete, "orders", `{"name":"tick"}`, nil)
		h.must(api.VerbScheduleList, "", ``, &list)
		require.NotNil(t, list.Schedules)
		require.Empty(t, list.Schedules)
		var log api.ConfigLog
		h.must(api.VerbConfigLog, "", `{"prefix":"schedule:"}`, &log)
		var verbs []string
		for _, e := range log.Entries {
			require.Equal(t, "schedule:orders/tick", e.Key)
			verbs = append(verbs, e.By)
		}
		require.ElementsMatch(t, []string{"schedule-add", "schedule-pause", "schedule-resume", "schedule-delete"}, verbs)
	})
}

// Noisy and waiting flows have their keys in the form of replies, and their shares.
func TestNoisyVerb(t *testing.T) {
	withAdmin(t, nil, func(t *testing.T, h *rig) {
		h.must(api.VerbQueueCreate, "orders", `{"fairness_header":"tenant","visibility_timeout_ms":600000}`, nil)
		h.consume("orders", 31)
		for range 40 {
			h.enqueue("orders", "x", nats.Header{"tenant": {"noisy"}})
		}
		h.enqueue("orders", "x", nats.Header{"tenant": {"quiet"}})
		time.Sleep(time.Second)
		var reply api.NoisyReply
		h.must(api.VerbNoisy, "orders", ``, &reply)
		require.Equal(t, []api.NoisyFlow{{Key: "noisy", InFlight: 31, InFlightShare: 1, FairShare: 0.5, Ready: 9, Pending: 9}}, reply.Noisy)
		require.EqualValues(t, 31, reply.InFlight)
		require.EqualValues(t, 1, reply.QuietReady)
		require.GreaterOrEqual(t, reply.QuietOldestAgeMs, int64(1000))
		require.Equal(t, []api.WaitingFlow{{Key: "quiet", Ready: 1, Pending: 1, WaitMs: reply.QuietOldestAgeMs}}, reply.Waiting)
		h.must(api.VerbNoisy, "orders", `{"limit":0}`, &reply)
		require.Empty(t, reply.Waiting)
		var dead api.NoisyReply
		h.must(api.VerbNoisy, "orders.dlq", ``, &dead)
		require.NotNil(t, dead.Noisy, "a list in JSON")
		require.NotNil(t, dead.Waiting, "a list in JSON")
		require.NotNil(t, dead.Starved, "a list in JSON")
		require.Equal(t, wire.CodeBadField, h.ask(api.VerbNoisy, "orders", `{"limit":1001}`, nil).ErrCode)
		require.Equal(t, wire.CodeQueueNotFound, h.ask(api.VerbNoisy, "none", ``, nil).ErrCode)

		short := reply
		short.Shorten(0)
		require.Empty(t, short.Noisy)
		require.EqualValues(t, 1, short.QuietReady)
	})
}

// Lanes have what waits and what blocks it, and the next deliveries with the gates that have
// to open first.
func TestLanesVerb(t *testing.T) {
	bounds := make([]float64, len(inspect.WaitBounds))
	for i, b := range inspect.WaitBounds {
		bounds[i] = float64(b) / 1e9
	}
	require.Equal(t, api.WaitBounds, bounds)
	withAdmin(t, nil, func(t *testing.T, h *rig) {
		h.must(api.VerbQueueCreate, "orders", `{"fairness_header":"tenant","throttle_headers":["limit"],"visibility_timeout_ms":600000}`, nil)
		h.must(api.VerbThrottleSet, "slow", `{"rate":"1/1000","burst":1}`, nil)
		for range 3 {
			h.enqueue("orders", "x", nats.Header{"tenant": {"a"}})
			h.enqueue("orders", "x", nats.Header{"tenant": {"b"}, "limit": {"slow"}})
		}
		h.consume("orders", 2)
		time.Sleep(100 * time.Millisecond)
		var reply api.LanesReply
		h.must(api.VerbLanes, "orders", ``, &reply)
		require.Len(t, reply.Lanes, 2)
		require.Equal(t, 2, reply.Keys)
		require.EqualValues(t, 2, reply.InFlight)
		require.EqualValues(t, 4, reply.Ready+reply.Blocked)
		require.Equal(t, 0, reply.Credit)
		for _, l := range reply.Lanes {
			require.InDelta(t, 0.5, l.Share, 1e-9)
			require.EqualValues(t, 2, l.Ready+l.Blocked, "%+v", l)
			require.EqualValues(t, 1, l.InFlight)
			require.GreaterOrEqual(t, l.OldestMs, int64(100))
		}
		var keys []string
		for _, d := range reply.Next {
			keys = append(keys, d.Key)
			if d.Key == "b" {
				require.Equal(t, "throttle:slow", d.Gate, "%+v", reply.Next)
				require.Equal(t, "rate", d.Kind)
				require.NotEmpty(t, d.AdmitsAt)
			} else {
				require.Empty(t, d.Gate)
			}
		}
		require.Equal(t, []string{"a", "a", "b", "b"}, keys)
		require.Less(t, reply.Next[2].AdmitsAt, reply.Next[3].AdmitsAt)

		h.must(api.VerbLanes, "orders", `{"limit":0,"next":0}`, &reply)
		require.Empty(t, reply.Lanes)
		require.Empty(t, reply.Next)
		var dead api.LanesReply
		h.must(api.VerbLanes, "orders.dlq", ``, &dead)
		require.NotNil(t, dead.Lanes, "a list in JSON")
		require.NotNil(t, dead.Next, "a list in JSON")
		require.Equal(t, wire.CodeBadField, h.ask(api.VerbLanes, "orders", `{"limit":201}`, nil).ErrCode)
		require.Equal(t, wire.CodeBadField, h.ask(api.VerbLanes, "orders", `{"next":-1}`, nil).ErrCode)
		require.Equal(t, wire.CodeQueueNotFound, h.ask(api.VerbLanes, "none", ``, nil).ErrCode)
	})
}

// TestRedriveVerb: the reply and an event count the redriven dead letters.
func TestRedriveVerb(t *testing.T) {
	withAdmin(t, nil, func(t *testing.T, h *rig) {
		h.must(api.VerbQueueCreate, "orders", ``, nil)
		var reply api.RedriveReply
		h.must(api.VerbRedrive, "orders.dlq", ``, &reply)
		require.Zero(t, reply.Redriven)
		require.Empty(t, h.told(wire.EventRedriven))
		h.enqueue("orders", "x", nil)
		h.consume("orders", 1)
		h.ack(h.one(), "+TERM")
		h.consume("orders", 0)
		h.must(api.VerbRedrive, "orders.dlq", `{"count":5}`, &reply)
		require.EqualValues(t, 1, reply.Redriven)
		var job api.JobInfo
		h.must(api.VerbJobShow, "", `{"id":"`+reply.Job+`"}`, &job)
		require.Equal(t, api.JobRedrive, job.Op)
		var jobs api.JobList
		h.must(api.VerbJobList, "", `{"queue":"orders"}`, &jobs)
		require.Equal(t, reply.Job, jobs.Jobs[0].ID)
		h.must(api.VerbJobList, "", `{"queue":"orders.dlq","limit":1}`, &jobs)
		require.Equal(t, 2, jobs.Total, "of all pages")
		require.Len(t, jobs.Jobs, 1)
		require.Equal(t, wire.CodeQueueNotFound, h.ask(api.VerbJobList, "", `{"queue":"none"}`, nil).ErrCode)
		require.EqualValues(t, 1, job.Done)
		require.EqualValues(t, 1, h.summary("orders").Pending)
		told := h.told(wire.EventRedriven)
		require.Len(t, told, 1)
		require.Equal(t, "orders", told[0].Queue)
		require.EqualValues(t, 1, told[0].Data["redriven"])
	})
}

// told returns the events of a type so far.
func (h *rig) told(typ string) []wire.Event {
	h.mu.Lock()
	defer h.mu.Unlock()
	var events []wire.Event
	for _, e := range h.events {
		if e.Type == typ {
			events = append(events, e)
		}
	}
	return events
}

// TestHookResetVerb closes the circuits of hooks.
func TestHookResetVerb(t *testing.T) {
	withAdmin(t, nil, func(t *testing.T, h *rig) {
		h.must(api.VerbQueueCreate, "orders", `{"on_enqueue":"function on_enqueue(msg) error('no') end"}`, nil)
		for range 3 {
			h.enqueue("orders", "x", nil)
		}
		var info api.QueueInfo
		h.must(api.VerbQueueInspect, "orders", ``, &info)
		require.Equal(t, "open", info.Hooks[0].State)
		var reply api.HookResetReply
		h.must(api.VerbHookReset, "orders", `{"hook":"on_enqueue"}`, &reply)
		require.Equal(t, "orders", reply.Queue)
		require.Len(t, reply.Hooks, 1)
		require.Equal(t, "closed", reply.Hooks[0].State)
		require.EqualValues(t, 3, reply.Hooks[0].Failures)
	})
}

// TestQueueOfTheFile: a queue of the configuration file can be changed, and a warning says that
// the change will not last.
func TestQueueOfTheFile(t *testing.T) {
	declare := func(c *config.Config) { c.Queues = []wire.QueueSettings{wire.DefaultQueueSettings("orders")} }
	withAdmin(t, declare, func(t *testing.T, h *rig) {
		log, text := newLog()
		h.log = log
		h.must(api.VerbQueueCreate, "accounts", ``, nil)
		h.must(api.VerbQueueUpdate, "accounts", `{"quantum":7}`, nil)
		require.Empty(t, text.String())
		h.must(api.VerbQueueUpdate, "orders", `{"quantum":7}`, nil)
		require.Contains(t, text.String(), "a queue of the configuration file is changed at run time")
		h.enqueue("orders", "x", nil)
		var deleted api.QueueDeleteReply
		require.Equal(t, wire.CodeQueueNotEmpty, h.ask(api.VerbQueueDelete, "orders", ``, &deleted).ErrCode)
		require.NotContains(t, text.String(), "is deleted")
		h.must(api.VerbQueueDelete, "orders", `{"force":true}`, &deleted)
		require.Equal(t, []string{"the configuration file has queue orders: the next reload or start makes it again, unless its table is removed"}, deleted.Warnings)
		require.Contains(t, text.String(), "a queue of the configuration file is deleted; the next reload or start creates it again")
		text.Reset()
		deleted = api.QueueDeleteReply{}
		h.must(api.VerbQueueDelete, "accounts", ``, &deleted)
		require.Empty(t, deleted.Warnings)
		require.NotContains(t, text.String(), "is deleted")
	})
}

// TestRetryPolicyOfAQueue: a queue may have no policy, a policy of the file, or the one that it
// has already.
func TestRetryPolicyOfAQueue(t *testing.T) {
	file := config.Default()
	file.RetryPolicies = []rules.RetryPolicy{{Name: "slow", InitialDelayMs: 100}}
	reread := func(c *config.Config) {
		*c = file
		c.Reload = func() (config.Config, error) { return config.Default(), nil }
	}
	withAdmin(t, reread, func(t *testing.T, h *rig) {
		refused := func(verb api.AnyVerb, name, body string) {
			t.Helper()
			werr := h.ask(verb, name, body, nil)
			require.NotNil(t, werr)
			require.Contains(t, werr.Error(), `retry_policy is "sloow": allowed is the name of a [[retry_policy]]`)
		}
		h.must(api.VerbQueueCreate, "mail", `{"retry_policy":"slow"}`, nil)
		refused(api.VerbQueueCreate, "other", `{"retry_policy":"sloow"}`)
		refused(api.VerbQueueUpdate, "mail", `{"retry_policy":"sloow","max_depth":7}`)
		now := h.shards.Queue("mail").Settings()
		require.Equal(t, "slow", now.RetryPolicy)
		require.Zero(t, now.MaxDepth)

		// The file drops it: the queue keeps the name, and may be changed otherwise.
		h.must(api.VerbReload, "", ``, nil)
		h.must(api.VerbQueueUpdate, "mail", `{"max_depth":7}`, nil)
		h.must(api.VerbQueueUpdate, "mail", `{"retry_policy":""}`, nil)
		refused(api.VerbQueueUpdate, "mail", `{"retry_policy":"sloow"}`)
	})
}

// TestRepliesFit into a message: lists are cut, and the reply says that there is more.
func TestRepliesFit(t *testing.T) {
	withAdmin(t, nil, func(t *testing.T, h *rig) {
		h.most.Store(16_384)
		const consumers, values = 300, 100
		h.must(api.VerbQueueCreate, "orders", `{"fairness_header":"tenant"}`, nil)
		for i := range consumers {
			h.enqueue("orders", "x", nats.Header{"tenant": {fmt.Sprint("tenant-", i)}})
		}
		h.must(api.VerbPause, "", `{"kind":"queue","name":"orders"}`, nil)
		q := h.shards.Queue("orders")
		for i := range consumers {
			require.True(t, q.Tell(queue.Register{
				Consumer: fmt.Sprintf("worker-%03d", i), Subject: "s", MaxInFlight: 1, TTL: int64(time.Hour),
			}))
		}
		for i := range values {
			h.must(api.VerbConfigSet, fmt.Sprintf("k%03d", i), `{"value":"`+strings.Repeat("v", 1000)+`"}`, nil)
			h.must(api.VerbThrottleSet, fmt.Sprintf("t%03d", i)+strings.Repeat("t", 200), `{"rate":"1"}`, nil)
			h.must(api.VerbPause, "", fmt.Sprintf(`{"kind":"key","queue":"orders","name":"%03d%s"}`, i, strings.Repeat("p", 200)), nil)
			h.must(api.VerbCircuitOpen, fmt.Sprintf("c%03d", i)+strings.Repeat("c", 200), ``, nil)
			h.must(api.VerbQueueCreate, fmt.Sprintf("q%03d", i)+strings.Repeat("q", 40), ``, nil)
		}
		var info api.QueueInfo
		h.fits(api.VerbQueueInspect, "orders", `{"flows":1000}`, &info)
		require.NotEmpty(t, info.ConsumerList)
		require.NotEmpty(t, info.TopFlows)
		require.Equal(t, consumers, info.Consumers)
		require.Equal(t, consumers, len(info.ConsumerList)+info.MoreConsumers)
		require.Equal(t, consumers, len(info.TopFlows)+info.MoreFlows)
		h.fits(api.VerbQueueInspect, "orders", `{"flows":10}`, &info)
		require.Len(t, info.TopFlows, 10)

		for verb, entries := range map[api.AnyVerb]string{
			api.VerbConfigList: "entries", api.VerbConfigLog: "entries", api.VerbThrottleList: "throttles",
			api.VerbPauseList: "pauses", api.VerbCircuitList: "circuits", api.VerbQueueList: "queues",
		} {
			seen, total, pages := 0, 1, 0
			for seen < total {
				var reply map[string]json.RawMessage
				h.fits(verb, "", fmt.Sprintf(`{"offset":%d,"limit":1000}`, seen), &reply)
				var page []json.RawMessage
				require.NoError(t, json.Unmarshal(reply[entries], &page))
				require.NoError(t, json.Unmarshal(reply["total"], &total))
				require.NotEmpty(t, page, verb)
				seen += len(page)
				pages++
			}
			require.Equal(t, total, seen, verb)
			require.GreaterOrEqual(t, total, values, verb)
			require.Greater(t, pages, 1, verb)
		}
	})
}

// fits carries out a verb whose reply must fit into a message.
func (h *rig) fits(verb api.AnyVerb, tail, body string, into any) {
	h.t.Helper()
	data, werr := h.verbs[verb].Do(api.Sender{}, tail, []byte(body))
	require.Nil(h.t, werr, verb)
	require.LessOrEqual(h.t, len(data), int(h.MaxPayload()), verb)
	require.NoError(h.t, json.Unmarshal(data, into))
}
