package control

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/schemas/schematest"
	"github.com/filaq/fila/sidecar/circuit"
	"github.com/filaq/fila/sidecar/config"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/store/storetest"
	"github.com/filaq/fila/throttle"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// rig is a Control on a store in memory, with queues that record their calls, in a bubble of
// time that begins with the year 2000.
type rig struct {
	t        *testing.T
	disk     string
	log      logText
	cfg      config.Config // that the next start is given
	st       store.Store
	kv       *keeper
	queues   *noted
	circuits *circuit.Registry
	events   *published
	share    func(*throttle.Gates)
	c        *Control
}

func newRig(t *testing.T, disk string) *rig {
	return &rig{t: t, disk: disk, cfg: config.Default(), events: &published{t: t}, queues: &noted{settings: map[string]wire.QueueSettings{}}}
}

// bubble runs fn on a new rig.
func bubble(t *testing.T, fn func(t *testing.T, r *rig)) {
	t.Helper()
	disk := t.TempDir() // a name that no other test has
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, disk)
		r.open()
		defer func() { r.close() }()
		fn(t, r)
	})
}

func now() int64 { return time.Now().UnixNano() }

// in returns the timestamp d from now.
func in(d time.Duration) string { return wire.Timestamp(now() + int64(d)) }

// open starts a process.
func (r *rig) open() {
	r.t.Helper()
	snap := r.openStore()
	r.kv = &keeper{KV: StoreKV(r.st.Submit)}
	r.begin(Options{KV: r.kv, Share: r.share}, snap)
	require.Empty(r.t, r.kv.writes, "the store wants to be recovered first")
	require.NoError(r.t, r.c.Save())
	require.NoError(r.t, r.c.Start(r.cfg))
}

func (r *rig) openStore() store.Snapshot {
	r.t.Helper()
	model, err := storetest.OpenModel(r.disk, now)
	require.NoError(r.t, err)
	r.st = model
	snap, err := r.st.Snapshot()
	require.NoError(r.t, err)
	return snap
}

// begin makes the Control of a process with the kept state.
func (r *rig) begin(o Options, kept store.Snapshot) {
	o.Log = slog.New(slog.NewTextHandler(&r.log, nil))
	r.queues.news = map[string]int64{}
	r.circuits = circuit.New(circuit.Options{Log: o.Log, Now: now, Event: r.events.event, Submit: r.st.Submit})
	r.circuits.Restore(kept.Config)
	o.Now, o.Event, o.Queues, o.Circuits = now, r.events.event, r.queues, r.circuits
	o.MaxPayload = func() int64 { return 1 << 20 }
	r.c = New(o, kept)
}

// close ends the process at once.
func (r *rig) close() {
	r.c.schedule.stop()
	r.circuits.Stop()
	require.NoError(r.t, r.st.Close())
}

// restart ends the process, in order or by a crash, and starts the next one after `down`.
func (r *rig) restart(crash bool, down time.Duration) {
	r.t.Helper()
	if !crash {
		r.c.Stop()
	}
	r.close()
	time.Sleep(down)
	r.open()
}

// pass lets time go by.
func (r *rig) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// create creates a queue, which the next process has too.
func (r *rig) create(name string) {
	r.t.Helper()
	_, err := r.queues.Declare(context.Background(), wire.DefaultQueueSettings(name))
	require.Nil(r.t, err)
	r.commit(&store.Batch{PutQueues: []store.QueueRecord{{ID: store.QueueID(len(r.queues.settings)), Name: name, Settings: []byte("{}")}}})
}

func (r *rig) commit(b *store.Batch) {
	r.t.Helper()
	done := make(chan error, 1)
	b.Done = func(err error) { done <- err }
	r.st.Submit(b)
	require.NoError(r.t, <-done)
}

// stored returns the entries of the store whose key starts with prefix.
func (r *rig) stored(prefix string) map[string]string {
	r.t.Helper()
	r.commit(&store.Batch{}) // what was submitted before
	snap, err := r.st.Snapshot()
	require.NoError(r.t, err)
	found := make(map[string]string)
	for _, e := range snap.Config {
		if strings.HasPrefix(e.Key, prefix) {
			found[e.Key] = e.Value
		}
	}
	return found
}

// trail is the audit log, oldest first: "by key: old -> new".
func (r *rig) trail() []string {
	r.t.Helper()
	list, err := r.c.ConfigLog(api.KeyListRequest{Limit: maxAudit})
	require.Nil(r.t, err)
	require.Len(r.t, list.Entries, list.Total)
	lines := make([]string, list.Total)
	for i, e := range list.Entries {
		require.NotEmpty(r.t, e.Time)
		lines[list.Total-1-i] = fmt.Sprintf("%s %s: %s -> %s", e.By, e.Key, orNone(e.Old), orNone(e.New))
	}
	return lines
}

