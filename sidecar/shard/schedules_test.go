package shard

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

const scheduleKeys = "\x00schedule/"

// The clock of a bubble begins at 2000-01-01T00:00:00Z.

// plan adds a schedule to orders.
func (r *rig) plan(name, text string, change func(*api.ScheduleAddRequest)) api.ScheduleInfo {
	r.t.Helper()
	req := api.ScheduleAddRequest{Name: name, Schedule: text, Missed: wire.MissedOne, Payload: []byte(name)}
	if change != nil {
		change(&req)
	}
	require.Nil(r.t, req.Check())
	info, werr := r.Queue("orders").AddSchedule(req)
	require.Nil(r.t, werr)
	return info
}

func missed(policy string) func(*api.ScheduleAddRequest) {
	return func(req *api.ScheduleAddRequest) { req.Missed = policy }
}

// schedule describes a schedule of orders.
func (r *rig) schedule(name string) api.ScheduleInfo {
	r.t.Helper()
	info, werr := r.Queue("orders").Schedule(name)
	require.Nil(r.t, werr)
	return info
}

// made takes all messages of orders and returns their schedules and runs.
func (r *rig) made() (all []string) {
	r.t.Helper()
	q := r.Queue("orders")
	r.consume(q, "reader", 10_000)
	time.Sleep(10 * time.Millisecond)
	for _, m := range r.conn.take("reader") {
		all = append(all, m.Header.Get(wire.HeaderScheduledBy)+" "+strings.TrimSuffix(m.Header.Get(wire.HeaderScheduledAt), "Z"))
		r.ack(m, done, "")
	}
	require.True(r.t, q.Tell(queue.Leave{Consumer: "reader"}))
	synctest.Wait()
	return all
}

func TestSchedulesRun(t *testing.T) {
	bubble(t, func(r *rig) {
		q := r.create(func(s *wire.QueueSettings) { s.FairnessHeader = "Tenant" })
		time.Sleep(500 * time.Millisecond)
		info := r.plan("often", "@every 10s", nil)
		require.Equal(t, api.ScheduleInfo{
			Queue: "orders", Name: "often", Schedule: "@every 10s", Missed: wire.MissedOne, State: api.ScheduleActive,
			CreatedAt: "2000-01-01T00:00:00.5Z", Bytes: 5, Last: []api.ScheduleRun{},
			Next: []string{"2000-01-01T00:00:10Z", "2000-01-01T00:00:20Z", "2000-01-01T00:00:30Z", "2000-01-01T00:00:40Z", "2000-01-01T00:00:50Z"},
		}, info)
		r.plan("daily", "0 30 9 * * *", func(req *api.ScheduleAddRequest) {
			req.TimeZone, req.TTLMs = "America/New_York", 60_000
			req.Headers = map[string][]string{"Tenant": {"acme"}, "A": {"1", "2"}}
		})
		require.Equal(t, "2000-01-01T09:30:00-05:00", r.schedule("daily").Next[0])
		require.Len(t, r.news(wire.EventScheduleCreated), 2)

		time.Sleep(25 * time.Second)
		require.Equal(t, []string{"often 2000-01-01T00:00:10", "often 2000-01-01T00:00:20"}, r.made())
		seen := r.schedule("often")
		require.EqualValues(t, 2, seen.Runs)
		require.Zero(t, seen.MissedN)
		require.Equal(t, "2000-01-01T00:00:20Z", seen.Last[0].At)
		require.Equal(t, "2000-01-01T00:00:30Z", seen.Next[0])
		require.Equal(t, []byte("often"), seen.Payload)

		_, werr := q.DeleteSchedule("often")
		require.Nil(t, werr)
		time.Sleep(14*time.Hour + 30*time.Minute - 20*time.Second)
		r.consume(q, "w", 1)
		m := r.one("w")
		require.Equal(t, "acme", m.Header.Get(wire.HeaderKey))
		require.Equal(t, []string{"1", "2"}, m.Header["A"])
		require.Equal(t, "daily", string(m.Data))
		require.Equal(t, "2000-01-01T14:30:00Z", m.Header.Get(wire.HeaderScheduledAt))
		require.Equal(t, r.schedule("daily").Last[0].ID, m.Header.Get(wire.HeaderID))
		r.none("w")
	})
}

