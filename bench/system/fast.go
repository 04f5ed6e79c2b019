package system

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go"
)

// Operations of a fast batch of JetStream, in reply subjects.
const (
	fastStart      = ".0.$FI"
	fastAppend     = ".1.$FI"
	fastEnd        = ".3.$FI" // the message that ends the batch is not part of it
	fastWithoutGap = "fail"   // a gap ends the batch
)

// fastAnswer is what JetStream says about a fast batch: in between that it has stored all
// messages up to Seq, and at the end that it has stored Count.
type fastAnswer struct {
	Type  string          `json:"type"`
	Seq   uint64          `json:"seq"` // with Count, in the stream
	Count uint64          `json:"count"`
	Error json.RawMessage `json:"error"`
}

// fastProducer publishes one fast batch without an end. Each answer confirms several messages.
type fastProducer struct {
	nc      *nats.Conn
	m       nats.Msg
	replies string   // the part of reply subjects before the message's number
	n       uint64   // messages so far
	sent    chan int // slots of unconfirmed messages, in order
}

func (t *overNATS) newFastProducer(ctx context.Context, slots int, answered func(slot int, refused error)) (Producer, error) {
	nc, err := t.connect("producer")
	if err != nil {
		return nil, err
	}
	inbox := nc.NewInbox()
	atMost := max(slots/batchesInFlight, 1) // messages that an answer confirms
	p := &fastProducer{
		nc: nc, m: nats.Msg{Subject: t.Subject()}, sent: make(chan int, slots),
		replies: fmt.Sprintf("%s.%s.%d.%s.", inbox, rand.Text(), atMost, fastWithoutGap),
	}
	confirmed := uint64(0)
	if _, err = subscribe(nc, inbox+".>", "", func(m *nats.Msg) {
		upTo, refused := t.fastAnswered(m)
		if refused != nil {
			upTo = confirmed + uint64(len(p.sent))
		}
		for ; confirmed < upTo; confirmed++ {
			answered(<-p.sent, refused)
		}
	}); err == nil {
		err = flush(ctx, nc)
	}
	if err != nil {
		nc.Close()
	}
	return p, err
}

// fastAnswered returns up to which message a batch is stored, or why it ended.
func (t *overNATS) fastAnswered(m *nats.Msg) (upTo uint64, refused error) {
	if refused = t.Refused(m); refused != nil {
		return 0, refused
	}
	var a fastAnswer
	if err := json.Unmarshal(m.Data, &a); err != nil {
		return 0, fmt.Errorf("an answer to a fast batch: %w", err)
	}
	switch {
	case a.Error != nil:
		return 0, fmt.Errorf("jetstream: %s", a.Error)
	case a.Type == "gap":
		return 0, errors.New("jetstream: messages of a fast batch were lost")
	}
	return cmp.Or(a.Count, a.Seq), nil
}

func (p *fastProducer) Publish(slot int, m *Message) error {
	p.sent <- slot
	p.m.Header, p.m.Data = m.Header, m.Data
	op := fastAppend
	if p.n == 0 {
		op = fastStart
	}
	return p.send(op)
}

func (p *fastProducer) Flush() error {
	if p.n == 0 {
		return nil
	}
	p.m.Header, p.m.Data = nil, nil
	return p.send(fastEnd)
}

func (p *fastProducer) send(op string) error {
	p.n++
	p.m.Reply = p.replies + strconv.FormatUint(p.n, 10) + op
	return p.nc.PublishMsg(&p.m)
}

func (p *fastProducer) Close() { p.nc.Close() }
