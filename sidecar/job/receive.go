package job

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
	"github.com/filaq/fila/wire/api"
)

// TransferVerb is the name under which nodes send each other requests for [Receive]. It is
// not a verb of the admin protocol.
const TransferVerb = "job-parcel"

const (
	// maxClockSkew bounds the age of the first request of a job, in both directions. A receipt
	// is kept for longer, so no request is accepted after its receipt has been deleted.
	maxClockSkew = 24 * time.Hour
	// receiptKeptFor is the least time that a receipt is kept after its job has ended.
	receiptKeptFor = KeptFor
	requestTimeout = 10 * time.Second
)

// incoming is a job of another shard that sends requests. They are handled one at a time.
type incoming struct {
	sync.Mutex
	receipt // on disk; No 0: there is none
}

func (js *Jobs) incomingOf(job string) *incoming {
	js.mu.Lock()
	defer js.mu.Unlock()
	in := js.mu.incoming[job]
	if in == nil {
		in = new(incoming)
		js.mu.incoming[job] = in
	}
	return in
}

// recoverReceipts reads the receipts in the configuration of the store.
func (js *Jobs) recoverReceipts(config []store.Entry) error {
	for _, e := range config {
		if id, ok := strings.CutPrefix(e.Key, keyReceipt); ok {
			if err := json.Unmarshal([]byte(e.Value), &js.incomingOf(id).receipt); err != nil {
				return errors.Join(errors.New("a receipt in the store cannot be read"), err)
			}
		}
	}
	return nil
}

// Receive handles a request of another shard, which only a node of the cluster can have
// signed. jobs returns the jobs of a shard that this node serves, nil for any other. The
// outcomes in the answer are on disk; after an error they may be.
func Receive(signer *wire.Signer, body []byte, jobs func(shard int) *Jobs) ([]byte, *wire.Error) {
	req, contents, err := unpackRequest(signer, body)
	if err != nil {
		return nil, wire.NotTaken(req.Queue, err.Error())
	}
	js := jobs(req.Shard)
	if js == nil {
		return nil, wire.NoOwner(req.Queue)
	}
	var r reply
	if req.Ask {
		if j := js.Get(req.Job); j != nil {
			at := j.shown()
			r.Open = !at.ended()
		}
	} else {
		var werr *wire.Error
		if r.receipt, werr = js.receive(&req, contents); werr != nil {
			return nil, werr
		}
	}
	return packReply(signer, body, &r), nil
}

// receive takes the messages of a request, once.
func (js *Jobs) receive(req *request, contents []content) (receipt, *wire.Error) {
	in := js.incomingOf(req.Job)
	in.Lock()
	defer in.Unlock()
	switch {
	case req.No == in.No:
		return in.receipt, nil
	case req.No < in.No:
		return receipt{}, wire.NotTaken(req.Queue, "a later part of the job has arrived before")
	case in.No == 0:
		if age := time.Duration(js.Now() - req.Sent); age < -maxClockSkew || age > maxClockSkew {
			return receipt{}, wire.NotTaken(req.Queue, "the clocks of the nodes differ by more than a day")
		}
		js.deleteOldReceipts()
	}
	next := receipt{No: req.No, From: req.From, At: js.Now()}
	err := js.accept(req, contents, &next)
	if errors.Is(err, store.ErrNoQueue) { // it was deleted meanwhile
		next.Outcomes, next.Refused = "", wire.QueueNotFound(req.Queue)
		err = js.Commit(&store.Batch{PutConfig: []store.Entry{next.entry(req.Job)}})
	}
	if err != nil {
		return receipt{}, queue.CommitError(err)
	}
	in.receipt = next
	return next, nil
}

