package shard

import (
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/breaker"
	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
)

// TestAnswersWaitForTheDisk: a message is delivered at once and confirmed when it is on disk.
func TestAnswersWaitForTheDisk(t *testing.T) {
	bubble(t, func(r *rig) {
		q := r.create(nil)
		r.store.hold()
		require.Nil(t, r.enqueue("one", "producer", nat("tenant", "a")))
		r.none("producer")
		require.EqualValues(t, len("one")+len(wire.EncodeHeaders(nil, nat("tenant", "a"))), r.uncommitted.Load())
		r.consume(q, "w", 1)
		m := r.one("w")
		require.Equal(t, "one", string(m.Data))
		require.Equal(t, "a", m.Header.Get("tenant"))
		require.Equal(t, "orders", m.Header.Get(wire.HeaderQueue))
		require.Equal(t, "1", m.Header.Get(wire.HeaderAttempt))
		r.ack(m, done, "consumer")
		r.none("consumer")
		require.Zero(t, q.Depth())
		require.Zero(t, q.Bytes())
		r.store.release()
		require.Equal(t, m.Header.Get(wire.HeaderID), r.id("producer"))
		require.Empty(t, r.one("consumer").Data)
		require.Zero(t, r.uncommitted.Load())
		require.Equal(t, map[string]int64{"enqueued": 1, "delivered": 1, "acked": 1}, counted(q))
	})
}

// nat returns headers with one entry.
func nat(name, value string) nats.Header { return nats.Header{name: {value}} }

// counted returns the nonzero counters of a queue.
func counted(q *Queue) map[string]int64 {
	all := q.Metrics().Snapshot()
	for name, n := range all {
		if n == 0 {
			delete(all, name)
		}
	}
	return all
}

// TestAMessageOnItsWayToTheDLQIsAlwaysCounted: a message that moves to the dead letter queue is counted in
// at least one depth at any moment. Otherwise a deletion without force, which reads one depth
// after the other, would miss it.
func TestAMessageOnItsWayToTheDLQIsAlwaysCounted(t *testing.T) {
	r := newRig(t, newDisk())
	defer r.end()
	q := r.create(nil)
	q.run.mu.Lock()
	defer q.run.mu.Unlock()
	var accepted, looks, missed atomic.Int64
	ended := make(chan struct{})
	var looking sync.WaitGroup
	looking.Go(func() {
		for {
			select {
			case <-ended:
				return
			default:
			}
			if before := accepted.Load(); q.messages() < before {
				missed.Add(1)
			}
			if looks.Add(1)%50_000 == 0 {
				runtime.Gosched() // with one processor, nothing moves while this goroutine reads
			}
		}
	})
	for (looks.Load() < 1_000_000 || accepted.Load() < 50_000) && missed.Load() == 0 {
		q.depth.Add(1)
		accepted.Add(1)
		q.run.effects.Counters = [queue.Roles]queue.Counters{
			// Many counters would make the moment long.
			queue.Main: {Messages: -1, Bytes: -1, Nacked: 1, Expired: 1, TTLExpired: 1, TakenBack: 1, Failed: 1},
			queue.Dead: {Messages: 1, Bytes: 1},
		}
		q.run.carryOut()
	}
	close(ended)
	looking.Wait()
	require.Zero(t, missed.Load(), "a message was counted nowhere")
}

