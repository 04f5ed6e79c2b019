package control

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/throttle"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// spend admits messages of cost 1 until the budget of a key is used up, and returns their number.
func (r *rig) spend(key string, most int) (n int) {
	r.t.Helper()
	set, err := r.c.Gates().Set([]string{key}, now())
	require.NoError(r.t, err)
	defer r.c.Gates().Close(set, now())
	for n < most {
		grant, block, ok := set.Acquire(now(), throttle.One, nil)
		switch {
		case ok:
			set.Release(&grant, now(), nil)
			n++
		case block.At == throttle.Never:
			synctest.Wait() // for the disk
		default:
			require.Equal(r.t, throttle.ByBudget, block.Kind)
			return n
		}
	}
	return n
}

func (r *rig) budget(key string) api.BudgetInfo {
	r.t.Helper()
	info, err := r.c.BudgetShow(api.GateKeyRequest{Key: key})
	require.Nil(r.t, err)
	return info
}

const daily = `{"budget":100,"period":"day","zone":"Europe/Berlin","warn_at":[0.5,0.9]}`

// The use of a budget is kept over stops and crashes, up to what was booked ahead, and begins again
// with each period.
func TestBudgetsOverStopsAndCrashes(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		info := r.set("tenant:*", daily)
		require.Equal(t, "budget 100 a day (Europe/Berlin)", info.Text())
		require.Equal(t, 40, r.spend("tenant:a", 40))
		require.Equal(t, api.BudgetInfo{
			Key: "tenant:a", Budget: 100, Period: "day", Zone: "Europe/Berlin", WarnAt: []float64{0.5, 0.9}, Used: 40, Left: 60,
			StartedAt: "1999-12-31T23:00:00Z", EndsAt: "2000-01-01T23:00:00Z",
		}, r.budget("tenant:a"))
		require.Equal(t, r.budget("tenant:a"), *r.show("tenant:a").Spending)
		r.restart(false, time.Hour)
		require.Equal(t, 40.0, r.budget("tenant:a").Used)
		r.spend("tenant:a", 1)
		r.restart(true, time.Hour)
		require.InDelta(t, 42, r.budget("tenant:a").Used, 1.6)
		spent := 41 + r.spend("tenant:a", 1000)
		require.LessOrEqual(t, spent, 100)
		require.GreaterOrEqual(t, spent, 98)
		require.Zero(t, r.spend("tenant:a", 1))
		require.Equal(t, "budget", r.show("tenant:a").State)
		require.Equal(t, "2000-01-01T23:00:00Z", r.show("tenant:a").AdmitsAt)
		require.Equal(t, 1, r.spend("tenant:b", 1), "each key has its own")
		list := r.c.BudgetList(api.KeyListRequest{Limit: 10})
		require.Equal(t, 2, list.Total)
		require.Equal(t, []api.BudgetInfo{r.budget("tenant:a"), r.budget("tenant:b")}, list.Budgets)
		r.pass(21 * time.Hour)
		require.Equal(t, 100, r.spend("tenant:a", 1000), "a new day")
		r.pass(26 * time.Hour)
		require.Empty(t, r.stored(stateBudget), "nothing is kept of periods that are over")
	})
}

// Top-ups and resets are audited, and kept.
func TestBudgetsAreToppedUpAndReset(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.set("k", daily)
		require.Equal(t, 100, r.spend("k", 1000))
		r.events.take()
		info, err := r.c.BudgetTopUp(verb(api.VerbBudgetTopUp), api.BudgetTopUpRequest{Key: "k", Amount: 2.5})
		require.Nil(t, err)
		require.Equal(t, []float64{100, 2.5, 2.5}, []float64{info.Used, info.Added, info.Left})
		r.restart(true, time.Minute)
		require.InDelta(t, 2.5, r.budget("k").Left, 1.6, "at most 1/64 is lost")
		info, err = r.c.BudgetReset(verb(api.VerbBudgetReset), api.GateKeyRequest{Key: "k"})
		require.Nil(t, err)
		require.Equal(t, []float64{0, 0, 100}, []float64{info.Used, info.Added, info.Left})
		r.restart(false, time.Minute)
		require.Equal(t, 100, r.spend("k", 1000))
		trail := r.trail()
		require.Contains(t, trail, "budget-top-up budget:k: used 100 of 100 -> top-up 2.5")
		_, err = r.c.BudgetTopUp(verb(api.VerbBudgetTopUp), api.BudgetTopUpRequest{Key: "x", Amount: 1})
		require.ErrorIs(t, err, wire.BudgetNotFound("x"))
		_, err = r.c.BudgetShow(api.GateKeyRequest{Key: "x"})
		require.ErrorIs(t, err, wire.BudgetNotFound("x"))
	})
}

