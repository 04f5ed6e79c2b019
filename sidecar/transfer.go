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

// Transfer is the connection of commands that work on a cluster without nodes, with the embedded NATS
// server if JetStream is there.
type Transfer struct {
	transfer.Options
	log      *slog.Logger
	embedded *natsio.Embedded // nil: none
}

// OpenTransfer starts the embedded server, if configured, and connects. Temporary files are in a
// directory of the data directory. It waits for NATS until ctx ends.
func OpenTransfer(ctx context.Context, cfg config.Config, log *slog.Logger, dir string) (*Transfer, error) {
	c := &cfg.Cluster
	t := &Transfer{log: log, Options: transfer.Options{
		Log: log, Cluster: c.Name, Shards: int(c.Shards), Replicas: int(c.Replicas), AllowR1: c.AllowR1, AllowNATS: c.AllowNATS, LogBytes: c.LogBytes,
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

// Close closes what OpenTransfer has opened.
func (t *Transfer) Close() {
	if t.Conn != nil {
		natsio.Disconnect(t.Conn, t.log)
	}
	if t.embedded != nil {
		t.embedded.Shutdown()
		t.embedded.WaitForShutdown()
	}
}

// ServeNATS runs only the embedded NATS server of a configuration until ctx ends. It calls listening
// with the URL.
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