// TestScheduleOnce: @at runs once, at once if it is late, and is gone then.
func TestScheduleOnce(t *testing.T) {
	bubble(t, func(r *rig) {
		q := r.create(nil)
		r.plan("later", "@at 2000-01-01T00:01:00Z", nil)
		r.plan("late", "@at 1999-12-31T23:00:00Z", nil)
		r.plan("too-late", "@at 1999-12-31T23:00:00Z", missed(wire.MissedSkip))
		time.Sleep(time.Second)
		require.Equal(t, []string{"late 1999-12-31T23:00:00"}, r.made())
		time.Sleep(time.Minute)
		require.Equal(t, []string{"later 2000-01-01T00:01:00"}, r.made())
		require.Len(t, r.news(wire.EventScheduleEnded), 3)
		require.EqualValues(t, 1, r.news(wire.EventScheduleMissed)[0].Data["missed"])
		_, werr := q.Schedule("later")
		require.Equal(t, wire.CodeScheduleNotFound, werr.ErrCode)

		// The same again is the same run, as long as the queue remembers it.
		r = r.restart()
		defer r.end()
		require.Empty(t, r.kept())
		r.plan("later", "@at 2000-01-01T00:01:00Z", nil)
		time.Sleep(time.Second)
		require.Zero(t, r.Queue("orders").Depth())
		require.Empty(t, r.kept())
	})
}

// kept returns the keys of schedules in the store, without their prefix.
func (r *rig) kept() (keys []string) {
	for _, key := range r.keptOf(scheduleKeys) {
		keys = append(keys, strings.TrimPrefix(key, scheduleKeys))
	}
	return keys
}

// TestMissedRuns: the schedule decides about runs that were due while fila was down.
func TestMissedRuns(t *testing.T) {
	bubble(t, func(r *rig) {
		r.create(nil)
		for _, policy := range []string{wire.MissedSkip, wire.MissedOne, wire.MissedAll} {
			r.plan(policy, "@every 1m", missed(policy))
		}
		r.plan("hourly", "@hourly", missed(wire.MissedSkip))
		r.end()
		time.Sleep(63*time.Minute + 30*time.Second)
		r = newRig(r.t, r.disk)
		defer r.end()
		time.Sleep(time.Second)
		all := r.made()
		of := func(name string) (n int) {
			for _, run := range all {
				if strings.HasPrefix(run, name+" ") {
					n++
				}
			}
			return n
		}
		require.Equal(t, []int{1, 1, 63, 0}, []int{of(wire.MissedSkip), of(wire.MissedOne), of(wire.MissedAll), of("hourly")},
			"what is half a minute late is in time, and what is minutes late is not")
		require.Contains(t, all, "one 2000-01-01T01:03:00")
		require.EqualValues(t, 62, r.schedule(wire.MissedOne).MissedN)
		require.Zero(t, r.schedule(wire.MissedAll).MissedN)
		require.EqualValues(t, 63, r.schedule(wire.MissedAll).Runs)
		require.Len(t, r.schedule(wire.MissedAll).Last, api.ScheduleRuns)
		require.EqualValues(t, 1, r.schedule("hourly").MissedN)
		require.Contains(t, scrape(t, r), `fila_schedule_runs_total{queue="orders"} 65`)
		require.Contains(t, scrape(t, r), `fila_schedule_missed_total{queue="orders"} 125`)
		require.Equal(t, "2000-01-01T02:00:00Z", r.schedule("hourly").Next[0])

		// All of them are the last thousand.
		q := r.Queue("orders")
		for _, name := range []string{wire.MissedSkip, wire.MissedOne, "hourly"} {
			_, werr := q.DeleteSchedule(name)
			require.Nil(t, werr)
		}
		r.end()
		time.Sleep(24*time.Hour + time.Second)
		r = newRig(r.t, r.disk)
		defer r.end()
		time.Sleep(time.Second)
		require.EqualValues(t, 1000, r.Queue("orders").Depth())
		require.EqualValues(t, 1440-1000, r.schedule(wire.MissedAll).MissedN)
		require.EqualValues(t, 1440-1000, r.news(wire.EventScheduleMissed)[0].Data["missed"])
	})
}

