package queuetest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/breaker"
	"github.com/filaq/fila/sidecar/fleet/record"
	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
)

// SharedSim is several fleets, each the machines of one fila with a clock of its own,
// that share their circuits in a simulated bucket, let loose from a seed. Destinations
// break and recover, filas crash, operators act, and the bucket is slow, loses answers,
// is cut off and recreated. It checks:
//
//   - Of one generation of a half-open circuit there are never more probes under way
//     than half_open_max_calls, over all filas that can reach the bucket; nor permits
//     in the record.
//   - Each fila reports each change of state once, in order, and all report the same.
//     A fila that was cut off, or has seen an opening end by time, may report the
//     latest change again.
//   - When the faults are over every message is delivered, and all filas agree: no
//     circuit is stuck.
type SharedSim struct {
	T     T
	Trace func(line string) // is called with all that is delivered, answered and told
	Seen  SharedSeen

	rnd    *rand.Rand
	bucket *bucket
	cfg    breaker.Config
	filas  []*fila
	broken map[string]bool           // destinations, by circuit key
	keys   map[store.ID]string       // circuit keys of messages
	turns  map[turnID]map[string]any // the first report of a turn
}

// SharedSeen counts what has happened in a SharedSim, so that a test sees that it was
// not idle.
type SharedSeen struct{ Delivered, Probes, MostProbes, Told, Away, Restarts int }

// turnID is a turn of a circuit: the version is of one making of the bucket.
type turnID struct {
	made    int
	key     string
	version uint64
}

// fila is one of those that share.
type fila struct {
	*Fleet
	s       *SharedSim
	link    *link
	flights []*sharedFlight
	told    map[turnID]uint64 // the latest version, by making of the bucket and key
}

// sharedFlight is a delivery that has not been answered.
type sharedFlight struct {
	queue.Delivery
	rig   *Rig
	key   string
	probe bool   // it counts to the budget
	gen   uint64 // of its record
}

var sharedKeys = []string{"c0", "c1"}

// NewSharedSim returns a simulation of that seed with two to four filas.
func NewSharedSim(t T, seed uint64) *SharedSim {
	rnd := rand.New(rand.NewPCG(seed, 14))
	s := &SharedSim{
		T: t, Trace: func(string) {}, rnd: rnd, bucket: newBucket(rnd),
		broken: make(map[string]bool), keys: make(map[store.ID]string), turns: make(map[turnID]map[string]any),
		cfg: breaker.Config{
			Threshold: 1 + rnd.IntN(4), Cooldown: time.Duration(1+rnd.IntN(3000)) * time.Millisecond,
			HalfOpenMaxCalls: 1 + rnd.IntN(3), HalfOpenSuccesses: 1 + rnd.IntN(4),
		},
	}
	for i := range 2 + rnd.IntN(3) {
		s.begin(string(rune('a' + i)))
	}
	s.goOn(int64(time.Second)) // all have joined
	return s
}

// begin makes a fila whose clock is wrong.
func (s *SharedSim) begin(name string) {
	f := &fila{s: s, link: s.bucket.link(name), told: make(map[turnID]uint64)}
	f.link.tell = f.tell
	f.link.away = func() {
		s.Seen.Away++
		for _, fl := range f.flights {
			fl.probe = false // others may have its permit when the fila is back
		}
	}
	f.Fleet = newFleet(s.T, f.link)
	f.Now += s.rnd.Int64N(int64(time.Hour))
	f.Breaker(s.cfg)
	f.After = f.after
	for i := range 1 + s.rnd.IntN(2) {
		set := queue.Settings{QueueSettings: wire.DefaultQueueSettings(fmt.Sprint("q", i))}
		set.MaxDeliveries, set.VisibilityTimeoutMs = new(int64), 2000
		f.consume(f.Create(set))
	}
	f.Run()
	f.link.join()
	s.filas = append(s.filas, f)
}

func (f *fila) consume(r *Rig) { r.Consume(queue.Main, "w", 8, 0) }

func (s *SharedSim) chance(n int) bool { return s.rnd.IntN(n) == 0 }

func (s *SharedSim) anyFila() *fila { return s.filas[s.rnd.IntN(len(s.filas))] }

func (s *SharedSim) anyKey() string { return sharedKeys[s.rnd.IntN(len(sharedKeys))] }

func (s *SharedSim) trace(format string, args ...any) {
	s.Trace(fmt.Sprintf("%v ", time.Duration(s.bucket.now-Start)) + fmt.Sprintf(format, args...))
}

// after checks the deliveries of a step.
func (f *fila) after(r *Rig, out *queue.Effects) {
	for i := range out.Publish {
		d := &out.Publish[i]
		if d.Kind != queue.DeliverMessage {
			continue
		}
		f.s.Seen.Delivered++
		fl := &sharedFlight{Delivery: *d, rig: r, key: f.s.keys[d.ID]}
		// Within a step nothing is learned: the circuit is as it was at the delivery.
		if info, _ := f.Circuits.Info(fl.key); info.State == breaker.HalfOpen.String() && !info.Degraded && f.link.present() {
			rec, err := record.Decode(f.link.entries[circuitPrefix+fl.key].Value)
			require.NoError(f.s.T, err)
			fl.probe, fl.gen = true, rec.Gen
			f.s.Seen.Probes++
		}
		f.flights = append(f.flights, fl)
		f.s.trace("%s delivers %s attempt %d, probe %v", f.link.name, fl.key, d.Token.Attempt, fl.probe)
	}
	r.Sent = nil
}

