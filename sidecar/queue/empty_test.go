package queue_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/sidecar/queue/gates"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/throttle"
	"github.com/filaq/fila/throttle/budget"
	"github.com/filaq/fila/wire"
)

// bank is the disk of budgets, whose writes take until the next call of write.
type bank struct {
	r       *rig
	pending map[string]budget.Booking
}

func (b *bank) KeepBooking(key string, k budget.Booking) { b.pending[key] = k }
func (b *bank) Warn(string, int16, budget.State)         {}

// write carries out the writes until there are none left.
func (b *bank) write() {
	b.r.T.Helper()
	b.r.Run()
	for len(b.pending) > 0 {
		for key, k := range b.pending {
			delete(b.pending, key)
			for _, w := range b.r.Gates.Booked(key, k.Number, true, b.r.Now, nil) {
				w.Owner.(gates.Owner).GateOpened(w.Gate())
			}
		}
		b.r.Run()
	}
}

// newBank gives the rig a bank; the consumer of the queue has credit for all messages.
func newBank(t *testing.T, r *rig) *bank {
	t.Helper()
	b := &bank{r: r, pending: make(map[string]budget.Booking)}
	r.Gates.Bank(b, nil)
	r.Consume(queue.Main, "w", 10_000, 0)
	return b
}

// hourly is a budget with a dead letter queue for what it does not allow.
func hourly(messages int64, e throttle.OnEmpty) throttle.Limits {
	return throttle.Limits{Budget: budget.Terms{Amount: messages * throttle.One, Period: budget.Period{Unit: budget.Hour}}, OnEmpty: e}
}

// buried returns the dead letters, whose budgets were empty.
func buried(r *rig) (ids []store.ID) {
	r.Commit()
	for _, n := range r.Notes {
		if n.Kind == queue.NoteDeadLettered {
			require.Equal(r.T, wire.ReasonBudgetEmpty, n.Dead.Reason)
			require.Equal(r.T, `the budget of throttle key "k" is empty`, n.Dead.Error)
			ids = append(ids, n.ID)
		}
	}
	return ids
}

// Messages beyond the budget become dead letters when their turn comes, without an attempt, in
// steps of bounded work. Other keys pass, and so do messages of the next period.
func TestMessagesOfAnEmptyBudgetBecomeDeadLetters(t *testing.T) {
	r := newRig(t, nil)
	b := newBank(t, r)
	r.LimitNow("k", hourly(10, throttle.DeadLetter))
	const n = queue.DeliverPerStep + 500
	for range n {
		r.Accept(r.Message("a", func(m *store.Message) { m.ThrottleKeys = []string{"k"} }))
	}
	other := r.Gated("b", "other")
	r.After = func(_ *rig, out *queue.Effects) { require.LessOrEqual(t, len(out.Commits), queue.DeliverPerStep+1) }
	r.Run()
	b.write()
	ds := r.Deliveries()
	require.Len(t, ds, 11)
	require.Contains(t, []store.ID{ds[0].ID, ds[1].ID}, other)
	r.Commit()
	require.EqualValues(t, n-10, r.Depth[queue.Dead])
	require.Zero(t, r.M.Inspect(queue.Main).Stats(r.Now).Blocked)
	check(r)
	r.Finished(ds...)
	r.Pass(time.Hour)
	next := r.Gated("a", "k")
	b.write()
	require.Equal(t, next, r.One().ID)
}

// A message that waited for another limit of its key, or for another key, is a dead letter as soon as
// that would let it go.
func TestBlockedMessagesBecomeDeadLettersWhenTheBudgetIsEmpty(t *testing.T) {
	for name, limits := range map[string]throttle.Limits{"concurrency": {Concurrency: 1}, "rate": perSecond(1), "window": {Limit: 1, Window: 1e9}} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, nil)
			b := newBank(t, r)
			limits.Budget, limits.OnEmpty = hourly(2, 0).Budget, throttle.DeadLetter
			r.LimitNow("k", limits)
			var want []store.ID
			for i := range 6 {
				want = append(want, r.Gated(string(rune('a'+i%3)), "k"))
			}
			b.write()
			for i := range 2 {
				d := r.One()
				require.Equal(t, want[i], d.ID)
				check(r)
				r.Finished(d)
				r.Pass(time.Second)
				b.write()
			}
			require.Empty(t, r.Deliveries())
			require.ElementsMatch(t, want[2:], buried(r))
			check(r)
		})
	}
}

