package limit

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/filaq/fila/sidecar/fleet"
	"github.com/filaq/fila/sidecar/fleet/record"
	"github.com/filaq/fila/throttle"
	"github.com/filaq/fila/throttle/adapt"
)

// recordKind is the prefix of records of limits in the bucket of a fleet.
const recordKind = "r"

// askAgain is how often a member repeats a request: half of the time for which a record
// counts it.
const askAgain = 500 * time.Millisecond

// Options of [Limits].
type Options struct {
	Log    *slog.Logger
	Now    func() int64 // Unix ns
	Fleet  *fleet.Sync  // not started yet
	Shares func(key string) bool
	// SetAt returns when the limits of a key were set here, by the fleet's clock (Unix ns);
	// 0: not known.
	SetAt func(key string) int64
	// Notify notifies waiters of gates that they have the turn.
	Notify func([]*throttle.Wait)
	// Conflict is called once when newer limits of another instance are in force here,
	// unless that instance is one of Kin, which have the same limits or soon will.
	Conflict func(Conflict)
	Kin      func(instance string) bool
}

// Conflict is a difference between the limits of a key in a fleet.
type Conflict struct {
	Key          string
	Own, InForce throttle.Limits
	By           string // name of the instance whose limits are in force
	At           int64  // they were set, Unix ns of this host's clock
}

// Limits are the shared limits of a process. It is safe for concurrent use.
type Limits struct {
	opt     Options
	gates   *throttle.Gates // set by Attach
	budgets *budgets

	mu struct {
		sync.Mutex
		away    bool
		members map[string]*member
		left    chan struct{} // closed when no member is left; nil: Release was not called
	}
}

// member is this instance as a user of one key.
type member struct {
	mu      sync.Mutex
	m       *record.Member
	foreign error // why the record cannot be read, so that the gate applies its part; nil: it can
	logged  bool  // foreign has been logged
	leased  int64 // when the newest lease was requested
	spare   int64 // since when there are unused permits; 0: there are none

	disagreed throttle.Limits // of another instance, reported by Conflict
	answered  chan struct{}   // of Answered; nil: no caller waits
}

// New returns the limits that o.Fleet shares, and registers them there.
func New(o Options) *Limits {
	l := &Limits{opt: o}
	l.mu.away = true
	l.mu.members = make(map[string]*member)
	o.Fleet.Register(recordKind, l)
	l.budgets = newBudgets(l)
	return l
}

// Attach shares the gates of a registry. Call it before they are used and the fleet
// starts.
func (l *Limits) Attach(g *throttle.Gates) {
	l.gates = g
	g.Share(l)
}

