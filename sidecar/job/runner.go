package job

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/filaq/fila/sidecar/deadletter"
	"github.com/filaq/fila/sidecar/finder"
	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/sidecar/queue/inspect"
	"github.com/filaq/fila/sidecar/telemetry"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// Queue is a queue or dead letter queue as jobs need it. Its methods may be called from any
// goroutine.
type Queue interface {
	finder.Queue
	// Source is the queue of a dead letter queue.
	Source() Queue
	// Deleted reports whether the queue has been deleted.
	Deleted() bool
	// Lock keeps other operators away from the queue and its dead letters until unlock, or
	// returns why that is no use: it has been deleted.
	Lock() (unlock func(), werr *wire.Error)
	// Change has the machine take changes in one step, after all that was posted before. Like
	// View and ClaimAndComplete, it reports false if the machine has ended.
	Change(changes ...queue.Change) (Answer, bool)
	// ClaimAndComplete claims messages in one step, and completes them in the next one as
	// fn says. Nothing happens in between. last is the last sequence of the queue.
	ClaimAndComplete(c queue.Claim, fn func(c *queue.Claimed, last uint64) queue.Complete) bool
	// Finder finds messages with sequences up to last by a filter; 0: all.
	Finder(f api.Filter, last uint64) (*finder.Finder, *wire.Error)
	// Admit returns what the queue decides about messages now. A dry run takes nothing.
	Admit(dry bool) (Target, *wire.Error)
	// AddDepth counts messages and their bytes in, or out.
	AddDepth(messages, bytes int64)
	// Redrives counts messages that return from a dead letter queue.
	Redrives() *deadletter.Redrives
}

// Answer is the answer of a machine to a change.
type Answer struct {
	Claimed *queue.Claimed
	Handled *queue.Handled
}

// Target decides about messages that come to a queue.
type Target interface {
	// Room returns why a message of that size does not fit, after others of the same batch.
	Room(messages, bytes, size int64) *wire.Error
	// Reclassify gives a message its keys, weight, cost and priority, as the queue and the
	// request say. Headers that were accepted before do not refuse it.
	Reclassify(headers map[string][]string, payloadSize int, acceptedBefore bool, req *api.JobCreateRequest) (store.Class, *wire.Error)
	// CountKey counts one more message of a fairness key, or returns why it is full. The
	// result takes it back; nil: nothing was counted.
	CountKey(key string) (queue.KeyCounts, *wire.Error)
	// ReleaseKey, of a dry run, counts a message out that leaves the key.
	ReleaseKey(key string)
	// Close ends a dry run.
	Close()
}

// Options are what the jobs of a shard need of it.
type Options struct {
	Shard      int
	Log        *slog.Logger
	Now        func() int64 // Unix ns
	Signer     *wire.Signer
	NewID      func() string
	MaxPayload func() int64 // of NATS
	// Find finds a queue of the shard.
	Find func(name string) (Queue, *wire.Error)
	// Where finds the shard of a queue; not ok: nobody knows it.
	Where func(queue string) (shard int, ok bool)
	// Send has the owner of another shard Receive a request. A refusal is a *wire.Error.
	Send func(ctx context.Context, shard int, body []byte) ([]byte, error)
	// Plain reports whether the stores leave histories out, for a node of an older version.
	Plain func() bool
	// Commit writes a batch and waits for the disk; Submit does not wait.
	Commit func(*store.Batch) error
	Submit func(*store.Batch)
	// Event publishes news of a queue.
	Event  func(typ, queue string, data map[string]any)
	Tracer telemetry.Tracer // nil: there is none
	// Wait waits for the outcome of a commit, unless nobody waits for the store any more.
	Wait  func(done <-chan error) error
	Ended context.Context // ends with the shard
}

// maxTransfer bounds the messages of a transfer.
const maxTransfer = 512

// operation is what a machine needs done next. It blocks, and returns the next input.
type operation interface {
	perform(w *worker) input
}

