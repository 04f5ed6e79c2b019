package queuetest

import (
	"fmt"
	"slices"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/sidecar/queue/history"
	"github.com/filaq/fila/sidecar/queue/inspect"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
)

// after compares the effects of a step with the model.
func (s *Sim) after(r *Rig, out *queue.Effects) {
	n := s.byRig[r]
	if s.Trace != nil {
		s.Trace(r, out)
	}
	s.seeLimits()
	n.checkNotes(out)
	for _, c := range out.Commits {
		n.checkCommit(c)
	}
	for _, reason := range n.want.dead {
		require.Fail(s.T, "a message should have become a dead letter", reason)
	}
	var went []*flight
	for i := range out.Publish {
		switch d := &out.Publish[i]; d.Kind {
		case queue.DeliverMessage:
			n.deliver(d)
			went = append(went, n.s.flights[d.Token.Lease])
			n.sides[d.Role].served[d.Key] = s.Now
			s.open = append(s.open, *d)
		case queue.DeliverStatus:
			n.checkStatus(d)
		case queue.DeliverReply:
		}
	}
	n.checkRoutes(went)
	for i := range out.Judge {
		f := out.Judge[i]
		want, ok := n.want.judge[f.ID]
		f.Fresh = nil
		if !ok || want != f {
			require.Equal(s.T, want, f, "a failure to be judged")
		}
		delete(n.want.judge, f.ID)
	}
	require.Empty(s.T, n.want.judge, "failures that are not judged")
	counters := out.Counters
	for side := range counters {
		counters[side].Blocked = n.want.counters[side].Blocked // the model has messages, not subqueues
	}
	if n.want.counters != counters {
		require.Equal(s.T, n.want.counters, counters, "counters")
	}
	n.checkRefusals(out)
	n.checkClaimed(out)
	n.checkHandled(out)
	for side, model := range n.sides {
		if model.seq != n.M.LastSeq(queue.Role(side)) {
			require.Equal(s.T, model.seq, n.M.LastSeq(queue.Role(side)), "sequence of %s", n.sideName(queue.Role(side)))
		}
	}
	if len(out.Publish) > 4*1024 || len(out.Commits) > 4*1024 {
		require.Fail(s.T, "a step without bounds", "%d deliveries, %d commits", len(out.Publish), len(out.Commits))
	}
	s.all = slices.DeleteFunc(s.all, func(m *message) bool { return m.place == gone })
}

func (n *node) checkNotes(out *queue.Effects) {
	var notes, held []string
	for _, note := range out.Notes {
		switch note.Kind {
		case queue.NoteJoined:
			notes = append(notes, fmt.Sprint("joined ", note.Role, " ", note.Consumer, " ", note.MaxInFlight))
		case queue.NoteLeft: // the answer to Leave says the same
		case queue.NoteLost:
			notes = append(notes, fmt.Sprint("lost ", note.Role, " ", note.Consumer, " ", note.Reason, " ", note.InFlight))
		case queue.NoteMoveFailed:
			notes = append(notes, fmt.Sprintf("stuck %x", note.ID))
		case queue.NoteKeyPaused:
			held = append(held, fmt.Sprint(note.Key, " until ", note.Until))
			if !n.s.exact && n.sides[queue.Main].keys[note.Key] < note.Until {
				n.holdKey(queue.Main, note.Key, note.Until)
			}
		case queue.NoteStarved:
			n.checkStarved(&note)
		case queue.NoteNoisy: // what it goes by is too large for a simulation
		default:
			require.Fail(n.T, "a note too early, or one of its own", "%+v", note)
		}
	}
	slices.Sort(notes)
	slices.Sort(n.want.notes)
	if !slices.Equal(n.want.notes, notes) {
		require.Equal(n.T, n.want.notes, notes, "notes")
	}
	slices.Sort(held)
	slices.Sort(n.want.held)
	if n.s.exact && !slices.Equal(n.want.held, held) {
		require.Equal(n.T, n.want.held, held, "keys that have failed too often")
	}
}

// checkStarved checks a note about a key that starves, or no longer does.
func (n *node) checkStarved(note *queue.Note) {
	side, key := n.sides[note.Role], note.Key
	require.NotEqual(n.T, note.Began, side.starves[key], "%s: told twice", key)
	side.starves[key] = note.Began
	if note.Began && n.s.exact {
		require.GreaterOrEqual(n.T, n.Now-side.served[key], n.settings.StarveAfterMs*1e6, "%s is not starving", key)
	}
}

