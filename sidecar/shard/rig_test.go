package shard

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/filaq/fila/breaker"
	"github.com/filaq/fila/hooks"
	"github.com/filaq/fila/schemas/schematest"
	"github.com/filaq/fila/sidecar/policy"
	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/sidecar/queue/gates"
	"github.com/filaq/fila/sidecar/rules"
	"github.com/filaq/fila/sidecar/telemetry"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/store/storetest"
	"github.com/filaq/fila/throttle"
	"github.com/filaq/fila/wire"
)

// TestMain fails when a test leaves a goroutine behind.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a shard with a store in memory that collects what it publishes, without NATS. It runs
// inside a synctest bubble.
type rig struct {
	*Set
	shard   *Shard // the only one
	t       testing.TB
	disk    string
	store   *heldStore
	conn    *fakeConn
	front   *fakeFront
	control *fakeControl
	circuit *fakeCircuit // of all circuit keys
	log     *syncBuffer

	events struct {
		sync.Mutex
		all []wire.Event
	}
}

// bubble runs fn on a rig that serves.
func bubble(t *testing.T, fn func(r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, newDisk())
		fn(r)
		r.end()
	})
}

var disks atomic.Int64

// newDisk returns the name of an empty disk.
func newDisk() string { return fmt.Sprint("shard ", disks.Add(1)) }

// newRig starts a shard on a disk.
func newRig(t testing.TB, disk string) *rig {
	t.Helper()
	return newRigAt(t, disk, 0)
}

// newRigAt starts a shard whose clock is behind the clock of the bubble.
func newRigAt(t testing.TB, disk string, behind time.Duration) *rig {
	t.Helper()
	r := openRigAt(t, disk, behind)
	r.start()
	require.NoError(t, r.Serve())
	return r
}

// start recovers and starts.
func (r *rig) start() {
	r.t.Helper()
	snap, err := r.store.Snapshot()
	require.NoError(r.t, err)
	require.NoError(r.t, r.shard.Recover(snap))
	require.NoError(r.t, r.Add(r.shard))
	r.Start()
}

// openRig returns a shard that is not recovered yet.
func openRig(t testing.TB, disk string) *rig {
	t.Helper()
	return openRigAt(t, disk, 0)
}

func openRigAt(t testing.TB, disk string, behind time.Duration) *rig {
	t.Helper()
	clock := NewClock()
	now := func() int64 { return clock() - int64(behind) }
	model, err := storetest.OpenModel(disk, now)
	require.NoError(t, err)
	subjects, err := wire.NewSubjects("fila")
	require.NoError(t, err)
	signer, err := wire.NewSigner(make([]byte, 32))
	require.NoError(t, err)
	r := &rig{
		t: t, disk: disk, store: &heldStore{Store: model, failed: make(chan struct{})}, conn: &fakeConn{max: 1 << 20},
		front: &fakeFront{}, control: &fakeControl{gates: throttle.New(throttle.Start{}, now())}, circuit: &fakeCircuit{}, log: &syncBuffer{},
	}
	o := Options{
		Log: slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Now: now, Conn: r.conn, Front: r.front, Control: r.control, Circuits: r.circuit, Metrics: telemetry.New(),
		Subjects: subjects, Signer: signer, MaxUncommittedBytes: 256 << 20,
		Hooks: policy.Defaults{
			Limits:  hooks.Limits{Timeout: time.Second, MemoryBytes: 1 << 20},
			Breaker: breaker.Config{Threshold: 3, Cooldown: 10 * time.Second},
		},
		Pacing: queue.DefaultPacing,
		Killed: make(chan struct{}),
		Event: func(typ, tail string, e wire.Event) {
			schematest.Event(r.t, typ, e)
			r.events.Lock()
			defer r.events.Unlock()
			e.Type = typ
			r.events.all = append(r.events.all, e)
		},
	}
	r.Set = NewSet(o)
	r.shard = r.New(0, r.store)
	t.Cleanup(func() { // of a test that fails
		r.store.release()
		r.End()
		_ = r.store.Close()
	})
	return r
}

// end stops the shard in order.
func (r *rig) end() {
	r.t.Helper()
	r.store.release()
	r.Drain()
	r.End()
	require.NoError(r.t, r.store.Close())
}

// restart stops the shard and starts the next one.
func (r *rig) restart() *rig {
	r.t.Helper()
	r.end()
	return newRig(r.t, r.disk)
}

// create creates the queue orders, which retries at once unless change says otherwise.
func (r *rig) create(change func(*wire.QueueSettings)) *Queue {
	r.t.Helper()
	return r.another("orders", change)
}

