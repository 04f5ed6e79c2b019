package natsio

import (
	"context"
	"encoding/json"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/schemas/schematest"
	"github.com/filaq/fila/sidecar/circuit"
	"github.com/filaq/fila/sidecar/config"
	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/sidecar/rules"
	"github.com/filaq/fila/sidecar/shard"
	"github.com/filaq/fila/sidecar/telemetry"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/store/storetest"
	"github.com/filaq/fila/throttle"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// rig is a Front with a shard, whose store is in memory, and an embedded server that does not
// listen. It runs inside a synctest bubble.
type rig struct {
	running atomic.Int64  // requests of hang
	hanging chan struct{} // ends them
	t       *testing.T
	srv     *Embedded
	front   *Front
	shards  *shard.Set
	client  *nats.Conn
	log     *logText
	store   store.Store

	mu    sync.Mutex
	tails []string // arguments of the verb echo
}

// bubble runs fn on a rig that serves everything. nats.go keeps the timers of Subscription.Drain
// in a pool of the process, and a timer of one bubble breaks the next: two garbage collections
// empty the pool.
func bubble(t *testing.T, fn func(t *testing.T, r *rig)) {
	t.Helper()
	runtime.GC()
	runtime.GC()
	defer runtime.GC()
	defer runtime.GC()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		t.Cleanup(r.end)
		fn(t, r)
	})
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, hanging: make(chan struct{})}
	var log *slog.Logger
	log, r.log = newTestLog()
	cfg := config.Default().NATS
	cfg.Embedded.Port = 0
	var err error
	r.srv, err = StartEmbedded(cfg.Embedded, quietly())
	require.NoError(t, err)
	require.Nil(t, r.srv.Addr(), "it does not listen")
	conn, err := Connect(cfg, r.srv, log, nil, nil)
	require.NoError(t, err)
	now := shard.NewClock()
	st, err := storetest.OpenModel(t.TempDir(), now) // the path is a unique name
	require.NoError(t, err)
	subjects, err := wire.NewSubjects("fila")
	require.NoError(t, err)
	signer, err := wire.NewSigner(make([]byte, 32))
	require.NoError(t, err)
	metrics := telemetry.New()
	events := Events(conn, subjects, now, log)
	r.front = New(Options{Log: log, Conn: conn, Subjects: subjects, Signer: signer, ReplyPrefixes: cfg.ReplyPrefixes, Headers: HeaderLimitsOf(&cfg)})
	r.shards = shard.NewSet(shard.Options{
		Log: log, Now: now, Conn: conn, Front: r.front, Metrics: metrics, Subjects: subjects, Signer: signer,
		Control:  plainControl{throttle.New(throttle.Start{}, now())},
		Circuits: circuit.New(circuit.Options{Log: log, Now: now, Event: events, Submit: st.Submit}),
		Event:    events, MaxUncommittedBytes: 256 << 20, Pacing: queue.DefaultPacing,
	})
	snap, err := st.Snapshot()
	require.NoError(t, err)
	r.store = st
	sh := r.shards.New(0, st)
	require.NoError(t, sh.Recover(snap))
	require.NoError(t, r.shards.Add(sh))
	r.shards.Start()
	require.NoError(t, r.front.ServeAcks(r.shards))
	require.NoError(t, r.shards.Serve())
	require.NoError(t, r.front.ServeRequests(r.shards, "v1.2.3", []Verb{
		{AnyVerb: api.VerbQueueList, Do: func(api.Sender, string, []byte) ([]byte, *wire.Error) { return []byte(`{"total":7}`), nil }},
		{AnyVerb: api.VerbQueueInspect, Do: r.echo},
		{AnyVerb: api.VerbRedrive, Waits: true, Do: r.hang},
	}))
	r.client, err = nats.Connect("", nats.InProcessServer(r.srv))
	require.NoError(t, err)
	return r
}

// hang is an admin verb that waits until the test closes hanging.
func (r *rig) hang(api.Sender, string, []byte) ([]byte, *wire.Error) {
	r.running.Add(1)
	defer r.running.Add(-1)
	<-r.hanging
	return []byte(`{}`), nil
}

// echo is an admin verb.
func (r *rig) echo(_ api.Sender, tail string, body []byte) ([]byte, *wire.Error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tails = append(r.tails, tail)
	if len(body) == 0 {
		return nil, wire.QueueNotFound(tail)
	}
	if tail == "huge" {
		return make([]byte, r.front.Conn.MaxPayload()+1), nil
	}
	return body, nil
}

