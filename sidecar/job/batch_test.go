package job

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/sidecar/queue/inspect"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// moveRequest moves all messages of queue 0.
func moveRequest(to string) api.JobCreateRequest {
	return api.JobCreateRequest{Queue: queueName(0), Op: api.JobMove, To: to, Filter: &api.Filter{All: true}, Order: api.OrderArrival}
}

// drive steps the machine of a job until it is idle, with a clock that does not wait.
func (w *world) drive(j *Job, in input) (all []input) {
	for next := []input{in}; ; {
		var fx effects
		j.machine.step(w.now, next, &fx)
		next = nil
		switch {
		case fx.Do != nil:
			next = []input{fx.Do.perform(&j.worker)}
			all = append(all, next[0])
		case fx.At != 0:
			w.now = fx.At
		default:
			return all
		}
	}
}

// TestStepsAreBounded: a job lets the queue stand still for no more than some messages.
func TestStepsAreBounded(t *testing.T) {
	w := newWorld(t, 0)
	q := w.queue(0)
	const n = scanMessages + 2*batchSize + 1
	for range n - 1 {
		q.mail = append(q.mail, q.message("k", ""))
	}
	q.put("k", "")
	j, werr := w.shards[0].jobs.create(q, moveRequest(queueName(1)), false)
	require.Nil(t, werr)
	scans, batches := 0, 0
	for _, in := range w.drive(j, j.worker.run()) {
		switch in := in.(type) {
		case scanned:
			scans++
			require.LessOrEqual(t, len(in.found), scanMessages)
		case completed:
			batches++
			require.LessOrEqual(t, len(in.batch.candidates), batchSize)
		}
	}
	require.Equal(t, []int{2, n/batchSize + 1}, []int{scans, batches})
	require.EqualValues(t, n, w.queue(1).depth)
}

// TestNoKeyIsCountedInATargetThatEnds between the decision and the claim.
func TestNoKeyIsCountedInATargetThatEnds(t *testing.T) {
	w := newWorld(t, 0)
	w.limits[1].perKey = 10
	q, to := w.queue(0), w.queue(1)
	id := q.put("k", "x")
	j := newJob(&w.shards[0].jobs.Options, q, &stored{spec: &spec{JobCreateRequest: moveRequest(to.name)}})
	b := &batch{spec: j.spec, candidates: []candidate{{position: position{Seq: 1, ID: id}, size: 1}}}
	require.Nil(t, j.worker.admit(b))
	require.Equal(t, map[string]int64{"k": 1}, to.keys.n)
	to.ended = true
	var claimed *queue.Claimed
	require.Equal(t, to.Gone(), j.worker.commitBatch(b, &claimed))
	require.Empty(t, to.keys.n)
	require.EqualValues(t, 1, q.depth)
}

// TestADryRunTriesSomeMessages and counts the others by their states.
func TestADryRunTriesSomeMessages(t *testing.T) {
	w := newWorld(t, 0)
	w.limits[1].depth = 2
	q := w.queue(0)
	for range 5 {
		q.put("k", "x")
	}
	list := func() []inspect.MessageView {
		found, _ := q.machine.Inspect(queue.Main).Select(&inspect.Match{}, 0, 10, 10, nil, w.now)
		return found
	}
	req := moveRequest(queueName(1))
	req.DryRun = true
	tr, werr := w.shards[0].jobs.newTrial(q, req)
	require.Nil(t, werr)
	tr.tried = maxTried
	kept, werr := tr.offer(list())
	require.Nil(t, werr)
	require.Equal(t, list(), kept)
	require.EqualValues(t, 5, tr.untried)
	require.Equal(t, "the dry run has tried 100000 messages; it counts 5 more as eligible, which the target may refuse", tr.why(true))
	tr.tried = maxTried - 1
	kept, werr = tr.offer(list())
	require.Nil(t, werr)
	require.Equal(t, list()[:2], kept)
	require.Equal(t, tr.full.Description, tr.why(true))
}

// TestAnEditWaitsForRecords of attempts that are not on disk yet.
func TestAnEditWaitsForRecords(t *testing.T) {
	w := newWorld(t, 0)
	q := w.queue(0)
	id := q.put("k", "x")
	q.step(q.input(queue.Register{Consumer: "c", Subject: "c", MaxInFlight: 1}))
	d := q.delivered[0]
	q.mail = append(q.mail, queue.Input{Kind: queue.Acked, Token: d.Token, Ack: wire.Ack{Kind: wire.AckNack, Error: "e", Delay: time.Hour, HasDelay: true}})
	records := func() (n int) {
		require.NoError(t, w.stores[0].History([]store.Ref{{Queue: q.id, Seq: 1}}, func(_ int, all [][]byte) { n = len(all) }))
		return n
	}
	require.Zero(t, records())
	j := newJob(&w.shards[0].jobs.Options, q, &stored{spec: &spec{JobCreateRequest: api.JobCreateRequest{Op: api.JobEdit}}})
	claimed, werr := j.worker.claim(&batch{spec: j.spec, candidates: []candidate{{position: position{Seq: 1, ID: id}}}})
	require.Nil(t, werr)
	require.Len(t, claimed.Messages, 1)
	require.Equal(t, 1, records())
	j.worker.unclaim(claimed)
}

