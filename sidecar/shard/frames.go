package shard

import (
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
)

// frames are the batches of deliveries that are being made: at most one for each subject. Its
// methods are called under the lock of the dispatcher.
type frames struct {
	d     *dispatcher
	open  map[string]*frame // by subject
	order []*frame          // the oldest first
	spare *frame
	timer *time.Timer // publishes batches that wait; nil: it is not set

	lines []byte // buffer
}

// frame is a batch of deliveries to one subject.
type frame struct {
	subject string
	form    queue.DeliveryForm
	role    queue.Role
	token   wire.BatchToken
	data    []byte
	works   []framed
}

// framed is a delivery in a frame.
type framed struct {
	w      queue.Delivery
	parent wire.TraceParent
}

// found is a message that was read from the store.
type found struct {
	headers, payload []byte
	dead             *store.Dead
}

// frameHeaders is what a batch leaves of max_payload for its own headers.
const frameHeaders = 64

// add adds a delivery of a message to the batch for its subject, and publishes batches that are
// full.
func (fs *frames) add(w *queue.Delivery, m *found, parent wire.TraceParent) {
	f := fs.open[w.Subject]
	if f != nil && (len(f.works) >= int(w.Form.Batch) || f.form != w.Form || f.role != w.Role) {
		fs.publish(f)
		f = nil
	}
	if f == nil {
		f = fs.begin(w)
	}
	before := len(f.data)
	fs.append(f, w, m)
	if before > 0 && len(f.data) > fs.limit(w) || !f.token.Add(w.Token) {
		f.data = f.data[:before]
		fs.publish(f)
		f = fs.begin(w)
		fs.append(f, w, m)
		f.token.Add(w.Token)
	}
	f.works = append(f.works, framed{*w, parent})
}

// limit is how many bytes of deliveries a batch may have.
func (fs *frames) limit(w *queue.Delivery) int {
	limit := int(fs.d.r.shard.Conn.MaxPayload()) - frameHeaders
	if w.Form.BatchBytes > 0 {
		limit = min(limit, int(w.Form.BatchBytes))
	}
	return limit
}

func (fs *frames) begin(w *queue.Delivery) *frame {
	f := fs.spare
	if fs.spare = nil; f == nil {
		f = new(frame)
	}
	f.subject, f.form, f.role = w.Subject, w.Form, w.Role
	if fs.open == nil {
		fs.open = make(map[string]*frame)
	}
	fs.open[w.Subject] = f
	fs.order = append(fs.order, f)
	return f
}

// append encodes a delivery at the end of a frame.
func (fs *frames) append(f *frame, w *queue.Delivery, m *found) {
	lines := fs.lines[:0]
	if w.Route != "" {
		lines = append(append(append(lines, wire.HeaderRoute+": "...), w.Route...), "\r\n"...)
	}
	if !w.Form.MinHeaders {
		lines = append(append(append(lines, wire.HeaderKey+": "...), w.Key...), "\r\n"...)
		lines = append(wire.AppendTimestamp(append(lines, wire.HeaderEnqueuedAt+": "...), w.EnqueuedAt), "\r\n"...)
		if m.dead != nil {
			why := make(nats.Header)
			addDead(why, m.dead)
			lines = wire.AppendHeaderLines(lines, why)
		}
	}
	f.data = wire.AppendDelivered(f.data, &wire.Delivered{
		ID: w.ID, Attempt: w.Token.Attempt, Deadline: w.Deadline, Data: m.payload,
	}, m.headers, lines)
	fs.lines = lines
}

// publish publishes a batch.
func (fs *frames) publish(f *frame) {
	delete(fs.open, f.subject)
	for i, other := range fs.order {
		if other == f {
			fs.order = append(fs.order[:i], fs.order[i+1:]...)
			break
		}
	}
	d := fs.d
	s, name := d.r.shard, d.r.sides[f.role].name
	err := s.send(&nats.Msg{
		Subject: f.subject, Reply: string(s.subjects.AppendAck(nil, s.Signer.AppendBatch(nil, name, &f.token), name)),
		Header: nats.Header{wire.HeaderBatch: {strconv.Itoa(len(f.works))}}, Data: f.data,
	})
	for i := range f.works {
		switch w := &f.works[i]; {
		case err != nil:
			d.undeliverable(&w.w, err)
		case w.parent.Sampled:
			s.set.traces.Waited(&w.w, w.parent, name, s.number)
		}
	}
	const keep = 256 << 10
	if cap(f.data) <= keep {
		clear(f.works)
		*f = frame{data: f.data[:0], works: f.works[:0], token: wire.BatchToken{}}
		fs.spare = f
	}
}

// about publishes the batch for a subject before something else goes there.
func (fs *frames) about(subject string) {
	if f := fs.open[subject]; f != nil {
		fs.publish(f)
	}
}

// all publishes all batches.
func (fs *frames) all() {
	for len(fs.order) > 0 {
		fs.publish(fs.order[0])
	}
}

// ready publishes the batches that do not wait, or all if the machine ends.
func (fs *frames) ready() {
	if len(fs.order) == 0 {
		return
	}
	wait := time.Duration(0)
	for i := 0; i < len(fs.order); {
		f := fs.order[i]
		full := len(f.works) >= int(f.form.Batch)
		if f.form.BatchWaitMs == 0 || full || fs.d.r.stopping.Err() != nil {
			fs.publish(f)
			continue
		}
		if ms := time.Duration(f.form.BatchWaitMs) * time.Millisecond; wait == 0 || ms < wait {
			wait = ms
		}
		i++
	}
	if wait > 0 && fs.timer == nil {
		fs.timer = time.AfterFunc(wait, fs.late)
	}
}

// late publishes the batches that have waited.
func (fs *frames) late() {
	fs.d.mu.Lock()
	defer fs.d.mu.Unlock()
	fs.timer = nil
	fs.all()
}
