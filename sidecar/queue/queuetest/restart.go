package queuetest

import (
	"cmp"
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/breaker"
	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/sidecar/queue/inspect"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/throttle"
	"github.com/filaq/fila/throttle/adapt"
	"github.com/filaq/fila/throttle/budget"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// restart ends the process, by a clean stop or a crash, and starts the next one. At a crash a part
// of the submitted batches may be on disk without having been reported.
func (s *Sim) restart() {
	down := pick(s, []int64{0, 1e6, 1e9, 20e9})
	if s.back && s.chance(3) {
		down = -down
		s.exact = false
	}
	s.stopAndStart(s.chance(2), down)
}

func (s *Sim) stopAndStart(crash bool, down int64) {
	s.Run()
	if crash {
		for range s.rnd.IntN(len(s.Disk.waiting) + 1) {
			s.Disk.write() //nolint:errcheck // nobody is there to be told
		}
		for _, g := range s.gates {
			g.crash()
		}
	}
	for _, n := range s.nodes {
		n.finishing = true
		if n.settings.PerKey != nil {
			n.Rig.Settings.PerKey = newKeyCount()
		}
	}
	s.Restart(crash, time.Duration(down))
	s.clock.at += max(0, s.Now-s.clock.last)
	s.clock.last = s.Now
	for _, g := range s.gates {
		g.learn.restart(crash)
		g.budget.loose = true
	}
	s.seeLimits()
	s.showTime()
	if !crash {
		for subject, a := range s.asks {
			if a.kind != askFail || a.m == nil || a.m.place != judged {
				require.Fail(s.T, "nobody was answered before the end", "%s: %+v", subject, *a)
			}
		}
	}
	clear(s.asks)
	for _, n := range s.nodes {
		n.reopen()
	}
	s.readDisk(crash)
	s.readCircuits(crash)
	s.holdAgain()
	s.Run()
}

func (s *Sim) count(p place) (n int) {
	for _, m := range s.all {
		if m.place == p {
			n++
		}
	}
	return n
}

// reopen resets the model of a machine.
func (n *node) reopen() {
	n.finishing, n.dispatching, n.picking, n.picks, n.handling = false, false, false, nil, false
	n.pre = nil
	n.later(func() { n.dispatching = true })
	n.settings = n.Rig.Settings
	n.failures = make(map[string]*failureModel)
	n.grace = n.Now + 60e9
	for _, side := range n.sides {
		side.seq = 0
		side.fair = fairModel{}
		clear(side.clients)
		clear(side.starves)
	}
}

// keptOfSchedules are the messages of schedules whose entry is on disk.
func (s *Sim) keptOfSchedules() map[store.ID]bool {
	snap, err := s.Disk.Snapshot()
	require.NoError(s.T, err)
	keys := make(map[string]bool, len(snap.Config))
	for _, e := range snap.Config {
		keys[e.Key] = true
	}
	kept := make(map[store.ID]bool)
	for id, m := range s.byID {
		if m.scheduled && keys[scheduledKey(id)] {
			kept[id] = true
		}
	}
	return kept
}

// readDisk sets the model to the contents of the disk, and checks what was confirmed.
func (s *Sim) readDisk(crash bool) {
	messages, states, _ := s.Disk.Stored()
	kept := s.keptOfSchedules()
	found := make(map[store.ID]bool)
	was := make(map[*message]*flight)
	for _, m := range s.all {
		was[m], m.flight = m.flight, nil
	}
	for _, g := range s.gates {
		g.inFlight = 0
	}
	owner := make(map[store.QueueID]*node)
	for _, n := range s.nodes {
		owner[n.IDs[queue.Main]], owner[n.IDs[queue.Dead]] = n, n
	}
	refs := slices.SortedFunc(maps.Keys(messages), func(a, b store.Ref) int {
		return cmp.Or(cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.Seq, b.Seq))
	})
	var all []*message
	for _, ref := range refs {
		msg, state := messages[ref], states[ref]
		m := s.byID[msg.ID]
		require.NotNil(s.T, m, "an unknown message on disk")
		require.False(s.T, found[msg.ID], "%s: it is on disk twice", m)
		found[msg.ID] = true
		require.True(s.T, crash || m.place != gone, "%s: it is finished and comes back after an orderly stop", m)
		require.Equal(s.T, m.scheduled, kept[m.id], "%s: a message of a schedule is on disk with what is kept of it", m)
		n := owner[ref.Queue]
		require.Same(s.T, m.node, n)
		side := queue.Main
		if ref.Queue == n.IDs[queue.Dead] {
			side = queue.Dead
		}
		if m.going != nil && ref == m.going.Message.Ref {
			m.hurried = hurry{} // a job has put it elsewhere meanwhile
		}
		if side == m.side {
			require.GreaterOrEqual(s.T, max(state.Attempts, msg.Attempts), m.least, "%s: a confirmed nack is lost", m)
		} else {
			m.least, m.hurried = 0, hurry{}
		}
		if h := m.hurried; h.at != 0 && h.attempts == state.Attempts && state.Lease.ID == 0 { // otherwise it was delivered since
			require.True(s.T, state.ReadyAt != 0 && state.ReadyAt <= h.at, "%s: the end of its delay is lost", m)
		}
		if f := was[m]; f != nil && f.known != 0 {
			require.Equal(s.T, f.lease, state.Lease.ID, "%s: a confirmed extension is lost", m)
			require.Contains(s.T, f.extended[f.known-1:], state.Lease.Deadline, "%s: a confirmed extension is lost", m)
		}
		at := s.checkHistory(m, ref, !crash)
		m.past = historyModel{records: m.past.records[:at], kept: at}
		n.recovered(m, side, &msg, &state)
		require.True(s.T, crash || was[m] == nil || m.flight == was[m], "%s: an orderly stop keeps what is leased", m)
		all = append(all, m)
	}
	s.checkBatches(found)
	for _, m := range s.all {
		if !found[m.id] {
			known := m.confirmed || kept[m.id]
			require.True(s.T, m.place == gone || crash && !known, "%s: it is lost, and was confirmed %v, or kept %v", m, m.confirmed, kept[m.id])
			m.place = gone
		}
	}
	s.all = all
	snap, err := s.Disk.Snapshot()
	require.NoError(s.T, err)
	for _, rec := range snap.Consumers {
		s.arrivals++
		n := owner[rec.Queue]
		side := slices.Index(n.IDs[:], rec.Queue)
		n.sides[side].clients[rec.Name] = &client{
			name: rec.Name, limit: int(rec.MaxInFlight), expires: rec.ExpiresAt, form: rec.Form, reg: s.arrivals, restored: true,
		}
	}
}

