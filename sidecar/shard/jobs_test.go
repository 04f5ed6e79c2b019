package shard

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/job"
	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/sidecar/queue/history"
	"github.com/filaq/fila/sidecar/queue/inspect"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// Constants of package job.
const (
	batchSize = 160
	keptFor   = job.KeptFor
)

// everything returns a filter that matches all messages.
func everything() *api.Filter { return &api.Filter{All: true} }

// begin creates a job.
func (r *rig) begin(req api.JobCreateRequest) api.JobInfo {
	r.t.Helper()
	info, werr := r.Queue(req.Queue).CreateJob(r.checked(req))
	require.Nil(r.t, werr)
	return info
}

// checked returns a request as if it came from a client.
func (r *rig) checked(req api.JobCreateRequest) api.JobCreateRequest {
	r.t.Helper()
	parsed, werr := api.VerbJobCreate.Parse("", []byte(asJSON(req)))
	require.Nil(r.t, werr)
	require.Nil(r.t, parsed.Resolve(time.Unix(0, r.Now())))
	return parsed
}

// over waits until a job has ended or is paused.
func (r *rig) over(id string) api.JobInfo {
	r.t.Helper()
	for range 1000 {
		info, werr := r.Job(id)
		require.Nil(r.t, werr)
		if info.Ended() || info.State == api.JobPaused {
			return info
		}
		time.Sleep(100 * time.Millisecond)
	}
	require.Fail(r.t, "a job that does not end")
	return api.JobInfo{}
}

// run creates a job and waits until it is done.
func (r *rig) run(req api.JobCreateRequest) api.JobInfo {
	r.t.Helper()
	info := r.over(r.begin(req).ID)
	require.Equal(r.t, api.JobDone, info.State, info.Why)
	return info
}

// another creates a queue beside orders.
func (r *rig) another(name string, change func(*wire.QueueSettings)) *Queue {
	r.t.Helper()
	settings := wire.DefaultQueueSettings(name)
	settings.RetryInitialMs = 0
	if change != nil {
		change(&settings)
	}
	_, werr := r.Create(settings)
	require.Nil(r.t, werr)
	return r.Queue(name)
}

