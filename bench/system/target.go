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
	// Subject returns the publish subject.
	Subject() string
	// Refused returns the error in a reply to a message or to an ack, or nil.
	Refused(m *nats.Msg) error
	// Consume starts a consumer with a credit. handle runs on one goroutine per consumer. The
	// returned function stops it.
	Consume(ctx context.Context, nc *nats.Conn, name string, credit int, handle Handler) (stop func(context.Context) error, err error)
	// Ack returns the payload of an ack.
	Ack() []byte
}

// Content is the content of a queue.
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
	// Unread says that there is no consumer.
	Unread bool `json:"-"`
}

// NewTarget returns a target of a system. Requests of the set-up use nc; fila's subjects begin
// with the prefix, by default the client's.
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

// unanswered reports whether the server replied that there is no responder.
func unanswered(m *nats.Msg) bool {
	return len(m.Data) == 0 && m.Header.Get("Status") == "503"
}