// checkCommit checks a commit before it is written.
func (n *node) checkCommit(c *queue.Commit) {
	require.Len(n.T, c.Confirm, len(c.Add))
	bytes := int64(0)
	for i := range c.Add {
		m := n.s.byID[c.Add[i].ID]
		require.NotNil(n.T, m, "an unknown message is written")
		if m.going != nil && m.going.Message.Ref == c.Add[i].Ref {
			n.checkEdits(c, i, m)
			continue
		}
		require.False(n.T, m.submitted, "%s: written twice", m)
		require.Equal(n.T, m.seq, c.Add[i].Seq)
		m.submitted = true
		bytes += m.size
	}
	require.Equal(n.T, bytes, c.Bytes)
	defer n.checkHistories(c)
	for i := range c.Move {
		mv := &c.Move[i]
		m := n.s.byID[mv.To.ID]
		require.NotNil(n.T, m, "an unknown message is moved")
		n.s.refs[mv.To.Ref] = m
		if mv.To.Dead == nil {
			require.Equal(n.T, store.Ref{Queue: n.IDs[m.side], Seq: m.seq}, mv.From)
			require.Same(n.T, n, c.Ticket)
			if m.side == queue.Main {
				continue
			}
			m.past.expect(history.AttemptRecord{Outcome: wire.AttemptRedriven, At: n.Now})
			continue
		}
		reason, ok := n.want.dead[m.id]
		require.True(n.T, ok, "%s becomes a dead letter: %s", m, mv.To.Dead.Reason)
		delete(n.want.dead, m.id)
		require.Equal(n.T, reason, mv.To.Dead.Reason, "%s", m)
		require.Equal(n.T, m.attempts, mv.To.Dead.Attempts)
		require.Equal(n.T, store.Ref{Queue: n.IDs[queue.Main], Seq: m.seq}, mv.From)
		require.Equal(n.T, m.Key, mv.To.Key)
		n.sides[queue.Dead].seq++
		require.Equal(n.T, store.Ref{Queue: n.IDs[queue.Dead], Seq: n.sides[queue.Dead].seq}, mv.To.Ref)
	}
}

// checkEdits checks a message that a job has edited: the batch also removes its old record, and
// keeps its history.
func (n *node) checkEdits(c *queue.Commit, i int, m *message) {
	a := &c.Add[i]
	require.True(n.T, m.going.Edited, "%s is written twice", m)
	require.Equal(n.T, m.going.Message.Ref, a.Ref)
	require.Contains(n.T, c.Finish, store.Ref{Queue: n.IDs[m.side], Seq: m.seq})
	var past [][]byte
	for _, h := range c.History {
		if h.Ref == a.Ref {
			past = append(past, h.Record)
		}
	}
	require.Equal(n.T, m.going.History, past)
	n.s.refs[a.Ref] = m
}

func (n *node) checkStatus(d *queue.Delivery) {
	side := n.sides[d.Role]
	c := side.clients[d.Subject]
	if c == nil || !c.fetch {
		require.Fail(n.T, "a status for nobody", d.Subject)
		return
	}
	switch {
	case d.Status == "404" && c.noWait:
	case d.Status == "408" && !c.noWait && c.expires <= n.Now:
	case d.Status == "408" && n.finishing:
	default:
		require.Fail(n.T, "another status", "%s: %s", d.Subject, d.Status)
	}
	delete(side.clients, c.name)
}

func (n *node) checkRefusals(out *queue.Effects) {
	var refused []string
	for _, r := range out.Refuse {
		require.Equal(n.T, wire.LeaseLost(), r.Err)
		refused = append(refused, r.Confirm.Subject)
	}
	if !slices.Equal(n.want.refused, refused) {
		require.Equal(n.T, n.want.refused, refused, "refusals")
	}
}

func (n *node) checkClaimed(out *queue.Effects) {
	require.Equal(n.T, n.want.pick, out.Claimed != nil)
	if out.Claimed == nil {
		return
	}
	var claimed []uint64
	for _, l := range out.Claimed.Messages {
		claimed = append(claimed, l.Seq)
		m := n.s.byID[l.Message.ID]
		require.Equal(n.T, m.seq, l.Seq)
		require.Equal(n.T, m.size, l.Size)
		require.Equal(n.T, m.Key, l.Message.Key)
	}
	require.Equal(n.T, n.want.claimed, claimed, "dead letters that were claimed")
	if len(claimed) > 0 {
		n.picks = append(n.picks, out.Claimed.Messages)
	}
}

// checkHandled checks the answer to an operator.
func (n *node) checkHandled(out *queue.Effects) {
	want, got := n.want.handled, out.Handled
	require.Equal(n.T, want != nil, got != nil)
	if want == nil {
		return
	}
	if want.m == nil {
		require.Equal(n.T, want.Handled, *got, "a purge")
		return
	}
	require.Equal(n.T, want.Found, got.Found, "%s", want.m)
	if !want.Found {
		require.Zero(n.T, got.Done)
		return
	}
	waited := want.State == inspect.StateDelayed || want.State == inspect.StatePending
	switch got.State {
	case inspect.StateDelayed: // its time may have come, and the machine not know it yet
		require.True(n.T, waited, "%s", want.m)
	case inspect.StatePending, inspect.StateBlocked, inspect.StateOrdered:
		require.Equal(n.T, inspect.StatePending, want.State, "%s", want.m)
	default:
		require.Equal(n.T, want.State, got.State, "%s", want.m)
	}
	done := waited
	if want.hurrying {
		done = got.State == inspect.StateDelayed
	}
	require.Equal(n.T, done, got.Done == 1, "%s: %+v", want.m, *got)
}