// checkBatches checks that all messages of an atomic batch that are not finished are on disk, or
// none of them.
func (s *Sim) checkBatches(found map[store.ID]bool) {
	lost, left := make(map[int]bool), make(map[int]bool)
	for _, m := range s.all {
		if m.batch == 0 {
			continue
		}
		if found[m.id] {
			left[m.batch] = true
		} else if m.place != gone {
			lost[m.batch] = true
		}
	}
	for batch := range lost {
		require.False(s.T, left[batch], "a part of batch %d is lost", batch)
	}
}

// recovered places a message by its record on disk.
func (n *node) recovered(m *message, side queue.Role, msg *store.Message, state *store.State) {
	s := n.s
	m.classify(msg.Class)
	m.redriven = m.redriven || m.side == queue.Dead && side == queue.Main
	m.attempts, m.expires, m.submitted, m.pass, m.back = max(state.Attempts, msg.Attempts), msg.ExpiresAt, true, 0, 0
	if m.going != nil {
		m.own, m.going = true, nil // it may have got to the end
	}
	m.failed = m.attempts > 0
	if m.place == stuck || m.place == gone { // others of its key have gone meanwhile, or settings have changed
		m.exempt = true
		for _, o := range s.all {
			o.exempt = o.exempt || o.node == n && o.Key == m.Key
		}
	}
	n.sides[side].seq = max(n.sides[side].seq, msg.Seq)
	n.arrive(m, side, msg.Seq)
	m.ready = 0
	switch {
	case state.Lease.ID != 0:
		f := s.flights[state.Lease.ID]
		require.NotNil(s.T, f, "%s: a lease that nobody was given", m)
		require.Same(s.T, m, f.m)
		require.Equal(s.T, f.attempt, m.attempts+1)
		f.deadline, f.went, f.pass, f.reg = state.Lease.Deadline, nil, 0, 0
		m.place, m.flight = leased, f
		for _, k := range f.by.throttles {
			s.gate(k).inFlight++
		}
	case m.attempts > msg.Attempts:
		if state.ReadyAt > n.Now {
			m.ready = state.ReadyAt
		}
	case msg.Delayed || msg.NotBefore > msg.EnqueuedAt:
		if at := cmp.Or(state.ReadyAt, msg.NotBefore); at > n.Now {
			m.ready, m.own = at, true
		}
	}
}

