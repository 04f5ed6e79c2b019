package circuit

import (
	"log/slog"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/breaker"
	"github.com/filaq/fila/schemas/schematest"
	"github.com/filaq/fila/sidecar/queue/gates"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/throttle"
	"github.com/filaq/fila/wire"
)

const second = int64(time.Second)

type tester interface {
	require.TestingT
	Helper()
}

// disk is the part of a store that circuits use. Batches wait for commit, unless auto is set.
type disk struct {
	auto bool

	mu struct {
		sync.Mutex
		waiting []*store.Batch
		entries map[string]string
		writes  int
		err     error
	}
}

func (d *disk) Submit(b *store.Batch) {
	d.mu.Lock()
	d.mu.waiting = append(d.mu.waiting, b)
	d.mu.Unlock()
	if d.auto {
		d.commit()
	}
}

// commit writes waiting batches and returns how many there were.
func (d *disk) commit() int {
	d.mu.Lock()
	batches, err := d.mu.waiting, d.mu.err
	d.mu.waiting = nil
	for _, b := range batches {
		if err != nil {
			continue
		}
		for _, e := range b.PutConfig {
			d.mu.entries[e.Key] = e.Value
		}
		for _, key := range b.DeleteConfig {
			delete(d.mu.entries, key)
		}
	}
	d.mu.writes += len(batches)
	d.mu.Unlock()
	for _, b := range batches {
		b.Done(err)
	}
	return len(batches)
}

func (d *disk) commitAll() {
	for d.commit() > 0 {
		continue
	}
}

func (d *disk) stored() []store.Entry {
	d.mu.Lock()
	defer d.mu.Unlock()
	var entries []store.Entry
	for _, key := range slices.Sorted(maps.Keys(d.mu.entries)) {
		entries = append(entries, store.Entry{Key: key, Value: d.mu.entries[key]})
	}
	return entries
}

// told is a published event with its type and key.
type told struct {
	typ string
	wire.Event
}

func (e told) String() string {
	if e.typ == wire.EventHeld {
		return "held"
	}
	return e.Data["old"].(string) + " -> " + e.Data["new"].(string) + ": " + e.Data["cause"].(string)
}

// owner is a waiting queue.
type owner struct {
	r    *rig
	name string
}

func (r *rig) owner(name string) *owner { return &owner{r, name} }

func (o *owner) GateOpened(*throttle.Gate) { panic("a circuit is no throttle key") }

func (o *owner) CircuitOpened(c gates.Circuit) { o.r.opened(o, c.(*Circuit)) }

// rig is a registry whose clock the test sets, whose writes it commits, and whose events and wake-ups
// it checks.
type rig struct {
	t    tester
	now  atomic.Int64
	disk *disk
	reg  *Registry

	opened func(*owner, *Circuit)              // called for each wake-up
	event  func(typ, key string, e wire.Event) // called for each event
	mu     sync.Mutex
	events []told
	woken  []string
}

// standard are the limits that a rig starts with: the limits of an empty configuration.
var standard = Settings{
	Breaker:       breaker.Config{Threshold: 10, Cooldown: 5 * time.Minute, HalfOpenMaxCalls: 3, HalfOpenSuccesses: 1},
	FailureWindow: time.Minute,
}

func newRig(t tester) *rig {
	r := &rig{t: t, disk: &disk{}}
	r.disk.mu.entries = make(map[string]string)
	r.now.Store(1_000_000 * second)
	r.event = func(typ, key string, e wire.Event) {
		r.mu.Lock()
		defer r.mu.Unlock()
		require.Equal(r.t, key, e.Key)
		r.events = append(r.events, told{typ, e})
	}
	r.opened = func(o *owner, _ *Circuit) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.woken = append(r.woken, o.name)
	}
	r.start()
	return r
}

// start creates the registry of a process.
func (r *rig) start() {
	r.reg = New(Options{
		Log: slog.New(slog.DiscardHandler), Now: r.now.Load, Submit: r.disk.Submit,
		Event: func(typ, key string, e wire.Event) {
			schematest.Event(r.t, typ, e)
			r.event(typ, key, e)
		},
	})
	r.reg.Configure(standard, nil, nil)
}

// restart begins the next process. Waiting batches are lost.
func (r *rig) restart() {
	r.disk.mu.waiting = nil
	r.start()
	r.reg.Restore(r.disk.stored())
}

func (r *rig) pass(d time.Duration) { r.now.Add(int64(d)) }

func (r *rig) use(key string) *Circuit { return r.reg.Use(key, r.now.Load()).(*Circuit) }

// announce announces if pending, and otherwise checks that there is nothing to announce. Concurrent
// tests call Announce instead.
func (r *rig) announce(c *Circuit, pending bool) {
	r.t.Helper()
	require.Equal(r.t, pending, c.pending())
	if pending {
		c.Announce()
	}
}

// allow returns a pass, which must be granted.
func (r *rig) allow(c *Circuit) breaker.Pass {
	r.t.Helper()
	p, pending := c.Allow(r.now.Load())
	require.NotZero(r.t, p)
	r.announce(c, pending)
	return p
}

func (r *rig) refused(c *Circuit) {
	r.t.Helper()
	p, pending := c.Allow(r.now.Load())
	require.Zero(r.t, p)
	require.False(r.t, pending)
}

func (r *rig) done(c *Circuit, p breaker.Pass, o breaker.Outcome) {
	r.t.Helper()
	r.announce(c, c.Done(p, r.now.Load(), o))
}

func (r *rig) retryAfter(c *Circuit, until int64) {
	r.t.Helper()
	r.announce(c, c.RetryAfter(r.now.Load(), until))
}

func (r *rig) wait(c *Circuit, o *owner) {
	r.t.Helper()
	r.announce(c, c.Wait(o, r.now.Load()))
}

// fail lets n messages fail one after the other.
func (r *rig) fail(c *Circuit, n int) {
	r.t.Helper()
	for range n {
		r.done(c, r.allow(c), breaker.Failure)
	}
}

// failed is a queue that uses a circuit for messages that fail.
func (r *rig) failed(key string, n int) {
	r.t.Helper()
	c := r.use(key)
	r.fail(c, n)
	r.reg.giveBack(c)
}

func (r *rig) succeed(c *Circuit) {
	r.t.Helper()
	r.done(c, r.allow(c), breaker.Success)
}

// admits checks what the circuit admits: at is relative to now, 0 with n, and -1 for a wake-up.
func (r *rig) admits(c *Circuit, n int64, in time.Duration) {
	r.t.Helper()
	gotN, at := c.Admits(r.now.Load())
	want := r.now.Load() + int64(in)
	if n != 0 {
		want = 0
	} else if in < 0 {
		want = math.MaxInt64
	}
	require.Equal(r.t, []int64{n, want}, []int64{gotN, at})
}

// news formats the events since the last call.
func (r *rig) news() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []string
	for _, e := range r.events {
		all = append(all, e.String())
	}
	r.events = nil
	return strings.Join(all, ", ")
}

// wakes returns the names of the owners woken since the last call, in order.
func (r *rig) wakes() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	names := append([]string{}, r.woken...)
	r.woken = nil
	return names
}

const all = math.MaxInt64