// tell checks an event.
func (f *fila) tell(key string, e wire.Event) {
	s, d := f.s, e.Data
	s.Seen.Told++
	version := d["version"].(uint64)
	s.trace("%s tells %s: %v -> %v, %v, by %v at %v, version %d", f.link.name, key, d["old"], d["new"], d["cause"], d["by"], d["changed_at"], version)
	id := turnID{f.link.made, key, 0}
	switch {
	case !f.link.present():
		return
	case version == 0 || d["cause"] == record.CauseTime && d["new"] == breaker.Closed.String():
		// The fila was cut off, or saw the opening end by time: it may report the latest change
		// again when it is back, or when it learns that the opening was made longer.
		f.told[id] = max(f.told[id], 1) - 1
		return
	}
	require.Greater(s.T, version, f.told[id], "%s reports a change of %s that it has reported before: %v", f.link.name, key, d)
	f.told[id] = version
	id.version = version
	first, ok := s.turns[id]
	if !ok {
		s.turns[id] = d
		return
	}
	for _, field := range []string{"new", "cause", "by", "changed_at"} {
		require.Equal(s.T, first[field], d[field], "%s of version %d of %s", field, version, key)
	}
}

// goOn advances the time.
func (s *SharedSim) goOn(d int64) {
	s.T.Helper()
	for end := s.bucket.now + d; ; {
		s.settle()
		next := end
		if len(s.bucket.plans) > 0 {
			next = min(next, s.bucket.plans[0].at)
		}
		for _, f := range s.filas {
			if in := int64(f.Next()); in < end-s.bucket.now {
				next = min(next, s.bucket.now+max(in, 1))
			}
		}
		if next >= end && s.bucket.now == end {
			return
		}
		step := next - s.bucket.now
		s.bucket.now = next
		for _, f := range s.filas {
			f.Pass(time.Duration(step))
		}
	}
}

// settle runs everything that is due now.
func (s *SharedSim) settle() {
	s.T.Helper()
	for again := true; again; {
		again = false
		s.bucket.run()
		for _, f := range s.filas {
			f.Run()
			again = again || len(s.bucket.plans) > 0 && s.bucket.plans[0].at <= s.bucket.now
		}
		s.check()
	}
}

// check compares probes and permits with the budget.
func (s *SharedSim) check() {
	s.T.Helper()
	type generation struct {
		key string
		gen uint64
	}
	under := make(map[generation]int)
	for _, f := range s.filas {
		f.flights = slices.DeleteFunc(f.flights, func(fl *sharedFlight) bool { return fl.Deadline <= f.Now })
		for _, fl := range f.flights {
			if !fl.probe {
				continue
			}
			g := generation{fl.key, fl.gen}
			under[g]++
			s.Seen.MostProbes = max(s.Seen.MostProbes, under[g])
			if under[g] > s.cfg.HalfOpenMaxCalls {
				require.Fail(s.T, "probes", "%d of %s at once, %d are allowed", under[g], fl.key, s.cfg.HalfOpenMaxCalls)
			}
		}
	}
	for _, key := range sharedKeys {
		e := s.bucket.entries[circuitPrefix+key]
		if e.Value == nil {
			continue
		}
		rec, err := record.Decode(e.Value)
		require.NoError(s.T, err)
		require.LessOrEqual(s.T, rec.Probes, s.cfg.HalfOpenMaxCalls, "permits of %s: %v", key, rec.Permits)
	}
}

var sharedActions = []action[*SharedSim]{
	{20, (*SharedSim).enqueue},
	{25, (*SharedSim).answer},
	{30, func(s *SharedSim) { s.goOn(s.rnd.Int64N(int64(30 * time.Millisecond))) }},
	{8, func(s *SharedSim) { s.goOn(s.rnd.Int64N(int64(time.Second))) }},
	{2, func(s *SharedSim) { s.goOn(s.rnd.Int64N(int64(15 * time.Second))) }},
	{4, func(s *SharedSim) { key := s.anyKey(); s.broken[key] = !s.broken[key] }},
	{6, func(s *SharedSim) { s.anyFila().CommitAll() }},
	{1, func(s *SharedSim) { s.anyFila().link.cut() }},
	{3, func(s *SharedSim) { s.anyFila().link.mend() }},
	{1, func(s *SharedSim) { s.anyFila().link.slow = true }},
	{1, func(s *SharedSim) { s.anyFila().link.mute = 1 }},
	{2, (*SharedSim).operate},
	{1, (*SharedSim).restart},
	{1, func(s *SharedSim) {
		if s.chance(5) {
			s.bucket.clear()
		}
	}},
}

// Play makes n random actions, and checks everything after each.
func (s *SharedSim) Play(steps int) {
	s.T.Helper()
	for range steps {
		oneOf(s.rnd, sharedActions).do(s)
		s.settle()
	}
}

