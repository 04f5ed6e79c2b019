package telemetry

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
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// TestMain fails when a test leaves a goroutine behind.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// httpGet fetches one page on its own connection.
func httpGet(t *testing.T, method, url string) (status int, body string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 30 * time.Second}
	req, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	require.NoError(t, err)
	resp, err := client.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(text)
}

func startTestHTTP(t *testing.T, profiles bool, m *Metrics, ready func() (string, error)) string {
	t.Helper()
	h := NewHTTP(HTTPOptions{Log: slog.New(slog.DiscardHandler), Addr: "127.0.0.1:0", Profiles: profiles, Metrics: m, Ready: ready})
	addr, err := h.Start()
	require.NoError(t, err)
	t.Cleanup(func() { h.Stop(context.WithoutCancel(t.Context())) })
	return "http://" + addr
}

func TestHTTPHealth(t *testing.T) {
	reason, state := errors.New("the store is recovering: 3 of 10"), "ready"
	base := startTestHTTP(t, false, New(), func() (string, error) { return state, reason })

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
	state = "degraded: the disk is nearly full"
	status, body = httpGet(t, "GET", base+"/readyz")
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, "degraded: the disk is nearly full\n", body)

	status, _ = httpGet(t, "HEAD", base+"/readyz")
	require.Equal(t, http.StatusOK, status)
	status, _ = httpGet(t, "POST", base+"/readyz")
	require.Equal(t, http.StatusMethodNotAllowed, status)
	status, _ = httpGet(t, "GET", base+"/")
	require.Equal(t, http.StatusNotFound, status)
}

func TestHTTPMetrics(t *testing.T) {
	base := startTestHTTP(t, false, New(), func() (string, error) { return "ready", nil })
	status, body := httpGet(t, "GET", base+"/metrics")
	require.Equal(t, http.StatusOK, status)
	for _, name := range []string{"fila_commit_duration_seconds_count", "go_goroutines", "process_open_fds"} {
		require.True(t, strings.Contains(body, "\n"+name+" "), "%s is missing", name)
	}
}

func TestHTTPProfiles(t *testing.T) {
	off := startTestHTTP(t, false, New(), func() (string, error) { return "ready", nil })
	on := startTestHTTP(t, true, New(), func() (string, error) { return "ready", nil })
	for _, path := range []string{"/debug/pprof/", "/debug/pprof/heap", "/debug/pprof/cmdline", "/debug/pprof/symbol"} {
		status, _ := httpGet(t, "GET", off+path)
		require.Equal(t, http.StatusNotFound, status, path)
		status, _ = httpGet(t, "GET", on+path)
		require.Equal(t, http.StatusOK, status, path)
	}
}

func TestHTTPTakenPort(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	h := NewHTTP(HTTPOptions{Log: slog.New(slog.DiscardHandler), Addr: l.Addr().String(), Metrics: New()})
	_, err = h.Start()
	require.ErrorIs(t, err, syscall.EADDRINUSE)
	require.EqualError(t, err, "the HTTP listener cannot listen on "+l.Addr().String()+
		`: another process has this port; set http.addr (port 0 takes any free port, "" is off)`)
	h.Stop(t.Context()) // nothing to stop
}

// Stop waits for a running request until the context ends.
func TestHTTPStop(t *testing.T) {
	asked, release := make(chan struct{}), make(chan struct{})
	h := NewHTTP(HTTPOptions{Log: slog.New(slog.DiscardHandler), Addr: "127.0.0.1:0", Metrics: New(), Ready: func() (string, error) {
		close(asked)
		<-release
		return "ready", nil
	}})
	addr, err := h.Start()
	require.NoError(t, err)
	failed := make(chan error, 1)
	go func() {
		resp, err := http.Get("http://" + addr + "/readyz")
		if err == nil {
			_ = resp.Body.Close()
		}
		failed <- err
	}()
	select {
	case <-asked:
	case err := <-failed:
		require.Fail(t, "there is no answer to wait for", "%v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	h.Stop(ctx)
	require.Error(t, <-failed, "the connection was cut")
	close(release)
	_, err = net.Dial("tcp", addr)
	require.Error(t, err, "nobody listens any more")
	http.DefaultClient.CloseIdleConnections()
}

// A function set by SetSync updates counters before each scrape.
func TestHTTPSync(t *testing.T) {
	m := New()
	m.SetSync(func() { m.Queue("orders").Hook("on_enqueue").Add(2, 0, 0, 0) })
	base := startTestHTTP(t, false, m, func() (string, error) { return "ready", nil })
	for _, want := range []string{"2", "4"} {
		_, body := httpGet(t, "GET", base+"/metrics")
		require.Contains(t, body, `fila_hook_runs_total{hook="on_enqueue",queue="orders"} `+want+"\n")
	}
}

func TestListenError(t *testing.T) {
	for want, err := range map[string]error{
		"x cannot listen on a:1: another process has this port; do y": &net.OpError{Op: "listen", Err: os.NewSyscallError("bind", syscall.EADDRINUSE)},
		"x cannot listen on a:1: permission denied; do y":             &net.OpError{Op: "listen", Err: os.NewSyscallError("bind", syscall.EACCES)},
		"x cannot listen on a:1: no such host; do y":                  errors.New("no such host"),
	} {
		got := ListenError("x", "a:1", err, "do y")
		require.EqualError(t, got, want)
		require.ErrorIs(t, got, err)
	}
}
