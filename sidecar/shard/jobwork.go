package shard

import (
	"bytes"
	"cmp"
	"container/heap"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/filaq/fila/hooks"
	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
)

const (
	// jobSelection is how many messages a job knows at a time. In the order of arrival it
	// looks for the next ones through its whole queue: bounded memory for more looks.
	jobSelection = 65_536
	jobNear      = 512 // of them are in order at a time: to sort them all takes tens of milliseconds
	// A look at the queue takes jobLooks messages at a time, and looks at jobSlots at most:
	// the machine stands still meanwhile.
	jobLooks = 4096
	jobSlots = 4 * jobLooks
	// A piece is jobPiece messages, and no more from jobBytes on: all queues of the shard wait
	// while it is written, so it takes the disk about as long as a few commits of others do.
	// They get fewer where the machine needs more than jobTurn for them. A disk for which
	// the quickest of the first jobFirst pieces took longer than jobCommit is slow however
	// few they are, so there they get more, up to jobGrowth times.
	jobPiece  = 160
	jobFirst  = 4
	jobGrowth = 16
	jobTurn   = 5 * time.Millisecond
	jobCommit = 4 * time.Millisecond
	jobBytes  = 1 << 20
	// A job takes up to jobMost messages a second, if it was not told another rate, and
	// leaves the disk and the processors to others after a piece, and a look, for as long as
	// that has taken, at most jobRest.
	jobMost = 40_000
	jobRest = 20 * time.Millisecond
	// jobRetry is when a job tries again to write how it stands.
	jobRetry = time.Second
)

// work does what a job is about, until it is done, stopped, or the shard ends. It reports
// false if that cannot be written.
func (j *job) work() bool {
	s := j.q.shard
	if changed, ok := j.claim(""); !ok {
		select {
		case <-changed:
		case <-s.ended.Done():
		}
		return true
	}
	defer j.release()
	w := worker{job: j, size: jobPiece, due: s.Now()}
	if w.at, _, _ = j.standing(); w.at.State != wire.JobWaiting {
		return true
	}
	j.change(func() { j.mu.running, j.mu.stuck = true, nil })
	if w.at.Started == 0 {
		w.at.Started = s.Now()
	}
	state, why := w.run()
	if state == "" {
		return true // the shard ends, or the queue is deleted: whoever goes on with it knows how far it is
	}
	if state == wire.JobCanceled && len(j.out().Items) > 0 {
		state = wire.JobPaused // whoever cancels it recalls what is under way, or is told
	}
	if j.Asked && state == wire.JobPaused && why != "" {
		state = wire.JobCanceled // nobody would resume it
	}
	if state == wire.JobDone || state == wire.JobCanceled {
		w.at.NewSince = w.newSince()
	}
	werr := j.end(w.at, state, why)
	if werr != nil {
		j.change(func() { j.mu.stuck = werr })
	}
	return werr == nil
}

// worker is a job while it runs.
type worker struct {
	*job
	at     jobProgress // what is on disk
	finder *Finder
	chosen selected    // the next ones
	queue  []candidate // in front of them, the next first
	more   bool        // there may be others behind them
	size   int         // of a piece
	due    int64       // when the next piece may begin
	began  int64       // when the parcel that is under way was made; 0: by somebody else

	near  []candidate // room for queue
	ahead *deed       // the next piece, as far as nothing is done yet; nil: it is not made
	room  pieceRoom

	pieces   int           // done so far
	quickest time.Duration // what the disk took for the quickest of the first
}

// candidate is a message that a job may be about.
type candidate struct {
	place
	size uint32
}