// TestNoRunTwiceAndNoneLost cuts the disk off at every commit of a schedule. Afterwards each
// run has one message, however long fila was down and without the help of dedupe ids.
func TestNoRunTwiceAndNoneLost(t *testing.T) {
	for _, window := range []int64{0, 60_000} {
		t.Run(fmt.Sprint(window), func(t *testing.T) {
			bubble(t, func(r *rig) {
				r.create(func(s *wire.QueueSettings) { s.DedupeWindowMs = window })
				r.plan("tick", "@every 1s", missed(wire.MissedAll))
				for i := range 12 {
					// Some commits are written, the others are lost with the process.
					if i%3 != 0 {
						time.Sleep(time.Duration(i)*time.Second + 300*time.Millisecond)
					}
					r.store.hold()
					time.Sleep(2 * time.Second)
					r.crash(i % 4)
					if i%4 == 0 {
						time.Sleep(3 * time.Minute) // longer than the dedupe window
					}
					r = newRig(r.t, r.disk)
					defer r.end()
				}
				time.Sleep(5 * time.Second)
				info := r.schedule("tick")
				all := r.made()
				require.EqualValues(t, info.Runs, len(all))
				for i, run := range all {
					require.Equal(t, "tick "+time.Date(2000, 1, 1, 0, 0, i+1, 0, time.UTC).Format("2006-01-02T15:04:05"), run)
				}
				require.Greater(t, len(all), 500)
				require.Zero(t, info.MissedN)
				r.end()
			})
		})
	}
}

// crash ends the shard after writing only the first of the batches that are held back.
func (r *rig) crash(written int) {
	r.t.Helper()
	r.store.mu.Lock()
	first := r.store.mu.waiting[:min(written, len(r.store.mu.waiting))]
	r.store.mu.waiting = nil
	for _, b := range first {
		r.store.Store.Submit(b)
	}
	r.store.mu.refuse = func(*store.Batch) error { return store.ErrClosed }
	r.store.mu.held = false
	r.store.mu.Unlock()
	r.Drain()
	r.End()
	require.NoError(r.t, r.store.Close())
}

// TestARunThatWasDeliveredKeepsItsID, although its commit is lost.
func TestARunThatWasDeliveredKeepsItsID(t *testing.T) {
	bubble(t, func(r *rig) {
		q := r.create(nil)
		r.plan("tick", "@every 1m", nil)
		r.consume(q, "w", 5)
		r.store.hold()
		time.Sleep(time.Minute)
		first := r.one("w")
		r.crash(0)
		r = newRig(r.t, r.disk)
		defer r.end()
		time.Sleep(time.Second)
		again := r.one("fila.deliver.w.orders")
		require.Equal(t, first.Header.Get(wire.HeaderID), again.Header.Get(wire.HeaderID))
		require.Equal(t, first.Header.Get(wire.HeaderScheduledAt), again.Header.Get(wire.HeaderScheduledAt))
	})
}

// TestARunWaitsForRoom: a full queue takes the run later, and the schedule says why.
func TestARunWaitsForRoom(t *testing.T) {
	bubble(t, func(r *rig) {
		q := r.create(func(s *wire.QueueSettings) { s.MaxDepth = 1 })
		require.Nil(t, r.enqueue("x", "", nil))
		r.plan("tick", "@every 10s", nil)
		r.plan("never", "@every 10s", missed(wire.MissedSkip))
		time.Sleep(95 * time.Second)
		require.Contains(t, r.schedule("tick").Why, "is full")
		require.Len(t, r.news(wire.EventScheduleRefused), 2)
		require.Equal(t, []string{" "}, r.made())
		time.Sleep(2 * time.Second)
		require.EqualValues(t, 1, q.Depth())
		runs := r.schedule("tick").Runs + r.schedule("never").Runs
		require.EqualValues(t, 1, runs)
	})
}

func TestPausedSchedules(t *testing.T) {
	bubble(t, func(r *rig) {
		q := r.create(nil)
		r.plan("tick", "@every 1m", missed(wire.MissedAll))
		r.plan("once", "@at 2000-01-01T00:05:00Z", nil)
		for _, name := range []string{"tick", "once"} {
			info, werr := q.PauseSchedule(name)
			require.Nil(t, werr)
			require.Equal(t, api.SchedulePaused, info.State)
			require.Empty(t, info.Next)
		}
		time.Sleep(10 * time.Minute)
		r = r.restart()
		defer r.end()
		q = r.Queue("orders")
		time.Sleep(10 * time.Minute)
		require.Empty(t, r.made())
		for _, name := range []string{"tick", "once"} {
			info, werr := q.ResumeSchedule(name)
			require.Nil(t, werr)
			require.Equal(t, api.ScheduleActive, info.State)
		}
		time.Sleep(90 * time.Second)
		require.Equal(t, []string{"once 2000-01-01T00:05:00", "tick 2000-01-01T00:21:00"}, r.made())
		require.Zero(t, r.schedule("tick").MissedN, "nobody wanted the runs of the pause")
		require.Len(t, r.news(wire.EventScheduleResumed), 2)
		_, werr := q.PauseSchedule("none")
		require.Equal(t, wire.CodeScheduleNotFound, werr.ErrCode)
	})
}