// Begin implements throttle.Fleet.
func (l *Limits) Begin(key string) (shared bool, parts int64) {
	if !l.opt.Shares(key) {
		return false, 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.member(key)
	e, _ := l.opt.Fleet.Find(recordKind, key)
	if rec, err := decode(e); err != nil || l.mu.away {
		m := record.NewMember(l.opt.Fleet.Me()) // not the shared member: a holder of its mutex may wait for the gate
		m.Join(0, 0, e.Rev, rec)
		parts = l.parts(m)
	}
	return true, parts
}

// parts is the number of parts of a rate without the record: one for each user of the key
// or, if none is known, one for each instance that was there last.
func (l *Limits) parts(m *record.Member) int64 {
	if rec, _ := m.Record(); len(rec.Users) == 0 {
		return max(1, int64(len(l.opt.Fleet.Peers())))
	}
	return m.Parts()
}

// Request implements throttle.Fleet.
func (l *Limits) Request(key string) {
	l.mu.Lock()
	l.member(key)
	l.mu.Unlock()
	l.opt.Fleet.Touch(recordKind, key)
}

// member returns the member of a key, and creates it from the known record if there is
// none. It needs mu.
func (l *Limits) member(key string) *member {
	mem := l.mu.members[key]
	if mem == nil {
		mem = &member{m: record.NewMember(l.opt.Fleet.Me())}
		mem.mu.Lock() // does not wait, since the member is new
		defer mem.mu.Unlock()
		l.mu.members[key] = mem // before Find, so that Learn brings every later record
		e, _ := l.opt.Fleet.Find(recordKind, key)
		rec, err := decode(e)
		mem.m.Join(l.opt.Now(), l.age(e), e.Rev, rec)
		mem.foreign = err
	}
	return mem
}

// age is the time since a record was written, by the server's clock.
func (l *Limits) age(e fleet.Entry) int64 { return int64(l.opt.Fleet.AgeOf(e)) }

// read converts a time of this host to the fleet's clock.
func (l *Limits) read(now int64) record.Reading {
	at, off := l.opt.Fleet.Read(now)
	return record.Reading{Now: at, Err: off}
}

func (l *Limits) find(key string) *member {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.members[key]
}

func decode(e fleet.Entry) (rec record.Limit, err error) {
	if e.Value == nil {
		return record.Limit{}, nil
	}
	return record.DecodeLimit(e.Value)
}

// Swap returns the record of a key as it should be. It implements fleet.Kind.
func (l *Limits) Swap(key string) (value []byte, over uint64, again time.Duration, ok bool) {
	l.mu.Lock()
	mem, leaving := l.mu.members[key], l.mu.left != nil
	l.mu.Unlock()
	if mem == nil {
		return nil, 0, 0, false
	}
	mem.mu.Lock()
	defer mem.mu.Unlock()
	now := l.opt.Now()
	at := l.read(now)
	n, shared := l.gates.Needs(key, now)
	rec, _ := mem.m.Record()
	if mem.foreign != nil && !mem.logged {
		mem.logged = true
		l.opt.Log.Error("the shared record of a throttle key cannot be read; it is limited as without the bucket until the record is deleted", "throttle", key, "error", mem.foreign)
	}
	l.teach(key, mem, &n)
	var ask record.Ask
	switch {
	case mem.foreign != nil || (leaving || !shared) && !mem.m.Known() && !rec.Lost(l.opt.Fleet.Live):
		if leaving || !shared {
			l.forget(key, mem, leaving)
		}
		return nil, 0, 0, false
	case leaving || !shared:
		l.correct(key, mem, &n, now)
		ask = l.leave(key, mem, &n, shared, now, at)
	case l.takeRole(key, mem, &n, now, at):
	default:
		l.correct(key, mem, &n, now)
		if ask, again, ok = l.ask(key, mem, &n, now, at); !ok {
			return nil, 0, again, false
		}
	}
	next, over, g, ok := mem.m.Swap(now, at, ask, l.opt.Fleet.Live, n.Limits, l.opt.SetAt(key))
	again = sooner(again, g.Again)
	if !ok {
		return nil, 0, again, false
	}
	return next.Encode(), over, again, true
}

// teach reports to the fleet what this instance has learned of the level of a key.
func (l *Limits) teach(key string, mem *member, n *throttle.Needs) {
	switch {
	case !n.Learns:
	case n.Owned:
		level, cause := l.gates.Learned(key)
		mem.m.Teach(shift(level, l.opt.Fleet.Offset()), cause)
	case n.Lesson:
		mem.m.Report(l.gates.TakeLesson(key))
	}
}

// shift moves the times of a level to another clock.
func shift(level adapt.Level, by int64) adapt.Level {
	for _, t := range []*int64{&level.CutAt, &level.GrownAt} {
		if *t != 0 {
			*t += by
		}
	}
	return level
}

// learned puts the level that the fleet has learned in force here.
func (l *Limits) learned(key string, mem *member, now int64) {
	rec, _ := mem.m.Record()
	v := &rec.Learned
	announce := v.By == l.opt.Fleet.Me() || !l.opt.Kin(v.By)
	l.opt.Notify(l.gates.SetLevel(key, shift(v.Level, -l.opt.Fleet.Offset()), v.Cause, announce, now, nil))
}

// leave ends the use of a key. It returns what is unused, and the owner hands over the
// usage. A key without a gate was not used, or its usage is over. If this instance does not
// use the key, it only reports that the owner is dead.
func (l *Limits) leave(key string, mem *member, n *throttle.Needs, shared bool, now int64, at record.Reading) record.Ask {
	l.giveBack(key, mem, now, int64(record.ChunkLife))
	switch sole, _ := mem.m.Sole(l.opt.Fleet.Live); {
	case !shared:
		mem.m.HandOver(record.Level{})
	case sole && n.Owned:
		if state, _, ok := l.gates.HandOver(key, now); ok {
			inForce, _ := mem.m.InForce(n.Limits, l.opt.SetAt(key))
			mem.m.HandOver(levelOf(state, inForce, at))
		}
	case sole:
		mem.m.HandOver(mem.m.Regain())
	}
	return record.Ask{Leave: true}
}

// takeRole makes the gate the owner or a user, as the record says. It reports whether this
// instance is the sole user, which writes nothing but its limits unless others want the key.
func (l *Limits) takeRole(key string, mem *member, n *throttle.Needs, now int64, at record.Reading) (sole bool) {
	rec, _ := mem.m.Record()
	sole, pressed := mem.m.Sole(l.opt.Fleet.Live)
	switch {
	case sole && n.Owned && pressed:
		if state, inFlight, ok := l.gates.HandOver(key, now); ok {
			inForce, _ := mem.m.InForce(n.Limits, l.opt.SetAt(key))
			mem.m.HandOver(levelOf(state, inForce, at))
			n.Owned, n.Permits = false, inFlight
		}
	case sole && pressed:
		mem.m.HandOver(mem.m.Regain())
	case sole && !n.Owned:
		l.own(key, mem, mem.m.Regain(), now, at)
		return true
	case sole:
		return true
	case n.Owned && len(rec.Users) > 0: // another one has become the owner
		n.Owned, n.Permits = false, l.gates.Borrow(key, now)
	}
	return false
}

// giveBack returns the leases of a gate that end within a time (ns).
func (l *Limits) giveBack(key string, mem *member, now, within int64) {
	for _, c := range l.gates.ReturnLeases(key, now, within) {
		if c.Tokens > 0 || c.Slots > 0 {
			mem.m.GiveBack(record.Rest{Tokens: c.Tokens, Slots: record.Slot{At: c.Leased, N: c.Slots}, Until: c.Until})
		}
	}
}

// correct adds uncharged costs of messages to the record, and what a destination has said that remains.
// While the record has an owner, both wait until it has handed over.
func (l *Limits) correct(key string, mem *member, n *throttle.Needs, now int64) {
	rec, _ := mem.m.Record()
	if rec.Owner != "" {
		return
	}
	if n.Uncharged {
		mem.m.GiveBack(record.Rest{Tokens: -l.gates.TakeUncharged(key), Until: throttle.Never})
	}
	if tokens, ok := l.gates.TakeRemaining(key, now); ok {
		mem.m.Lower(tokens, now, mem.m.Effective(n.Limits, l.opt.SetAt(key)).Rate)
	}
}

// ask returns what a gate needs and returns. ok is false if there is nothing to write for an
// instance that the record does not know.
func (l *Limits) ask(key string, mem *member, n *throttle.Needs, now int64, at record.Reading) (a record.Ask, again time.Duration, ok bool) {
	l.giveBack(key, mem, now, int64(record.ChunkLife-record.GiveBackAfter))
	if age := time.Duration(now - mem.leased); n.Leased && age < record.ChunkLife {
		again = max(record.GiveBackAfter-age, time.Millisecond)
	}
	inForce := mem.m.Effective(n.Limits, l.opt.SetAt(key))
	a = record.Ask{Tokens: n.Tokens, Slots: n.Slots, Cost: n.Cost, Waits: n.Tokens || n.Slots || n.Place}
	if inForce.Concurrency > 0 {
		later := l.permits(key, mem, n, inForce, &a, now, at)
		again = sooner(again, later)
	}
	if a.Waits {
		again = sooner(again, askAgain)
	} else if !mem.m.Known() && a.Hold == 0 && !n.Owned && !n.Uncharged && !n.Remaining && !n.Spends {
		return a, again, false
	}
	return a, again, true
}

// permits fills in which permits to keep and to request. Unused ones are returned after a
// while, or at once if other instances need them.
func (l *Limits) permits(key string, mem *member, n *throttle.Needs, limits throttle.Limits, a *record.Ask, now int64, at record.Reading) (again time.Duration) {
	a.Hold = max(n.Permits, n.InFlight)
	fair := mem.m.Fair(at.Now, limits)
	hungry := mem.m.Hungry(at.Now, limits)
	crowded := a.Hold > fair && (hungry || mem.m.Crowded(a.Hold, limits))
	if n.Crowded && !crowded {
		a.Hold = l.gates.Lower(key, a.Hold, false)
	}
	switch free := a.Hold - n.InFlight; {
	case crowded:
		a.Hold, mem.spare = l.gates.Lower(key, fair, true), 0
	case n.Place:
		mem.spare = 0
		if a.More = fair - a.Hold; a.More <= 0 && !hungry {
			a.More = 1 // others leave some
		}
		a.More = max(0, a.More)
	case free <= 0:
		mem.spare = 0
	case mem.spare == 0:
		mem.spare, again = now, record.UnusedFor
	case now-mem.spare >= int64(record.UnusedFor):
		a.Hold, mem.spare = l.gates.Lower(key, 0, false), 0
	default:
		again = record.UnusedFor - time.Duration(now-mem.spare)
	}
	return again
}

// sooner returns the smaller of two times, where 0 means none.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// Learn takes over a record, and gives the gate the leases that it grants.
func (l *Limits) Learn(key string, e fleet.Entry) {
	mem := l.find(key)
	if mem == nil {
		return
	}
	mem.mu.Lock()
	now := l.opt.Now()
	rec, err := decode(e)
	if _, rev := mem.m.Record(); e.Rev > rev && (err != nil || mem.foreign != nil) {
		l.meet(key, mem, e, now)
	}
	landed, ok := mem.m.Learn(now, e.Rev, rec)
	if landed.Lowered {
		l.gates.FinishLeases(key, rec.Tokens < throttle.One)
	}
	conflict := l.adopt(key, mem, now)
	l.learned(key, mem, now)
	switch {
	case !ok:
	case landed.Own != nil:
		if _, alone, shared := l.gates.Shared(key); shared && !alone {
			l.own(key, mem, *landed.Own, now, l.read(now))
		}
	default:
		c := throttle.Lease{
			Tokens: landed.Tokens, Slots: landed.Slots.N, Leased: landed.Slots.At,
			Until: landed.At + int64(record.ChunkLife), Final: landed.Lowered,
		}
		if c.Tokens > 0 || c.Slots > 0 {
			mem.leased = landed.At
		}
		l.opt.Notify(l.gates.AddLease(key, c, landed.Permits, now, nil))
	}
	l.level(key, mem, now)
	mem.answer()
	mem.mu.Unlock()
	l.report(conflict)
	l.opt.Fleet.Touch(recordKind, key)
}

// answer wakes the callers of Answered. It needs the member's mutex.
func (m *member) answer() {
	if m.answered != nil {
		close(m.answered)
		m.answered = nil
	}
}

// level reports the tokens in the fleet's bucket to the gate. If only the owner knows them,
// the bucket counts as full, so that nothing is refunded.
func (l *Limits) level(key string, mem *member, now int64) {
	own, alone, shared := l.gates.Shared(key)
	if !shared || alone {
		return
	}
	limits := mem.m.Effective(own, l.opt.SetAt(key))
	tokens := int64(throttle.MaxBurst)
	if v, known := mem.m.Level(now, l.read(now), limits); known {
		tokens = v.Tokens
	}
	l.gates.Level(key, tokens, now)
}

// adopt puts the newest limits of the fleet in force. It returns a conflict to report, or nil.
func (l *Limits) adopt(key string, mem *member, now int64) *Conflict {
	own, _, shared := l.gates.Shared(key)
	if !shared {
		return nil
	}
	limits, by := mem.m.InForce(own, l.opt.SetAt(key))
	l.opt.Notify(l.gates.Adopt(key, limits, now, nil))
	if limits == own {
		mem.disagreed = throttle.Limits{}
		return nil
	}
	if mem.disagreed == limits || l.opt.Kin(by) {
		return nil
	}
	mem.disagreed = limits
	rec, _ := mem.m.Record()
	return &Conflict{Key: key, Own: own, InForce: limits, By: fleet.NameOf(by), At: max(0, rec.Terms.At-l.opt.Fleet.Offset())}
}

func (l *Limits) report(c *Conflict) {
	if c != nil {
		l.opt.Conflict(*c)
	}
}

// own makes a gate apply its limits alone, starting from a level plus its own leases. Slots
// of a lease that has ended count as used.
func (l *Limits) own(key string, mem *member, level record.Level, now int64, at record.Reading) {
	set, _, _ := l.gates.Shared(key)
	inForce, _ := mem.m.InForce(set, l.opt.SetAt(key))
	for _, c := range l.gates.ReturnLeases(key, now, int64(record.ChunkLife)) {
		rest := record.Rest{Tokens: c.Tokens, Until: c.Until}
		if c.Until > now {
			rest.Slots = record.Slot{At: c.Leased, N: c.Slots}
		}
		level.Return(rest.Back(now, inForce.Rate), rest.Slots)
	}
	var state *throttle.State
	if level.Used {
		s := stateOf(level, now, at)
		state = &s
	}
	l.opt.Notify(l.gates.Own(key, state, now, nil))
}

// part makes a gate apply its part of the rate.
func (l *Limits) part(key string, mem *member, now int64) {
	l.opt.Notify(l.gates.Part(key, l.parts(mem.m), now, nil))
}

// forget removes the member of a key without a shared gate, unless it has got one since, or
// of a key that this instance leaves.
func (l *Limits) forget(key string, mem *member, leaving bool) {
	l.mu.Lock()
	if l.mu.members[key] == mem {
		delete(l.mu.members, key)
	}
	l.mu.Unlock()
	if leaving {
		l.leftIfEmpty()
	} else if _, _, shared := l.gates.Shared(key); shared {
		l.Request(key)
	}
}

// Release ends the use of all keys before the fleet is stopped: it returns what is unused and
// records what is used. From its start on, shared gates admit nothing. It returns when that is
// done, when the bucket is away, or when ctx ends.
func (l *Limits) Release(ctx context.Context) {
	l.mu.Lock()
	away, left := l.mu.away, make(chan struct{})
	if !away {
		l.mu.left = left
	}
	l.mu.Unlock()
	budgets := l.budgets.release()
	if away {
		return
	}
	l.leftIfEmpty()
	for key := range l.all() {
		l.opt.Fleet.Touch(recordKind, key)
	}
	for _, done := range []<-chan struct{}{left, budgets} {
		select {
		case <-done:
		case <-ctx.Done():
			l.opt.Log.Warn("shared limits were not given back in time; other filas get them when this fila counts as dead", "error", ctx.Err())
			return
		}
	}
}

// leftIfEmpty wakes Release when there is nothing to wait for.
func (l *Limits) leftIfEmpty() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.left == nil || len(l.mu.members) > 0 && !l.mu.away {
		return
	}
	select {
	case <-l.mu.left:
	default:
		close(l.mu.left)
	}
}

