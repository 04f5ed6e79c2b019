package system

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/filaq/fila/client"
	"github.com/filaq/fila/wire"
)

// fila uses fila's protocol without a client library.
type fila struct {
	queue    *Queue
	subjects wire.Subjects
	client   *client.Client
	headers  string // of deliveries
}

func (f *fila) SetUp(ctx context.Context) error {
	if _, err := f.client.QueueCreate(ctx, f.queue.Name, f.queue.Settings); err != nil {
		return fmt.Errorf("create the queue: %w", err)
	}
	for key, value := range f.queue.Config {
		if _, err := f.client.ConfigSet(ctx, f.configKey(key), value, nil); err != nil {
			return fmt.Errorf("config set %s: %w", f.configKey(key), err)
		}
	}
	return nil
}

func (f *fila) configKey(key string) string { return strings.ReplaceAll(key, "%s", f.queue.Name) }

func (f *fila) TearDown(ctx context.Context) error {
	_, err := f.client.QueueDelete(ctx, f.queue.Name, true)
	for key := range f.queue.Config {
		_, configErr := f.client.ConfigDelete(ctx, f.configKey(key))
		err = errors.Join(err, configErr)
	}
	return err
}

func (f *fila) Held(ctx context.Context) (Content, error) {
	info, err := f.client.QueueInspect(ctx, f.queue.Name, 0)
	return Content{info.Pending + info.Delayed + info.InFlight + info.Moving, info.Bytes}, err
}

func (f *fila) Subject() string { return f.subjects.Enqueue(f.queue.Name) }

func (*fila) Ack() []byte { return nil }

func (*fila) Refused(m *nats.Msg) error {
	if unanswered(m) {
		return client.ErrNoFila
	}
	if refused := wire.ParseError(m.Header, m.Data); refused != nil {
		return refused
	}
	if bytes.Contains(m.Data, []byte(`"refused":`)) { // of a batch, which counts as refused then
		return fmt.Errorf("refused in a batch: %s", m.Data)
	}
	return nil
}

func (f *fila) Consume(ctx context.Context, nc *nats.Conn, name string, credit int, handle Handler) (func(context.Context) error, error) {
	r := wire.ConsumeRequest{Consumer: name, MaxInFlight: credit, Headers: f.headers}
	return f.consume(ctx, nc, r, func(m *nats.Msg) { handle(m.Data, m.Reply) })
}

// consume registers a consumer and passes its deliveries to deliver.
func (f *fila) consume(ctx context.Context, nc *nats.Conn, r wire.ConsumeRequest, deliver nats.MsgHandler) (func(context.Context) error, error) {
	sub, err := subscribe(nc, f.subjects.Deliver(r.Consumer, f.queue.Name), "", deliver)
	if err != nil {
		return nil, err
	}
	if err := flush(ctx, nc); err != nil {
		return nil, err
	}
	if err := f.register(ctx, nc, r); err != nil {
		return nil, fmt.Errorf("register consumer %s: %w", r.Consumer, err)
	}
	return func(ctx context.Context) error {
		return errors.Join(f.register(ctx, nc, wire.ConsumeRequest{Consumer: r.Consumer, Leave: true}), sub.Unsubscribe())
	}, nil
}

func (f *fila) register(ctx context.Context, nc *nats.Conn, r wire.ConsumeRequest) error {
	body, err := json.Marshal(r)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	m, err := nc.RequestWithContext(ctx, f.subjects.Consume(f.queue.Name), body)
	if err != nil {
		return err
	}
	return f.Refused(m)
}
