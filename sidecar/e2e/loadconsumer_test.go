package e2e

import (
	"cmp"
	bits "encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// worker is a consumer of the load.
type worker struct {
	l     *load
	nc    *nats.Conn
	queue string
	dlq   bool
	mu    struct {
		sync.Mutex
		rng *rand.Rand
	}
}

// consume subscribes once and registers again and again: a registration ends when fila meets no
// responder. Deliveries have up to batch messages; 0: one.
func (l *load) consume(nc *nats.Conn, queue, name string, batch int) {
	w := &worker{l: l, nc: nc, queue: queue, dlq: len(queue) > 4 && queue[len(queue)-4:] == ".dlq"}
	w.mu.rng = l.random()
	sub, err := nc.Subscribe("fila.deliver."+name+"."+queue, func(msg *nats.Msg) {
		d := delivery{Msg: msg, at: time.Now()}
		if batch > 0 {
			go w.handleBatch(d)
		} else {
			go w.handle(d)
		}
	})
	if err == nil {
		err = sub.SetPendingLimits(-1, -1)
	}
	if err != nil {
		l.t.Errorf("subscribe: %v", err)
		return
	}
	body := fmt.Appendf(nil, `{"consumer":%q,"max_in_flight":%d,"batch":%d}`, name, loadCredit, batch)
	for {
		p := l.await()
		if p == nil {
			return
		}
		// The subscription precedes the registration on the same connection.
		reply, err := l.request(nc, p, &nats.Msg{Subject: "fila.consume." + queue, Data: body})
		if err == nil && reply.Header.Get("Nats-Service-Error") != "" && reply.Header.Get("Nats-Service-Error-Code") != "503" {
			l.t.Errorf("registration refused: %s", reply.Data)
		}
		if !pause(l.ctx, 100*time.Millisecond) {
			return
		}
	}
}

func (w *worker) roll(n int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.rng.IntN(n)
}

// received records a delivery.
func (w *worker) received(d delivery) *seenLease {
	attempt, err := strconv.Atoi(d.Header.Get("Fila-Attempt"))
	deadline, err2 := time.Parse(time.RFC3339Nano, d.Header.Get("Fila-Deadline"))
	if err := errors.Join(err, err2); err != nil {
		w.l.t.Errorf("bad delivery headers: %v", err)
		return nil
	}
	return w.l.h.delivered(d, w.queue, attempt, deadline.UnixNano())
}

// inBatch separates the reply subject of a batch and the index of a message in the token of its lease.
const inBatch = "#"

// handleBatch answers the messages of a batch one by one, or all with one ack.
func (w *worker) handleBatch(d delivery) {
	all, err := unbatch(d)
	if err != nil {
		w.l.t.Errorf("delivery of a batch: %v", err)
		return
	}
	if len(all) > 1 {
		w.l.together.Add(int64(len(all)))
	}
	if !w.l.draining.Load() && w.roll(3) > 0 {
		for _, one := range all {
			go w.handle(one)
		}
		return
	}
	leases, answers := make([]*seenLease, len(all)), make([]*answer, len(all))
	for i, one := range all {
		if leases[i] = w.received(one); leases[i] == nil {
			return
		}
		answers[i] = w.l.h.answering(leases[i], "ack", 0, time.Now().UnixNano())
	}
	outcomes := func(int) outcome { return unknown }
	if p := w.l.await(); p != nil {
		outcomes = w.l.askBatch(w.nc, p, &nats.Msg{Subject: d.Reply})
	}
	for i, one := range all {
		w.l.h.settle(one.id(), answers[i], outcomes(i))
		w.l.keepStale(one.id(), leases[i])
	}
}

// unbatch returns the messages of a batch as deliveries of one message each.
func unbatch(d delivery) ([]delivery, error) {
	n, err := strconv.Atoi(d.Header.Get("Fila-Batch"))
	if err != nil {
		return nil, err
	}
	data := d.Data
	var all []delivery
	for i := range n {
		if len(data) < 36 {
			return nil, fmt.Errorf("message %d of %d: %d bytes", i, n, len(data))
		}
		lines, size := int(bits.BigEndian.Uint32(data)), int(bits.BigEndian.Uint32(data[4:]))
		id, attempt, deadline := data[8:24], bits.BigEndian.Uint32(data[24:]), bits.BigEndian.Uint64(data[28:])
		if data = data[36:]; lines+size > len(data) {
			return nil, fmt.Errorf("message %d of %d: %d bytes instead of %d", i, n, len(data), lines+size)
		}
		h := nats.Header{
			"Fila-Id":      {fmt.Sprintf("%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:])},
			"Fila-Attempt": {strconv.Itoa(int(attempt))}, "Fila-Deadline": {time.Unix(0, int64(deadline)).UTC().Format(time.RFC3339Nano)},
		}
		for line := range strings.SplitSeq(strings.TrimSuffix(string(data[:lines]), "\r\n"), "\r\n") {
			if name, value, ok := strings.Cut(line, ": "); ok {
				h[name] = append(h[name], value)
			}
		}
		all = append(all, delivery{Msg: &nats.Msg{Subject: d.Subject, Reply: d.Reply + inBatch + strconv.Itoa(i), Header: h, Data: data[lines : lines+size]}, at: d.at})
		data = data[lines+size:]
	}
	if len(data) > 0 {
		return nil, fmt.Errorf("%d bytes behind %d messages", len(data), n)
	}
	return all, nil
}

// askBatch sends an ack of a batch as a request, and returns the outcomes by index.
func (l *load) askBatch(nc *nats.Conn, p *phase, msg *nats.Msg) func(int) outcome {
	none := func(int) outcome { return unknown }
	reply, err := l.request(nc, p, msg)
	if err != nil {
		return none
	}
	if e := errorOf(l.t, reply); e != nil {
		if e.Code != 500 && e.Code != 503 {
			l.t.Errorf("an ack of a batch was refused: %v", e)
		}
		return none
	}
	var out struct {
		Refused []struct{ Index, Code int }
	}
	if !decode(l.t, reply.Data, &out) {
		return none
	}
	all := map[int]outcome{}
	for _, no := range out.Refused {
		switch all[no.Index] = refused; no.Code {
		case 500, 503:
			all[no.Index] = unknown
		case 409:
		default:
			l.t.Errorf("an ack in a batch was refused, not as a lost lease: %s", reply.Data)
		}
	}
	return func(index int) outcome {
		if o, ok := all[index]; ok {
			return o
		}
		return accepted
	}
}

// handle answers a delivery as consumers do: mostly right.
func (w *worker) handle(d delivery) {
	lease := w.received(d)
	if lease == nil {
		return
	}
	id := d.id()
	if w.l.draining.Load() {
		w.answer(id, lease, "ack", "", 0)
		return
	}
	pause(w.l.ctx, time.Duration(w.roll(4))*time.Millisecond)
	switch n := w.roll(100); {
	case n < 68:
		w.answer(id, lease, "ack", "", 0)
	case n < 76: // without confirmation: its outcome stays unknown
		a := w.l.h.answering(lease, "ack", 0, time.Now().UnixNano())
		_ = w.nc.PublishMsg(ackOf(lease, ""))
		w.l.h.settle(id, a, unknown)
		return
	case n < 85:
		w.answer(id, lease, "nack", "-NAK", 0)
	case n < 89:
		delay := time.Duration(50+w.roll(250)) * time.Millisecond
		w.answer(id, lease, "nack", "-NAK "+delay.String(), int64(delay))
	case n < 92:
		if w.dlq { // term deletes in a DLQ
			w.answer(id, lease, "ack", "+TERM", 0)
		} else {
			w.answer(id, lease, "term", "+TERM no use", 0)
		}
	case n < 96:
		w.request(lease, "+WPI")
		w.answer(id, lease, "ack", "+ACK", 0)
	}
	// The others never answer: the lease ends.
	w.l.keepStale(id, lease)
}

// answer sends an answer as a request and records the outcome.
func (w *worker) answer(id string, lease *seenLease, kind, payload string, delay int64) {
	a := w.l.h.answering(lease, kind, delay, time.Now().UnixNano())
	w.l.h.settle(id, a, w.request(lease, payload))
}

func (w *worker) request(lease *seenLease, payload string) outcome {
	p := w.l.await()
	if p == nil {
		return unknown
	}
	return w.l.ask(w.nc, p, lease, payload)
}

// ask sends an ack payload and waits for the answer.
func (l *load) ask(nc *nats.Conn, p *phase, lease *seenLease, payload string) outcome {
	msg := ackOf(lease, payload)
	if _, index, ok := strings.Cut(lease.token, inBatch); ok {
		i, err := strconv.Atoi(index)
		if err != nil {
			l.t.Errorf("index of a message of a batch: %v", err)
		}
		return l.askBatch(nc, p, msg)(i)
	}
	reply, err := l.request(nc, p, msg)
	if err != nil {
		return unknown
	}
	e := errorOf(l.t, reply)
	switch {
	case e == nil:
		return accepted
	case e.Code == 500 || e.Code == 503:
		return unknown
	case e.Code != 409:
		l.t.Errorf("an answer was refused with %v, not as a lost lease", e)
	}
	return refused
}

// ackOf returns an ack payload as a message.
func ackOf(lease *seenLease, payload string) *nats.Msg {
	subject, index, ok := strings.Cut(lease.token, inBatch)
	if ok {
		payload = index + " " + cmp.Or(payload, "+ACK")
	}
	return &nats.Msg{Subject: subject, Data: []byte(payload)}
}

// keepStale keeps a lease to try its token again later.
func (l *load) keepStale(id string, lease *seenLease) {
	l.stale.Lock()
	defer l.stale.Unlock()
	if len(l.stale.bag) < 2000 {
		l.stale.bag = append(l.stale.bag, staleLease{id, lease})
	}
}

// answerStale acks with mostly stale tokens, some from before the last kill. The history knows
// which ones fila may accept.
func (l *load) answerStale() {
	rng := l.random()
	for {
		p := l.await()
		if p == nil {
			return
		}
		var s staleLease
		l.stale.Lock()
		if n := len(l.stale.bag); n > 0 {
			i := rng.IntN(n)
			s = l.stale.bag[i]
			l.stale.bag[i] = l.stale.bag[n-1]
			l.stale.bag = l.stale.bag[:n-1]
		}
		l.stale.Unlock()
		if s.lease != nil {
			a := l.h.answering(s.lease, "ack", 0, time.Now().UnixNano())
			l.h.settle(s.id, a, l.ask(l.conns[1], p, s.lease, ""))
		}
		if !pause(l.ctx, 2*time.Millisecond) {
			return
		}
	}
}

func decode(t testing.TB, data []byte, into any) bool {
	if err := json.Unmarshal(data, into); err != nil {
		t.Errorf("not JSON: %q", data)
		return false
	}
	return true
}
