package queuetest

import (
	"fmt"
	"slices"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/sidecar/queue/gates"
	"github.com/filaq/fila/sidecar/queue/inspect"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/throttle"
	"github.com/filaq/fila/wire"
)

// Checks between steps, when nothing is left to do at the moment.

// checkSafe checks what has been confirmed about a message: an enqueue is on disk,
// or finished; a finished one is not on disk.
func (s *Sim) checkSafe(m *message) {
	switch live := s.Disk.Live[m.id]; {
	case live > 1:
		require.Fail(s.T, "it is on disk twice", "%s", m)
	case m.finished && live > 0:
		require.Fail(s.T, "it is finished, which was confirmed, and still on disk", "%s", m)
	case m.confirmed && m.place != gone && live == 0:
		require.Fail(s.T, "its enqueue is confirmed, and it is neither on disk nor finished", "%s", m)
	}
}

// check checks all machines between steps.
func (s *Sim) check() {
	for _, m := range s.all {
		s.checkSafe(m)
	}
	for _, n := range s.nodes {
		require.Greater(s.T, n.wakeAt, n.mono, "%s: it would be stepped for ever", n.Name)
		for side := range queue.Roles {
			n.checkViews(side)
		}
		n.checkAccounts()
		s.Inspect(n.M, !s.exact || !s.plain && len(s.nodes) > 1)
	}
	s.checkGates()
	s.checkStuck()
}

// checkViews compares the views of a machine with the model.
func (n *node) checkViews(side queue.Role) {
	t, now, model := n.T, n.Now, n.sides[side]
	byID := make(map[store.ID]*inspect.MessageView)
	views := n.Peek(side)
	for i := range views {
		byID[views[i].ID] = &views[i]
	}
	var ready, live, flying, judging, away int64
	byKey := make(map[string]int64)
	var parked [gates.BlockKinds]int64
	for _, m := range n.s.all {
		if m.node != n || m.side != side || m.place == posted || m.place == stuck || m.place == moving && !m.settles() {
			continue
		}
		byKey[m.Key]++
		live++
		if !m.here() {
			away++
			require.Nil(t, byID[m.id], "%s: shown although it is on its way", m)
			continue
		}
		v := byID[m.id]
		if v == nil {
			require.Fail(t, "it is not shown", "%s", m)
			return
		}
		delete(byID, m.id)
		ok := v.Seq == m.seq && v.Key == m.Key && v.Attempt == m.attempts+1 && v.Cost == m.Cost && v.ExpiresAt == m.expires
		switch m.place {
		case leased:
			flying++
			ok = ok && v.State == inspect.StateLeased && v.Consumer == m.flight.consumer && v.LeaseUntil == m.flight.deadline && v.LeaseUntil > now
		case judged:
			judging++
			ok = ok && v.State == inspect.StateFailing
		case waiting:
			if m.ready == 0 {
				ready++
				ok = ok && (v.State == inspect.StatePending || v.State == inspect.StateBlocked || v.State == inspect.StateOrdered)
				if v.State != inspect.StatePending {
					parked[v.By]++
				}
				if n.s.exact {
					n.checkWhy(m, v.WaitReason)
				}
			} else {
				ok = ok && v.State == inspect.StateDelayed && v.ReadyAt == m.ready
			}
			ok = ok && (m.expires == 0 || m.expires > now)
		default:
		}
		if !ok {
			require.Fail(t, "it is shown as another", "%s, place %d, ready in %d: %+v", m, m.place, m.ready-now, *v)
		}
	}
	for _, v := range byID {
		require.Fail(t, "a message that is not there is shown", "%s: %+v", n.sideName(side), *v)
	}
	m := n.M.Inspect(side).Stats(now)
	want := inspect.Stats{
		Pending: ready, Delayed: live - ready - flying - away, Moving: away, InFlight: flying, Consumers: len(model.clients),
		Blocked: m.Blocked, OldestAge: m.OldestAge, Flows: m.Flows, BlockedBy: parked,
	}
	if want != m {
		require.Equal(t, want, m, n.sideName(side))
	}
	sum := int64(0)
	for _, k := range m.BlockedBy {
		sum += k
	}
	require.Equal(t, m.Blocked, sum, "blocked by anything")
	for _, b := range n.M.Inspect(side).State(1000, now).Blocked {
		sum -= b.Messages
	}
	require.Zero(t, sum, "blocked somewhere")
	n.checkConsumers(side)
	n.checkKeys(side, byKey, &m)
}