func orNone(text *string) string {
	if text == nil {
		return "none"
	}
	return *text
}

// limits returns the limits in force of a key.
func (r *rig) limits(key string) throttle.Limits { return r.c.Gates().Limits(key) }

// admits returns how many messages of cost 1 a key admits now. They stay in flight.
func (r *rig) admits(key string) int {
	r.t.Helper()
	set, err := r.c.Gates().Set([]string{key}, now())
	require.NoError(r.t, err)
	for n := 0; ; n++ {
		if _, _, ok := set.Acquire(now(), throttle.One, nil); !ok || n > 10_000 {
			return n
		}
	}
}

func perSecond(n int64) throttle.Rate { return throttle.PerSecond(n * throttle.One) }

// The helpers below take requests as JSON, decoded by package wire.

func (r *rig) trySet(tail, body string) (api.ThrottleInfo, *wire.Error) {
	req, err := api.VerbThrottleSet.Parse(tail, []byte(body))
	if err != nil {
		return api.ThrottleInfo{}, err
	}
	return r.c.ThrottleSet(verb(api.VerbThrottleSet), req)
}

func (r *rig) set(tail, body string) api.ThrottleInfo {
	r.t.Helper()
	info, err := r.trySet(tail, body)
	require.Nil(r.t, err, body)
	return info
}

func (r *rig) show(key string) api.ThrottleInfo {
	r.t.Helper()
	info, err := r.c.ThrottleShow(api.GateKeyRequest{Key: key})
	require.Nil(r.t, err, key)
	return info
}

func (r *rig) tryClear(key string) (api.ThrottleInfo, *wire.Error) {
	return r.c.ThrottleClear(verb(api.VerbThrottleClear), api.GateKeyRequest{Key: key})
}

func (r *rig) clear(key string) api.ThrottleInfo {
	r.t.Helper()
	info, err := r.tryClear(key)
	require.Nil(r.t, err)
	return info
}

func (r *rig) put(key, value string) {
	r.t.Helper()
	_, err := r.c.ConfigSet(verb(api.VerbConfigSet), key, api.ConfigSetRequest{Value: value})
	require.Nil(r.t, err, key)
}

func (r *rig) delete(key string) {
	r.t.Helper()
	_, err := r.c.ConfigDelete(verb(api.VerbConfigDelete), key)
	require.Nil(r.t, err, key)
}

func (r *rig) tryPause(body string) (api.PauseInfo, *wire.Error) {
	req, err := api.VerbPause.Parse("", []byte(body))
	if err != nil {
		return api.PauseInfo{}, err
	}
	return r.c.Pause(verb(api.VerbPause), req)
}

func (r *rig) pause(body string) api.PauseInfo {
	r.t.Helper()
	info, err := r.tryPause(body)
	require.Nil(r.t, err, body)
	return info
}

func (r *rig) tryResume(body string) (api.PauseInfo, *wire.Error) {
	req, err := api.VerbResume.Parse("", []byte(body))
	if err != nil {
		return api.PauseInfo{}, err
	}
	return r.c.Resume(verb(api.VerbResume), req)
}

func (r *rig) resume(body string) api.PauseInfo {
	r.t.Helper()
	info, err := r.tryResume(body)
	require.Nil(r.t, err, body)
	return info
}

func (r *rig) pauses() []api.PauseInfo {
	r.t.Helper()
	list := r.c.PauseList(api.ListRequest{Limit: 100})
	require.Equal(r.t, list.Total, len(list.Pauses))
	return list.Pauses
}

func (r *rig) circuit(key string) api.CircuitInfo {
	r.t.Helper()
	info, err := r.c.CircuitShow(api.GateKeyRequest{Key: key})
	require.Nil(r.t, err)
	return info
}

// refused checks that an error is of a code.
func refused(t *testing.T, code int, err *wire.Error, about ...any) {
	t.Helper()
	require.NotNil(t, err, about...)
	require.Equal(t, code, err.ErrCode, about...)
}

// keeper is a KV that may be slow or fail, and counts writes.
type keeper struct {
	KV
	mu     sync.Mutex
	failed error
	slow   chan struct{} // unless nil, writes wait for it to be closed
	writes []Batch
	behind chan struct{} // closed when the last slow write is done
}

