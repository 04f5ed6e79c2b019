package job

import (
	"bytes"
	"encoding/base64"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/filaq/fila/sidecar/deadletter"
	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/sidecar/queue/history"
	"github.com/filaq/fila/sidecar/queue/inspect"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// batch is messages that a job changes in one commit, or parks in one commit for a transfer.
type batch struct {
	*spec
	before     progress // of the job
	candidates []candidate
	last       position // where the batch ends
	transferNo uint64

	// Read when it is prepared.
	filterLate bool // the filter is evaluated when the messages are claimed
	remote     bool // it goes to another shard
	shard      int
	offers     []offer                      // of the candidates; nil: not read yet
	groups     map[uint64]*deadletter.Group // of dead letters that go elsewhere, by sequence

	// Decisions of the target, by candidate; nil: the op rewrites no messages.
	outcomes []outcome
	moves    []queue.Moved
	target   Queue
	full     *wire.Error // why there is no room for the rest

	// The result.
	next         progress
	redriven     deadletter.Change
	arrivals     arrivals  // in another queue of the shard
	stored       bool      // next is on disk
	transfer     *transfer // instead: it is on disk, and open
	readErr      error     // why messages could not be read
	leftUnread   int64     // messages that cannot be read and are still there
	keyRefused   *wire.Error
	unreadable   *wire.Error
	step, commit time.Duration // time that the queue and the disk took
}

// offer is a message that is offered to a queue.
type offer struct {
	readable    bool
	headers     map[string][]string
	size        int64 // of headers and payload as they are stored
	payloadSize int

	// Of an edit.
	payload []byte
	dead    *store.Dead
	history [][]byte
}

// admission decides which messages a queue takes.
type admission struct {
	*spec
	Target
	queue      store.QueueID
	stay       bool  // the messages are in the queue already
	maxSize    int64 // of an edited message
	count      int64 // taken so far
	bytes      int64
	full       *wire.Error // why there was no room
	keyRefused *wire.Error // why a message was not taken because of its keys
}

// decide decides about an offer. If the queue takes it, decide fills in m, except what only
// the source knows.
func (a *admission) decide(o *offer, m *queue.Moved) outcome {
	if !o.readable {
		return outcomeUnreadable
	}
	if !a.stay {
		if a.full = a.Room(a.count, a.bytes, o.size); a.full != nil {
			return outcomeNoRoom
		}
	}
	*m = queue.Moved{Size: o.size}
	if a.Op == api.JobEdit {
		if a.edit(o, m); m.Size > a.maxSize {
			return outcomeTooLarge
		}
	}
	acceptedBefore := a.Op == api.JobRedrive || a.stay && a.Op != api.JobEdit
	class, werr := a.Reclassify(o.headers, o.payloadSize, acceptedBefore, &a.JobCreateRequest)
	if werr != nil {
		a.keyRefused = werr
		return outcomeBadKey
	}
	if !a.stay || a.Key != "" {
		if m.Counted, werr = a.CountKey(class.Key); werr != nil { // others may fit
			a.keyRefused = werr
			return outcomeKeyFull
		}
	}
	m.Message.Ref, m.Message.Class = store.Ref{Queue: a.queue}, class
	a.count, a.bytes = a.count+1, a.bytes+m.Size
	return outcomeTaken
}

// edit gives a message the headers and the payload of the job.
func (a *admission) edit(o *offer, m *queue.Moved) {
	headers := maps.Clone(o.headers)
	if headers == nil {
		headers = make(map[string][]string)
	}
	remove := func(name string) {
		maps.DeleteFunc(headers, func(other string, _ []string) bool { return strings.EqualFold(other, name) })
	}
	for _, name := range a.RemoveHeaders {
		remove(name)
	}
	for name, value := range a.SetHeaders {
		remove(name)
		headers[name] = []string{value}
	}
	payload := o.payload
	if a.Payload != nil {
		payload, _ = base64.StdEncoding.DecodeString(*a.Payload) // it has been checked
	}
	o.headers, o.payloadSize = headers, len(payload)
	to := &m.Message
	to.Headers, to.Payload, to.Dead = wire.EncodeHeaders(nil, headers), payload, o.dead
	m.Edited, m.History, m.Size = true, o.history, int64(len(to.Headers)+len(to.Payload))
}

// arrivals are messages that come to a queue from another one.
type arrivals struct {
	to       Queue
	messages []queue.Moved
}

// reserve takes n sequences of a queue out of use, for messages that are to arrive there.
func reserve(to Queue, n int) (first uint64, werr *wire.Error) {
	answer, ok := to.Change(queue.Reserve{Count: n})
	if !ok {
		return 0, to.Gone()
	}
	return answer.Handled.Next, nil
}

// count counts the messages in their queue, before they are on disk there (1), or out (-1).
func (a *arrivals) count(sign int64) {
	for i := range a.messages {
		a.to.AddDepth(sign, sign*a.messages[i].Size)
	}
}

// accept gives the messages to their queue. They are on disk.
func (a *arrivals) accept() {
	if len(a.messages) > 0 {
		a.to.Change(queue.Accept{Messages: a.messages})
	}
}

// refuse takes the messages out of all counts: they are not on disk.
func (a *arrivals) refuse() {
	a.count(-1)
	for i := range a.messages {
		uncountKey(&a.messages[i])
	}
}

func uncountKey(m *queue.Moved) {
	if m.Counted != nil {
		m.Counted.Add(m.Message.Key, -1)
	}
}

// buffers are used by the batches of a job one after the other.
type buffers struct {
	offers   []offer
	moves    []queue.Moved
	going    []queue.Moved
	outcomes []outcome
	members  []inspect.Member
}

// buffer returns a buffer of n elements, with their old values.
func buffer[T any](b *[]T, n int) []T {
	*b = slices.Grow((*b)[:0], n)[:n]
	return *b
}

// complete carries out a batch. It returns why the job cannot go on.
func (w *worker) complete(b *batch) *wire.Error {
	unlock, werr := w.queue.Lock()
	if werr != nil {
		return werr
	}
	defer unlock()
	var claimed *queue.Claimed // by an edit, before it reads
	if b.Op == api.JobEdit {
		defer func() { w.unclaim(claimed) }()
		if claimed, werr = w.claim(b); werr != nil {
			return werr
		}
	}
	if b.rewrites() && (claimed == nil || len(claimed.Messages) > 0) {
		if werr := w.admit(b); werr != nil {
			return werr
		}
	}
	if len(b.candidates) == 0 && b.full != nil {
		return b.full
	}
	if werr := w.commitBatch(b, &claimed); werr != nil {
		return werr
	}
	if b.stored {
		return b.full
	}
	return nil
}

// claim claims the message of an edit before it is read, and waits until its attempts so far
// are on disk: the edit rewrites its history, so no attempt may end meanwhile.
func (w *worker) claim(b *batch) (*queue.Claimed, *wire.Error) {
	c := queue.Claim{}
	for i := range b.candidates {
		c.Messages = append(c.Messages, queue.MessageRef{Seq: b.candidates[i].Seq, ID: b.candidates[i].ID})
	}
	answer, ok := w.queue.Change(c)
	if !ok {
		return nil, w.queue.Gone()
	}
	return answer.Claimed, w.barrier()
}

// barrier waits until all changes of the queue so far are on disk.
func (w *worker) barrier() *wire.Error {
	done := make(chan error, 1)
	if _, ok := w.queue.Change(queue.WriteEntries{Ticket: done}); !ok {
		return w.queue.Gone()
	}
	return w.wait(done)
}

// unclaim returns claimed messages to their places.
func (w *worker) unclaim(c *queue.Claimed) {
	if c == nil {
		return
	}
	var seqs []uint64
	for i := range c.Messages {
		seqs = append(seqs, c.Messages[i].Seq)
	}
	w.queue.Change(queue.Complete{Unclaim: seqs})
}

// findTarget returns the queue that gets the messages: for changes, their own queue.
func (w *worker) findTarget() (Queue, *wire.Error) {
	switch w.Op {
	case api.JobRedrive:
		return w.queue.Source(), nil
	case api.JobMove:
		return w.Find(w.To)
	}
	return w.queue, nil
}

// admit has the target decide about the messages of a batch.
func (w *worker) admit(b *batch) *wire.Error {
	to, werr := w.findTarget()
	if werr != nil {
		return werr
	}
	b.target = to
	if b.offers == nil {
		if werr := w.readOffers(b); werr != nil {
			return werr
		}
	}
	if w.admission == nil || !w.dry {
		target, werr := to.Admit(w.dry)
		if werr != nil {
			return werr
		}
		w.admission = &admission{spec: w.spec, Target: target, queue: to.ID(), stay: to.ID() == w.queue.ID(), maxSize: w.MaxPayload() - wire.HeaderRoom}
	}
	a := w.admission
	b.moves, b.outcomes = buffer(&w.moves, len(b.candidates)), buffer(&w.outcomes, len(b.candidates))
	for i := range b.candidates {
		if b.outcomes[i] = a.decide(&b.offers[i], &b.moves[i]); b.outcomes[i] == outcomeNoRoom { // the batch ends in front of it
			b.full, b.last = a.full, b.before.At
			if i > 0 {
				b.last = b.candidates[i-1].position
			}
			b.candidates, b.moves, b.outcomes = b.candidates[:i], b.moves[:i], b.outcomes[:i]
			break
		}
	}
	b.keyRefused = a.keyRefused
	return nil
}

// commitBatch claims the messages of a batch, unless that is done, completes them and waits
// for the disk.
func (w *worker) commitBatch(b *batch, claimed **queue.Claimed) *wire.Error {
	first, other := uint64(0), b.target != nil && wire.Source(b.target.Name()) != wire.Source(w.queue.Name())
	if other {
		var werr *wire.Error
		if first, werr = reserve(b.target, len(b.candidates)); werr != nil {
			b.uncountKeys()
			return werr
		}
	}
	claim := queue.Claim{Delayed: b.Op == api.JobRunNow}
	index := make([]int, 0, len(b.candidates)) // of the claimed messages, in candidates
	for i := range b.candidates {
		// An unreadable message is claimed too: the queue knows whether it is only gone.
		if *claimed == nil && b.outcomes != nil && b.outcomes[i] != outcomeTaken && b.outcomes[i] != outcomeUnreadable {
			continue
		}
		index = append(index, i)
		claim.Messages = append(claim.Messages, queue.MessageRef{Seq: b.candidates[i].Seq, ID: b.candidates[i].ID})
	}
	if *claimed != nil {
		claim.Messages = nil
	}
	handed, err := w.commit(b, claim, func(c *queue.Claimed) queue.Complete {
		if *claimed != nil {
			c, *claimed = *claimed, nil
		}
		return w.completeClaimed(b, c, index, first, other)
	})
	if !handed {
		b.uncountKeys()
		return w.queue.Gone()
	}
	if b.leftUnread > 0 {
		w.Log.Error("a job skips messages that cannot be read", "job", w.ID, "queue", w.queue.Name(), "messages", b.leftUnread, "error", b.readErr)
		b.unreadable = wire.Internal(b.readErr.Error())
	}
	return w.committed(b, err)
}

// commit claims messages, has fn complete them and waits for the disk. It reports false if
// the queue has ended.
func (w *worker) commit(b *batch, c queue.Claim, fn func(*queue.Claimed) queue.Complete) (handed bool, err error) {
	done, began := make(chan error, 1), w.Now()
	if !w.queue.ClaimAndComplete(c, func(c *queue.Claimed, _ uint64) queue.Complete {
		complete := fn(c)
		complete.Ticket = done
		return complete
	}) {
		return false, nil
	}
	b.step = time.Duration(w.Now() - began)
	err = w.Wait(done)
	b.commit = time.Duration(w.Now()-began) - b.step
	w.queue.Change() // so that what the answer says is so
	return true, err
}

// completeClaimed returns the completion of claimed messages, with the progress of the job.
func (w *worker) completeClaimed(b *batch, c *queue.Claimed, index []int, first uint64, other bool) (out queue.Complete) {
	next := b.before.clone()
	next.At, next.Matched = b.last, next.Matched+int64(len(b.candidates))
	for _, o := range b.outcomes {
		if o != outcomeTaken && o != outcomeUnreadable {
			next.leave(leftReasons[o], 1)
		}
	}
	next.leave(api.LeftGone, c.Gone)
	for state, n := range c.Left {
		next.leave(leftBy(b.Op, state), n)
	}
	if b.rewrites() {
		out.Move = buffer(&w.going, len(c.Messages))[:0]
	}
	groups := make([]*deadletter.Group, 0, len(c.Messages))
	for i := range c.Messages {
		m := &c.Messages[i]
		switch b.Op {
		case api.JobDelete, api.JobCancel:
			out.Finish = append(out.Finish, m.Seq)
			continue
		case api.JobRunNow:
			out.Ready = append(out.Ready, m.Seq)
			continue
		}
		n := index[m.Index]
		if b.outcomes[n] != outcomeTaken {
			out.Unclaim = append(out.Unclaim, m.Seq)
			if b.outcomes[n] == outcomeUnreadable {
				b.leftUnread++
			}
			continue
		}
		b.outcomes[n] = 0 // it goes
		moved := &b.moves[n]
		b.fill(moved, m)
		if other {
			moved.Message.Seq = first
			first++
		}
		out.Move, groups = append(out.Move, *moved), append(groups, b.groups[m.Seq])
	}
	b.uncountKeys()
	if other {
		out.To, b.arrivals = b.target.Name(), arrivals{b.target, out.Move}
		b.arrivals.count(1)
	}
	next.leave(api.LeftUnreadable, b.leftUnread)
	next.Done += int64(len(c.Messages) - len(out.Unclaim))
	redrives := w.queue.Redrives()
	b.next, b.redriven = next, redrives.Count(groups, w.Now())
	out.Put = append(b.entries(&next, false), b.redriven.Put(w.queue.Name())...)
	out.Delete = b.redriven.Deleted(w.queue.Name())
	return out
}

// fill copies what the source queue knows of a message to its moved record.
func (b *batch) fill(moved *queue.Moved, c *queue.ClaimedMessage) {
	moved.From = c.Seq
	m, was := &moved.Message, &c.Message
	m.ID, m.EnqueuedAt = was.ID, was.EnqueuedAt
	m.NotBefore, m.Delayed, m.ExpiresAt = was.NotBefore, was.Delayed, was.ExpiresAt
	if b.Op != api.JobMove && b.Op != api.JobRedrive { // it stays in its queue, and keeps its attempts
		m.Attempts = was.Attempts
		if b.Op != api.JobReprioritise && b.Op != api.JobEdit {
			m.Key, m.Weight, m.Cost = was.Key, was.Weight, was.Cost
		}
		if b.Op == api.JobReprioritise && b.Key == "" {
			m.Key = was.Key
		}
	}
	if b.Op == api.JobDelay {
		m.NotBefore, m.Delayed = b.runAt(), false
	}
}

// uncountKeys gives back the places of messages that were taken and do not go.
func (b *batch) uncountKeys() {
	for i, o := range b.outcomes {
		if o == outcomeTaken {
			uncountKey(&b.moves[i])
		}
	}
	b.outcomes = nil
}

// committed handles the outcome of the commit of a batch.
func (w *worker) committed(b *batch, err error) *wire.Error {
	if err == nil {
		b.stored = true
		b.arrivals.accept()
		w.queue.Redrives().Commit(b.redriven)
		return nil
	}
	b.arrivals.refuse()
	switch {
	case errors.Is(err, store.ErrNoQueue) && b.target != nil:
		return b.target.Gone()
	case store.Fatal(err) != nil:
		return queue.CommitError(err)
	case len(b.candidates) > 1:
		return nil // they are tried one by one
	}
	b.next = b.before.clone()
	b.next.At = b.last
	b.next.Matched++
	b.next.leave(api.LeftUnreadable, 1)
	b.unreadable = queue.CommitError(err)
	if werr := w.write(&b.next, false); werr != nil {
		return werr
	}
	b.stored = true
	return nil
}

// park parks the messages of a batch for a transfer.
func (w *worker) park(b *batch) *wire.Error {
	unlock, werr := w.queue.Lock()
	if werr != nil {
		return werr
	}
	defer unlock()
	if werr := w.refuseTransfers(); werr != nil {
		return werr
	}
	b.candidates = b.candidates[:min(len(b.candidates), maxTransfer)]
	contents, werr := w.readContents(b.candidates)
	if werr != nil {
		return werr
	}
	t := &transfer{No: b.transferNo, Shard: b.shard, Before: b.before.At}
	claim, index, n := b.fit(t, contents, w.room())
	if n < len(contents) || len(b.candidates) == maxTransfer {
		b.last = t.Entries[n-1].position()
	}
	t.Last = b.last
	handed, err := w.commit(b, claim, func(c *queue.Claimed) queue.Complete { return b.parkClaimed(t, c, index) })
	switch {
	case !handed:
		return w.queue.Gone()
	case err != nil:
		return queue.CommitError(err)
	case len(t.parked()) > 0:
		b.transfer = t
	default:
		b.stored = true
	}
	return nil
}

// fit adds to a transfer the messages that fit into one request. If the first one does not
// fit, it never will, and the job leaves it.
func (b *batch) fit(t *transfer, contents []content, room int) (claim queue.Claim, index []int, n int) {
	for i := range contents {
		c, has := &b.candidates[i], &contents[i]
		e := entry{Seq: c.Seq, EnqueuedAt: c.EnqueuedAt, ID: c.ID[:]}
		switch {
		case !has.readable:
			e.Why = api.LeftUnreadable
		case len(index) == 0 && !has.shorten(room):
			e.Why = api.LeftRefused // max_payload was larger when it came
		case has.size() > room:
			return claim, index, i
		default:
			room -= has.size()
			index = append(index, i)
			claim.Messages = append(claim.Messages, queue.MessageRef{Seq: c.Seq, ID: c.ID})
		}
		t.Entries = append(t.Entries, e)
	}
	return claim, index, len(contents)
}

// parkClaimed parks claimed messages. If there are none, the batch is done.
func (b *batch) parkClaimed(t *transfer, c *queue.Claimed, index []int) (out queue.Complete) {
	claimed := make(map[int]*queue.ClaimedMessage, len(c.Messages))
	for i := range c.Messages {
		claimed[index[c.Messages[i].Index]] = &c.Messages[i]
	}
	var left []string // why the others were not claimed; which is which does not matter
	for range c.Gone {
		left = append(left, api.LeftGone)
	}
	for _, state := range slices.Sorted(maps.Keys(c.Left)) {
		left = append(left, slices.Repeat([]string{leftBy(b.Op, state)}, int(c.Left[state]))...)
	}
	for _, i := range index {
		e, m := &t.Entries[i], claimed[i]
		if m == nil {
			e.Why, left = left[0], left[1:]
			continue
		}
		e.NotBefore, e.Delayed, e.ExpiresAt = m.Message.NotBefore, m.Message.Delayed, m.Message.ExpiresAt
		out.Park = append(out.Park, m.Seq)
	}
	if len(out.Park) > 0 {
		out.Put = []store.Entry{b.transferEntry(t)}
		return out
	}
	b.next, _, _ = t.end(&b.before, &receipt{})
	out.Put = b.entries(&b.next, false)
	return out
}

// readOffers reads the messages of a batch.
func (w *worker) readOffers(b *batch) *wire.Error {
	refs := w.refs(b.candidates)
	offers := buffer(&w.offers, len(refs))
	for i := range offers {
		offers[i].readable = false
	}
	err := w.queue.Store().Read(refs, func(i int, headers, payload []byte) {
		h := offers[i].headers
		if len(h) > maxReusedHeaders {
			h = nil
		}
		h, err := wire.DecodeHeadersInto(h, headers)
		offers[i] = offer{readable: err == nil, headers: h, payloadSize: len(payload), size: int64(b.candidates[i].size)}
		if err != nil {
			b.readErr = err
		} else if b.Op == api.JobEdit {
			offers[i].payload = append([]byte{}, payload...)
		}
	})
	if err == nil && b.Op == api.JobEdit {
		err = w.readRecords(refs, offers)
	}
	if store.Fatal(err) != nil {
		return wire.Internal(err.Error())
	} else if err != nil {
		b.readErr = err
	}
	b.offers = offers
	return nil
}

// maxReusedHeaders is up to how many headers a map is used again.
const maxReusedHeaders = 32

// readRecords reads the reason of death and the history, which an edit copies to the new
// record. If they cannot be read, the message counts as unreadable.
func (w *worker) readRecords(refs []store.Ref, offers []offer) error {
	err := w.queue.Store().Dead(refs, func(i int, dead *store.Dead) { offers[i].dead = dead })
	if err == nil {
		err = w.queue.Store().History(refs, func(i int, records [][]byte) {
			for _, r := range records {
				offers[i].history = append(offers[i].history, bytes.Clone(r))
			}
		})
	}
	if err != nil {
		clear(offers) // an edit is of one message
	}
	return err
}

// readContents reads messages for a transfer. To the history of those that have one, or
// that are dead letters, it adds the move.
func (w *worker) readContents(candidates []candidate) ([]content, *wire.Error) {
	refs, contents := w.refs(candidates), make([]content, len(candidates))
	err := store.Fatal(w.queue.Store().Read(refs, func(i int, headers, payload []byte) {
		if _, err := wire.DecodeHeaders(headers); err == nil {
			contents[i] = content{readable: true, headers: bytes.Clone(headers), payload: bytes.Clone(payload)}
		}
	}))
	hasHistory := make([]bool, len(candidates))
	if err == nil {
		err = store.Fatal(w.queue.Store().History(refs, func(i int, records [][]byte) {
			hasHistory[i] = true
			for _, r := range records {
				contents[i].history = append(contents[i].history, bytes.Clone(r))
			}
		}))
	}
	if err != nil {
		return nil, wire.Internal(err.Error())
	}
	moved := (&history.AttemptRecord{Outcome: wire.AttemptMoved, At: w.Now(), From: w.queue.Name(), To: w.To}).Append(nil)
	for i := range contents {
		c := &contents[i]
		c.readable = c.readable && hasHistory[i] // none goes without its history
		if w.queue.IsDLQ() || len(c.history) > 0 {
			c.history = append(c.history, moved)
		}
	}
	return contents, nil
}

func (w *worker) refs(candidates []candidate) []store.Ref {
	refs := make([]store.Ref, len(candidates))
	for i := range refs {
		refs[i] = store.Ref{Queue: w.queue.ID(), Seq: candidates[i].Seq}
	}
	return refs
}
