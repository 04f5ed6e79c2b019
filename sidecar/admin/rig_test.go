package admin

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/breaker"
	"github.com/filaq/fila/hooks"
	"github.com/filaq/fila/schemas/schematest"
	"github.com/filaq/fila/sidecar/circuit"
	"github.com/filaq/fila/sidecar/config"
	"github.com/filaq/fila/sidecar/control"
	"github.com/filaq/fila/sidecar/policy"
	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/sidecar/shard"
	"github.com/filaq/fila/sidecar/telemetry"
	"github.com/filaq/fila/store/storetest"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// rig is an Admin with everything that it needs, except NATS: it records what is published.
// It lives in a synctest bubble.
type rig struct {
	*Admin
	t     *testing.T
	verbs map[api.AnyVerb]Verb
	most  atomic.Int64 // bytes of a message; 0 is 1 MiB

	mu        sync.Mutex // guards what follows
	published []*nats.Msg
	replies   map[string][]byte
	events    []wire.Event
}

// Publish implements shard.Conn.
func (h *rig) Publish(subject string, data []byte) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.replies[subject] = data
	return nil
}

// PublishMsg implements shard.Conn.
func (h *rig) PublishMsg(m *nats.Msg) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.published = append(h.published, m)
	return nil
}

// MaxPayload implements shard.Conn.
func (h *rig) MaxPayload() int64 { return cmp.Or(h.most.Load(), 1<<20) }

// event records an event.
func (h *rig) event(typ, _ string, e wire.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	schematest.Event(h.t, typ, e)
	e.Type = typ
	h.events = append(h.events, e)
}

// replied removes and returns the reply to a subject.
func (h *rig) replied(subject string) []byte {
	h.t.Helper()
	time.Sleep(time.Second) // a commit may wait for more changes
	h.mu.Lock()
	defer h.mu.Unlock()
	data, ok := h.replies[subject]
	require.True(h.t, ok, "no reply")
	delete(h.replies, subject)
	return data
}

// openFront attaches every queue at once.
type openFront struct{}

func (openFront) Attach(*shard.Queue) error { return nil }
func (openFront) Flush() error              { return nil }
func (openFront) Detach(...*shard.Queue) <-chan struct{} {
	done := make(chan struct{})
	close(done)
	return done
}

// withAdmin runs fn with an Admin whose queues work.
func withAdmin(t *testing.T, change func(*config.Config), fn func(t *testing.T, h *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		h := &rig{t: t, verbs: make(map[api.AnyVerb]Verb), replies: make(map[string][]byte)}
		cfg := config.Default()
		if change != nil {
			change(&cfg)
		}
		log, clock, event := slog.New(slog.DiscardHandler), shard.NewClock(), h.event
		st, err := storetest.OpenModel(t.TempDir(), clock)
		require.NoError(t, err)
		snap, err := st.Snapshot()
		require.NoError(t, err)
		signer, err := wire.NewSigner(snap.Secret)
		require.NoError(t, err)
		subjects, err := wire.NewSubjects("fila")
		require.NoError(t, err)
		circuits := circuit.New(circuit.Options{Log: log, Now: clock, Event: event, Submit: st.Submit})
		var queues struct{ *shard.Set }
		ctl := control.New(control.Options{
			Log: log, Now: clock, KV: control.StoreKV(st.Submit), Event: event, Queues: &queues, Circuits: circuits, MaxPayload: h.MaxPayload,
		}, snap)
		queues.Set = shard.NewSet(shard.Options{
			Log: log, Now: clock, Conn: h, Front: openFront{}, Control: ctl, Circuits: circuits, Metrics: telemetry.New(),
			Subjects: subjects, Signer: signer, Event: event, MaxUncommittedBytes: math.MaxInt64, Pacing: queue.DefaultPacing,
			Hooks: policy.Defaults{
				Limits: hooks.Limits{Timeout: time.Second, MemoryBytes: 1 << 20}, Breaker: breaker.Config{Threshold: 3, Cooldown: time.Hour},
			},
		})
		only := queues.New(0, st)
		require.NoError(t, only.Recover(snap))
		require.NoError(t, queues.Add(only))
		require.NoError(t, ctl.Save())
		require.NoError(t, ctl.Start(cfg))
		queues.Start()
		require.NoError(t, queues.Serve())
		require.NoError(t, ctl.DeclareQueues(context.Background()))
		h.Admin = New(Options{Log: log, Shards: queues.Set, Control: ctl, Circuits: circuits, Store: st, DataDir: t.TempDir()})
		for _, v := range h.Admin.Verbs() {
			h.verbs[v.AnyVerb] = v
		}
		defer func() {
			queues.Drain()
			queues.End()
			ctl.Stop()
			circuits.Stop()
			require.NoError(t, st.Close())
		}()
		fn(t, h)
	})
}

