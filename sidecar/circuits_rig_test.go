package sidecar

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
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
)

const second = int64(time.Second)

// circuitDisk is the part of a store that circuits use. Batches wait until
// commit, unless auto is set.
type circuitDisk struct {
	store.Store
	auto bool

	mu struct {
		sync.Mutex
		waiting []*store.Batch
		entries map[string]string
		writes  int
		err     error
	}
}

func (d *circuitDisk) Submit(b *store.Batch) {
	d.mu.Lock()
	d.mu.waiting = append(d.mu.waiting, b)
	d.mu.Unlock()
	if d.auto {
		d.commit()
	}
}

// commit puts what waits on disk and reports how many batches that were.
func (d *circuitDisk) commit() int {
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

func (d *circuitDisk) commitAll() {
	for d.commit() > 0 {
		continue
	}
}

func (d *circuitDisk) stored() []store.Entry {
	d.mu.Lock()
	defer d.mu.Unlock()
	var entries []store.Entry
	for _, key := range slices.Sorted(maps.Keys(d.mu.entries)) {
		entries = append(entries, store.Entry{Key: key, Value: d.mu.entries[key]})
	}
	return entries
}

// told is an event with the type and key that it was published under.
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

// circuitRig is a registry without a server: the test sets the clock, commits,
// and sees events and wake-ups.
type circuitRig struct {
	t    tester
	now  atomic.Int64
	disk *circuitDisk
	core *core
	cs   *circuits

	mu     sync.Mutex
	events []told
	woken  []*queue
}

func newCircuitRig(t tester) *circuitRig {
	r := &circuitRig{t: t, disk: &circuitDisk{}}
	r.disk.mu.entries = make(map[string]string)
	r.now.Store(1_000_000 * second)
	r.start()
	return r
}

// start makes the registry of a process.
func (r *circuitRig) start() {
	r.core = &core{
		log: slog.New(slog.DiscardHandler), clock: clock{test: r.now.Load},
		store: r.disk, config: newRuntimeConfig(nil),
	}
	r.cs = newCircuits(r.core)
	r.core.circuits = r.cs
	r.cs.event = func(typ, tail string, e wire.Event) {
		r.mu.Lock()
		defer r.mu.Unlock()
		require.Equal(r.t, tail, e.Key)
		r.events = append(r.events, told{typ, e})
	}
	r.cs.wake = func(q *queue, _ *circuit) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.woken = append(r.woken, q)
	}
}

// restart begins the next process. What waits for the disk is lost.
func (r *circuitRig) restart() {
	r.disk.mu.waiting = nil
	r.start()
	r.cs.restore(r.disk.stored(), r.now.Load())
}

func (r *circuitRig) pass(d time.Duration) { r.now.Add(int64(d)) }

// allow takes a pass that must be granted.
func (r *circuitRig) allow(ci *circuit) *circuitPass {
	r.t.Helper()
	p, ok := ci.allow(r.now.Load())
	require.True(r.t, ok)
	require.True(r.t, p.held)
	return &p
}

func (r *circuitRig) refused(ci *circuit) {
	r.t.Helper()
	p, ok := ci.allow(r.now.Load())
	require.False(r.t, ok)
	require.Zero(r.t, p)
}

// fail lets n messages fail, one after the other.
func (r *circuitRig) fail(ci *circuit, n int) {
	r.t.Helper()
	for range n {
		ci.done(r.allow(ci), r.now.Load(), breaker.Failure)
	}
}

func (r *circuitRig) succeed(ci *circuit) {
	r.t.Helper()
	ci.done(r.allow(ci), r.now.Load(), breaker.Success)
}

// admits checks what the circuit admits: at is relative to now, 0 with n, and -1
// if it is to be told.
func (r *circuitRig) admits(ci *circuit, n int64, in time.Duration) {
	r.t.Helper()
	gotN, at := ci.admits(r.now.Load())
	want := r.now.Load() + int64(in)
	if n != 0 {
		want = 0
	} else if in < 0 {
		want = math.MaxInt64
	}
	require.Equal(r.t, []int64{n, want}, []int64{gotN, at})
}

// news returns the events since the last call, in words.
func (r *circuitRig) news() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []string
	for _, e := range r.events {
		all = append(all, e.String())
	}
	r.events = nil
	return strings.Join(all, ", ")
}

// wakes returns the names of the queues woken since the last call, sorted.
func (r *circuitRig) wakes() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	names := []string{}
	for _, q := range r.woken {
		names = append(names, q.name)
	}
	slices.Sort(names)
	r.woken = nil
	return names
}

const all = math.MaxInt64
