package job

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/deadletter"
	"github.com/filaq/fila/sidecar/finder"
	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/sidecar/queue/gates"
	"github.com/filaq/fila/sidecar/queue/history"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/store/storetest"
	"github.com/filaq/fila/throttle"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// testPayload is max_payload of NATS.
const testPayload = 8 << 10

// world is two shards with two queues each, without goroutines: whatever happens, happens
// in the order of the calls. Queues 0 and 1 are in shard 0.
type world struct {
	event  func(typ string, data map[string]any) // nil: events are dropped
	t      testing.TB
	rng    *rand.Rand
	now    int64
	ids    uint64
	signer *wire.Signer
	stores [2]*storetest.Model
	shards [2]*testShard
	limits [4]testLimits                                // of the queues
	link   func(shard int, body []byte) ([]byte, error) // nil: a good one
	sent   [][]byte
}

// testLimits are the settings of a queue.
type testLimits struct{ depth, perKey int64 }

// testShard is a shard as one of its owners has it.
type testShard struct {
	applying sync.Mutex // held by apply: receipts are deleted beside the work
	*world
	number  int
	store   *storetest.Model
	queues  map[string]*testQueue
	jobs    *Jobs
	active  map[string]*activeJob // by queue
	end     context.CancelFunc
	commits int    // that succeed; -1: all
	stored  func() // after each commit; nil: nothing
	plain   bool   // it leaves histories out
	lands   bool   // the commit after them is written, but reported as failed
	failed  bool
}

// testQueue is one role of a machine.
type testQueue struct {
	*testMachine
	role     queue.Role
	name     string
	id       store.QueueID
	depth    int64
	bytes    int64
	deleted  bool // as while a deletion is tried
	redrives deadletter.Redrives
}

// testMachine is a queue with its dead letters.
type testMachine struct {
	shard     *testShard
	number    int
	machine   *queue.Queue
	roles     [queue.Roles]*testQueue
	mail      []queue.Input
	delivered []queue.Delivery
	keys      *testCounts
	ended     bool
}

// testCounts counts messages by fairness key.
type testCounts struct{ n map[string]int64 }

func newTestCounts() *testCounts { return &testCounts{make(map[string]int64)} }

func (c *testCounts) Add(key string, n int64) {
	if c.n[key] += n; c.n[key] == 0 {
		delete(c.n, key)
	}
}

func queueName(n int) string { return fmt.Sprint("q", n) }

func newWorld(t testing.TB, seed uint64) *world {
	t.Helper()
	w := &world{t: t, rng: rand.New(rand.NewPCG(seed, 30)), now: 1e18}
	var err error
	w.signer, err = wire.NewSigner(make([]byte, 32))
	require.NoError(t, err)
	for i := range w.stores {
		w.stores[i] = storetest.NewModel(func() int64 { return w.now })
		w.stores[i].Join, w.stores[i].Keep = history.Join, history.IsRedrive
		var b store.Batch
		for n := 2 * i; n < 2*i+2; n++ {
			name := queueName(n)
			b.PutQueues = append(b.PutQueues, store.QueueRecord{ID: store.QueueID(2*n + 1), Name: name}, store.QueueRecord{ID: store.QueueID(2*n + 2), Name: wire.DLQ(name)})
		}
		require.NoError(t, w.stores[i].Apply(&b))
		w.open(i)
	}
	return w
}

