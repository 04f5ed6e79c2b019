package telemetry

import (
	"context"
	"crypto/tls"
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

// HTTP is the listener of health checks, metrics, pages and, if enabled, profiles.
type HTTP struct {
	addr      string
	cert, key string
	log       *slog.Logger
	srv       *http.Server
	done      chan struct{} // closed when the serving goroutine has ended; nil before Start
}

// HTTPOptions configures an [HTTP].
type HTTPOptions struct {
	Log      *slog.Logger
	Addr     string // host:port; port 0 picks a free port
	Metrics  *Metrics
	Profiles bool // serve /debug/pprof
	// Ready returns the state, or the reason why fila is not ready. Each request calls it, from
	// any goroutine; it must not block.
	Ready  func() (state string, err error)
	Wanted WantedFunc   // for /scale; nil: it is not served
	Pages  http.Handler // serves all other paths; nil for none
	// Guard decides who may read metrics and profiles; nil allows everyone.
	Guard     func(http.Handler) http.Handler
	Cert, Key string // PEM files for HTTPS; empty for HTTP
}

// NewHTTP prepares the listener.
//
//	/healthz      200 as long as the process answers
//	/readyz       200 with the state that Ready returns, or 503 with the reason
//	/metrics      Prometheus
//	/scale        how many workers queues need, see [api.Scale]
//	/debug/pprof  only with Profiles
func NewHTTP(o HTTPOptions) *HTTP {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		state, err := o.Ready()
		if err != nil {
			answer(w, http.StatusServiceUnavailable, err.Error())
			return
		}
		answer(w, http.StatusOK, state)
	})
	guard := o.Guard
	if guard == nil {
		guard = func(h http.Handler) http.Handler { return h }
	}
	mux.Handle("/healthz", notAllowed("GET, HEAD"))
	mux.Handle("/readyz", notAllowed("GET, HEAD"))
	mux.Handle("GET /metrics", guard(o.Metrics.Handler()))
	mux.Handle("/metrics", notAllowed("GET, HEAD"))
	if o.Wanted != nil {
		mux.Handle("GET /scale/{queues}", guard(scaleHandler(o.Wanted)))
		mux.Handle("/scale/{queues}", notAllowed("GET, HEAD"))
	}
	if o.Profiles {
		for path, h := range map[string]http.HandlerFunc{
			"GET /debug/pprof/": pprof.Index, "GET /debug/pprof/cmdline": pprof.Cmdline, "GET /debug/pprof/profile": pprof.Profile,
			"GET /debug/pprof/symbol": pprof.Symbol, "POST /debug/pprof/symbol": pprof.Symbol, "GET /debug/pprof/trace": pprof.Trace,
		} {
			mux.Handle(path, guard(h))
		}
	}
	if o.Pages != nil {
		mux.Handle("/", o.Pages)
	}
	log := o.Log.With("component", "http")
	return &HTTP{
		addr: o.Addr, cert: o.Cert, key: o.Key,
		log: log,
		srv: &http.Server{
			Handler:           mux,
			ReadHeaderTimeout: httpReadTimeout,
			ReadTimeout:       httpReadTimeout,
			IdleTimeout:       httpIdleTimeout,
			// No WriteTimeout: a profile takes as long as the request says.
			MaxHeaderBytes: 16 << 10,
			ErrorLog:       slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		},
	}
}

// Start listens and serves, and returns the bound address. Call it once.
func (h *HTTP) Start() (string, error) {
	if h.cert != "" {
		pair, err := tls.LoadX509KeyPair(h.cert, h.key)
		if err != nil {
			return "", fmt.Errorf("http.tls: %w", err)
		}
		h.srv.TLSConfig = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	}
	l, err := listenHTTP(h.addr)
	if err != nil {
		return "", err
	}
	h.done = make(chan struct{})
	go func() {
		defer close(h.done)
		serve := func() error { return h.srv.Serve(l) }
		if h.cert != "" {
			serve = func() error { return h.srv.ServeTLS(l, "", "") }
		}
		if err := serve(); !errors.Is(err, http.ErrServerClosed) {
			h.log.Error("the HTTP listener has ended", "error", err)
		}
	}()
	return l.Addr().String(), nil
}

func listenHTTP(addr string) (net.Listener, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, ListenError("the HTTP listener", addr, err, `set http.addr (port 0 takes any free port, "" is off)`)
	}
	return l, nil
}

// TryListen returns the error that [HTTP.Start] would have for addr now, or nil.
func TryListen(addr string) error {
	l, err := listenHTTP(addr)
	if err != nil {
		return err
	}
	return l.Close()
}

// Stop stops the listener. Running requests may finish until ctx ends; then Stop closes their
// connections. It returns when nothing runs any more. Without Start it does nothing.
func (h *HTTP) Stop(ctx context.Context) {
	if h.done == nil {
		return
	}
	if err := h.srv.Shutdown(ctx); err != nil {
		_ = h.srv.Close() // the only possible error is from the listener, which Shutdown has closed
	}
	<-h.done
}

// notAllowed keeps requests with other methods from reaching the pages.
func notAllowed(allowed string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Allow", allowed)
		answer(w, http.StatusMethodNotAllowed, "allowed is "+allowed)
	})
}

func answer(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	_, _ = io.WriteString(w, fmt.Sprintln(text)) // fails only if the client has gone
}

// ListenError returns the one-line error of a component that cannot listen on addr, with a
// remedy. err stays available to errors.Is.
func ListenError(component, addr string, err error, remedy string) error {
	why := err.Error()
	var sys syscall.Errno
	if errors.As(err, &sys) {
		why = sys.Error() // the line already says "listen tcp ADDRESS: bind:"
	}
	if errors.Is(err, syscall.EADDRINUSE) {
		why = "another process has this port"
	}
	return &listenError{text: fmt.Sprintf("%s cannot listen on %s: %s; %s", component, addr, why, remedy), cause: err}
}

// listenError has a text for users and the cause for errors.Is.
type listenError struct {
	text  string
	cause error
}

func (e *listenError) Error() string { return e.text }
func (e *listenError) Unwrap() error { return e.cause }