// circuitRecord is the stored state of a circuit.
type circuitRecord struct {
	Cause      string `json:"cause"`
	HalfOpen   bool   `json:"half_open"`
	Failures   int    `json:"failures"`
	OpenUntil  int64  `json:"open_until"`
	ThenClosed bool   `json:"then_closed"`
}

// readCircuits sets the models of circuits to the contents of the disk. An orderly stop keeps
// what is open.
func (s *Sim) readCircuits(crash bool) {
	open := make(map[string]int64)
	for key, c := range s.circuits {
		if !crash && s.exact && c.state == breaker.Open && c.until > s.Now {
			open[key] = c.until
		}
		*c = circuitModel{cfg: c.cfg, gen: c.gen + 1}
	}
	snap, err := s.Disk.Snapshot()
	require.NoError(s.T, err)
	for _, e := range snap.Config {
		key, ok := strings.CutPrefix(e.Key, "\x00circuit/")
		if !ok {
			continue
		}
		var rec circuitRecord
		require.NoError(s.T, json.Unmarshal([]byte(e.Value), &rec))
		c := s.circuit(key)
		c.state, c.failures, c.until, c.thenClose, c.byHand = breaker.Open, rec.Failures, rec.OpenUntil, rec.ThenClosed, rec.Cause == "by hand"
		if rec.HalfOpen {
			c.until, c.thenClose = s.Now, false
		}
	}
	for key, until := range open {
		c := s.circuit(key)
		require.True(s.T, c.state == breaker.Open && c.until == until, "circuit %s: an orderly stop keeps that it is open", key)
	}
}

// holdAgain restores the pauses and weights of operators.
func (s *Sim) holdAgain() {
	s.eachPause(func(until int64, pause func(until int64)) {
		switch {
		case until > s.Now:
			pause(until)
		case until != 0:
			pause(0)
		}
	})
	for _, n := range s.nodes {
		for side := range queue.Roles {
			model := n.sides[side]
			for _, key := range slices.Sorted(maps.Keys(model.overrides)) {
				weight := model.overrides[key]
				n.tell(side, queue.Weigh{Key: key, Weight: weight}, func() { n.weighed(side, key, weight) })
			}
		}
	}
}

// eachPause visits everything that may be paused, with the end of its pause; 0: it is not.
func (s *Sim) eachPause(visit func(until int64, pause func(until int64))) {
	for _, key := range slices.Sorted(maps.Keys(s.gates)) {
		visit(s.gates[key].paused, func(until int64) { s.pauseThrottle(key, until) })
	}
	for _, key := range slices.Sorted(maps.Keys(s.circuits)) {
		visit(s.pauses[key], func(until int64) { s.pauseCircuit(key, until) })
	}
	for _, n := range s.nodes {
		for side := range queue.Roles {
			model := n.sides[side]
			visit(model.paused, func(until int64) { s.pauseQueue(n, side, until) })
			for _, key := range slices.Sorted(maps.Keys(model.keys)) {
				visit(model.keys[key], func(until int64) { s.pauseKey(n, side, key, until) })
			}
		}
	}
}

