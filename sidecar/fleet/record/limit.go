package record

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/filaq/fila/throttle"
	"github.com/filaq/fila/throttle/adapt"
	"github.com/filaq/fila/throttle/budget"
)

// Times of leases. Leased tokens or slots may be used for ChunkLife from before the swap that took them
// was sent, by the holder's clock. ClockSpread is how much clocks may differ. Together they are the
// 200 ms by which the bound of a shared rate is wider than the bound of a local one.
const (
	ChunkLife   = 150 * time.Millisecond
	ClockSpread = 50 * time.Millisecond
	// ChunkTime is how much of a rate is leased at once, divided among those who ask.
	ChunkTime = 100 * time.Millisecond
	// GiveBackAfter is the age at which the rest of a lease is given back.
	GiveBackAfter = 100 * time.Millisecond
	// askLife is how long an instance counts as asking.
	askLife = time.Second
	// windowParts is the resolution of a window in a record.
	windowParts = 128
	maxSlots    = 4096 // of a record that is read
)

// Limit is the record of a throttle key. The zero Limit has no users and nothing in use, and is equal
// to no record.
//
// Maps and slices of a Limit are never changed: [Limit.Apply] makes new ones.
type Limit struct {
	// Owner is the only user, which applies its limits itself: Level is the state when it took
	// over, until it hands over. Empty: all Users lease from the record.
	Owner string
	Users map[string]User
	Level
	// Lowered is when the destination's feedback lowered the bucket last, by the fleet's clock and later
	// than the time before; 0: never.
	Lowered int64
	Terms   Terms[throttle.Limits]
	Learned Learned
}

// Learned is the level of limits that learn. Its times are by the fleet's clock. While there is an
// Owner, it is the level at the owner's last cut.
type Learned struct {
	adapt.Level
	Cause string // of the last cut
	By    string // instance whose message was refused
}

// limitVersion is the version of a [Limit] with a budget. Others have [Version].
const limitVersion = 2

// maxCause is how many bytes a cause may have.
const maxCause = 200

// Terms are limits and who set them. The limits that were set last are in force for all.
type Terms[L comparable] struct {
	Limits L
	At     int64  // when they were set, by the fleet's clock; 0: not known
	By     string // instance that set them; empty: none
}

// Newer reports whether limits other than l were set after it. A node of a cluster may learn when limits
// were set before it learns the limits; then it corrects what it has written.
func (t *Terms[L]) Newer(l *Terms[L]) bool {
	return t.Limits != l.Limits && (l.By == "" || t.At > l.At || t.At == l.At && t.By == l.By)
}

// meet adopts the limits of a record if they are newer. It reports whether that has changed the limits
// in force.
func (t *Terms[L]) meet(own Terms[L]) (changed bool) {
	changed = own.Newer(t)
	if changed || own.Limits == t.Limits && own.At > t.At {
		*t = own
	}
	return changed
}

// User is an instance in a record.
type User struct {
	Seen    uint64 // number of its last write
	Asks    int64  // it counts as asking for anything until then
	Wants   int64  // it counts as asking for leases that it can use until then
	Given   int64  // tokens leased beyond the user with the fewest
	Leased  int64  // the same for slots
	Permits int64  // for messages in flight
}

// Level is how much of the limits is in use. The zero Level is nothing.
type Level struct {
	Used   bool   // the other fields are valid
	Tokens int64  // in the bucket at time At, in thousandths; negative: debt
	At     int64  // time of Tokens; never goes back
	Rest   int64  // time before At that has not brought a thousandth yet (ns)
	Slots  []Slot // leased slots in the window, oldest first
}

// Slot is a number of window slots leased up to a time, and after the Slot before.
type Slot struct {
	At int64 `json:"at"`
	N  int64 `json:"n"`
}