func (n *node) checkConsumers(side queue.Role) {
	credit, away := 0, false
	want := []inspect.ConsumerView{}
	for _, c := range sortedClients(n.sides[side].clients) {
		k := n.credit(side, c)
		credit += k
		away = away || c.restored
		want = append(want, inspect.ConsumerView{
			Name: c.name, MaxInFlight: c.limit, InFlight: n.inFlight(side, c.name), Credit: k, Fetch: c.fetch, ExpiresAt: c.expires, Form: c.form,
		})
		if c.noWait || c.expires != 0 && c.expires <= n.Now {
			require.Fail(n.T, "it should have ended", "%+v", *c)
		}
	}
	if !n.s.exact && away {
		return // it may be left alone for longer
	}
	require.Equal(n.T, want, n.M.Inspect(side).Consumers(), n.sideName(side))
	v := n.M.Inspect(side).State(5, n.Now)
	require.Equal(n.T, credit, v.Credit, "credit of %s", n.sideName(side))
	if n.s.exact {
		paused := n.sides[side].paused
		if paused <= n.Now {
			paused = 0
		}
		require.Equal(n.T, paused, v.Paused)
	}
}

func (n *node) checkKeys(side queue.Role, byKey map[string]int64, m *inspect.Stats) {
	var blocked, pending, away int64
	for _, key := range []string{"a", "b", "c", plainKeys[0], plainKeys[1], plainKeys[2]} {
		v := n.M.Inspect(side).Key(key, n.Now)
		require.Equal(n.T, byKey[key] > 0, v.Known, "key %s", key)
		require.Equal(n.T, byKey[key], v.Pending+v.Blocked+v.InFlight+v.Delayed+v.Moving, "key %s", key)
		blocked += v.Blocked
		pending += v.Pending
		away += v.Moving
	}
	require.Equal(n.T, m.Blocked, blocked)
	require.Equal(n.T, m.Pending, blocked+pending)
	require.Equal(n.T, m.Moving, away)
}

// checkAccounts compares the counters of the owner with the model.
func (n *node) checkAccounts() {
	t := n.T
	var depth, bytes [queue.Roles]int64
	var uncommitted int64
	open := 0
	perKey := newKeyCount()
	counts, counting := n.settings.PerKey.(*keyCount)
	for _, m := range n.s.all {
		if m.node != n || m.place == stuck {
			continue
		}
		side := m.side
		if m.place == moving && !m.settles() {
			side = queue.Dead // counted there
		}
		depth[side]++
		bytes[side] += m.size
		if m.settles() {
			depth[queue.Main]++ // counted on both
			bytes[queue.Main] += m.size
		}
		if m.place == posted || m.side == queue.Main && !m.submitted {
			uncommitted += m.size
		}
		if m.place == leased || m.place == judged {
			open++
		}
		if m.going != nil && m.going.counted == counts && counting {
			perKey.Add(m.going.Message.Key, 1)
		}
		switch {
		case !counting:
		case m.side == queue.Main && m.placed(), m.counted == counts && (m.place == posted || m.place == moving && m.side == queue.Dead):
			perKey.Add(n.keyOf(m), 1)
		}
	}
	for _, b := range n.Disk.waiting {
		if b.rig == n.Rig {
			uncommitted += b.commit.Bytes
		}
	}
	require.Equal(t, depth, n.Depth, "messages of %s", n.Name)
	require.Equal(t, bytes, n.Bytes, "bytes of %s", n.Name)
	require.Equal(t, uncommitted, n.Uncommitted, "uncommitted bytes of %s", n.Name)
	require.Equal(t, open, n.M.Open(), "open of %s", n.Name)
	if counting {
		require.Equal(t, perKey.n, counts.n, "messages by key of %s", n.Name)
	}
}