// Drain lets every gate open and every message finish, by timers alone, and checks that nothing is
// left.
func (s *Sim) Drain() {
	s.T.Helper()
	s.Disk.Refuse = nil
	s.Commit()
	if s.count(stuck) > 0 {
		s.stopAndStart(false, 0)
	}
	s.vanished = make(map[string]bool)
	last := throttle.Limits{Rate: throttle.PerSecond(20_000), Burst: 2000, Limit: 4, Window: 2e8, Concurrency: 2}
	if s.learns {
		last.Adapt = adapt.Settings{Min: throttle.One, Backoff: 500}
	}
	if s.spends {
		last.Budget = budget.Terms{Amount: 20 * throttle.One, Period: budget.Period{Unit: budget.Hour}}
	}
	for i := range throttleKeys {
		s.setLimit(throttleKey(i), last)
	}
	for _, n := range s.nodes {
		n.tell(queue.Main, queue.Dispatch{On: true}, func() { n.dispatching = true })
		for side := range queue.Roles {
			s.register(n, side, "last", 50, 0)
		}
		for _, claimed := range n.picks {
			s.decide(n, claimed, func() fate { return stays })
		}
		n.picks = nil
	}
	s.resumeAll()
	s.Commit()
	most, rounds := 200+20*len(s.all), 0
	for len(s.all) > 0 {
		for s.endAll() {
			s.Commit()
			s.check()
		}
		if len(s.all) == 0 {
			break
		}
		s.resumeAll()
		s.Commit()
		if len(s.open) > 0 {
			continue
		}
		if !s.toNextTimer() {
			require.Fail(s.T, "messages are left, and nobody waits for anything", "%s", s.left())
		}
		s.Commit()
		s.check()
		rounds++
		require.LessOrEqual(s.T, rounds, most, "a machine polls: %s", s.left())
	}
	for _, n := range s.nodes {
		for side := range queue.Roles {
			for _, c := range sortedClients(n.sides[side].clients) {
				if c.fetch {
					continue
				}
				n.tell(side, queue.Leave{Consumer: c.name}, func() { delete(n.sides[side].clients, c.name) })
			}
		}
	}
	s.Commit()
	for range 3 {
		s.goOn(int64(24 * time.Hour))
		s.Commit()
	}
	s.empty()
}

// resumeAll ends all pauses.
func (s *Sim) resumeAll() { s.eachPause(func(_ int64, pause func(until int64)) { pause(0) }) }

// endAll acks all leased messages and judges all failed ones. It reports whether there were any.
func (s *Sim) endAll() bool {
	open := s.open
	s.open = nil
	for i := range open {
		s.say(&open[i], wire.Ack{Kind: wire.AckDone})
	}
	more := len(open) > 0
	for _, n := range s.nodes {
		for len(n.Judge) > 0 {
			s.judge(n, 0, queue.Verdict{})
			more = true
		}
	}
	s.Run()
	return more
}

func (s *Sim) left() string {
	var b strings.Builder
	for _, m := range s.all {
		b.WriteString(m.String() + "\n" + s.gateText(m))
	}
	for _, n := range s.nodes {
		b.WriteString(n.short())
	}
	return b.String()
}

// empty checks that nothing is left.
func (s *Sim) empty() {
	s.check()
	require.Empty(s.T, s.asks, "a request was not answered")
	for _, n := range s.nodes {
		require.Equal(s.T, [queue.Roles]int64{}, n.Depth)
		require.Equal(s.T, [queue.Roles]int64{}, n.Bytes)
		require.Zero(s.T, n.Uncommitted)
		for side := range queue.Roles {
			m := n.M.Inspect(side).Stats(s.Now)
			require.Equal(s.T, inspect.Stats{}, m, n.sideName(side))
		}
	}
	messages, states, _ := s.Disk.Stored()
	require.Empty(s.T, messages)
	require.Empty(s.T, states)
	var configured []string
	for i := range throttleKeys {
		if key := throttleKey(i); s.gate(key).limits != (throttle.Limits{}) {
			configured = append(configured, key)
		}
	}
	for i := range throttleKeys {
		s.Gates.Look(throttleKey(i), s.Now) // forgets it, unless a queue needs it
	}
	require.Equal(s.T, configured, s.Gates.Page("", "", 0, math.MaxInt).Keys)
	for _, key := range configured {
		i := s.Fleet.gate(key)
		require.Zero(s.T, i.InFlight+i.Reserved+int64(i.Waiting), "%s: %+v", key, i)
	}
	infos, _, _ := s.Circuits.List(api.CircuitListRequest{KeyListRequest: api.KeyListRequest{Limit: 100}})
	for _, i := range infos {
		require.Zero(s.T, i.Waiting+i.Probes, i.Key)
	}
	for _, m := range s.byID {
		require.Equal(s.T, gone, m.place, "%s", m)
	}
}