// Ask is what an instance reports and requests in one write.
type Ask struct {
	By     string
	Number uint64
	// Leave ends the use: nothing is leased or in flight any more.
	Leave bool
	// Own is the level that the owner hands over.
	Own *Level
	// Back is leased tokens that could still be used, less what messages have cost beyond what
	// was taken for them; BackSlots are unused slots with the times when they were leased.
	Back      int64
	BackSlots []Slot
	// Remaining is what the bucket may have at most, beside the leases of the instance; nil: anything.
	Remaining *int64
	// Cost is the cost of a message that waits for tokens, in thousandths, or 0.
	Cost int64
	// Tokens and Slots request a lease.
	Tokens, Slots bool
	// Waits means that something is needed, whether or not it is requested now.
	Waits bool
	// Hold is how many permits to keep, at least the number of messages in flight; More is how
	// many more are requested.
	Hold, More int64
	// Lesson is for limits that learn. Teach is the level that the owner has learned, with times by
	// the fleet's clock.
	Lesson throttle.Lesson
	Teach  *Learned
}

// Grant is what an instance gets by a write.
type Grant struct {
	Own     *Level // it has become the owner, at this level
	Tokens  int64
	Slots   Slot
	Permits int64         // in total
	Again   time.Duration // when to ask again; 0: time does not bring what was refused
}

// Reading is a time of the fleet's clock as an instance knows it: Now, with the maximum error Err. Half
// of ClockSpread is allowed for everywhere, so only a larger error counts.
type Reading struct{ Now, Err int64 }

// beyond returns the error that nothing else allows for.
func (r Reading) beyond() int64 { return max(0, r.Err-int64(ClockSpread/2)) }

// Latest returns the latest possible time: slots count from then.
func (r Reading) Latest() int64 { return r.Now + r.beyond() }

// Earliest returns the earliest possible time: slots leave a window by it.
func (r Reading) Earliest() int64 { return r.Now - r.beyond() }

// LimitEnv is the environment of the rule of a Limit.
type LimitEnv struct {
	Reading
	Since  int64 // minimum time since the record was written (ns)
	Live   func(instance string) bool
	Limits throttle.Limits // of the instance, in force if newer than the record's
	Set    int64           // when they were set, by the fleet's clock; 0: not known
}

// terms adopts the limits of env if they are newer. It reports whether that has changed the record.
func (l *Limit) terms(by string, env *LimitEnv) (changed bool) {
	if env.Limits != (throttle.Limits{}) {
		changed = l.Terms.meet(Terms[throttle.Limits]{env.Limits, env.Set, by})
	}
	env.Limits = l.Terms.Limits
	return changed
}

// Apply returns the record after a request of an instance, what the instance gets, and whether the
// record has changed.
func (l *Limit) Apply(a Ask, env LimitEnv) (next Limit, g Grant, changed bool) {
	next = *l
	next.Users = maps.Clone(l.Users)
	if next.Users == nil {
		next.Users = make(map[string]User)
	}
	for name := range l.Users {
		if name != a.By && !env.Live(name) {
			delete(next.Users, name)
		}
	}
	me, known := next.Users[a.By]
	me.Seen = a.Number
	changed = next.terms(a.By, &env)
	changed = next.learn(&a, &env) || changed
	back := counted(a.BackSlots, env)
	charge := func() {
		if a.Back < 0 || a.Remaining != nil {
			next.Level.settle(env) // debts are taken from the current tokens
		}
		next.Level.Return(a.Back, back...)
		changed = next.lower(&a, &env) || changed
	}
	handsOver := l.Owner == a.By && (a.Own != nil || a.Leave)
	if handsOver || l.Owner != "" && l.Owner != a.By && !env.Live(l.Owner) {
		next.Level, next.Owner, changed = spent(env), "", true
		if handsOver && a.Own != nil {
			next.Level = *a.Own
			next.Slots = compact(next.Slots, env.Limits.Window/windowParts)
		}
	}
	switch {
	case a.Leave:
		charge()
		delete(next.Users, a.By)
		return next, Grant{}, known || changed
	case next.Owner == a.By:
		next.Users[a.By] = me
		return next, Grant{}, changed
	case next.Owner != "":
		me.Asks, me.Permits = env.Now+int64(askLife), a.Hold
		next.Users[a.By] = me
		return next, Grant{Permits: a.Hold, Again: askLife}, !known || changed || l.Users[a.By].Permits != a.Hold
	}
	charge()
	me.Given = max(0, me.Given-a.Back) // tokens given back do not count as given
	for _, b := range a.BackSlots {
		me.Leased = max(0, me.Leased-b.N)
	}
	next.Level.settle(env)
	next.Users[a.By] = me
	if len(next.Users) == 1 && !handsOver {
		own := next.Level
		me = User{Seen: me.Seen}
		next.Users[a.By] = me
		next.Owner = a.By
		return next, Grant{Own: &own}, true
	}
	asks := next.ask(&a, &g, env)
	got := g.Tokens != 0 || g.Slots.N != 0 || a.Back != 0 || len(a.BackSlots) != 0
	return next, g, changed || !known || got || asks || g.Permits != l.Users[a.By].Permits
}