// open makes the next owner of a shard, of what its store has.
func (w *world) open(number int) {
	if old := w.shards[number]; old != nil {
		old.end()
	}
	ctx, end := context.WithCancel(context.Background())
	s := &testShard{world: w, number: number, store: w.stores[number], queues: make(map[string]*testQueue), active: make(map[string]*activeJob), end: end, commits: -1}
	w.shards[number] = s
	s.jobs = New(Options{
		Shard: number, Log: slog.New(slog.NewTextHandler(io.Discard, nil)), Now: func() int64 { return w.now }, Signer: w.signer,
		NewID:      func() string { w.ids++; return fmt.Sprintf("%08d", w.ids) },
		MaxPayload: func() int64 { return testPayload },
		Find: func(name string) (Queue, *wire.Error) {
			if q := s.queues[name]; q != nil && !q.deleted {
				return q, nil
			}
			return nil, wire.QueueNotFound(name)
		},
		Where: func(name string) (int, bool) { return int(name[1]-'0') / 2, true },
		Send: func(_ context.Context, shard int, body []byte) ([]byte, error) {
			require.LessOrEqual(w.t, len(body), testPayload)
			w.sent = append(w.sent, body)
			if w.link != nil {
				return w.link(shard, body)
			}
			return w.receive(body)
		},
		Plain: func() bool { return s.plain }, Commit: s.apply, Submit: func(b *store.Batch) { _ = s.apply(b) },
		Event: func(typ, _ string, data map[string]any) {
			if w.event != nil {
				w.event(typ, data)
			}
		},
		Ended: ctx, Wait: func(done <-chan error) error { return <-done },
	})
	recovery := make(map[store.QueueID]*queue.Recovery)
	for n := 2 * number; n < 2*number+2; n++ {
		m := &testMachine{shard: s, number: n, keys: newTestCounts()}
		ids := [queue.Roles]store.QueueID{store.QueueID(2*n + 1), store.QueueID(2*n + 2)}
		settings := queue.Settings{QueueSettings: wire.DefaultQueueSettings(queueName(n)), PerKey: m.keys}
		m.machine = queue.New(queue.Options{
			Name: queueName(n), IDs: ids, Settings: settings, Gates: throttle.New(throttle.Start{}, w.now), Owner: m, FirstLease: w.rng.Uint64(),
		}, w.now)
		for role, name := range []string{queueName(n), wire.DLQ(queueName(n))} {
			m.roles[role] = &testQueue{testMachine: m, role: queue.Role(role), name: name, id: ids[role]}
			s.queues[name] = m.roles[role]
		}
		r := m.machine.Recover()
		recovery[ids[queue.Main]], recovery[ids[queue.Dead]] = r, r
	}
	_, err := s.store.Recover(store.Visitor{
		Message: func(m *store.Message, size int, st *store.State) error {
			q := s.queue(m.Queue)
			q.depth, q.bytes = q.depth+1, q.bytes+int64(size)
			recovery[m.Queue].Message(m, size, st, w.now)
			return nil
		},
		Dedupe: func(store.Dedupe) error { return nil },
	})
	require.NoError(w.t, err)
	for name, q := range s.queues {
		if !wire.IsDLQ(name) {
			recovery[q.id].Done(w.now)
		}
	}
	snap, err := s.store.Snapshot()
	require.NoError(w.t, err)
	require.NoError(w.t, s.jobs.Recover(snap.Config, func(name string, last uint64) Queue {
		recovery[s.queues[name].id].Used(s.queues[name].id, last)
		return s.queues[name]
	}))
	for name, q := range s.queues {
		if !wire.IsDLQ(name) {
			q.step(q.input(queue.Dispatch{On: true}))
		}
	}
}

// receive gives a request to the owner of its shard.
func (w *world) receive(body []byte) ([]byte, error) {
	answer, werr := Receive(w.signer, body, func(shard int) *Jobs { return w.shards[shard].jobs })
	if werr != nil {
		return nil, werr
	}
	return answer, nil
}

func (w *world) queue(n int) *testQueue { return w.shards[n/2].queues[queueName(n)] }

func (s *testShard) queue(id store.QueueID) *testQueue {
	for _, q := range s.queues {
		if q.id == id {
			return q
		}
	}
	return nil
}

// apply commits a batch, until the store fails.
func (s *testShard) apply(b *store.Batch) error {
	s.applying.Lock()
	defer s.applying.Unlock()
	if s.failed || s.commits == 0 {
		if !s.failed && s.lands {
			_ = s.store.Apply(b)
		}
		s.failed = true
		return store.ErrFenced
	}
	s.commits = max(s.commits-1, -1)
	err := s.store.Apply(b)
	if s.stored != nil {
		s.stored()
	}
	return err
}

// step steps the machine and commits what it hands out.
func (m *testMachine) step(in ...queue.Input) (Answer, bool) {
	if m.ended {
		return Answer{}, false
	}
	in, m.mail = append(m.mail, in...), nil
	var fx queue.Effects
	m.machine.Step(m.shard.now, in, &fx)
	for role := range m.roles {
		m.roles[role].depth += fx.Counters[role].Messages
		m.roles[role].bytes += fx.Counters[role].Bytes
	}
	for _, c := range fx.Commits {
		c.Queue = m.roles[queue.Main].id
		ticket := c.Ticket
		err := m.shard.apply(&c.Batch)
		if store.Fatal(err) == nil {
			m.mail = append(m.mail, queue.Input{Kind: queue.Committed, Commit: c, Err: err})
		}
		if done, ok := ticket.(chan error); ok {
			done <- err
		}
	}
	m.delivered = append(m.delivered, fx.Publish...)
	return Answer{fx.Claimed, fx.Handled}, true
}

