package shard

import (
	"errors"
	"strconv"
	"sync"

	"github.com/nats-io/nats.go"

	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
)

// dispatcher publishes the deliveries of a machine in order.
type dispatcher struct {
	r    *runner
	rest relay[queue.Delivery] // left to the goroutine of the dispatcher

	mu    sync.Mutex // held while deliveries are taken and published; guards what follows
	spare []queue.Delivery
	refs  []store.Ref
	index []int // position in refs -> position in the deliveries
	msgs  []*nats.Msg
	fresh envelope    // reused for messages in memory, because the client library keeps nothing
	plain nats.Header // reused for those without headers
	// parents are the traces of msgs that had to be read; empty without a tracer.
	parents []wire.TraceParent
	found   []found // messages of batches that had to be read, by position in the deliveries
	frames  frames
}

// How many deliveries of a step, and bytes of messages, the goroutine that made the step
// publishes itself. It leaves more to the dispatcher's goroutine, so that the machine goes on
// meanwhile and no queue waits for the connection on behalf of another.
const (
	publishAtOnce      = 16
	publishBytesAtOnce = 16 << 10 // half of what the NATS client buffers
)

// readBatch is how many payloads are read in one transaction.
const readBatch = 128

// publish publishes the deliveries of a step, after the deliveries of earlier steps. It is
// called during the step.
func (d *dispatcher) publish(work []queue.Delivery) {
	if len(work) == 0 {
		return
	}
	var bytes int64
	reads := false
	for i := range work {
		w := &work[i]
		if w.Kind != queue.DeliverMessage {
			continue
		}
		if w.Fresh != nil {
			bytes += w.Fresh.Size
		} else {
			reads = true
		}
	}
	if (len(work) > publishAtOnce || bytes > publishBytesAtOnce || reads || !d.publishNow(work)) && d.rest.post(work) {
		d.r.stopped.Go(d.run)
	}
}

// publishNow publishes deliveries that are in memory, unless others are waiting.
func (d *dispatcher) publishNow(work []queue.Delivery) bool {
	if !d.mu.TryLock() {
		return false
	}
	defer d.mu.Unlock()
	if !d.rest.empty() {
		return false
	}
	d.send(work)
	d.frames.ready()
	return true
}

// run publishes what publish has left to the goroutine.
func (d *dispatcher) run() {
	for d.some() {
	}
}

// some publishes waiting deliveries. It reports false if there are none.
func (d *dispatcher) some() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	work := d.rest.take(d.spare)
	for rest := work; len(rest) > 0; {
		n := min(len(rest), readBatch)
		d.send(rest[:n])
		rest = rest[n:]
	}
	d.frames.ready()
	d.spare = recycle(work)
	return len(work) > 0
}

// end publishes batches that wait for more deliveries.
func (d *dispatcher) end() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.frames.all()
}

// send reads missing payloads and publishes deliveries. It copies payloads out of the read
// transaction, so that a slow connection does not keep that open.
func (d *dispatcher) send(work []queue.Delivery) {
	d.refs, d.index = d.refs[:0], d.index[:0]
	d.msgs = append(d.msgs[:0], make([]*nats.Msg, len(work))...)
	if d.r.shard.set.traces != nil {
		d.parents = append(d.parents[:0], make([]wire.TraceParent, len(work))...)
	}
	dead := false
	for i := range work {
		if w := &work[i]; w.Kind == queue.DeliverMessage && w.Fresh == nil {
			d.refs = append(d.refs, store.Ref{Queue: d.r.sides[w.Role].id, Seq: w.Token.Seq})
			d.index = append(d.index, i)
			dead = dead || describesDead(w)
		}
	}
	if len(d.refs) > 0 {
		d.found = append(d.found[:0], make([]found, len(work))...)
		d.read(work)
	}
	if dead {
		d.addDead(work)
	}
	for i, m := range d.msgs {
		d.publishOne(i, &work[i], m)
	}
	clear(d.msgs)
	clear(d.found)
}