// learn brings the learned level up to date, and makes env.Limits the limits at that level. It reports
// whether the level has changed, except by growth at the owner.
func (l *Limit) learn(a *Ask, env *LimitEnv) (changed bool) {
	b, ok := throttle.LevelBounds(env.Limits)
	if !ok {
		changed = l.Learned != (Learned{})
		l.Learned = Learned{}
		return changed
	}
	v := &l.Learned
	v.Fit(&b)
	before := v.Level
	switch {
	case env.Limits.Level != 0:
		v.Set(float64(env.Limits.Level)/throttle.One, v.GrownAt, &b)
		changed = v.At != before.At
	case l.Owner == a.By && a.Teach != nil:
		*v = *a.Teach
		changed = v.Cuts != before.Cuts
	case l.Owner != "":
	default:
		if a.Lesson.Successes > 0 && l.full(a, *env) {
			changed = v.Succeed(a.Lesson.Successes, env.Now, &b)
		}
		// The overload is of the present generation if its message was delivered when the present
		// level was known there.
		if a.Lesson.Overload && a.Lesson.Cuts == v.Cuts && v.Cut(math.MaxInt64, env.Now, &b) {
			v.Cause, v.By, changed = a.Lesson.Cause[:min(len(a.Lesson.Cause), maxCause)], a.By, true
		}
	}
	env.Limits = env.Limits.AtLevel(&v.Level)
	return changed
}

// full reports whether the limits that learn are used within 90 %, and not beyond after a cut.
func (l *Limit) full(a *Ask, env LimitEnv) bool {
	limits := env.Limits.AtLevel(&l.Learned.Level)
	if c := limits.Concurrency; c > 0 {
		used := a.Hold
		for name, u := range l.Users {
			if name != a.By {
				used += u.Permits
			}
		}
		return used*10 >= c*9 && used <= c
	}
	v := l.Level
	v.settle(env)
	return v.Tokens < max(throttle.One, limits.Full()/10)
}

// counted returns the slots that the record certainly still counts. Others would be taken out of later
// leases.
func counted(slots []Slot, env LimitEnv) []Slot {
	return slices.DeleteFunc(slices.Clone(slots), func(s Slot) bool { return env.Latest()-s.At >= env.Limits.Window })
}

// spent returns a used-up level: what a dead owner has used is not known.
func spent(env LimitEnv) Level {
	v := Level{Used: true, At: env.Now}
	if env.Limits.Limit > 0 {
		v.Slots = []Slot{{env.Latest(), env.Limits.Limit}}
	}
	return v
}