// handledIsSafe notes what an operator knows when the ticket of a commit comes back.
func (s *Sim) handledIsSafe(c *queue.Commit) {
	h, ok := c.Ticket.(*byHand)
	if !ok {
		return
	}
	for _, m := range h.removed {
		m.finished = true
		s.checkSafe(m)
	}
	if h.m != nil && h.hurry.at != 0 && h.picks == h.m.picks { // otherwise it is ready since later
		h.m.hurried = h.hurry
	}
}

// done applies the outcome of a commit to the model.
func (s *Sim) done(r *Rig, c *queue.Commit, err error) {
	if err == nil {
		s.handledIsSafe(c)
	}
	n := s.byRig[r]
	if !slices.Contains(s.nodes, n) {
		return // its queue has been deleted
	}
	if err != nil && len(c.Move) == 0 {
		require.NoError(s.T, err)
	}
	s.historyIsSafe(c, err)
	for i := range c.Add {
		if m := s.byID[c.Add[i].ID]; m.going != nil && m.going.Message.Ref == c.Add[i].Ref {
			n.later(func() { n.lands(m) })
		}
	}
	for i := range c.Move {
		mv := c.Move[i]
		m := s.byID[mv.To.ID]
		n.later(func() {
			switch {
			case m.going != nil && mv.To.Dead == nil && err == nil:
				n.lands(m)
			case mv.To.Dead != nil && err == nil:
				m.attempts, m.ready, m.expires, m.back, m.hurried = 0, 0, 0, 0, hurry{}
				m.classify(mv.To.Class)
				m.own, m.failed, m.exempt, m.least = false, false, false, 0
				n.arrive(m, queue.Dead, mv.To.Seq)
			case mv.To.Dead != nil:
				t := n.counters(queue.Dead)
				t.Messages--
				t.Bytes -= m.size
				m.place = stuck
				n.want.notes = append(n.want.notes, fmt.Sprintf("stuck %x", m.id))
			case err == nil:
				n.counters(queue.Main).Redriven++
				n.drop(m)
				m.attempts, m.ready, m.back, m.hurried = 0, 0, 0, hurry{}
				m.classify(mv.To.Class)
				m.own, m.failed, m.exempt, m.least = true, false, false, 0
				m.redriven = true
				n.arrive(m, queue.Main, mv.To.Seq)
			default:
				t := n.counters(queue.Main)
				t.Messages--
				t.Bytes -= m.size
				m.going = nil
				n.stays(m)
			}
		})
	}
	if len(c.Move) == 0 {
		n.later(func() {})
	}
	s.expectLater(n, c)
}

// expectLater checks the notes of a commit.
func (s *Sim) expectLater(n *node, c *queue.Commit) {
	var dead []store.ID
	for i := range c.Move {
		if c.Move[i].To.Dead != nil {
			dead = append(dead, c.Move[i].To.ID)
		}
	}
	var told []store.ID
	for _, note := range c.Notes {
		require.Equal(s.T, queue.NoteDeadLettered, note.Kind)
		told = append(told, note.ID)
	}
	require.Equal(s.T, dead, told, "dead letters of %s are reported", n.Name)
}

// answered checks an answer.
func (s *Sim) answered(r *Rig, a Answer) {
	if a.Subject == "" || !slices.Contains(s.nodes, s.byRig[r]) {
		return
	}
	q := s.asks[a.Subject]
	if q == nil {
		require.Fail(s.T, "an answer that nobody waits for, or the second one", "%+v", a)
		return
	}
	delete(s.asks, a.Subject)
	if q.refused || a.Err != nil {
		unknown := a.Err != nil && a.Err.ErrCode == wire.OutcomeUnknown().ErrCode
		require.True(s.T, q.refused == (a.Err != nil) || unknown && q.m != nil, "%+v", a)
		return
	}
	switch q.kind {
	case askEnqueue, askDuplicate:
		want := queue.Reply{Kind: queue.ReplyEnqueued, Confirmation: queue.Confirmation{Subject: a.Subject}, ID: q.m.id}
		if q.kind == askDuplicate {
			want.Kind = queue.ReplyDuplicate
		}
		require.Equal(s.T, want, a.Reply)
		q.m.confirmed = true
		s.checkSafe(q.m)
		if q.m.dedupe {
			require.True(s.T, s.Disk.dedupes[fmt.Sprintf("dedupe-%x", q.m.id)], "%s: confirmed, and its dedupe id is not on disk", q.m)
		}
	case askFinish:
		require.Equal(s.T, queue.ReplyDone, a.Kind)
		q.m.finished = true
		s.checkSafe(q.m)
	case askFail:
		require.Equal(s.T, queue.ReplyDone, a.Kind)
		if q.m.side == queue.Main || q.m.place != moving {
			q.m.least = max(q.m.least, min(uint32(q.value), q.m.attempts))
		}
	case askProgress:
		require.Equal(s.T, queue.ReplyDone, a.Kind)
		q.f.known = max(q.f.known, int(q.value))
	case askMove:
		require.Equal(s.T, queue.ReplyDone, a.Kind)
		require.Equal(s.T, 1, s.Disk.Live[q.m.id])
	case askData:
		require.Equal(s.T, q.data, string(a.Data))
	}
}