// keyOf is the key under which m is counted on Main.
func (n *node) keyOf(m *message) string {
	if m.place == moving && m.side == queue.Dead {
		for _, b := range n.Disk.waiting {
			for i := range b.batch.Move {
				if mv := &b.batch.Move[i]; mv.To.ID == m.id {
					return mv.To.Key
				}
			}
		}
	}
	return m.Key
}

// checkGates compares gates and circuits with the model: messages in flight are the
// leased ones.
func (s *Sim) checkGates() {
	for i := range throttleKeys {
		key := throttleKey(i)
		info := s.Fleet.gate(key)
		if info.Reserved > 0 {
			info.InFlight--
		}
		require.Equal(s.T, s.gate(key).inFlight, info.InFlight, "in flight at %s", key)
		if m, b := &s.gate(key).budget, &info.Spending; b.Amount != 0 && b.Start/hour == m.hour && !m.loose && s.exact {
			require.Equal(s.T, m.used(), b.Used, "use of the budget of %s", key)
		}
	}
	if !s.exact {
		return
	}
	for key, c := range s.circuits {
		i, ok := s.Circuits.Info(key)
		if !ok {
			i.State = "closed"
		}
		require.Equal(s.T, c.shown(s.Now), fmt.Sprint(i.State, " with ", i.Probes, " probes"), "circuit %s", key)
	}
}

// checkStuck checks that something blocks each message that waits. It asks the gates
// whether they would admit the most expensive message that waits at them, which may be
// the next one.
func (s *Sim) checkStuck() {
	if !s.exact {
		return
	}
	for _, m := range s.all {
		n := m.node
		if !m.isReady() || !n.dispatching {
			continue
		}
		model, credit := n.sides[m.side], 0
		for _, c := range model.clients {
			credit += n.credit(m.side, c)
		}
		if credit == 0 || model.paused > s.Now || model.keys[m.Key] > s.Now || !n.inTurn(m) {
			continue
		}
		for _, w := range m.ways() {
			if (w.circuit == "" || s.circuit(w.circuit).admits(s.Now)) && s.admits(m, &w) {
				require.Fail(s.T, "a message waits although nothing holds it back", "%s\nby %+v\n%s%s", m, w, s.gateText(m), n.short())
			}
		}
	}
}

// short is the beginning of dump.
func (n *node) short() string {
	text := n.dump()
	return text[:min(len(text), 3000)]
}

// gateText describes the throttle keys of m.
func (s *Sim) gateText(m *message) (text string) {
	for _, k := range m.keys() {
		text += fmt.Sprintf("%+v\n", s.Fleet.gate(k))
	}
	return text + fmt.Sprintf("at %d, the next step is in %s\n", s.Now-Start, s.Next())
}

// admits reports whether all throttle keys of a way would admit m, and everything else that waits
// for one of them, too.
func (s *Sim) admits(m *message, w *way) bool {
	cost := max(int64(m.Cost), throttle.One) // gates are looked at when they admit a cost of 1
	for _, o := range s.all {
		if o.place == waiting && slices.ContainsFunc(w.throttles, o.mayPass) {
			cost = max(cost, int64(o.Cost))
		}
	}
	set, err := s.Gates.Set(w.throttles, s.Now)
	require.NoError(s.T, err)
	defer s.Gates.Close(set, s.Now)
	_, ok := set.Check(s.Now, cost, nil)
	return ok
}

// inTurn reports whether the order of its key lets m go.
func (n *node) inTurn(m *message) bool {
	if !n.ordered() || m.side == queue.Dead {
		return true
	}
	for _, o := range n.s.all {
		if o.node != n || o.side != m.side || o.Key != m.Key || o == m || !o.placed() {
			continue
		}
		switch {
		case o.place != waiting: // a job that moves it holds the key until that is done
			return false
		case n.settings.OnBlocked != wire.OnBlockedSkip && (o.seq < m.seq || o.failed || o.exempt || m.exempt || m.own):
			return false // it may own the key
		case o.seq < m.seq && o.lane == m.lane:
			return false
		}
	}
	return true
}