func (k *keeper) Write(b Batch) <-chan error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.writes = append(k.writes, b)
	if k.failed != nil {
		done := make(chan error, 1)
		done <- k.failed
		return done
	}
	if slow := k.slow; slow != nil {
		done := make(chan error, 1)
		before, over := k.behind, make(chan struct{})
		k.behind = over
		go func() {
			<-slow
			if before != nil {
				<-before
			}
			written := k.KV.Write(b)
			close(over)
			done <- <-written
		}()
		return done
	}
	return k.KV.Write(b)
}

// heal makes it fast and healthy.
func (k *keeper) heal() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.slow != nil {
		close(k.slow)
	}
	k.failed, k.slow = nil, nil
}

// block makes writes wait for disk.
func (k *keeper) block(disk chan struct{}) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.slow = disk
}

func (k *keeper) fail(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.failed, k.writes = err, nil
}

// noted are queues that record their calls.
type noted struct {
	mu       sync.Mutex
	settings map[string]wire.QueueSettings // they outlive a process
	news     map[string]int64              // calls in this process: "queue", "queue/key", "weight queue/key"
	woken    []string                      // gates that have opened
	check    func(wire.QueueSettings) error
	refuse   *wire.Error // what Declare says
	refused  string      // of this queue alone; empty: of all
}

// note records a call: until when a queue or a key of it is paused, or a weight. 0 ends
// it.
func (q *noted) note(about string, value int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.news[about] = value; value == 0 {
		delete(q.news, about)
	}
}

func (q *noted) told() map[string]int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return maps.Clone(q.news)
}

func (q *noted) PauseQueue(queue string, until int64)    { q.note(queue, until) }
func (q *noted) PauseKey(queue, key string, until int64) { q.note(queue+"/"+key, until) }
func (q *noted) Weigh(queue, key string, weight uint32) {
	q.note("weight "+queue+"/"+key, int64(weight))
}

func (q *noted) Exists(queue string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	_, ok := q.settings[queue]
	return ok
}

func (q *noted) Check(settings wire.QueueSettings) error {
	if q.check != nil {
		return q.check(settings)
	}
	return nil
}

func (q *noted) Declare(_ context.Context, settings wire.QueueSettings) (*wire.QueueSettings, *wire.Error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.refuse != nil && (q.refused == "" || q.refused == settings.Name) {
		return nil, q.refuse
	}
	had, ok := q.settings[settings.Name]
	q.settings[settings.Name] = settings
	if !ok {
		return nil, nil
	}
	return &had, nil
}

func (q *noted) Declared(settings wire.QueueSettings) *wire.QueueSettings {
	q.mu.Lock()
	defer q.mu.Unlock()
	if had, ok := q.settings[settings.Name]; ok {
		return &had
	}
	return nil
}

func (q *noted) Settings() []wire.QueueSettings {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.SortedFunc(maps.Values(q.settings), func(a, b wire.QueueSettings) int { return cmp.Compare(a.Name, b.Name) })
}

// GateOpened makes noted an owner of waits.
func (q *noted) GateOpened(g *throttle.Gate) { q.woken = append(q.woken, g.Key()) }

// tellAll sends the pauses of queues, as a start does.
func (q *noted) tellAll(c *Control) {
	for name := range q.settings {
		until, keys := c.Pauses(name)
		q.PauseQueue(name, until)
		for key, until := range keys {
			q.PauseKey(name, key, until)
		}
	}
}

// published records published events.
type published struct {
	t      testing.TB
	mu     sync.Mutex
	events []wire.Event
}

func (n *published) event(typ, tail string, e wire.Event) {
	schematest.Event(n.t, typ, e)
	n.mu.Lock()
	defer n.mu.Unlock()
	e.Type = typ
	if of := cmp.Or(e.Key, e.Queue); of != tail {
		panic(typ + " about " + of + " under " + tail)
	}
	n.events = append(n.events, e)
}

// take returns the new events, about circuits only if wanted.
func (n *published) take() []wire.Event {
	n.mu.Lock()
	defer n.mu.Unlock()
	events := n.events
	n.events = nil
	return slices.DeleteFunc(events, func(e wire.Event) bool { return e.Type == wire.EventCircuitChanged })
}

// logText is the text of the log. Its handler has a lock; read it when nothing runs.
type logText struct{ bytes.Buffer }

// count returns how often part was logged.
func (l *logText) count(part string) int { return strings.Count(l.String(), part) }

func toJSON(t *testing.T, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	require.NoError(t, err)
	return string(data)
}

var errDisk = errors.New("disk on fire")

// verb is the actor of a verb that an unknown client requested.
func verb(v api.AnyVerb) Actor { return Actor{By: v.String()} }