// TestDeliveriesKeepTheirOrder: nothing of a key overtakes what came before, whichever
// goroutine publishes: the callback of the message, the runner or the dispatcher. The credit
// of the consumer is small at times, so that messages are read from disk.
func TestDeliveriesKeepTheirOrder(t *testing.T) {
	r := newRig(t, newDisk())
	q, by := r.create(nil), subscription(t)
	const n = 5000
	finished := make(chan string, 1)
	next := 0
	var (
		acks   relay[*nats.Msg]
		acking sync.WaitGroup
	)
	ack := func() {
		for some := acks.take(nil); len(some) > 0; some = acks.take(nil) {
			for _, m := range some {
				text, name, _ := r.Subjects.ParseToken(m.Reply)
				token, err := r.Signer.Parse(text, name)
				if err != nil || q.Ack(token, done, "", by) != nil {
					finished <- "an ack was refused"
				}
			}
		}
	}
	r.conn.refuse(func(m *nats.Msg) error {
		if m.Subject != "w" {
			return nil
		}
		if got := string(m.Data); got != strconv.Itoa(next) {
			finished <- got + " instead of " + strconv.Itoa(next)
		}
		if acks.post([]*nats.Msg{{Reply: m.Reply}}) { // the dispatcher uses m again
			acking.Go(ack)
		}
		if next++; next == n {
			finished <- ""
		}
		return nil
	})
	for i := range n {
		if i%250 == 0 {
			q.Tell(queue.Register{Consumer: "w", Subject: "w", MaxInFlight: []int{3, 50, 1000}[i/250%3]})
		}
		require.Nil(t, q.Accept(&nats.Msg{Data: []byte(strconv.Itoa(i)), Sub: by}))
	}
	select {
	case text := <-finished:
		require.Empty(t, text)
	case <-time.After(time.Minute):
		require.FailNow(t, "deliveries stopped")
	}
	acking.Wait()
	r.end()
}

// TestStepsOfManyPosters: inputs that find the runner busy are handled by the goroutine that
// is making the step or by the runner's. None is left behind, and steps never overlap.
func TestStepsOfManyPosters(t *testing.T) {
	r := newRig(t, newDisk())
	q, by := r.create(nil), subscription(t)
	const posters, each = 8, 2000
	var posting sync.WaitGroup
	for range posters {
		posting.Go(func() {
			for range each {
				q.run.post(by, queue.Input{Kind: queue.Enqueue, Message: &queue.Message{Message: store.Message{Class: store.Class{Key: "k"}, ID: newID()}}})
			}
		})
	}
	posting.Wait()
	require.Eventually(t, func() bool {
		last := uint64(0)
		q.View(func(m *queue.Queue, side queue.Role, _ int64) { last = m.LastSeq(side) })
		return last == posters*each
	}, time.Minute, time.Millisecond)
	r.end()
	require.False(t, q.run.post(by, queue.Input{Kind: queue.Acked}), "the runner has ended")
	require.False(t, q.Tell(queue.PauseQueue{}))
	require.False(t, q.View(nil))
}

// TestManyDeliveriesGoOutInOrder: the dispatcher publishes deliveries that are too many, too
// large or not in memory, and later ones wait behind them.
func TestManyDeliveriesGoOutInOrder(t *testing.T) {
	for name, tc := range map[string]struct {
		n, size int
		commit  bool
	}{
		"few": {n: publishAtOnce, size: 10}, "many": {n: publishAtOnce + 1, size: 10},
		"large": {n: 2, size: publishBytesAtOnce}, "read": {n: 2, size: 10, commit: true}, "a batch and more": {n: readBatch + 3, size: 10, commit: true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				q := r.create(nil)
				if !tc.commit {
					r.store.hold()
				}
				for i := range tc.n {
					require.Nil(t, r.enqueue(strconv.Itoa(i)+strings.Repeat("x", tc.size), "", nil))
				}
				time.Sleep(time.Second) // until they are on disk, or held back
				r.consume(q, "w", 1000)
				require.Nil(t, r.enqueue("last", "", nil))
				synctest.Wait()
				all := r.conn.take("w")
				require.Len(t, all, tc.n+1)
				for i := range tc.n {
					require.Equal(t, strconv.Itoa(i)+strings.Repeat("x", tc.size), string(all[i].Data))
				}
				require.Equal(t, "last", string(all[tc.n].Data))
			})
		})
	}
}

