package main

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/filaq/fila/bench/system"
)

const (
	// postgresConns is the number of connections of a producer or of consumers. With more, two
	// processors spend their time on switching.
	postgresConns = 16
	// riverFetch is the shortest interval of River between two fetches, and between two
	// notifications of a producer. Its default of 100 ms would bound the rate to ten times the
	// messages in flight. riverPoll is for jobs whose notification was left out.
	riverFetch = river.FetchCooldownMin
	riverPoll  = 10 * time.Millisecond
)

// postgresPath is where Debian keeps PostgreSQL's programs.
const postgresPath = "/usr/lib/postgresql/*/bin/"

// startPostgreSQL starts a new PostgreSQL with its default configuration.
func startPostgreSQL(s *server, _ bool) (string, error) {
	addr, host, port, err := freeAddress()
	if err != nil {
		return "", err
	}
	data := filepath.Join(s.dir, "data")
	initdb, err := s.command([]string{"initdb", postgresPath + "initdb"}, "-D", data, "-U", "bench", "-A", "trust")
	if err != nil {
		return "", err
	}
	initdb.Stderr = os.Stderr
	asUser(initdb)
	if err := initdb.Run(); err != nil {
		return "", err
	}
	cmd, err := s.command([]string{"postgres", postgresPath + "postgres"}, "-D", data, "-h", host, "-p", port, "-k", s.dir)
	if err != nil {
		return "", err
	}
	asUser(cmd)
	return "postgres://bench@" + addr + "/postgres?sslmode=disable", s.start(cmd)
}

// riverJob is a message as a job of River.
type riverJob struct {
	Data []byte `json:"data"`
}

func (riverJob) Kind() string { return queueName }

// riverTarget is the default queue of River.
type riverTarget struct {
	discarded
	pool *pgxpool.Pool
}

func openRiver(url string) (system.Target, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	config.MaxConns = 2 * postgresConns
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	return &riverTarget{pool: pool}, err
}

func (t *riverTarget) SetUp(ctx context.Context) error {
	migrator, err := rivermigrate.New(riverpgxv5.New(t.pool), &rivermigrate.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
	return err
}

func (t *riverTarget) Close() { t.pool.Close() }

func (t *riverTarget) client(config *river.Config) (*river.Client[pgx.Tx], error) {
	config.Logger = slog.New(slog.DiscardHandler)
	config.FetchCooldown, config.FetchPollInterval = riverFetch, riverPoll
	return river.NewClient(riverpgxv5.New(t.pool), config)
}

func (t *riverTarget) Producer(ctx context.Context, _ int, answered func(slot int, refused error)) (system.Producer, error) {
	client, err := t.client(&river.Config{})
	return &blocking{
		enqueue: func(data []byte) error {
			_, err := client.Insert(ctx, riverJob{data}, nil)
			return err
		},
		answered: answered,
		close:    func() {},
	}, err
}

// riverConsumers are clients of River, one for each consumer.
type riverConsumers struct {
	ackedByReturn
	t *riverTarget
}

func (t *riverTarget) Consumers(acked func(error)) (system.Consumers, error) {
	if acked != nil {
		return nil, errAckConfirmed
	}
	return &riverConsumers{t: t}, nil
}

func (c *riverConsumers) Consume(ctx context.Context, _ string, credit int, handle system.Handler) (func(context.Context) error, error) {
	workers := river.NewWorkers()
	river.AddWorker(workers, river.WorkFunc(func(_ context.Context, job *river.Job[riverJob]) error {
		handle(job.Args.Data, "")
		return nil
	}))
	client, err := c.t.client(&river.Config{
		Workers: workers,
		Queues:  map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: credit}},
	})
	if err != nil {
		return nil, err
	}
	return client.Stop, client.Start(context.WithoutCancel(ctx))
}

func (*riverConsumers) Close() {}
