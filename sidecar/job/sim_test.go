package job

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

var (
	simSeed = flag.Int64("seed", -1, "the only seed of TestSim; a failure names it")
	simTime = flag.Duration("sim.time", 0, "how long TestSim tries fresh seeds")
)

// TestSim: whatever happens to shards, stores, requests and answers, no message is lost or
// in two places, and every job ends.
func TestSim(t *testing.T) {
	one := func(seed uint64) {
		defer func() {
			if t.Failed() {
				t.Logf("go test ./sidecar/job -run TestSim -seed %d", seed)
			}
		}()
		simulate(t, seed)
	}
	switch {
	case *simSeed >= 0:
		one(uint64(*simSeed))
	case *simTime > 0:
		first, n := uint64(time.Now().UnixNano()), uint64(0)
		for end := time.Now().Add(*simTime); time.Now().Before(end) && !t.Failed(); n++ {
			one(first + n)
		}
		t.Logf("%d seeds from %d on", n, first)
	default:
		for seed := range uint64(200) {
			one(seed)
		}
	}
}

// activeJob is a job whose machine is being stepped.
type activeJob struct {
	*Job
	in []input
	do operation
	at int64
}

// sim is a world with producers, consumers, operators and bad luck.
type sim struct {
	*world
	messages map[store.ID]bool // all that were enqueued
	acked    map[store.ID]bool // by consumers; whether that is on disk is not known
	deletes  map[string]bool   // jobs that delete
	calm     bool
}

func simulate(t *testing.T, seed uint64) {
	s := &sim{world: newWorld(t, seed), messages: make(map[store.ID]bool), acked: make(map[store.ID]bool), deletes: make(map[string]bool)}
	s.link = s.lossy
	for n := range s.limits {
		if s.chance(2) {
			s.limits[n] = testLimits{depth: 5 + int64(s.rng.IntN(30)), perKey: int64(s.rng.IntN(2) * 8)}
		}
		for range s.rng.IntN(25) {
			s.enqueue(n)
		}
	}
	for range 150 {
		s.now += int64(s.rng.IntN(50)) * 1e6
		s.act()
	}
	s.calm, s.link, s.limits = true, nil, [4]testLimits{}
	for i, sh := range s.shards {
		if sh.commits = -1; sh.failed || s.chance(2) {
			s.open(i)
		}
	}
	s.finish()
	s.check()
	for i := range s.shards {
		s.open(i)
	}
	s.check()
}

func (s *sim) chance(n int) bool { return s.rng.IntN(n) == 0 }

func (s *sim) enqueue(n int) {
	if q := s.queue(n); !q.shard.failed {
		id := q.put(string("abc"[s.rng.IntN(3)]), strings.Repeat("x", s.rng.IntN(1500)))
		if s.messages[id] = true; q.shard.failed {
			s.acked[id] = true // it was not confirmed
		}
	}
}

// lossy is a link on which requests and answers get lost.
func (s *sim) lossy(_ int, body []byte) ([]byte, error) {
	if s.chance(5) {
		return nil, errors.New("the request is lost")
	}
	answer, err := s.receive(body)
	if s.chance(5) {
		return nil, errors.New("the answer is lost")
	}
	return answer, err
}

// act does something.
func (s *sim) act() {
	n := s.rng.IntN(4)
	q, sh := s.queue(n), s.shards[n/2]
	switch s.rng.IntN(24) {
	case 0:
		s.enqueue(n)
	case 1, 2:
		s.create(n)
	case 3:
		q.step(q.input(queue.Register{Consumer: "c", Subject: "c", MaxInFlight: 1 + s.rng.IntN(3)}))
	case 4:
		q.step(q.input(queue.Leave{Consumer: "c"}))
	case 5, 6, 7:
		s.answer(q)
	case 8:
		if all := sh.jobs.All(); len(all) > 0 {
			wish := []input{stop{api.JobPaused}, resume{}, stop{api.JobCanceled}}[min(s.rng.IntN(5), 2)]
			s.activate(sh, all[s.rng.IntN(len(all))], wish)
		}
	case 9:
		if len(s.sent) > 0 { // it comes late, and again
			_, _ = s.receive(s.sent[s.rng.IntN(len(s.sent))])
		}
	case 10:
		if s.chance(3) && sh.commits < 0 {
			sh.commits, sh.lands = s.rng.IntN(6), s.chance(2)
		}
	case 11:
		if sh.failed || s.chance(4) {
			s.open(n / 2)
		}
	default:
		s.work(sh)
	}
}

// create makes a job about queue n.
func (s *sim) create(n int) {
	req := api.JobCreateRequest{
		Queue: queueName(n), Filter: &api.Filter{All: true}, Order: []string{api.OrderArrival, api.OrderDeath}[s.rng.IntN(2)],
		Limit: int64(s.rng.IntN(2) * (1 + s.rng.IntN(20))), Rate: int64(s.rng.IntN(2) * 100),
	}
	switch req.Op = []string{api.JobMove, api.JobMove, api.JobMove, api.JobDelay, api.JobRunNow, api.JobReprioritise, api.JobCancel, api.JobRedrive}[s.rng.IntN(8)]; req.Op {
	case api.JobMove:
		req.To = queueName((n + 1 + s.rng.IntN(3)) % 4)
		if s.chance(3) {
			req.Queue = wire.DLQ(req.Queue)
		}
	case api.JobDelay:
		req.RunAt = time.Unix(0, s.now+int64(s.rng.IntN(1000))*1e6).UTC().Format(time.RFC3339)
	case api.JobReprioritise:
		req.Key = "b"
	case api.JobCancel:
		req.Limit = 2
	case api.JobRedrive:
		req.Queue = wire.DLQ(req.Queue)
	}
	sh := s.shards[n/2]
	s.ids++ // so that a job that was not confirmed is known as well
	id := fmt.Sprintf("%08d", s.ids+1)
	s.deletes[id] = req.Op == api.JobCancel
	_, _ = sh.jobs.create(sh.queues[req.Queue], req, false)
}