// end stops everything in order.
func (r *rig) end() {
	r.t.Helper()
	r.shards.Drain()
	<-r.front.Detach(r.shards.Queues()...)
	r.front.StopAcks()
	r.shards.End()
	r.front.StopRequests()
	require.NoError(r.t, r.store.Close())
	Disconnect(r.front.Conn, quietly())
	r.client.Close()
	stopTestServer(r.srv)
	time.Sleep(time.Second) // the library still checks whether detached subscriptions are drained
}

// create creates a queue.
func (r *rig) create(name string) *shard.Queue {
	r.t.Helper()
	_, werr := r.shards.Create(wire.DefaultQueueSettings(name))
	require.Nil(r.t, werr)
	return r.shards.Queue(name)
}

// request sends a request and decodes the answer, which may be an error.
func (r *rig) request(subject, body string, into any) *wire.Error {
	r.t.Helper()
	return r.ask(&nats.Msg{Subject: subject, Data: []byte(body)}, into)
}

func (r *rig) ask(m *nats.Msg, into any) *wire.Error {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
	defer cancel()
	reply, err := r.client.RequestMsgWithContext(ctx, m)
	require.NoError(r.t, err, m.Subject)
	ofTest := strings.Contains(m.Subject, ".admin.") || strings.Contains(m.Subject, ".guard.") // verbs that tests make up
	if !ofTest || reply.Header.Get(micro.ErrorHeader) != "" {
		schematest.Reply(r.t, m.Subject, reply.Header, reply.Data)
	}
	if werr := wire.ParseError(reply.Header, reply.Data); werr != nil {
		// It has the headers of a micro service error.
		require.Equal(r.t, werr.Description, reply.Header.Get(micro.ErrorHeader))
		require.NotEmpty(r.t, reply.Header.Get(micro.ErrorCodeHeader))
		require.Equal(r.t, string(werr.Body()), string(reply.Data))
		return werr
	}
	if into != nil {
		require.NoError(r.t, json.Unmarshal(reply.Data, into), m.Subject)
	}
	return nil
}

func (r *rig) must(subject, body string, into any) {
	r.t.Helper()
	require.Nil(r.t, r.request(subject, body, into), subject)
}

// refused checks that a request gets an error with a code.
func (r *rig) refused(code int, subject, body string) *wire.Error {
	r.t.Helper()
	werr := r.request(subject, body, nil)
	require.NotNil(r.t, werr, subject)
	require.Equal(r.t, code, werr.Code, "%s: %v", subject, werr)
	return werr
}

// listen subscribes to a subject.
func (r *rig) listen(subject string) <-chan *nats.Msg {
	r.t.Helper()
	ch := make(chan *nats.Msg, 10_000)
	_, err := r.client.Subscribe(subject, func(m *nats.Msg) { ch <- m })
	require.NoError(r.t, err)
	r.flush()
	return ch
}

// flush waits until the server has processed what the client has sent.
func (r *rig) flush() {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
	defer cancel()
	require.NoError(r.t, r.client.FlushWithContext(ctx))
}

// next waits for the next message.
func (r *rig) next(ch <-chan *nats.Msg) *nats.Msg {
	r.t.Helper()
	select {
	case m := <-ch:
		return m
	case <-time.After(time.Hour):
		require.FailNow(r.t, "nothing came within an hour")
		return nil
	}
}

// none checks that nothing has arrived.
func (r *rig) none(ch <-chan *nats.Msg) {
	r.t.Helper()
	synctest.Wait()
	require.Empty(r.t, ch)
}

// plainControl is a Control without rules, values or pauses.
type plainControl struct{ gates *throttle.Gates }

func (c plainControl) Gates() *throttle.Gates                { return c.gates }
func (plainControl) Get(string) (string, bool)               { return "", false }
func (plainControl) Rules() *rules.Rules                     { return nil }
func (plainControl) Routes() map[string][]store.Route        { return nil }
func (plainControl) Weights(string) map[string]uint32        { return nil }
func (plainControl) Pauses(string) (int64, map[string]int64) { return 0, nil }
func (plainControl) HoldKey(string, string, int64)           {}
func (plainControl) ForgetPauses(string, ...string)          {}
func (plainControl) ScheduleByEnqueue(_, _, _ string) *wire.Error {
	return nil
}