// TestRefusedCommits: a commit that the store refuses alone is answered, and the shard goes on.
func TestRefusedCommits(t *testing.T) {
	moves := func(b *store.Batch) bool { return len(b.Move) > 0 }
	for name, tc := range map[string]struct {
		err  error
		code int
		log  bool
	}{
		"corrupt":   {&store.CorruptError{File: "fila.db", Part: "segment"}, wire.CodeOutcomeUnknown, true},
		"not found": {store.ErrNotFound, wire.CodeOutcomeUnknown, true},
		"no queue":  {store.ErrNoQueue, wire.CodeDraining, false},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				q := r.create(nil)
				r.consume(q, "w", 1)
				require.Nil(t, r.enqueue("one", "", nil))
				time.Sleep(time.Second)
				r.store.refuse(func(b *store.Batch) error {
					if moves(b) {
						return tc.err
					}
					return nil
				})
				r.ack(r.one("w"), term, "consumer")
				require.Equal(t, tc.code, r.refused("consumer").ErrCode)
				require.Equal(t, tc.log, strings.Contains(r.log.String(), "a message cannot be dead-lettered; it stays in the store, undelivered until the next start"))
				require.Empty(t, r.news(wire.EventDeadLettered))
				require.Zero(t, q.DLQ().Depth())
				require.Zero(t, q.DLQ().Bytes())
				require.NoError(t, r.Err())
				r.store.refuse(nil)
				require.Nil(t, r.enqueue("two", "producer", nil))
				require.Equal(t, "two", string(r.one("w").Data))
			})
		})
	}
}

// TestAFailedCommitEndsTheShard: everyone who waits learns that the outcome is unknown, the
// shard accepts, confirms and delivers nothing more, and the set reports it.
func TestAFailedCommitEndsTheShard(t *testing.T) {
	for name, tc := range map[string]struct {
		err    error
		remedy string
		silent bool // the new owner answers
	}{
		"failed":  {err: store.ErrFailed, remedy: "look at the disk"},
		"fenced":  {err: store.ErrFenced, remedy: "its new owner goes on", silent: true},
		"invalid": {err: store.ErrInvalid, remedy: "look at the disk"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				q := r.create(nil)
				r.store.hold()
				require.Nil(t, r.enqueue("one", "producer", nil))
				r.none("producer")
				r.consume(q, "w", 1)
				m := r.one("w")
				r.ack(m, done, "consumer")
				r.store.refuse(func(*store.Batch) error { return tc.err })
				r.store.release()
				answered := func(to string) {
					if tc.silent {
						r.none(to)
						return
					}
					require.Equal(t, wire.CodeOutcomeUnknown, r.refused(to).ErrCode)
				}
				answered("producer")
				require.Same(t, r.shard, <-r.Failed())
				require.ErrorIs(t, r.Err(), tc.err)
				require.ErrorContains(t, r.Err(), "the store failed, nothing more is confirmed or delivered: ")
				require.ErrorContains(t, r.Err(), tc.remedy)
				require.Equal(t, wire.CodeStoreFailed, r.enqueue("two", "", nil).ErrCode)
				r.none("w")
				r.End()
				answered("consumer")
				require.Zero(t, r.uncommitted.Load())
			})
		})
	}
}

// TestCommitsAfterTheCloseAreNoFailure: fila is stopping.
func TestCommitsAfterTheCloseAreNoFailure(t *testing.T) {
	bubble(t, func(r *rig) {
		r.create(nil)
		r.store.refuse(func(*store.Batch) error { return store.ErrClosed })
		require.Nil(t, r.enqueue("one", "producer", nil))
		require.Equal(t, wire.CodeDraining, r.refused("producer").ErrCode)
		require.NoError(t, r.Err())
	})
}

func TestInputsAfterTheEnd(t *testing.T) {
	bubble(t, func(r *rig) {
		q := r.create(nil)
		q.run.mu.Lock() // nothing is handled before the end
		require.Nil(t, r.enqueue("early", "early", nil))
		var ended sync.WaitGroup
		ended.Go(q.run.end)
		q.run.mu.Unlock()
		ended.Wait()
		require.NotEmpty(t, r.id("early"), "what had come is taken")
		to := func(subject string) queue.Confirmation { return queue.Confirmation{Subject: subject} }
		m, part := &queue.Message{Size: 7, Confirm: to("m")}, &queue.Message{Size: 7, Confirm: to("part")}
		q.countIn(m)
		q.countIn(part)
		for _, in := range []queue.Input{
			{Kind: queue.Enqueue, Message: m},
			{Kind: queue.Duplicate, Confirm: to("duplicate")},
			{Kind: queue.Acked, Confirm: to("ack")},
			{Kind: queue.Judged, Verdict: &queue.Verdict{Failure: queue.Failure{Confirm: to("verdict")}}},
			{Kind: queue.Changed, Change: queue.Register{Confirm: to("register")}},
			{Kind: queue.Changed, Change: queue.Leave{Confirm: to("leave")}},
			{Kind: queue.Changed, Change: queue.Fetch{Inbox: "fetch"}},
			{Kind: queue.Changed, Change: queue.PauseQueue{}},
			{Kind: queue.Changed, Change: queue.EnqueueAll{Messages: []*queue.Message{part}}},
			{Kind: queue.Committed},
		} {
			q.run.refuse(&in)
		}
		for _, subject := range []string{"m", "duplicate", "ack", "verdict", "register", "leave", "fetch", "part"} {
			require.Equal(t, wire.CodeDraining, r.refused(subject).ErrCode, subject)
		}
		require.EqualValues(t, 1, q.Depth(), "only early is left")
		require.Equal(t, wire.CodeDraining, r.enqueue("late", "", nil).ErrCode)
		require.EqualValues(t, 1, q.Depth())
		require.Zero(t, r.uncommitted.Load())
	})
}