// asJSON encodes a value.
func asJSON(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// first returns the first message of a queue.
func (r *rig) first(q *Queue) (v inspect.MessageView) {
	r.t.Helper()
	q.View(func(m *queue.Queue, side queue.Role, now int64) {
		views, _ := m.Inspect(side).Select(&inspect.Match{}, 0, 1, 1, nil, now)
		require.Len(r.t, views, 1)
		v = views[0]
	})
	return v
}

// bodies acks all messages of a queue and returns their bodies.
func (r *rig) bodies(q *Queue) (all []string) {
	r.t.Helper()
	r.consume(q, "reader", 10_000)
	time.Sleep(time.Second)
	for _, m := range r.conn.take("reader") {
		all = append(all, string(m.Data))
		r.ack(m, done, "")
	}
	require.True(r.t, q.Tell(queue.Leave{Consumer: "reader"}))
	time.Sleep(time.Second)
	return all
}

// TestAJobRedrivesMatchingMessages and no later ones.
func TestAJobRedrivesMatchingMessages(t *testing.T) {
	bubble(t, func(r *rig) {
		q := r.create(func(s *wire.QueueSettings) { s.FairnessHeader = "tenant" })
		r.bury(q, 10, byTenant)
		dry := api.JobCreateRequest{Queue: "orders.dlq", Op: api.JobRedrive, Filter: &api.Filter{Header: map[string]string{"Tenant": "a"}}, DryRun: true}
		info, werr := q.DLQ().CreateJob(r.checked(dry))
		require.Nil(t, werr)
		require.EqualValues(t, []int64{5, 5}, []int64{info.Matched, info.Eligible})
		require.Len(t, info.Samples, 5)
		require.Equal(t, "a", info.Samples[0].Key)
		require.Empty(t, info.ID)
		require.EqualValues(t, 10, q.DLQ().Depth())

		dry.DryRun = false
		wrong := int64(4)
		dry.IfCount = &wrong
		_, werr = q.DLQ().CreateJob(r.checked(dry))
		require.Equal(t, wire.CodeJobCount, werr.ErrCode)
		right := int64(5)
		dry.IfCount = &right
		done := r.run(dry)
		require.EqualValues(t, []int64{5, 5}, []int64{done.Matched, done.Done})
		require.Empty(t, done.Left)
		require.Zero(t, *done.NewSince)
		require.Equal(t, []string{"0", "2", "4", "6", "8"}, r.bodies(q))
		require.EqualValues(t, 5, q.DLQ().Depth())
		require.Len(t, r.news(wire.EventJobCreated), 1)
		ended := r.news(wire.EventJobDone)
		require.Equal(t, done.ID, ended[0].Data["job"])
		require.EqualValues(t, 5, r.news(wire.EventRedriven)[0].Data["redriven"])
	})
}

// TestOrdersOfJobs: arrival is the order of the first enqueue, death the order of dead letters.
func TestOrdersOfJobs(t *testing.T) {
	for order, want := range map[string][]string{api.OrderArrival: {"0", "1"}, api.OrderDeath: {"2", "1"}} {
		t.Run(order, func(t *testing.T) {
			bubble(t, func(r *rig) {
				q := r.create(nil)
				r.consume(q, "w", 3)
				for i := range 3 {
					require.Nil(t, r.enqueue(fmt.Sprint(i), "", nil))
					time.Sleep(time.Second)
				}
				all := r.conn.take("w")
				slices.Reverse(all)
				for _, m := range all {
					r.ack(m, term, "")
				}
				require.True(t, q.Tell(queue.Leave{Consumer: "w"}))
				time.Sleep(time.Second)
				done := r.run(api.JobCreateRequest{Queue: "orders.dlq", Op: api.JobRedrive, Filter: everything(), Order: order, Limit: 2})
				require.EqualValues(t, 2, done.Done)
				require.Equal(t, want, r.bodies(q))
			})
		})
	}
}

// TestOpsOnWaitingMessages leave messages that are in flight.
func TestOpsOnWaitingMessages(t *testing.T) {
	bubble(t, func(r *rig) {
		q := r.create(func(s *wire.QueueSettings) { s.FairnessHeader = "tenant" })
		r.consume(q, "w", 1)
		for i := range 7 {
			require.Nil(t, r.enqueue(fmt.Sprint(i), "", byTenant(i)))
		}
		held := r.one("w")
		require.Equal(t, "0", string(held.Data))
		done := r.run(api.JobCreateRequest{Queue: "orders", Op: api.JobDelay, Filter: &api.Filter{Keys: []string{"a"}}, RunAt: "1h"})
		require.EqualValues(t, 3, done.Done)
		require.Equal(t, map[string]int64{api.LeftInFlight: 1}, done.Left)
		require.Zero(t, *done.NewSince, "messages that the job itself moved are not new")
		done = r.run(api.JobCreateRequest{Queue: "orders", Op: api.JobRunNow, Filter: &api.Filter{Keys: []string{"a", "b"}}, Limit: 1})
		require.EqualValues(t, 1, done.Done)
		require.Equal(t, map[string]int64{api.LeftInFlight: 1, api.LeftNotDelayed: 1}, done.Left, "messages in front of the first delayed one")
		done = r.run(api.JobCreateRequest{Queue: "orders", Op: api.JobReprioritise, Filter: &api.Filter{Keys: []string{"b"}}, Key: "c", Weight: 7})
		require.EqualValues(t, 3, done.Done)
		q.View(func(m *queue.Queue, side queue.Role, now int64) {
			require.EqualValues(t, 7000, m.Inspect(side).Key("c", now).Weight)
			require.False(t, m.Inspect(side).Key("b", now).Known)
			require.EqualValues(t, 2, m.Inspect(side).Stats(now).Delayed)
		})
		done = r.run(api.JobCreateRequest{Queue: "orders", Op: api.JobCancel, Filter: &api.Filter{State: api.StateDelayed}})
		require.EqualValues(t, 2, done.Done)
		require.EqualValues(t, 5, q.Depth())
		r.ack(held, wire.Ack{Kind: wire.AckDone}, "")
		require.True(t, q.Tell(queue.Leave{Consumer: "w"}))
		synctest.Wait()
		r.conn.take("w")

		next := r.restart()
		defer next.end()
		q = next.Queue("orders")
		next.consume(q, "x", 10)
		synctest.Wait()
		var got []string
		for _, m := range next.conn.take("x") {
			got = append(got, string(m.Data)+m.Header.Get(wire.HeaderKey))
		}
		slices.Sort(got)
		require.Equal(t, []string{"1c", "3c", "5c"}, got, "2 was delivered when it was made ready")
		list := next.Jobs("orders", "", 10)
		require.Len(t, list.Jobs, 4)
		require.Equal(t, done.ID, list.Jobs[0].ID)
		require.Equal(t, api.JobDone, list.Jobs[0].State)
		first := next.Jobs("orders", "", 3)
		require.Len(t, first.Jobs, 3)
		second := next.Jobs("orders", first.Next, 3)
		require.Equal(t, list.Jobs[3:], second.Jobs)
		require.Equal(t, []int{4, 4, 4}, []int{list.Total, first.Total, second.Total}, "of all pages")
		require.Zero(t, next.Jobs("other", "", 3).Total)
	})
}

// TestAJobDelaysAMessage, also over a restart. It keeps its attempts and its TTL.
func TestAJobDelaysAMessage(t *testing.T) {
	bubble(t, func(r *rig) {
		q := r.create(nil)
		require.Nil(t, r.enqueue("x", "", nat(wire.HeaderTTL, "3h")))
		r.consume(q, "w", 1)
		r.ack(r.one("w"), wire.Ack{Kind: wire.AckNack}, "")
		require.Equal(t, "2", r.one("w").Header.Get(wire.HeaderAttempt))
		require.True(t, q.Tell(queue.Leave{Consumer: "w"}))
		time.Sleep(time.Minute) // its lease ends
		require.EqualValues(t, 1, r.run(api.JobCreateRequest{Queue: "orders", Op: api.JobDelay, Filter: everything(), RunAt: "1h"}).Done)
		next := r.restart()
		next.consume(next.Queue("orders"), "w", 1)
		time.Sleep(58 * time.Minute)
		next.none("w")
		time.Sleep(121 * time.Second)
		require.Equal(t, "3", next.one("w").Header.Get(wire.HeaderAttempt))
		require.True(t, next.Queue("orders").Tell(queue.Leave{Consumer: "w"}))
		time.Sleep(3 * time.Hour)
		require.EqualValues(t, 1, next.Queue("orders.dlq").Depth(), "its TTL has ended")
		next.end()
	})
}

// TestMovesToAnotherQueue of the shard count in both queues, and the target decides about
// keys.
func TestMovesToAnotherQueue(t *testing.T) {
	bubble(t, func(r *rig) {
		q := r.create(nil)
		to := r.another("slow", func(s *wire.QueueSettings) { s.FairnessHeader, s.MaxDepth = "tenant", 7 })
		r.bury(q, 3, byTenant)
		for i := range 6 {
			require.Nil(t, r.enqueue(fmt.Sprint(10+i), "", byTenant(i)))
		}
		require.EqualValues(t, 3, r.run(api.JobCreateRequest{Queue: "orders.dlq", Op: api.JobMove, To: "slow", Filter: everything()}).Done)
		require.Zero(t, q.DLQ().Depth())
		require.Zero(t, q.DLQ().Bytes())

		paused := r.over(r.begin(api.JobCreateRequest{Queue: "orders", Op: api.JobMove, To: "slow", Filter: everything()}).ID)
		require.Equal(t, api.JobPaused, paused.State)
		require.Contains(t, paused.Why, "slow")
		require.EqualValues(t, 4, paused.Done)
		require.EqualValues(t, []int64{2, 7}, []int64{q.Depth(), to.Depth()})
		require.Len(t, r.news(wire.EventJobPaused), 1)

		to.View(func(m *queue.Queue, side queue.Role, now int64) {
			require.EqualValues(t, 3, m.Inspect(side).Key("b", now).Pending)
		})
		require.Len(t, r.bodies(to), 7)
		require.Zero(t, to.Depth())
		_, werr := r.ResumeJob(paused.ID)
		require.Nil(t, werr)
		done := r.over(paused.ID)
		require.EqualValues(t, 6, done.Done, "%+v", done)
		require.Equal(t, []string{"14", "15"}, r.bodies(to))
		require.Zero(t, q.Depth())
		require.Zero(t, to.Bytes())

		require.Nil(t, r.enqueue("x", "", nil))
		_, werr = to.Delete("", true)
		require.Nil(t, werr)
		gone := r.over(r.begin(api.JobCreateRequest{Queue: "orders", Op: api.JobMove, To: "slow", Filter: everything()}).ID)
		require.Equal(t, api.JobPaused, gone.State)
		require.Contains(t, gone.Why, "slow")
		require.EqualValues(t, 1, q.Depth())
	})
}

// TestADryRunPredictsTheRun: how many messages change, why others are left, and what stops
// the job.
func TestADryRunPredictsTheRun(t *testing.T) {
	perKey := func(n int64) func(*wire.QueueSettings) {
		return func(s *wire.QueueSettings) { s.FairnessHeader, s.MaxPendingPerKey = "tenant", n }
	}
	large := base64.StdEncoding.EncodeToString(make([]byte, 1000))
	for name, c := range map[string]struct {
		from, to   func(*wire.QueueSettings) // settings of orders and slow
		dead       bool
		req        api.JobCreateRequest
		done       int64
		left       map[string]int64
		stops, one bool
	}{
		"a key that gets full":         {from: perKey(10), req: api.JobCreateRequest{Op: api.JobReprioritise, Key: "vip"}, done: 10, left: map[string]int64{api.LeftKeyFull: 2}},
		"a key that is full":           {from: perKey(6), req: api.JobCreateRequest{Op: api.JobReprioritise, Key: "a"}, left: map[string]int64{api.LeftKeyFull: 12}},
		"a key with room for a batch":  {from: perKey(20), req: api.JobCreateRequest{Op: api.JobReprioritise, Key: "a"}, done: 12},
		"another weight takes nothing": {from: perKey(6), req: api.JobCreateRequest{Op: api.JobReprioritise, Weight: 2}, done: 12},
		"keys of the target":           {to: perKey(2), req: api.JobCreateRequest{Op: api.JobMove, To: "slow"}, done: 4, left: map[string]int64{api.LeftKeyFull: 8}},
		"a target that gets full":      {to: func(s *wire.QueueSettings) { s.MaxDepth = 7 }, req: api.JobCreateRequest{Op: api.JobMove, To: "slow"}, done: 7, stops: true},
		"bytes of the target":          {to: func(s *wire.QueueSettings) { s.MaxBytes = 100 }, req: api.JobCreateRequest{Op: api.JobMove, To: "slow"}, done: 10, stops: true},
		"a limit in front of that":     {to: func(s *wire.QueueSettings) { s.MaxDepth = 7 }, req: api.JobCreateRequest{Op: api.JobMove, To: "slow", Limit: 7}, done: 7},
		"a target that is not there":   {req: api.JobCreateRequest{Op: api.JobMove, To: "nowhere"}, stops: true},
		"keys of dead letters":         {from: perKey(4), dead: true, req: api.JobCreateRequest{Op: api.JobRedrive}, done: 8, left: map[string]int64{api.LeftKeyFull: 4}},
		"an edit that gets too large":  {req: api.JobCreateRequest{Op: api.JobEdit, Payload: &large}, one: true, left: map[string]int64{api.LeftRefused: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				q := r.create(c.from)
				r.another("slow", c.to)
				for i := range 12 {
					if c.dead {
						break
					}
					require.Nil(t, r.enqueue("x", "", byTenant(i)))
				}
				c.req.Queue, c.req.Filter = "orders", everything()
				if c.dead {
					r.bury(q, 12, byTenant)
					c.req.Queue = "orders.dlq"
				}
				time.Sleep(time.Second)
				if c.one {
					r.conn.max = wire.HeaderRoom + int64(len(large))/2
					c.req.Filter = &api.Filter{IDs: []string{formatID(r.first(q).ID)}}
				}
				dry := c.req
				dry.DryRun = true
				dryRun, werr := r.Queue(c.req.Queue).CreateJob(r.checked(dry))
				ran := r.over(r.begin(c.req).ID)
				require.Equal(t, c.done, ran.Done, "%+v", ran)
				require.Equal(t, c.left, ran.Left)
				require.Equal(t, c.stops, ran.State == api.JobPaused, ran.Why)
				if werr != nil {
					require.True(t, c.stops)
					require.Equal(t, ran.Why, werr.Description)
					return
				}
				require.Equal(t, ran.Done, dryRun.Eligible)
				require.Equal(t, ran.Left, dryRun.Left)
				require.Equal(t, ran.Why, dryRun.Why)
				require.Len(t, dryRun.Samples, int(min(ran.Done, api.JobSamples)))
			})
		})
	}
}