// Messages with another policy wait, and become dead letters when the policy changes.
func TestAChangeOfOnEmptyConcernsTheBacklog(t *testing.T) {
	for _, before := range []throttle.OnEmpty{throttle.OnEmptyUnset, throttle.Hold, throttle.Refuse} {
		r := newRig(t, nil)
		b := newBank(t, r)
		r.LimitNow("k", hourly(1, before))
		var ids []store.ID
		for _, key := range []string{"a", "a", "b", "c"} {
			ids = append(ids, r.Gated(key, "k"))
		}
		b.write()
		require.Equal(t, ids[0], r.One().ID)
		require.Empty(t, buried(r))
		require.Equal(t, gates.ByBudget, r.Find(queue.Main, ids[1]).By)
		r.LimitNow("k", hourly(1, throttle.DeadLetter))
		require.ElementsMatch(t, ids[1:], buried(r))
		check(r)
	}
}

// A message that costs more than is left is a dead letter, and a cheaper one goes.
func TestAMessageBeyondWhatIsLeftIsDeadLettered(t *testing.T) {
	r := newRig(t, nil)
	b := newBank(t, r)
	r.LimitNow("k", hourly(3, throttle.DeadLetter))
	costs := func(n uint32) store.ID {
		return r.Enqueue("a", func(m *store.Message) { m.ThrottleKeys, m.Cost = []string{"k"}, n*throttle.One })
	}
	want := []store.ID{costs(2), costs(2), costs(1)}
	b.write()
	ds := r.Deliveries()
	require.Len(t, ds, 2)
	require.Equal(t, []store.ID{want[0], want[2]}, []store.ID{ds[0].ID, ds[1].ID})
	require.Equal(t, want[1:2], buried(r))
}

// A message with routes is a dead letter only if every route makes it one.
func TestAMessageWithRoutesIsDeadLetteredIfEveryRouteSaysSo(t *testing.T) {
	routes := func(m *store.Message) {
		for _, name := range []string{"k", "two"} {
			m.Routes = append(m.Routes, store.Route{Name: name, ThrottleKeys: []string{name}})
		}
	}
	r := newRig(t, nil)
	b := newBank(t, r)
	r.LimitNow("k", hourly(1, throttle.DeadLetter))
	r.LimitNow("two", throttle.Limits{Concurrency: 1})
	var ids []store.ID
	for _, key := range []string{"a", "b", "c", "d", "e"} {
		ids = append(ids, r.Enqueue(key, routes))
	}
	b.write()
	require.Len(t, r.Deliveries(), 2)
	require.Empty(t, buried(r), "the other route opens")
	r.LimitNow("two", hourly(1, throttle.Hold))
	b.write()
	require.Len(t, r.Deliveries(), 1)
	require.Empty(t, buried(r), "the other route waits")
	check(r)
	r.LimitNow("two", hourly(1, throttle.DeadLetter))
	require.ElementsMatch(t, ids[3:], buried(r))
	check(r)
}

// A message becomes a dead letter even if others wait for one of its gates.
func TestAMessageWithRoutesDoesNotWaitForItsTurnToBeDeadLettered(t *testing.T) {
	r := newRig(t, nil)
	b := newBank(t, r)
	for key, e := range map[string]throttle.OnEmpty{"k": throttle.DeadLetter, "two": throttle.DeadLetter, "hold": throttle.Hold} {
		r.LimitNow(key, hourly(1, e))
		r.Gated("before", key)
	}
	b.write()
	require.Len(t, r.Deliveries(), 3)
	routes := func(one, two string) func(m *store.Message) {
		return func(m *store.Message) {
			m.Routes = []store.Route{{Name: "1", ThrottleKeys: []string{one}}, {Name: "2", ThrottleKeys: []string{two}}}
		}
	}
	r.Enqueue("waits", routes("two", "hold"))
	require.Empty(t, buried(r))
	dead := r.Enqueue("dead", routes("k", "two"))
	require.Equal(t, []store.ID{dead}, buried(r))
	check(r)
}