// worker carries out the operations of one job. All state that decides is in the machine.
type worker struct {
	*Options
	*spec
	queue     Queue
	finder    *finder.Finder    // of a run
	groups    deadletter.Reader // likewise
	dry       bool
	admission *admission // of the batch; of all in a dry run
	buffers
}

// over reports whether the shard or the queue has ended. The job stays as it is on disk.
func (w *worker) over() bool { return w.Ended.Err() != nil || w.queue.Deleted() }

// run begins a run of the job.
func (w *worker) run() run {
	fd, werr := w.queue.Finder(*w.Filter, w.Last)
	if werr != nil {
		return run{werr: werr}
	}
	w.finder, w.groups = fd, deadletter.NewReader()
	return run{match: fd.Match}
}

// endRun frees what a run has used.
func (w *worker) endRun() {
	w.finder, w.groups, w.admission, w.buffers = nil, deadletter.Reader{}, nil, buffers{}
}

// route finds the shard that messages go to, if it is another one.
func (w *worker) route() (shard int, remote bool) {
	if w.Op != api.JobMove {
		return 0, false
	}
	shard, known := w.Where(w.To)
	return shard, known && shard != w.Shard
}

// refuseTransfers returns why no messages go to another shard.
func (w *worker) refuseTransfers() *wire.Error {
	if w.Plain() {
		return wire.NotTaken(w.To, "a node of an older version is in the cluster, which does not know how")
	}
	return nil
}

// room returns how many bytes of messages fit into a request.
func (w *worker) room() int { return int(w.MaxPayload()) - requestOverhead }

// wait waits for a commit.
func (w *worker) wait(done <-chan error) *wire.Error {
	err := w.Wait(done)
	w.queue.Change() // so that what the answer says is so
	return queue.CommitError(err)
}

// write writes the progress of the job, behind all that the queue has handed to the store.
// With first it also writes the spec.
func (w *worker) write(at *progress, first bool, more ...func(*queue.Complete)) *wire.Error {
	done := make(chan error, 1)
	if !w.queue.ClaimAndComplete(queue.Claim{}, func(_ *queue.Claimed, last uint64) queue.Complete {
		if first { // all messages up to last are on disk before the job is
			w.Last = last
		}
		c := queue.Complete{Put: w.entries(at, first), Ticket: done}
		for _, add := range more {
			add(&c)
		}
		return c
	}) {
		return w.queue.Gone()
	}
	return w.wait(done)
}

// scanQueue looks for the next messages.
type scanQueue struct {
	match inspect.Match
	from  uint64
}

func (op scanQueue) perform(w *worker) input {
	in := scanned{began: w.Now()}
	if !w.queue.View(func(m *queue.Queue, role queue.Role, now int64) {
		in.found, in.next = m.Inspect(role).Members(&op.match, op.from, scanMessages, scanSlots, w.members[:0], now)
	}) {
		in.werr = w.queue.Gone()
	}
	w.members = in.found
	return in
}

// prepareBatch reads what a batch needs of the store.
type prepareBatch struct{ *batch }

func (op prepareBatch) perform(w *worker) input {
	b, in := op.batch, prepared{batch: op.batch, began: w.Now()}
	b.shard, b.remote = w.route()
	// The last error of a message that is alive may still change.
	if b.filterLate = w.finder.ReadsStore() && !w.queue.IsDLQ(); b.filterLate {
		return in
	}
	if in.werr = w.filter(b); in.werr != nil {
		return in
	}
	if b.Op == api.JobRedrive {
		seqs := make([]uint64, len(b.candidates))
		for i := range seqs {
			seqs[i] = b.candidates[i].Seq
		}
		var err error
		if b.groups, err = w.groups.Groups(w.queue.Store(), w.queue.ID(), seqs); err != nil {
			in.werr = wire.Internal(err.Error())
			return in
		}
	}
	if b.rewrites() && b.Op != api.JobEdit && !b.remote {
		in.werr = w.readOffers(b)
	}
	return in
}