// TestADryRunHasItsOwnHook: a failure of on_enqueue in a dry run does not count for the queue.
func TestADryRunHasItsOwnHook(t *testing.T) {
	bubble(t, func(r *rig) {
		q := r.create(func(s *wire.QueueSettings) {
			s.OnEnqueue = `function on_enqueue(msg) if msg.headers["Tenant"] == "bad" then error("no") end return {fairness_key = "k"} end`
		})
		r.bury(q, 12, func(int) nats.Header { return nats.Header{"Tenant": {"bad"}} })
		before := q.Hooks()
		dryRun, werr := r.Queue("orders.dlq").CreateJob(r.checked(api.JobCreateRequest{
			Queue: "orders.dlq", Op: api.JobRedrive, Filter: everything(), DryRun: true,
		}))
		require.Nil(t, werr)
		require.EqualValues(t, 12, dryRun.Eligible, "they would go with the defaults")
		require.Equal(t, before, q.Hooks())
	})
}

// TestAMoveToAQueueThatIsDeletedMeanwhile leaves the messages in their queue.
func TestAMoveToAQueueThatIsDeletedMeanwhile(t *testing.T) {
	bubble(t, func(r *rig) {
		q := r.create(nil)
		to := r.another("slow", func(s *wire.QueueSettings) { s.MaxPendingPerKey = 10 })
		require.Nil(t, r.enqueue("x", "", nil))
		r.store.refuse(func(b *store.Batch) error {
			if len(b.Move) > 0 {
				return store.ErrNoQueue
			}
			return nil
		})
		paused := r.over(r.begin(api.JobCreateRequest{Queue: "orders", Op: api.JobMove, To: "slow", Filter: everything()}).ID)
		require.Equal(t, api.JobPaused, paused.State)
		require.Zero(t, to.Depth())
		require.Zero(t, to.Bytes())
		require.Empty(t, to.perKey.Load().mu.n)
		r.store.refuse(nil)
		require.Equal(t, []string{"x"}, r.bodies(q))
	})
}

