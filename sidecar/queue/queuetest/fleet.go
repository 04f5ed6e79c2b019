package queuetest

import (
	"encoding/binary"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/breaker"
	"github.com/filaq/fila/sidecar/circuit"
	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/sidecar/queue/gates"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/throttle"
	"github.com/filaq/fila/wire"
)

// T is what *testing.T, *testing.B and *rapid.T have in common.
type T interface {
	require.TestingT
	Helper()
}

// Start is when the clock of a fleet begins.
var Start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano()

// Fleet is machines that share gates, circuits, a disk and a clock.
type Fleet struct {
	T        T
	Now      int64 // the clock
	Disk     *Disk
	Gates    *throttle.Gates
	Circuits *circuit.Registry
	Rigs     []*Rig
	First    int          // which machine is stepped first
	Pacing   queue.Pacing // of machines that are made from now on
	Steps    int

	// Before and After are called around each step, Done when a batch is on disk or
	// refused, and before its machine learns of it, Answered with each answer.
	Before   func(r *Rig)
	After    func(r *Rig, out *queue.Effects)
	Done     func(r *Rig, c *queue.Commit, err error)
	Answered func(r *Rig, a Answer)

	link   *link // to the bucket of the circuits; nil: they are not shared
	mono   int64 // time that has really gone by
	limits map[string]throttle.Limits
	cut    map[string]bool // throttle keys whose learned levels are to be written
	cfg    breaker.Config
	ids    uint64
	leases uint64
	queues store.QueueID // the last id given out
	out    queue.Effects
}

// NewFleet returns a fleet with a machine for each of the settings.
func NewFleet(t T, settings ...wire.QueueSettings) *Fleet {
	t.Helper()
	return newFleet(t, nil, settings...)
}

// newFleet is NewFleet with circuits that are shared by a link.
func newFleet(t T, l *link, settings ...wire.QueueSettings) *Fleet {
	t.Helper()
	f := &Fleet{
		link: l,
		T:    t, Now: Start, limits: make(map[string]throttle.Limits), leases: 1 << 40,
		Before: func(*Rig) {}, After: func(*Rig, *queue.Effects) {}, Done: func(*Rig, *queue.Commit, error) {},
		Answered: func(r *Rig, a Answer) { r.Answers = append(r.Answers, a) },
	}
	f.Disk = newDisk(func() int64 { return f.Now })
	f.Gates = throttle.New(throttle.Start{}, f.Now)
	f.openGates(nil)
	f.Circuits = f.newCircuits()
	for _, s := range settings {
		f.Create(queue.Settings{QueueSettings: s})
	}
	f.Run()
	return f
}

// Create makes a queue.
func (f *Fleet) Create(s queue.Settings) *Rig {
	f.T.Helper()
	r := &Rig{Fleet: f, Name: s.Name, IDs: [queue.Roles]store.QueueID{f.queues + 1, f.queues + 2}, Settings: s}
	f.queues += 2
	f.CommitAll()
	require.NoError(f.T, f.Disk.Apply(&store.Batch{PutQueues: []store.QueueRecord{
		{ID: r.IDs[queue.Main], Name: s.Name}, {ID: r.IDs[queue.Dead], Name: wire.DLQ(s.Name)},
	}}))
	f.Rigs = append(f.Rigs, r)
	r.start()
	return r
}

// Delete ends a queue for good.
func (f *Fleet) Delete(r *Rig) {
	f.T.Helper()
	r.Finish(true)
	f.Rigs = slices.DeleteFunc(f.Rigs, func(o *Rig) bool { return o == r })
	f.Disk.Submit(&store.Batch{Queue: r.IDs[queue.Main], DeleteQueues: r.IDs[:]})
}

// NewID returns an id that no other message has.
func (f *Fleet) NewID() (id store.ID) {
	f.ids++
	id[0] = 1
	binary.BigEndian.PutUint64(id[8:], f.ids)
	return id
}

// Run steps machines until nothing is left to do at this moment.
func (f *Fleet) Run() {
	f.T.Helper()
	for again, n := true, 0; again; {
		again = false
		for i := range f.Rigs {
			r := f.Rigs[(i+f.First)%len(f.Rigs)]
			if len(r.inputs) > 0 || r.wakeAt <= f.mono {
				r.Step()
				again = true
			}
		}
		if n++; n > 100_000 {
			require.Fail(f.T, "steps without an end")
		}
	}
}

// Pass advances the time and makes the steps that follow; with a negative d the
// clock is set back.
func (f *Fleet) Pass(d time.Duration) {
	f.T.Helper()
	f.Now += int64(d)
	f.mono += max(int64(d), 0)
	f.Run()
}

// Next is the time until the next step of a machine is due.
func (f *Fleet) Next() time.Duration {
	next := int64(queue.Forever)
	for _, r := range f.Rigs {
		next = min(next, r.wakeAt)
	}
	return time.Duration(next - f.mono)
}

// CommitN writes up to n of the waiting batches and returns how many it wrote.
func (f *Fleet) CommitN(n int) int {
	n = min(n, len(f.Disk.waiting))
	for range n {
		s, err := f.Disk.write()
		if s.rig == nil {
			if s.batch.Done != nil {
				s.batch.Done(err)
			}
			continue
		}
		s.rig.done(s.commit, err)
	}
	return n
}

