package sidecar

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/config"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
)

// TestNewChecksHooks before anything is opened.
func TestNewChecksHooks(t *testing.T) {
	c := config.Default()
	q := wire.DefaultQueueSettings("orders")
	q.OnFailure = "function on_failure(msg"
	c.Queues = append(c.Queues, q)
	_, err := New(c, slog.New(slog.DiscardHandler), "1.0.0")
	require.ErrorContains(t, err, "queue orders, on_failure: ")
}

// TestAStartThatFails leaves nothing open, whichever step failed.
func TestAStartThatFails(t *testing.T) {
	for name, tc := range map[string]struct {
		before func(t *testing.T, st *store.Bolt)
		want   string
	}{
		"in use": {nil, "is in use by another fila process: stop that one, or give this one a data_dir of its own"},
		"settings that cannot be read": {func(t *testing.T, st *store.Bolt) {
			done := make(chan error, 1)
			st.Submit(&store.Batch{
				PutQueues: []store.QueueRecord{{ID: 1, Name: "orders", Settings: []byte("{")}, {ID: 2, Name: "orders.dlq"}},
				Done:      func(err error) { done <- err },
			})
			require.NoError(t, <-done)
			require.NoError(t, st.Close())
		}, "settings of queue orders in the store: "},
	} {
		t.Run(name, func(t *testing.T) {
			var st *store.Bolt
			var path string
			require.ErrorContains(t, failsToStart(t, func(c *config.Config) {
				c.HTTP.Addr, c.NATS.Embedded.Port = "127.0.0.1:0", anyPort
				var err error
				path = c.StorePath()
				st, err = store.Open(path, store.Options{})
				require.NoError(t, err)
				if tc.before != nil {
					tc.before(t, st)
				}
			}), tc.want)
			require.NoError(t, st.Close())
			st, err := store.Open(path, store.Options{})
			require.NoError(t, err)
			require.NoError(t, st.Close())
		})
	}
}

// TestABusyPortLeavesNoDataDirectory, nor directories above it.
func TestABusyPortLeavesNoDataDirectory(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	addr, port := taken.Addr().String(), taken.Addr().(*net.TCPAddr).Port
	for name, tc := range map[string]struct {
		takes func(*config.Config)
		want  string
	}{
		"HTTP": {func(c *config.Config) { c.HTTP.Addr = addr }, "the HTTP listener"},
		"NATS": {func(c *config.Config) { c.NATS.Embedded.Port = port }, "the embedded NATS server"},
		"JetStream": {func(c *config.Config) {
			c.NATS.Embedded.Port, c.NATS.Embedded.JetStream = port, true
		}, "the embedded NATS server"},
		"NATS cluster": {func(c *config.Config) {
			c.NATS.Embedded.Cluster = config.EmbeddedCluster{Name: "c", Listen: addr, ServerName: "s", Routes: []string{addr}}
		}, "the embedded NATS server, for other servers,"},
	} {
		t.Run(name, func(t *testing.T) {
			parent := t.TempDir()
			err := failsToStart(t, func(c *config.Config) {
				c.DataDir, c.HTTP.Addr, c.NATS.Embedded.Port = filepath.Join(parent, "var", "data"), "127.0.0.1:0", anyPort
				tc.takes(c)
			})
			require.ErrorIs(t, err, syscall.EADDRINUSE)
			require.ErrorContains(t, err, tc.want+" cannot listen on "+addr+": another process has this port; set ")
			left, err := os.ReadDir(parent)
			require.NoError(t, err)
			require.Empty(t, left)
		})
	}
}