// ask grants what is available. It reports whether the request has to be noted in the record.
func (l *Limit) ask(a *Ask, g *Grant, env LimitEnv) (news bool) {
	me := l.Users[a.By]
	held := int64(0)
	for name, u := range l.Users {
		if name != a.By {
			held += u.Permits
		}
	}
	g.Permits = a.Hold
	if c := env.Limits.Concurrency; c > 0 {
		g.Permits += max(0, min(a.More, c-held-a.Hold))
	} else {
		g.Permits = 0
	}
	me.Permits = g.Permits
	usable := a.More == 0 || g.Permits > a.Hold || env.Limits.Concurrency == 0
	lasts := env.Now + int64(askLife)
	if a.Waits {
		news = lasts-me.Asks > int64(askLife)/2
		me.Asks = lasts
	} else {
		me.Asks = 0
	}
	if usable && (a.Tokens || a.Slots) {
		news = news || a.Waits && lasts-me.Wants > int64(askLife)/2
		me.Wants = lasts
	} else if !usable || !a.Waits {
		me.Wants = 0
	}
	l.Users[a.By] = me
	if usable {
		l.chunks(a, g, env)
	}
	me.Given += g.Tokens
	me.Leased += g.Slots.N
	l.Users[a.By] = me
	if g.Tokens > 0 {
		l.even(env.Now, 4*max(g.Tokens, a.Cost), func(u *User) *int64 { return &u.Given })
	}
	if g.Slots.N > 0 {
		l.even(env.Now, env.Limits.Limit, func(u *User) *int64 { return &u.Leased })
	}
	return news
}

// chunks leases tokens and slots, or neither if one of them is requested and not available, since others
// could use them.
func (l *Limit) chunks(a *Ask, g *Grant, env LimitEnv) {
	askers := int64(0) // including a.By
	for _, u := range l.Users {
		if u.Wants > env.Now {
			askers++
		}
	}
	askers = max(1, askers)
	var tokens, slots int64
	if a.Slots && env.Limits.Limit > 0 {
		if slots = l.slots(a, g, askers, env); slots == 0 {
			return
		}
	}
	if a.Tokens && env.Limits.Rate != (throttle.Rate{}) {
		if tokens = l.tokens(a, g, askers, env); tokens == 0 {
			return
		}
	}
	l.Tokens -= tokens
	if g.Tokens = tokens; slots > 0 {
		l.lease(g, slots, env)
	}
}

// left returns how much by leaves to users who want leases and are behind by more than one: as much as
// they are behind.
func (l *Limit) left(by string, want, now int64, had func(*User) *int64) (n int64) {
	me := l.Users[by]
	for _, u := range l.Users {
		if lead := *had(&me) - *had(&u); u.Wants > now && lead > want {
			n += lead
		}
	}
	return n
}

// tokens returns how many tokens an asker gets. Askers divide what the rate brings in ChunkTime or,
// if much has accumulated, half of the tokens. So a slow rate with a large burst costs one swap for
// a part of the burst, not for each message; the bound does not depend on the size of leases (see
// the package documentation). A grant has at least what ChunkTime brings, since each costs a swap.
// A user that is ahead leaves tokens for users that are behind.
func (l *Limit) tokens(a *Ask, g *Grant, askers int64, env LimitEnv) int64 {
	rate, burst := env.Limits.Rate, env.Limits.Full()
	least := rate.Gives(int64(ChunkTime)) / askers
	fair := max(1, least, l.Tokens/2/askers)
	want := max(fair, a.Cost)
	need := min(max(a.Cost, least, 1), burst)
	left := l.left(a.By, want, env.Now, func(u *User) *int64 { return &u.Given })
	avail := l.Tokens - min(left, burst-need) // a full bucket is available to anyone
	if avail < need {
		g.wait(rate.Takes(need - avail))
		return 0
	}
	if a.Cost > burst {
		return a.Cost
	}
	return min(want, avail)
}

// slots returns how many slots an asker gets: half of its equal share of the free ones, so that many can
// go at once and some are left for the next. A user who is ahead leaves slots for those who are behind,
// unless the window is empty.
func (l *Limit) slots(a *Ask, g *Grant, askers int64, env LimitEnv) int64 {
	free := env.Limits.Limit
	for _, s := range l.Slots {
		free -= s.N
	}
	fair := max(1, free/(2*askers))
	left := l.left(a.By, fair, env.Now, func(u *User) *int64 { return &u.Leased })
	if avail := free - min(left, env.Limits.Limit-1); avail > 0 {
		return min(fair, avail)
	}
	g.wait(env.Limits.Window / windowParts)
	if free <= 0 && len(l.Slots) > 0 {
		g.wait(l.Slots[0].At + env.Limits.Window + int64(ChunkLife+ClockSpread) - env.Earliest())
	}
	return 0
}