// run works until there is nothing left, and returns what the job becomes and why it
// pauses itself; an empty state: the shard ends.
func (w *worker) run() (state, why string) {
	j := w.job
	finder, werr := j.q.Finder(*j.Filter, j.Last)
	if werr != nil {
		return wire.JobPaused, werr.Description
	}
	w.finder = finder
	w.more = true
	for {
		switch {
		case j.q.shard.ended.Err() != nil, j.q.main().deleted.Load():
			return "", ""
		case len(j.out().Items) > 0:
			before := w.at.Done
			next, werr := j.carry(&w.at, j.wanted() == wire.JobCanceled)
			w.at = next
			w.queue = w.queue[indexBehind(w.queue, w.at.At):]
			w.due = max(w.due, w.began+w.cost(next.Done-before))
			if werr != nil {
				if wanted := j.wanted(); wanted != "" && len(j.out().Items) > 0 {
					return wanted, ""
				}
				if state, why, stops := w.refused(werr); stops {
					return state, why
				}
			}
			continue
		case j.wanted() != "":
			return j.wanted(), ""
		case j.Limit > 0 && w.at.Done >= j.Limit:
			return wire.JobDone, ""
		case len(w.queue)+len(w.chosen.list) == 0 && !w.more:
			return wire.JobDone, ""
		}
		if w.ahead == nil && len(w.queue) < w.size && len(w.chosen.list) > 0 {
			w.near = append(w.near[:0], w.queue...)
			w.near = w.chosen.first(max(jobNear, w.size)-len(w.near), w.near)
			w.queue = w.near
		}
		if len(w.queue) == 0 {
			if werr := w.fill(); werr != nil {
				return w.stopped(werr)
			}
			continue
		}
		if werr := w.prepare(); werr != nil { // while it rests
			return w.stopped(werr)
		}
		if !w.wait() {
			continue
		}
		if werr := w.piece(); werr != nil {
			if state, why, stops := w.refused(werr); stops {
				return state, why
			}
		}
	}
}

// refused is told why the job does not go on. It may be soon over.
func (w *worker) refused(werr *wire.Error) (state, why string, stops bool) {
	if werr.ErrCode == wire.CodeBacklogUncommitted { // the disk is behind, as it is for producers
		w.due = w.q.shard.Now() + int64(uncommittedRetryAfter)
		return "", "", false
	}
	state, why = w.stopped(werr)
	return state, why, true
}

// stopped is what becomes of the job when it cannot go on.
func (w *worker) stopped(werr *wire.Error) (state, why string) {
	if w.q.shard.ended.Err() != nil || w.q.main().deleted.Load() {
		return "", ""
	}
	w.change(func() { w.mu.refused = werr })
	return wire.JobPaused, werr.Description
}

// wait waits until the next piece may begin. It reports false if it was disturbed.
func (w *worker) wait() bool {
	s := w.q.shard
	ahead := time.Duration(w.due - s.Now())
	if ahead <= 0 {
		return true
	}
	w.mu.Lock()
	changed := w.mu.changed
	w.mu.Unlock()
	if w.wanted() != "" {
		return false
	}
	t := time.NewTimer(ahead)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-changed:
	case <-s.ended.Done():
	}
	return false
}

// next takes the next piece of the selection: as many messages as go at once.
func (w *worker) next() []candidate {
	most := w.size
	if w.Limit > 0 {
		most = int(min(int64(most), w.Limit-w.at.Done))
	}
	if w.Rate > 0 {
		most = min(most, int(max(w.Rate/10, 1)))
	}
	n, bytes := 0, int64(0)
	for n < min(most, len(w.queue)) && (n == 0 || bytes < jobBytes) {
		bytes += int64(w.queue[n].size)
		n++
	}
	return w.queue[:n]
}

// prepare makes the next piece, unless that is done, and reads what is needed for it.
func (w *worker) prepare() (werr *wire.Error) {
	if w.ahead != nil {
		return nil
	}
	began := w.q.shard.Now()
	d := &deed{job: w.job, before: w.at, named: w.next(), room: &w.room}
	d.last = d.named[len(d.named)-1].place
	if w.late() {
		w.ahead = d
		return nil
	}
	if w.finder.reads() {
		if d.named, werr = w.meant(d.named); werr != nil {
			return werr
		}
	}
	if w.isRedrive() {
		seqs := make([]uint64, len(d.named))
		for i := range d.named {
			seqs[i] = d.named[i].Seq
		}
		var err error
		if d.groups, err = w.names.Groups(w.q.Store(), w.q.id, seqs); err != nil {
			return wire.Internal(err.Error())
		}
	}
	if _, away := w.away(); moves(w.Op) && w.Op != wire.JobEdit && !away {
		if d.found, werr = d.read(); werr != nil {
			return werr
		}
	}
	w.ahead = d
	w.due = max(w.due, w.rested(began))
	return nil
}

