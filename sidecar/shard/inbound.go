package shard

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
)

// ParcelVerb is what nodes call [Set.Receive] by. It is no verb of the admin protocol.
const ParcelVerb = "job-parcel"

// inbound is what a shard knows of jobs that have moved messages to it.
type inbound struct {
	mu struct {
		sync.Mutex
		byJob map[string]*arrivals
	}
}

// arrivals are the parcels of one job, which are handled one at a time.
type arrivals struct {
	sync.Mutex
	receipt // on disk; No 0: there is none
}

const (
	// parcelAge is how old a request may be, or ahead of the clock, to begin with a job
	// that has no receipt. A receipt is kept for much longer than that, so no parcel comes
	// after its receipt has gone.
	parcelAge = 24 * time.Hour
	// receiptsKept is when receipts go, if their jobs have ended: no earlier than these.
	receiptsKept = jobsKeptFor
	// parcelTimeout is how long an answer of another shard is waited for.
	parcelTimeout = 10 * time.Second
)

// recoverReceipts takes in what the store has kept of them.
func (s *Shard) recoverReceipts(kept []store.Entry) error {
	for _, e := range kept {
		id, ok := strings.CutPrefix(e.Key, keyMoved)
		if !ok {
			continue
		}
		if err := json.Unmarshal([]byte(e.Value), &s.arrivalsOf(id).receipt); err != nil {
			return errors.Join(errors.New("a receipt in the store cannot be read"), err)
		}
	}
	return nil
}

func (s *Shard) arrivalsOf(job string) *arrivals {
	s.inbound.mu.Lock()
	defer s.inbound.mu.Unlock()
	if s.inbound.mu.byJob == nil {
		s.inbound.mu.byJob = make(map[string]*arrivals)
	}
	a := s.inbound.mu.byJob[job]
	if a == nil {
		a = new(arrivals)
		s.inbound.mu.byJob[job] = a
	}
	return a
}

// Receive takes what another shard sends, which nobody but a node of the cluster can have
// made. What the answer says is on disk. After an error nothing is known of that.
func (s *Set) Receive(body []byte) ([]byte, *wire.Error) {
	w, cargo, err := unpack(s.Signer, body)
	if err != nil {
		return nil, wire.NotTaken(w.Queue, err.Error())
	}
	sh := s.Shard(w.Shard)
	if sh == nil || sh.silent() || sh.failed() || sh.ended.Err() != nil {
		return nil, wire.NoOwner(w.Queue)
	}
	var r reply
	var werr *wire.Error
	if w.Ask {
		r.Open = sh.hasOpen(w.Job)
	} else {
		r.receipt, werr = sh.receive(&w, cargo)
	}
	if werr != nil {
		return nil, werr
	}
	return packReply(s.Signer, body, &r), nil
}

// hasOpen reports whether a job goes on.
func (s *Shard) hasOpen(id string) bool {
	s.jobs.mu.Lock()
	j := s.jobs.mu.byID[id]
	s.jobs.mu.Unlock()
	if j == nil {
		return false
	}
	at, _, _ := j.standing()
	return !at.ended()
}

// receive files a parcel, once.
func (s *Shard) receive(w *waybill, cargo []goods) (receipt, *wire.Error) {
	a := s.arrivalsOf(w.Job)
	a.Lock()
	defer a.Unlock()
	switch {
	case w.No == a.No:
		return a.receipt, nil
	case w.No < a.No:
		return receipt{}, wire.NotTaken(w.Queue, "a later part of the job has been there")
	case a.No == 0:
		if age := time.Duration(s.Now() - w.Sent); age < -parcelAge || age > parcelAge {
			return receipt{}, wire.NotTaken(w.Queue, "the clocks of the nodes differ by more than a day")
		}
		s.forgetReceipts()
	}
	next := receipt{No: w.No, From: w.From, At: s.Now()}
	err := s.file(w, cargo, &next)
	if errors.Is(err, store.ErrNoQueue) { // it was deleted meanwhile
		next.Said, next.Refused = "", wire.QueueNotFound(w.Queue)
		err = s.commit(&store.Batch{PutConfig: []store.Entry{next.entry(w.Job)}})
	}
	if err != nil {
		return receipt{}, commitError(err)
	}
	a.receipt = next
	return next, nil
}

func (r *receipt) entry(job string) store.Entry {
	return store.Entry{Key: keyMoved + job, Value: encodeJob(r)}
}

// file writes the messages that there is room for, with the receipt.
func (s *Shard) file(w *waybill, cargo []goods, r *receipt) error {
	b := &store.Batch{}
	to, werr := s.set.Find(w.Queue)
	switch {
	case len(w.Items) == 0:
	case werr == nil && to.shard != s:
		werr = wire.QueueNotFound(w.Queue) // it was deleted, and is somewhere else now
		fallthrough
	case werr != nil:
		r.Refused = werr
	case s.Plain != nil && s.Plain():
		r.Refused = wire.NotTaken(w.Queue, "a node of an older version is in the cluster, which would lose the histories of the messages")
	default:
		return s.fileIn(to, w, cargo, r, b)
	}
	b.PutConfig = []store.Entry{r.entry(w.Job)}
	return s.commit(b)
}

