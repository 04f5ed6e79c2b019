package sidecar

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/store"
	"github.com/filaq/fila/store/storetest"
	"github.com/filaq/fila/throttle"
	"github.com/filaq/fila/wire"
)

// gateRig is what a server has of throttles, pauses and the audit log, on a store
// in memory, with one queue whose loop makes a turn when it is asked, and a clock
// that the test sets.
type gateRig struct {
	t    testing.TB
	now  atomic.Int64
	disk string
	log  *slog.Logger
	st   store.Store
	s    *Server
	q    *queue
	l    *loop
	nc   *nats.Conn
}

func newGateRig(t testing.TB) *gateRig {
	t.Helper()
	r := &gateRig{t: t, disk: newID2(), log: slog.New(slog.DiscardHandler)}
	r.now.Store(rigStart)
	r.open()
	t.Cleanup(func() { _ = r.st.Close() })
	return r
}

// open starts a process.
func (r *gateRig) open() {
	r.t.Helper()
	model, err := storetest.OpenModel(r.disk, r.now.Load)
	require.NoError(r.t, err)
	r.st = model
	subjects, err := wire.NewSubjects("fila")
	require.NoError(r.t, err)
	snap, err := r.st.Snapshot()
	require.NoError(r.t, err)
	c := &core{
		cfg: Default(), log: r.log, clock: clock{test: r.now.Load}, store: r.st, nc: r.nc, subjects: subjects,
		metrics: newMetrics(), config: newRuntimeConfig(snap.Config), refusals: &refusals{},
	}
	r.s = &Server{cfg: c.cfg, core: c}
	c.circuits = newCircuits(c)
	require.NoError(r.t, r.s.startThrottles(snap))
	require.NoError(r.t, r.s.saveStart())
	r.q, r.l = nil, nil
	for _, rec := range snap.Queues {
		r.queue(rec)
	}
}

// queue makes the queue of a record.
func (r *gateRig) queue(rec store.QueueRecord) {
	r.q = newQueue(r.s.core, rec, &policy{settings: wire.DefaultQueueSettings(rec.Name)})
	r.l = newLoop(r.q)
	r.s.queues.update(func(m map[string]*queue) { m[rec.Name] = r.q })
}

// create makes a queue, so that the store is not new any more.
func (r *gateRig) create(name string) {
	r.t.Helper()
	rec, err := record(1, wire.DefaultQueueSettings(name))
	require.NoError(r.t, err)
	require.NoError(r.t, r.s.core.commit(&store.Batch{PutQueues: []store.QueueRecord{rec}}))
	r.queue(rec)
}

// told makes the queue's loop hear what it has been told.
func (r *gateRig) told() {
	for _, e := range r.q.mail.take(nil) {
		e.call(r.l)
	}
}

// restart ends the process, in order or by a crash, and starts the next one down
// later.
func (r *gateRig) restart(crash bool, down time.Duration) {
	r.t.Helper()
	if !crash {
		r.s.stopThrottles()
	}
	require.NoError(r.t, r.st.Close())
	r.now.Add(int64(down))
	r.open()
}

// pass lets time go by.
func (r *gateRig) pass(d time.Duration) {
	r.now.Add(int64(d))
	r.s.throttles.schedule.run()
}

// events connects the rig to NATS and returns what it publishes.
func (r *gateRig) events() <-chan wire.Event {
	r.t.Helper()
	cfg := anyPort()
	srv, err := startEmbedded(cfg, r.log)
	require.NoError(r.t, err)
	r.nc, err = nats.Connect("", nats.InProcessServer(srv))
	require.NoError(r.t, err)
	r.s.core.nc = r.nc
	r.t.Cleanup(func() { r.nc.Close(); stopTestServer(srv) })
	ch := make(chan wire.Event, 1000)
	_, err = r.nc.Subscribe("fila.event.>", func(m *nats.Msg) {
		var e wire.Event
		if json.Unmarshal(m.Data, &e) == nil && m.Subject == "fila.event."+e.Type+"."+wire.EventTail(tailOf(e)) {
			ch <- e
		}
	})
	require.NoError(r.t, err)
	return ch
}

func tailOf(e wire.Event) string {
	if e.Key != "" {
		return e.Key
	}
	return e.Queue
}

// do sends a request to a verb and decodes the answer.
func do[T any](r *gateRig, verb adminVerb, tail, body string) (T, *wire.Error) {
	r.t.Helper()
	var into T
	reply, werr := verb(tail, []byte(body))
	if werr != nil {
		require.Nil(r.t, reply, "an error and a reply")
		return into, werr
	}
	data, err := json.Marshal(reply)
	require.NoError(r.t, err)
	require.NoError(r.t, json.Unmarshal(data, &into))
	return into, nil
}

// must is do for what is not refused.
func must[T any](r *gateRig, verb adminVerb, tail, body string) T {
	r.t.Helper()
	into, err := do[T](r, verb, tail, body)
	require.Nil(r.t, err, body)
	return into
}

func (r *gateRig) set(key, body string) wire.ThrottleInfo {
	r.t.Helper()
	return must[wire.ThrottleInfo](r, r.s.throttleSet, key, body)
}

func (r *gateRig) show(key string) wire.ThrottleInfo {
	r.t.Helper()
	return must[wire.ThrottleInfo](r, r.s.throttleShow, key, "")
}

// limits are those that count for a key.
func (r *gateRig) limits(key string) throttle.Limits { return r.s.core.gates.Limits(key) }

// admits is how many messages of cost 1 a key lets through now. They stay in
// flight.
func (r *gateRig) admits(key string) int {
	r.t.Helper()
	set, err := r.s.core.gates.Set([]string{key}, r.now.Load())
	require.NoError(r.t, err)
	for n := 0; ; n++ {
		if _, _, ok := set.Acquire(r.now.Load(), throttle.One, nil); !ok || n > 10_000 {
			return n
		}
	}
}

// trail is the audit log, oldest first: "by key: old -> new".
func (r *gateRig) trail() []string {
	r.t.Helper()
	entries, total := r.s.throttles.audit.list("", 0, maxAudit)
	require.Len(r.t, entries, total)
	lines := make([]string, total)
	for i, e := range entries {
		require.NotEmpty(r.t, e.Time)
		lines[total-1-i] = fmt.Sprintf("%s %s: %s -> %s", e.By, e.Key, orNone(e.Old), orNone(e.New))
	}
	return lines
}

// stored is the entries of the store whose key starts with prefix.
func (r *gateRig) stored(prefix string) map[string]string {
	r.t.Helper()
	require.NoError(r.t, r.s.core.commit(&store.Batch{}), "what was submitted before")
	snap, err := r.st.Snapshot()
	require.NoError(r.t, err)
	found := make(map[string]string)
	for _, e := range snap.Config {
		if len(e.Key) >= len(prefix) && e.Key[:len(prefix)] == prefix {
			found[e.Key] = e.Value
		}
	}
	return found
}

// in is the time d from now, as fila writes it.
func (r *gateRig) in(d time.Duration) string { return timestamp(r.now.Load() + int64(d)) }

func ratePerSecond(n int64) throttle.Rate { return throttle.PerSecond(n * throttle.One) }