// late reports whether the filter is asked at the last moment, since what it asks for, the
// last error of a message that is alive, may change.
func (w *worker) late() bool { return w.finder.reads() && !w.q.IsDLQ() }

// meant are those of the candidates that are as the filter says, which takes a look at what
// is stored of them.
func (w *worker) meant(all []candidate) ([]candidate, *wire.Error) {
	views := make([]queue.MessageView, len(all))
	for i := range all {
		views[i].Seq, views[i].ID = all[i].Seq, all[i].ID
	}
	are, werr := w.finder.meant(views)
	meant := make([]candidate, 0, len(all))
	for i := range are {
		if are[i] {
			meant = append(meant, all[i])
		}
	}
	return meant, werr
}

// piece does what the job is about with the next messages, which are prepared. It returns
// why the job cannot go on.
func (w *worker) piece() (werr *wire.Error) {
	d := w.ahead
	w.ahead = nil
	if w.late() {
		if d.named, werr = w.meant(d.named); werr != nil {
			return werr
		}
	}
	began := w.q.shard.Now()
	if len(d.named) == 0 {
		// It need not be written: who begins anew comes by here again.
		w.at.At, w.queue = d.last, w.queue[indexBehind(w.queue, d.last):]
		return nil
	}
	if to, away := w.away(); away {
		if werr = d.send(to); d.sent {
			w.began, w.due = began, w.rested(began)
			w.adapt(d.took, d.wrote)
			return nil
		}
	} else {
		werr = d.do()
	}
	if d.went {
		w.queue = w.queue[indexBehind(w.queue, d.next.At):]
		w.due = max(began+w.cost(d.next.Done-w.at.Done), w.rested(began))
		w.at = d.next
		w.adapt(d.took, d.wrote)
	}
	if werr == nil && !d.went {
		w.size = 1 // one of them cannot be written: the others go alone
		return nil
	}
	return werr
}

// cost is how long (ns) so many messages take at the rate of the job.
func (w *worker) cost(n int64) int64 {
	return n * int64(time.Second) / cmp.Or(w.Rate, jobMost)
}

// rested is when the job goes on with what it has done a part of since began.
func (w *worker) rested(began int64) int64 {
	now := w.q.shard.Now()
	return now + min(max(now-began, 0), int64(jobRest))
}

// adapt makes pieces as large as the machine and the disk are soon done with. A slow commit
// makes none smaller than the first ones, since then it is slow for other reasons.
func (w *worker) adapt(took, wrote time.Duration) {
	if w.pieces++; w.pieces == 1 || w.pieces <= jobFirst && wrote < w.quickest {
		w.quickest = wrote
	}
	commit, most := time.Duration(jobCommit), jobPiece
	if w.pieces >= jobFirst && w.quickest > jobCommit {
		commit, most = 2*w.quickest, int(min(2*jobPiece*w.quickest/jobCommit, jobPiece*jobGrowth))
	}
	switch {
	case took > 2*jobTurn:
		w.size = max(w.size/2, 1)
	case wrote > 2*commit:
		w.size = max(w.size/2, min(w.size, jobPiece))
	case took < jobTurn && (w.size < jobPiece || wrote < commit):
		w.size = max(w.size, min(2*w.size, most))
	}
}

// indexBehind is how many candidates are at a place or in front of it.
func indexBehind(queue []candidate, at place) int {
	for i := range queue {
		if queue[i].place == at {
			return i + 1
		}
	}
	return 0
}

// fill selects the next messages of the job, behind the last one that it came by.
func (w *worker) fill() *wire.Error {
	l := w.newLook()
	for {
		began := w.q.shard.Now()
		if !l.next() {
			return w.q.Gone()
		}
		if l.over() || w.wanted() != "" || w.q.shard.ended.Err() != nil {
			break
		}
		w.due = max(w.due, w.rested(began))
		w.wait()
	}
	w.chosen, w.more = l.chosen, l.chosen.full()
	w.chosen.turn()
	return nil
}

