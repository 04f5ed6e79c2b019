package queue

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/drr"
	"github.com/filaq/fila/sidecar/queue/backlog"
	"github.com/filaq/fila/sidecar/queue/container"
	"github.com/filaq/fila/sidecar/queue/gates"
	"github.com/filaq/fila/wire"
)

// T is what *testing.T and *rapid.T have in common.
type T interface {
	require.TestingT
	Helper()
}

// Bounds of the work of one step.
const (
	DeliverPerStep   = deliverPerStep
	TimersPerStep    = timersPerStep
	MaxCommitBytes   = maxCommitBytes
	HoldAtMost       = holdAtMost
	PieceBytes       = pieceBytes
	MostBesideOthers = mostBesideOthers
	FailedMost       = failedMost
	FailedBeside     = failedBesideOthers
	LeaseExpired     = leaseExpired
)

// Leased reports whether a token names a lease in force.
func Leased(m *Queue, r Role, t wire.Token) bool { return m.sides[r].leased(t) != nil }

// Subqueues is the number of subqueues with gates of Main.
func Subqueues(m *Queue) (n int) {
	for i := range m.sides[Main].gates.Subs.Items {
		if sub := m.sides[Main].gates.Subs.At(gates.ID(i)); sub.Set != nil || sub.Circuit != nil {
			n++
		}
	}
	return n
}

// Expiring is the number of entries in the heap of ends of consumers.
func Expiring(m *Queue, r Role) int { return len(slices.Collect(m.sides[r].Consumers.Expiring.All())) }

// KeptUncommitted is how many messages are kept because they may not be on disk.
func KeptUncommitted(m *Queue) int { return len(m.journal.uncommitted.items) }

// Failed is how many bytes of failed attempts are under way.
func Failed(m *Queue) int64 { return m.journal.failed }

// AckTime is how long messages live on average (ns).
func AckTime(m *Queue) *int64 { return &m.journal.ackTime }

// Slot returns what the machine keeps of a message.
func Slot(m *Queue, r Role, seq uint64) *backlog.Slot { return m.sides[r].Slots.Get(seq) }

// Check checks all invariants. loose is as in gates.Check.
func Check(t T, m *Queue, now int64, loose bool) {
	t.Helper()
	for i := range m.sides {
		checkSide(t, &m.sides[i], now, loose)
	}
	checkJournal(t, m)
}

// CheckEmpty checks that nothing is left of what there was.
func CheckEmpty(t T, m *Queue) {
	t.Helper()
	for i := range m.sides {
		q := &m.sides[i]
		require.True(t, q.Empty(), "%s: the tables", q.name)
		require.True(t, q.gates.Empty(), "%s: the gates", q.name)
	}
}

func checkSide(t T, q *side, now int64, loose bool) {
	t.Helper()
	name := q.name
	require.NoError(t, q.Tables.Check(), name)
	require.NoError(t, q.gates.Check(now, loose), name)
	states := make(map[backlog.State]int64)
	for seq, s := range q.Slots.From(0) {
		at := fmt.Sprintf("%s, message %d, state %d", name, seq, s.State)
		states[s.State]++
		switch s.State {
		case backlog.Leased:
			le := q.Leases.Items[s.Ref]
			require.Equal(t, seq, le.Seq, at)
			require.NotZero(t, le.ID, at)
			require.GreaterOrEqual(t, le.Deadline, now, "%s: its lease has expired", at)
		case backlog.Delayed:
			require.Greater(t, s.ReadyAt, now, at)
		case backlog.Waiting, backlog.Ordered:
			require.Equal(t, seq, q.Links.Seq(s.Ref), at)
		case backlog.Failing:
			require.Equal(t, s.Attempts, q.failing[seq].record.Number, at)
		}
		if end := q.ExpiresAt(seq, s); end != 0 && s.State != backlog.Leased && s.State != backlog.Failing && s.State != backlog.Moving {
			require.Greater(t, end, now, "%s: its TTL is over", at)
		}
	}
	require.Equal(t, states[backlog.Waiting]+states[backlog.Ordered], q.Links.Len(), "%s: links", name)
	require.EqualValues(t, states[backlog.Leased], q.Leases.Live, "%s: leases", name)
	require.Len(t, q.failing, int(states[backlog.Failing]), "%s: failing", name)
	require.Len(t, q.Moving, int(states[backlog.Moving]), "%s: moving", name)
	require.EqualValues(t, states[backlog.Ordered], q.Order.Waiting, "%s: ordered", name)
	checkLists(t, q)
	checkOrder(t, q)
	if q.m.dispatching && q.Pauses.Until == 0 && !q.m.journal.behind() {
		idle := q.Sched.Active() == 0 || !q.Consumers.HasCredit()
		require.True(t, idle, "%s: messages wait although there is credit", name)
	}
	require.Empty(t, q.noWait, name)
}

