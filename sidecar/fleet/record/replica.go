package record

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/filaq/fila/breaker"
)

const (
	// UnusedFor is how long a permit may be unused before it is given back: guard callers that
	// retry in whole seconds come back for it.
	UnusedFor = 2 * time.Second
	// askAgain is how often an instance that wants a permit checks whether the holders are still
	// alive.
	askAgain = time.Second
	// aloneGen is the first generation that a Replica begins while alone, higher than the generations of
	// records.
	aloneGen = uint64(1) << 63
)

// News is a reported change of a circuit, or of a Replica that is alone.
type News struct {
	breaker.Change        // At is when it became known here
	Cause          string // of the change
	Until          int64  // of an opening
	Version        uint64 // revision of the record; 0: none, or the instance is alone
	ChangedAt      int64
	By             string // instance that made it
}

// Replica is one instance's side of a shared circuit. It decides from what it knows, and returns what to
// write. It is not safe for concurrent use. Use [NewReplica].
type Replica struct {
	me   string
	set  Terms[breaker.Config] // limits set here
	cfg  breaker.Config        // limits in force: set, or the record's if they are newer
	late bool                  // the record has older limits than set
	rec  Circuit               // the newest known
	rev  uint64                // its revision; 0: there is none
	view breaker.Machine       // of rec or, while alone, of this instance

	number uint64 // of sent
	sent   []Step // batch whose fate is not known, if any
	open   []Step // steps after it

	suspect bool  // sent and open would open a closed circuit: nothing is let through
	busy    int   // running probes of this instance
	asking  bool  // a permit is wanted
	unused  int64 // since when there are unused permits

	alone   bool
	parted  [2]uint64     // generations of rec and of view when the instance became alone
	differs bool          // view has changed to another state than rec
	back    bool          // the bucket can be reached again, and view is on its way to it
	changed int64         // when view changed while alone
	cause   string        // of the opening of view while alone, or of its end
	before  breaker.State // before a restart, unless something has changed since; Closed: none
	opener  string        // instance that opened it, if known
	client  string        // that asked for it, if opened by hand
	turn    uint64        // last reported change
	ownGen  uint64        // next own generation
	news    []News
	stirred bool // it may admit more than before, or at another time
}

// NewReplica returns the Replica of an instance that begins at time now with a record, which is no news:
// the zero Circuit and revision if there is none.
func NewReplica(me string, c breaker.Config, now int64, rev uint64, rec Circuit) *Replica {
	r := &Replica{me: me, set: Terms[breaker.Config]{Limits: normal(c), By: me}, ownGen: aloneGen, rec: rec, rev: rev, turn: rec.Turn, number: rec.Seen[me], unused: now}
	r.weigh()
	r.view = breaker.Thaw(r.cfg, rec.Frozen)
	r.view.Advance(now)
	return r
}

// SetConfig sets the limits of this instance, and when they were set, by the fleet's clock (0: not
// known). The newest known limits are in force.
func (r *Replica) SetConfig(c breaker.Config, at int64) {
	own := Terms[breaker.Config]{normal(c), at, r.me}
	if own == r.set {
		return
	}
	r.set = own
	r.weigh()
	r.view = breaker.Thaw(r.cfg, r.view.Freeze())
	r.judge()
}

// Terms returns the limits in force, and the limits of this instance if they differ.
func (r *Replica) Terms() (inForce Terms[breaker.Config], own *breaker.Config) {
	if r.cfg == r.set.Limits {
		return r.set, nil
	}
	limits := r.set.Limits
	return r.rec.Terms, &limits
}

// weigh determines the limits in force.
func (r *Replica) weigh() {
	r.late = r.rec.Older(r.me, r.set.Limits, r.set.At)
	if r.cfg = r.rec.Terms.Limits; r.late || r.rec.Terms.By == "" {
		r.cfg = r.set.Limits
	}
}

// env returns the environment for the rules.
func (r *Replica) env(now int64, live func(string) bool) Env {
	return Env{Now: now, Rev: r.rev, Live: live, Config: r.set.Limits, Set: r.set.At}
}

// behind reports whether newer limits have to be written to the record.
func (r *Replica) behind() bool { return r.late && !r.alone }