// TestAnEdit replaces headers and payload of a dead letter, which stays a dead letter.
func TestAnEdit(t *testing.T) {
	bubble(t, func(r *rig) {
		q := r.create(nil)
		r.bury(q, 2, func(int) nats.Header { return nats.Header{"currency": {"none"}, "old": {"1"}} })
		id := formatID(r.first(q.DLQ()).ID)
		payload := base64.StdEncoding.EncodeToString([]byte("mended"))
		require.EqualValues(t, 1, r.run(api.JobCreateRequest{
			Queue: "orders.dlq", Op: api.JobEdit, Filter: &api.Filter{IDs: []string{id}},
			SetHeaders: map[string]string{"Currency": "EUR"}, RemoveHeaders: []string{"OLD"}, Payload: &payload,
		}).Done)
		require.EqualValues(t, 2, q.DLQ().Depth())
		next := r.restart()
		q = next.Queue("orders")
		require.EqualValues(t, 1, next.run(api.JobCreateRequest{
			Queue: "orders.dlq", Op: api.JobRedrive, Filter: &api.Filter{IDs: []string{id}, Reason: wire.ReasonTerm},
		}).Done)
		next.consume(q, "w", 1)
		m := next.one("w")
		require.Equal(t, "mended", string(m.Data))
		require.NoError(t, next.store.History([]store.Ref{{Queue: q.ID(), Seq: 1}}, func(_ int, records [][]byte) {
			require.Len(t, records, 2, "its death, and that it went back")
		}))
		require.Equal(t, id, m.Header.Get(wire.HeaderID))
		require.Equal(t, []string{"EUR"}, m.Header["Currency"])
		require.NotContains(t, m.Header, "old")
		next.end()
	})
}