// TestWhatAnotherShardDoesNotTake waits at the source. If more cannot go for now, the job pauses,
// says why, and goes on when it is resumed.
func TestWhatAnotherShardDoesNotTake(t *testing.T) {
	for name, c := range map[string]struct {
		refuse func(w *world, on bool)
		moved  int64
		why    string // it pauses
		left   map[string]int64
	}{
		"a full queue":              {func(w *world, on bool) { w.limits[2] = map[bool]testLimits{true: {depth: 4}}[on] }, 4, "max_depth", nil},
		"full keys":                 {func(w *world, on bool) { w.limits[2] = testLimits{perKey: 2} }, 4, "", map[string]int64{api.LeftKeyFull: 4}},
		"a queue that is gone":      {func(w *world, on bool) { w.queue(2).deleted = on }, 0, "no such queue", nil},
		"an older node there":       {func(w *world, on bool) { w.shards[1].plain = on }, 0, "older version", nil},
		"an older node here":        {func(w *world, on bool) { w.shards[0].plain = on }, 0, "older version", nil},
		"messages beyond a request": {func(w *world, on bool) { w.queue(0).put("k", strings.Repeat("x", testPayload)) }, 8, "", map[string]int64{api.LeftRefused: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 0)
			for i := range 8 {
				w.queue(0).put([]string{"a", "b"}[i%2], strings.Repeat("x", testPayload/3))
			}
			c.refuse(w, true)
			all := w.queue(0).depth
			j, werr := w.shards[0].jobs.create(w.queue(0), moveRequest(queueName(2)), false)
			require.Nil(t, werr)
			w.drive(j, j.worker.run())
			require.Equal(t, []any{c.moved, all - c.moved, c.left}, []any{w.queue(2).depth, w.queue(0).depth, j.machine.at.Left})
			if c.why == "" {
				require.Equal(t, api.JobDone, j.machine.at.State)
				return
			}
			require.Equal(t, []any{api.JobPaused, false}, []any{j.machine.at.State, j.machine.transfer.open()})
			require.Contains(t, j.machine.at.Why, c.why)
			c.refuse(w, false)
			w.drive(j, resume{})
			w.drive(j, j.worker.run())
			require.Equal(t, []any{api.JobDone, all}, []any{j.machine.at.State, w.queue(2).depth})
		})
	}
}

// TestReceiptsAreDeleted when their jobs have ended, but not within seven days.
func TestReceiptsAreDeleted(t *testing.T) {
	w := newWorld(t, 0)
	w.link = func(shard int, body []byte) ([]byte, error) {
		answer, err := w.receive(body)
		if shard == 1 {
			w.shards[1].jobs.work.Wait() // until it has asked shard 0 about old receipts
		}
		return answer, err
	}
	move := func(want string) *Job {
		t.Helper()
		w.queue(0).put("k", "x")
		j, werr := w.shards[0].jobs.create(w.queue(0), moveRequest(queueName(2)), false)
		require.Nil(t, werr)
		w.drive(j, j.worker.run())
		require.Equal(t, want, j.machine.at.State)
		j.publish()
		return j
	}
	receipts := func() (n int) {
		snap, err := w.stores[1].Snapshot()
		require.NoError(t, err)
		for _, e := range snap.Config {
			if strings.HasPrefix(e.Key, keyReceipt) {
				n++
			}
		}
		return n
	}
	move(api.JobDone)
	old := w.sent[0]
	w.limits[2].depth = w.queue(2).depth
	open := move(api.JobPaused)
	w.limits[2].depth = 0
	require.Equal(t, 2, receipts())
	w.now += int64(KeptFor - time.Hour)
	move(api.JobDone)
	require.Equal(t, 3, receipts())
	w.now += int64(2 * time.Hour)
	w.open(1)
	move(api.JobDone)
	require.Equal(t, 3, receipts(), "the receipt of the job that has ended is deleted")
	depth := w.queue(2).depth
	_, err := w.receive(old)
	require.Error(t, err, "nobody sends it so late but who has recorded it")
	require.Equal(t, depth, w.queue(2).depth)
	w.drive(open, resume{})
	w.drive(open, open.worker.run())
	require.Equal(t, api.JobDone, open.machine.at.State)
}

// TestAJobWhoseProgressCannotBeRead does not run: it would start from the beginning.
func TestAJobWhoseProgressCannotBeRead(t *testing.T) {
	w := newWorld(t, 0)
	j, werr := w.shards[0].jobs.create(w.queue(0), moveRequest(queueName(1)), false)
	require.Nil(t, werr)
	w.open(0)
	require.NotNil(t, w.shards[0].jobs.Get(j.ID))
	require.NoError(t, w.stores[0].Apply(&store.Batch{PutConfig: []store.Entry{{Key: keyPrefix + j.ID + keyProgress, Value: `{"state":"waiting","at":7}`}}}))
	w.open(0)
	require.Nil(t, w.shards[0].jobs.Get(j.ID))
}

