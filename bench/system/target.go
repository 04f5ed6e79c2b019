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

// Target is a system with a queue, as a load sees it.
type Target interface {
	// SetUp makes the queue; TearDown removes it with its messages.
	SetUp(ctx context.Context) error
	TearDown(ctx context.Context) error
	// Held is what the queue holds.
	Held(ctx context.Context) (Content, error)
	// Subject is where to publish.
	Subject() string
	// Refused returns why an answer to a message or to an ack is no confirmation,
	// or nil.
	Refused(m *nats.Msg) error
	// Consume starts a consumer that holds up to credit messages. handle runs on
	// one goroutine per consumer. The returned function ends it.
	Consume(ctx context.Context, nc *nats.Conn, name string, credit int, handle Handler) (stop func(context.Context) error, err error)
	// Ack is the payload of an ack.
	Ack() []byte
}

// Content is what is in a queue.
type Content struct {
	Messages int64
	Bytes    int64 // of headers and payloads
}

// Handler gets a message's payload and where to send its ack.
type Handler func(data []byte, reply string)

// Queue is the queue or stream of a target.
type Queue struct {
	Name     string               `json:"name"`
	Settings client.QueueSettings `json:"settings"`
	// Config is set before the start; "%s" in a key is the queue's name.
	Config map[string]string `json:"config,omitempty"`
	// Unread: nobody consumes.
	Unread bool `json:"-"`
}

// NewTarget returns a queue of a system. Requests of the set-up use nc; fila's
// subjects begin with the prefix, by default with the client's.
func NewTarget(name Name, q *Queue, nc *nats.Conn, prefix string) (Target, error) {
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
		return &fila{q, subjects, c}, err
	case name.isHops():
		return hops{q}, nil
	case name.isJetStream():
		js, err := jetstream.New(nc)
		copies := 1
		if name.isReplicated() {
			copies = replicas
		}
		return &stream{q, js, copies}, err
	}
	return nil, fmt.Errorf("system %q is not known: allowed is one of %s", name, strings.Join(Names(), ", "))
}

// unanswered reports whether the server said that nobody listens.
func unanswered(m *nats.Msg) bool {
	return len(m.Data) == 0 && m.Header.Get("Status") == "503"
}