func (s *Shard) fileIn(to *Queue, w *waybill, cargo []goods, r *receipt, b *store.Batch) error {
	landed := s.admit(to, w, cargo, r)
	d := &deed{to: to, landed: landed} // what is counted, as with a move within the shard
	drop := func() {
		for i := range landed {
			uncountKey(landed[i].Counted, landed[i].Message.Key)
		}
	}
	said, ok := to.run.do(to.changed(queue.Reserve{Count: len(landed)}))
	if !ok {
		drop()
		return store.ErrClosed
	}
	for i := range landed {
		g := &landed[i]
		g.Message.Seq = said.handled.Next + uint64(i)
		b.Add = append(b.Add, g.Message)
		for _, record := range g.History {
			b.History = append(b.History, store.Attempt{Ref: g.Message.Ref, Record: record})
		}
		g.Message.Headers, g.Message.Payload = nil, nil // the machine has no use for them
	}
	b.Queue, b.PutConfig = to.main().id, []store.Entry{r.entry(w.Job)}
	d.account(1)
	if err := s.commit(b); err != nil {
		d.account(-1)
		drop()
		return err
	}
	to.Tell(queue.Accept{Messages: landed})
	to.run.do()
	return nil
}

// admit decides which messages of a parcel go, with what the hook or the headers of their
// new queue decide about them, and writes that into the receipt.
func (s *Shard) admit(to *Queue, w *waybill, cargo []goods, r *receipt) (landed []queue.Moved) {
	p := to.main().policy.Load()
	d := &deed{job: &job{jobSpec: jobSpec{JobCreateRequest: wire.JobCreateRequest{Op: wire.JobMove}}}, to: to}
	var said strings.Builder
	var bytes int64
	for i := range w.Items {
		it, g := &w.Items[i], &cargo[i]
		headers, err := wire.DecodeHeaders(g.headers)
		if !g.read || err != nil {
			said.WriteByte(saidUnreadable)
			continue
		}
		own := int64(len(g.headers) + len(g.payload))
		if r.Refused = to.room(p, int64(len(landed)), bytes, own); r.Refused != nil {
			said.WriteByte(saidNoRoom)
			break
		}
		var moved queue.Moved
		if why := d.moved(&moved, p, &content{headers: headers, size: len(g.payload)}, own); why != "" {
			said.WriteByte(map[string]byte{wire.LeftKeyFull: saidKeyFull, wire.LeftBadKey: saidBadKey}[why])
			continue
		}
		m := &moved.Message
		m.ID, m.EnqueuedAt, m.ExpiresAt = store.ID(it.ID), it.EnqueuedAt, it.ExpiresAt
		m.NotBefore, m.Delayed = it.NotBefore, it.Delayed
		m.Headers, m.Payload, moved.History = g.headers, g.payload, g.past
		landed, bytes = append(landed, moved), bytes+own
		said.WriteByte(saidTaken)
	}
	r.Said = said.String()
	return landed
}

// forgetReceipts asks after jobs that have sent nothing for long, and forgets those that
// have ended. It does not wait for that.
func (s *Shard) forgetReceipts() {
	since, old := s.Now()-int64(receiptsKept), make(map[string]receipt)
	s.inbound.mu.Lock()
	for id, a := range s.inbound.mu.byJob {
		if a.TryLock() { // who is busy is not old
			if a.No != 0 && a.At < since {
				old[id] = a.receipt
			}
			a.Unlock()
		}
	}
	s.inbound.mu.Unlock()
	s.jobs.mu.Lock()
	defer s.jobs.mu.Unlock()
	if len(old) == 0 || s.jobs.mu.ended {
		return
	}
	s.jobs.work.Go(func() {
		for id, r := range old {
			ctx, cancel := context.WithTimeout(s.ended, parcelTimeout)
			answer, err := s.ask(ctx, &waybill{Shard: r.From, From: s.number, Job: id, Ask: true}, nil)
			cancel()
			if err != nil || answer.Open {
				continue
			}
			a := s.arrivalsOf(id)
			a.Lock()
			if a.No == r.No && s.commit(&store.Batch{DeleteConfig: []string{keyMoved + id}}) == nil {
				a.receipt = receipt{}
			}
			a.Unlock()
		}
	})
}

// ask sends a request to another shard, and returns its answer.
func (s *Shard) ask(ctx context.Context, w *waybill, cargo []goods) (reply, error) {
	w.Sent = s.Now()
	body := pack(s.Signer, w, cargo)
	answer, err := s.Send(ctx, w.Shard, body)
	if err != nil {
		return reply{}, err
	}
	return unpackReply(s.Signer, body, answer)
}
