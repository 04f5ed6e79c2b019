package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/filaq/fila/bench/system"
)

// startRabbitMQ starts a node with its own port mapper. The script of Debian's path works only
// for two users, the one behind it for any.
func startRabbitMQ(s *server, _ bool) (string, error) {
	node, err := s.command([]string{"/usr/lib/rabbitmq/bin/rabbitmq-server", "rabbitmq-server"})
	if err != nil {
		return "", err
	}
	_, _, mapperPort, err := freeAddress()
	if err != nil {
		return "", err
	}
	_, _, nodesPort, err := freeAddress()
	if err != nil {
		return "", err
	}
	addr, host, port, err := freeAddress()
	if err != nil {
		return "", err
	}
	mapper, err := s.command([]string{"epmd"}, "-address", host, "-port", mapperPort)
	if err != nil {
		return "", err
	}
	plugins := filepath.Join(s.dir, "plugins")
	if err := os.WriteFile(plugins, []byte("[].\n"), 0o600); err != nil {
		return "", err
	}
	node.Env = append(os.Environ(), "HOME="+s.dir, "ERL_EPMD_PORT="+mapperPort, "RABBITMQ_NODENAME=bench@localhost",
		"RABBITMQ_NODE_IP_ADDRESS="+host, "RABBITMQ_NODE_PORT="+port, "RABBITMQ_DIST_PORT="+nodesPort,
		"RABBITMQ_MNESIA_BASE="+s.dir, "RABBITMQ_LOG_BASE="+s.dir, "RABBITMQ_ENABLED_PLUGINS_FILE="+plugins,
		"RABBITMQ_CONFIG_FILE="+filepath.Join(s.dir, "rabbitmq"),
		"RABBITMQ_ALLOW_INPUT=1") // the script becomes the node, so that the node ends with this process
	if _, err := node.StdinPipe(); err != nil {
		return "", err
	}
	if err := s.start(mapper); err != nil {
		return "", err
	}
	// Without a port mapper the node would start one that outlives it.
	if err := s.wait(func() error { return reachable(net.JoinHostPort(host, mapperPort)) }); err != nil {
		return "", err
	}
	return "amqp://guest:guest@" + addr, s.start(node)
}

// rabbitMQ is a durable queue of RabbitMQ.
type rabbitMQ struct {
	discarded
	url   string
	kind  string // of the queue
	admin *rabbitConn
}

func openRabbitMQ(url, kind string) (system.Target, error) {
	admin, err := dialRabbitMQ(url)
	return &rabbitMQ{url: url, kind: kind, admin: admin}, err
}

func (r *rabbitMQ) SetUp(context.Context) error {
	_, err := r.admin.QueueDeclare(queueName, true, false, false, false, amqp.Table{amqp.QueueTypeArg: r.kind})
	return err
}

func (r *rabbitMQ) Close() { r.admin.Close() }

// rabbitConn is a connection with one channel.
type rabbitConn struct {
	conn *amqp.Connection
	*amqp.Channel
}

func dialRabbitMQ(url string) (*rabbitConn, error) {
	conn, err := amqp.Dial(url)
	if err != nil {
		return nil, err
	}
	channel, err := conn.Channel()
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return &rabbitConn{conn, channel}, nil
}

func (c *rabbitConn) Close() { _ = c.conn.Close() } // the measurement is over

// rabbitProducer publishes persistent messages with confirms, which come in the order of the
// messages.
type rabbitProducer struct {
	*rabbitConn
	sent chan int // slots
}

func (r *rabbitMQ) Producer(_ context.Context, slots int, answered func(slot int, refused error)) (system.Producer, error) {
	conn, err := dialRabbitMQ(r.url)
	if err != nil {
		return nil, err
	}
	if err := conn.Confirm(false); err != nil {
		conn.Close()
		return nil, err
	}
	p := &rabbitProducer{conn, make(chan int, slots)}
	confirms := conn.NotifyPublish(make(chan amqp.Confirmation, slots))
	go func() {
		for c := range confirms {
			var refused error
			if !c.Ack {
				refused = fmt.Errorf("message %d was nacked", c.DeliveryTag)
			}
			answered(<-p.sent, refused)
		}
	}()
	return p, nil
}

func (p *rabbitProducer) Publish(slot int, m *system.Message) error {
	p.sent <- slot
	headers := amqp.Table{}
	for name, values := range m.Header {
		headers[name] = values[0]
	}
	return p.Channel.Publish("", queueName, false, false, amqp.Publishing{Headers: headers, DeliveryMode: amqp.Persistent, Body: m.Data})
}

func (*rabbitProducer) Flush() error { return nil }

// rabbitConsumers are consumers of one channel.
type rabbitConsumers struct{ *rabbitConn }

func (r *rabbitMQ) Consumers(acked func(error)) (system.Consumers, error) {
	if acked != nil {
		return nil, errAckConfirmed
	}
	conn, err := dialRabbitMQ(r.url)
	return &rabbitConsumers{conn}, err
}

func (c *rabbitConsumers) Consume(_ context.Context, name string, credit int, handle system.Handler) (func(context.Context) error, error) {
	if err := c.Qos(credit, 0, false); err != nil {
		return nil, err
	}
	deliveries, err := c.Channel.Consume(queueName, name, false, false, false, false, nil)
	if err != nil {
		return nil, err
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for d := range deliveries {
			handle(d.Body, strconv.FormatUint(d.DeliveryTag, 10))
		}
	}()
	return func(ctx context.Context) error {
		err := c.Cancel(name, false)
		select {
		case <-done:
			return err
		case <-ctx.Done():
			return errors.Join(err, ctx.Err())
		}
	}, nil
}

func (c *rabbitConsumers) Ack(to string) error {
	tag, err := strconv.ParseUint(to, 10, 64)
	if err != nil {
		return err
	}
	return c.Channel.Ack(tag, false)
}

func (*rabbitConsumers) Nack(string) error { return errNack }
