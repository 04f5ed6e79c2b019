package limit

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/filaq/fila/sidecar/fleet"
	"github.com/filaq/fila/sidecar/fleet/record"
	"github.com/filaq/fila/throttle"
	"github.com/filaq/fila/throttle/budget"
)

// budgetKind is the prefix of records of budgets in the bucket of a fleet.
const budgetKind = "b"

// When the part of a budget that is booked and not used goes back: after idleBudget without a delivery or a
// new part, or, if another instance waits for more than there is left, when the part is keptBudget old.
const (
	idleBudget = time.Minute
	keptBudget = time.Second
)

// ErrAway is returned for a change of a budget that could not be written. It may still be made if the
// bucket went away during the write.
var ErrAway = errors.New("the bucket of shared limits cannot be reached")

// budgets are the shared budgets of a process.
type budgets struct {
	*Limits

	mu struct {
		sync.Mutex
		away     bool
		spenders map[string]*spender
		left     chan struct{} // closed when no spender is left; nil: release was not called
	}
}

// spender is this instance as a user of the budget of one key.
type spender struct {
	mu      sync.Mutex
	s       *record.Spender
	foreign error // why the record cannot be read, so that nothing can be booked; nil: it can
	logged  bool
	takes   uint64 // deliveries, when that was last looked at
	quiet   int64  // since when there were no others
	booked  int64  // when the part last grew
	waits   []budgetWait
}

// budgetWait waits for a change by hand.
type budgetWait struct {
	number uint64
	done   chan error // buffers one
}

func newBudgets(l *Limits) *budgets {
	b := &budgets{Limits: l}
	b.mu.away = true
	b.mu.spenders = make(map[string]*spender)
	l.opt.Fleet.Register(budgetKind, b)
	return b
}

// SharesBudget implements throttle.Fleet.
func (l *Limits) SharesBudget(key string) bool { return l.opt.Shares(key) }

// RequestBudget implements throttle.Fleet.
func (l *Limits) RequestBudget(key string) { l.opt.Fleet.Touch(budgetKind, key) }

// BudgetComes reports whether the fleet may give more of the budget of a key within milliseconds.
func (l *Limits) BudgetComes(key string) bool {
	if !l.SharesBudget(key) || l.opt.Fleet.Away() != nil {
		return false
	}
	sp := l.budgets.find(key)
	if sp == nil {
		return true
	}
	sp.mu.Lock()
	defer sp.mu.Unlock()
	return sp.foreign == nil
}

// ReadBudget gives the ledger of a key the newest record that is known here.
func (l *Limits) ReadBudget(key string) {
	if !l.SharesBudget(key) {
		return
	}
	if sp := l.budgets.spender(key); sp != nil {
		sp.mu.Lock()
		defer sp.mu.Unlock()
		l.budgets.joinLedger(key, sp)
	}
}

// TopUpBudget adds an amount (thousandths) to the present period of the budget of a key for all filas,
// and waits until the record has it. It returns [ErrAway], the error of a record that cannot be read, or
// the error of ctx.
func (l *Limits) TopUpBudget(ctx context.Context, key string, amount int64) error {
	return l.budgets.change(ctx, key, amount)
}

// ResetBudget begins the present period of the budget of a key anew for all filas. It is otherwise like
// TopUpBudget.
func (l *Limits) ResetBudget(ctx context.Context, key string) error {
	return l.budgets.change(ctx, key, 0)
}

