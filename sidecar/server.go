package sidecar

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/filaq/fila/breaker"
	"github.com/filaq/fila/hooks"
	"github.com/filaq/fila/sidecar/admin"
	"github.com/filaq/fila/sidecar/circuit"
	"github.com/filaq/fila/sidecar/config"
	"github.com/filaq/fila/sidecar/control"
	"github.com/filaq/fila/sidecar/fleet"
	"github.com/filaq/fila/sidecar/guard"
	"github.com/filaq/fila/sidecar/limit"
	"github.com/filaq/fila/sidecar/natsio"
	"github.com/filaq/fila/sidecar/otlp"
	"github.com/filaq/fila/sidecar/policy"
	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/sidecar/shard"
	"github.com/filaq/fila/sidecar/telemetry"
	"github.com/filaq/fila/sidecar/web"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// ErrAnotherFila is returned when another fila serves the same subject prefix.
var ErrAnotherFila = natsio.ErrAnotherFila

// closeTimeout bounds the stop of the HTTP listener.
const closeTimeout = 5 * time.Second

// Server is one sidecar. [New] makes it; it runs once.
type Server struct {
	cfg      config.Config
	shared   config.SharedConfig // gates shared with other filas
	version  string
	log      *slog.Logger // for start, stop and store, which clients cannot flood
	limited  *slog.Logger // for everything else
	now      func() int64
	subjects wire.Subjects
	metrics  *telemetry.Metrics

	storage   storage
	endpoints endpoints
	parts     parts
	link      struct {
		sync.Mutex      // also guards parts.shards during the start
		offline    bool // disconnected from NATS
	}

	ready    chan struct{}
	started  atomic.Bool
	draining atomic.Bool
	killed   context.Context // canceled by kill
	kill     context.CancelFunc
	announce io.Writer
}

// endpoints are connections and listeners, closed in this order; nil: not open.
type endpoints struct {
	http     *telemetry.HTTP
	web      *web.Web
	httpAddr string
	exporter *otlp.Exporter
	embedded *natsio.Embedded
	nc       *nats.Conn
	shared   *nats.Conn // for shared records
}

// parts are the parts of a node, set by build.
type parts struct {
	fleet    *fleet.Sync   // nil: nothing is shared
	limits   *limit.Limits // nil: nothing is shared
	circuits *circuit.Registry
	control  *control.Control
	shards   *shard.Set
	front    *natsio.Front
	presence *natsio.Presence
	admin    *admin.Admin
	guard    *guard.Service
}

// New checks cfg and prepares a server without opening anything. version is the semantic version
// that the NATS micro service reports.
func New(cfg config.Config, log *slog.Logger, version string) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	subjects, err := wire.NewSubjects(cfg.NATS.SubjectPrefix)
	if err != nil {
		return nil, fmt.Errorf("nats.subject_prefix: %w", err)
	}
	defaults := hookDefaults(&cfg.Lua)
	for i := range cfg.Queues {
		if err := defaults.Check(cfg.Queues[i]); err != nil {
			return nil, err
		}
	}
	s := &Server{
		cfg: cfg, shared: cfg.Gates(), version: version, log: log, now: shard.NewClock(), subjects: subjects, metrics: telemetry.New(),
		ready: make(chan struct{}), announce: os.Stderr,
	}
	if s.storage, err = newStorage(s); err != nil {
		return nil, err
	}
	s.limited = telemetry.LimitLog(log, s.now)
	s.metrics.SetBuild(version)
	s.metrics.NameQueues(cfg.HTTP.NamesQueue)
	s.metrics.SetReady(func() bool {
		_, err := s.readiness()
		return err == nil
	})
	s.killed, s.kill = context.WithCancel(context.Background())
	return s, nil
}

func hookDefaults(lua *config.LuaConfig) policy.Defaults {
	return policy.Defaults{
		Limits: hooks.Limits{
			Timeout: time.Duration(lua.DefaultTimeoutMs) * time.Millisecond, MemoryBytes: lua.DefaultMemoryLimitBytes,
		},
		Breaker: breaker.Config{
			Threshold:        int(lua.CircuitBreakerThreshold),
			Cooldown:         time.Duration(lua.CircuitBreakerCooldownMs) * time.Millisecond,
			HalfOpenMaxCalls: 1,
		},
	}
}

