package system

import (
	"context"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/filaq/fila/client"
	"github.com/filaq/fila/wire"
)

// Target is a system with one queue, as a load sees it.
type Target interface {
	// SetUp creates the queue; TearDown deletes it with its messages.
	SetUp(ctx context.Context) error
	TearDown(ctx context.Context) error
	// Held returns the content of the queue.
	Held(ctx context.Context) (Content, error)
	// Producer connects a producer with a number of slots. answered gets the slot of each published
	// message when it is confirmed or refused; it may run on any goroutine.
	Producer(ctx context.Context, slots int, answered func(slot int, refused error)) (Producer, error)
	// Consumers connects consumers. With acked, acks are requests, and acked gets their outcomes.
	Consumers(acked func(refused error)) (Consumers, error)
	// Close ends what SetUp, TearDown and Held need.
	Close()
}

// Producer is the connection of a producer. One goroutine publishes.
type Producer interface {
	// Publish sends a message with a slot that no unanswered message has. It copies the message.
	Publish(slot int, m *Message) error
	// Flush sends what waits for a batch to be full. The producer publishes nothing afterwards.
	Flush() error
	Close()
}

// Consumers is the connection of one or more consumers.
type Consumers interface {
	// Consume starts a consumer with a credit. handle acks or nacks a delivery before it returns.
	// The returned function stops the consumer.
	Consume(ctx context.Context, name string, credit int, handle Handler) (stop func(context.Context) error, err error)
	// Ack acks the delivery that a handler got with to; Nack makes it come again after 100 ms. A
	// system whose client acks when the handler returns needs neither.
	Ack(to string) error
	Nack(to string) error
	Close()
}

// Message is a message to publish.
type Message struct {
	Header map[string][]string
	Data   []byte
}

// Content is the content of a queue.
type Content struct {
	Messages int64
	Bytes    int64 // of headers and payloads
}

// Handler gets a message's payload and where its ack goes.
type Handler func(data []byte, to string)

// Queue is the queue or stream of a target.
type Queue struct {
	Name     string               `json:"name"`
	Settings client.QueueSettings `json:"settings"`
	// Config is set before the start; "%s" in a key is the queue's name.
	Config map[string]string `json:"config,omitempty"`
	// Batch bounds the messages of a batch of systems that have batches; 0 is no bound.
	Batch int `json:"batch,omitempty"`
	// Unread says that there is no consumer.
	Unread bool `json:"-"`
}

// Open returns a target of a system behind NATS. failed gets asynchronous errors of connections.
func Open(name Name, access *Access, q *Queue, failed func(error)) (Target, error) {
	if name.is(kindUnknown, kindPeer) {
		behindNATS := namesOf(func(k kind) bool { return k != kindPeer })
		return nil, fmt.Errorf("system %q has no target here: allowed is one of %s", name, strings.Join(behindNATS, ", "))
	}
	admin, err := access.connect("admin")
	if err != nil {
		return nil, err
	}
	p, err := newProtocol(name, q, admin, access.Prefix)
	if err != nil {
		admin.Close()
		return nil, err
	}
	return &overNATS{p, name, q.Batch, access, admin, failed}, nil
}

// newProtocol returns the protocol of a system. Requests of the set-up use nc; fila's subjects
// begin with the prefix, by default the client's.
func newProtocol(name Name, q *Queue, nc *nats.Conn, prefix string) (protocol, error) {
	switch {
	case name.IsFila():
		if prefix == "" {
			prefix = client.DefaultPrefix
		}
		subjects, err := wire.NewSubjects(prefix)
		if err != nil {
			return nil, err
		}
		c, err := client.New(nc, client.WithPrefix(prefix), client.WithTimeout(requestTimeout))
		f := &fila{queue: q, subjects: subjects, client: c}
		if name == FilaMin {
			f.headers = wire.HeadersMin
		}
		return f, err
	case name.is(kindHops):
		return hops{q}, nil
	}
	js, err := jetstream.New(nc)
	copies := 1
	if name.is(kindReplicated) {
		copies = replicas
	}
	return &stream{q, js, copies, name}, err
}

// unanswered reports whether the server replied that there is no responder.
func unanswered(m *nats.Msg) bool {
	return len(m.Data) == 0 && m.Header.Get("Status") == "503"
}
