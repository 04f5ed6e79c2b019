package main

import (
	"context"
	"errors"
	"time"

	"github.com/hibiken/asynq"

	"github.com/filaq/fila/bench/system"
)

// redisConns is the number of connections of a client. asynq's default is 10 for each processor.
const redisConns = 64

// startRedis starts Redis with an append-only file.
func startRedis(s *server, sync bool) (string, error) {
	addr, host, port, err := freeAddress()
	if err != nil {
		return "", err
	}
	appendfsync := "everysec" // Redis's default
	if sync {
		appendfsync = "always"
	}
	cmd, err := s.command([]string{"redis-server"}, "--bind", host, "--port", port, "--dir", s.dir,
		"--save", "", "--appendonly", "yes", "--appendfsync", appendfsync)
	if err != nil {
		return "", err
	}
	return addr, s.start(cmd)
}

// asynqTarget is the default queue of asynq.
type asynqTarget struct {
	discarded
	client *asynq.Client
	redis  asynq.RedisClientOpt
}

func openAsynq(addr string) (system.Target, error) {
	t := &asynqTarget{redis: asynq.RedisClientOpt{Addr: addr, PoolSize: redisConns}}
	t.client = asynq.NewClient(t.redis)
	return t, nil
}

func (t *asynqTarget) SetUp(context.Context) error { return t.client.Ping() }

func (t *asynqTarget) Close() { _ = t.client.Close() } // the measurement is over

func (t *asynqTarget) Producer(ctx context.Context, _ int, answered func(slot int, refused error)) (system.Producer, error) {
	client := asynq.NewClient(t.redis)
	return &blocking{
		enqueue: func(data []byte) error {
			_, err := client.EnqueueContext(ctx, asynq.NewTask(queueName, data))
			return err
		},
		answered: answered,
		close:    func() { _ = client.Close() },
	}, nil
}

// asynqConsumers are asynq servers, one for each consumer.
type asynqConsumers struct {
	ackedByReturn
	redis asynq.RedisClientOpt
}

func (t *asynqTarget) Consumers(acked func(error)) (system.Consumers, error) {
	if acked != nil {
		return nil, errAckConfirmed
	}
	return &asynqConsumers{redis: t.redis}, nil
}

func (c *asynqConsumers) Consume(_ context.Context, _ string, credit int, handle system.Handler) (func(context.Context) error, error) {
	srv := asynq.NewServer(c.redis, asynq.Config{
		Concurrency: credit, LogLevel: asynq.FatalLevel,
		TaskCheckInterval: time.Millisecond, // the default of a second would be most of a life
	})
	err := srv.Start(asynq.HandlerFunc(func(_ context.Context, task *asynq.Task) error {
		if task.Type() != queueName {
			return errors.New("a task of another program")
		}
		handle(task.Payload(), "")
		return nil
	}))
	return func(context.Context) error {
		srv.Shutdown()
		return nil
	}, err
}

func (*asynqConsumers) Close() {}