// TestSchedulesEndWithTheirQueue: a new queue of that name has none.
func TestSchedulesEndWithTheirQueue(t *testing.T) {
	bubble(t, func(r *rig) {
		q := r.create(nil)
		r.plan("tick", "@every 1m", nil)
		require.Equal(t, []string{"orders/tick", "orders/tick/at"}, r.kept())
		_, werr := q.Delete("", false)
		require.Nil(t, werr)
		require.Empty(t, r.kept())
		q = r.create(nil)
		time.Sleep(time.Hour)
		require.Zero(t, q.Depth())
	})
}

// TestSchedulesByEnqueue are for their own queue only, and the reply says what was done.
func TestSchedulesByEnqueue(t *testing.T) {
	bubble(t, func(r *rig) {
		r.create(nil)
		headers := nats.Header{
			wire.HeaderSchedule: {"@every 1m"}, wire.HeaderScheduleTarget: {"orders"}, wire.HeaderScheduleName: {"tick"},
			"Nats-Schedule-Ttl": {"5m"}, wire.HeaderScheduleMissed: {"all"}, "Tenant": {"acme"},
		}
		send := func(change func(nats.Header)) (reply wire.EnqueueReply) {
			h := make(nats.Header)
			for k, v := range headers {
				h[k] = slices.Clone(v)
			}
			if change != nil {
				change(h)
			}
			require.Nil(t, r.enqueue("body", "me", h))
			require.NoError(t, json.Unmarshal(r.one("me").Data, &reply))
			return reply
		}
		require.Equal(t, wire.EnqueueReply{Queue: "orders", Schedule: "tick", Next: "2000-01-01T00:01:00Z"}, send(nil))
		time.Sleep(90 * time.Second)
		require.Equal(t, wire.EnqueueReply{Queue: "orders", Schedule: "tick", Next: "2000-01-01T00:02:00Z", Unchanged: true}, send(nil), "it goes on as it was")
		target := func(h nats.Header) { h[wire.HeaderScheduleTarget] = []string{"fila.enqueue.orders"} }
		require.True(t, send(target).Unchanged, "the subject names the queue, too")
		require.Equal(t, wire.EnqueueReply{Queue: "orders", Schedule: "tick", Next: "2000-01-01T00:01:35Z", Replaced: true},
			send(func(h nats.Header) { h[wire.HeaderSchedule] = []string{"@every 5s"} }))
		time.Sleep(6 * time.Second)
		require.Equal(t, []string{"tick 2000-01-01T00:01:00", "tick 2000-01-01T00:01:35"}, r.made())
		info := r.schedule("tick")
		require.True(t, info.ByEnqueue)
		require.EqualValues(t, 300_000, info.TTLMs)
		require.Equal(t, map[string][]string{"Tenant": {"acme"}}, info.Headers)
		require.Equal(t, "body", string(info.Payload))

		for _, c := range []struct {
			change nats.Header
			want   string
		}{
			{nats.Header{wire.HeaderScheduleTarget: {"bills"}}, "names another queue"},
			{nats.Header{wire.HeaderScheduleTarget: {"fila.enqueue.bills"}}, "names another queue"},
			{nats.Header{wire.HeaderSchedule: {"@every 1ms"}}, "from 1s"},
			{nats.Header{wire.HeaderScheduleName: {"a b"}}, "allowed are 1 to 64"},
			{nats.Header{wire.HeaderScheduleZone: {"Europe/Berlin"}}, "without a time zone"},
		} {
			h := make(nats.Header)
			for k, v := range headers {
				h[k] = v
			}
			for k, v := range c.change {
				h[k] = v
			}
			werr := r.enqueue("body", "me", h)
			require.NotNil(t, werr, c.want)
			require.Equal(t, wire.CodeBadSchedule, werr.ErrCode)
			require.Contains(t, werr.Description, c.want)
		}
		require.Equal(t, []string{"orders/tick", "orders/tick/at"}, r.kept())
	})
}