// filter leaves out the candidates whose stored contents do not match.
func (w *worker) filter(b *batch) *wire.Error {
	if !w.finder.ReadsStore() {
		return nil
	}
	views := make([]inspect.MessageView, len(b.candidates))
	for i := range views {
		views[i].Seq, views[i].ID = b.candidates[i].Seq, b.candidates[i].ID
	}
	matches, werr := w.finder.Matches(views)
	if werr != nil {
		return werr
	}
	kept := make([]candidate, 0, len(b.candidates))
	for i := range matches {
		if matches[i] {
			kept = append(kept, b.candidates[i])
		}
	}
	b.candidates = kept
	return nil
}

// completeBatch carries a batch out, or parks its messages for a transfer.
type completeBatch struct{ *batch }

func (op completeBatch) perform(w *worker) input {
	b, in := op.batch, completed{batch: op.batch}
	if b.filterLate {
		if in.werr = w.filter(b); in.werr != nil {
			return in
		}
	}
	b.shard, b.remote = w.route() // the target may have moved while the job rested
	in.began = w.Now()
	switch {
	case len(b.candidates) == 0:
	case b.remote:
		in.werr = w.park(b)
	default:
		in.werr = w.complete(b)
	}
	return in
}

// sendTransfer sends a transfer to its shard. With recall the shard must accept nothing more of it.
type sendTransfer struct {
	transfer
	recall bool
}

func (op sendTransfer) perform(w *worker) input {
	req := &request{Shard: op.Shard, From: w.Shard, Job: w.ID, No: op.No, Queue: w.To}
	in := answered{recall: op.recall}
	var contents []content
	if !op.recall {
		// A history may have got longer between the reading for the transfer and the parking.
		var parked []candidate
		for _, e := range op.parked() {
			parked = append(parked, candidate{position: e.position()})
			req.Entries = append(req.Entries, sentEntry{ID: e.ID, EnqueuedAt: e.EnqueuedAt, NotBefore: e.NotBefore, Delayed: e.Delayed, ExpiresAt: e.ExpiresAt})
		}
		if contents, in.werr = w.readContents(parked); in.werr != nil {
			in.final = true
			return in
		}
		shortenAll(contents, w.room())
	}
	ctx, cancel := context.WithTimeout(w.Ended, requestTimeout)
	defer cancel()
	answer, err := w.send(ctx, req, contents)
	if err == nil && answer.No == op.No {
		in.receipt = &answer.receipt
		return in
	}
	why := "nobody answers for it"
	var refused *wire.Error
	switch {
	case errors.As(err, &refused):
		why = refused.Description
		if in.final = refused.ErrCode == wire.CodeBadSubject; in.final {
			why = "its owner is of an older version, which does not know how"
		}
	case errors.Is(err, errForged):
		why = "its answer cannot be believed: " + err.Error()
	}
	in.werr = wire.NotTaken(w.To, why+"; messages on their way there are not delivered until it answers")
	return in
}

// endTransfer finishes the messages of a transfer that its target has, and unparks the
// others.
type endTransfer struct {
	next        progress
	closed      transfer
	moved, kept []uint64
}

func (op endTransfer) perform(w *worker) input {
	in := transferEnded{next: op.next, closed: op.closed}
	unlock, werr := w.queue.Lock()
	if werr != nil {
		in.werr = werr
		return in
	}
	defer unlock()
	in.werr = w.write(&op.next, false, func(c *queue.Complete) {
		c.Transferred, c.Unpark = op.moved, op.kept
		c.Put = append(c.Put, w.transferEntry(&op.closed))
	})
	return in
}

// maxNewScans bounds how many pages of messages countNew scans.
const maxNewScans = 64

// countNew counts the messages that match and have come since the job was made.
type countNew struct{}