// CommitAll writes all waiting batches.
func (f *Fleet) CommitAll() {
	for f.CommitN(len(f.Disk.waiting)) > 0 {
		continue
	}
}

// Commit writes everything and makes the steps that follow, also changes that the
// pacing keeps back.
func (f *Fleet) Commit() {
	f.T.Helper()
	f.Run()
	for f.CommitN(len(f.Disk.waiting)) > 0 {
		f.Run()
	}
}

// Restart ends the process and starts the next one, down later: in order, or by a
// crash in which everything that waited for the disk is lost.
func (f *Fleet) Restart(crash bool, down time.Duration) {
	f.T.Helper()
	start := throttle.Start{Crashed: crash, WindowHold: throttle.MaxWindow}
	var states []throttle.State
	if !crash {
		for _, r := range f.Rigs {
			r.Finish(false)
		}
		f.CommitAll()
		f.keepGates()
		states = f.Gates.Snapshot(f.Now)
	}
	f.Disk.waiting = nil
	f.Now += int64(down)
	f.mono += max(int64(down), 0)
	f.Gates = throttle.New(start, f.Now)
	snap, err := f.Disk.Snapshot()
	require.NoError(f.T, err)
	f.openGates(snap.Config)
	for _, key := range slices.Sorted(maps.Keys(f.limits)) {
		_, err := f.Gates.SetLimits(key, f.limits[key], f.Now, nil)
		require.NoError(f.T, err)
	}
	f.Gates.Restore(states, f.Now)
	f.Circuits = f.newCircuits()
	f.Breaker(f.cfg)
	f.Circuits.Restore(snap.Config)
	for _, r := range f.Rigs {
		r.start()
	}
	f.recover(snap.Consumers)
}

func (f *Fleet) newCircuits() *circuit.Registry {
	o := circuit.Options{
		Log: slog.New(slog.DiscardHandler), Now: func() int64 { return f.Now },
		Event: func(string, string, wire.Event) {}, Submit: func(b *store.Batch) { f.Disk.Submit(b) },
	}
	if f.link != nil {
		f.link.host = o.Now
		o.Event, o.Fleet, o.Shares = f.link.event, f.link, func(string) bool { return true }
	}
	return circuit.New(o)
}

// recover fills the machines from the disk.
func (f *Fleet) recover(consumers []store.ConsumerRecord) {
	byID := make(map[store.QueueID]*queue.Recovery)
	recoveries := make([]*queue.Recovery, len(f.Rigs))
	for i, r := range f.Rigs {
		recoveries[i] = r.M.Recover()
		byID[r.IDs[queue.Main]], byID[r.IDs[queue.Dead]] = recoveries[i], recoveries[i]
	}
	_, err := f.Disk.Recover(store.Visitor{Message: func(m *store.Message, size int, st *store.State) error {
		byID[m.Queue].Message(m, size, st, f.Now)
		for _, r := range f.Rigs {
			if side := slices.Index(r.IDs[:], m.Queue); side >= 0 {
				r.Depth[side]++
				r.Bytes[side] += int64(size)
			}
		}
		return nil
	}})
	require.NoError(f.T, err)
	for _, r := range recoveries {
		r.Done(f.Now)
	}
	for _, rec := range consumers {
		byID[rec.Queue].Consumer(rec, "deliver."+rec.Name)
	}
}

// Limit gives a throttle key limits.
func (f *Fleet) Limit(key string, l throttle.Limits) {
	f.T.Helper()
	wakes, err := f.Gates.SetLimits(key, l, f.Now, nil)
	require.NoError(f.T, err)
	f.limits[key] = l
	wake(wakes)
}

// PauseThrottle pauses a throttle key until a time; 0 resumes it.
func (f *Fleet) PauseThrottle(key string, until int64) { wake(f.Gates.Pause(key, until, f.Now, nil)) }

// Breaker sets the limits of all circuits.
func (f *Fleet) Breaker(cfg breaker.Config) {
	f.cfg = cfg
	f.Circuits.Configure(circuit.Settings{Breaker: cfg}, nil, nil)
}

// PauseCircuit opens a circuit by hand until a time; 0 resumes it.
func (f *Fleet) PauseCircuit(key string, until int64) {
	if until == 0 {
		f.Circuits.Resume(key)
	} else {
		f.Circuits.Pause(key, f.Now, until, "")
	}
}

// InFlight is how many messages are in flight at a throttle key.
func (f *Fleet) InFlight(key string) int64 { return f.gate(key).InFlight }

// Held is how much a reservation holds of a throttle key.
func (f *Fleet) Held(key string) int64 { return f.gate(key).Reserved }

func (f *Fleet) gate(key string) throttle.Info {
	g, ok := f.Gates.Find(key)
	if !ok {
		return throttle.Info{}
	}
	return g.Info(f.Now)
}

// wake notifies the machines that are next at a gate.
func wake(waits []*throttle.Wait) {
	for _, w := range waits {
		w.Owner.(gates.Owner).GateOpened(w.Gate())
	}
}
