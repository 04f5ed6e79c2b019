package sidecar

import (
	"context"
	"log/slog"
	"path/filepath"

	"github.com/filaq/fila/sidecar/cluster/transfer"
	"github.com/filaq/fila/sidecar/config"
	"github.com/filaq/fila/sidecar/natsio"
	"github.com/filaq/fila/sidecar/queue/history"
	"github.com/filaq/fila/store"
)

// Transfer is what takes a cluster in and out: the connection of a node that does not run,
// and its embedded NATS server if that is where JetStream is.
type Transfer struct {
	transfer.Options
	log      *slog.Logger
	embedded *natsio.Embedded // nil: none
}

// OpenTransfer starts the embedded server if there is to be one, and connects. Files that
// are there meanwhile will be in a directory of the data directory. It waits for NATS until
// ctx ends.
func OpenTransfer(ctx context.Context, cfg config.Config, log *slog.Logger, dir string) (*Transfer, error) {
	c := &cfg.Cluster
	t := &Transfer{log: log, Options: transfer.Options{
		Log: log, Cluster: c.Name, Shards: int(c.Shards), Replicas: int(c.Replicas), AllowR1: c.AllowR1, LogBytes: c.LogBytes,
		Dir: filepath.Join(cfg.DataDir, dir), Store: store.Options{Join: history.Join, Keep: history.IsRedrive},
	}}
	if err := t.open(ctx, &cfg); err != nil {
		t.Close()
		return nil, err
	}
	return t, nil
}

func (t *Transfer) open(ctx context.Context, cfg *config.Config) (err error) {
	if cfg.NATS.URL == "" {
		if t.embedded, err = natsio.StartEmbedded(cfg.EmbeddedServer(), t.log); err != nil {
			return err
		}
	}
	if t.Conn, err = natsio.ConnectFleet(cfg.NATS, t.embedded, t.log); err != nil {
		return err
	}
	return natsio.WaitConnected(ctx, t.Conn)
}

// Close ends what OpenTransfer has begun.
func (t *Transfer) Close() {
	if t.Conn != nil {
		natsio.Disconnect(t.Conn, t.log)
	}
	if t.embedded != nil {
		t.embedded.Shutdown()
		t.embedded.WaitForShutdown()
	}
}

// ServeNATS runs the embedded NATS server of a configuration and nothing else, until ctx
// ends. Listening is called with its URL.
func ServeNATS(ctx context.Context, cfg config.Config, log *slog.Logger, listening func(url string) error) error {
	srv, err := natsio.StartEmbedded(cfg.EmbeddedServer(), log)
	if err != nil {
		return err
	}
	defer func() {
		srv.Shutdown()
		srv.WaitForShutdown()
	}()
	if err := listening(srv.ClientURL()); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}
