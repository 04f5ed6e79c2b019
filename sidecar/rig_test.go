package sidecar

import (
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/store"
	"github.com/filaq/fila/store/storetest"
	"github.com/filaq/fila/throttle"
	"github.com/filaq/fila/wire"
)

// stepStore is a store in memory that commits only when it is told to, so that
// a test sees every state between a change and its being on disk.
type stepStore struct {
	store.Store

	mu struct {
		sync.Mutex
		waiting   []*store.Batch
		submitted int
		committed int

		refs     map[store.Ref]store.ID
		added    map[store.ID]int // the batch that added a message first
		finished map[store.ID]int // the batch that finished it for good
	}
}

// note remembers which batch adds and finishes which message.
func (s *stepStore) note(b *store.Batch) {
	if s.mu.refs == nil {
		s.mu.refs, s.mu.added, s.mu.finished = make(map[store.Ref]store.ID), make(map[store.ID]int), make(map[store.ID]int)
	}
	for i := range b.Add {
		s.mu.refs[b.Add[i].Ref] = b.Add[i].ID
		s.mu.added[b.Add[i].ID] = s.mu.submitted
	}
	for i := range b.Move {
		s.mu.refs[b.Move[i].To.Ref] = b.Move[i].To.ID
	}
	for _, ref := range b.Finish {
		if id, ok := s.mu.refs[ref]; ok {
			s.mu.finished[id] = s.mu.submitted
		}
	}
}

func (s *stepStore) Submit(b *store.Batch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.waiting = append(s.mu.waiting, b)
	s.mu.submitted++
	s.note(b)
}

// commit applies up to n of the batches that wait.
func (s *stepStore) commit(n int) int {
	s.mu.Lock()
	n = min(n, len(s.mu.waiting))
	batches := s.mu.waiting[:n:n]
	s.mu.waiting = s.mu.waiting[n:]
	s.mu.committed += n
	s.mu.Unlock()
	for _, b := range batches {
		done, outcome := b.Done, make(chan error, 1)
		b.Done = func(err error) { outcome <- err }
		s.Store.Submit(b)
		err := <-outcome
		b.Done = done
		if done != nil {
			done(err)
		}
	}
	return n
}

func (s *stepStore) waiting() []*store.Batch {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.mu.waiting)
}

// tester is what *testing.T, *testing.B and *rapid.T have in common.
type tester interface {
	require.TestingT
	Helper()
	Cleanup(func())
}

// rig is one queue and its dead letter queue without NATS and without
// goroutines: the test posts events, makes turns, commits, and sets the clock.
type rig struct {
	t      tester
	now    int64
	disk   string
	st     *stepStore
	core   *core
	q, dlq *queue
	loops  map[*queue]*loop
	fatal  error

	sent []sent       // deliveries that have left the loops
	jobs []failureJob // what on_failure is asked

	paced pacing
}

// sent is a delivery with the queue that it came from.
type sent struct {
	q *queue
	delivery
}

// rigStart is when a rig's clock begins.
var rigStart = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano()

func newRig(t tester, change func(*wire.QueueSettings)) *rig {
	t.Helper()
	settings := wire.DefaultQueueSettings("orders")
	if change != nil {
		change(&settings)
	}
	r := &rig{t: t, now: rigStart, disk: newID2()}
	r.open()
	rec, err := record(1, settings)
	require.NoError(t, err)
	dlqRec, err := record(2, dlqSettings(settings))
	require.NoError(t, err)
	r.st.Submit(&store.Batch{PutQueues: []store.QueueRecord{rec, dlqRec}})
	r.st.commit(1)
	r.recover()
	return r
}

func newID2() string { return formatID(newID()) }