// lease counts n slots of the window from now on.
func (l *Limit) lease(g *Grant, n int64, env LimitEnv) {
	g.Slots = Slot{env.Latest(), n}
	if last := len(l.Slots); last > 0 {
		g.Slots.At = max(g.Slots.At, l.Slots[last-1].At)
	}
	l.Slots = compact(append(slices.Clip(l.Slots), g.Slots), env.Limits.Window/windowParts)
}

// compact merges slots of the same part of a window into the latest of them. Parts have fixed bounds, so
// a slot moves by less than one part however often it is merged.
func compact(slots []Slot, part int64) []Slot {
	part = max(1, part)
	var out []Slot
	for _, s := range slots {
		if n := len(out); n > 0 && out[n-1].At/part == s.At/part {
			out[n-1] = Slot{s.At, out[n-1].N + s.N}
			continue
		}
		out = append(out, s)
	}
	return out
}

// wait sets when to ask again at the latest.
func (g *Grant) wait(ns int64) {
	d := min(max(time.Duration(ns), time.Millisecond), askLife/4)
	if g.Again == 0 || d < g.Again {
		g.Again = d
	}
}

// even keeps the counts of users relative to the asker with the fewest, and bounded: nobody has to make
// up for long.
func (l *Limit) even(now, most int64, had func(*User) *int64) {
	least := int64(-1)
	for _, u := range l.Users {
		if n := *had(&u); u.Wants > now && (least < 0 || n < least) {
			least = n
		}
	}
	for name, u := range l.Users {
		n := had(&u)
		*n = min(max(0, *n-max(0, least)), most)
		l.Users[name] = u
	}
}

// Return takes back unused tokens (negative if more have been used) and slots, by when they were leased.
func (v *Level) Return(tokens int64, slots ...Slot) {
	if v.Used {
		v.Tokens = max(v.Tokens+tokens, -throttle.MaxBurst) // settle limits it to the burst
	}
	if len(slots) == 0 {
		return
	}
	v.Slots = slices.Clone(v.Slots)
	for _, b := range slots {
		// The first slot that is not earlier is the one that it was merged into.
		if i := slices.IndexFunc(v.Slots, func(s Slot) bool { return s.At >= b.At }); i >= 0 {
			v.Slots[i].N = max(0, v.Slots[i].N-b.N)
		}
	}
	v.Slots = slices.DeleteFunc(v.Slots, func(s Slot) bool { return s.N == 0 })
}

// InWindow returns how many slots are used or leased, and how long (ns) it takes until the first and
// until the last of them have certainly left the window.
func (v *Level) InWindow(at Reading, window int64) (n, first, last int64) {
	for i, s := range v.Slots {
		n += s.N
		last = s.At + window + int64(ChunkLife+ClockSpread) - at.Earliest()
		if i == 0 {
			first = last
		}
	}
	return n, first, last
}

// settle brings the level up to now by the fleet's clock, but by no more time than has passed here since
// the record came, plus a little: a wrong clock gives nothing away.
func (v *Level) settle(env LimitEnv) {
	burst := env.Limits.Full()
	if !v.Used {
		v.Used, v.Tokens, v.At = true, burst, env.Now
	}
	if gone := env.Now - v.At; gone > 0 && burst > 0 {
		sure := min(gone, env.Since+int64(ClockSpread)) + min(v.Rest, env.Limits.Rate.Takes(1))
		more := env.Limits.Rate.Gives(sure)
		v.Tokens += more
		v.At, v.Rest = env.Now, max(0, sure-env.Limits.Rate.Takes(more))
	}
	if v.Tokens >= burst {
		v.Tokens, v.At, v.Rest = burst, max(v.At, env.Now), 0
	}
	end := env.Earliest() - env.Limits.Window - int64(ChunkLife+ClockSpread)
	i := 0
	for i < len(v.Slots) && v.Slots[i].At <= end {
		i++
	}
	v.Slots = v.Slots[i:]
	if env.Limits.Limit == 0 {
		v.Slots = nil
	}
}