func (b *budgets) change(ctx context.Context, key string, topUp int64) error {
	sp := b.spender(key)
	if sp == nil {
		return ErrAway
	}
	sp.mu.Lock()
	if err := sp.foreign; err != nil {
		sp.mu.Unlock()
		return err
	}
	b.mu.Lock()
	away := b.mu.away
	b.mu.Unlock()
	if away {
		sp.mu.Unlock()
		return ErrAway
	}
	w := budgetWait{sp.s.Change(topUp), make(chan error, 1)}
	sp.waits = append(sp.waits, w)
	sp.mu.Unlock()
	b.RequestBudget(key)
	select {
	case err := <-w.done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (b *budgets) find(key string) *spender {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mu.spenders[key]
}

// spender returns the spender of a key, and creates it from the known record if there is none; nil:
// this instance leaves, and did not use the key.
func (b *budgets) spender(key string) *spender {
	b.mu.Lock()
	defer b.mu.Unlock()
	sp := b.mu.spenders[key]
	if sp == nil && b.mu.left == nil {
		sp = &spender{s: record.NewSpender(b.opt.Fleet.Me())}
		sp.mu.Lock() // does not wait, since the spender is new
		defer sp.mu.Unlock()
		b.mu.spenders[key] = sp // before Find, so that Learn brings every later record
		e, _ := b.opt.Fleet.Find(budgetKind, key)
		b.meet(sp, e)
	}
	return sp
}

func decodeBudget(e fleet.Entry) (record.Budget, error) {
	if e.Value == nil {
		return record.Budget{}, nil
	}
	return record.DecodeBudget(e.Value)
}

// meet starts again with a record. It needs the spender's mutex.
func (b *budgets) meet(sp *spender, e fleet.Entry) {
	rec, err := decodeBudget(e)
	if sp.foreign = err; err == nil {
		sp.logged = false
		sp.s.Join(b.opt.Fleet.Now(), e.Rev, rec)
	}
}

// joinLedger gives the ledger of a key the newest record. It needs the spender's mutex.
func (b *budgets) joinLedger(key string, sp *spender) {
	if sp.foreign == nil {
		b.opt.Notify(b.gates.JoinBudget(key, sp.s.Part(b.opt.Fleet.Offset()), b.opt.Now(), nil))
	}
}

// Swap returns the record of a key as it should be. It implements fleet.Kind.
func (b *budgets) Swap(key string) (value []byte, over uint64, again time.Duration, ok bool) {
	sp := b.spender(key)
	if sp == nil {
		return nil, 0, 0, false
	}
	b.mu.Lock()
	leaving := b.mu.left != nil
	b.mu.Unlock()
	sp.mu.Lock()
	defer sp.mu.Unlock()
	now := b.opt.Now()
	demand, set, uses := b.gates.BudgetDemand(key, now)
	rec, _ := sp.s.Record()
	if uses && demand.Number != rec.Number {
		b.joinLedger(key, sp)
		demand, set, uses = b.gates.BudgetDemand(key, now)
	}
	if sp.foreign != nil && !sp.logged {
		sp.logged = true
		b.opt.Log.Error("the shared record of a budget cannot be read; its messages wait until the record can be read or is deleted", "throttle", key, "error", sp.foreign)
	}
	var ask record.BudgetAsk
	if leaving || !uses {
		demand = b.gates.GiveBackBudget(key, leaving, now)
		ask.Leave = true
	} else {
		ask.Return, again = sp.givesBack(&demand, now, b.opt.Fleet.Live)
		if ask.Return {
			demand = b.gates.GiveBackBudget(key, false, now)
		}
	}
	idle := rec.Number == 0 && demand.Cost == 0 && demand.Used == 0 && len(sp.waits) == 0
	if (ask.Leave || idle) && (sp.foreign != nil || !sp.s.Used()) {
		b.forget(key, sp)
		return nil, 0, 0, false
	}
	if sp.foreign != nil {
		return nil, 0, 0, false
	}
	if uses {
		b.register(key)
	}
	ask.Demand = demand
	env := record.BudgetEnv{Now: b.opt.Fleet.Now(), Live: b.opt.Fleet.Live, Terms: b.terms(key, set)}
	next, over, ok := sp.s.Swap(ask, env)
	if !ok {
		return nil, 0, again, false
	}
	return next.Encode(), over, again, true
}

// register makes this instance a user of the limits of a key, whose record tells the filas which of their
// budgets is in force.
func (l *Limits) register(key string) {
	mem := l.find(key)
	if mem == nil {
		return
	}
	mem.mu.Lock()
	known := mem.m.Known() || mem.foreign != nil
	mem.mu.Unlock()
	if _, _, shared := l.gates.Shared(key); shared && !known {
		l.Request(key)
	}
}

// givesBack reports whether the unused part goes back now, or when to ask again.
func (sp *spender) givesBack(d *budget.Demand, now int64, live func(string) bool) (yes bool, again time.Duration) {
	if d.Takes != sp.takes || sp.quiet == 0 {
		sp.takes, sp.quiet = d.Takes, now
	}
	if d.Unused == 0 || d.Cost > 0 {
		return false, 0
	}
	wait := idleBudget - time.Duration(now-max(sp.quiet, sp.booked))
	if sp.s.Hungry(live) {
		wait = min(wait, keptBudget-time.Duration(now-sp.booked))
	}
	return wait <= 0, max(wait, 0)
}

// terms returns the terms of a budget that are in force at this instance, given the ones of its gate,
// which may be another instance's.
func (l *Limits) terms(key string, gate budget.Terms) record.Terms[budget.Terms] {
	t := record.Terms[budget.Terms]{Limits: gate, At: l.opt.SetAt(key), By: l.opt.Fleet.Me()}
	mem := l.find(key)
	own, _, shared := l.gates.Shared(key)
	if mem == nil || !shared {
		return t
	}
	mem.mu.Lock()
	defer mem.mu.Unlock()
	if inForce, by := mem.m.InForce(own, t.At); by != t.By && inForce.Budget == gate {
		rec, _ := mem.m.Record()
		t.At, t.By = rec.Terms.At, by
	}
	return t
}

// Learn takes over a record.
func (b *budgets) Learn(key string, e fleet.Entry) {
	sp := b.find(key)
	if sp == nil {
		b.begin(key)
		return
	}
	sp.mu.Lock()
	rec, err := decodeBudget(e)
	was := sp.s.Part(0)
	switch _, rev := sp.s.Record(); {
	case e.Rev <= rev:
	case err != nil:
		sp.foreign = err
	default:
		sp.foreign, sp.logged = nil, false
		sp.s.Learn(e.Rev, rec)
	}
	if is := sp.s.Part(0); is.Number != was.Number || is.Booked > was.Booked {
		sp.booked = b.opt.Now()
	}
	b.joinLedger(key, sp)
	sp.finish(nil)
	touch := sp.s.Used() || sp.foreign != nil || len(sp.waits) > 0 || e.Value == nil
	sp.mu.Unlock()
	b.answer(key)
	if touch {
		b.RequestBudget(key)
	}
}

// begin makes the ledger of a key that has a budget here, so that this fila shows what others have used.
func (b *budgets) begin(key string) {
	if b.SharesBudget(key) {
		if _, _, ok := b.gates.BudgetDemand(key, b.opt.Now()); ok {
			b.RequestBudget(key) // Swap begins with the record
		}
	}
}

// finish tells those who wait for changes that are in the record, or with an error all of them. It needs
// the spender's mutex.
func (sp *spender) finish(err error) {
	for len(sp.waits) > 0 && (err != nil || !sp.s.Pending(sp.waits[0].number)) {
		sp.waits[0].done <- err
		sp.waits = sp.waits[1:]
	}
}

// answer wakes the checks of the guard that wait for a key.
func (l *Limits) answer(key string) {
	if mem := l.find(key); mem != nil {
		mem.mu.Lock()
		defer mem.mu.Unlock()
		mem.answer()
	}
}

// Join takes over all records of the bucket.
func (b *budgets) Join(entries map[string]fleet.Entry) {
	b.mu.Lock()
	b.mu.away = false
	b.mu.Unlock()
	all := b.all()
	for key, sp := range all {
		sp.mu.Lock()
		b.meet(sp, entries[key])
		b.joinLedger(key, sp)
		sp.mu.Unlock()
		b.RequestBudget(key)
	}
	for key, e := range entries {
		if all[key] == nil && e.Value != nil {
			b.begin(key)
		}
	}
	for _, key := range b.gates.SharedBudgets() {
		b.RequestBudget(key)
	}
}

// Away leaves the ledgers what they have booked.
func (b *budgets) Away() {
	b.mu.Lock()
	b.mu.away = true
	b.mu.Unlock()
	b.leftIfEmpty()
	for _, sp := range b.all() {
		sp.mu.Lock()
		sp.s.Forget()
		sp.finish(ErrAway)
		sp.mu.Unlock()
	}
}

// Idle reports whether a record has no content that matters.
func (b *budgets) Idle(_ string, value []byte) bool {
	rec, err := record.DecodeBudget(value)
	return err == nil && rec.Idle(b.opt.Fleet.Now())
}

func (b *budgets) all() map[string]*spender {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := make(map[string]*spender, len(b.mu.spenders))
	for key, sp := range b.mu.spenders {
		all[key] = sp
	}
	return all
}

// forget removes the spender of a key that this instance does not use.
func (b *budgets) forget(key string, sp *spender) {
	sp.finish(ErrAway)
	b.mu.Lock()
	if b.mu.spenders[key] == sp {
		delete(b.mu.spenders, key)
	}
	b.mu.Unlock()
	b.leftIfEmpty()
}

// release gives back what is not used of all budgets, and lets nothing more be taken. The channel is
// closed when that is done, or when the bucket is away.
func (b *budgets) release() <-chan struct{} {
	left := make(chan struct{})
	b.mu.Lock()
	b.mu.left = left
	b.mu.Unlock()
	for key := range b.all() {
		b.RequestBudget(key)
	}
	b.leftIfEmpty()
	return left
}

// leftIfEmpty closes the channel of release when there is nothing to wait for.
func (b *budgets) leftIfEmpty() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mu.left == nil || len(b.mu.spenders) > 0 && !b.mu.away {
		return
	}
	select {
	case <-b.mu.left:
	default:
		close(b.mu.left)
	}
}

var _ throttle.Fleet = (*Limits)(nil)
