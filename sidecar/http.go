package sidecar

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"time"
)

const (
	httpReadTimeout = 10 * time.Second
	httpIdleTimeout = 2 * time.Minute
)

// httpServer is the listener for those who watch fila: health checks, metrics
// and, when enabled, profiles. It knows nothing of messages.
type httpServer struct {
	addr string
	log  *slog.Logger
	srv  *http.Server
	done chan struct{} // closed when the serving goroutine has ended; nil before start
}

// newHTTP prepares the listener on addr (host:port, port 0 takes any free one).
//
//	/healthz      200 as long as the process answers
//	/readyz       200, or 503 with the reason that ready returns
//	/metrics      Prometheus
//	/debug/pprof  only if profiles is set
//
// ready is called once per request, from any goroutine, and must not block.
func newHTTP(addr string, profiles bool, m *metrics, ready func() error, log *slog.Logger) *httpServer {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := ready(); err != nil {
			answer(w, http.StatusServiceUnavailable, err.Error())
			return
		}
		answer(w, http.StatusOK, "ready")
	})
	mux.Handle("GET /metrics", m.handler())
	if profiles {
		mux.HandleFunc("GET /debug/pprof/", pprof.Index)
		mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("POST /debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	}
	log = log.With("component", "http")
	return &httpServer{
		addr: addr,
		log:  log,
		srv: &http.Server{
			Handler:           mux,
			ReadHeaderTimeout: httpReadTimeout,
			ReadTimeout:       httpReadTimeout,
			IdleTimeout:       httpIdleTimeout,
			// No WriteTimeout: a profile takes as long as it was asked for.
			MaxHeaderBytes: 16 << 10,
			ErrorLog:       slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		},
	}
}

// start listens and serves, and returns the bound address. It is called once.
func (h *httpServer) start() (string, error) {
	l, err := net.Listen("tcp", h.addr)
	if err != nil {
		return "", portError("the HTTP listener", h.addr, err,
			`set http.addr (port 0 takes any free port, "" is off)`)
	}
	h.done = make(chan struct{})
	go func() {
		defer close(h.done)
		if err := h.srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			h.log.Error("the HTTP listener has ended", "error", err)
		}
	}()
	return l.Addr().String(), nil
}

// stop ends the listener: running requests may finish until ctx ends, then they
// are cut off. It returns when nothing runs any more; without start it does
// nothing.
func (h *httpServer) stop(ctx context.Context) {
	if h.done == nil {
		return
	}
	if err := h.srv.Shutdown(ctx); err != nil {
		_ = h.srv.Close() // its only error would be the listener's, which Shutdown has closed
	}
	<-h.done
}

func answer(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	_, _ = io.WriteString(w, fmt.Sprintln(text)) // the client has gone: nobody to tell
}