// Admits returns how many calls may go now: math.MaxInt64 when closed. If it is 0, at is when to ask
// again; math.MaxInt64 means when News reports a change. Unless look is set, it requests a permit if one
// is needed.
func (r *Replica) Admits(now int64, look bool) (n, at int64) {
	r.settle(now)
	switch {
	case r.alone:
		return r.view.Admits(now)
	case r.view.State() == breaker.Closed && !r.suspect:
		return math.MaxInt64, 0
	case r.view.State() == breaker.Closed:
		return 0, math.MaxInt64
	case r.view.State() == breaker.Open && now < r.view.OpenUntil():
		return 0, r.view.OpenUntil()
	}
	if n = int64(r.free()); n > 0 {
		return n, 0
	}
	r.asking = r.asking || !look
	return 0, math.MaxInt64
}

// Allow requests one call; 0 means no. A Pass must be given to Done.
func (r *Replica) Allow(now int64) breaker.Pass {
	if r.alone {
		r.settle(now)
		p, change := r.view.Allow(now)
		r.turned(change, CauseTime, now)
		return p
	}
	n, _ := r.Admits(now, false)
	switch {
	case n <= 0:
		return 0
	case r.view.State() != breaker.Closed:
		r.busy++
	}
	return breaker.Pass(r.view.Gen())
}

// Done returns a pass with the outcome of the call. It reports whether the outcome counts, as far as
// known here.
func (r *Replica) Done(now int64, p breaker.Pass, o breaker.Outcome) (counted bool) {
	r.settle(now)
	p = r.translate(p)
	if r.alone {
		return r.doneAlone(now, p, o)
	}
	if uint64(p) != r.view.Gen() {
		return false
	}
	switch r.view.State() {
	case breaker.Closed:
		if o == breaker.Neutral {
			return true
		}
		if o == breaker.Success && r.view.Info(now).ConsecutiveFailures == 0 && !r.Pending() {
			return true // the common case
		}
		r.open = Merge(r.open, Step{Kind: Outcomes, Gen: uint64(p), Run: run(o)})
		r.judge()
	case breaker.HalfOpen:
		if r.busy == 0 {
			return false
		}
		r.busy--
		r.open = Merge(r.open, Step{Kind: Probe, Gen: uint64(p), Outcome: o})
	default:
		return false
	}
	return true
}

func (r *Replica) doneAlone(now int64, p breaker.Pass, o breaker.Outcome) bool {
	closed := r.view.State() == breaker.Closed
	change, counted := r.view.Done(now, p, o)
	if counted && closed && !r.differs && o != breaker.Neutral {
		r.open = Merge(r.open, Step{Kind: Outcomes, Gen: r.parted[0], Run: run(o)})
	}
	cause := CauseFailures
	if o == breaker.Success {
		cause = CauseProbes
	}
	r.turned(change, cause, now)
	return counted
}

// Do performs an operation: a step of kind RetryAfter, Open, Reset or Release. It counts when the record
// has it, or at once while alone.
func (r *Replica) Do(now int64, s Step) {
	r.settle(now)
	if !r.alone {
		r.open = Merge(r.open, s)
		r.judge()
		return
	}
	own := Circuit{Frozen: r.view.Freeze(), Cause: r.cause, OpenedBy: r.opener, Client: r.client}
	own = own.clone()
	was := own.Frozen
	if !own.step(&r.view, &s, r.me, now) {
		return
	}
	r.cause, r.opener, r.client = own.Cause, own.OpenedBy, own.Client
	if r.view.State() == breaker.Closed {
		r.cause = CauseByHand
	}
	if s.At == 0 {
		s.At = now
	}
	r.moved(s.At)
	if own.Turn > 0 {
		change := breaker.Change{Old: was.State, New: r.view.State(), ConsecutiveFailures: was.Failures, At: now}
		r.tell(change, own.Why, now)
	}
}

// Learn takes in the record at a revision, the zero Circuit if there is none. It ignores older records,
// unless the bucket is another one than before.
func (r *Replica) Learn(now int64, rev uint64, rec Circuit, another bool) {
	if rev <= r.rev && !another {
		return
	}
	r.settle(now)
	was, before := r.view.State(), r.view.OpenUntil()
	another = another || rec.Gen != r.rec.Gen
	r.rec, r.rev = rec, rev
	r.weigh()
	if r.sent != nil && rec.Seen[r.me] >= r.number {
		r.sent = nil
	}
	r.number = max(r.number, rec.Seen[r.me])
	if r.alone && !(r.back && (!r.differs || rec.ChangedAt >= r.changed)) {
		return // the own state is newer, and on its way
	}
	joined := r.alone
	if joined {
		r.join()
	} else if another && r.view.Gen() != max(rec.Gen, 1) {
		r.busy = 0 // passes of an earlier generation
	}
	r.prune()
	r.view = breaker.Thaw(r.cfg, rec.Frozen)
	lapsed := r.view.Advance(now).Turned()
	r.judge()
	if joined {
		r.giveBack() // others may be taking them, like the permits of a dead instance
	}
	switch {
	case r.free() > 0:
		r.asking, r.unused = false, now
	case !r.probing(now):
		r.asking = false
	}
	// Callers that waited for probes of an instance that was alone have to request permits now.
	r.stirred = r.stirred || joined || r.view.State() != was || r.view.OpenUntil() != before || r.free() > 0
	known := joined && r.before != breaker.Closed && r.view.State() == r.before
	r.before = breaker.Closed
	if known || joined && r.rec.By == r.me && r.view.State() == was {
		r.turn = r.rec.Turn // it was reported before a restart, or while this instance was alone
		return
	}
	r.compare(was, now, lapsed)
}

