package sidecar

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/store"
)

// httpGet fetches one page on a connection of its own.
func httpGet(t *testing.T, method, url string) (status int, body string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patienceForTests}
	req, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	require.NoError(t, err)
	resp, err := client.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(text)
}

func startTestHTTP(t *testing.T, profiles bool, ready func() error) string {
	t.Helper()
	h := newHTTP("127.0.0.1:0", profiles, newMetrics(), ready, slog.New(slog.DiscardHandler))
	addr, err := h.start()
	require.NoError(t, err)
	t.Cleanup(func() { h.stop(context.WithoutCancel(t.Context())) })
	return "http://" + addr
}

func TestHTTPHealth(t *testing.T) {
	checkLeaks(t)
	reason := errors.New("the store is recovering: 3 of 10")
	base := startTestHTTP(t, false, func() error { return reason })

	status, body := httpGet(t, "GET", base+"/healthz")
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, "ok\n", body)

	status, body = httpGet(t, "GET", base+"/readyz")
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.Equal(t, "the store is recovering: 3 of 10\n", body)

	reason = nil
	status, body = httpGet(t, "GET", base+"/readyz")
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, "ready\n", body)

	status, _ = httpGet(t, "HEAD", base+"/readyz")
	require.Equal(t, http.StatusOK, status)
	status, _ = httpGet(t, "POST", base+"/readyz")
	require.Equal(t, http.StatusMethodNotAllowed, status)
	status, _ = httpGet(t, "GET", base+"/")
	require.Equal(t, http.StatusNotFound, status)
}

func TestHTTPMetrics(t *testing.T) {
	checkLeaks(t)
	base := startTestHTTP(t, false, func() error { return nil })
	status, body := httpGet(t, "GET", base+"/metrics")
	require.Equal(t, http.StatusOK, status)
	for _, name := range []string{"fila_commit_duration_seconds_count", "go_goroutines", "process_open_fds"} {
		require.True(t, strings.Contains(body, "\n"+name+" "), "%s is missing", name)
	}
}

func TestHTTPProfiles(t *testing.T) {
	checkLeaks(t)
	off := startTestHTTP(t, false, func() error { return nil })
	on := startTestHTTP(t, true, func() error { return nil })
	for _, path := range []string{"/debug/pprof/", "/debug/pprof/heap", "/debug/pprof/cmdline", "/debug/pprof/symbol"} {
		status, _ := httpGet(t, "GET", off+path)
		require.Equal(t, http.StatusNotFound, status, path)
		status, _ = httpGet(t, "GET", on+path)
		require.Equal(t, http.StatusOK, status, path)
	}
}

// TestHTTPWhileTheFileIsRead: a large file takes long, and whoever watches the
// process must not take it for dead.
func TestHTTPWhileTheFileIsRead(t *testing.T) {
	checkLeaks(t)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	cfg := Default()
	cfg.DataDir, cfg.HTTP.Addr = t.TempDir(), "127.0.0.1:0"
	cfg.NATS.Embedded.Port = taken.Addr().(*net.TCPAddr).Port
	st, err := store.Open(cfg.StorePath(), store.Options{})
	require.NoError(t, err)
	require.NoError(t, st.Close())
	// With one meta page damaged, the log says so while the file is checked.
	f, err := os.OpenFile(cfg.StorePath(), os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = f.WriteAt(make([]byte, 100), 4096) // the older one
	require.NoError(t, errors.Join(err, f.Close()))

	var s *Server
	codes := make(map[string]int)
	s, err = New(cfg, slog.New(hookedLog{slog.DiscardHandler, func(r slog.Record) {
		if strings.Contains(r.Message, "meta page") {
			for _, path := range []string{"/healthz", "/readyz", "/metrics"} {
				codes[path], _ = httpGet(t, http.MethodGet, "http://"+s.httpAddr+path)
			}
		}
	}}), "0.0.0")
	require.NoError(t, err)
	require.ErrorIs(t, s.Run(t.Context()), syscall.EADDRINUSE)
	require.Equal(t, map[string]int{"/healthz": 200, "/readyz": 503, "/metrics": 200}, codes)
	_, err = net.Dial("tcp", s.httpAddr)
	require.ErrorIs(t, err, syscall.ECONNREFUSED, "the listener is gone")
}

// hookedLog lets fn see each record.
type hookedLog struct {
	slog.Handler
	fn func(slog.Record)
}

func (h hookedLog) Enabled(context.Context, slog.Level) bool { return true }

func (h hookedLog) Handle(_ context.Context, r slog.Record) error {
	h.fn(r)
	return nil
}

func (h hookedLog) WithAttrs([]slog.Attr) slog.Handler { return h }

func (h hookedLog) WithGroup(string) slog.Handler { return h }

func TestHTTPTakenPort(t *testing.T) {
	checkLeaks(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	h := newHTTP(l.Addr().String(), false, newMetrics(), func() error { return nil }, slog.New(slog.DiscardHandler))
	_, err = h.start()
	require.ErrorIs(t, err, syscall.EADDRINUSE)
	require.EqualError(t, err, "the HTTP listener cannot listen on "+l.Addr().String()+
		`: another process has this port; set http.addr (port 0 takes any free port, "" is off)`)
	h.stop(t.Context()) // nothing to stop
}

// A request that is being answered holds stop until the context ends.
func TestHTTPStop(t *testing.T) {
	checkLeaks(t)
	asked, release := make(chan struct{}), make(chan struct{})
	h := newHTTP("127.0.0.1:0", false, newMetrics(), func() error {
		close(asked)
		<-release
		return nil
	}, slog.New(slog.DiscardHandler))
	addr, err := h.start()
	require.NoError(t, err)
	failed := make(chan error, 1)
	go func() {
		resp, err := http.Get("http://" + addr + "/readyz")
		if err == nil {
			_ = resp.Body.Close()
		}
		failed <- err
	}()
	waitFor(t, asked, "the request")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	h.stop(ctx)
	require.Error(t, <-failed, "the connection was cut")
	close(release)
	_, err = net.Dial("tcp", addr)
	require.Error(t, err, "nobody listens any more")
	http.DefaultClient.CloseIdleConnections()
}