// enqueue sends a message whose confirmation goes to reply.
func (r *rig) enqueue(body, reply string, headers nats.Header) *wire.Error {
	if headers == nil {
		headers = nats.Header{}
	}
	return r.Queue("orders").Accept(&nats.Msg{Subject: "fila.enqueue.orders", Reply: reply, Data: []byte(body), Header: headers})
}

// consume registers a consumer whose deliveries go to its name.
func (r *rig) consume(q *Queue, name string, credit int) {
	r.t.Helper()
	require.True(r.t, q.Tell(queue.Register{Consumer: name, Subject: name, MaxInFlight: credit}))
	synctest.Wait()
}

// one waits until everything is idle and returns the only message that was published to a
// subject since the last call.
func (r *rig) one(subject string) *nats.Msg {
	r.t.Helper()
	synctest.Wait()
	all := r.conn.take(subject)
	require.Len(r.t, all, 1, subject)
	return all[0]
}

// none checks that nothing was published to a subject.
func (r *rig) none(subject string) {
	r.t.Helper()
	synctest.Wait()
	require.Empty(r.t, r.conn.take(subject), subject)
}

// id returns the id in the confirmation of an enqueue.
func (r *rig) id(subject string) string {
	r.t.Helper()
	m := r.one(subject)
	require.Nil(r.t, wire.ParseError(m.Header, m.Data))
	var reply wire.EnqueueReply
	require.NoError(r.t, json.Unmarshal(m.Data, &reply))
	return reply.ID
}

// refused returns the error in an answer.
func (r *rig) refused(subject string) *wire.Error {
	r.t.Helper()
	m := r.one(subject)
	werr := wire.ParseError(m.Header, m.Data)
	require.NotNil(r.t, werr, "%s", m.Data)
	return werr
}

// ack answers a delivery.
func (r *rig) ack(m *nats.Msg, ack wire.Ack, reply string) {
	r.t.Helper()
	text, name, ok := r.Subjects.ParseToken(m.Reply)
	require.True(r.t, ok, m.Reply)
	token, err := r.Signer.Parse(text, name)
	require.NoError(r.t, err)
	require.Nil(r.t, r.Queue(name).Ack(token, ack, reply, nil))
	synctest.Wait()
}

// news returns the events of a type since the last call.
func (r *rig) news(typ string) []wire.Event {
	synctest.Wait()
	r.events.Lock()
	defer r.events.Unlock()
	var found []wire.Event
	r.events.all = slices.DeleteFunc(r.events.all, func(e wire.Event) bool {
		if e.Type != typ {
			return false
		}
		found = append(found, e)
		return true
	})
	return found
}

// Acks of consumers.
var (
	done = wire.Ack{Kind: wire.AckDone}
	nack = wire.Ack{Kind: wire.AckNack, Error: "boom", ErrorCode: "E1"}
	term = wire.Ack{Kind: wire.AckTerm, Error: "bad"}
)

// limits are the limits of a throttle key with a concurrency.
func limits(concurrency int64) throttle.Limits { return throttle.Limits{Concurrency: concurrency} }

// heldStore is a store that can hold commits back or fail.
type heldStore struct {
	store.Store
	failed chan struct{}

	meanwhile func() // what happens when a history has just been read; nil: nothing

	mu struct {
		sync.Mutex
		held      bool
		waiting   []*store.Batch
		submitted int
		refuse    func(*store.Batch) error // says which batches are refused; nil: none
		err       error
		bad       badPlaces
	}
}

// badPlaces say what is corrupt in a store.
type badPlaces struct {
	seq        uint64 // of a message that cannot be read
	garbled    uint64 // of a message whose headers cannot be decoded
	read, dead error  // of Read and Dead
}

// spoil makes parts of the store corrupt.
func (s *heldStore) spoil(bad badPlaces) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.bad = bad
}

func (s *heldStore) spoiled() badPlaces {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.bad
}

func (s *heldStore) Read(refs []store.Ref, fn func(i int, headers, payload []byte)) error {
	bad := s.spoiled()
	err := s.Store.Read(refs, func(i int, headers, payload []byte) {
		if refs[i].Seq == bad.garbled {
			headers = []byte{0xff}
		}
		if refs[i].Seq != bad.seq {
			fn(i, headers, payload)
		}
	})
	if bad.read != nil {
		return bad.read
	}
	return err
}

func (s *heldStore) Dead(refs []store.Ref, fn func(i int, d *store.Dead)) error {
	if bad := s.spoiled(); bad.dead != nil {
		return bad.dead
	}
	return s.Store.Dead(refs, fn)
}