// probing reports whether calls need permits now.
func (r *Replica) probing(now int64) bool {
	return r.view.State() == breaker.HalfOpen || r.view.State() == breaker.Open && now >= r.view.OpenUntil()
}

// compare reports the changes since the record that was known before.
func (r *Replica) compare(was breaker.State, now int64, lapsed bool) {
	n := News{
		Change:  breaker.Change{Old: was, New: r.view.State(), ConsecutiveFailures: r.view.Info(now).ConsecutiveFailures, At: now},
		Version: r.Version(), ChangedAt: r.rec.TurnAt, By: r.rec.TurnBy, Cause: r.rec.Why, Until: r.view.OpenUntil(),
	}
	turned := r.rec.Turn != r.turn && r.rec.Turn != 0
	r.turn = r.rec.Turn
	switch {
	case (lapsed || !turned) && was == n.New:
		return // it was open and is closed again, or was known to be closed
	case lapsed:
		n.Cause, n.ChangedAt = CauseTime, r.rec.OpenUntil
	case !turned && r.rec.Turn == 0:
		n.Cause = CauseTime // the record has been deleted
	case !turned: // alone it was in another state
	case was == n.New && was == breaker.Closed:
		return
	case was == n.New && r.rec.Why != CauseByHand && r.rec.Why != CauseMaxFailures:
		n.Old = breaker.HalfOpen // the states between them were missed
		if n.New == breaker.HalfOpen {
			n.Old = breaker.Open
		}
	}
	r.news = append(r.news, n)
}

// Away means that the bucket cannot be reached. From now on the instance is alone.
func (r *Replica) Away(now int64) {
	r.settle(now)
	r.back = false
	if r.alone {
		return
	}
	was := r.view.State()
	// Steps on their way count, as far as this instance is concerned.
	steps := slices.Concat(r.sent, r.open)
	steps = slices.DeleteFunc(steps, func(s Step) bool { return s.Kind == Want })
	everybody := func(string) bool { return true }
	next, _ := r.rec.Apply(Batch{r.me, r.number + 1, steps}, r.env(now, everybody))
	m := breaker.Thaw(r.cfg, next.Frozen)
	m.Advance(now)
	f := m.Freeze()
	r.parted = [2]uint64{r.view.Gen(), r.own()}
	r.differs = f.Gen != r.view.Gen()
	f.Gen = r.parted[1]
	f.Probes = 0
	if f.State == breaker.HalfOpen && !r.differs {
		f.Probes = r.busy
	}
	r.view = breaker.Thaw(r.cfg, f)
	r.alone, r.asking, r.suspect, r.stirred = true, false, false, true
	r.cause, r.opener, r.client = next.Cause, next.OpenedBy, next.Client
	if m.State() == breaker.Closed {
		r.cause = next.Why
	}
	if r.differs {
		r.changed = max(r.changed+1, now)
		r.open = nil
		r.parted[1] = 0 // earlier passes are of another state
		if m.State() != was {
			r.tell(breaker.Change{Old: was, New: m.State(), ConsecutiveFailures: f.Failures, At: now}, next.Why, now)
		}
	}
}

// Back means that the bucket can be reached again, with this record.
func (r *Replica) Back(now int64, rev uint64, rec Circuit) {
	r.settle(now)
	r.back = true
	if r.alone && !r.differs && rev == 0 && r.rev != 0 && r.view.State() != breaker.Closed {
		// It is another bucket, which gets what was known of the record.
		r.differs, r.changed, r.parted[1] = true, max(r.rec.ChangedAt, 1), 0
	}
	if r.alone && r.differs {
		r.sent = nil
		if r.worthless(now, &rec) {
			r.changed = 0
		}
		r.adopt()
	}
	r.Learn(now, rev, rec, true)
}

