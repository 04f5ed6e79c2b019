package shard

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
)

const (
	// parcelRetry is how long a job waits before it sends a parcel again, the first time.
	// It waits twice as long each time, up to a second.
	parcelRetry = 50 * time.Millisecond
	// parcelPatience is for how long it does so before it pauses itself: longer than a
	// takeover, or an election of NATS, takes.
	parcelPatience = time.Minute
	// parcelMost is how many messages a parcel has at most.
	parcelMost = 512
)

// away finds the shard of the target of a job; false: it is this one, or the queue is not
// there, which a deed finds.
func (j *job) away() (shard int, ok bool) {
	s := j.q.shard
	if j.Op != wire.JobMove || s.Placement == nil || s.Send == nil {
		return 0, false
	}
	shard, ok = s.Placement.Where(j.To)
	return shard, ok && shard != s.number
}

// plain reports why no messages go to another shard.
func (j *job) plain() *wire.Error {
	if s := j.q.shard; s.Plain != nil && s.Plain() {
		return wire.NotTaken(j.To, "a node of an older version is in the cluster, which does not know how")
	}
	return nil
}

// cargoRoom is how many bytes of messages a request may have.
func (s *Shard) cargoRoom() int { return int(s.Conn.MaxPayload()) - waybillRoom }

// out is the parcel that is under way; no items: there is none.
func (j *job) out() parcel {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.mu.parcel
}

// outEntry is what is kept of a parcel.
func (j *job) outEntry(p *parcel) store.Entry {
	return store.Entry{Key: keyJob + j.ID + keyJobOut, Value: encodeJob(p)}
}

// send makes a parcel of the piece and has its messages held.
func (d *deed) send(to int) *wire.Error {
	main := d.q.main()
	main.admin.Lock()
	defer main.admin.Unlock()
	if main.deleted.Load() {
		return wire.QueueNotFound(d.q.name)
	}
	if werr := d.plain(); werr != nil {
		return werr
	}
	d.named = d.named[:min(len(d.named), parcelMost)]
	cargo, werr := d.q.load(d.named, d.To)
	if werr != nil {
		return werr
	}
	out := parcel{No: d.out().No + 1, Shard: to, Before: d.before.At}
	pick, of, fits := d.fill(&out, cargo)
	if fits < len(cargo) || len(d.named) == parcelMost {
		d.last = out.Items[fits-1].place()
	}
	out.Last = d.last
	done := make(chan error, 1)
	began := time.Now()
	if !d.q.run.settle(d.q, pick, func(p *queue.Claimed) queue.Complete {
		s := d.holds(&out, p, of)
		s.Ticket = done
		return s
	}) {
		return d.q.Gone()
	}
	d.took = time.Since(began)
	if werr := d.written(done); werr != nil {
		return werr
	}
	d.wrote = time.Since(began) - d.took
	if d.sent = len(out.held()) > 0; !d.sent {
		d.went = true
		d.change(func() { d.mu.jobProgress = d.next.clone() })
		return nil
	}
	d.change(func() { d.mu.parcel = out })
	return nil
}

// written waits for a commit of the job.
func (j *job) written(done <-chan error) *wire.Error {
	select {
	case err := <-done:
		j.q.run.do() // what the answer says is so
		if err != nil {
			return commitError(err)
		}
		return nil
	case <-j.q.shard.lost:
		return wire.OutcomeUnknown()
	}
}

// fill puts the messages into a parcel that fit into one request: at least the first one
// does, or can never go.
func (d *deed) fill(out *parcel, cargo []goods) (pick queue.Claim, of []int, fits int) {
	room := d.q.shard.cargoRoom()
	for i := range cargo {
		c, g := &d.named[i], &cargo[i]
		it := item{Seq: c.Seq, EnqueuedAt: c.EnqueuedAt, ID: c.ID[:]}
		switch {
		case !g.read:
			it.Why = wire.LeftUnreadable
		case len(of) == 0 && !g.shorten(room):
			it.Why = wire.LeftRefused // max_payload was larger when it came
		case g.size() > room:
			return pick, of, i
		default:
			room -= g.size()
			of = append(of, i)
			pick.Messages = append(pick.Messages, queue.MessageRef{Seq: c.Seq, ID: c.ID})
		}
		out.Items = append(out.Items, it)
	}
	return pick, of, len(cargo)
}

