package control

import (
	"context"
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/filaq/fila/store"
	"github.com/filaq/fila/throttle"
	"github.com/filaq/fila/throttle/budget"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// budgetsSwept is how often ledgers whose period is over are removed from the disk.
const budgetsSwept = time.Hour

// changeTimeout is how long a change of a shared budget waits for the bucket.
const changeTimeout = 5 * time.Second

// SharedBudgets are the budgets that a fleet keeps.
type SharedBudgets interface {
	SharesBudget(key string) bool
	// ReadBudget brings the gates the newest use that is known here.
	ReadBudget(key string)
	// TopUpBudget adds an amount (thousandths) to the present period, and ResetBudget begins it anew.
	// They wait until all filas will see it.
	TopUpBudget(ctx context.Context, key string, amount int64) error
	ResetBudget(ctx context.Context, key string) error
}

// bank keeps the ledgers of budgets under stateBudget. It implements [throttle.Bank].
type bank struct{ *Control }

// KeepBooking writes a booking.
func (b bank) KeepBooking(key string, k budget.Booking) {
	done := b.keepBooking(Batch{}, key, k)
	b.telling.Go(func() { b.booked(key, k, <-done) })
}

// keepBooking writes a booking with other changes.
func (c *Control) keepBooking(kept Batch, key string, k budget.Booking) <-chan error {
	kept.putJSON(stateBudget+key, k.Record)
	return c.opt.KV.Write(kept)
}

// booked reports the outcome of a write to the gates, which ask for another write later after an error.
func (c *Control) booked(key string, k budget.Booking, err error) {
	if err != nil {
		c.opt.Log.Error("a part of a budget cannot be booked; its messages wait until it can", "throttle", wire.ShowKey(key), "error", err)
	}
	Tell(c.throttles.gates.Booked(key, k.Number, err == nil, c.opt.Now(), nil))
}

// Warn publishes a warning.
func (b bank) Warn(key string, part int16, s budget.State) {
	info := budgetInfo(key, s)
	b.opt.Event(wire.EventBudgetWarning, key, wire.Event{Key: key, Data: map[string]any{
		"part": float64(part) / 1000, "budget": info.Budget, "added": info.Added, "used": info.Used, "ends_at": info.EndsAt,
	}})
}

// readBudgets reads the stored ledgers.
func (c *Control) readBudgets(kept []store.Entry) map[string]budget.Record {
	records := make(map[string]budget.Record)
	for _, e := range kept {
		key, ok := strings.CutPrefix(e.Key, stateBudget)
		if !ok {
			continue
		}
		var r budget.Record
		if err := json.Unmarshal([]byte(e.Value), &r); err != nil {
			c.opt.Log.Error("what a budget has used cannot be read; it begins anew", "throttle", key, "error", err)
			continue
		}
		records[key] = r
	}
	return records
}

// sweepBudgets removes ledgers whose period is over.
func (c *Control) sweepBudgets(now int64) {
	c.throttles.gates.ForgetLedgers(now, func(keys []string) {
		var over Batch
		for _, key := range keys {
			over.Delete = append(over.Delete, stateBudget+key)
		}
		done := c.opt.KV.Write(over)
		c.telling.Go(func() {
			if err := <-done; err != nil {
				c.opt.Log.Error("ledgers of budgets whose period is over cannot be removed", "error", err)
			}
		})
	})
	c.schedule.set(stateBudget, now+int64(budgetsSwept))
}

// saveBudgets writes exactly what budgets have used, at an orderly stop.
func (c *Control) saveBudgets() {
	var kept Batch
	for key, r := range c.throttles.gates.LedgersToKeep() {
		kept.putJSON(stateBudget+key, r)
	}
	if err := <-c.opt.KV.Write(kept); err != nil {
		c.opt.Log.Error("what budgets have used cannot be saved; they go on with what was booked", "error", err)
	}
}

// BudgetShow describes the budget of a throttle key.
func (c *Control) BudgetShow(req api.GateKeyRequest) (api.BudgetInfo, *wire.Error) {
	s, ok := c.budget(req.Key)
	if !ok {
		return api.BudgetInfo{}, wire.BudgetNotFound(req.Key)
	}
	return c.spending(req.Key, s), nil
}

// spending describes a budget, and what becomes of messages beyond it.
func (c *Control) spending(key string, s budget.State) api.BudgetInfo {
	info := budgetInfo(key, s)
	info.OnEmpty = c.throttles.gates.Limits(key).OnEmpty.String()
	return info
}

// budget returns the budget of a key, in the present period.
func (c *Control) budget(key string) (budget.State, bool) {
	if c.sharesBudget(key) {
		c.opt.Budgets.ReadBudget(key)
	}
	return c.throttles.gates.Budget(key, c.opt.Now())
}

func (c *Control) sharesBudget(key string) bool {
	return c.opt.Budgets != nil && c.opt.Budgets.SharesBudget(key)
}

// BudgetList lists the budgets of keys that were used in their present period.
func (c *Control) BudgetList(req api.KeyListRequest) api.BudgetList {
	list := api.BudgetList{Budgets: []api.BudgetInfo{}}
	now, after := c.opt.Now(), wire.NamedKey(req.After)
	for {
		page := c.throttles.gates.Budgets(req.Prefix, after, req.Offset, req.Limit)
		list.Total, list.Next = page.Total, wire.ShowKey(page.Next)
		for _, key := range page.Keys {
			if s, ok := c.throttles.gates.Budget(key, now); ok {
				list.Budgets = append(list.Budgets, c.spending(key, s))
			}
		}
		if len(list.Budgets) > 0 || list.Next == "" {
			return list
		}
		after, req.Offset = page.Next, 0 // an empty page would look like the end
	}
}

// BudgetTopUp adds an amount to the present period of a throttle key.
func (c *Control) BudgetTopUp(by Actor, req api.BudgetTopUpRequest) (api.BudgetInfo, *wire.Error) {
	amount := int64(math.Round(req.Amount * throttle.One))
	if c.sharesBudget(req.Key) {
		return c.changeShared(by, req.Key, "top-up "+costText(req.Amount), func(ctx context.Context) error {
			return c.opt.Budgets.TopUpBudget(ctx, req.Key, amount)
		})
	}
	return c.changeBudget(by, req.Key, "top-up "+costText(req.Amount), func(now int64, write bookingWriter) ([]*throttle.Wait, bool) {
		return c.throttles.gates.TopUpBudget(req.Key, amount, now, write, nil)
	})
}

// BudgetReset begins the present period of a throttle key anew.
func (c *Control) BudgetReset(by Actor, req api.GateKeyRequest) (api.BudgetInfo, *wire.Error) {
	if c.sharesBudget(req.Key) {
		return c.changeShared(by, req.Key, "reset", func(ctx context.Context) error { return c.opt.Budgets.ResetBudget(ctx, req.Key) })
	}
	return c.changeBudget(by, req.Key, "reset", func(now int64, write bookingWriter) ([]*throttle.Wait, bool) {
		return c.throttles.gates.ResetBudget(req.Key, now, write, nil)
	})
}

type bookingWriter = func(budget.Booking, budget.State)

// changeBudget changes a ledger, writes it with an entry of the audit log, and waits for the disk.
func (c *Control) changeBudget(by Actor, key, what string, do func(now int64, write bookingWriter) ([]*throttle.Wait, bool)) (api.BudgetInfo, *wire.Error) {
	var booking budget.Booking
	var ch change
	var done <-chan error
	now := c.opt.Now()
	wake, ok := do(now, func(k budget.Booking, was budget.State) {
		booking, ch = k, budgetChange(key, what, was)
		var kept Batch
		c.audit.record(&kept, now, by, ch)
		done = c.keepBooking(kept, key, k)
	})
	if !ok {
		return api.BudgetInfo{}, wire.BudgetNotFound(key)
	}
	err := <-done
	c.booked(key, booking, err)
	Tell(wake)
	if err := outcome(err); err != nil {
		return api.BudgetInfo{}, err
	}
	c.changeEvent(ch)
	return c.BudgetShow(api.GateKeyRequest{Key: key})
}

// budgetChange is the entry of the audit log.
func budgetChange(key, what string, was budget.State) change {
	old := "used " + costText(cost(was.Used)) + " of " + costText(cost(was.Total()))
	return change{"budget:" + key, &old, &what}
}

// changeShared changes a budget that a fleet keeps, and then adds an entry to the audit log.
func (c *Control) changeShared(by Actor, key, what string, do func(context.Context) error) (api.BudgetInfo, *wire.Error) {
	was, ok := c.budget(key)
	if !ok {
		return api.BudgetInfo{}, wire.BudgetNotFound(key)
	}
	ctx, cancel := context.WithTimeout(context.Background(), changeTimeout)
	defer cancel()
	if err := do(ctx); err != nil {
		return api.BudgetInfo{}, wire.SharedAway(key, err)
	}
	ch := budgetChange(key, what, was)
	c.auditMade(by, ch) // an error here would let the client repeat a top-up that was made
	c.changeEvent(ch)
	return c.BudgetShow(api.GateKeyRequest{Key: key})
}

func costText(n float64) string { return strconv.FormatFloat(n, 'f', -1, 64) }

// cost returns thousandths as a cost.
func cost(thousandths int64) float64 { return float64(thousandths) / throttle.One }

// budgetInfo describes a budget.
func budgetInfo(key string, s budget.State) api.BudgetInfo {
	return api.BudgetInfo{
		Key: wire.ShowKey(key), Budget: cost(s.Amount), Period: s.Unit.String(), Zone: s.Zone, WarnAt: warnings(s.WarnAt),
		Added: cost(s.Added), Used: cost(s.Used), Left: cost(s.Left()), StartedAt: wire.Timestamp(s.Start), EndsAt: wire.Timestamp(s.End),
	}
}

// warnings returns the parts of an amount at which to warn.
func warnings(at [budget.MaxWarnings]int16) (parts []float64) {
	for _, part := range at {
		if part != 0 {
			parts = append(parts, float64(part)/1000)
		}
	}
	return parts
}
