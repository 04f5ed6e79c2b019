package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/filaq/fila/client"
	"github.com/filaq/fila/wire"
)

// requestTimeout bounds each request of the set-up.
const requestTimeout = 30 * time.Second

// target is a system as a load sees it: everything in which one differs from
// the others.
type target interface {
	// setUp makes the queue; tearDown removes it with its messages.
	setUp(ctx context.Context) error
	tearDown(ctx context.Context) error
	// held is what the queue holds.
	held(ctx context.Context) (content, error)
	// subject is where to publish.
	subject() string
	// confirmed returns why a confirmation is none, or nil.
	confirmed(m *nats.Msg) error
	// consume starts a consumer that holds up to credit messages. handle runs on
	// one goroutine per consumer. The returned function ends it.
	consume(ctx context.Context, nc *nats.Conn, name string, credit int, handle handler) (stop func(context.Context) error, err error)
	// ack is the payload of an ack; refusedAck returns why an answer to one is a
	// refusal, or nil.
	ack() []byte
	refusedAck(m *nats.Msg) error
}

// content is what is in a queue.
type content struct {
	messages int64
	bytes    int64 // of headers and payloads
}

// handler gets a message's payload and where to send its ack.
type handler func(data []byte, reply string)

// newTarget returns the target of a load; admin is for requests of the set-up.
func newTarget(s *loadSpec, admin *nats.Conn) (target, error) {
	switch {
	case s.System.isFila():
		prefix := s.Access.Prefix
		if prefix == "" {
			prefix = client.DefaultPrefix
		}
		subjects, err := wire.NewSubjects(prefix)
		if err != nil {
			return nil, err
		}
		c, err := client.New(admin, client.WithPrefix(prefix), client.WithTimeout(requestTimeout))
		return &filaTarget{spec: s, subjects: subjects, client: c}, err
	case s.System.isHops():
		return hopsTarget{confirmOnly: s.Phases[0].Mode != modeLife}, nil
	case s.System == sysJS || s.System == sysJSSynced:
		js, err := jetstream.New(admin)
		return &jsTarget{spec: s, js: js}, err
	}
	return nil, fmt.Errorf("system %q is not known: allowed is one of %s", s.System, strings.Join(systemNames, ", "))
}

// unanswered reports whether the server said that nobody listens.
func unanswered(m *nats.Msg) bool {
	return len(m.Data) == 0 && m.Header.Get("Status") == "503"
}

// filaTarget speaks fila's protocol without a client library, as any NATS
// client can.
type filaTarget struct {
	spec     *loadSpec
	subjects wire.Subjects
	client   *client.Client
}

func (f *filaTarget) setUp(ctx context.Context) error {
	settings := f.spec.Settings
	settings.Name = f.spec.Queue
	if _, err := f.client.QueueCreate(ctx, settings); err != nil {
		return fmt.Errorf("create the queue: %w", err)
	}
	for key, value := range f.spec.Config {
		if _, err := f.client.ConfigSet(ctx, f.configKey(key), value, nil); err != nil {
			return fmt.Errorf("config set %s: %w", f.configKey(key), err)
		}
	}
	return nil
}

func (f *filaTarget) configKey(key string) string {
	return strings.ReplaceAll(key, "%s", f.spec.Queue)
}

func (f *filaTarget) tearDown(ctx context.Context) error {
	_, err := f.client.QueueDelete(ctx, f.spec.Queue, true)
	for key := range f.spec.Config {
		_, configErr := f.client.ConfigDelete(ctx, f.configKey(key))
		err = errors.Join(err, configErr)
	}
	return err
}

func (f *filaTarget) held(ctx context.Context) (content, error) {
	info, err := f.client.QueueInspect(ctx, f.spec.Queue, 0)
	return content{info.Pending + info.Delayed + info.InFlight, info.Bytes}, err
}

func (f *filaTarget) subject() string { return f.subjects.Enqueue(f.spec.Queue) }

func (f *filaTarget) confirmed(m *nats.Msg) error {
	if unanswered(m) {
		return client.ErrNoFila
	}
	if refused := wire.ParseError(m.Header, m.Data); refused != nil {
		return refused
	}
	return nil
}

func (f *filaTarget) consume(ctx context.Context, nc *nats.Conn, name string, credit int, handle handler) (func(context.Context) error, error) {
	sub, err := nc.Subscribe(f.subjects.Deliver(name, f.spec.Queue), func(m *nats.Msg) { handle(m.Data, m.Reply) })
	if err != nil {
		return nil, err
	}
	if err := sub.SetPendingLimits(-1, -1); err != nil {
		return nil, err
	}
	if err := flush(ctx, nc); err != nil {
		return nil, err
	}
	if err := f.register(ctx, nc, wire.ConsumeRequest{Consumer: name, MaxInFlight: credit}); err != nil {
		return nil, fmt.Errorf("register consumer %s: %w", name, err)
	}
	return func(ctx context.Context) error {
		return errors.Join(f.register(ctx, nc, wire.ConsumeRequest{Consumer: name, Leave: true}), sub.Unsubscribe())
	}, nil
}