func (s *heldStore) History(refs []store.Ref, fn func(i int, records [][]byte)) error {
	err := s.Store.History(refs, fn)
	if s.meanwhile != nil {
		s.meanwhile()
	}
	return err
}

// hold keeps batches back until release.
func (s *heldStore) hold() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.held = true
}

// release submits the batches that were held back.
func (s *heldStore) release() {
	s.mu.Lock()
	waiting := s.mu.waiting
	s.mu.held, s.mu.waiting = false, nil
	s.mu.Unlock()
	for _, b := range waiting {
		s.Submit(b)
	}
}

// refuse refuses some batches.
func (s *heldStore) refuse(which func(*store.Batch) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.refuse = which
}

// fail makes the store one whose commit has failed.
func (s *heldStore) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.err = errors.Join(store.ErrFailed, err)
	close(s.failed)
}

func (s *heldStore) Submit(b *store.Batch) {
	s.mu.Lock()
	if s.mu.held {
		s.mu.waiting = append(s.mu.waiting, b)
		s.mu.Unlock()
		return
	}
	s.mu.submitted++
	err, refuse := s.mu.err, s.mu.refuse
	s.mu.Unlock()
	if err == nil && refuse != nil {
		err = refuse(b)
	}
	if err == nil {
		s.Store.Submit(b)
		return
	}
	// In the order of submission: behind what the store has.
	s.Store.Submit(&store.Batch{Done: func(error) { b.Done(err) }})
}

func (s *heldStore) submitted() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.submitted
}

// waiting returns how many batches are held back.
func (s *heldStore) waiting() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.mu.waiting)
}

func (s *heldStore) Failed() <-chan struct{} { return s.failed }

func (s *heldStore) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.err
}

// fakeConn collects published messages.
type fakeConn struct {
	max int64

	mu struct {
		sync.Mutex
		msgs   []*nats.Msg
		refuse func(m *nats.Msg) error
	}
}

func (c *fakeConn) MaxPayload() int64 { return c.max }

func (c *fakeConn) Publish(subject string, data []byte) error {
	return c.PublishMsg(&nats.Msg{Subject: subject, Data: data})
}

func (c *fakeConn) PublishMsg(m *nats.Msg) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.refuse != nil {
		if err := c.mu.refuse(m); err != nil {
			return err
		}
	}
	// The dispatcher uses headers and buffers again.
	header := make(nats.Header, len(m.Header))
	for name, values := range m.Header {
		header[name] = slices.Clone(values)
	}
	c.mu.msgs = append(c.mu.msgs, &nats.Msg{Subject: m.Subject, Reply: m.Reply, Header: header, Data: slices.Clone(m.Data)})
	return nil
}

// refuse fails the publishing of some messages.
func (c *fakeConn) refuse(which func(m *nats.Msg) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.refuse = which
}

// take returns the messages to a subject since the last call.
func (c *fakeConn) take(subject string) []*nats.Msg {
	c.mu.Lock()
	defer c.mu.Unlock()
	var found []*nats.Msg
	c.mu.msgs = slices.DeleteFunc(c.mu.msgs, func(m *nats.Msg) bool {
		if m.Subject != subject {
			return false
		}
		found = append(found, m)
		return true
	})
	return found
}

// fakeFront knows which queues are attached.
type fakeFront struct {
	attached []string
	flushed  int
	err      error
	arriving chan struct{} // what Detach returns, unless it is nil
}

func (f *fakeFront) Attach(q *Queue) error {
	f.attached = append(f.attached, q.Name())
	return f.err
}

func (f *fakeFront) Flush() error {
	f.flushed = len(f.attached)
	return nil
}

func (f *fakeFront) Detach(queues ...*Queue) <-chan struct{} {
	for _, q := range queues {
		f.attached = slices.DeleteFunc(f.attached, func(name string) bool { return name == q.Name() })
	}
	if f.arriving != nil {
		return f.arriving
	}
	done := make(chan struct{})
	close(done)
	return done
}

// fakeControl is a Control without file and store.
type fakeControl struct {
	gates   *throttle.Gates
	rules   atomic.Pointer[rules.Rules]
	values  map[string]string
	weights map[string]uint32 // of orders
	paused  map[string]int64  // fairness keys of orders
	until   int64             // of the pause of orders

	mu struct {
		sync.Mutex
		held      []string
		forgotten []string
		owners    map[string]string // of schedules
	}
}

