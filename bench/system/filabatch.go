package system

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/filaq/fila/wire"
)

// batchBytes bounds the messages of a batch together, below the max_payload of NATS.
const batchBytes = 512 << 10

// filaBatcher publishes messages in batches, which are not atomic.
type filaBatcher struct {
	*batches
	m      nats.Msg
	frames []byte
}

func (t *overNATS) newFilaBatcher(ctx context.Context, slots int, answered func(slot int, refused error)) (Producer, error) {
	all, err := t.newBatches(ctx, slots, answered)
	return &filaBatcher{batches: all, m: nats.Msg{Subject: t.Subject(), Header: nats.Header{wire.HeaderBatch: {""}}}}, err
}

func (b *filaBatcher) Publish(slot int, m *Message) error {
	if len(b.frames) > 0 && len(b.frames)+len(m.Data) > batchBytes {
		if err := b.Flush(); err != nil {
			return err
		}
	}
	b.frames = wire.AppendBatch(b.frames, m.Header, m.Data)
	b.open = append(b.open, slot)
	if len(b.open) < b.size {
		return nil
	}
	return b.Flush()
}

func (b *filaBatcher) Flush() error {
	if len(b.open) == 0 {
		return nil
	}
	b.m.Header[wire.HeaderBatch][0] = strconv.Itoa(len(b.open))
	b.m.Data, b.m.Reply = b.frames, b.endBatch()
	b.frames = b.frames[:0]
	return b.nc.PublishMsg(&b.m)
}

// filaConsumers is a connection of consumers that get batches, and ack each batch as a whole
// when its messages are handled.
type filaConsumers struct {
	*natsConsumers
	f *fila
}

func (t *overNATS) newFilaConsumers(f *fila, acked func(refused error)) (Consumers, error) {
	nc, err := t.connect("consumer")
	if err != nil {
		return nil, err
	}
	c := &filaConsumers{&natsConsumers{t: t, nc: nc}, f}
	if acked != nil {
		c.inbox = nc.NewInbox() + "."
		if _, err = subscribe(nc, c.inbox+"*", "", func(m *nats.Msg) {
			n, _ := strconv.Atoi(strings.TrimPrefix(m.Subject, c.inbox)) // of subjects that deliver made
			refused := t.Refused(m)
			for range n {
				acked(refused)
			}
		}); err != nil {
			nc.Close()
			return nil, err
		}
	}
	return c, nil
}

func (c *filaConsumers) Consume(ctx context.Context, name string, credit int, handle Handler) (func(context.Context) error, error) {
	r := wire.ConsumeRequest{Consumer: name, MaxInFlight: credit, Headers: c.f.headers, Batch: c.t.batchSize(credit)}
	return c.f.consume(ctx, c.nc, r, func(m *nats.Msg) { c.deliver(m, handle) })
}

// deliver has the messages of a delivery handled, and acks them.
func (c *filaConsumers) deliver(m *nats.Msg, handle Handler) {
	n, err := strconv.Atoi(m.Header.Get(wire.HeaderBatch))
	if err != nil {
		n = 1
		handle(m.Data, "")
	} else {
		parts, bad := wire.ParseDelivered(m.Data, n)
		if bad != nil {
			c.t.failed(fmt.Errorf("delivery: %w", bad))
			return
		}
		for i := range parts {
			handle(parts[i].Data, "")
		}
	}
	if c.inbox == "" {
		err = c.nc.Publish(m.Reply, nil)
	} else {
		err = c.nc.PublishRequest(m.Reply, c.inbox+strconv.Itoa(n), nil)
	}
	if err != nil {
		c.t.failed(fmt.Errorf("ack: %w", err))
	}
}

// Ack does nothing: deliver acks.
func (*filaConsumers) Ack(string) error { return nil }

// Nack reports that no message of this system is nacked.
func (*filaConsumers) Nack(string) error {
	return errors.New("systems with batches of fila do not nack")
}