// newLog returns a log and its text.
func newLog() (*slog.Logger, *bytes.Buffer) {
	var text bytes.Buffer
	return slog.New(slog.NewTextHandler(&text, nil)), &text
}

// ask carries out a verb.
func (h *rig) ask(verb api.AnyVerb, tail, body string, into any) *wire.Error {
	h.t.Helper()
	return h.askAs(api.Sender{Client: "tester"}, verb, tail, body, into)
}

func (h *rig) askAs(by api.Sender, verb api.AnyVerb, tail, body string, into any) *wire.Error {
	h.t.Helper()
	v, ok := h.verbs[verb]
	require.True(h.t, ok, verb)
	data, werr := v.Do(by, tail, []byte(body))
	if werr == nil {
		schematest.Check(h.t, v.String()+".reply", data)
		if body != "" && !strings.Contains(body, "null") { // a null is no value
			schematest.Check(h.t, v.String()+".request", []byte(body))
		}
	}
	synctest.Wait()
	if werr == nil && into != nil {
		require.NoError(h.t, json.Unmarshal(data, into))
	}
	return werr
}

func (h *rig) must(verb api.AnyVerb, tail, body string, into any) {
	h.t.Helper()
	require.Nil(h.t, h.ask(verb, tail, body, into), "%s %s", verb, tail)
}

// enqueue accepts a message and returns its id.
func (h *rig) enqueue(name, payload string, headers nats.Header) string {
	h.t.Helper()
	m := &nats.Msg{Subject: "fila.enqueue." + name, Reply: "confirm", Header: headers, Data: []byte(payload), Sub: &nats.Subscription{}}
	require.Nil(h.t, h.shards.Queue(name).Accept(m))
	var reply wire.EnqueueReply
	require.NoError(h.t, json.Unmarshal(h.replied("confirm"), &reply))
	return reply.ID
}

// consume registers a consumer; without credit it ends the registration.
func (h *rig) consume(name string, credit int) {
	h.t.Helper()
	var c queue.Change = queue.Leave{Consumer: "w"}
	if credit > 0 {
		c = queue.Register{Consumer: "w", Subject: "deliver", MaxInFlight: credit}
	}
	require.True(h.t, h.shards.Queue(name).Tell(c))
	time.Sleep(time.Second)
}

// one returns the only message that was delivered since the last call.
func (h *rig) one() *nats.Msg {
	h.t.Helper()
	synctest.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	require.Len(h.t, h.published, 1)
	m := h.published[0]
	h.published = nil
	return m
}

// ack answers a delivery.
func (h *rig) ack(m *nats.Msg, payload string) {
	h.t.Helper()
	text, name, ok := h.shards.Subjects.ParseToken(m.Reply)
	require.True(h.t, ok)
	token, err := h.shards.Signer.Parse(text, name)
	require.NoError(h.t, err)
	ack, werr := wire.ParseAck([]byte(payload), nil)
	require.Nil(h.t, werr)
	require.Nil(h.t, h.shards.Queue(name).Ack(token, ack, "acked", &nats.Subscription{}))
	h.replied("acked")
}