// TestAnEditOfABrokenMessage leaves it: otherwise it would lose why it is dead.
func TestAnEditOfABrokenMessage(t *testing.T) {
	for name, bad := range map[string]badPlaces{"headers": {garbled: 1}, "record": {dead: errCorrupt}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				q := r.create(nil)
				r.bury(q, 1, plain)
				id := formatID(r.first(q.DLQ()).ID)
				r.store.spoil(bad)
				info := r.over(r.begin(api.JobCreateRequest{
					Queue: "orders.dlq", Op: api.JobEdit, Filter: &api.Filter{IDs: []string{id}}, SetHeaders: map[string]string{"Currency": "EUR"},
				}).ID)
				require.Zero(t, info.Done)
				require.Equal(t, map[string]int64{api.LeftUnreadable: 1}, info.Left)
				r.store.spoil(badPlaces{})
				ref := []store.Ref{{Queue: q.DLQ().ID(), Seq: 1}}
				require.NoError(t, r.store.Dead(ref, func(_ int, d *store.Dead) { require.NotNil(t, d) }))
			})
		})
	}
}

// TestAJobIsPausedAndResumed, also after restarts, and does nothing twice.
func TestAJobIsPausedAndResumed(t *testing.T) {
	bubble(t, func(r *rig) {
		q := r.create(nil)
		r.bury(q, 50, plain)
		job := r.begin(api.JobCreateRequest{Queue: "orders.dlq", Op: api.JobRedrive, Filter: everything(), Rate: 10})
		second := r.begin(api.JobCreateRequest{Queue: "orders.dlq", Op: api.JobDelete, Filter: everything()})
		time.Sleep(1050 * time.Millisecond)
		now, _ := r.Job(job.ID)
		require.Equal(t, api.JobRunning, now.State)
		require.InDelta(t, 11, now.Done, 1)
		other, _ := r.Job(second.ID)
		require.Equal(t, api.JobWaiting, other.State, "one of a queue runs at a time")
		_, werr := r.PauseJob(second.ID)
		require.Nil(t, werr)
		paused, werr := r.PauseJob(job.ID)
		require.Nil(t, werr)
		require.Equal(t, api.JobPaused, paused.State)
		time.Sleep(time.Minute)
		require.Equal(t, paused.Done, q.Depth())

		next := r.restart()
		kept, werr := next.Job(job.ID)
		require.Nil(t, werr)
		require.Equal(t, paused.Done, kept.Done)
		require.Equal(t, api.JobPaused, kept.State)
		_, werr = next.ResumeJob(job.ID)
		require.Nil(t, werr)
		time.Sleep(time.Second)
		last := next.restart() // while it runs
		done := last.over(job.ID)
		require.Equal(t, api.JobDone, done.State)
		require.EqualValues(t, 50, done.Done)
		require.Len(t, last.bodies(last.Queue("orders")), 50)

		canceled, werr := last.CancelJob(second.ID)
		require.Nil(t, werr)
		require.Equal(t, api.JobCanceled, canceled.State)
		_, werr = last.CancelJob(second.ID)
		require.Nil(t, werr)
		_, werr = last.ResumeJob(second.ID)
		require.Equal(t, wire.CodeJobEnded, werr.ErrCode)
		_, werr = last.PauseJob(second.ID)
		require.Equal(t, wire.CodeJobEnded, werr.ErrCode)
		time.Sleep(keptFor + time.Hour)
		list := last.Jobs("", "", 10)
		require.Empty(t, list.Jobs)
		require.Zero(t, list.Total)
		last.begin(api.JobCreateRequest{Queue: "orders", Op: api.JobCancel, Filter: everything()})
		_, werr = last.Job(job.ID)
		require.Equal(t, wire.CodeJobNotFound, werr.ErrCode)
		last.end()
	})
}