// read reads the messages of deliveries that are not in memory.
func (d *dispatcher) read(work []queue.Delivery) {
	s := d.r.shard
	err := s.store.Read(d.refs, func(i int, headers, payload []byte) {
		w := &work[d.index[i]]
		if len(d.parents) > 0 {
			d.parents[d.index[i]], _ = wire.SampledIn(headers)
		}
		if w.Form.Batch > 0 {
			d.found[d.index[i]] = found{headers: append([]byte(nil), headers...), payload: append([]byte{}, payload...)}
			return
		}
		h, err := wire.DecodeHeaders(headers)
		if err != nil {
			s.logAbout(w.ID).Error("headers of a message cannot be decoded",
				"queue", d.r.sides[w.Role].name, "id", formatID(w.ID), "seq", w.Token.Seq, "error", err)
			return
		}
		d.msgs[d.index[i]] = d.message(new(envelope), w, h, append([]byte(nil), payload...))
	})
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		s.Log.Error("messages cannot be read; their leases expire", "queue", d.r.sides[queue.Main].name, "error", err)
	}
}

// publishOne publishes a delivery, the i-th of send; m is its message if it had to be read.
func (d *dispatcher) publishOne(i int, w *queue.Delivery, m *nats.Msg) {
	s := d.r.shard
	var parent wire.TraceParent
	switch w.Kind {
	case queue.DeliverReply:
		d.frames.all()
		d.r.answer(&w.Reply)
		return
	case queue.DeliverStatus:
		d.frames.about(w.Subject)
		m = &nats.Msg{Subject: w.Subject, Header: nats.Header{"Status": {w.Status}}}
	case queue.DeliverMessage:
		if s.set.traces != nil {
			parent = d.parent(i, w)
		}
		d.r.sides[w.Role].metrics.Latency(float64(w.At-w.ReadyAt)/1e9, parent)
		switch {
		case w.Form.Batch > 0:
			d.addToBatch(i, w, parent)
			return
		case w.Fresh != nil:
			// Not earlier: another delivery of the message may precede this one, and they
			// share its headers.
			headers := nats.Header(w.Fresh.HeaderMap)
			switch {
			case headers != nil:
			case len(w.Fresh.Headers) == 0:
				headers = d.plain
			default: // it came in a batch
				headers, _ = wire.DecodeHeaders(w.Fresh.Headers)
				w.Fresh.HeaderMap = headers
			}
			m = d.message(&d.fresh, w, headers, w.Fresh.Payload)
		}
	}
	if m == nil {
		return
	}
	err := s.send(m)
	switch {
	case w.Kind != queue.DeliverMessage:
	case err != nil:
		d.undeliverable(w, err)
	case parent.Sampled:
		s.set.traces.Waited(w, parent, d.r.sides[w.Role].name, s.number)
	}
}

// addToBatch adds a delivery, the i-th of send, to the batch for its consumer. A message that could
// not be read is left out: its lease runs out.
func (d *dispatcher) addToBatch(i int, w *queue.Delivery, parent wire.TraceParent) {
	if w.Fresh != nil {
		d.frames.add(w, &found{headers: w.Fresh.Headers, payload: w.Fresh.Payload}, parent)
	} else if m := &d.found[i]; m.payload != nil {
		d.frames.add(w, m, parent)
	}
}

// parent returns the trace of the message of a delivery, the i-th of send.
func (d *dispatcher) parent(i int, w *queue.Delivery) wire.TraceParent {
	if w.Fresh == nil {
		return d.parents[i]
	}
	p, _ := wire.SampledIn(w.Fresh.Headers)
	return p
}

// envelope is a delivery and the values of its headers in one allocation.
type envelope struct {
	nats.Msg
	values [len(deliveryHeaders)]string
}

// Headers of deliveries. The first two are the minimum, with the route if there is one.
var deliveryHeaders = [...]string{
	wire.HeaderID, wire.HeaderAttempt, wire.HeaderQueue, wire.HeaderKey, wire.HeaderEnqueuedAt, wire.HeaderDeadline,
}

const minHeaders = 2

