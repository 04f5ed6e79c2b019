package queuetest

import (
	"fmt"

	"github.com/filaq/fila/sidecar/queue"
)

func (s *Sim) consume() {
	ttl := pick(s, []int64{0, 0, 500e6, 5e9})
	s.register(s.anyNode(), s.anySide(), pick(s, []string{"w1", "w2"}), 1+s.rnd.IntN(5), ttl)
}

func (s *Sim) register(n *node, side queue.Role, name string, credit int, ttl int64) {
	subject := "deliver." + name
	delete(s.vanished, fmt.Sprint(n.Name, side, subject))
	c := queue.Register{Consumer: name, Subject: subject, MaxInFlight: credit, TTL: ttl, Form: queue.DeliveryForm{MinHeaders: credit%2 == 0, Batch: uint16(credit % 3)}}
	if !s.chance(4) {
		c.Confirm.Subject, c.Answer = s.ask(ask{kind: askData, node: n, data: "hello"}), []byte("hello")
	}
	n.tell(side, c, func() {
		s.arrivals++
		c := &client{name: name, limit: credit, form: c.Form, reg: s.arrivals}
		if ttl > 0 {
			c.expires = s.Now + ttl
		}
		if n.sides[side].clients[name] == nil {
			n.want.notes = append(n.want.notes, fmt.Sprint("joined ", side, " ", name, " ", credit))
		}
		n.sides[side].clients[name] = c
	})
}

func (s *Sim) leave() {
	n, side, name := s.anyNode(), s.anySide(), pick(s, []string{"w1", "w2"})
	q := ask{kind: askData, node: n}
	reply := s.ask(q)
	n.tell(side, queue.Leave{Consumer: name, Confirm: queue.Confirmation{Subject: reply}, Left: []byte("left"), NotThere: []byte("not there")}, func() {
		answer := "not there"
		if n.sides[side].clients[name] != nil {
			answer = "left"
			delete(n.sides[side].clients, name)
		}
		s.asks[reply].data = answer
	})
}

func (s *Sim) fetch() {
	n, side := s.anyNode(), s.anySide()
	s.inboxes++
	f := queue.Fetch{
		Inbox: fmt.Sprint("_INBOX.", s.inboxes), Batch: 1 + s.rnd.IntN(5), Expires: pick(s, []int64{0, 200e6, 5e9}), Form: queue.DeliveryForm{MinHeaders: s.inboxes%2 == 0},
	}
	n.tell(side, f, func() {
		s.arrivals++
		c := &client{name: f.Inbox, fetch: true, limit: f.Batch, form: f.Form, reg: s.arrivals, noWait: f.Expires == 0}
		if f.Expires > 0 {
			c.expires = s.Now + f.Expires
		}
		n.sides[side].clients[f.Inbox] = c
	})
}

// vanish removes a consumer without a Leave: the server answers that nobody receives
// its deliveries.
func (s *Sim) vanish() {
	n, side := s.anyNode(), s.anySide()
	clients := sortedClients(n.sides[side].clients)
	if len(clients) == 0 {
		return
	}
	c := pick(s, clients)
	subject := c.name
	if !c.fetch {
		subject = "deliver." + c.name
	}
	s.vanished[fmt.Sprint(n.Name, side, subject)] = true
}

// unreachable handles a delivery that nobody received.
func (n *node) unreachable(side queue.Role, f *flight) {
	c := n.sides[side].clients[f.consumer]
	switch {
	case c == nil || c.reg != f.reg:
	case c.fetch:
		delete(n.sides[side].clients, c.name)
	case !c.restored || n.Now >= n.grace:
		n.lose(side, c, "no responders")
	case c.away == 0:
		c.away = n.Now + 250e6
	}
}