// look is one look through a queue for the next messages of a job, in pieces.
type look struct {
	w      *worker
	match  queue.Match
	from   uint64 // where the next piece begins; 0: at the end
	found  []queue.Member
	chosen selected
}

func (w *worker) newLook() *look {
	l := &look{w: w, match: w.finder.match, chosen: selected{order: byArrival, list: w.chosen.list[:0]}}
	if w.Order == wire.OrderDeath {
		l.from, l.chosen.order = w.at.At.Seq+1, bySeq
	} else {
		l.match.Since = max(l.match.Since, w.at.At.EnqueuedAt)
	}
	return l
}

// next looks at a piece. It reports false if the queue is gone.
func (l *look) next() bool {
	if !l.w.q.View(func(m *queue.Queue, side queue.Role, now int64) {
		l.found, l.from = m.Members(side, &l.match, l.from, jobLooks, jobSlots, l.found[:0], now)
	}) {
		return false
	}
	for i := range l.found {
		m := &l.found[i]
		c := candidate{place: place{Seq: m.Seq, EnqueuedAt: m.EnqueuedAt, ID: m.ID}, size: m.Size}
		if l.chosen.order(c.place, l.w.at.At) > 0 {
			l.chosen.add(c)
		}
	}
	if l.chosen.full() && l.w.Order != wire.OrderDeath {
		l.match.Before = l.chosen.list[0].EnqueuedAt + 1 // of those that are later none is chosen
	}
	return true
}

// over reports whether the rest of the queue has nothing to choose.
func (l *look) over() bool {
	return l.from == 0 || l.w.Order == wire.OrderDeath && l.chosen.full()
}

// byArrival and bySeq are the orders of jobs.
func byArrival(a, b place) int {
	return cmp.Or(cmp.Compare(a.EnqueuedAt, b.EnqueuedAt), bytes.Compare(a.ID[:], b.ID[:]))
}

func bySeq(a, b place) int { return cmp.Compare(a.Seq, b.Seq) }

// selected is the first jobSelection messages in an order, the last one on top.
type selected struct {
	order func(a, b place) int
	list  []candidate
}

func (s *selected) Len() int           { return len(s.list) }
func (s *selected) Less(i, j int) bool { return s.order(s.list[i].place, s.list[j].place) > 0 }
func (s *selected) Swap(i, j int)      { s.list[i], s.list[j] = s.list[j], s.list[i] }
func (s *selected) Push(v any)         { s.list = append(s.list, v.(candidate)) }
func (s *selected) Pop() any           { panic("shard: nothing is taken out of a selection") }

// full reports whether it has as many as it may: there may be more.
func (s *selected) full() bool { return len(s.list) == jobSelection }

// add adds a message if it is one of the first.
func (s *selected) add(c candidate) {
	switch {
	case len(s.list) < jobSelection:
		s.list = append(s.list, c)
		if s.full() {
			heap.Init(s)
		}
	case s.order(c.place, s.list[0].place) < 0:
		s.list[0] = c
		heap.Fix(s, 0)
	}
}

// turn has the first of them on top instead.
func (s *selected) turn() {
	order := s.order
	s.order = func(a, b place) int { return order(b, a) }
	heap.Init(s)
}

// first takes out the first n of those that were turned, in their order, and adds them to
// out.
func (s *selected) first(n int, out []candidate) []candidate {
	for ; n > 0 && len(s.list) > 0; n-- {
		last := len(s.list) - 1
		s.Swap(0, last)
		out, s.list = append(out, s.list[last]), s.list[:last]
		if last > 0 {
			heap.Fix(s, 0)
		}
	}
	return out
}

// newSinceLooks is at how many pieces of messages newSince looks at most.
const newSinceLooks = 64