// worthless reports whether the own state, even if newer, adds nothing to the record.
func (r *Replica) worthless(now int64, rec *Circuit) bool {
	m := breaker.Thaw(r.cfg, rec.Frozen)
	m.Advance(now)
	own := r.view.State()
	if own == breaker.HalfOpen { // an open record will be half-open at its time
		return m.State() != breaker.Closed
	}
	return own == m.State() && (own == breaker.Closed || r.cause == CauseFailures)
}

// adopt replaces the steps on their way by the own state.
func (r *Replica) adopt() {
	r.open = []Step{{Kind: Adopt, At: r.changed, Cause: r.cause, Client: r.client, State: r.view.Save()}}
}

// join ends being alone.
func (r *Replica) join() {
	r.busy = 0
	switch {
	case r.differs:
		r.sent, r.open = nil, nil
	case r.view.State() == breaker.HalfOpen && r.rec.Gen == r.parted[0]:
		r.busy = r.view.Info(0).Probes // other probes are of an earlier generation
	}
	r.alone, r.back, r.differs = false, false, false
}

// Swap returns the record to write over a revision, if there is anything to write. The caller reports
// success by Learn. again is when to call Swap again in any case; 0: never.
func (r *Replica) Swap(now int64, live func(string) bool) (next Circuit, over uint64, again time.Duration, ok bool) {
	r.settle(now)
	if r.alone && !r.back {
		return Circuit{}, 0, 0, false
	}
	if free := r.free(); free > 0 && !r.alone {
		if again = UnusedFor - time.Duration(now-r.unused); again <= 0 || again > UnusedFor {
			again = 0
			r.giveBack()
		}
	}
	if r.asking {
		again = askAgain
	}
	for {
		if r.sent == nil {
			r.sent, r.open = r.open, nil
			if r.asking {
				r.sent = append(r.sent, Step{Kind: Want})
			}
			if len(r.sent) == 0 {
				if !r.behind() {
					return Circuit{}, 0, again, false
				}
				r.sent = []Step{} // a batch without steps
			}
			r.number++
		}
		next, changed := r.rec.Apply(Batch{r.me, r.number, r.sent}, r.env(now, live))
		if changed {
			return next, r.rev, again, true
		}
		r.sent = nil
		if r.alone { // the state to adopt is out of date
			r.changed = 0
			r.Learn(now, r.rev, r.rec, true)
		}
		r.judge()
		if len(r.open) == 0 {
			return Circuit{}, 0, again, false
		}
	}
}

// Pending reports whether there is something to write to the record, including newer limits, or a permit
// is wanted.
func (r *Replica) Pending() bool {
	return len(r.sent) > 0 || len(r.open) > 0 || r.asking || r.behind()
}

// Settled reports whether everything that was done here counts.
func (r *Replica) Settled() bool { return r.alone && !r.back || len(r.sent) == 0 && len(r.open) == 0 }

// Alone reports whether the instance acts without the record.
func (r *Replica) Alone() bool { return r.alone }

// Machine returns the circuit as seen here. It must not be changed.
func (r *Replica) Machine() *breaker.Machine { return &r.view }

// Restore sets the state of an instance that is alone and has done nothing to that before a restart. Any
// record is newer.
func (r *Replica) Restore(now int64, s breaker.Saved, cause, client string) {
	if s.State == breaker.Closed {
		return
	}
	r.view.Restore(now, s)
	r.cause, r.client = cause, client
	r.moved(1)
	r.before = s.State
}

// Record returns the newest known record and its revision.
func (r *Replica) Record() (Circuit, uint64) { return r.rec, r.rev }

// Version returns the revision of the record with the last reported change, the same at all instances; 0:
// there is none.
func (r *Replica) Version() uint64 { return cmp.Or(r.rec.TurnRev, r.rev) }

// Cause returns the cause of the opening, as seen here.
func (r *Replica) Cause() string {
	cause, _, _ := r.Opening()
	return cause
}

// Opening returns why the circuit is not closed, as seen here: the cause, the instance that opened it,
// and the client that asked for it, if by hand and known.
func (r *Replica) Opening() (cause, by, client string) {
	switch {
	case r.view.State() == breaker.Closed:
		return "", "", ""
	case r.alone:
		return r.cause, r.opener, r.client
	}
	return r.rec.Cause, r.rec.OpenedBy, r.rec.Client
}

// Failures returns the consecutive failures, including those on their way.
func (r *Replica) Failures(now int64) int {
	failures := r.view.Info(now).ConsecutiveFailures
	if !r.alone && r.view.State() == breaker.Closed {
		failures, _ = r.row().after(failures)
	}
	return failures
}