// TestJobsOfADeletedQueue are deleted, also on disk.
func TestJobsOfADeletedQueue(t *testing.T) {
	bubble(t, func(r *rig) {
		q := r.create(nil)
		r.bury(q, 20, plain)
		job := r.begin(api.JobCreateRequest{Queue: "orders.dlq", Op: api.JobRedrive, Filter: everything(), Rate: 1})
		time.Sleep(3 * time.Second)
		_, werr := q.Delete("", true)
		require.Nil(t, werr)
		_, werr = r.Job(job.ID)
		require.Equal(t, wire.CodeJobNotFound, werr.ErrCode)
		time.Sleep(time.Minute)
		snap, err := r.store.Snapshot()
		require.NoError(t, err)
		require.Empty(t, snap.Config)
	})
}

// TestOneMessageThatCannotBeMoved does not keep the others of its batch from moving.
func TestOneMessageThatCannotBeMoved(t *testing.T) {
	bubble(t, func(r *rig) {
		q := r.create(nil)
		r.bury(q, 5, plain)
		r.store.refuse(func(b *store.Batch) error {
			for i := range b.Move {
				if b.Move[i].From.Seq == 3 {
					return errCorrupt
				}
			}
			return nil
		})
		done := r.run(api.JobCreateRequest{Queue: "orders.dlq", Op: api.JobRedrive, Filter: everything()})
		require.EqualValues(t, 4, done.Done)
		require.Equal(t, map[string]int64{api.LeftUnreadable: 1}, done.Left)
		require.Equal(t, []string{"0", "1", "3", "4"}, r.bodies(q))
		require.EqualValues(t, 1, q.DLQ().Depth())
	})
}

// TestAJobThatIsTooLarge for the store is refused and does not fail the shard.
func TestAJobThatIsTooLarge(t *testing.T) {
	bubble(t, func(r *rig) {
		q := r.create(nil)
		require.Nil(t, r.enqueue("x", "", nil))
		synctest.Wait()
		id := formatID(r.first(q).ID)
		edit := api.JobCreateRequest{
			Queue: "orders", Op: api.JobEdit, Filter: &api.Filter{IDs: []string{id}},
			SetHeaders: map[string]string{"Page": strings.Repeat("<", store.MaxHeaderBytes/6)}, // of six bytes each in JSON
		}
		_, werr := q.CreateJob(edit)
		require.NotNil(t, werr)
		require.Equal(t, wire.CodeBadField, werr.ErrCode)
		require.NoError(t, r.Err())
		edit.SetHeaders["Page"] = edit.SetHeaders["Page"][1000:]
		require.EqualValues(t, 1, r.run(edit).Done)
	})
}

// TestAnEditOfDeadLettersOfAFullQueue needs no room in the queue.
func TestAnEditOfDeadLettersOfAFullQueue(t *testing.T) {
	bubble(t, func(r *rig) {
		q := r.create(func(s *wire.QueueSettings) { s.MaxDepth = 2 })
		r.bury(q, 2, plain)
		id := formatID(r.first(q.DLQ()).ID)
		info := r.run(api.JobCreateRequest{
			Queue: "orders.dlq", Op: api.JobEdit, Filter: &api.Filter{IDs: []string{id}}, SetHeaders: map[string]string{"Currency": "EUR"},
		})
		require.EqualValues(t, 1, info.Done)
		require.Zero(t, *info.NewSince, "the edited message is not new")
	})
}