// newSince counts the messages that are as the filter says and came after the job was
// made; nil: that cannot be told.
func (w *worker) newSince() *int64 {
	if w.Op == wire.JobEdit { // it names a message by its id, and what it has edited is the same
		return new(int64)
	}
	finder, werr := w.q.Finder(*w.Filter, 0)
	if werr != nil {
		return nil
	}
	if !w.q.IsDLQ() {
		finder.match.Since = max(finder.match.Since, w.CreatedAt+1) // what the job itself has moved is older
	}
	n, from := int64(0), w.Last+1
	var found []queue.MessageView
	for range newSinceLooks {
		if found, from, werr = finder.find(from, jobLooks, jobLooks, found); werr != nil {
			return nil
		}
		n += int64(len(found))
		if from == 0 {
			break
		}
	}
	return &n
}

// dryRun says what a job would do.
func (q *Queue) dryRun(req wire.JobCreateRequest) (wire.JobInfo, *wire.Error) {
	info := wire.JobInfo{JobCreateRequest: req, State: wire.JobWaiting}
	info.Payload = nil
	var last uint64
	q.View(func(m *queue.Queue, side queue.Role, _ int64) { last = m.LastSeq(side) })
	finder, werr := q.Finder(*req.Filter, last)
	if werr != nil {
		return info, werr
	}
	var t *trial
	if req.DryRun { // others ask how many are meant
		if t, werr = q.try(req); werr != nil {
			return info, werr
		}
		defer t.end()
	}
	var left jobProgress
	var found []queue.MessageView
	for from, more := uint64(0), true; more; more = from != 0 {
		if found, from, werr = finder.find(from, jobLooks, jobLooks, found); werr != nil {
			return info, werr
		}
		info.Matched += int64(len(found))
		meant := slices.DeleteFunc(found, func(v queue.MessageView) bool {
			why := leftBy(req.Op, v.State)
			if why != "" {
				left.leave(why, 1)
			}
			return why != ""
		})
		if t != nil && (req.Limit == 0 || info.Eligible < req.Limit) {
			if meant, werr = t.ask(meant, &left); werr != nil {
				return info, werr
			}
		}
		info.Eligible += int64(len(meant))
		for i := range meant[:min(len(meant), wire.JobSamples-len(info.Samples))] {
			v := &meant[i]
			info.Samples = append(info.Samples, wire.JobSample{
				ID: formatID(v.ID), Key: wire.ShowKey(v.Key), State: stateName(q, v.State), EnqueuedAt: wire.Timestamp(v.EnqueuedAt),
			})
		}
	}
	info.Left = left.Left
	if req.Limit > 0 {
		info.Eligible = min(info.Eligible, req.Limit)
	}
	if t != nil {
		info.Why = t.why(req.Limit == 0 || info.Eligible < req.Limit)
	}
	return info, nil
}

// why says what would stop the job before its limit, or what the trial leaves open.
func (t *trial) why(belowLimit bool) string {
	switch {
	case t.full != nil && belowLimit:
		return t.full.Description
	case t.untried > 0:
		return fmt.Sprintf("the dry run has tried %d messages; it counts %d more as eligible, which the target may refuse", t.tried, t.untried)
	}
	return ""
}

// mostTried is how many messages a dry run tries at most, so that it ends within seconds: each
// is read, and on_enqueue of the target runs for it.
const mostTried = 100_000

// trial asks for a dry run what a job asks where its messages go, and takes nothing there.
type trial struct {
	*job
	count, size int64            // of those that would be there by now
	keys        map[string]int64 // places that they would have taken; what they leave is less
	full        *wire.Error      // why no more of them fit
	room        pieceRoom

	policy         *policy // of the target, see forTrial; nil: nothing was tried
	over           func()  // ends policy
	tried, untried int64   // messages; untried ones count as eligible
}

// policyOf returns the policy that the trial goes by at its target.
func (t *trial) policyOf(target *Queue) (*policy, *wire.Error) {
	if t.policy == nil {
		p, over, err := target.shard.forTrial(target.policy.Load())
		if err != nil {
			return nil, wire.HookLoad(target.name, string(hooks.OnEnqueue), brief(err))
		}
		t.policy, t.over = p, over
	}
	return t.policy, nil
}

func (t *trial) end() {
	if t.over != nil {
		t.over()
	}
}

