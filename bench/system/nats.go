package system

import (
	"context"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go"
)

// protocol is everything in which systems behind NATS differ.
type protocol interface {
	SetUp(ctx context.Context) error
	TearDown(ctx context.Context) error
	Held(ctx context.Context) (Content, error)
	// Subject returns the publish subject.
	Subject() string
	// Refused returns the error in a reply to a message or to an ack, or nil.
	Refused(m *nats.Msg) error
	// Consume starts a consumer. handle runs on one goroutine per consumer.
	Consume(ctx context.Context, nc *nats.Conn, name string, credit int, handle Handler) (stop func(context.Context) error, err error)
	// Ack returns the payload of an ack.
	Ack() []byte
}

// nackLater is a nack with a delay of 100 ms, which fila and JetStream understand.
var nackLater = []byte(`-NAK {"delay":100000000}`)

// overNATS is a target behind NATS.
type overNATS struct {
	protocol
	name   Name
	batch  int // bounds the messages of a batch; 0: MaxBatch
	access *Access
	admin  *nats.Conn
	failed func(error) // gets asynchronous errors of connections
}

func (t *overNATS) Close() { t.admin.Close() }

func (t *overNATS) connect(name string) (*nats.Conn, error) {
	nc, err := t.access.connect(name)
	if err == nil {
		nc.SetErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { t.failed(err) })
	}
	return nc, err
}

// replies is a connection with an inbox whose last token is a number.
type replies struct {
	nc       *nats.Conn
	subjects []string // by number
}

// newReplies connects a producer. answered gets the number of each reply.
func (t *overNATS) newReplies(ctx context.Context, n int, answered func(number int, refused error)) (r replies, err error) {
	if r.nc, err = t.connect("producer"); err != nil {
		return r, err
	}
	inbox := r.nc.NewInbox()
	for number := range n {
		r.subjects = append(r.subjects, inbox+"."+strconv.Itoa(number))
	}
	if _, err = subscribe(r.nc, inbox+".*", "", func(m *nats.Msg) {
		number, err := strconv.Atoi(m.Subject[len(inbox)+1:])
		if err != nil || number < 0 || number >= n {
			t.failed(fmt.Errorf("an answer nobody asked for: subject %s", m.Subject))
			return
		}
		answered(number, t.Refused(m))
	}); err == nil {
		err = flush(ctx, r.nc)
	}
	if err != nil {
		r.nc.Close()
	}
	return r, err
}

func (r replies) Close() { r.nc.Close() }

func (t *overNATS) Producer(ctx context.Context, slots int, answered func(slot int, refused error)) (Producer, error) {
	switch {
	case t.name.hasFilaBatches():
		return t.newFilaBatcher(ctx, slots, answered)
	case t.name.isAtomic():
		return t.newBatcher(ctx, slots, answered)
	case t.name == JetStreamFast:
		return t.newFastProducer(ctx, slots, answered)
	}
	r, err := t.newReplies(ctx, slots, answered)
	return &natsProducer{r, nats.Msg{Subject: t.Subject()}}, err
}

// natsProducer publishes each message as a request, whose reply subject ends with the slot.
type natsProducer struct {
	replies
	m nats.Msg // reused; the client library copies it
}

func (p *natsProducer) Publish(slot int, m *Message) error {
	p.m.Header, p.m.Data, p.m.Reply = m.Header, m.Data, p.subjects[slot]
	return p.nc.PublishMsg(&p.m)
}

func (*natsProducer) Flush() error { return nil }

// natsConsumers is a connection of consumers.
type natsConsumers struct {
	t     *overNATS
	nc    *nats.Conn
	inbox string // for answers to acks; empty sends plain acks
	ack   []byte
}

func (t *overNATS) Consumers(acked func(refused error)) (Consumers, error) {
	if f, ok := t.protocol.(*fila); ok && t.name.hasFilaBatches() {
		return t.newFilaConsumers(f, acked)
	}
	nc, err := t.connect("consumer")
	if err != nil {
		return nil, err
	}
	c := &natsConsumers{t: t, nc: nc, ack: t.Ack()}
	if acked != nil {
		c.inbox = nc.NewInbox()
		if _, err = subscribe(nc, c.inbox, "", func(m *nats.Msg) { acked(t.Refused(m)) }); err != nil {
			nc.Close()
			return nil, err
		}
	}
	return c, nil
}

func (c *natsConsumers) Consume(ctx context.Context, name string, credit int, handle Handler) (func(context.Context) error, error) {
	return c.t.Consume(ctx, c.nc, name, credit, handle)
}

func (c *natsConsumers) Ack(to string) error {
	if c.inbox == "" {
		return c.nc.Publish(to, c.ack)
	}
	return c.nc.PublishRequest(to, c.inbox, c.ack)
}

func (c *natsConsumers) Nack(to string) error { return c.nc.Publish(to, nackLater) }

func (c *natsConsumers) Close() { c.nc.Close() }