// Check reads the files that the configuration names: tokens, certificates, credentials, users. It
// opens no store and no connection.
func (s *Server) Check() error {
	if h := &s.cfg.HTTP; h.Addr != "" {
		if err := web.CheckConfig(*h); err != nil {
			return err
		}
		if h.TLS.Cert != "" {
			if _, err := tls.LoadX509KeyPair(h.TLS.Cert, h.TLS.Key); err != nil {
				return fmt.Errorf("http.tls: %w", err)
			}
		}
	}
	return natsio.CheckConfig(s.cfg.NATS, s.cfg.EmbeddedServer())
}

// Ready is closed when every queue can be published to and consumed from.
func (s *Server) Ready() <-chan struct{} { return s.ready }

// ClientURL returns the URL of NATS for clients. It is known once Ready is closed.
func (s *Server) ClientURL() string {
	if s.endpoints.embedded != nil {
		return s.endpoints.embedded.ClientURL()
	}
	return s.endpoints.nc.ConnectedUrlRedacted()
}

// HTTPAddr returns the bound address of the HTTP listener, empty if it is off. It is known once
// Ready is closed.
func (s *Server) HTTPAddr() string { return s.endpoints.httpAddr }

// PagesURL returns the address of the pages for a browser on this host; it is empty if
// http.addr is.
func (s *Server) PagesURL() string {
	host, port, err := net.SplitHostPort(s.endpoints.httpAddr)
	if err != nil {
		return ""
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "localhost"
	}
	scheme := "http://"
	if s.cfg.HTTP.TLS.Cert != "" {
		scheme = "https://"
	}
	return scheme + net.JoinHostPort(host, port)
}

// Kill makes a shutdown stop waiting for leases and messages on their way. Confirmed messages are on
// disk in any case.
func (s *Server) Kill() { s.kill() }

// Reload reads the configuration file again and puts it in force, or nothing of it if anything is
// wrong. The log has the changes. The error is one line.
func (s *Server) Reload() error {
	switch {
	case s.draining.Load():
		return errors.New("fila is stopping")
	case !s.started.Load():
		return errors.New("fila is still starting")
	}
	if _, werr := s.parts.control.Reload(context.Background()); werr != nil {
		return werr
	}
	return nil
}

// Run serves until ctx ends and then shuts down in order: it stops accepting messages, waits for
// leases up to drain_timeout, writes everything and closes. It returns nil after that, or the error
// that ended the server.
func (s *Server) Run(ctx context.Context) error {
	if err := s.open(); err != nil {
		return err
	}
	err := s.serve(ctx)
	s.stop(err == nil)
	return err
}

// open opens the data directory and the listeners. After an error nothing is open.
func (s *Server) open() (err error) {
	if err := s.tryPorts(); err != nil {
		return err
	}
	if err := os.MkdirAll(s.cfg.DataDir, 0o750); err != nil {
		return fmt.Errorf("data_dir: %w", err)
	}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if err = s.storage.open(); err != nil {
		return err
	}
	if err = s.startExporter(); err != nil {
		return err
	}
	d := &s.endpoints
	if s.cfg.NATS.URL == "" {
		if d.embedded, err = natsio.StartEmbedded(s.cfg.EmbeddedServer(), s.limited); err != nil {
			return err
		}
	}
	var opts []nats.Option
	if s.cfg.Cluster.Enabled { // the log of an owner may be reachable while its clients are not
		opts = append(opts, natsio.PingOften())
	}
	d.nc, err = natsio.Connect(s.cfg.NATS, d.embedded, s.limited, func() { s.setOffline(true) }, func() { s.setOffline(false) }, opts...)
	return err
}

// tryPorts returns an error for a busy port before a data directory is made. If that exists, it may
// belong to the fila that uses the ports; then opening the store says so.
func (s *Server) tryPorts() error {
	if _, err := os.Stat(s.cfg.DataDir); !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if s.cfg.HTTP.Addr != "" {
		if err := telemetry.TryListen(s.cfg.HTTP.Addr); err != nil {
			return err
		}
	}
	if s.cfg.NATS.URL != "" {
		return nil
	}
	return natsio.TryListen(s.cfg.EmbeddedServer())
}

// readCache converts the configured size, where 0 means none, for the store, where 0 means the
// default.
func readCache(bytes int64) int64 {
	if bytes == 0 {
		return -1
	}
	return bytes
}

