package sidecar

import (
	"errors"
	"strconv"

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
	dead       *store.Dead
}

type deliveryKind uint8

const (
	sendMessage deliveryKind = iota
	sendStatus
	sendReply
)

// readBatch is how many payloads are read in one transaction of the store.
const readBatch = 128

// dispatch is the goroutine that publishes a queue's deliveries in order.
func (q *queue) dispatch() {
	var work []delivery
	d := dispatcher{q: q}
	for range q.out.wake {
		work = q.out.take(work)
		for rest := work; len(rest) > 0; {
			n := min(len(rest), readBatch)
			d.send(rest[:n])
			rest = rest[n:]
		}
		work = recycle(work)
		if q.out.ended() {
			return
		}
	}
}

type dispatcher struct {
	q     *queue
	refs  []store.Ref
	index []int // position in refs -> position in the deliveries
	msgs  []*nats.Msg
}

// send reads the payloads of work and publishes it. Payloads are copied out of
// the read transaction, so that a slow connection does not keep it open.
func (d *dispatcher) send(work []delivery) {
	d.refs, d.index = d.refs[:0], d.index[:0]
	d.msgs = append(d.msgs[:0], make([]*nats.Msg, len(work))...)
	for i := range work {
		switch w := &work[i]; {
		case w.kind != sendMessage:
		case w.fresh != nil:
			in := &w.fresh.msg
			if h, err := wire.DecodeHeaders(in.Headers); err != nil {
				d.q.core.log.Error("headers of a message cannot be decoded", "queue", d.q.name, "seq", w.seq, "error", err)
			} else {
				d.msgs[i] = d.q.message(w, h, in.Payload)
			}
		default:
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

// message makes a delivery of a stored message.
func (q *queue) message(d *delivery, headers map[string][]string, payload []byte) *nats.Msg {
	c := q.core
	h := nats.Header(headers)
	if h == nil {
		h = make(nats.Header, 6)
	}
	h[wire.HeaderID] = []string{formatID(d.id)}
	h[wire.HeaderQueue] = []string{q.name}
	h[wire.HeaderKey] = []string{d.key}
	h[wire.HeaderAttempt] = []string{strconv.FormatUint(uint64(d.attempt), 10)}
	h[wire.HeaderEnqueuedAt] = []string{timestamp(d.enqueuedAt)}
	h[wire.HeaderDeadline] = []string{timestamp(d.deadline)}
	if dead := d.dead; dead != nil {
		h[wire.HeaderDeadReason] = []string{dead.Reason}
		h[wire.HeaderDeadError] = []string{wire.HeaderValue(dead.Error)}
		if dead.ErrorCode != "" {
			h[wire.HeaderDeadErrorCode] = []string{wire.HeaderValue(dead.ErrorCode)}
		}
		h[wire.HeaderDeadAttempts] = []string{strconv.FormatUint(uint64(dead.Attempts), 10)}
		h[wire.HeaderDeadAt] = []string{timestamp(dead.At)}
		h[wire.HeaderSourceQueue] = []string{dead.SourceQueue}
	}
	token := c.signer.Append(make([]byte, 0, 48), q.name, d.token())
	return &nats.Msg{
		Subject: d.subject,
		Reply:   string(c.subjects.AppendAck(make([]byte, 0, 128), token, q.name)),
		Header:  h,
		Data:    payload,
	}
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