// TestAMessageThatIsAckedDuringAJob counts as gone.
func TestAMessageThatIsAckedDuringAJob(t *testing.T) {
	bubble(t, func(r *rig) {
		q := r.create(nil)
		for i := range 5 {
			require.Nil(t, r.enqueue(fmt.Sprint(i), "", nil))
		}
		job := r.begin(api.JobCreateRequest{Queue: "orders", Op: api.JobDelay, Filter: everything(), RunAt: "1h", Rate: 1})
		time.Sleep(500 * time.Millisecond)
		r.consume(q, "w", 1)
		m := r.one("w")
		require.True(t, q.Tell(queue.Leave{Consumer: "w"}))
		r.ack(m, done, "")
		info := r.over(job.ID)
		require.EqualValues(t, 4, info.Done)
		require.Equal(t, map[string]int64{api.LeftGone: 1}, info.Left)
		require.NotContains(t, r.log.String(), "cannot be read")
	})
}

// TestMessagesAfterARestartAreNotPartOfAJob, although no message with the last sequences of
// the job is left.
func TestMessagesAfterARestartAreNotPartOfAJob(t *testing.T) {
	bubble(t, func(r *rig) {
		q := r.create(nil)
		r.another("slow", nil)
		for i := range 5 {
			require.Nil(t, r.enqueue(fmt.Sprint(i), "", nil))
		}
		info := r.begin(api.JobCreateRequest{Queue: "orders", Op: api.JobMove, To: "slow", Filter: everything(), Rate: 1})
		_, werr := r.PauseJob(info.ID)
		require.Nil(t, werr)
		require.NotEmpty(t, r.bodies(q))
		next := r.restart()
		defer next.end()
		for i := range 5 {
			require.Nil(t, next.enqueue(fmt.Sprint("later ", i), "", nil))
		}
		synctest.Wait()
		_, werr = next.ResumeJob(info.ID)
		require.Nil(t, werr)
		info = next.over(info.ID)
		require.Equal(t, api.JobDone, info.State)
		require.LessOrEqual(t, info.Matched, int64(1))
		require.EqualValues(t, 5, *info.NewSince)
		require.EqualValues(t, 5, next.Queue("orders").Depth())
	})
}

// TestAnAttemptDuringAnEdit is part of the history of the edited message.
func TestAnAttemptDuringAnEdit(t *testing.T) {
	bubble(t, func(r *rig) {
		q := r.create(func(s *wire.QueueSettings) { s.VisibilityTimeoutMs = 2 * time.Hour.Milliseconds() })
		require.Nil(t, r.enqueue("x", "id", nil))
		id := r.id("id")
		ended := 0
		attempt := func() {
			r.consume(q, "w", 1)
			for _, m := range r.conn.take("w") {
				r.ack(m, wire.Ack{Kind: wire.AckNack, Error: "boom", Delay: time.Hour, HasDelay: true}, "")
				ended++
			}
		}
		read, goOn := make(chan bool), make(chan bool)
		r.store.meanwhile = func() {
			read <- true
			<-goOn
		}
		job := r.begin(api.JobCreateRequest{
			Queue: "orders", Op: api.JobEdit, Filter: &api.Filter{IDs: []string{id}}, SetHeaders: map[string]string{"Currency": "EUR"},
		})
		<-read
		attempt()
		r.store.meanwhile = nil
		goOn <- true
		require.EqualValues(t, 1, r.over(job.ID).Done)
		time.Sleep(time.Hour)
		attempt()
		require.NotZero(t, ended)
		time.Sleep(time.Second) // it is on disk
		v := r.first(q)
		require.EqualValues(t, ended+1, v.Attempt)
		at := store.Ref{Queue: q.ID(), Seq: v.Seq}
		require.NoError(t, r.store.History([]store.Ref{at}, func(_ int, records [][]byte) {
			require.Len(t, records, ended)
		}))
	})
}