// Busy returns the number of running probes of this instance.
func (r *Replica) Busy() int {
	if r.alone {
		return r.view.Info(0).Probes
	}
	return r.busy
}

// News returns the changes since the last call, in order, and whether waiters should check again.
func (r *Replica) News() (news []News, stirred bool) {
	news, stirred = r.news, r.stirred
	r.news, r.stirred = nil, false
	return news, stirred
}

// settle closes an opening that has ended by time.
func (r *Replica) settle(now int64) {
	until := r.view.OpenUntil()
	change := r.view.Advance(now)
	if !change.Turned() {
		return
	}
	if r.alone {
		r.turned(change, CauseTime, now)
		return
	}
	r.stirred = true
	r.news = append(r.news, News{Change: change, Cause: CauseTime, Version: r.Version(), ChangedAt: until, By: r.rec.TurnBy})
}

// turned reports a transition of view while alone.
func (r *Replica) turned(change breaker.Change, cause string, now int64) {
	if !change.Turned() {
		return
	}
	switch change.New {
	case breaker.Open:
		r.cause, r.opener, r.client = cause, r.me, ""
	case breaker.Closed:
		r.cause, r.opener, r.client = cause, "", ""
	}
	r.moved(now)
	r.tell(change, cause, now)
}

// moved records that view has changed to a state of its own.
func (r *Replica) moved(now int64) {
	r.differs, r.changed, r.stirred, r.before = true, max(r.changed+1, now), true, breaker.Closed
	r.parted[1] = 0 // earlier passes count no more
	r.ownGen = max(r.ownGen, r.view.Gen()+1)
	r.open = nil
	if r.back {
		r.adopt()
	}
}

// tell adds news while alone.
func (r *Replica) tell(change breaker.Change, cause string, now int64) {
	r.news = append(r.news, News{Change: change, Cause: cause, Until: r.view.OpenUntil(), ChangedAt: now, By: r.me})
}

// own returns a generation without passes.
func (r *Replica) own() uint64 {
	r.ownGen += 1 << 20 // more transitions than one outage has
	return r.ownGen
}

// translate gives a pass of the state before being alone, or before coming back, the generation that this
// state has now.
func (r *Replica) translate(p breaker.Pass) breaker.Pass {
	switch {
	case r.parted[1] == 0:
	case r.alone && uint64(p) == r.parted[0]:
		return breaker.Pass(r.parted[1])
	case !r.alone && uint64(p) == r.parted[1]:
		return breaker.Pass(r.parted[0])
	}
	return p
}

// free returns how many permits are unused.
func (r *Replica) free() int {
	if r.rec.State != breaker.HalfOpen || r.alone {
		return 0
	}
	n := r.rec.Permits[r.me] - r.busy
	for _, steps := range [][]Step{r.sent, r.open} {
		for i := range steps {
			if steps[i].Kind == Probe && steps[i].Gen == r.rec.Gen {
				n--
			}
		}
	}
	return max(0, n)
}

// giveBack returns unused permits with the next write.
func (r *Replica) giveBack() {
	for range r.free() {
		r.open = append(r.open, Step{Kind: Probe, Gen: r.rec.Gen, Outcome: breaker.Neutral})
	}
}

// row summarises the outcomes on their way.
func (r *Replica) row() (row Run) {
	for _, steps := range [][]Step{r.sent, r.open} {
		for i := range steps {
			if steps[i].Kind == Outcomes && steps[i].Gen == r.view.Gen() {
				row = row.then(steps[i].Run)
			}
		}
	}
	return row
}

// judge checks whether the steps on their way would open the circuit. If they no longer would,
// waiters should check again.
func (r *Replica) judge() {
	was := r.suspect
	r.suspect = r.opening()
	r.stirred = r.stirred || was && !r.suspect
}

// opening reports whether the steps on their way would open the circuit.
func (r *Replica) opening() bool {
	if r.alone || r.view.State() != breaker.Closed || len(r.sent)+len(r.open) == 0 {
		return false
	}
	_, most := r.row().after(r.view.Freeze().Failures)
	opens := func(s Step) bool { return s.Kind == RetryAfter || s.Kind == Open }
	return most >= r.view.Config().Threshold || slices.ContainsFunc(r.sent, opens) || slices.ContainsFunc(r.open, opens)
}

// prune drops steps for an earlier state.
func (r *Replica) prune() {
	kept := r.open[:0]
	for _, s := range r.open {
		if s.Kind != Outcomes && s.Kind != Probe || s.Gen == max(r.rec.Gen, 1) || s.Gen == r.rec.Gen+1 {
			kept = append(kept, s) // an opening that has ended by time
		}
	}
	r.open = kept
}