func (c *fakeControl) Gates() *throttle.Gates { return c.gates }
func (c *fakeControl) Rules() *rules.Rules    { return c.rules.Load() }

func (c *fakeControl) Routes() map[string][]store.Route { return nil }

func (c *fakeControl) Get(key string) (string, bool) {
	v, ok := c.values[key]
	return v, ok
}

func (c *fakeControl) Weights(queue string) map[string]uint32 {
	if queue == "orders" {
		return c.weights
	}
	return nil
}

func (c *fakeControl) Pauses(queue string) (int64, map[string]int64) {
	if queue == "orders" {
		return c.until, c.paused
	}
	return 0, nil
}

func (c *fakeControl) HoldKey(queue, key string, until int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.held = append(c.mu.held, queue+"/"+key+"/"+wire.Timestamp(until))
}

func (c *fakeControl) ScheduleByEnqueue(_, schedule, changes string) *wire.Error {
	c.mu.Lock()
	defer c.mu.Unlock()
	owner := c.mu.owners[schedule]
	if owner == "" || changes == "" {
		delete(c.mu.owners, schedule)
		return nil
	}
	return wire.Owned(schedule, owner, changes)
}

func (c *fakeControl) ForgetPauses(_ string, queues ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.forgotten = append(c.mu.forgotten, queues...)
}

// setRules sets the error rules.
func (r *rig) setRules(policies []rules.RetryPolicy, errs []rules.ErrorRule) {
	r.t.Helper()
	compiled, err := rules.Compile(policies, errs)
	require.NoError(r.t, err)
	r.control.rules.Store(compiled)
}

// fakeCircuit is always closed and records the outcomes of deliveries.
type fakeCircuit struct {
	mu struct {
		sync.Mutex
		outcomes  []breaker.Outcome
		announced int
	}
}

func (c *fakeCircuit) Full(string, int64) bool { return true }

func (c *fakeCircuit) Count() int64 { return 0 }

func (c *fakeCircuit) Use(string, int64) gates.Circuit { return c }

func (c *fakeCircuit) Drop(_ gates.Circuit, _ int64, pending []gates.Circuit) []gates.Circuit {
	return pending
}

func (c *fakeCircuit) CountBlocked()                    {}
func (c *fakeCircuit) Key() string                      { return "stripe" }
func (c *fakeCircuit) Admits(int64) (n, at int64)       { return queue.Forever, 0 }
func (c *fakeCircuit) AdmitsBy(int64, int64) int64      { return queue.Forever }
func (c *fakeCircuit) Peek(int64) (n, at int64)         { return queue.Forever, 0 }
func (c *fakeCircuit) Allow(int64) (breaker.Pass, bool) { return 1, false }
func (c *fakeCircuit) RetryAfter(int64, int64) bool     { return true }
func (c *fakeCircuit) Wait(gates.Owner, int64) bool     { return false }
func (c *fakeCircuit) Leave(gates.Owner)                {}

func (c *fakeCircuit) AwaitVerdict(breaker.Pass, int64) {}

func (c *fakeCircuit) Decided(pass breaker.Pass, now int64, o breaker.Outcome) bool {
	return c.Done(pass, now, o)
}

func (c *fakeCircuit) Failed(pass breaker.Pass, now int64, _ gates.FailedCall, _ bool) bool {
	return c.Done(pass, now, breaker.Failure)
}

func (c *fakeCircuit) Done(_ breaker.Pass, _ int64, o breaker.Outcome) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.outcomes = append(c.mu.outcomes, o)
	return true
}

func (c *fakeCircuit) Announce() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.announced++
}

// ended returns the outcomes since the last call.
func (c *fakeCircuit) ended() []breaker.Outcome {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := c.mu.outcomes
	c.mu.outcomes = nil
	return all
}

// syncBuffer is a log in memory.
type syncBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// subscription returns a subscription of a NATS server in this process, with nothing pending.
func subscription(t testing.TB) *nats.Subscription {
	t.Helper()
	srv, err := server.NewServer(&server.Options{DontListen: true, NoSigs: true, NoLog: true})
	require.NoError(t, err)
	srv.Start()
	t.Cleanup(func() { srv.Shutdown(); srv.WaitForShutdown() })
	nc, err := nats.Connect("", nats.InProcessServer(srv))
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	sub, err := nc.SubscribeSync("fila.test")
	require.NoError(t, err)
	return sub
}

// scrape returns the metrics.
func scrape(t testing.TB, r *rig) string {
	t.Helper()
	w := httptest.NewRecorder()
	r.Metrics.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	return w.Body.String()
}