func (s *SharedSim) enqueue() {
	f := s.anyFila()
	r := f.Rigs[s.rnd.IntN(len(f.Rigs))]
	for range 1 + s.rnd.IntN(3) {
		key := s.anyKey()
		m := r.Message(fmt.Sprint("k", s.rnd.IntN(3)), func(m *store.Message) { m.CircuitKey = key })
		m.ID[1] = f.link.name[0] // filas do not know each other's ids
		s.keys[m.ID] = key
		r.Accept(m)
	}
}

// answer answers some of the deliveries, as their destinations do.
func (s *SharedSim) answer() {
	f := s.anyFila()
	for range 1 + s.rnd.IntN(3) {
		if len(f.flights) == 0 {
			return
		}
		i := s.rnd.IntN(len(f.flights))
		s.respond(f, i, s.chance(20))
	}
}

func (s *SharedSim) respond(f *fila, i int, asksForTime bool) {
	fl := f.flights[i]
	f.flights = slices.Delete(f.flights, i, i+1)
	a := wire.Ack{Kind: wire.AckDone}
	if s.broken[fl.key] || asksForTime {
		a = wire.Ack{Kind: wire.AckNack, HasDelay: true, Delay: time.Duration(s.rnd.IntN(1000)) * time.Millisecond}
		if asksForTime {
			a.RetryAfter = time.Duration(1+s.rnd.IntN(2000)) * time.Millisecond
		}
	}
	s.trace("%s is answered %s: failed %v", f.link.name, fl.key, a.Kind == wire.AckNack)
	fl.rig.Post(queue.Input{Kind: queue.Acked, Role: fl.Role, Token: fl.Token, Ack: a})
}

// operate makes a random request of an operator at some fila.
func (s *SharedSim) operate() {
	f, key := s.anyFila(), s.anyKey()
	until := int64(math.MaxInt64)
	if s.chance(2) {
		until = f.Now + s.rnd.Int64N(int64(5*time.Second))
	}
	switch s.rnd.IntN(5) {
	case 0:
		f.Circuits.Open(key, until, "")
	case 1:
		f.Circuits.Close(key, s.chance(2))
	case 2:
		f.PauseCircuit(key, until)
	default:
		f.PauseCircuit(key, 0)
	}
}

// restart ends a fila, and begins its next process.
func (s *SharedSim) restart() {
	f := s.anyFila()
	s.Seen.Restarts++
	crash := s.chance(2)
	s.trace("%s restarts, crash %v", f.link.name, crash)
	f.flights = nil // nobody hears of them any more
	if crash {      // with what was not on disk yet
		clear(f.told)
	} else {
		f.link.goodbye()
	}
	f.Restart(crash, 0)
	for _, r := range f.Rigs {
		f.consume(r)
	}
	if f.link.tries = s.rnd.IntN(4); s.chance(4) {
		f.link.cut()
	}
	f.link.retry()
}

// Drain ends all faults: every message has to be delivered, and all filas have to agree.
func (s *SharedSim) Drain() {
	s.T.Helper()
	s.trace("the trouble is over")
	for _, key := range sharedKeys {
		s.broken[key] = false
	}
	for _, f := range s.filas {
		f.link.mend()
	}
	s.goOn(int64(20 * time.Second)) // the dead are known, all have joined
	for _, key := range sharedKeys {
		for _, f := range s.filas {
			f.PauseCircuit(key, 0)
		}
	}
	left := 0
	for range 2000 {
		left = 0
		for _, f := range s.filas {
			for len(f.flights) > 0 {
				s.respond(f, 0, false)
			}
			f.CommitAll()
			for _, r := range f.Rigs {
				left += int(r.Depth[queue.Main])
			}
		}
		s.settle()
		if left == 0 {
			break
		}
		s.goOn(int64(50 * time.Millisecond))
	}
	require.Zero(s.T, left, "messages do not go: %s", s.stands())
	s.goOn(int64(5 * time.Second)) // unused permits are given back
	for _, key := range sharedKeys {
		first, _ := s.filas[0].Circuits.Info(key)
		for _, f := range s.filas {
			info, known := f.Circuits.Info(key)
			require.False(s.T, info.Degraded, "%s is alone with %s", f.link.name, key)
			require.True(s.T, !known || info.State != breaker.Open.String(), "%s is open: %s", key, s.stands())
			if known && first.Key != "" {
				require.Equal(s.T, first.State, info.State, "%s: %s", key, s.stands())
			}
		}
	}
}

// stands returns what all filas know of the circuits.
func (s *SharedSim) stands() string {
	var b strings.Builder
	for _, key := range sharedKeys {
		fmt.Fprintf(&b, "\n%s in the bucket: %s", key, s.bucket.entries[circuitPrefix+key].Value)
		for _, f := range s.filas {
			info, _ := f.Circuits.Info(key)
			fmt.Fprintf(&b, "\n%s, joined %v, clock %v ahead: %+v", f.link.name, f.link.joined, time.Duration(f.Now-s.bucket.now), info)
		}
	}
	return b.String()
}