// Join takes over all records of the bucket.
func (l *Limits) Join(entries map[string]fleet.Entry) {
	l.mu.Lock()
	l.mu.away = false
	l.mu.Unlock()
	for key, mem := range l.all() {
		mem.mu.Lock()
		now := l.opt.Now()
		l.meet(key, mem, entries[key], now)
		conflict := l.adopt(key, mem, now)
		l.learned(key, mem, now)
		l.level(key, mem, now)
		mem.mu.Unlock()
		l.report(conflict)
		l.opt.Fleet.Touch(recordKind, key)
	}
}

// meet starts again with a record, and the gate requests new leases. A record that cannot be
// read stays as it is, and the gate applies its part of the rate. It needs the member's mutex.
func (l *Limits) meet(key string, mem *member, e fleet.Entry, now int64) {
	rec, err := decode(e)
	mem.m.Join(now, l.age(e), e.Rev, rec)
	if mem.foreign = err; err != nil {
		l.part(key, mem, now)
		return
	}
	mem.logged = false
	_, alone, shared := l.gates.Shared(key)
	if shared && (!alone || len(rec.Users) > 0 && rec.Owner != l.opt.Fleet.Me()) {
		l.gates.Borrow(key, now)
	}
}

// Away makes every gate apply its part of the rate.
func (l *Limits) Away() {
	l.mu.Lock()
	l.mu.away = true
	l.mu.Unlock()
	l.leftIfEmpty()
	for key, mem := range l.all() {
		mem.mu.Lock()
		l.part(key, mem, l.opt.Now())
		mem.mu.Unlock()
	}
}