// readiness returns the state in which the server serves, or why it does not.
func (s *Server) readiness() (state string, err error) {
	switch {
	case s.draining.Load():
		return "", errors.New("draining")
	case !s.started.Load():
		return "", errors.New("starting")
	case s.parts.shards.Offline():
		return "", errors.New("not connected to NATS")
	}
	if state, err = s.storage.health(); err != nil {
		return "", err
	}
	if stuck := s.parts.shards.Stuck(); len(stuck) > 0 {
		return "", errors.New(stuck[0])
	}
	if d := s.parts.shards.Disk(); d != nil && d.Low {
		return fmt.Sprintf("degraded: the disk is nearly full (%d bytes are free, store.min_free_bytes is %d): no messages are accepted", d.Free, d.MinFree), nil
	}
	return state, nil
}

// serve starts and waits for the end.
func (s *Server) serve(ctx context.Context) error {
	if err := s.start(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		if sh := s.parts.shards; sh != nil && sh.Err() != nil {
			return sh.Err() // the cause, whichever step failed because of it
		}
		return err
	}
	watching, end := context.WithCancel(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		s.parts.admin.Watch(watching)
	}()
	defer func() {
		end()
		<-watched
	}()
	s.started.Store(true)
	close(s.ready)
	s.announceReady()
	for {
		select {
		case <-ctx.Done():
			return nil
		case failed := <-s.parts.shards.Failed():
			if err := s.storage.lost(failed); err != nil {
				return err
			}
		case err := <-s.storage.over():
			return err
		case err := <-s.parts.presence.Conflict():
			return err
		}
	}
}

// AnnounceTo makes Run write the addresses to w when fila is ready, instead of to standard error.
func (s *Server) AnnounceTo(w io.Writer) { s.announce = w }

// announceReady writes the addresses, in text also the one of the pages as a URL on a line of
// its own.
func (s *Server) announceReady() {
	http, pages := s.endpoints.httpAddr, s.PagesURL()
	if http == "" {
		http = "off"
	}
	dir, err := filepath.Abs(s.cfg.DataDir)
	if err != nil {
		dir = s.cfg.DataDir
	}
	if s.cfg.Log.Format == "json" {
		// At any log level, since scripts wait for it.
		slog.New(telemetry.EventLog(slog.NewJSONHandler(s.announce, nil))).Info("fila is ready", "nats", s.ClientURL(), "http", http, "data_dir", dir, "pages", pages)
		return
	}
	text := fmt.Sprintf("fila is ready: nats=%s http=%s data_dir=%s\n", s.ClientURL(), http, dir)
	if pages != "" {
		text += "pages: " + pages + "\n"
	}
	if _, err := io.WriteString(s.announce, text); err != nil {
		s.log.Debug("announce", "error", err)
	}
}

// partOptions are the options of the parts of a node.
type partOptions struct {
	front    natsio.Options
	circuits circuit.Options
	control  control.Options
	presence natsio.PresenceOptions
	shards   shard.Options
	admin    admin.Options
}

