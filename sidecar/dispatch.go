package sidecar

import (
	"errors"
	"strconv"
	"sync"

	"github.com/nats-io/nats.go"

	"github.com/filaq/fila/hooks"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
)

// delivery is something that a queue publishes in order: a message that has been
// leased, the status that ends a fetch, or the answer to somebody.
type delivery struct {
	kind       deliveryKind
	subject    string
	status     string    // sendStatus
	data       []byte    // sendReply
	fresh      *incoming // the message, if it may not be on disk yet
	seq        uint64
	lease      uint64
	deadline   int64
	enqueuedAt int64
	id         store.ID
	attempt    uint32
	key        string
}

type deliveryKind uint8

const (
	sendMessage deliveryKind = iota
	sendStatus
	sendReply
)

// readBatch is how many payloads are read in one transaction of the store.
const readBatch = 128

// dispatch is the goroutine that publishes those of a queue's deliveries that are
// not published by whoever made the turn.
func (q *queue) dispatch() {
	for range q.out.wake {
		q.dispatcher.all()
		if q.out.ended() {
			return
		}
	}
}

// dispatcher publishes a queue's deliveries in the order in which they were taken
// from its mailbox out.
type dispatcher struct {
	q     *queue
	mu    sync.Mutex // held from the taking to the end of publishing
	spare []delivery
	refs  []store.Ref
	index []int // position in refs -> position in the deliveries
	msgs  []*nats.Msg
}

func (d *dispatcher) all() {
	d.mu.Lock()
	defer d.mu.Unlock()
	work := d.q.out.take(d.spare)
	for rest := work; len(rest) > 0; {
		n := min(len(rest), readBatch)
		d.send(rest[:n])
		rest = rest[n:]
	}
	d.spare = recycle(work)
}

// send reads the payloads of work and publishes it. Payloads are copied out of
// the read transaction, so that a slow connection does not keep it open.
func (d *dispatcher) send(work []delivery) {
	d.refs, d.index = d.refs[:0], d.index[:0]
	d.msgs = append(d.msgs[:0], make([]*nats.Msg, len(work))...)
	for i := range work {
		if w := &work[i]; w.kind == sendMessage && w.fresh == nil {
			d.refs = append(d.refs, store.Ref{Queue: d.q.id, Seq: w.seq})
			d.index = append(d.index, i)
		}
	}
	if len(d.refs) == 0 {
		d.publish(work)
		return
	}
	err := d.q.core.store.Read(d.refs, func(i int, headers, payload []byte) {
		at := d.index[i]
		h, herr := wire.DecodeHeaders(headers)
		if herr != nil {
			d.q.core.log.Error("headers of a message cannot be decoded", "queue", d.q.name, "seq", work[at].seq, "error", herr)
			return
		}
		d.msgs[at] = d.q.message(&work[at], h, append([]byte(nil), payload...))
	})
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		d.q.core.log.Error("messages cannot be read; their leases will run out", "queue", d.q.name, "error", err)
	}
	if d.q.isDLQ() {
		d.addDead()
	}
	d.publish(work)
}

// publish sends what send has made of work.
func (d *dispatcher) publish(work []delivery) {
	for i, m := range d.msgs {
		switch work[i].kind {
		case sendReply:
			d.q.core.publish(work[i].subject, work[i].data)
			continue
		case sendStatus:
			m = &nats.Msg{Subject: work[i].subject, Header: nats.Header{"Status": {work[i].status}}}
		case sendMessage:
			if in := work[i].fresh; in != nil {
				// Not before: another delivery of it may be in front of this one,
				// and they share its headers.
				m = d.q.message(&work[i], in.headers, in.msg.Payload)
			}
		}
		if m == nil {
			continue
		}
		if err := d.q.core.nc.PublishMsg(m); err != nil && work[i].kind == sendMessage {
			d.q.undeliverable(&work[i], err)
		}
	}
	clear(d.msgs)
}

// envelope is a delivery with the values of its headers, in one piece.
type envelope struct {
	nats.Msg
	values [6]string
}