// Idle reports whether a record is equal to none: nobody uses it, and nothing is in use any more.
func (l *Limit) Idle(at Reading, live func(string) bool) bool {
	for name := range l.Users {
		if live(name) {
			return false
		}
	}
	if l.Owner != "" || !l.Used {
		return l.Owner == ""
	}
	v, full := l.Level, l.Terms.Limits.Full()
	v.settle(LimitEnv{Reading: at, Since: math.MaxInt64 / 2, Limits: l.Terms.Limits})
	return v.Tokens >= full && len(v.Slots) == 0
}

// Lost reports whether the owner is dead, so that its use is not known.
func (l *Limit) Lost(live func(string) bool) bool { return l.Owner != "" && !live(l.Owner) }

// encodedLimit is the JSON form of a Limit.
//
//	{"v":1, "owner":"a/Q7", "users":{"a/Q7":{"seen":4,"asks":...,"given":5000,"permits":2}},
//	 "used":true, "tokens":12000, "at":..., "slots":[{"at":...,"n":3}],
//	 "limits":[10000,1000000000,20000,0,0,2], "limits_at":..., "limits_by":"a/Q7"}
type encodedLimit struct {
	V      int                    `json:"v"`
	Owner  string                 `json:"owner,omitempty"`
	Users  map[string]encodedUser `json:"users,omitempty"`
	Used   bool                   `json:"used,omitempty"`
	Tokens int64                  `json:"tokens,omitempty"`
	At     int64                  `json:"at,omitempty"`
	Rest   int64                  `json:"rest,omitempty"`
	Slots  []Slot                 `json:"slots,omitempty"`
	// Limits are cost and time of the rate, burst, limit, window (ns) and concurrency.
	Limits   []int64 `json:"limits,omitempty"`
	LimitsAt int64   `json:"limits_at,omitempty"`
	LimitsBy string  `json:"limits_by,omitempty"`
	Lowered  int64   `json:"lowered,omitempty"`
	// Adapt are min, backoff, grow, grow_per_s, 1 if expired leases count, the fixed level, and start.
	Adapt   []int64      `json:"adapt,omitempty"`
	Learned *adapt.Level `json:"learned,omitempty"`
	Cause   string       `json:"cut_cause,omitempty"`
	CutBy   string       `json:"cut_by,omitempty"`
	// Budget makes it a record of version 2, so that a fila that does not know budgets does not put
	// limits without one in force.
	Budget  *budget.Terms `json:"budget,omitempty"`
	OnEmpty string        `json:"on_empty,omitempty"`
}

type encodedUser struct {
	Seen    uint64 `json:"seen"`
	Asks    int64  `json:"asks,omitempty"`
	Wants   int64  `json:"wants,omitempty"`
	Given   int64  `json:"given,omitempty"`
	Leased  int64  `json:"leased,omitempty"`
	Permits int64  `json:"permits,omitempty"`
}

// Encode encodes the record.
func (l *Limit) Encode() []byte {
	e := encodedLimit{V: Version, Owner: l.Owner, Used: l.Used, Tokens: l.Tokens, At: l.At, Rest: l.Rest, Slots: l.Slots, Lowered: l.Lowered}
	e.Users = make(map[string]encodedUser, len(l.Users))
	for name, u := range l.Users {
		e.Users[name] = encodedUser(u)
	}
	if t := &l.Terms; t.By != "" {
		e.Limits = []int64{t.Limits.Rate.Cost, t.Limits.Rate.Per, t.Limits.Burst, t.Limits.Limit, t.Limits.Window, t.Limits.Concurrency}
		e.LimitsAt, e.LimitsBy = t.At, t.By
		if s := t.Limits.Adapt; s != (adapt.Settings{}) {
			e.Adapt = []int64{s.Min, s.Backoff, s.Grow, s.GrowPerS, 0, t.Limits.Level, s.Start}
			if s.Expired {
				e.Adapt[4] = 1
			}
		}
	}
	if t := l.Terms.Limits.Budget; t != (budget.Terms{}) {
		e.V, e.Budget, e.OnEmpty = limitVersion, &t, l.Terms.Limits.OnEmpty.String()
	}
	if l.Learned != (Learned{}) {
		e.Learned, e.Cause, e.CutBy = &l.Learned.Level, l.Learned.Cause, l.Learned.By
	}
	data, err := json.Marshal(e)
	if err != nil {
		panic(err) // strings and numbers
	}
	return data
}