// TestReadyLine has the format of the log, at any level, and a URL of the pages.
func TestReadyLine(t *testing.T) {
	dir := t.TempDir()
	quoted := regexp.QuoteMeta(dir)
	for name, tc := range map[string]struct{ format, addr, want string }{
		"text":  {"text", "", `^fila is ready: nats=nats://\S+ http=off data_dir=` + quoted + "\n$"},
		"pages": {"text", "127.0.0.1:0", `^fila is ready: nats=nats://\S+ http=127\.0\.0\.1:\d+ data_dir=` + quoted + `\npages: http://127\.0\.0\.1:\d+\n$`},
		"json":  {"json", "", `^\{"time":"[^"]+","level":"INFO","msg":"fila is ready","event.name":"fila.process.ready","nats":"nats://[^"]+","http":"off","data_dir":"` + quoted + `","pages":""\}` + "\n$"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := config.Default()
			cfg.DataDir, cfg.HTTP.Addr, cfg.NATS.Embedded.Port = dir, tc.addr, anyPort
			cfg.Log = config.LogConfig{Level: "error", Format: tc.format}
			s, err := New(cfg, slog.New(slog.DiscardHandler), "1.0.0")
			require.NoError(t, err)
			var said bytes.Buffer
			s.announce = &said
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				<-s.Ready()
				cancel()
			}()
			require.NoError(t, s.Run(ctx))
			require.Regexp(t, tc.want, said.String())
		})
	}
}

// TestPagesURL is one that a browser on this host can open.
func TestPagesURL(t *testing.T) {
	s := &Server{}
	for addr, want := range map[string]string{
		"": "", "127.0.0.1:8222": "http://127.0.0.1:8222", "[::]:8222": "http://localhost:8222", "0.0.0.0:80": "http://localhost:80",
		"[::1]:8222": "http://[::1]:8222",
	} {
		s.endpoints.httpAddr = addr
		require.Equal(t, want, s.PagesURL())
	}
	s.cfg.HTTP.TLS.Cert = "cert.pem"
	s.endpoints.httpAddr = "10.0.0.1:443"
	require.Equal(t, "https://10.0.0.1:443", s.PagesURL())
}

// TestHTTPWhileTheFileIsRead: reading a large file takes long, and health checks must work meanwhile.
func TestHTTPWhileTheFileIsRead(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	cfg := config.Default()
	cfg.DataDir, cfg.HTTP.Addr = t.TempDir(), "127.0.0.1:0"
	cfg.NATS.Embedded.Port = taken.Addr().(*net.TCPAddr).Port
	st, err := store.Open(cfg.StorePath(), store.Options{})
	require.NoError(t, err)
	require.NoError(t, st.Close())
	// With one meta page damaged, the log says so while the file is checked.
	f, err := os.OpenFile(cfg.StorePath(), os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = f.WriteAt(make([]byte, 100), 4096) // the older meta page
	require.NoError(t, errors.Join(err, f.Close()))

	var s *Server
	codes := make(map[string]int)
	s, err = New(cfg, slog.New(hookedLog{slog.DiscardHandler, func(r slog.Record) {
		if strings.Contains(r.Message, "meta page") {
			for _, path := range []string{"/healthz", "/readyz", "/metrics"} {
				resp, err := http.Get("http://" + s.HTTPAddr() + path)
				require.NoError(t, err)
				require.NoError(t, resp.Body.Close())
				codes[path] = resp.StatusCode
			}
		}
	}}), "0.0.0")
	require.NoError(t, err)
	require.ErrorIs(t, s.Run(t.Context()), syscall.EADDRINUSE)
	require.Equal(t, map[string]int{"/healthz": 200, "/readyz": 503, "/metrics": 200}, codes)
	_, err = net.Dial("tcp", s.HTTPAddr())
	require.ErrorIs(t, err, syscall.ECONNREFUSED, "the listener is gone")
	http.DefaultClient.CloseIdleConnections()
}

// hookedLog calls fn with each record.
type hookedLog struct {
	slog.Handler
	fn func(slog.Record)
}

func (h hookedLog) Enabled(context.Context, slog.Level) bool { return true }

func (h hookedLog) Handle(_ context.Context, r slog.Record) error {
	h.fn(r)
	return nil
}
