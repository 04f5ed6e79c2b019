package limit

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/filaq/fila/sidecar/fleet"
	"github.com/filaq/fila/sidecar/fleet/record"
	"github.com/filaq/fila/throttle"
)

// letter is that of the records of limits in the bucket of a fleet.
const letter = "r"

// askAgain is after how long one that lacks something says so again: half of the time
// for which a record believes it.
const askAgain = 500 * time.Millisecond

// Options of [Limits].
type Options struct {
	Log    *slog.Logger
	Now    func() int64 // Unix ns
	Fleet  *fleet.Sync  // not started yet
	Shares func(key string) bool
	// SetAt is when the limits of a key that were set here were set, by the fleet's clock
	// (Unix ns); 0: not known.
	SetAt func(key string) int64
	// Tell tells those who wait for gates that it is their turn.
	Tell func([]*throttle.Wait)
	// Conflict is told once that newer limits of another instance are in force here. One
	// of Kin has the same limits, or will: nothing is told of it.
	Conflict func(Conflict)
	Kin      func(instance string) bool
}

// Conflict is limits of a key that differ over a fleet.
type Conflict struct {
	Key          string
	Own, InForce throttle.Limits
	By           string // name of the instance whose limits are in force
	At           int64  // they were set, Unix ns of this host's clock
}

// Limits are the shared limits of a process. Its methods may be called from any
// goroutine.
type Limits struct {
	opt   Options
	gates *throttle.Gates // set by Attach

	mu struct {
		sync.Mutex
		away    bool
		members map[string]*member
		left    chan struct{} // closed when no member is left; nil: nobody is to leave
	}
}

// member is this instance as a user of one key.
type member struct {
	mu      sync.Mutex
	m       *record.Member
	foreign error // why the record cannot be read: the gate goes by its part; nil: it can
	told    bool  // the log was, of foreign
	lent    int64 // when the newest chunk was asked for
	spare   int64 // since when there are permits that nobody uses; 0: there are none

	disagreed throttle.Limits // of another instance, of which Conflict was told
	answered  chan struct{}   // of Answered; nil: nobody waits
}

// New returns the limits that o.Fleet shares, and registers them there.
func New(o Options) *Limits {
	l := &Limits{opt: o}
	l.mu.away = true
	l.mu.members = make(map[string]*member)
	o.Fleet.Register(letter, l)
	return l
}

// Attach has the gates of a registry shared, before they are used and the fleet starts.
func (l *Limits) Attach(g *throttle.Gates) {
	l.gates = g
	g.Share(l)
}

