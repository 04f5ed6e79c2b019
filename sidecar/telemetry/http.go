package telemetry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"syscall"
	"time"
)

const (
	httpReadTimeout = 10 * time.Second
	httpIdleTimeout = 2 * time.Minute
)

// HTTP is the listener of health checks, metrics and, when enabled, profiles.
type HTTP struct {
	addr string
	log  *slog.Logger
	srv  *http.Server
	done chan struct{} // closed when the serving goroutine has ended; nil before Start
}

// NewHTTP prepares the listener on addr (host:port, port 0 takes any free one).
//
//	/healthz      200 as long as the process answers
//	/readyz       200 with the state that ready returns, or 503 with the reason
//	/metrics      Prometheus
//	/debug/pprof  only if profiles is set
//
// ready is called once per request, from any goroutine, and must not block.
func NewHTTP(addr string, profiles bool, m *Metrics, ready func() (state string, err error), log *slog.Logger) *HTTP {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		state, err := ready()
		if err != nil {
			answer(w, http.StatusServiceUnavailable, err.Error())
			return
		}
		answer(w, http.StatusOK, state)
	})
	mux.Handle("GET /metrics", m.Handler())
	if profiles {
		mux.HandleFunc("GET /debug/pprof/", pprof.Index)
		mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("POST /debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	}
	log = log.With("component", "http")
	return &HTTP{
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

// Start listens and serves, and returns the bound address. It is called once.
func (h *HTTP) Start() (string, error) {
	l, err := net.Listen("tcp", h.addr)
	if err != nil {
		return "", ListenError("the HTTP listener", h.addr, err,
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

// Stop ends the listener: running requests may finish until ctx ends, then they
// are cut off. It returns when nothing runs any more; without Start it does
// nothing.
func (h *HTTP) Stop(ctx context.Context) {
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

// ListenError is the one line that a start fails with when who cannot listen on
// addr, with what can be done about it. err is kept for errors.Is.
func ListenError(who, addr string, err error, remedy string) error {
	why := err.Error()
	var sys syscall.Errno
	if errors.As(err, &sys) {
		why = sys.Error() // without "listen tcp ADDRESS: bind:", which the line says already
	}
	if errors.Is(err, syscall.EADDRINUSE) {
		why = "another process has this port"
	}
	return &listenError{text: fmt.Sprintf("%s cannot listen on %s: %s; %s", who, addr, why, remedy), cause: err}
}

// listenError has a text for people and the cause for errors.Is.
type listenError struct {
	text  string
	cause error
}

func (e *listenError) Error() string { return e.text }
func (e *listenError) Unwrap() error { return e.cause }