// open opens the disk and makes what all queues share.
func (r *rig) open() {
	model, err := storetest.OpenModel(r.disk, func() int64 { return r.now })
	require.NoError(r.t, err)
	refs := make(map[store.Ref]store.ID)
	if r.st != nil {
		refs = r.st.mu.refs // a restart forgets nothing of these
	}
	r.st = &stepStore{Store: model}
	r.st.mu.refs, r.st.mu.added, r.st.mu.finished = refs, make(map[store.ID]int), make(map[store.ID]int)
	r.t.Cleanup(func() { _ = model.Close() })
	subjects, err := wire.NewSubjects("fila")
	require.NoError(r.t, err)
	r.core = &core{
		cfg: Default(), log: slog.New(slog.DiscardHandler), clock: clock{test: func() int64 { return r.now }},
		store: r.st, subjects: subjects, pacing: r.paced, metrics: newMetrics(), config: newRuntimeConfig(nil), refusals: &refusals{},
		fatal: func(err error) { r.fatal = err },
	}
	r.core.gates = throttle.New(throttle.Start{}, r.now)
	r.core.circuits = newCircuits(r.core)
	r.core.hold = func(*queue, string, int64) {}
	r.core.signer, err = wire.NewSigner(make([]byte, 32))
	require.NoError(r.t, err)
	r.core.leaseIDs.Store(uint64(newID()[15])<<32 + uint64(time.Now().UnixNano()))
	r.core.serving.Store(true)
}

// recover fills the loops from the disk, as a start does.
func (r *rig) recover() {
	snap, err := r.st.Snapshot()
	require.NoError(r.t, err)
	s := &Server{cfg: r.core.cfg, core: r.core}
	loops, err := s.recover(snap)
	require.NoError(r.t, err)
	r.loops = make(map[*queue]*loop)
	for _, rec := range loops {
		r.loops[rec.q] = rec.loop
		if rec.q.isDLQ() {
			r.dlq = rec.q
		} else {
			r.q = rec.q
		}
		rec.q.mail.poke()
	}
}

// restart ends the process and starts the next one: in order, or by a crash in
// which everything that waited for the disk is lost.
func (r *rig) restart(crash bool) {
	if !crash {
		r.core.draining.Store(true)
		for _, q := range []*queue{r.q, r.dlq} {
			r.loops[q].finish()
			r.collect()
		}
		r.st.commit(len(r.st.waiting()))
	}
	policy := r.q.policy.Load()
	require.NoError(r.t, r.st.Close())
	r.jobs = nil
	r.open()
	r.recover()
	for i := range r.sent {
		r.sent[i].q = r.same(r.sent[i].q)
	}
	p := *r.q.policy.Load()
	p.onEnqueue, p.onFailure = policy.onEnqueue, policy.onFailure
	r.q.policy.Store(&p)
	r.run()
}

// same returns the queue that was q before a restart.
func (r *rig) same(q *queue) *queue {
	if q.isDLQ() {
		return r.dlq
	}
	return r.q
}

// loop returns the loop of q.
func (r *rig) loop(q *queue) *loop { return r.loops[q] }

// run makes turns until nothing is left to do at this moment.
func (r *rig) run() {
	r.t.Helper()
	for again := true; again; {
		again = false
		for _, q := range []*queue{r.q, r.dlq} {
			select {
			case <-q.mail.wake:
				r.loop(q).turn(q.mail.take(nil))
				again = true
			default:
			}
		}
		r.collect()
	}
	require.NoError(r.t, r.fatal)
}

// collect takes what the loops have handed on.
func (r *rig) collect() {
	for _, q := range []*queue{r.q, r.dlq} {
		for _, d := range q.out.take(nil) {
			r.sent = append(r.sent, sent{q, d})
		}
		r.jobs = append(r.jobs, q.failures.take(nil)...)
	}
}

// pass lets time go by and makes the turns that it brings.
func (r *rig) pass(d time.Duration) {
	r.t.Helper()
	r.now += int64(d)
	r.q.mail.poke()
	r.dlq.mail.poke()
	r.run()
}