// TestQueuesThatTakeNoSchedules by enqueues: the verb still adds them, and existing ones go on.
func TestQueuesThatTakeNoSchedules(t *testing.T) {
	bubble(t, func(r *rig) {
		q := r.create(nil)
		headers := nats.Header{
			wire.HeaderSchedule: {"@every 1m"}, wire.HeaderScheduleTarget: {"orders"}, wire.HeaderScheduleName: {"tick"},
		}
		require.Nil(t, r.enqueue("body", "me", headers))
		r.one("me")
		for _, setting := range []string{wire.SchedulesRefuse, wire.SchedulesAllow, ""} {
			r.update(q, func(s *wire.QueueSettings) { s.EnqueueSchedules = setting })
			werr := r.enqueue("body", "me", headers)
			if setting == wire.SchedulesRefuse {
				require.NotNil(t, werr)
				require.Equal(t, wire.CodeBadSchedule, werr.ErrCode)
				require.Contains(t, werr.Description, "enqueue_schedules")
				r.none("me")
				r.plan("tock", "@every 1m", nil)
				require.Nil(t, r.enqueue("plain", "me", nil))
				r.id("me")
				continue
			}
			require.Nil(t, werr)
			r.one("me")
		}
		time.Sleep(90 * time.Second)
		require.Equal(t, []string{"orders/tick", "orders/tick/at", "orders/tock", "orders/tock/at"}, r.kept())
		require.EqualValues(t, 1, r.schedule("tick").Runs)
	})
}

func TestListsOfSchedules(t *testing.T) {
	bubble(t, func(r *rig) {
		r.create(nil)
		for _, name := range []string{"a", "a-b"} {
			q := r.another(name, nil)
			for _, sc := range []string{"z", "x", "y"} {
				_, werr := q.AddSchedule(api.ScheduleAddRequest{Name: sc, Schedule: "@daily", Missed: wire.MissedOne})
				require.Nil(t, werr)
			}
		}
		list := func(of, after string, limit int) (names []string, next string) {
			page := r.Schedules(of, after, limit)
			for i := range page.Schedules {
				names = append(names, page.Schedules[i].Cursor())
			}
			require.Equal(t, map[string]int{"": 6, "a-b": 3}[of], page.Total, "of all pages")
			return names, page.Next
		}
		names, next := list("", "", 4)
		require.Equal(t, []string{"a/x", "a/y", "a/z", "a-b/x"}, names)
		names, next = list("", next, 2)
		require.Equal(t, []string{"a-b/y", "a-b/z"}, names)
		require.Empty(t, next)
		names, _ = list("a-b", "", 10)
		require.Len(t, names, 3)
		n, at := r.Queue("a").Scheduled()
		require.Equal(t, 3, n)
		require.Equal(t, time.Date(2000, 1, 2, 0, 0, 0, 0, time.UTC).UnixNano(), at)
	})
}

// TestBrokenSchedulesAreLeftAlone: fila starts and logs them.
func TestBrokenSchedulesAreLeftAlone(t *testing.T) {
	bubble(t, func(r *rig) {
		r.create(nil)
		r.plan("good", "@every 1m", nil)
		r.plan("bad", "@every 1m", nil)
		r.plan("zone", "@every 1m", nil)
		require.NoError(t, r.shard.commit(&store.Batch{PutConfig: []store.Entry{
			{Key: scheduleKeys + "orders/bad", Value: "{"},
			{Key: scheduleKeys + "orders/zone", Value: `{"name":"zone","schedule":"@daily","time_zone":"Nowhere"}`},
			{Key: scheduleKeys + "gone/good", Value: `{"name":"good","schedule":"@daily"}`},
		}}))
		r = r.restart()
		defer r.end()
		require.Len(t, r.Schedules("", "", 10).Schedules, 1)
		require.Contains(t, r.log.String(), "schedule=orders/bad")
		require.Contains(t, r.log.String(), "schedule=orders/zone")
	})
}