// Begin is as in throttle.Fleet.
func (l *Limits) Begin(key string) (shared bool, parts int64) {
	if !l.opt.Shares(key) {
		return false, 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.member(key)
	e, _ := l.opt.Fleet.Find(letter, key)
	if rec, err := decode(e); err != nil || l.mu.away {
		m := record.NewMember(l.opt.Fleet.Me()) // the other one's mutex may be held by who waits for the gate
		m.Join(0, 0, e.Rev, rec)
		parts = l.parts(m)
	}
	return true, parts
}

// parts is into how many parts a rate is divided that goes without the record: one for
// each that uses the key or, if that is nobody as far as is known, for all who were there
// last.
func (l *Limits) parts(m *record.Member) int64 {
	if rec, _ := m.Record(); len(rec.Users) == 0 {
		return max(1, int64(len(l.opt.Fleet.Peers())))
	}
	return m.Parts()
}

// Request is as in throttle.Fleet.
func (l *Limits) Request(key string) {
	l.mu.Lock()
	l.member(key)
	l.mu.Unlock()
	l.opt.Fleet.Touch(letter, key)
}

// member returns the member of a key, made with what is known of it. Its caller holds
// mu.
func (l *Limits) member(key string) *member {
	mem := l.mu.members[key]
	if mem == nil {
		mem = &member{m: record.NewMember(l.opt.Fleet.Me())}
		mem.mu.Lock() // nobody else has it, so this does not wait
		defer mem.mu.Unlock()
		l.mu.members[key] = mem // before the look: what comes after it is learned
		e, _ := l.opt.Fleet.Find(letter, key)
		rec, err := decode(e)
		mem.m.Join(l.opt.Now(), l.age(e), e.Rev, rec)
		mem.foreign = err
	}
	return mem
}

// age is how long ago a record was written, by the server's clock.
func (l *Limits) age(e fleet.Entry) int64 { return int64(l.opt.Fleet.AgeOf(e)) }

// read is the fleet's clock at time now of this host.
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

// Swap returns the record of a key as it should be.
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
	if mem.foreign != nil && !mem.told {
		mem.told = true
		l.opt.Log.Error("the shared record of a throttle key cannot be read; it is limited as without the bucket until the record is deleted", "throttle", key, "error", mem.foreign)
	}
	var ask record.Ask
	switch {
	case mem.foreign != nil || (leaving || !shared) && !mem.m.Known() && !rec.Lost(l.opt.Fleet.Live):
		if leaving || !shared {
			l.forget(key, mem, leaving)
		}
		return nil, 0, 0, false
	case leaving || !shared:
		l.correct(key, mem, &n)
		ask = l.leave(key, mem, &n, shared, now, at)
	case l.settle(key, mem, &n, now, at):
	default:
		l.correct(key, mem, &n)
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

// leave ends the use of a key: what is not used goes back, and the owner says what it has
// come to. A key without a gate was not used, or all that was used is over. Of one that
// this instance does not use it says that the owner is dead.
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

// settle has the gate be what the record says of this instance: the owner, which has
// nothing to say but its limits unless others press, or a user.
func (l *Limits) settle(key string, mem *member, n *throttle.Needs, now int64, at record.Reading) (sole bool) {
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

// giveBack takes the chunks of a gate back that end within so many nanoseconds.
func (l *Limits) giveBack(key string, mem *member, now, within int64) {
	for _, c := range l.gates.ReturnLeases(key, now, within) {
		if c.Tokens > 0 || c.Slots > 0 {
			mem.m.GiveBack(record.Rest{Tokens: c.Tokens, Slots: record.Slot{At: c.Leased, N: c.Slots}, Until: c.Until})
		}
	}
}

// correct tells the record what messages have cost more or less than was taken for them. An
// owner of which only the record knows has not handed over: it waits until then.
func (l *Limits) correct(key string, mem *member, n *throttle.Needs) {
	if rec, _ := mem.m.Record(); n.Uncharged && rec.Owner == "" {
		mem.m.GiveBack(record.Rest{Tokens: -l.gates.TakeUncharged(key), Until: throttle.Never})
	}
}

// ask says what a gate needs, and what is given back. ok is false if there is nothing to
// be said by one whom the record does not know.
func (l *Limits) ask(key string, mem *member, n *throttle.Needs, now int64, at record.Reading) (a record.Ask, again time.Duration, ok bool) {
	l.giveBack(key, mem, now, int64(record.ChunkLife-record.GiveBackAfter))
	if age := time.Duration(now - mem.lent); n.Leased && age < record.ChunkLife {
		again = max(record.GiveBackAfter-age, time.Millisecond)
	}
	inForce, _ := mem.m.InForce(n.Limits, l.opt.SetAt(key))
	a = record.Ask{Tokens: n.Tokens, Slots: n.Slots, Cost: n.Cost, Waits: n.Tokens || n.Slots || n.Place}
	if inForce.Concurrency > 0 {
		later := l.permits(key, mem, n, inForce, &a, now, at)
		again = sooner(again, later)
	}
	if a.Waits {
		again = sooner(again, askAgain)
	} else if !mem.m.Known() && a.Hold == 0 && !n.Owned && !n.Uncharged {
		return a, again, false
	}
	return a, again, true
}

// permits says which permits are kept and wanted. Those that nobody needs are given back
// after a while, or at once if others ask.
func (l *Limits) permits(key string, mem *member, n *throttle.Needs, limits throttle.Limits, a *record.Ask, now int64, at record.Reading) (again time.Duration) {
	a.Hold = max(n.Permits, n.InFlight)
	fair := mem.m.Fair(at.Now, limits)
	hungry := mem.m.Hungry(at.Now, limits)
	crowded := hungry && a.Hold > fair
	if n.Crowded && !crowded {
		a.Hold = l.gates.Lower(key, a.Hold, false)
	}
	switch free := a.Hold - n.InFlight; {
	case crowded:
		a.Hold, mem.spare = l.gates.Lower(key, fair, true), 0
	case n.Place:
		mem.spare = 0
		if a.More = fair - a.Hold; a.More <= 0 && !hungry {
			a.More = 1 // what the others leave
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

// sooner is the smaller one of two times, of which 0 is none.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// Learn takes a record, and lends the gate what it has brought.
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
	conflict := l.adopt(key, mem, now)
	switch {
	case !ok:
	case landed.Own != nil:
		if _, alone, shared := l.gates.Shared(key); shared && !alone {
			l.own(key, mem, *landed.Own, now, l.read(now))
		}
	default:
		c := throttle.Lease{
			Tokens: landed.Tokens, Slots: landed.Slots.N, Leased: landed.Slots.At,
			Until: landed.At + int64(record.ChunkLife),
		}
		if c.Tokens > 0 || c.Slots > 0 {
			mem.lent = landed.At
		}
		l.opt.Tell(l.gates.AddLease(key, c, landed.Permits, now, nil))
	}
	l.level(key, mem, now)
	if mem.answered != nil {
		close(mem.answered)
		mem.answered = nil
	}
	mem.mu.Unlock()
	l.report(conflict)
	l.opt.Fleet.Touch(letter, key)
}

// level tells the gate what is in the bucket of the fleet: nothing fits in if only the
// owner knows.
func (l *Limits) level(key string, mem *member, now int64) {
	own, alone, shared := l.gates.Shared(key)
	if !shared || alone {
		return
	}
	limits, _ := mem.m.InForce(own, l.opt.SetAt(key))
	tokens := int64(throttle.MaxBurst)
	if v, known := mem.m.Level(now, l.read(now), limits); known {
		tokens = v.Tokens
	}
	l.gates.Level(key, tokens, now)
}

// adopt puts the newest limits of the fleet in force. It returns what is to be told of
// it, if anything is.
func (l *Limits) adopt(key string, mem *member, now int64) *Conflict {
	own, _, shared := l.gates.Shared(key)
	if !shared {
		return nil
	}
	limits, by := mem.m.InForce(own, l.opt.SetAt(key))
	l.opt.Tell(l.gates.Adopt(key, limits, now, nil))
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

// own has a gate go by limits of its own from a level on, to which that comes which it
// was lent before. Slots of a chunk that has ended are used up.
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
	l.opt.Tell(l.gates.Own(key, state, now, nil))
}

// part has a gate go by its part of the rate.
func (l *Limits) part(key string, mem *member, now int64) {
	l.opt.Tell(l.gates.Part(key, l.parts(mem.m), now, nil))
}

// forget forgets a key that has no shared gate, unless it has got one, or one that is not
// used any more.
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

// Release ends the use of all keys before the fleet is stopped: what is not used goes
// back, and what is used lies in the records. From its begin on nothing passes gates that
// are shared. It returns when that is done, when it cannot be, or with ctx.
func (l *Limits) Release(ctx context.Context) {
	l.mu.Lock()
	away, left := l.mu.away, make(chan struct{})
	if !away {
		l.mu.left = left
	}
	l.mu.Unlock()
	if away {
		return // what is known stays where it is
	}
	l.leftIfEmpty()
	for key := range l.all() {
		l.opt.Fleet.Touch(letter, key)
	}
	select {
	case <-left:
	case <-ctx.Done():
		l.opt.Log.Warn("shared limits are not given back in time; until this fila counts as dead nobody else gets what it has", "error", ctx.Err())
	}
}

// Status is how a key is shared, as far as it is known here.
type Status struct {
	Away    bool             // the bucket cannot be reached, or the record not be read
	Alone   bool             // this instance goes by limits of its own
	Owned   bool             // this instance does, or another one: nothing is known of what is used
	Users   map[string]int64 // permits, by name of the instance
	Tokens  int64            // not lent, in thousandths
	Slots   int64            // used or lent
	InForce throttle.Limits
	By      string // name of the instance that has set them; empty: they are as they were set here
	SetAt   int64  // Unix ns of this host's clock; 0: not known
}

// Status returns how a key is shared. ok is false if it has no gate that is.
func (l *Limits) Status(key string) (s Status, ok bool) {
	own, alone, shared := l.gates.Shared(key)
	mem := l.find(key)
	if !shared || mem == nil {
		return Status{}, false
	}
	mem.mu.Lock()
	defer mem.mu.Unlock()
	rec, _ := mem.m.Record()
	s = Status{Away: mem.foreign != nil || l.opt.Fleet.Away() != nil, Alone: alone, Owned: alone || rec.Owner != "" || len(rec.Users) == 0, Users: make(map[string]int64, len(rec.Users)), Tokens: rec.Tokens}
	for name, u := range rec.Users {
		s.Users[fleet.NameOf(name)] += u.Permits
	}
	for _, slot := range rec.Slots {
		s.Slots += slot.N
	}
	var by string
	if s.InForce, by = mem.m.InForce(own, l.opt.SetAt(key)); s.InForce != own && !l.opt.Kin(by) {
		s.By, s.SetAt = fleet.NameOf(by), max(0, rec.Terms.At-l.opt.Fleet.Offset())
	}
	return s, true
}

// Answered returns a channel that is closed when the next record of a key has come and has
// been heeded; nil: the key has no member.
func (l *Limits) Answered(key string) <-chan struct{} {
	mem := l.find(key)
	if mem == nil {
		return nil
	}
	mem.mu.Lock()
	defer mem.mu.Unlock()
	if mem.answered == nil {
		mem.answered = make(chan struct{})
	}
	return mem.answered
}

// Outlook puts into i how the limits of its gate stand in the fleet, and says which of
// them is to be waited for by a call of that cost, and until when (Unix ns): now, if there
// is enough of all; throttle.Never, if nobody knows. ok is false if the gate does not go by
// what the fleet lends.
func (l *Limits) Outlook(i *throttle.Info, cost, now int64) (kind throttle.Kind, at int64, ok bool) {
	own, alone, shared := l.gates.Shared(i.Key)
	mem := l.find(i.Key)
	if !shared || alone || mem == nil || l.opt.Fleet.Away() != nil {
		return throttle.Open, 0, false
	}
	mem.mu.Lock()
	defer mem.mu.Unlock()
	if mem.foreign != nil {
		return throttle.Open, 0, false
	}
	limits, _ := mem.m.InForce(own, l.opt.SetAt(i.Key))
	clock := l.read(now)
	v, known := mem.m.Level(now, clock, limits)
	kind, at = i.Kind, now
	if !known { // it is about to hand over
		return kind, at, true
	}
	later := func(k throttle.Kind, t int64) {
		if t > at {
			kind, at = k, t
		}
	}
	if full := limits.Full(); full > 0 {
		i.Tokens = v.Tokens // without what is lent, here as elsewhere
		i.BucketFull = limits.Rate.Takes(max(0, full-i.Tokens))
		later(throttle.ByRate, now+limits.Rate.Takes(max(0, min(cost, full)-v.Tokens)))
	}
	if limits.Limit > 0 {
		n, first, last := v.InWindow(clock, limits.Window)
		i.InWindow, i.WindowEmpty = n, max(0, last)
		if n >= limits.Limit {
			later(throttle.ByWindow, now+first)
		}
	}
	if limits.Concurrency > 0 {
		rec, _ := mem.m.Record()
		permits := int64(0)
		for _, u := range rec.Users {
			permits += u.Permits
		}
		if i.InFlight = max(i.InFlight, permits); permits >= limits.Concurrency {
			later(throttle.ByInFlight, throttle.Never)
		}
	}
	return kind, at, true
}

// leftIfEmpty tells Release when there is nothing to wait for.
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

// Join takes all records that are there.
func (l *Limits) Join(entries map[string]fleet.Entry) {
	l.mu.Lock()
	l.mu.away = false
	l.mu.Unlock()
	for key, mem := range l.all() {
		mem.mu.Lock()
		now := l.opt.Now()
		l.meet(key, mem, entries[key], now)
		conflict := l.adopt(key, mem, now)
		l.level(key, mem, now)
		mem.mu.Unlock()
		l.report(conflict)
		l.opt.Fleet.Touch(letter, key)
	}
}

// meet begins anew with a record: the gate is lent what it needs. One that cannot be read
// stays as it is, and the gate goes by its part. Its caller holds the member's mutex.
func (l *Limits) meet(key string, mem *member, e fleet.Entry, now int64) {
	rec, err := decode(e)
	mem.m.Join(now, l.age(e), e.Rev, rec)
	if mem.foreign = err; err != nil {
		l.part(key, mem, now)
		return
	}
	mem.told = false
	_, alone, shared := l.gates.Shared(key)
	if shared && (!alone || len(rec.Users) > 0 && rec.Owner != l.opt.Fleet.Me()) {
		l.gates.Borrow(key, now)
	}
}

// Away has every gate go by its part.
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

// Idle reports whether a record says nothing that no record says. Of an owner that is
// dead nobody knows what it has used: that it is dead is written first.
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

// levelOf is the state of a gate as a record has it.
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

// stateOf is the level of a record as a gate has it. A slot may have been used until its
// lease ended.
func stateOf(v record.Level, now int64, at record.Reading) throttle.State {
	s := throttle.State{At: now - max(0, at.Earliest()-v.At), Tokens: &v.Tokens}
	for _, slot := range v.Slots {
		age := at.Earliest() - slot.At - int64(record.ChunkLife+record.ClockSpread)
		s.Entries = append(s.Entries, throttle.Entry{Age: max(0, age), Count: slot.N})
	}
	return s
}