// commit puts everything on disk and makes the turns that follow.
func (r *rig) commit() {
	r.t.Helper()
	r.run()
	for {
		for _, q := range []*queue{r.q, r.dlq} {
			r.loops[q].flush()
		}
		if r.st.commit(len(r.st.waiting())) == 0 {
			return
		}
		r.run()
	}
}

// post tells q's loop something and makes the turns that follow.
func (r *rig) post(q *queue, e event) {
	r.t.Helper()
	require.True(r.t, q.mail.post(e))
	r.run()
}

// enqueue takes a message as the intake does.
func (r *rig) enqueue(key string, change func(*store.Message)) store.ID {
	r.t.Helper()
	in := &incoming{size: 10, reply: "reply", msg: store.Message{
		Ref: store.Ref{Queue: r.q.id}, ID: newID(), EnqueuedAt: r.now,
		Weight: 1000, Cost: 1000, Key: key, Payload: []byte("0123456789"),
	}}
	if change != nil {
		change(&in.msg)
	}
	id := in.msg.ID
	r.q.depth.Add(1)
	r.q.bytes.Add(in.size)
	r.core.uncommitted.Add(in.size)
	r.post(r.q, event{kind: evEnqueue, incoming: in})
	return id
}

// consume registers a consumer.
func (r *rig) consume(q *queue, name string, credit int, ttl time.Duration) {
	r.t.Helper()
	req := wire.ConsumeRequest{Consumer: name, MaxInFlight: credit, TTLMs: ttl.Milliseconds()}
	r.post(q, event{kind: evCall, call: func(l *loop) { l.register(req, "reply", []byte("{}")) }})
}

func (r *rig) fetch(q *queue, inbox string, batch int, expires time.Duration) {
	r.t.Helper()
	req := wire.FetchRequest{Batch: batch, ExpiresMs: expires.Milliseconds()}
	r.post(q, event{kind: evCall, call: func(l *loop) { l.fetch(req, inbox) }})
}

// ack answers a delivery.
func (r *rig) ack(d sent, a wire.Ack, reply string) {
	r.t.Helper()
	r.post(d.q, event{kind: evAck, token: d.token(), ack: a, reply: reply})
}

// take returns the deliveries since the last call, and the statuses of fetches.
func (r *rig) take() (ds []sent, statuses map[string]string) {
	statuses = make(map[string]string)
	for _, d := range r.sent {
		switch d.kind {
		case sendStatus:
			statuses[d.subject] = d.status
			continue
		case sendReply:
			continue
		case sendMessage:
		}
		ds = append(ds, d)
	}
	r.sent = nil
	return ds, statuses
}

// one returns the only delivery since the last take.
func (r *rig) one() sent {
	r.t.Helper()
	d, _ := r.take()
	require.Len(r.t, d, 1)
	return d[0]
}

// stored returns what a recovery would find: messages and their states.
func (r *rig) stored() (map[store.Ref]store.Message, map[store.Ref]store.State) {
	r.t.Helper()
	messages, states := make(map[store.Ref]store.Message), make(map[store.Ref]store.State)
	_, err := r.st.Recover(store.Visitor{Message: func(m *store.Message, _ int, st *store.State) error {
		messages[m.Ref] = *m
		if st != nil {
			states[m.Ref] = *st
		}
		return nil
	}})
	require.NoError(r.t, err)
	return messages, states
}

// counter reads one of the queue's own counters.
func counter(q *queue, name string) int64 { return q.metrics.snapshot()[name] }

// ids returns the ids of deliveries.
func ids(ds []sent) []store.ID {
	var all []store.ID
	for _, d := range ds {
		all = append(all, d.id)
	}
	return all
}

// deliveries is take without the statuses.
func (r *rig) deliveries() []sent {
	ds, _ := r.take()
	return ds
}

// sleep is how long a loop may wait when nothing is posted.
func (l *loop) sleep() time.Duration {
	now := l.q.core.clock.Now()
	return time.Duration(max(l.next(now)-now, 0))
}
