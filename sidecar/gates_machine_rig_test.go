package sidecar

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/store"
	"github.com/filaq/fila/store/storetest"
	"github.com/filaq/fila/throttle"
	"github.com/filaq/fila/wire"
)

// fleet is several queues, with their dead letter queues, that share gates and
// circuits: a rig for more than one queue. A loop makes a turn when something was
// posted to it or when the time has come that it wanted to sleep until, never
// otherwise, so that a timer which is missing or too late shows.
type fleet struct {
	t    tester
	now  int64 // the clock, which can be set back
	mono int64 // time that has really gone by

	disk   string
	st     *stepStore
	core   *core
	queues []*queue // the queues, then their dead letter queues
	loops  map[*queue]*loop
	wakeAt map[*queue]int64 // of mono
	fatal  error
	first  int // which queue makes the first turn
	paced  pacing

	settings circuitSettings            // of all circuits
	limits   map[string]throttle.Limits // of throttle keys
	pauses   map[pauseID]int64

	turn  func(q *queue)                // called before a turn
	went  func(q *queue, ds []delivery) // and after it
	disks func(waiting []*store.Batch)  // called with what is about to be on disk
	holds func(q *queue, key string, until int64)

	turns int // made
	due   int // of them, those with events or at their time
}

func newFleet(t tester, settings ...wire.QueueSettings) *fleet {
	t.Helper()
	f := &fleet{
		t: t, now: rigStart, disk: newID2(), limits: make(map[string]throttle.Limits), pauses: make(map[pauseID]int64),
		turn: func(*queue) {}, went: func(*queue, []delivery) {}, disks: func([]*store.Batch) {},
		holds: func(*queue, string, int64) {},
	}
	f.settings, _ = circuitLimits(CircuitDefaults{}, nil, nil)
	f.open(throttle.Start{})
	b := &store.Batch{}
	for i, s := range settings {
		rec, err := record(store.QueueID(2*i+1), s)
		require.NoError(t, err)
		dlq, err := record(store.QueueID(2*i+2), dlqSettings(s))
		require.NoError(t, err)
		b.PutQueues = append(b.PutQueues, rec, dlq)
	}
	f.st.Submit(b)
	f.st.commit(1)
	f.recover()
	return f
}

// open starts a process.
func (f *fleet) open(start throttle.Start) {
	model, err := storetest.OpenModel(f.disk, func() int64 { return f.now })
	require.NoError(f.t, err)
	f.st = &stepStore{Store: model}
	f.t.Cleanup(func() { _ = model.Close() })
	subjects, err := wire.NewSubjects("fila")
	require.NoError(f.t, err)
	f.core = &core{
		cfg: Default(), log: slog.New(slog.DiscardHandler), clock: clock{test: func() int64 { return f.now }},
		store: f.st, subjects: subjects, pacing: f.paced,
		metrics: newMetrics(), config: newRuntimeConfig(nil), refusals: &refusals{},
		fatal: func(err error) { f.fatal = err },
	}
	f.core.gates = throttle.New(start, f.now)
	f.core.circuits = newCircuits(f.core)
	f.core.circuits.configure(f.settings, nil)
	f.core.hold = func(q *queue, key string, until int64) { f.holds(q, key, until) }
	f.core.signer, err = wire.NewSigner(make([]byte, 32))
	require.NoError(f.t, err)
	f.core.leaseIDs.Store(uint64(newID()[15])<<32 + uint64(time.Now().UnixNano()))
	f.core.serving.Store(true)
}

// recover fills the loops from the disk, as a start does.
func (f *fleet) recover() {
	snap, err := f.st.Snapshot()
	require.NoError(f.t, err)
	s := &Server{cfg: f.core.cfg, core: f.core}
	s.pauses.mu.all = make(map[pauseID]pause)
	for id, until := range f.pauses {
		s.pauses.mu.all[id] = pause{Until: until}
	}
	loops, err := s.recover(snap)
	require.NoError(f.t, err)
	f.loops, f.wakeAt = make(map[*queue]*loop), make(map[*queue]int64)
	f.queues = make([]*queue, len(snap.Queues))
	for _, rec := range snap.Queues {
		q := loops[rec.ID].q
		i := int(rec.ID-1) / 2
		if q.isDLQ() {
			i += len(snap.Queues) / 2
		}
		f.queues[i] = q
		f.loops[q] = loops[rec.ID].loop
		f.wakeAt[q] = f.mono + int64(time.Hour)
		q.mail.poke()
	}
}

// restart ends the process and starts the next one: in order, or by a crash in
// which everything that waited for the disk is lost.
func (f *fleet) restart(crash bool, down int64) {
	f.t.Helper()
	start := throttle.Start{Crashed: crash, WindowHold: throttle.MaxWindow}
	var states []throttle.State
	if !crash {
		f.run()
		f.core.draining.Store(true)
		for _, q := range f.queues {
			f.turn(q)
			f.loops[q].finish()
			f.collect(q)
		}
		f.commitAll()
		states = f.core.gates.Snapshot(f.now)
	}
	require.NoError(f.t, f.st.Close())
	f.now += down
	f.mono += max(down, 0)
	f.open(start)
	for key, l := range f.limits {
		_, err := f.core.gates.SetLimits(key, l, f.now, nil)
		require.NoError(f.t, err)
	}
	f.core.gates.Restore(states, f.now)
	snap, err := f.st.Snapshot()
	require.NoError(f.t, err)
	f.core.circuits.restore(snap.Config, f.now)
	for id, until := range f.pauses {
		switch {
		case until <= f.now:
			delete(f.pauses, id)
		case id.kind == wire.PauseThrottle:
			f.core.gates.Pause(id.name, until, f.now, nil)
		case id.kind == wire.PauseCircuit:
			f.core.circuits.pause(id.name, until)
		}
	}
	f.recover()
}