func (f *filaTarget) register(ctx context.Context, nc *nats.Conn, r wire.ConsumeRequest) error {
	body, err := json.Marshal(r)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	m, err := nc.RequestWithContext(ctx, f.subjects.Consume(f.spec.Queue), body)
	if err != nil {
		return err
	}
	return f.confirmed(m)
}

func (f *filaTarget) ack() []byte                  { return nil }
func (f *filaTarget) refusedAck(m *nats.Msg) error { return f.confirmed(m) }

// hopsTarget is the middle of node.go.
type hopsTarget struct {
	confirmOnly bool // nobody consumes
}

func (hopsTarget) setUp(context.Context) error    { return nil }
func (hopsTarget) tearDown(context.Context) error { return nil }
func (hopsTarget) ack() []byte                    { return nil }

func (hopsTarget) held(context.Context) (content, error) { return content{}, nil }

func (h hopsTarget) subject() string {
	if h.confirmOnly {
		return hopsConfirm
	}
	return hopsEnqueue
}

func (hopsTarget) confirmed(m *nats.Msg) error {
	if unanswered(m) {
		return nats.ErrNoResponders
	}
	return nil
}

func (h hopsTarget) refusedAck(m *nats.Msg) error { return h.confirmed(m) }

func (hopsTarget) consume(ctx context.Context, nc *nats.Conn, _ string, _ int, handle handler) (func(context.Context) error, error) {
	sub, err := nc.QueueSubscribe(hopsDeliver, "consumers", func(m *nats.Msg) { handle(m.Data, m.Reply) })
	if err != nil {
		return nil, err
	}
	if err := sub.SetPendingLimits(-1, -1); err != nil {
		return nil, err
	}
	return func(context.Context) error { return sub.Unsubscribe() }, flush(ctx, nc)
}

// jsTarget is a WorkQueue stream with one durable pull consumer, which all
// consumers share. The stream keeps what fila keeps: everything until its ack.
type jsTarget struct {
	spec *loadSpec
	js   jetstream.JetStream
}

// jsAckWait is fila's default visibility timeout.
const jsAckWait = wire.DefaultVisibilityTimeoutMs * time.Millisecond

func (j *jsTarget) setUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	stream, err := j.js.CreateStream(ctx, jetstream.StreamConfig{
		Name: j.spec.Queue, Subjects: []string{j.subject()},
		Retention: jetstream.WorkQueuePolicy, Storage: jetstream.FileStorage,
	})
	if err != nil {
		return fmt.Errorf("create the stream: %w", err)
	}
	if _, err = stream.CreateConsumer(ctx, jetstream.ConsumerConfig{
		Durable: "workers", AckPolicy: jetstream.AckExplicitPolicy, AckWait: jsAckWait, MaxAckPending: -1,
	}); err != nil {
		return fmt.Errorf("create the consumer: %w", err)
	}
	return nil
}

func (j *jsTarget) tearDown(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return j.js.DeleteStream(ctx, j.spec.Queue)
}

func (j *jsTarget) held(ctx context.Context) (content, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	stream, err := j.js.Stream(ctx, j.spec.Queue)
	if err != nil {
		return content{}, err
	}
	state := stream.CachedInfo().State
	return content{int64(state.Msgs), int64(state.Bytes)}, nil
}

func (j *jsTarget) subject() string { return "jobs." + j.spec.Queue }

func (j *jsTarget) confirmed(m *nats.Msg) error {
	switch {
	case unanswered(m):
		return nats.ErrNoResponders
	case bytes.HasPrefix(m.Data, []byte(`{"error"`)):
		return fmt.Errorf("jetstream: %s", m.Data)
	}
	return nil
}

func (j *jsTarget) consume(ctx context.Context, nc *nats.Conn, _ string, credit int, handle handler) (func(context.Context) error, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	consumer, err := js.Consumer(ctx, j.spec.Queue, "workers")
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

func (j *jsTarget) ack() []byte { return []byte("+ACK") }

func (j *jsTarget) refusedAck(m *nats.Msg) error {
	if unanswered(m) {
		return nats.ErrNoResponders
	}
	return nil
}

// flush waits until the server has taken what was sent on the connection.
func flush(ctx context.Context, nc *nats.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return nc.FlushWithContext(ctx)
}