// holds says that the messages that were picked are held. If there are none the piece is
// over.
func (d *deed) holds(out *parcel, p *queue.Claimed, of []int) (s queue.Complete) {
	picked := make(map[int]*queue.ClaimedMessage, len(p.Messages))
	for i := range p.Messages {
		picked[of[p.Messages[i].Index]] = &p.Messages[i]
	}
	rest := untaken(d.Op, p)
	for _, i := range of {
		it := &out.Items[i]
		l := picked[i]
		if l == nil {
			it.Why, rest = rest[0], rest[1:]
			continue
		}
		m := &l.Message
		it.NotBefore, it.Delayed, it.ExpiresAt = m.NotBefore, m.Delayed, m.ExpiresAt
		s.Park = append(s.Park, l.Seq)
	}
	if len(s.Park) > 0 {
		s.Put = []store.Entry{d.outEntry(out)}
		return s
	}
	d.next, _, _ = out.after(&d.before, &receipt{})
	s.Put = d.entries(&d.next, false)
	return s
}

// untaken are the words for messages that a pick has not taken.
func untaken(op string, p *queue.Claimed) (words []string) {
	for range p.Gone {
		words = append(words, wire.LeftGone)
	}
	for _, state := range slices.Sorted(maps.Keys(p.Left)) {
		for range p.Left[state] {
			words = append(words, leftBy(op, state))
		}
	}
	return words
}

// load reads messages that are to be moved to the queue to. The histories of those that have
// one, or that are dead letters, say so.
func (q *Queue) load(named []candidate, to string) ([]goods, *wire.Error) {
	refs, cargo := make([]store.Ref, len(named)), make([]goods, len(named))
	for i := range refs {
		refs[i] = store.Ref{Queue: q.id, Seq: named[i].Seq}
	}
	st := q.shard.store
	err := broken(st.Read(refs, func(i int, headers, payload []byte) {
		if _, err := wire.DecodeHeaders(headers); err == nil {
			cargo[i] = goods{read: true, headers: bytes.Clone(headers), payload: bytes.Clone(payload)}
		}
	}))
	told := make([]bool, len(named))
	if err == nil {
		err = broken(st.History(refs, func(i int, records [][]byte) {
			told[i] = true
			for _, r := range records {
				cargo[i].past = append(cargo[i].past, bytes.Clone(r))
			}
		}))
	}
	for i := range cargo { // none goes without its history
		cargo[i].read = cargo[i].read && told[i]
	}
	if err != nil {
		return nil, wire.Internal(err.Error())
	}
	moved := (&queue.AttemptRecord{Outcome: wire.AttemptMoved, At: q.shard.Now(), From: q.name, To: to}).Append(nil)
	for i := range cargo {
		if q.IsDLQ() || len(cargo[i].past) > 0 {
			cargo[i].past = append(cargo[i].past, moved)
		}
	}
	return cargo, nil
}

// broken is nil for an error that is about single messages, which the others outlive.
func broken(err error) error {
	if errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrCorrupt) {
		return nil
	}
	return err
}

// after is how the job stands when a parcel is over, which it began as it stood before,
// and which of the messages are elsewhere and which are not.
func (p *parcel) after(before *jobProgress, r *receipt) (next jobProgress, sent, back []uint64) {
	next = before.clone()
	next.At = p.Last
	held, full := 0, false
	for i := range p.Items {
		it := &p.Items[i]
		said := byte(0)
		if it.Why == "" {
			said = r.of(held)
			held++
		}
		if said == saidNoRoom && !full {
			full, next.At = true, p.Before
			if i > 0 {
				next.At = p.Items[i-1].place()
			}
		}
		switch {
		case full && it.Why == "":
			back = append(back, it.Seq)
		case full: // the job comes by again
		case said == saidTaken:
			next.Matched++
			next.Done++
			sent = append(sent, it.Seq)
		case it.Why != "":
			next.Matched++
			next.leave(it.Why, 1)
		default:
			next.Matched++
			next.leave(leftAs[said], 1)
			back = append(back, it.Seq)
		}
	}
	return next, sent, back
}