// checkJournal checks that slots, the open commit and the messages kept for delivery
// before they are on disk agree.
func checkJournal(t T, m *Queue) {
	t.Helper()
	q, j := &m.sides[Main], &m.journal
	open, working := make(map[uint64]bool), 0
	for seq, s := range q.Slots.From(0) {
		if !s.Open {
			continue
		}
		open[seq] = true
		require.NotNil(t, j.uncommitted.get(seq), "%s, message %d: not on disk, and not in memory", q.name, seq)
		if s.State == backlog.Leased {
			working++
		}
	}
	require.Equal(t, working, j.working, q.name)
	waiting, waited, dropped, bytes := 0, 0, 0, int64(0)
	if c := j.open; c != nil {
		if !j.pacing.Hold {
			require.Fail(t, "the commit of a step was not handed in", q.name)
		}
		last := uint64(0)
		for i := range c.Add {
			require.Greater(t, c.Add[i].Seq, last, q.name)
			last = c.Add[i].Seq
			if c.gone(i) {
				dropped++
				continue
			}
			require.GreaterOrEqual(t, i, c.first, q.name)
			bytes += int64(q.Slots.Get(last).Size)
			waiting++
			require.True(t, open[c.Add[i].Seq], "%s, message %d: waits for the store", q.name, c.Add[i].Seq)
			if c.Confirm[i].Awaited() {
				waited++
			}
		}
		require.Equal(t, waited, c.waited, q.name)
		require.Equal(t, dropped, c.dropped, q.name)
		require.Equal(t, bytes, c.Bytes, q.name)
	}
	require.Len(t, open, waiting, q.name)
	failed := int64(0)
	for i := range m.sides {
		for _, u := range m.sides[i].failing {
			failed += u.bytes
		}
	}
	if j.open != nil {
		failed += j.open.failed
	}
	require.GreaterOrEqual(t, j.failed, failed, q.name)
	if j.committing == 0 {
		require.Equal(t, failed, j.failed, "%s: failed attempts under way", q.name)
	}
	for i, in := range j.uncommitted.items {
		if in != nil {
			require.NotNil(t, q.Slots.Get(j.uncommitted.base+uint64(i)), "%s: kept for nothing", q.name)
		}
	}
}