// Explanations and forecasts say what becomes of messages for which the budget has too little left, whether
// they wait at its gate already or not.
func TestForecastOfAnEmptyBudget(t *testing.T) {
	for _, e := range []throttle.OnEmpty{throttle.DeadLetter, throttle.Hold, throttle.Refuse} {
		for _, waits := range []bool{true, false} {
			t.Run(fmt.Sprint(e, waits), func(t *testing.T) {
				r := newRig(t, nil)
				b := newBank(t, r)
				r.LimitNow("k", hourly(2, throttle.Hold))
				credit := 2
				if waits {
					credit = 3
				}
				r.Consume(queue.Main, "w", credit, 0)
				for range 2 {
					r.Gated("a", "k")
				}
				b.write()
				var blocked []store.ID
				for _, key := range []string{"a", "a", "b"} {
					blocked = append(blocked, r.Gated(key, "k"))
				}
				if waits {
					r.Gated("c", "other")
				}
				flying := r.Deliveries()
				require.Len(t, flying, credit)
				r.LimitNow("k", hourly(2, e))
				free := r.Gated("c", "other")
				require.Empty(t, buried(r))

				for _, id := range blocked {
					v := r.Find(queue.Main, id)
					require.Equal(t, gates.ByBudget, v.By)
					require.Equal(t, e == throttle.DeadLetter, v.DeadLetter)
				}
				state := r.M.Inspect(queue.Main).State(10, r.Now)
				require.Len(t, state.Blocked, 1)
				require.Equal(t, e == throttle.DeadLetter, state.Blocked[0].DeadLetter)
				next, _ := r.M.Inspect(queue.Main).Forecast(10, r.Now)
				require.Equal(t, free, next[0].ID)
				check(r)
				if e == throttle.DeadLetter {
					require.Len(t, next, 1)
					r.Finished(flying...)
					require.ElementsMatch(t, blocked, buried(r))
					require.Equal(t, free, r.One().ID)
					return
				}
				require.Len(t, next, 4)
				hour := time.Unix(0, r.Now).Truncate(time.Hour)
				for i, hours := range []time.Duration{1, 1, 2} { // two messages in each
					require.Equal(t, gates.ByBudget, next[i+1].By)
					require.Equal(t, hour.Add(hours*time.Hour).UnixNano(), next[i+1].Opens)
				}
			})
		}
	}
}

// A message with routes waits unless every route makes it a dead letter, and its explanation says so.
func TestExplanationOfRoutesToEmptyBudgets(t *testing.T) {
	r := newRig(t, nil)
	b := newBank(t, r)
	r.LimitNow("k", hourly(1, throttle.DeadLetter))
	r.LimitNow("two", hourly(1, throttle.Hold))
	r.Consume(queue.Main, "w", 2, 0)
	r.Gated("a", "k")
	r.Gated("a", "two")
	b.write()
	require.Len(t, r.Deliveries(), 2)
	id := r.Enqueue("b", func(m *store.Message) {
		m.Routes = []store.Route{{Name: "1", ThrottleKeys: []string{"k"}}, {Name: "2", ThrottleKeys: []string{"two"}}}
	})
	for _, e := range []throttle.OnEmpty{throttle.Hold, throttle.DeadLetter} {
		r.LimitNow("two", hourly(1, e))
		v := r.Find(queue.Main, id)
		require.Equal(t, gates.ByBudget, v.By)
		require.Equal(t, e == throttle.DeadLetter, v.DeadLetter)
		for i := range v.Routes {
			require.Equal(t, e == throttle.DeadLetter, v.Routes[i].DeadLetter)
		}
		next, _ := r.M.Inspect(queue.Main).Forecast(10, r.Now)
		require.Len(t, next, map[bool]int{false: 1, true: 0}[e == throttle.DeadLetter])
	}
}
