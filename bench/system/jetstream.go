package system

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/filaq/fila/wire"
)

// stream is a WorkQueue stream with one durable pull consumer that all consumers share. Like
// fila, it keeps messages until their ack.
type stream struct {
	queue    *Queue
	js       jetstream.JetStream
	replicas int
	name     Name
}

const (
	durable = "workers"
	// ackWait is fila's default visibility timeout.
	ackWait = wire.DefaultVisibilityTimeoutMs * time.Millisecond
)

func (s *stream) SetUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	created, err := s.js.CreateStream(ctx, jetstream.StreamConfig{
		Name: s.queue.Name, Subjects: []string{s.Subject()},
		Retention: jetstream.WorkQueuePolicy, Storage: jetstream.FileStorage, Replicas: s.replicas,
		AllowAtomicPublish: s.name.isAtomic(), AllowBatchPublish: s.name == JetStreamFast,
	})
	if err != nil {
		return fmt.Errorf("create the stream: %w", err)
	}
	if _, err = created.CreateConsumer(ctx, jetstream.ConsumerConfig{
		Durable: durable, AckPolicy: jetstream.AckExplicitPolicy, AckWait: ackWait, MaxAckPending: -1,
	}); err != nil {
		return fmt.Errorf("create the consumer: %w", err)
	}
	return nil
}

func (s *stream) TearDown(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return s.js.DeleteStream(ctx, s.queue.Name)
}

func (s *stream) Held(ctx context.Context) (Content, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	found, err := s.js.Stream(ctx, s.queue.Name)
	if err != nil {
		return Content{}, err
	}
	state := found.CachedInfo().State
	return Content{int64(state.Msgs), int64(state.Bytes)}, nil
}

func (s *stream) Subject() string { return "jobs." + s.queue.Name }

func (*stream) Ack() []byte { return []byte("+ACK") }

func (*stream) Refused(m *nats.Msg) error {
	switch {
	case unanswered(m):
		return nats.ErrNoResponders
	case bytes.HasPrefix(m.Data, []byte(`{"error"`)):
		return fmt.Errorf("jetstream: %s", m.Data)
	}
	return nil
}

func (s *stream) Consume(ctx context.Context, nc *nats.Conn, _ string, credit int, handle Handler) (func(context.Context) error, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	consumer, err := js.Consumer(ctx, s.queue.Name, durable)
	if err != nil {
		return nil, fmt.Errorf("jetstream consumer: %w", err)
	}
	consuming, err := consumer.Consume(func(m jetstream.Msg) { handle(m.Data(), m.Reply()) }, jetstream.PullMaxMessages(credit))
	if err != nil {
		return nil, fmt.Errorf("jetstream consume: %w", err)
	}
	return func(ctx context.Context) error {
		consuming.Drain()
		select {
		case <-consuming.Closed():
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}, nil
}