// accept stores the messages that there is room for, with the receipt.
func (js *Jobs) accept(req *request, contents []content, r *receipt) error {
	var to Queue
	var target Target
	switch {
	case len(req.Entries) == 0:
	case js.Plain():
		r.Refused = wire.NotTaken(req.Queue, "a node of an older version is in the cluster, which would lose the histories of the messages")
	default:
		switch to, r.Refused = js.Find(req.Queue); {
		case r.Refused == nil:
			target, r.Refused = to.Admit(false)
		case r.Refused.ErrCode == wire.CodeNoOwner:
			r.Refused = wire.QueueNotFound(req.Queue) // it was deleted here, and is in another shard now
		}
	}
	if target == nil {
		return js.Commit(&store.Batch{PutConfig: []store.Entry{r.entry(req.Job)}})
	}
	move := &spec{JobCreateRequest: api.JobCreateRequest{Op: api.JobMove}}
	a := arrivals{to, admitRequest(&admission{spec: move, Target: target, queue: to.ID()}, req, contents, r)}
	a.count(1)
	first, werr := reserve(to, len(a.messages))
	if werr != nil {
		a.refuse()
		return store.ErrClosed
	}
	b := &store.Batch{Queue: to.ID(), PutConfig: []store.Entry{r.entry(req.Job)}}
	for i := range a.messages {
		m := &a.messages[i]
		m.Message.Seq = first + uint64(i)
		b.Add = append(b.Add, m.Message)
		for _, record := range m.History {
			b.History = append(b.History, store.Attempt{Ref: m.Message.Ref, Record: record})
		}
		m.Message.Headers, m.Message.Payload = nil, nil // the queue does not need them
	}
	if err := js.Commit(b); err != nil {
		a.refuse()
		return err
	}
	a.accept()
	return nil
}

// admitRequest decides which messages of a request are taken, and writes the outcomes into
// the receipt.
func admitRequest(a *admission, req *request, contents []content, r *receipt) (taken []queue.Moved) {
	var outcomes []byte
	for i := range req.Entries {
		e, c := &req.Entries[i], &contents[i]
		headers, err := wire.DecodeHeaders(c.headers)
		o := offer{readable: c.readable && err == nil, headers: headers, size: int64(len(c.headers) + len(c.payload)), payloadSize: len(c.payload)}
		var moved queue.Moved
		decision := a.decide(&o, &moved)
		outcomes = append(outcomes, byte(decision))
		if decision == outcomeNoRoom {
			break
		}
		if decision == outcomeTaken {
			m := &moved.Message
			m.ID, m.EnqueuedAt, m.ExpiresAt = store.ID(e.ID), e.EnqueuedAt, e.ExpiresAt
			m.NotBefore, m.Delayed = e.NotBefore, e.Delayed
			m.Headers, m.Payload, moved.History = c.headers, c.payload, c.history
			taken = append(taken, moved)
		}
	}
	r.Outcomes, r.Refused = string(outcomes), a.full
	return taken
}

// deleteOldReceipts asks for jobs that have sent nothing for long whether they are open,
// and deletes the receipts of those that are not. It does not wait for that.
func (js *Jobs) deleteOldReceipts() {
	since, old := js.Now()-int64(receiptKeptFor), make(map[string]receipt)
	js.mu.Lock()
	defer js.mu.Unlock()
	for id, in := range js.mu.incoming {
		if in.TryLock() { // otherwise a request is being handled
			if in.No != 0 && in.At < since {
				old[id] = in.receipt
			}
			in.Unlock()
		}
	}
	if len(old) == 0 || js.mu.stopped {
		return
	}
	js.work.Go(func() {
		for id, r := range old {
			ctx, cancel := context.WithTimeout(js.Ended, requestTimeout)
			answer, err := js.send(ctx, &request{Shard: r.From, From: js.Shard, Job: id, Ask: true}, nil)
			cancel()
			if err != nil || answer.Open {
				continue
			}
			in := js.incomingOf(id)
			in.Lock()
			if in.No == r.No && js.Commit(&store.Batch{DeleteConfig: []string{keyReceipt + id}}) == nil {
				in.receipt = receipt{}
			}
			in.Unlock()
		}
	})
}

// send sends a request to another shard and returns the answer.
func (o *Options) send(ctx context.Context, req *request, contents []content) (reply, error) {
	req.Sent = o.Now()
	body := packRequest(o.Signer, req, contents)
	answer, err := o.Send(ctx, req.Shard, body)
	if err != nil {
		return reply{}, err
	}
	return unpackReply(o.Signer, body, answer)
}