// carry brings the parcel to its end that is under way. With recall the other shard is to
// take nothing that it does not have. It returns how the job stands then, and why it cannot
// go on.
func (j *job) carry(at *jobProgress, recall bool) (next jobProgress, werr *wire.Error) {
	out := j.out()
	w := &waybill{Shard: out.Shard, From: j.q.shard.number, Job: j.ID, No: out.No, Queue: j.To}
	var cargo []goods
	if held := out.held(); !recall {
		// What was read to make the parcel may have got a longer history before it was held.
		named := make([]candidate, len(held))
		for i := range held {
			named[i].place = held[i].place()
		}
		if cargo, werr = j.q.load(named, j.To); werr != nil {
			return *at, werr
		}
		fit(cargo, j.q.shard.cargoRoom())
		for i := range held {
			it := &held[i]
			w.Items = append(w.Items, shipped{ID: it.ID, EnqueuedAt: it.EnqueuedAt, NotBefore: it.NotBefore, Delayed: it.Delayed, ExpiresAt: it.ExpiresAt})
		}
	}
	r, werr := j.exchange(w, cargo, recall)
	if werr != nil {
		return *at, werr
	}
	return j.conclude(at, &out, &r)
}

// exchange sends a parcel until there is an answer: only once if it is recalled, or if
// somebody wants the job to do something else.
func (j *job) exchange(w *waybill, cargo []goods, recall bool) (receipt, *wire.Error) {
	s := j.q.shard
	until, pause := s.Now()+int64(parcelPatience), parcelRetry
	for {
		ctx, cancel := context.WithTimeout(s.ended, parcelTimeout)
		fresh := *w
		fresh.Items = slices.Clone(w.Items)
		answer, err := s.ask(ctx, &fresh, cargo)
		cancel()
		if err == nil && answer.No == w.No {
			return answer.receipt, nil
		}
		why, final := "nobody answers for it", false
		var refused *wire.Error
		switch {
		case errors.As(err, &refused):
			why = refused.Description
			if final = refused.ErrCode == wire.CodeBadSubject; final {
				why = "its owner is of an older version, which does not know how"
			}
		case errors.Is(err, errForged):
			why = "its answer cannot be believed: " + err.Error()
		}
		if s.ended.Err() != nil {
			return receipt{}, j.q.Gone()
		}
		if final || recall || j.wanted() != "" || s.Now() > until {
			return receipt{}, wire.NotTaken(w.Queue, fmt.Sprintf("%s; messages that are on their way there are held until it answers", why))
		}
		j.rest(pause)
		pause = min(2*pause, time.Second)
	}
}

// rest waits, unless the job is disturbed.
func (j *job) rest(d time.Duration) {
	j.mu.Lock()
	changed := j.mu.changed
	j.mu.Unlock()
	if j.wanted() != "" {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-changed:
	case <-j.q.shard.ended.Done():
	}
}

// conclude ends a parcel as the receipt says.
func (j *job) conclude(at *jobProgress, out *parcel, r *receipt) (jobProgress, *wire.Error) {
	main := j.q.main()
	main.admin.Lock()
	defer main.admin.Unlock()
	if main.deleted.Load() {
		return *at, wire.QueueNotFound(j.q.name)
	}
	over := parcel{No: out.No, Shard: out.Shard}
	next, sent, back := out.after(at, r)
	done := make(chan error, 1)
	if j.settled(true) {
		return *at, wire.OutcomeUnknown()
	}
	if !j.q.run.settle(j.q, queue.Claim{}, func(*queue.Claimed) queue.Complete {
		return queue.Complete{Transferred: sent, Unpark: back, Put: append(j.entries(&next, false), j.outEntry(&over)), Ticket: done}
	}) {
		return *at, j.q.Gone()
	}
	if werr := j.written(done); werr != nil {
		return *at, werr
	}
	j.change(func() { j.mu.jobProgress, j.mu.parcel = next.clone(), over })
	j.settled(false)
	return next, r.Refused
}

// settled notes whether the machine has been told what becomes of the parcel, and returns
// what it was: after a commit that has failed only the next owner knows.
func (j *job) settled(is bool) (was bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	was, j.mu.settled = j.mu.settled, is
	return was
}

// recall ends the parcel that is under way, if there is one, with what is there.
func (j *job) recall() *wire.Error {
	if len(j.out().Items) == 0 {
		return nil
	}
	at, _, _ := j.standing()
	if _, werr := j.carry(&at, true); len(j.out().Items) > 0 {
		return werr
	}
	return nil
}