// TestBadSchedulesAreRefused: too large for a message, or not valid.
func TestBadSchedulesAreRefused(t *testing.T) {
	bubble(t, func(r *rig) {
		q := r.create(nil)
		r.conn.max = wire.HeaderRoom + 1
		_, werr := q.AddSchedule(api.ScheduleAddRequest{Name: "two", Schedule: "@daily", Missed: wire.MissedOne, Payload: []byte("long")})
		require.Equal(t, wire.CodeMessageTooLarge, werr.ErrCode)
		_, werr = q.AddSchedule(api.ScheduleAddRequest{Name: "two", Schedule: "* * *", Missed: wire.MissedOne})
		require.Equal(t, wire.CodeBadSchedule, werr.ErrCode)
	})
}

// TestAFencedShardRunsNoSchedule, since its new owner does.
func TestAFencedShardRunsNoSchedule(t *testing.T) {
	bubble(t, func(r *rig) {
		q := r.create(nil)
		r.plan("tick", "@every 1m", nil)
		r.shard.Fence(true)
		time.Sleep(5 * time.Minute)
		require.Zero(t, q.Depth())
		r.shard.Fence(false)
		time.Sleep(2 * time.Second)
		require.EqualValues(t, 1, q.Depth())
		require.EqualValues(t, 4, r.schedule("tick").MissedN)
	})
}

// TestSchedulesOfAQueueAreBounded, those by enqueues separately; replacing one is no addition.
func TestSchedulesOfAQueueAreBounded(t *testing.T) {
	bubble(t, func(r *rig) {
		r.Caps.Schedules, r.Caps.EnqueuedSchedules = 4, 2
		q := r.create(nil)
		byEnqueue := func(name string) *wire.Error {
			return r.enqueue("x", "reply", nats.Header{
				wire.HeaderSchedule: {"@every 1m"}, wire.HeaderScheduleTarget: {"orders"}, wire.HeaderScheduleName: {name},
			})
		}
		add := func(name string) *wire.Error {
			_, werr := q.AddSchedule(api.ScheduleAddRequest{Name: name, Schedule: "@daily", Missed: wire.MissedOne})
			return werr
		}
		refused := func(werr *wire.Error, limit string) {
			t.Helper()
			require.NotNil(t, werr)
			require.Equal(t, wire.CodeLimitReached, werr.ErrCode)
			require.Contains(t, werr.Description, limit)
		}
		require.Nil(t, byEnqueue("a"))
		require.Nil(t, byEnqueue("b"))
		refused(byEnqueue("c"), "limits.max_enqueued_schedules")
		require.Nil(t, byEnqueue("a"), "it is there")
		require.Nil(t, r.enqueue("another", "reply", nats.Header{
			wire.HeaderSchedule: {"@every 2m"}, wire.HeaderScheduleTarget: {"orders"}, wire.HeaderScheduleName: {"a"},
		}), "it takes the place of another one")
		require.Nil(t, add("d"))
		require.Nil(t, add("e"))
		refused(add("f"), "limits.max_schedules")
		refused(byEnqueue("c"), "limits.max_schedules")
		require.Nil(t, add("a"), "in place of one by an enqueue")
		_, werr := q.DeleteSchedule("d")
		require.Nil(t, werr)
		require.Nil(t, byEnqueue("c"), "of those by enqueues there is one less as well")
		usage := r.Usage()
		require.EqualValues(t, 4, usage.Schedules)
		require.EqualValues(t, 2, usage.EnqueuedSchedules)
	})
}

// TestRunsKeepTheEnqueueRate: runs beyond the rate come later, one after the other, and none is
// lost.
func TestRunsKeepTheEnqueueRate(t *testing.T) {
	bubble(t, func(r *rig) {
		r.create(func(s *wire.QueueSettings) { s.EnqueueRate, s.EnqueueBurst = "1/10", 1 })
		for i := range 20 {
			r.plan(fmt.Sprint("at-", i), "@at 2000-01-01T00:00:01Z", nil)
		}
		r.plan("often", "* * * * * *", missed(wire.MissedSkip))
		time.Sleep(100 * time.Second)
		n := len(r.made())
		require.GreaterOrEqual(t, n, 9)
		require.LessOrEqual(t, n, 11)
		require.NotEmpty(t, r.schedule("often").Why)
		_, werr := r.Queue("orders").DeleteSchedule("often")
		require.Nil(t, werr)
		time.Sleep(400 * time.Second)
		r.made()
		left, _ := r.Queue("orders").Scheduled()
		require.Zero(t, left, "each has run once")
	})
}