// message makes a delivery of a message. It adds to headers, which it keeps.
func (q *queue) message(d *delivery, headers nats.Header, payload []byte) *nats.Msg {
	c := q.core
	if headers == nil {
		headers = make(nats.Header, 6)
	}
	// All texts are parts of one string.
	var room [320]byte
	b := appendID(room[:0], d.id)
	id := len(b)
	b = strconv.AppendUint(b, uint64(d.attempt), 10)
	attempt := len(b)
	b = appendTimestamp(b, d.enqueuedAt)
	enqueued := len(b)
	b = appendTimestamp(b, d.deadline)
	deadline := len(b)
	var token [wire.TokenLen]byte
	b = c.subjects.AppendAck(b, c.signer.Append(token[:0], q.name, d.token()), q.name)
	text := string(b)
	e := &envelope{
		Msg:    nats.Msg{Subject: d.subject, Reply: text[deadline:], Header: headers, Data: payload},
		values: [6]string{text[:id], q.name, d.key, text[id:attempt], text[attempt:enqueued], text[enqueued:deadline]},
	}
	for i, name := range [...]string{
		wire.HeaderID, wire.HeaderQueue, wire.HeaderKey, wire.HeaderAttempt, wire.HeaderEnqueuedAt, wire.HeaderDeadline,
	} {
		headers[name] = e.values[i : i+1 : i+1]
	}
	return &e.Msg
}

// addDead adds to the deliveries of a dead letter queue why they are there. Where
// that has gone bad, the message is worth more than its reason.
func (d *dispatcher) addDead() {
	err := d.q.core.store.Dead(d.refs, func(i int, dead *store.Dead) {
		if m := d.msgs[d.index[i]]; m != nil && dead != nil {
			addDead(m.Header, dead)
		}
	})
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		d.q.core.log.Error("why messages are dead letters cannot be read; they go out without", "queue", d.q.name, "error", err)
	}
}

// addDead adds why a message is a dead letter.
func addDead(headers nats.Header, dead *store.Dead) {
	headers[wire.HeaderDeadReason] = []string{dead.Reason}
	headers[wire.HeaderDeadError] = []string{wire.HeaderValue(dead.Error)}
	if dead.ErrorCode != "" {
		headers[wire.HeaderDeadErrorCode] = []string{wire.HeaderValue(dead.ErrorCode)}
	}
	headers[wire.HeaderDeadAttempts] = []string{strconv.FormatUint(uint64(dead.Attempts), 10)}
	headers[wire.HeaderDeadAt] = []string{timestamp(dead.At)}
	headers[wire.HeaderSourceQueue] = []string{dead.SourceQueue}
}

func (d *delivery) token() wire.Token {
	return wire.Token{Seq: d.seq, Attempt: d.attempt, Lease: d.lease}
}

// undeliverable gives a delivery that could not be published back to the loop.
func (q *queue) undeliverable(d *delivery, err error) {
	if errors.Is(err, nats.ErrMaxPayload) {
		// The server has lowered its limit since the enqueue: the lease runs
		// out, and max_deliveries will put the message aside.
		q.core.log.Error("a message is larger than the server now accepts", "queue", q.name, "id", formatID(d.id))
		return
	}
	q.mail.post(event{kind: evUndelivered, token: d.token()})
}

// decideFailures is the goroutine that runs on_failure.
func (q *queue) decideFailures() {
	var work []failureJob
	for range q.failures.wake {
		work = q.failures.take(work)
		for i := range work {
			if q.stopping() {
				// Nobody will carry it out: the attempt ends at the next start,
				// when the lease runs out.
				q.core.replyError(work[i].reply, q.gone())
				continue
			}
			d := &decidedFailure{failureJob: work[i], decision: q.decide(&work[i])}
			if !q.mail.post(event{kind: evDecided, decided: d}) {
				q.core.replyError(work[i].reply, q.gone())
			}
		}
		work = recycle(work)
		if q.failures.ended() {
			return
		}
	}
}

// decide runs on_failure for one ended attempt.
func (q *queue) decide(job *failureJob) hooks.FailureDecision {
	g := q.policy.Load().onFailure
	if g == nil {
		return hooks.FailureDecision{Action: hooks.Retry}
	}
	in := hooks.FailureInput{
		ID: formatID(job.id), Queue: q.name, Attempts: job.attempts, Error: job.err, ErrorCode: job.code,
	}
	if job.fresh != nil {
		h, err := wire.DecodeHeaders(job.fresh.msg.Headers)
		if err != nil {
			q.core.log.Error("headers of a message cannot be decoded", "queue", q.name, "id", in.ID, "error", err)
		}
		in.Headers = h
		return g.failure(&in)
	}
	ref := []store.Ref{{Queue: q.id, Seq: job.seq}}
	err := q.core.store.Read(ref, func(_ int, headers, _ []byte) {
		h, err := wire.DecodeHeaders(headers)
		if err != nil {
			q.core.log.Error("headers of a message cannot be decoded", "queue", q.name, "id", in.ID, "error", err)
		}
		in.Headers = h
	})
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		q.core.log.Error("headers for on_failure cannot be read", "queue", q.name, "id", in.ID, "error", err)
	}
	return g.failure(&in)
}
