package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
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
// responder.
func (l *load) consume(nc *nats.Conn, queue, name string) {
	w := &worker{l: l, nc: nc, queue: queue, dlq: len(queue) > 4 && queue[len(queue)-4:] == ".dlq"}
	w.mu.rng = l.random()
	sub, err := nc.Subscribe("fila.deliver."+name+"."+queue, func(msg *nats.Msg) {
		go w.handle(delivery{Msg: msg, at: time.Now()})
	})
	if err == nil {
		err = sub.SetPendingLimits(-1, -1)
	}
	if err != nil {
		l.t.Errorf("subscribe: %v", err)
		return
	}
	body := fmt.Appendf(nil, `{"consumer":%q,"max_in_flight":%d}`, name, loadCredit)
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

// handle answers a delivery as consumers do: mostly right.
func (w *worker) handle(d delivery) {
	attempt, err := strconv.Atoi(d.Header.Get("Fila-Attempt"))
	deadline, err2 := time.Parse(time.RFC3339Nano, d.Header.Get("Fila-Deadline"))
	if err := errors.Join(err, err2); err != nil {
		w.l.t.Errorf("bad delivery headers: %v", err)
		return
	}
	lease := w.l.h.delivered(d, w.queue, attempt, deadline.UnixNano())
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
		_ = w.nc.Publish(lease.token, nil)
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
	reply, err := l.request(nc, p, &nats.Msg{Subject: lease.token, Data: []byte(payload)})
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