func (countNew) perform(w *worker) input {
	if w.Op == api.JobEdit { // it names a message by its id, and the edited one has the same
		return counted{new(int64)}
	}
	fd, werr := w.queue.Finder(*w.Filter, 0)
	if werr != nil {
		return counted{}
	}
	if !w.queue.IsDLQ() {
		fd.Match.Since = max(fd.Match.Since, w.CreatedAt+1) // what the job itself has moved is older
	}
	n, from := int64(0), w.Last+1
	var found []inspect.MessageView
	for range maxNewScans {
		if found, from, werr = fd.Find(from, scanMessages, scanMessages, found); werr != nil {
			return counted{}
		}
		n += int64(len(found))
		if from == 0 {
			break
		}
	}
	return counted{&n}
}

// writeProgress writes a new state of the job.
type writeProgress struct{ at progress }

func (op writeProgress) perform(w *worker) input {
	return written{at: op.at, werr: w.write(&op.at, false)}
}

var stateEvents = map[string]string{
	api.JobWaiting: wire.EventJobResumed, api.JobPaused: wire.EventJobPaused,
	api.JobDone: wire.EventJobDone, api.JobCanceled: wire.EventJobCanceled,
}

// announce publishes a state that is on disk.
func (w *worker) announce(at *progress) {
	w.event(stateEvents[at.State], at)
	if at.State != api.JobWaiting {
		w.Log.Info("job "+at.State, "job", w.ID, "op", w.Op, "queue", w.queue.Name(), "done", at.Done, "why", at.Why)
	}
	if at.ended() {
		w.trace(at)
		if w.Op == api.JobRedrive && at.Done > 0 {
			w.Event(wire.EventRedriven, wire.Source(w.queue.Name()), map[string]any{"redriven": at.Done, "job": w.ID})
		}
	}
}

// event publishes news of the job.
func (w *worker) event(typ string, at *progress) {
	data := map[string]any{"job": w.ID, "op": w.Op, "matched": at.Matched, "done": at.Done}
	if at.Why != "" {
		data["why"] = at.Why
	}
	w.Event(typ, w.queue.Name(), data)
}

// trace records a span of a job that has ended.
func (w *worker) trace(at *progress) {
	if w.Tracer == nil {
		return
	}
	left := int64(0)
	for _, n := range at.Left {
		left += n
	}
	s := &telemetry.Span{
		Name: "job " + w.Op + " " + w.queue.Name(), Start: at.Started, End: at.Ended,
		Attrs: []slog.Attr{
			slog.String(telemetry.AttrSystem, telemetry.System), slog.String(telemetry.AttrOperation, "job"),
			slog.String("queue", w.queue.Name()), slog.String("job", w.ID), slog.String("op", w.Op), slog.String("state", at.State),
			slog.Int64("matched", at.Matched), slog.Int64("done", at.Done), slog.Int64("left", left),
		},
	}
	if at.Started == 0 { // it was canceled before its turn
		s.Start = at.Ended
	}
	if w.Reason != "" {
		s.Attrs = append(s.Attrs, slog.String("reason", w.Reason))
	}
	w.Tracer.Record(s)
}

// drive steps the machine of a job, beginning with an input, and carries out operations until
// the job is idle. It returns why a verb had no effect. Its caller has claimed the job.
func (j *Job) drive(first input) *wire.Error {
	w := &j.worker
	defer w.endRun()
	if w.over() {
		return w.queue.Gone()
	}
	wanted := "" // the last stop that the machine was given
	for in := []input{first}; ; {
		if state := j.wanted(); state != wanted {
			in, wanted = append(in, stop{state}), state
		}
		var fx effects
		j.machine.step(w.Now(), in, &fx)
		changed := j.publish()
		if fx.Announce != nil {
			w.announce(fx.Announce)
		}
		if (fx.Do != nil || fx.At != 0) && w.over() {
			j.machine.interrupt()
			j.publish()
			return w.queue.Gone()
		}
		in = in[:0]
		switch {
		case fx.Do != nil:
			in = append(in, fx.Do.perform(w))
		case fx.At != 0 && j.wanted() != wanted:
		case fx.At != 0:
			t := time.NewTimer(time.Duration(fx.At - w.Now()))
			select {
			case <-t.C:
			case <-changed:
			case <-w.Ended.Done():
			}
			t.Stop()
		default:
			return fx.Err
		}
	}
}