// TestNotesOfTheMachine become events, log lines and stored pauses.
func TestNotesOfTheMachine(t *testing.T) {
	bubble(t, func(r *rig) {
		q := r.create(func(s *wire.QueueSettings) {
			s.FairnessHeader = "tenant"
			s.MaxFailuresPerKey, s.FailureHoldMs = 1, 60_000
		})
		r.consume(q, "w", 1)
		joined := r.news(wire.EventConsumerJoined)
		require.Len(t, joined, 1)
		require.Equal(t, map[string]any{"consumer": "w", "max_in_flight": 1}, joined[0].Data)

		require.Nil(t, r.enqueue("one", "", nat("tenant", "a")))
		r.ack(r.one("w"), nack, "")
		m := r.one("w")
		r.ack(m, wire.Ack{Kind: wire.AckTerm, Error: "bad", ErrorCode: "E7"}, "consumer")
		require.Empty(t, r.one("consumer").Data)
		dead := r.news(wire.EventDeadLettered)
		require.Len(t, dead, 1)
		require.Equal(t, "orders", dead[0].Queue)
		require.Equal(t, map[string]any{
			"id": m.Header.Get(wire.HeaderID), "reason": wire.ReasonTerm, "error": "bad", "attempts": uint32(2),
		}, dead[0].Data)
		require.EqualValues(t, 1, q.DLQ().Depth())
		require.Equal(t, 1, strings.Count(r.log.String(), "message dead-lettered"))
		require.Contains(t, r.log.String(), `level=WARN msg="message dead-lettered" queue=orders id=`+m.Header.Get(wire.HeaderID)+
			` key=a reason=term error_code=E7 error=bad attempts=2`+"\n")

		require.Nil(t, r.enqueue("two", "", nat("tenant", "a")))
		r.ack(r.one("w"), nack, "")
		until := wire.Timestamp(r.Now() + 60e9)
		require.Equal(t, []string{"orders/a/" + until}, r.control.mu.held)
		r.none("w")

		require.True(t, q.Tell(queue.Register{Consumer: "w", Subject: "w", MaxInFlight: 1, TTL: 1e9}))
		time.Sleep(2 * time.Second)
		lost := r.news(wire.EventConsumerLost)
		require.Len(t, lost, 1)
		require.Equal(t, "w", lost[0].Data["consumer"])
		require.Contains(t, r.log.String(), "consumer lost")

		// A consumer that has gone is remembered until it is back.
		gone := func(since int64) (texts []string) {
			for _, d := range q.Departures(since) {
				texts = append(texts, strings.Split(d.Text(), " at ")[0]+" "+d.Reason)
			}
			return texts
		}
		r.consume(q, "v", 1)
		require.True(t, q.Tell(queue.Leave{Consumer: "v"}))
		time.Sleep(time.Second)
		require.Equal(t, []string{"v left ", "w was lost registration not renewed"}, gone(0))
		require.Equal(t, []string{"v left "}, gone(r.Now()-1500e6))
		require.Len(t, r.news(wire.EventConsumerLeft), 1)
		r.consume(q, "v", 1)
		require.Equal(t, []string{"w was lost registration not renewed"}, gone(0))
		require.True(t, q.Tell(queue.Leave{Consumer: "v"}))

		require.Nil(t, r.enqueue("three", "", nat(wire.HeaderTTL, "1")))
		time.Sleep(2 * time.Second)
		metrics := scrape(t, r)
		for _, reason := range []string{wire.ReasonTerm, wire.ReasonExpired} {
			require.Contains(t, metrics, `fila_dead_lettered_total{queue="orders",reason="`+reason+`"} 1`)
		}
	})
}