// TestAnEditThatDoesNothing leaves its message in place.
func TestAnEditThatDoesNothing(t *testing.T) {
	for name, tc := range map[string]struct {
		bad   badPlaces
		key   string
		state string
	}{
		"it cannot be read": {badPlaces{dead: errors.New("the disk is away")}, "a", api.JobPaused},
		"its key is none":   {badPlaces{}, strings.Repeat("k", wire.MaxKeyBytes+1), api.JobDone},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				q := r.create(func(s *wire.QueueSettings) { s.FairnessHeader = "Tenant" })
				require.Nil(t, r.enqueue("x", "id", nil))
				id := r.id("id")
				r.store.spoil(tc.bad)
				info := r.over(r.begin(api.JobCreateRequest{
					Queue: "orders", Op: api.JobEdit, Filter: &api.Filter{IDs: []string{id}}, SetHeaders: map[string]string{"Tenant": tc.key},
				}).ID)
				require.Equal(t, tc.state, info.State, info.Why)
				require.Zero(t, info.Done)
				q.View(func(m *queue.Queue, side queue.Role, now int64) {
					require.Equal(t, []int64{1, 0}, []int64{m.Inspect(side).Stats(now).Pending, m.Inspect(side).Stats(now).Moving})
				})
				require.Equal(t, []string{"x"}, r.bodies(q))
			})
		})
	}
}

// TestMovesAreRecordedAsMoves: histories distinguish moves from redrives, and a message that
// has not failed gets no history.
func TestMovesAreRecordedAsMoves(t *testing.T) {
	bubble(t, func(r *rig) {
		q := r.create(nil)
		other := r.another("by-hand", nil)
		r.bury(q, 1, plain)
		r.run(api.JobCreateRequest{Queue: "orders.dlq", Op: api.JobRedrive, Filter: everything()})
		r.consume(q, "w", 1)
		r.ack(r.one("w"), wire.Ack{Kind: wire.AckTerm, Error: "again"}, "")
		time.Sleep(time.Second)
		r.run(moveAll("orders.dlq", "by-hand"))
		require.Equal(t, []string{"term", "redriven", "term", "moved from orders.dlq to by-hand"}, r.records(other))

		r.consume(other, "v", 1)
		r.ack(r.one("v"), wire.Ack{Kind: wire.AckTerm}, "")
		time.Sleep(time.Second)
		groups, werr := other.DLQ().Groups(10)
		require.Nil(t, werr)
		require.Zero(t, groups.Groups[0].CameBack, "it was redriven from another queue")

		require.True(t, q.Tell(queue.Leave{Consumer: "w"}))
		require.Nil(t, r.enqueue("new", "", nil))
		time.Sleep(time.Second)
		r.run(moveAll("orders", "by-hand"))
		fresh := r.one("v")
		require.Empty(t, r.records(other))
		r.ack(fresh, wire.Ack{Kind: wire.AckNack, HasDelay: true, Delay: time.Hour}, "")
		time.Sleep(time.Second)
		r.another("third", nil)
		r.run(moveAll("by-hand", "third"))
		require.Equal(t, []string{"nack", "moved from by-hand to third"}, r.records(r.Queue("third")))
		next := r.restart()
		require.Equal(t, []string{"nack", "moved from by-hand to third"}, next.records(next.Queue("third")))
		next.end()
	})
}

// records returns the outcomes in the history of the first message of a queue.
func (r *rig) records(q *Queue) (all []string) {
	r.t.Helper()
	at := store.Ref{Queue: q.id, Seq: r.first(q).Seq}
	require.NoError(r.t, q.Store().History([]store.Ref{at}, func(_ int, records [][]byte) {
		for _, b := range records {
			p, err := history.Read(b)
			require.NoError(r.t, err)
			if p.From != "" {
				p.Outcome += " from " + p.From + " to " + p.To
			}
			all = append(all, p.Outcome)
		}
	}))
	return all
}

// TestAFilterByTheLastError of live messages is evaluated when they are claimed: a message
// that fails with another error while the job rests does not match any more.
func TestAFilterByTheLastError(t *testing.T) {
	bubble(t, func(r *rig) {
		q := r.create(nil)
		for _, delay := range []time.Duration{time.Hour, 500 * time.Millisecond} { // the first is the older one
			require.Nil(t, r.enqueue("x", delay.String(), nil))
			r.consume(q, "w", 1)
			for _, m := range r.conn.take("w") {
				r.ack(m, wire.Ack{Kind: wire.AckNack, Error: "meant", Delay: delay, HasDelay: true}, "")
			}
			require.True(t, q.Tell(queue.Leave{Consumer: "w"}))
		}
		synctest.Wait()
		job := r.begin(api.JobCreateRequest{Queue: "orders", Op: api.JobCancel, Filter: &api.Filter{ErrorContains: "meant"}, Rate: 1})
		time.Sleep(600 * time.Millisecond) // the first has gone, and the job rests
		require.EqualValues(t, 1, q.Depth())
		r.consume(q, "w", 1)
		for _, m := range r.conn.take("w") {
			r.ack(m, wire.Ack{Kind: wire.AckNack, Error: "other", Delay: time.Hour, HasDelay: true}, "")
		}
		require.EqualValues(t, 1, r.over(job.ID).Done)
		require.EqualValues(t, 1, q.Depth())
	})
}