// checkLists checks that subqueues, flows, the schedule and slots agree.
func checkLists(t T, q *side) {
	t.Helper()
	waiting, ordered, plain := make(map[*container.Ranks]int32), make(map[*container.Ranks]int32), make(map[drr.Flow]int32)
	for _, s := range q.Slots.From(0) {
		if s.Sub != 0 && s.State == backlog.Ordered {
			ordered[&q.gates.Subs.At(s.Sub).List]++
		}
		if s.State == backlog.Waiting {
			if id := q.Subqueue(s); id != 0 {
				waiting[&q.gates.Subs.At(id).List]++
			} else {
				plain[s.Flow]++
			}
		}
	}
	for i := range q.gates.Subs.Items {
		sub := &q.gates.Subs.Items[i]
		at := fmt.Sprintf("%s, subqueue %d", q.name, i)
		q.checkRanks(t, &sub.List, waiting[&sub.List], at)
		require.Equal(t, ordered[&sub.List], sub.Ordered, at)
	}
	for key, f := range q.Keys.IDs {
		e, at := &q.Keys.Entries[f], fmt.Sprintf("%s, key %s", q.name, key)
		q.checkRanks(t, &e.Flow.Plain, plain[f], at)
		require.Equal(t, q.headCost(f) != 0, e.Active, at)
		info, ok := q.Sched.Flow(f)
		require.Equal(t, e.Active, ok, at)
		if ok {
			require.Equal(t, q.Weight(f), info.Weight, at)
		}
	}
}

// checkOrder checks that keys in strict order have one owner each, and that nothing of
// the key is in flight beside it.
func checkOrder(t T, q *side) {
	t.Helper()
	if !q.Order.On {
		require.Empty(t, q.Order.Keys, q.name)
		return
	}
	also := make(map[uint64]bool) // in flight since before the queue was ordered
	for f, o := range q.Order.Keys {
		at := fmt.Sprintf("%s, key %q", q.name, q.Name(f))
		require.NotZero(t, o.Owner, "%s waits for nothing", at)
		owner := q.Slots.Get(o.Owner)
		require.True(t, owner != nil && owner.Owns && owner.Flow == f, "%s: %d is no owner", at, o.Owner)
		require.NotEqual(t, backlog.Ordered, owner.State, "%s: its owner %d waits for it", at, o.Owner)
		last, plain := uint64(0), int64(0)
		for i := o.Waiting.Head(); i != 0; i = q.Links.Next(i) {
			if q.Slots.Get(q.Links.Seq(i)).Sub == 0 {
				plain++
			}
			require.Greater(t, q.Links.Seq(i), last, "%s is out of order", at)
			last = q.Links.Seq(i)
		}
		require.Equal(t, plain, o.Plain, at)
		for _, seq := range o.Also {
			also[seq] = true
		}
	}
	flying := make(map[drr.Flow]int)
	for seq, s := range q.Slots.From(0) {
		at := fmt.Sprintf("%s, message %d", q.name, seq)
		o := q.Order.Keys[s.Flow]
		if s.Owns {
			require.NotNil(t, o, at)
			require.Equal(t, seq, o.Owner, at)
		}
		if q.InFlight(seq) && !also[seq] {
			flying[s.Flow]++
			require.Equal(t, 1, flying[s.Flow], "%s: two messages of a key in flight", at)
		}
	}
}

// checkRanks checks the order of the messages in a list.
func (q *side) checkRanks(t T, r *container.Ranks, n int32, at string) {
	t.Helper()
	require.Equal(t, n, q.Links.Count(r), at)
	type entry struct {
		stamp int64
		rank  uint8
		link  uint32
	}
	var all []entry
	for rank, i := range q.Links.Links(r) {
		s := q.Slots.Get(q.Links.Seq(i))
		require.Equal(t, i, s.Ref, at)
		require.Equal(t, rank, s.Priority, at)
		if k := len(all); k > 0 && all[k-1].rank == rank {
			require.LessOrEqual(t, all[k-1].stamp, q.Links.Stamp(i), "%s: out of order", at)
			require.Equal(t, all[k-1].link, q.Links.Prev(i), at)
		}
		all = append(all, entry{q.Links.Stamp(i), rank, i})
	}
	require.Len(t, all, int(n), at)
	slices.SortStableFunc(all, func(a, b entry) int { return cmp.Compare(a.stamp, b.stamp) })
	for i, want := range []func(*container.Ranks) uint32{q.Links.First, q.Links.Second} {
		if len(all) > i {
			require.Equal(t, all[i].link, want(r), "%s: message %d of the list", at, i)
		}
	}
}