func (m *testMachine) GateOpened(*throttle.Gate)   {}
func (m *testMachine) CircuitOpened(gates.Circuit) {}

func (q *testQueue) input(c queue.Change) queue.Input {
	return queue.Input{Kind: queue.Changed, Role: q.role, Change: c}
}

// put enqueues a message of a fairness key.
func (q *testQueue) put(key, body string) store.ID {
	in := q.message(key, body)
	id := in.Message.ID
	q.step(in)
	q.shard.now += 1e6
	q.step()
	q.step()
	return id
}

// message returns a message that is counted already.
func (q *testQueue) message(key, body string) queue.Input {
	w := q.shard.world
	w.ids++
	id := store.ID{byte(w.ids >> 8), byte(w.ids)}
	m := &queue.Message{Message: store.Message{
		Ref: store.Ref{Queue: q.id}, ID: id, EnqueuedAt: w.now, Class: store.Class{Key: key, Weight: 1000, Cost: 1000},
		Headers: wire.EncodeHeaders(nil, map[string][]string{"key": {key}}), Payload: []byte(body),
	}, Counted: q.keys}
	m.Size = int64(len(m.Headers) + len(m.Payload))
	q.keys.Add(key, 1)
	q.AddDepth(1, m.Size)
	return queue.Input{Kind: queue.Enqueue, Message: m}
}

func (q *testQueue) Name() string                   { return q.name }
func (q *testQueue) ID() store.QueueID              { return q.id }
func (q *testQueue) IsDLQ() bool                    { return q.role == queue.Dead }
func (q *testQueue) Source() Queue                  { return q.roles[queue.Main] }
func (q *testQueue) Store() store.Store             { return q.shard.store }
func (q *testQueue) Deleted() bool                  { return q.deleted }
func (q *testQueue) Gone() *wire.Error              { return wire.NoOwner(q.name) }
func (q *testQueue) Lock() (func(), *wire.Error)    { return func() {}, nil }
func (q *testQueue) Redrives() *deadletter.Redrives { return &q.redrives }

func (q *testQueue) AddDepth(messages, bytes int64) {
	q.depth, q.bytes = q.depth+messages, q.bytes+bytes
}

func (q *testQueue) View(fn func(m *queue.Queue, role queue.Role, now int64)) bool {
	fn(q.machine, q.role, q.shard.now)
	return true
}

func (q *testQueue) Change(changes ...queue.Change) (Answer, bool) {
	var in []queue.Input
	for _, c := range changes {
		in = append(in, q.input(c))
	}
	return q.step(in...)
}

func (q *testQueue) ClaimAndComplete(c queue.Claim, fn func(*queue.Claimed, uint64) queue.Complete) bool {
	answer, ok := q.Change(c)
	if ok {
		q.step(q.input(fn(answer.Claimed, q.machine.LastSeq(q.role))))
	}
	return ok
}

func (q *testQueue) Finder(f api.Filter, last uint64) (*finder.Finder, *wire.Error) {
	return finder.New(q, f, last, q.shard.jobs.Log)
}

func (q *testQueue) Admit(bool) (Target, *wire.Error) { return testTarget{q}, nil }

// testTarget decides by the limits of a queue.
type testTarget struct{ *testQueue }

func (t testTarget) limits() testLimits { return t.shard.limits[t.number] }

func (t testTarget) Room(messages, _, _ int64) *wire.Error {
	if most := t.limits().depth; most > 0 && t.depth+messages >= most {
		return wire.BacklogMessages(t.name, most, 0)
	}
	return nil
}

func (t testTarget) Reclassify(headers map[string][]string, _ int, _ bool, req *api.JobCreateRequest) (store.Class, *wire.Error) {
	d := store.Class{Weight: 1000, Cost: 1000}
	if d.Key = headers["key"][0]; req.Key != "" {
		d.Key = req.Key
	}
	return d, nil
}

func (t testTarget) CountKey(key string) (queue.KeyCounts, *wire.Error) {
	if most := t.limits().perKey; most > 0 && t.keys.n[key] >= most {
		return nil, wire.KeyPending(t.name, key, most, 0)
	}
	t.keys.Add(key, 1)
	return t.keys, nil
}

func (t testTarget) ReleaseKey(string) {}
func (t testTarget) Close()            {}