// build creates the parts of a node from stored data.
func (s *Server) build(snap store.Snapshot) error {
	signer, err := wire.NewSigner(snap.Secret)
	if err != nil {
		return err
	}
	d, r := &s.endpoints, &s.parts
	event := natsio.Events(d.nc, s.subjects, s.now, s.limited)
	if d.embedded != nil {
		d.embedded.OnCut(func(c natsio.CutClient) {
			s.metrics.ClientCut(c.Reason)
			event(wire.EventClientCut, api.KeyInBody, wire.Event{Data: map[string]any{
				"reason": c.Reason, "user": c.User, "client": c.Client, "address": c.Address,
			}})
		})
	}
	if r.fleet, err = s.joinFleet(event); err != nil {
		return err
	}
	// Control and shards need each other; neither is used before both exist.
	var queues struct{ *shard.Set }
	f := partOptions{
		front: natsio.Options{
			Log: s.limited, Now: s.now, Conn: d.nc, Subjects: s.subjects, Signer: signer,
			ReplyPrefixes: s.cfg.NATS.ReplyPrefixes, Headers: natsio.HeaderLimitsOf(&s.cfg.NATS),
		},
		circuits: circuit.Options{
			Log: s.limited, Now: s.now, Event: event, Held: s.metrics.CircuitHeld, Shares: s.shared.SharesCircuit,
		},
		control: control.Options{Log: s.limited, Now: s.now, Event: event, Queues: &queues, MaxPayload: d.nc.MaxPayload},
		presence: natsio.PresenceOptions{
			Log: s.limited, Conn: d.nc, Subjects: s.subjects, Now: s.now, Name: s.cfg.NATS.Name, Version: s.version,
		},
		shards: shard.Options{
			Log: s.limited, Now: s.now, Conn: d.nc, Metrics: s.metrics, Subjects: s.subjects, Signer: signer, Event: event,
			Caps: caps(&s.cfg.Limits), MaxUncommittedBytes: s.cfg.Limits.MaxUncommittedBytes,
			Headers: natsio.HeaderLimitsOf(&s.cfg.NATS),
			Space:   func() (store.Space, bool) { return store.SpaceOf(s.cfg.DataDir) }, MinFreeBytes: s.cfg.Store.MinFreeBytes,
			Hooks: hookDefaults(&s.cfg.Lua), Pacing: queue.DefaultPacing, Killed: s.killed.Done(),
		},
		admin: admin.Options{Log: s.limited, DataDir: s.cfg.DataDir},
	}
	if r.fleet != nil {
		f.circuits.Fleet, f.circuits.Kin, f.circuits.Conflict = r.fleet, r.fleet.Kin, s.reportCircuitConflict(event)
	}
	if s.endpoints.exporter != nil && s.cfg.OTel.Sampling != config.SamplingOff {
		f.front.Tracer, f.shards.Tracer = s.endpoints.exporter, s.endpoints.exporter
	}
	s.storage.completeOptions(&f)
	r.front = natsio.New(f.front)
	r.circuits = circuit.New(f.circuits)
	r.circuits.Restore(snap.Config)
	if r.limits = s.shareLimits(event); r.limits != nil {
		f.control.Share, f.control.Sharing, f.control.Budgets = r.limits.Attach, s.sharing, r.limits
	}
	f.control.Circuits = r.circuits
	r.control = control.New(f.control, snap)
	r.circuits.OnResumed(r.control.CircuitResumed)
	r.presence = natsio.NewPresence(f.presence)
	f.shards.Front, f.shards.Control, f.shards.Circuits = r.front, r.control, r.circuits
	queues.Set = shard.NewSet(f.shards)
	s.link.Lock()
	r.shards = queues.Set
	r.shards.SetOffline(s.link.offline)
	s.link.Unlock()
	var lender guard.Fleet // nil if nothing is shared
	if r.limits != nil {
		lender = r.limits
	}
	r.guard = guard.New(guard.Options{
		Now: s.now, Gates: r.control.Gates(), Circuits: r.circuits, Rules: r.control.Rules, Tables: r.control.Guards, ExpiredFails: r.control.ExpiredFails,
		Notify: control.Tell, Keep: r.control.KeepCall, MaxPayload: d.nc.MaxPayload, Signer: signer, Metrics: s.metrics,
		Log: s.limited, Event: event, Forward: s.forward, SharesLimits: s.shared.SharesThrottle, Fleet: lender,
		Caps: guard.Caps{
			Permits: s.cfg.Limits.MaxGuardPermits, KeyPermits: s.cfg.Limits.MaxGuardKeyPermits, CallerPermits: s.cfg.Limits.MaxGuardCallerPermits,
			ThrottleKeys: s.cfg.Limits.MaxThrottleKeys, Circuits: s.cfg.Limits.MaxCircuits,
		},
	})
	f.admin.Limits = s.nearLimits
	if r.fleet != nil {
		f.admin.SharedAway, f.admin.Shares = r.fleet.Away, &s.shared
	}
	f.admin.Shards, f.admin.Control, f.admin.Circuits, f.admin.Permits = r.shards, r.control, r.circuits, r.guard
	r.admin = admin.New(f.admin)
	return nil
}

// setOffline also tells the queues, which then release what they hold for deliveries that cannot go
// out.
func (s *Server) setOffline(offline bool) {
	s.link.Lock()
	defer s.link.Unlock()
	s.link.offline = offline
	if s.parts.shards != nil {
		s.parts.shards.SetOffline(offline)
	}
}