func TestBudgetsWarn(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.set("k", daily)
		r.events.take()
		r.spend("k", 95)
		events := r.events.take()
		require.Len(t, events, 2)
		require.Equal(t, wire.EventBudgetWarning, events[0].Type)
		require.Equal(t, 0.5, events[0].Data["part"])
		require.Equal(t, 50.0, events[0].Data["used"])
		require.Equal(t, 0.9, events[1].Data["part"])
	})
}

// sharedBudgets is a fleet that shares the budgets of some keys.
type sharedBudgets struct {
	changes []string
	err     error
}

func (f *sharedBudgets) Begin(string) (bool, int64)   { return false, 0 }
func (f *sharedBudgets) Request(string)               {}
func (f *sharedBudgets) RequestBudget(string)         {}
func (f *sharedBudgets) ReadBudget(string)            {}
func (f *sharedBudgets) SharesBudget(key string) bool { return strings.HasPrefix(key, "s:") }

func (f *sharedBudgets) TopUpBudget(_ context.Context, key string, amount int64) error {
	f.changes = append(f.changes, fmt.Sprint("top-up ", key, " ", amount))
	return f.err
}

func (f *sharedBudgets) ResetBudget(_ context.Context, key string) error {
	f.changes = append(f.changes, "reset "+key)
	return f.err
}

// The bookings of a shared key are the fleet's alone, and changes by hand go there; other keys count in
// this fila.
func TestSharedBudgetsAreNotOnDisk(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.close()
		f := &sharedBudgets{}
		snap := r.openStore()
		r.kv = &keeper{KV: StoreKV(r.st.Submit)}
		r.begin(Options{KV: r.kv, Share: func(g *throttle.Gates) { g.Share(f) }, Budgets: f}, snap)
		require.NoError(t, r.c.Save())
		r.set("s:a", daily)
		r.set("own", daily)
		require.Equal(t, 5, r.spend("own", 5))
		_, err := r.c.BudgetTopUp(verb(api.VerbBudgetTopUp), api.BudgetTopUpRequest{Key: "s:a", Amount: 7})
		require.Nil(t, err)
		_, err = r.c.BudgetReset(verb(api.VerbBudgetReset), api.GateKeyRequest{Key: "s:a"})
		require.Nil(t, err)
		require.Equal(t, []string{"top-up s:a 7000", "reset s:a"}, f.changes)
		log := r.trail()
		require.Contains(t, log[len(log)-2], "budget:s:a: used 0 of 100 -> top-up 7")
		r.kv.fail(errDisk)
		_, err = r.c.BudgetTopUp(verb(api.VerbBudgetTopUp), api.BudgetTopUpRequest{Key: "s:a", Amount: 1})
		require.Nil(t, err, "it is made, though the audit log lacks it")
		r.kv.fail(nil)
		f.err = errDisk
		_, err = r.c.BudgetReset(verb(api.VerbBudgetReset), api.GateKeyRequest{Key: "s:a"})
		require.Equal(t, wire.CodeSharedAway, err.ErrCode)
		r.c.Stop()
		r.close()
		kept := r.c.readBudgets(r.openStore().Config)
		require.Contains(t, kept, "own")
		require.NotContains(t, kept, "s:a")
		r.close()
		r.open()
	})
}

func TestBudgetSettings(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		for body, part := range map[string]string{
			`{"budget":5}`: "without a period", `{"period":"day"}`: "without a budget", `{"budget":5,"period":"year"}`: "hour, day, week, month",
			`{"budget":5,"period":"day","zone":"Berlin"}`: "zone", `{"budget":0,"period":"day"}`: "0.001", `{"budget":5,"period":"day","warn_at":[0.9,0.5]}`: "warn_at",
			`{"budget":5,"period":"day","on_empty":"drop"}`: "hold, dead_letter, refuse", `{"on_empty":"refuse"}`: "without a budget",
		} {
			_, err := r.trySet("k", body)
			require.NotNil(t, err, body)
			require.Equal(t, 400, err.Code)
			require.Contains(t, err.Description, part)
		}
		r.set("k", `{"budget":5,"period":"day","rate":"1"}`)
		r.set("k", `{"budget":6}`)
		require.Equal(t, "1/s, budget 6 a day", r.show("k").Text())
		r.set("k", `{"on_empty":"refuse"}`)
		require.Equal(t, "1/s, budget 6 a day, then refuse", r.show("k").Text())
		require.Equal(t, "refuse", r.show("k").Spending.OnEmpty)
		r.set("k", `{"on_empty":"hold"}`)
		require.Equal(t, "hold", *r.show("k").OnEmpty)
		r.set("k", `{"unset":["budget"]}`)
		require.Equal(t, "1/s", r.show("k").Text())
		require.Nil(t, r.show("k").Spending)
	})
}