func (f *fleet) commitAll() {
	for {
		waiting := f.st.waiting()
		if len(waiting) == 0 {
			return
		}
		f.disks(waiting)
		f.st.commit(len(waiting))
	}
}

// run makes turns until nothing is left to do at this moment.
func (f *fleet) run() {
	f.t.Helper()
	for again := true; again; {
		again = false
		for i := range f.queues {
			q := f.queues[(i+f.first)%len(f.queues)]
			select {
			case <-q.mail.wake:
			default:
				if f.wakeAt[q] > f.mono {
					continue
				}
			}
			f.one(q)
			again = true
		}
	}
	require.NoError(f.t, f.fatal)
}

// one makes a turn of q.
func (f *fleet) one(q *queue) {
	l := f.loops[q]
	events := q.mail.take(nil)
	f.turns++
	if len(events) > 0 || f.wakeAt[q] <= f.mono {
		f.due++
	}
	f.turn(q)
	l.turn(events)
	f.collect(q)
	f.wakeAt[q] = f.mono + int64(l.sleep())
	require.Less(f.t, f.turns, 1_000_000, "turns without an end")
}

func (f *fleet) collect(q *queue) { f.went(q, q.out.take(nil)) }

// pass lets time go by, d may be negative: then the clock is set back.
func (f *fleet) pass(d time.Duration) {
	f.t.Helper()
	f.now += int64(d)
	f.mono += max(int64(d), 0)
	f.core.gates.Pause("nothing", 0, f.now, nil) // shows it the time
	f.run()
}

// commit puts everything on disk and makes the turns that follow.
func (f *fleet) commit() {
	f.t.Helper()
	f.run()
	for {
		waiting := f.st.waiting()
		if len(waiting) == 0 {
			return
		}
		f.disks(waiting)
		f.st.commit(len(waiting))
		f.run()
	}
}

func (f *fleet) post(q *queue, e event) {
	f.t.Helper()
	require.True(f.t, q.mail.post(e))
}

func (f *fleet) call(q *queue, fn func(l *loop)) { f.post(q, event{kind: evCall, call: fn}) }

// enqueue takes a message as the intake does.
func (f *fleet) enqueue(q *queue, key string, change func(*store.Message)) store.ID {
	f.t.Helper()
	in := &incoming{size: 10, reply: "reply", msg: store.Message{
		Ref: store.Ref{Queue: q.id}, ID: newID(), EnqueuedAt: f.now,
		Weight: 1000, Cost: 1000, Key: key, Payload: []byte("0123456789"),
	}}
	if change != nil {
		change(&in.msg)
	}
	q.depth.Add(1)
	q.bytes.Add(in.size)
	f.core.uncommitted.Add(in.size)
	f.post(q, event{kind: evEnqueue, incoming: in})
	return in.msg.ID
}

func (f *fleet) consume(q *queue, name string, credit int, ttl time.Duration) {
	req := wire.ConsumeRequest{Consumer: name, MaxInFlight: credit, TTLMs: ttl.Milliseconds()}
	f.call(q, func(l *loop) { l.register(req, "reply", []byte("{}")) })
}

// limit gives a throttle key limits.
func (f *fleet) limit(key string, l throttle.Limits) {
	f.t.Helper()
	wakes, err := f.core.gates.SetLimits(key, l, f.now, nil)
	require.NoError(f.t, err)
	f.limits[key] = l
	f.core.wake(wakes)
}

// pause holds what id names; until 0 lets it go.
func (f *fleet) pause(id pauseID, until int64) {
	if until == 0 {
		delete(f.pauses, id)
	} else {
		f.pauses[id] = until
	}
	switch id.kind {
	case wire.PauseQueue:
		f.call(f.byName(id.name), func(l *loop) { l.pauseUntil(until) })
	case wire.PauseKey:
		f.call(f.byName(id.queue), func(l *loop) { l.pauseKey(id.name, until) })
	case wire.PauseThrottle:
		f.core.wake(f.core.gates.Pause(id.name, until, f.now, nil))
	case wire.PauseCircuit:
		if until == 0 {
			f.core.circuits.resume(id.name)
		} else {
			f.core.circuits.pause(id.name, until)
		}
	}
}

func (f *fleet) byName(name string) *queue {
	for _, q := range f.queues {
		if q.name == name {
			return q
		}
	}
	require.FailNow(f.t, "no such queue", name)
	return nil
}

// check looks whether the loops agree with themselves, and whether one of them
// would spin.
func (f *fleet) check(loose bool) {
	f.t.Helper()
	moving := make(map[store.QueueID]int64)
	for _, b := range f.st.waiting() {
		for _, mv := range b.Move {
			moving[mv.To.Queue]++
		}
	}
	for _, q := range f.queues {
		checkLoopAt(f.t, f.loops[q], moving[q.id], moving[q.id]*10, loose)
		require.Positive(f.t, f.loops[q].sleep(), "%s: nothing to do, and it does not sleep", q.name)
	}
}

// fleetSettings are those of n queues.
func fleetSettings(n int, change func(i int, s *wire.QueueSettings)) []wire.QueueSettings {
	all := make([]wire.QueueSettings, n)
	for i := range all {
		all[i] = wire.DefaultQueueSettings(fmt.Sprint("q", i))
		all[i].MaxDeliveries = new(int64)
		if change != nil {
			change(i, &all[i])
		}
	}
	return all
}
