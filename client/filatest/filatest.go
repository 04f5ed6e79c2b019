// Package filatest starts a fila for tests of services that use package client. It runs in the
// process of the test, with a NATS server inside, so that a test needs no binary and no port of
// its own:
//
//	func TestMails(t *testing.T) {
//		fila := filatest.Start(t, "").Client()
//		...
//	}
package filatest

import (
	"context"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/filaq/fila/client"
	"github.com/filaq/fila/sidecar"
	"github.com/filaq/fila/sidecar/config"
)

// Server is a fila with a NATS server inside.
type Server struct {
	t       testing.TB
	sources config.Sources
	dir     string
	port    string

	url, http string
	end       context.CancelFunc // nil while stopped
	over      chan error         // gets the result of the run
}

// Start starts a fila on free ports with its data in a directory of the test, and ends it with
// the test. The text is a configuration file (docs/configuration.md) and may be empty; addresses,
// ports and the data directory in it do not count. Addresses, warnings and errors go to the log of
// the test.
func Start(t testing.TB, configuration string) *Server {
	t.Helper()
	s := &Server{t: t, dir: t.TempDir(), port: "-1"}
	s.sources.File = filepath.Join(s.dir, "fila.toml")
	if err := os.WriteFile(s.sources.File, []byte(configuration), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	s.Again()
	return s
}

// URL returns the address of NATS.
func (s *Server) URL() string { return s.url }

// HTTP returns the address of the pages and metrics, such as http://127.0.0.1:40123.
func (s *Server) HTTP() string { return s.http }

// Client returns a client with a connection of its own, which ends with the test.
func (s *Server) Client(opts ...client.Option) *client.Client {
	s.t.Helper()
	nc, err := nats.Connect(s.url, nats.MaxReconnects(-1))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(nc.Close)
	c, err := client.New(nc, opts...)
	if err != nil {
		s.t.Fatal(err)
	}
	return c
}

// Stop ends fila and its NATS server, which keep their data. A second Stop does nothing.
func (s *Server) Stop() {
	s.t.Helper()
	if s.end == nil {
		return
	}
	s.end()
	s.end = nil
	if err := <-s.over; err != nil {
		s.t.Errorf("fila ended with an error: %v", err)
	}
}

// Again starts fila after Stop, at the same address and with the same data.
func (s *Server) Again() {
	s.t.Helper()
	s.sources.Flags = []config.Setting{
		{Name: "filatest", Key: "data_dir", Text: filepath.Join(s.dir, "data")},
		{Name: "filatest", Key: "nats.url"},
		{Name: "filatest", Key: "nats.embedded.host", Text: "127.0.0.1"},
		{Name: "filatest", Key: "nats.embedded.port", Text: s.port},
		{Name: "filatest", Key: "http.addr", Text: "127.0.0.1:0"},
		{Name: "filatest", Key: "drain_timeout_ms", Text: "100"},
	}
	loaded, err := config.Load(s.sources)
	if err != nil {
		s.t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(s.t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	node, err := sidecar.New(loaded.Config, log, "test")
	if err != nil {
		s.t.Fatal(err)
	}
	node.AnnounceTo(s.t.Output())
	ctx, end := context.WithCancel(context.Background())
	s.over = make(chan error, 1)
	go func() { s.over <- node.Run(ctx) }()
	select {
	case <-node.Ready():
	case err := <-s.over:
		end()
		s.t.Fatal("fila does not start: ", err)
	}
	s.end, s.url, s.http = end, node.ClientURL(), "http://"+node.HTTPAddr()
	address, err := url.Parse(s.url)
	if err != nil {
		s.t.Fatal(err)
	}
	s.port = address.Port()
}