func (l *Limits) all() map[string]*member {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make(map[string]*member, len(l.mu.members))
	for key, mem := range l.mu.members {
		all[key] = mem
	}
	return all
}

// Idle reports whether a record has no content that matters. The usage of a dead owner is
// unknown, so its death is written first.
func (l *Limits) Idle(key string, value []byte) bool {
	rec, err := record.DecodeLimit(value)
	if err != nil {
		return false
	}
	if rec.Lost(l.opt.Fleet.Live) {
		l.Request(key)
	}
	return rec.Idle(l.read(l.opt.Now()), l.opt.Fleet.Live)
}

// levelOf converts the state of a gate to the level in a record.
func levelOf(s throttle.State, limits throttle.Limits, at record.Reading) record.Level {
	v := record.Level{Used: true, Tokens: limits.Full(), At: at.Now}
	if s.Tokens != nil {
		v.Tokens = *s.Tokens
	}
	for _, e := range s.Entries {
		v.Slots = append(v.Slots, record.Slot{At: at.Latest() - e.Age, N: e.Count})
	}
	return v
}

// stateOf converts the level in a record to the state of a gate. A slot counts until the end of
// its lease.
func stateOf(v record.Level, now int64, at record.Reading) throttle.State {
	s := throttle.State{At: now - max(0, at.Earliest()-v.At), Tokens: &v.Tokens}
	for _, slot := range v.Slots {
		age := at.Earliest() - slot.At - int64(record.ChunkLife+record.ClockSpread)
		s.Entries = append(s.Entries, throttle.Entry{Age: max(0, age), Count: slot.N})
	}
	return s
}