// DecodeLimit is the inverse of Encode. It refuses invalid records, and newer versions with
// [ErrVersion]; it ignores unknown fields.
func DecodeLimit(data []byte) (Limit, error) {
	if len(data) > maxRecordBytes {
		return Limit{}, fmt.Errorf("a record of %d bytes", len(data))
	}
	var e encodedLimit
	if err := json.Unmarshal(data, &e); err != nil {
		return Limit{}, err
	}
	if e.V > limitVersion {
		return Limit{}, fmt.Errorf("%w: %d", ErrVersion, e.V)
	}
	l := Limit{Owner: e.Owner, Users: make(map[string]User, len(e.Users)), Lowered: max(0, e.Lowered)}
	l.Level = Level{Used: e.Used, Tokens: e.Tokens, At: e.At, Rest: e.Rest, Slots: e.Slots}
	for name, u := range e.Users {
		if len(name) > maxInstance || u.Given < 0 || u.Leased < 0 || u.Permits < 0 || u.Permits > throttle.MaxConcurrency {
			return Limit{}, fmt.Errorf("user %q is out of range", name)
		}
		l.Users[name] = User(u)
	}
	before := int64(0)
	for _, s := range e.Slots {
		if s.N < 1 || s.N > throttle.MaxLimit || s.At < before {
			return Limit{}, errors.New("slots out of order")
		}
		before = s.At
	}
	if len(e.Limits) == 6 {
		l.Terms = Terms[throttle.Limits]{At: e.LimitsAt, By: e.LimitsBy, Limits: throttle.Limits{
			Rate: throttle.Rate{Cost: e.Limits[0], Per: e.Limits[1]}, Burst: e.Limits[2], Limit: e.Limits[3], Window: e.Limits[4], Concurrency: e.Limits[5],
		}}
	}
	if s := e.Adapt; len(s) == 7 {
		l.Terms.Limits.Adapt = adapt.Settings{Min: s[0], Backoff: s[1], Grow: s[2], GrowPerS: s[3], Start: s[6], Expired: s[4] == 1}
		l.Terms.Limits.Level = s[5]
	}
	if e.Budget != nil {
		var ok bool
		if l.Terms.Limits.OnEmpty, ok = throttle.ParseOnEmpty(e.OnEmpty); !ok {
			return Limit{}, fmt.Errorf("on_empty %q is not known", e.OnEmpty)
		}
		l.Terms.Limits.Budget = *e.Budget
	}
	if v := e.Learned; v != nil {
		if !(v.At >= 0 && v.At <= throttle.MaxRate && v.Last >= 0 && v.Last <= throttle.MaxRate && v.Beyond >= 0) || len(e.Cause) > maxCause || len(e.CutBy) > maxInstance {
			return Limit{}, errors.New("the learned level is out of its range")
		}
		l.Learned = Learned{*v, e.Cause, e.CutBy}
	}
	switch _, known := e.Users[e.Owner]; {
	case e.V < 1, e.Tokens > throttle.MaxBurst, e.Tokens < -throttle.MaxBurst, e.At < 0, e.Rest < 0, len(e.Slots) > maxSlots, len(e.LimitsBy) > maxInstance, (l.Terms.By == "") != (len(e.Limits) == 0), l.Terms.Limits.Validate() != nil:
		return Limit{}, errors.New("a field is out of its range")
	case e.Owner != "" && !known:
		return Limit{}, fmt.Errorf("owner %q does not use it", e.Owner)
	}
	return l, nil
}