// try begins a trial of a job. It returns why the job could not begin.
func (q *Queue) try(req wire.JobCreateRequest) (*trial, *wire.Error) {
	j := newJob(q, jobSpec{JobCreateRequest: req}, jobProgress{}, parcel{})
	t := &trial{job: j, keys: make(map[string]int64)}
	if !moves(j.Op) {
		return t, nil
	}
	if _, away := j.away(); away {
		return t, j.plain()
	}
	if _, werr := (&deed{job: j}).target(); werr != nil {
		return nil, werr
	}
	done := make(chan error, 1) // all that is there can be read then
	if _, ok := q.run.do(q.changed(queue.WriteEntries{Ticket: done})); !ok {
		return nil, q.Gone()
	}
	return t, j.written(done)
}

// ask keeps those of some messages that the job would do something about, and counts why
// it would leave others. From the first on for which there is no room it keeps none.
func (t *trial) ask(list []queue.MessageView, left *jobProgress) ([]queue.MessageView, *wire.Error) {
	if _, away := t.away(); away || !moves(t.Op) {
		return list, nil
	}
	kept := list[:0]
	for len(list) > 0 && t.full == nil {
		if t.tried >= mostTried {
			t.untried += int64(len(list))
			return append(kept, list...), nil
		}
		piece := list[:min(jobPiece, len(list))]
		t.tried += int64(len(piece))
		list = list[len(piece):]
		d := &deed{job: t.job, named: make([]candidate, len(piece)), left: make(map[string]int64), room: &t.room, trial: t}
		for i := range piece {
			v := &piece[i]
			d.named[i] = candidate{place: place{Seq: v.Seq, EnqueuedAt: v.EnqueuedAt, ID: v.ID}, size: v.Size}
		}
		if werr := d.choose(); werr != nil {
			return nil, werr
		}
		for why, n := range d.left {
			left.leave(why, n)
		}
		t.full = d.full
		for i, m := range d.moves {
			switch {
			case m == nil:
			case m == unread && errors.Is(d.broken, store.ErrNotFound):
				left.leave(wire.LeftGone, 1)
			case m == unread:
				left.leave(wire.LeftUnreadable, 1)
			default:
				if d.to == t.q && t.Key != "" {
					t.keys[piece[i].Key]-- // it leaves the place that it had
				}
				t.count, t.size = t.count+1, t.size+m.Size
				kept = append(kept, piece[i])
			}
		}
	}
	return kept, nil
}

// fits reports why a message does not go to a queue besides those that would be there by
// now. That the disk is behind is soon over, and a job waits for it.
func (t *trial) fits(to *Queue, p *policy, count, size, own int64) *wire.Error {
	werr := to.room(p, t.count+count, t.size+size, own)
	if werr != nil && werr.ErrCode == wire.CodeBacklogUncommitted {
		return to.fits(p, t.count+count, t.size+size, own)
	}
	return werr
}

// place takes one of the places of a key in a queue for the trial.
func (t *trial) place(to *Queue, s *wire.QueueSettings, key string) *wire.Error {
	counts := to.perKey.Load()
	if counts == nil || s.MaxPendingPerKey <= 0 {
		return nil
	}
	if counts.of(key)+t.keys[key] >= s.MaxPendingPerKey {
		return wire.KeyPending(to.name, key, s.MaxPendingPerKey, fullRetryAfter)
	}
	t.keys[key]++
	return nil
}

// leftBy is why a job leaves messages in a state as they are; empty: it does not.
func leftBy(op string, state queue.MessageState) string {
	switch state {
	case queue.StateLeased, queue.StateFailing:
		return wire.LeftInFlight
	case queue.StateMoving:
		return wire.LeftMoving
	case queue.StateDelayed:
		return ""
	default:
		if op == wire.JobRunNow {
			return wire.LeftNotDelayed
		}
		return ""
	}
}

// stateName is the state of a message of q that waits, for people.
func stateName(q *Queue, state queue.MessageState) string {
	switch {
	case q.IsDLQ():
		return wire.StateDead
	case state == queue.StateDelayed:
		return wire.StateDelayed
	case state == queue.StateBlocked, state == queue.StateOrdered:
		return wire.StateParked
	}
	return wire.StatePending
}