// TestFlowEvents: one flow keeps consumers busy, another waits although it is served.
func TestFlowEvents(t *testing.T) {
	bubble(t, func(r *rig) {
		q := r.create(func(s *wire.QueueSettings) {
			s.FairnessHeader, s.WeightHeader, s.StarveAfterMs, s.VisibilityTimeoutMs = "tenant", "weight", 1000, 3_600_000
		})
		r.consume(q, "w", 1)
		for range 50 {
			require.Nil(t, r.enqueue("x", "", nats.Header{"tenant": {"noisy"}, "weight": {"1000"}}))
		}
		for range 2 {
			require.Nil(t, r.enqueue("x", "", nats.Header{"tenant": {"quiet"}, "weight": {"1"}}))
		}
		for range 10 {
			r.ack(r.one("w"), done, "")
			time.Sleep(300 * time.Millisecond)
		}
		starved := r.news(wire.EventFlowStarved)
		require.Len(t, starved, 1)
		require.Equal(t, "orders", starved[0].Queue)
		require.Equal(t, "quiet", starved[0].Key)
		require.Equal(t, true, starved[0].Data["began"])
		require.Equal(t, 1, starved[0].Data["starved_flows"])
		require.GreaterOrEqual(t, starved[0].Data["wait_ms"], int64(1000))
		r.consume(q, "v", 39)
		time.Sleep(10 * time.Second) // without any progress
		require.Empty(t, r.news(wire.EventFlowNoisy), "it has what its weight entitles it to")
		require.Nil(t, r.enqueue("x", "", nats.Header{"tenant": {"quiet"}, "weight": {"1000"}}))
		time.Sleep(10 * time.Second)
		noisy := r.news(wire.EventFlowNoisy)
		require.Len(t, noisy, 1)
		require.Equal(t, wire.Event{
			Type: wire.EventFlowNoisy, Queue: "orders", Key: "noisy", Data: map[string]any{"began": true, "noisy_flows": 1, "in_flight": 40},
		}, noisy[0])
		r.ack(r.one("w"), done, "") // the last message of noisy
		require.Equal(t, "quiet", r.one("w").Header.Get("tenant"))
		starved = r.news(wire.EventFlowStarved)
		require.Len(t, starved, 1)
		require.Equal(t, map[string]any{"began": false, "starved_flows": 0}, starved[0].Data)
	})
}

func TestCircuitsAreAnnouncedAfterTheStep(t *testing.T) {
	bubble(t, func(r *rig) {
		q := r.create(func(s *wire.QueueSettings) { s.CircuitHeader = "to" })
		r.consume(q, "w", 1)
		require.Nil(t, r.enqueue("one", "", nat("to", "stripe")))
		r.ack(r.one("w"), done, "")
		require.Equal(t, []breaker.Outcome{breaker.Success}, r.circuit.ended())
		require.Equal(t, 1, r.circuit.mu.announced)
	})
}

// TestOthersAreWokenWhenAGateOpens: when a queue releases a throttle key, another queue that
// waits for it goes on.
func TestOthersAreWokenWhenAGateOpens(t *testing.T) {
	bubble(t, func(r *rig) {
		_, err := r.control.gates.SetLimits("stripe", limits(1), r.Now(), nil)
		require.NoError(t, err)
		for _, name := range []string{"orders", "mails"} {
			s := wire.DefaultQueueSettings(name)
			s.ThrottleHeaders = []string{"to"}
			_, werr := r.Create(s)
			require.Nil(t, werr)
			r.consume(r.Queue(name), name, 10)
			require.Nil(t, r.Queue(name).Accept(&nats.Msg{Data: []byte("x"), Header: nat("to", "stripe")}))
			synctest.Wait()
		}
		m := r.one("orders")
		r.none("mails")
		r.ack(m, done, "")
		r.one("mails")
	})
}