// message makes a delivery of a message in e. It keeps headers and adds to them.
func (d *dispatcher) message(e *envelope, w *queue.Delivery, headers nats.Header, payload []byte) *nats.Msg {
	s, name := d.r.shard, d.r.sides[w.Role].name
	names := deliveryHeaders[:]
	if w.Form.MinHeaders {
		names = names[:minHeaders]
		if _, all := headers[wire.HeaderQueue]; all { // of an earlier delivery
			for _, header := range deliveryHeaders[minHeaders:] {
				delete(headers, header)
			}
		}
	}
	if headers == nil {
		headers = make(nats.Header, len(names))
	}
	// All values are parts of one string.
	var room [320]byte
	b := appendID(room[:0], w.ID)
	id := len(b)
	b = strconv.AppendUint(b, uint64(w.Token.Attempt), 10)
	attempt := len(b)
	if !w.Form.MinHeaders {
		b = wire.AppendTimestamp(b, w.EnqueuedAt)
	}
	enqueued := len(b)
	if !w.Form.MinHeaders {
		b = wire.AppendTimestamp(b, w.Deadline)
	}
	deadline := len(b)
	var token [wire.MaxTokenLen]byte
	b = s.subjects.AppendAck(b, s.Signer.Append(token[:0], name, w.Token), name)
	text := string(b)
	*e = envelope{
		Msg:    nats.Msg{Subject: w.Subject, Reply: text[deadline:], Header: headers, Data: payload},
		values: [len(deliveryHeaders)]string{text[:id], text[id:attempt], name, w.Key, text[attempt:enqueued], text[enqueued:deadline]},
	}
	for i, header := range names {
		headers[header] = e.values[i : i+1 : i+1]
	}
	if w.Route != "" {
		headers[wire.HeaderRoute] = []string{w.Route}
	}
	return &e.Msg
}

// describesDead reports whether a delivery has the headers of a dead letter.
func describesDead(w *queue.Delivery) bool { return w.Role == queue.Dead && !w.Form.MinHeaders }

// addDead adds the headers of dead letters. If these cannot be read, the messages go out
// without them.
func (d *dispatcher) addDead(work []queue.Delivery) {
	n := 0
	for i, at := range d.index {
		if describesDead(&work[at]) {
			d.refs[n], d.index[n] = d.refs[i], at
			n++
		}
	}
	s := d.r.shard
	err := s.store.Dead(d.refs[:n], func(i int, dead *store.Dead) {
		switch m := d.msgs[d.index[i]]; {
		case dead == nil:
		case m != nil:
			addDead(m.Header, dead)
		case work[d.index[i]].Form.Batch > 0:
			d.found[d.index[i]].dead = dead
		}
	})
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		s.Log.Error("the reasons of dead letters cannot be read; they are delivered without", "queue", d.r.sides[queue.Dead].name, "error", err)
	}
}

// addDead adds the headers of a dead letter.
func addDead(headers nats.Header, dead *store.Dead) {
	headers[wire.HeaderDeadReason] = []string{dead.Reason}
	headers[wire.HeaderDeadError] = []string{wire.HeaderValue(dead.Error)}
	if dead.ErrorCode != "" {
		headers[wire.HeaderDeadErrorCode] = []string{wire.HeaderValue(dead.ErrorCode)}
	}
	headers[wire.HeaderDeadAttempts] = []string{strconv.FormatUint(uint64(dead.Attempts), 10)}
	headers[wire.HeaderDeadAt] = []string{wire.Timestamp(dead.At)}
	headers[wire.HeaderSourceQueue] = []string{dead.SourceQueue}
}

// undeliverable returns a delivery that could not be published to the machine.
func (d *dispatcher) undeliverable(w *queue.Delivery, err error) {
	if errors.Is(err, nats.ErrMaxPayload) {
		// The server has lowered its limit since the enqueue. The lease expires, and
		// max_deliveries moves the message to the dead letter queue.
		d.r.shard.logAbout(w.ID).Error("a message is larger than the server now accepts", "queue", d.r.sides[w.Role].name, "id", formatID(w.ID))
		return
	}
	d.r.mail.post(queue.Input{Kind: queue.Undelivered, Role: w.Role, Token: w.Token})
}