// TestRequestsThatAreRefused: of shards that are elsewhere, of jobs that are too old to
// have a receipt, of numbers that are over.
func TestRequestsThatAreRefused(t *testing.T) {
	w := newWorld(t, 0)
	js := w.shards[1].jobs
	send := func(req request) *wire.Error {
		req.Queue, req.Job, req.Entries = queueName(2), "7", []sentEntry{{ID: make([]byte, 16)}}
		headers := wire.EncodeHeaders(nil, map[string][]string{"key": {"k"}})
		_, werr := Receive(w.signer, packRequest(w.signer, &req, []content{{readable: true, headers: headers}}), func(shard int) *Jobs {
			if shard != 1 {
				return nil
			}
			return js
		})
		return werr
	}
	require.Equal(t, wire.CodeNoOwner, send(request{Shard: 7, No: 1, Sent: w.now}).ErrCode)
	for _, skew := range []time.Duration{-maxClockSkew - 1, maxClockSkew + 1} {
		require.Contains(t, send(request{Shard: 1, No: 1, Sent: w.now + int64(skew)}).Description, "clocks")
	}
	require.Nil(t, send(request{Shard: 1, No: 2, Sent: w.now}))
	require.Nil(t, send(request{Shard: 1, No: 2, Sent: w.now}), "again")
	require.Contains(t, send(request{Shard: 1, No: 1, Sent: w.now}).Description, "later")
	require.EqualValues(t, 1, w.queue(2).depth)

	require.NoError(t, js.recoverReceipts([]store.Entry{{Key: "color", Value: "blue"}}))
	require.Error(t, js.recoverReceipts([]store.Entry{{Key: keyReceipt + "x", Value: "{"}}), "without it something could be taken twice")
}

// A deletion that is tried and given up while a job runs interrupts the job between two batches: what
// is on disk counts, and the next run goes on from there.
func TestARunThatIsInterruptedKeepsWhatIsOnDisk(t *testing.T) {
	w := newWorld(t, 0)
	w.now = time.Now().UnixNano()
	q := w.queue(0)
	const n = 2*batchSize + 1
	for range n {
		q.put("k", "")
	}
	j, werr := w.shards[0].jobs.create(q, moveRequest(queueName(1)), false)
	require.Nil(t, werr)
	w.shards[0].stored = func() { q.deleted = w.queue(1).depth > 0 }
	require.True(t, j.run())
	require.False(t, j.machine.running)
	moved := w.queue(1).depth
	require.Equal(t, moved, j.shown().Done)
	require.Less(t, moved, int64(n))
	require.Positive(t, moved)

	w.shards[0].stored, q.deleted = nil, false
	require.Nil(t, j.Pause(), "a verb finds the machine idle")
	require.Nil(t, j.drive(resume{}))
	w.drive(j, j.worker.run())
	require.Equal(t, api.JobDone, j.machine.at.State)
	require.Equal(t, int64(n), j.machine.at.Done)
	require.Equal(t, int64(n), w.queue(1).depth)
}

// A job that has ended keeps nothing of the messages that it has selected.
func TestARunFreesItsSelection(t *testing.T) {
	w := newWorld(t, 0)
	q := w.queue(0)
	for range 2 * batchSize {
		q.put("k", "")
	}
	j, werr := w.shards[0].jobs.create(q, moveRequest(queueName(1)), false)
	require.Nil(t, werr)
	w.drive(j, j.worker.run())
	require.Equal(t, api.JobDone, j.machine.at.State)
	require.Equal(t, plan{}, j.machine.plan)
	require.Nil(t, j.machine.ahead)
}

// A job shows a state before its event is out.
func TestEventsComeAfterTheStateIsShown(t *testing.T) {
	w := newWorld(t, 0)
	w.now = time.Now().UnixNano()
	q := w.queue(0)
	q.put("k", "")
	j, werr := w.shards[0].jobs.create(q, moveRequest(queueName(1)), false)
	require.Nil(t, werr)
	events := map[string]string{}
	w.event = func(typ string, _ map[string]any) { events[typ] = j.shown().State }
	require.Nil(t, j.Pause())
	require.Nil(t, j.drive(resume{}))
	require.True(t, j.run())
	require.Equal(t, map[string]string{
		wire.EventJobPaused: api.JobPaused, wire.EventJobResumed: api.JobWaiting, wire.EventJobDone: api.JobDone,
	}, events)
}

// A job that was left alone while its queue looked deleted runs when the deletion is given up.
func TestWakeRunsJobsAfterADeletionIsGivenUp(t *testing.T) {
	w := newWorld(t, 0)
	w.now = time.Now().UnixNano()
	q := w.queue(0)
	q.put("k", "")
	jobs := w.shards[0].jobs
	jobs.Start()
	q.deleted = true
	j, werr := jobs.create(q, moveRequest(queueName(1)), false)
	require.Nil(t, werr)
	jobs.Wake(queueName(0))
	jobs.work.Wait()
	require.Equal(t, api.JobWaiting, j.shown().State)

	q.deleted = false
	jobs.Wake(queueName(0))
	jobs.work.Wait()
	require.Equal(t, api.JobDone, j.shown().State)
}