// answer has a consumer answer a delivery.
func (s *sim) answer(q *testQueue) {
	for i := range q.delivered {
		d := &q.delivered[i]
		if d.Kind != queue.DeliverMessage {
			continue
		}
		ack := wire.Ack{Kind: []wire.AckKind{wire.AckDone, wire.AckNack, wire.AckTerm, wire.AckTerm}[s.rng.IntN(4)], Error: "e"}
		if ack.Kind == wire.AckDone {
			s.acked[d.ID] = true
		}
		q.step(queue.Input{Kind: queue.Acked, Role: d.Role, Token: d.Token, Ack: ack})
		q.delivered = slices.Delete(q.delivered, i, i+1)
		return
	}
}

// activate has a machine get an input, when it is being stepped or is idle.
func (s *sim) activate(sh *testShard, j *Job, in input) {
	for _, a := range sh.active {
		if a.Job == j {
			if _, ok := in.(stop); ok {
				a.in, a.at = append(a.in, in), 0
			}
			return
		}
	}
	if a := sh.active[j.source()]; a == nil {
		sh.active[j.source()] = &activeJob{Job: j, in: []input{in}}
	}
}

// work makes a step of a job of a shard, or carries out what the last one has asked for. It
// reports false if there is none.
func (s *sim) work(sh *testShard) bool {
	for _, j := range sh.jobs.All() {
		if sh.active[j.source()] == nil {
			if next := sh.jobs.next(j.source()); next != nil {
				sh.active[j.source()] = &activeJob{Job: next, in: []input{next.worker.run()}}
			}
		}
	}
	names := slices.Sorted(maps.Keys(sh.active))
	if len(names) == 0 {
		return false
	}
	name := names[s.rng.IntN(len(names))]
	a := sh.active[name]
	if a.do != nil {
		a.in, a.do = append([]input{a.do.perform(&a.worker)}, a.in...), nil
		return true
	}
	if s.calm {
		s.now = max(s.now, a.at)
	}
	if s.now < a.at {
		return true
	}
	var fx effects
	a.machine.step(s.now, a.in, &fx)
	a.publish()
	a.in, a.do, a.at = nil, fx.Do, fx.At
	if fx.Do == nil && fx.At == 0 {
		delete(sh.active, name)
	}
	return true
}

// finish has all jobs end.
func (s *sim) finish() {
	for range 100_000 {
		s.now += 1e6
		busy := false
		for _, sh := range s.shards {
			for _, q := range sh.queues {
				q.step()
			}
			busy = s.work(sh) || busy
			for _, j := range sh.jobs.All() {
				if at := j.shown(); at.State == api.JobPaused && sh.active[j.source()] == nil {
					s.activate(sh, j, resume{})
					busy = true
				}
			}
		}
		if !busy {
			break
		}
	}
	for _, sh := range s.shards {
		for _, j := range sh.jobs.All() {
			at := j.shown()
			require.True(s.t, at.ended(), "job %s does not end: %+v", j.ID, at)
			require.False(s.t, j.machine.transfer.open())
			require.Equal(s.t, at.Matched, at.Done+sum(at.Left))
		}
	}
}

func sum(m map[string]int64) (n int64) {
	for _, v := range m {
		n += v
	}
	return n
}

// check checks the invariants of the stores.
func (s *sim) check() {
	found, deleted := make(map[store.ID]int), int64(0)
	for _, sh := range s.shards {
		depth, keys := make(map[store.QueueID]int64), make(map[store.QueueID]*testCounts)
		_, err := sh.store.Recover(store.Visitor{
			Message: func(m *store.Message, _ int, st *store.State) error {
				found[m.ID]++
				depth[m.Queue]++
				if keys[m.Queue] == nil {
					keys[m.Queue] = newTestCounts()
				}
				keys[m.Queue].Add(m.Key, 1)
				if st != nil {
					require.NotEqual(s.t, "\x00job", st.Lease.Consumer, "a message is parked for ever")
				}
				return nil
			},
			Dedupe: func(store.Dedupe) error { return nil },
		})
		require.NoError(s.t, err)
		for _, q := range sh.queues {
			require.Equal(s.t, depth[q.id], q.depth, q.name)
			if !q.IsDLQ() {
				require.Equal(s.t, cmp.Or(keys[q.id], newTestCounts()), q.keys, q.name)
			}
		}
		for _, j := range sh.jobs.All() {
			if s.deletes[j.ID] || j.Op == api.JobCancel {
				deleted += j.shown().Done
			}
		}
	}
	var missing, unclear int64
	for id := range s.messages {
		require.LessOrEqual(s.t, found[id], 1, "message %v is in two places", id)
		switch {
		case found[id] == 0 && s.acked[id]:
			unclear++
		case found[id] == 0:
			missing++
		}
	}
	require.LessOrEqual(s.t, missing, deleted, "messages are lost")
	require.LessOrEqual(s.t, deleted, missing+unclear, "messages that a job has deleted are there")
	require.LessOrEqual(s.t, len(found), len(s.messages))
}