// start starts everything in order. Nothing is accepted before all stored data is loaded, and
// nothing is delivered before acks can arrive.
func (s *Server) start(ctx context.Context) error {
	snap, err := s.storage.kept(ctx)
	if err != nil {
		return err
	}
	if err := s.build(snap); err != nil {
		return err
	}
	if err := s.storage.recover(ctx, snap); err != nil {
		return err
	}
	r := &s.parts
	// Both write, which is possible after recovery only.
	if err := r.control.Save(); err != nil {
		return err
	}
	if err := r.control.Start(s.cfg); err != nil {
		return err
	}
	s.connectMetrics()
	r.shards.Start()
	if err := s.connected(ctx); err != nil {
		return err
	}
	if err := s.startFleet(ctx); err != nil {
		return err
	}
	if err := r.front.ServeAcks(r.shards); err != nil {
		return err
	}
	if err := r.shards.Serve(); err != nil {
		return err
	}
	if err := s.storage.join(ctx); err != nil {
		return err
	}
	var verbs []natsio.Verb
	for _, v := range r.admin.Verbs() {
		verbs = append(verbs, natsio.Verb{AnyVerb: v, Waits: v.Waits, Do: v.Do})
	}
	if err := r.front.ServeRequests(r.shards, s.version, verbs); err != nil {
		return err
	}
	calls := r.guard.Verbs()
	if s.cfg.Cluster.Enabled { // any node may answer for a permit of another one
		calls = r.guard.SharedVerbs()
	}
	if err := r.front.ServeGuard(r.shards, calls); err != nil {
		return err
	}
	return s.joinGuard()
}

// connected waits for the first connection to NATS, and until no other fila serves the prefix.
func (s *Server) connected(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.killed, cancel)()
	if err := natsio.WaitConnected(ctx, s.endpoints.nc); err != nil {
		return err
	}
	return s.parts.presence.Begin(ctx)
}

// stop stops the node: it stops accepting messages, waits for leases if graceful, writes everything
// and closes.
func (s *Server) stop(graceful bool) {
	s.draining.Store(true)
	s.stopPages()
	r := &s.parts
	if r.shards != nil {
		var drain time.Duration
		if graceful {
			drain = time.Duration(s.cfg.DrainTimeoutMs) * time.Millisecond
		}
		r.presence.Drain(drain)
		if graceful {
			s.leave()
		}
		s.drain(graceful)
		r.front.StopAcks()
		r.guard.Stop()
		r.control.CloseCalls()
		r.shards.End()
		r.circuits.Stop()
		s.releaseLimits()
		if r.fleet != nil {
			r.fleet.Stop()
		}
		r.control.Stop()
		r.front.StopRequests()
	}
	s.close()
	s.log.Info("stopped")
}

// leave hands over what other nodes take over.
func (s *Server) leave() {
	ctx, cancel := context.WithTimeout(s.killed, time.Duration(s.cfg.DrainTimeoutMs)*time.Millisecond)
	defer cancel()
	s.storage.leave(ctx)
}

// drain stops accepting messages and, if graceful, waits for messages on their way and for leases.
func (s *Server) drain(graceful bool) {
	r := &s.parts
	r.front.LeaveGuard()
	r.shards.Drain()
	if !graceful {
		return
	}
	ctx, cancel := context.WithTimeout(s.killed, time.Duration(s.cfg.DrainTimeoutMs)*time.Millisecond)
	defer cancel()
	s.log.Info("stopping: no new messages, waiting for leases", "drain_timeout_ms", s.cfg.DrainTimeoutMs)
	select {
	case <-r.front.Detach(r.shards.Queues()...):
	case <-ctx.Done():
	}
	r.shards.Settle(ctx)
	r.guard.Drain(ctx)
}

// close closes everything that open has opened.
func (s *Server) close() {
	d := &s.endpoints
	s.stopPages()
	// The last commit sends the last replies, so the store is closed before the connection is flushed.
	if err := s.storage.close(); err != nil {
		s.log.Error("close the store", "error", err)
	}
	s.stopExporter()
	if d.nc != nil {
		natsio.Disconnect(d.nc, s.log)
	}
	if d.shared != nil {
		natsio.Disconnect(d.shared, s.log)
	}
	if d.embedded != nil {
		d.embedded.Shutdown()
		d.embedded.WaitForShutdown()
	}
	if d.http != nil {
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		defer cancel()
		d.http.Stop(ctx)
	}
}
