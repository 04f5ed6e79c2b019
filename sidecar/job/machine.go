package job

import (
	"time"

	"github.com/filaq/fila/sidecar/queue/inspect"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

const (
	// The job repeats a transfer without an answer after retryFirst, then after twice as long each
	// time, up to retryMost. It pauses itself after patience, which is longer than a takeover or an
	// election of NATS takes.
	retryFirst = 50 * time.Millisecond
	retryMost  = time.Second
	patience   = time.Minute
	// retryUncommitted is when a job goes on for which the disk was behind.
	retryUncommitted = 100 * time.Millisecond
)

// machine decides what a job does next. Its owner steps it with inputs, carries out the
// operation that the step returns, and steps it with the result.
//
// Invariants: there is one operation at a time; progress and transfer are what is on disk;
// while a transfer is open, nothing else is done with messages.
type machine struct {
	*spec
	at       progress
	transfer transfer

	running bool   // it takes messages
	stop    string // the state that a verb wants: JobPaused or JobCanceled; empty: none
	ending  *ending
	plan    plan
	match   inspect.Match // of the filter
	ahead   *batch        // prepared; nothing is done with its messages yet

	receipt   *receipt      // of the open transfer; nil: there is none yet
	sentSince int64         // Unix ns: when the open transfer was made; 0: in an earlier run
	giveUpAt  int64         // Unix ns: when to stop sending it again; 0: it has not been sent
	retryAt   int64         // Unix ns
	retry     time.Duration // before the next time
	unclear   bool          // a commit of the end of the transfer has failed: only the next owner knows its outcome

	refused *wire.Error // why it has paused itself, or left messages that could go later
	failed  *wire.Error // why it left messages that cannot be read
	stuck   *wire.Error // why its state cannot be written

	now int64
	out *effects
}

// ending is a change of state.
type ending struct {
	state, why string
	counted    bool
	newSince   *int64
}

// effects are the results of a step. Without Do and At the job is idle.
type effects struct {
	Announce *progress   // a state that is on disk now: publish it
	Do       operation   // its result is an input of the next step
	At       int64       // Unix ns: when to step again if nothing else happens
	Err      *wire.Error // why a verb had no effect
}

// input is an event or the result of an operation.
type input interface{ apply(m *machine) }

// step handles inputs and decides about the next operation.
func (m *machine) step(now int64, in []input, out *effects) {
	m.now, m.out = now, out
	for _, i := range in {
		i.apply(m)
	}
	for out.Do == nil && out.At == 0 && m.decide() {
	}
	m.out = nil
}

// decide makes one decision. It reports false if there is none to make.
func (m *machine) decide() bool {
	switch {
	case m.ending != nil:
		m.end()
	case m.transfer.open() && (m.running || m.stop == api.JobCanceled):
		m.continueTransfer()
	case m.stop != "":
		m.finish(m.stop, "")
	case !m.running:
		return false
	case m.Limit > 0 && m.at.Done >= m.Limit, m.plan.empty():
		m.finish(api.JobDone, "")
	default:
		m.nextBatch()
	}
	return true
}

// nextBatch selects messages, prepares a batch of them while the job rests, and carries it
// out when it is due.
func (m *machine) nextBatch() {
	p := &m.plan
	if m.ahead == nil {
		p.sort()
	}
	switch b := m.ahead; {
	case len(p.next) == 0 && p.scan == nil:
		p.newScan(m.match, m.Order, m.at.At)
		m.out.Do = scanQueue{p.scan.match, p.scan.from}
	case len(p.next) == 0 && m.now < p.due:
		m.out.At = p.due
	case len(p.next) == 0:
		m.out.Do = scanQueue{p.scan.match, p.scan.from}
	case b == nil:
		b = &batch{spec: m.spec, before: m.at, candidates: p.batch(m.spec, m.at.Done), transferNo: m.transfer.No + 1}
		b.last = b.candidates[len(b.candidates)-1].position
		m.out.Do = prepareBatch{b}
	case m.now < p.due:
		m.out.At = p.due
	default:
		m.ahead, m.out.Do = nil, completeBatch{b}
	}
}

// continueTransfer sends the open transfer, or ends it if there is a receipt.
func (m *machine) continueTransfer() {
	switch {
	case m.receipt != nil && m.unclear:
		m.receipt = nil
		m.abandonTransfer(wire.OutcomeUnknown())
	case m.receipt != nil:
		m.unclear = true
		next, moved, kept := m.transfer.end(&m.at, m.receipt)
		m.out.Do = endTransfer{next: next, closed: transfer{No: m.transfer.No, Shard: m.transfer.Shard}, moved: moved, kept: kept}
	case m.now < m.retryAt && m.stop == "":
		m.out.At = m.retryAt
	default:
		if m.giveUpAt == 0 {
			m.giveUpAt, m.retry = m.now+int64(patience), retryFirst
		}
		m.out.Do = sendTransfer{m.transfer, m.stop == api.JobCanceled}
	}
}

// abandonTransfer leaves the open transfer for later: its messages stay parked.
func (m *machine) abandonTransfer(werr *wire.Error) {
	m.giveUpAt, m.retryAt = 0, 0
	switch {
	case m.running && m.stop != "":
		m.finish(api.JobPaused, "")
	case m.running:
		m.fail(werr)
	default: // a verb has asked for it
		m.stop, m.out.Err = "", werr
	}
}

// fail pauses the job, or has it try again soon if the disk is only behind.
func (m *machine) fail(werr *wire.Error) {
	if werr.ErrCode == wire.CodeBacklogUncommitted {
		m.plan.due = m.now + int64(retryUncommitted)
		return
	}
	m.refused = werr
	m.finish(api.JobPaused, werr.Description)
}

// finish begins a change of state.
func (m *machine) finish(state, why string) {
	switch {
	case state == api.JobCanceled && m.transfer.open():
		state = api.JobPaused // the verb recalls the transfer
	case state == api.JobPaused && why != "" && m.ByRedrive:
		state = api.JobCanceled // nobody would resume it
	}
	m.ending = &ending{state: state, why: why}
}

// end continues the change of state: it first counts the messages since the job was created,
// then writes the state.
func (m *machine) end() {
	e, next := m.ending, m.at.clone()
	next.State, next.Why = e.state, e.why
	if next.ended() {
		if m.running && !e.counted {
			m.out.Do = countNew{}
			return
		}
		next.Ended, next.NewSince = m.now, e.newSince
	}
	m.out.Do = writeProgress{next}
}

// run starts a waiting job. Its owner has compiled the filter.
type run struct {
	match inspect.Match
	werr  *wire.Error // why the filter does not apply to the queue
}

func (in run) apply(m *machine) {
	if m.at.State != api.JobWaiting {
		return
	}
	m.running, m.stuck, m.match = true, nil, in.match
	m.plan = plan{size: batchSize, due: m.now, more: true}
	m.ahead, m.receipt, m.sentSince, m.giveUpAt, m.retryAt = nil, nil, 0, 0, 0
	if m.at.Started == 0 {
		m.at.Started = m.now
	}
	if in.werr != nil {
		m.ending = &ending{state: api.JobPaused, why: in.werr.Description}
	}
}

// stop pauses or cancels the job.
type stop struct{ state string }

func (in stop) apply(m *machine) {
	switch {
	case m.running, !m.at.ended() && m.at.State != in.state:
		m.stop = in.state
	case m.at.State != in.state:
		m.out.Err = wire.JobEnded(m.ID, m.at.State)
	}
}

// resume makes a paused job wait for its turn.
type resume struct{}

func (resume) apply(m *machine) {
	switch {
	case m.at.ended():
		m.out.Err = wire.JobEnded(m.ID, m.at.State)
	case m.at.State == api.JobPaused:
		m.ending = &ending{state: api.JobWaiting}
	}
}

// scanned is the result of a step of a scan.
type scanned struct {
	began int64
	found []inspect.Member
	next  uint64
	werr  *wire.Error
}

func (in scanned) apply(m *machine) {
	if in.werr != nil {
		m.fail(in.werr)
		return
	}
	p := &m.plan
	p.scan.add(in.found, in.next)
	if p.scan.over() {
		p.endScan()
		return
	}
	p.rest(in.began, m.now)
}

// prepared is a batch for which everything has been read.
type prepared struct {
	batch *batch
	began int64
	werr  *wire.Error
}

func (in prepared) apply(m *machine) {
	if in.werr != nil {
		m.fail(in.werr)
		return
	}
	m.ahead = in.batch
	m.plan.rest(in.began, m.now)
}

// completed is the result of a batch: it is on disk, or a transfer of it is, or neither.
type completed struct {
	batch *batch
	began int64
	werr  *wire.Error
}

func (in completed) apply(m *machine) {
	b, p := in.batch, &m.plan
	if b.keyRefused != nil {
		m.refused = b.keyRefused
	}
	if b.unreadable != nil {
		m.failed = b.unreadable
	}
	switch {
	case b.transfer != nil:
		m.transfer, m.sentSince = *b.transfer, in.began
	case b.stored:
		p.passed(b.next.At)
		p.spend(b.next.Done-m.at.Done, m.Rate, in.began)
		m.at = b.next
	case in.werr != nil:
	case len(b.candidates) == 0: // that the filter matches none needs no commit
		m.at.At = b.last
		p.passed(b.last)
	default:
		p.size = 1 // one message cannot be written: the others go alone
	}
	if b.transfer != nil || b.stored {
		p.rest(in.began, m.now)
		p.adapt(b.step, b.commit)
	}
	if in.werr != nil {
		m.fail(in.werr)
	}
}

// answered is the result of sending the open transfer: a receipt, or why there is none.
type answered struct {
	receipt *receipt
	werr    *wire.Error
	final   bool // sending it again would not help
	recall  bool
}

func (in answered) apply(m *machine) {
	switch {
	case in.receipt != nil:
		m.receipt, m.giveUpAt, m.retryAt = in.receipt, 0, 0
	case in.final, in.recall, m.stop != "", m.now > m.giveUpAt:
		m.abandonTransfer(in.werr)
	default:
		m.retryAt = m.now + int64(m.retry)
		m.retry = min(2*m.retry, retryMost)
	}
}

// transferEnded is the result of the end of a transfer.
type transferEnded struct {
	next   progress
	closed transfer
	werr   *wire.Error
}

func (in transferEnded) apply(m *machine) {
	r := m.receipt
	m.receipt = nil
	if in.werr != nil {
		m.abandonTransfer(in.werr)
		return
	}
	m.unclear = false
	m.plan.passed(in.next.At)
	m.plan.spend(in.next.Done-m.at.Done, m.Rate, m.sentSince)
	m.at, m.transfer = in.next, in.closed
	if r.Refused != nil && m.running {
		m.fail(r.Refused)
	}
}

// counted has the number of messages since the job was created; nil: unknown.
type counted struct{ n *int64 }

func (in counted) apply(m *machine) { m.ending.counted, m.ending.newSince = true, in.n }

// written is the result of writing a state.
type written struct {
	at   progress
	werr *wire.Error
}

func (in written) apply(m *machine) {
	m.interrupt()
	if m.out.Err = in.werr; in.werr != nil {
		m.stuck = in.werr
		return
	}
	m.at, m.out.Announce = in.at, &in.at
}

// interrupt ends a run, or a change of state that is not on disk, and frees what the run has
// selected. Progress and transfer stay as they are on disk.
func (m *machine) interrupt() {
	m.ending, m.running, m.stop = nil, false, ""
	m.plan, m.match, m.ahead = plan{}, inspect.Match{}, nil
}
