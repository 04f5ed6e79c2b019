package sidecar

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
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
	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/sidecar/shard"
	"github.com/filaq/fila/sidecar/telemetry"
	"github.com/filaq/fila/sidecar/web"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
)

// ErrAnotherFila is returned when another fila serves the same subject prefix.
var ErrAnotherFila = natsio.ErrAnotherFila

// closeTimeout bounds the end of the HTTP listener, which has no reason to wait.
const closeTimeout = 5 * time.Second

// Server is one sidecar. Make it with [New] and run it once.
type Server struct {
	cfg      config.Config
	shared   config.SharedConfig // what is shared with others
	version  string
	log      *slog.Logger // of start, stop and store, which clients cannot flood
	limited  *slog.Logger // of the rooms
	now      func() int64
	subjects wire.Subjects
	metrics  *telemetry.Metrics

	base  base
	doors doors // what reaches outside
	rooms rooms
	link  struct {
		sync.Mutex      // also for rooms.shards until start is over
		offline    bool // disconnected from NATS
	}

	ready    chan struct{}
	started  atomic.Bool
	draining atomic.Bool
	killed   context.Context // ended by kill
	kill     context.CancelFunc
	announce io.Writer
}

// doors are what a node opens and closes, in this order; nil: not open.
type doors struct {
	http     *telemetry.HTTP
	web      *web.Web
	httpAddr string
	exporter *otlp.Exporter // to a collector of OpenTelemetry
	embedded *natsio.Embedded
	nc       *nats.Conn
	shared   *nats.Conn // of what filas share
}

// rooms are what a node is made of, from the start on.
type rooms struct {
	fleet    *fleet.Sync   // nil: nothing is shared
	limits   *limit.Limits // nil as well
	circuits *circuit.Registry
	control  *control.Control
	shards   *shard.Set
	front    *natsio.Front
	presence *natsio.Presence
	admin    *admin.Admin
	guard    *guard.Service
}

// New checks cfg and prepares a server; it opens nothing yet. version is what the
// NATS micro service reports, a semantic version.
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
	if s.base, err = newBase(s); err != nil {
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

func hookDefaults(lua *config.LuaConfig) shard.HookDefaults {
	return shard.HookDefaults{
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

// Check reads the files that the configuration names and a start would read: tokens,
// certificates, credentials, users. It opens no store and no connection, and makes nothing.
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

// ClientURL is the URL at which clients reach NATS. It is known once Ready is
// closed.
func (s *Server) ClientURL() string {
	if s.doors.embedded != nil {
		return s.doors.embedded.ClientURL()
	}
	return s.doors.nc.ConnectedUrlRedacted()
}

// HTTPAddr is the bound address of the HTTP listener, empty if it is off. It is
// known once Ready is closed.
func (s *Server) HTTPAddr() string { return s.doors.httpAddr }

// Kill makes a shutdown stop waiting: for leases, for messages on their way. What is
// confirmed stays on disk all the same.
func (s *Server) Kill() { s.kill() }

// Reload reads the configuration file again and puts it in force: all of it, or
// nothing if anything is wrong. What has changed is in the log. The error is one
// line.
func (s *Server) Reload() error {
	switch {
	case s.draining.Load():
		return errors.New("fila is stopping")
	case !s.started.Load():
		return errors.New("fila is still starting")
	}
	if _, werr := s.rooms.control.Reload(context.Background()); werr != nil {
		return werr
	}
	return nil
}

// Run serves until ctx ends, and then shuts down in order: it stops taking, lets
// leases settle for up to drain_timeout, writes the rest and closes. It returns nil
// after that, or the error that kept it from starting or going on.
func (s *Server) Run(ctx context.Context) error {
	if err := s.open(); err != nil {
		return err
	}
	err := s.serve(ctx)
	s.stop(err == nil)
	return err
}

// open takes the data directory and the listeners. It leaves nothing open when it
// fails.
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
	if err = s.base.open(); err != nil {
		return err
	}
	if err = s.startExporter(); err != nil {
		return err
	}
	d := &s.doors
	if s.cfg.NATS.URL == "" {
		if d.embedded, err = natsio.StartEmbedded(s.cfg.EmbeddedServer(), s.limited); err != nil {
			return err
		}
	}
	var opts []nats.Option
	if s.cfg.Cluster.Enabled { // the log of an owner may be well while its clients are cut off
		opts = append(opts, natsio.PingOften())
	}
	d.nc, err = natsio.Connect(s.cfg.NATS, d.embedded, s.limited, func() { s.setOffline(true) }, func() { s.setOffline(false) }, opts...)
	return err
}

// tryPorts says which port of the configuration is busy, so that a start which fails
// because of it makes no data directory. A directory that is there may be that of the
// fila which has the ports; then the store says so.
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

// listen starts the HTTP listener as soon as the data directory is ours: whoever
// watches the process can reach it while a large file is read.
func (s *Server) listen() (err error) {
	d := &s.doors
	if d.http != nil || s.cfg.HTTP.Addr == "" {
		return nil
	}
	c := &s.cfg.HTTP
	pages, err := web.New(web.Options{
		Log: s.limited, HTTP: *c, Version: s.version, Serving: s.serving, Do: s.do, Queues: s.queues, Guard: s.askGuard, Here: s.here, Events: s.events, Needs: s.subjects.EventWildcard(), Clustered: s.cfg.Cluster.Enabled,
	})
	if err != nil {
		return err
	}
	o := telemetry.HTTPOptions{
		Log: s.limited, Addr: c.Addr, Profiles: c.Pprof, Metrics: s.metrics, Ready: s.readiness, Pages: pages, Cert: c.TLS.Cert, Key: c.TLS.Key,
	}
	if c.MetricsToken {
		o.Guard = pages.Guarded
	}
	h := telemetry.NewHTTP(o)
	if d.httpAddr, err = h.Start(); err != nil {
		return err
	}
	d.http, d.web = h, pages
	pages.Start()
	return nil
}

// serving says why verbs cannot be carried out for pages; nil: they can.
func (s *Server) serving() error {
	switch {
	case s.draining.Load():
		return errors.New("it is stopping")
	case !s.started.Load():
		return errors.New("it is starting")
	}
	return nil
}

// do carries out a verb for the pages, as for those who ask over NATS.
func (s *Server) do(verb, client, tail string, body []byte) ([]byte, *wire.Error) {
	for _, v := range s.rooms.admin.Verbs() {
		if v.String() == verb {
			return v.Do(client, tail, body)
		}
	}
	return nil, wire.BadSubject(verb)
}

// queues lists queues for the pages.
func (s *Server) queues(req wire.QueueListRequest) (wire.QueueList, *wire.Error) {
	return s.rooms.admin.Queues(req)
}

// askGuard carries out a verb of the guard for the pages: one that needs not wait.
func (s *Server) askGuard(verb, tail string, body []byte) ([]byte, *wire.Error) {
	verbs := s.rooms.guard.Verbs()
	if s.cfg.Cluster.Enabled {
		verbs = s.rooms.guard.SharedVerbs()
	}
	do, ok := verbs[verb]
	if !ok {
		return nil, wire.BadSubject(verb)
	}
	reply, _, err, later := do(tail, body, wire.GuardOrigin{})
	if later != nil {
		reply, _, err = later()
	}
	return reply, err
}

// here is how this node stands, for the pages.
func (s *Server) here() web.Node {
	n := web.Node{Store: s.base.bytes()}
	var err error
	if n.State, err = s.readiness(); err != nil {
		n.State = err.Error()
	}
	n.Ready = err == nil
	if d := s.rooms.shards.Disk(); d != nil {
		n.DiskKnown, n.DiskLow, n.DiskFree = true, d.Low, d.Free
	}
	return n
}

// events hands all events under our prefix on, those of other nodes as well.
func (s *Server) events(each func(event []byte), refused func(error)) (stop func(), err error) {
	sub, err := s.doors.nc.SubscribeSync(s.subjects.EventWildcard())
	if err != nil {
		return nil, err
	}
	go func() {
		for {
			m, err := sub.NextMsg(time.Minute)
			switch {
			case err == nil:
				each(m.Data)
			case errors.Is(err, nats.ErrTimeout), errors.Is(err, nats.ErrSlowConsumer): // of which some are missing
			default: // that it was unsubscribed among them
				refused(err)
				return
			}
		}
	}()
	return func() {
		if err := sub.Unsubscribe(); err != nil {
			s.log.Debug("unsubscribe from events", "error", err)
		}
	}, nil
}

// readCache translates "0: none" of the configuration for the store, where 0 is the
// default.
func readCache(bytes int64) int64 {
	if bytes == 0 {
		return -1
	}
	return bytes
}

// readiness says in which state a server serves, or why it does not.
func (s *Server) readiness() (state string, err error) {
	switch {
	case s.draining.Load():
		return "", errors.New("draining")
	case !s.started.Load():
		return "", errors.New("starting")
	case s.rooms.shards.Offline():
		return "", errors.New("not connected to NATS")
	}
	if state, err = s.base.health(); err != nil {
		return "", err
	}
	if stuck := s.rooms.shards.Stuck(); len(stuck) > 0 {
		return "", errors.New(stuck[0])
	}
	if d := s.rooms.shards.Disk(); d != nil && d.Low {
		return fmt.Sprintf("degraded: the disk is nearly full (%d bytes are free, store.min_free_bytes is %d): no messages are taken", d.Free, d.MinFree), nil
	}
	return state, nil
}

// serve recovers, starts and waits for the end.
func (s *Server) serve(ctx context.Context) error {
	if err := s.start(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		if sh := s.rooms.shards; sh != nil && sh.Err() != nil {
			return sh.Err() // whichever step of the start met it
		}
		return err
	}
	s.started.Store(true)
	close(s.ready)
	s.sayReady()
	for {
		select {
		case <-ctx.Done():
			return nil
		case failed := <-s.rooms.shards.Failed():
			if err := s.base.lost(failed); err != nil {
				return err
			}
		case err := <-s.base.over():
			return err
		case err := <-s.rooms.presence.Conflict():
			return err
		}
	}
}

func (s *Server) sayReady() {
	http := s.doors.httpAddr
	if http == "" {
		http = "off"
	}
	dir, err := filepath.Abs(s.cfg.DataDir)
	if err != nil {
		dir = s.cfg.DataDir
	}
	if s.cfg.Log.Format == "json" {
		// Whatever the level of the log: scripts wait for it.
		slog.New(telemetry.EventLog(slog.NewJSONHandler(s.announce, nil))).Info("fila is ready", "nats", s.ClientURL(), "http", http, "data_dir", dir)
		return
	}
	if _, err := fmt.Fprintf(s.announce, "fila is ready: nats=%s http=%s data_dir=%s\n", s.ClientURL(), http, dir); err != nil {
		s.log.Debug("announce", "error", err)
	}
}

// furniture is what the rooms are made with.
type furniture struct {
	front    natsio.Options
	circuits circuit.Options
	control  control.Options
	presence natsio.PresenceOptions
	shards   shard.Options
	admin    admin.Options
}

// build makes the rooms of what is kept.
func (s *Server) build(snap store.Snapshot) error {
	signer, err := wire.NewSigner(snap.Secret)
	if err != nil {
		return err
	}
	d, r := &s.doors, &s.rooms
	event := natsio.Events(d.nc, s.subjects, s.now, s.limited)
	if d.embedded != nil {
		d.embedded.OnCut(func(c natsio.CutClient) {
			s.metrics.ClientCut(c.Reason)
			event(wire.EventClientCut, wire.KeyInBody, wire.Event{Data: map[string]any{
				"reason": c.Reason, "user": c.User, "client": c.Client, "address": c.Address,
			}})
		})
	}
	if r.fleet, err = s.joinFleet(event); err != nil {
		return err
	}
	// Control and shards need each other; neither is asked before both are there.
	var queues struct{ *shard.Set }
	f := furniture{
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
			Space: func() (store.Space, bool) { return store.SpaceOf(s.cfg.DataDir) }, MinFreeBytes: s.cfg.Store.MinFreeBytes,
			Hooks: hookDefaults(&s.cfg.Lua), Pacing: queue.DefaultPacing, Killed: s.killed.Done(),
		},
		admin: admin.Options{Log: s.limited, DataDir: s.cfg.DataDir},
	}
	if r.fleet != nil {
		f.circuits.Fleet, f.circuits.Kin, f.circuits.Conflict = r.fleet, r.fleet.Kin, s.tellCircuitConflict(event)
	}
	if s.doors.exporter != nil && s.cfg.OTel.Sampling != config.SamplingOff {
		f.front.Tracer, f.shards.Tracer = s.doors.exporter, s.doors.exporter
	}
	s.base.furnish(&f)
	r.front = natsio.New(f.front)
	r.circuits = circuit.New(f.circuits)
	r.circuits.Restore(snap.Config)
	if r.limits = s.shareLimits(event); r.limits != nil {
		f.control.Share, f.control.Sharing = r.limits.Attach, s.sharing
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
	var lender guard.Fleet // nil where nothing is shared
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
	f.admin.Shards, f.admin.Control, f.admin.Circuits, f.admin.Permits = r.shards, r.control, r.circuits, r.guard
	r.admin = admin.New(f.admin)
	return nil
}

// caps are the limits of what others name.
func caps(l *config.LimitsConfig) shard.Caps {
	return shard.Caps{
		ThrottleKeys: l.MaxThrottleKeys, Circuits: l.MaxCircuits, RateKeys: l.MaxRateKeys, DedupeIDs: l.MaxDedupeIDs, Consumers: l.MaxConsumers,
		Fetches: l.MaxFetches, ConsumerFetches: l.MaxConsumerFetches,
		Schedules: l.MaxSchedules, EnqueuedSchedules: l.MaxEnqueuedSchedules,
	}
}

// limits are the caps with what there is of each.
func (s *Server) limits() []telemetry.Limit {
	most, used := caps(&s.cfg.Limits), s.rooms.shards.Usage()
	return []telemetry.Limit{
		{Name: "max_throttle_keys", Used: used.ThrottleKeys, Max: most.ThrottleKeys},
		{Name: "max_circuits", Used: used.Circuits, Max: most.Circuits},
		{Name: "max_rate_keys", Used: used.RateKeys, Max: most.RateKeys},
		{Name: "max_dedupe_ids", Used: used.DedupeIDs, Max: most.DedupeIDs},
		{Name: "max_consumers", Used: used.Consumers, Max: most.Consumers},
		{Name: "max_fetches", Used: used.Fetches, Max: most.Fetches},
		{Name: "max_schedules", Used: used.Schedules, Max: most.Schedules},
		{Name: "max_enqueued_schedules", Used: used.EnqueuedSchedules, Max: most.EnqueuedSchedules},
		{Name: "max_guard_permits", Used: int64(s.rooms.guard.Live()), Max: s.cfg.Limits.MaxGuardPermits},
	}
}

// maxNamedCircuits is how many circuits are named in metrics beside those that the
// configuration names.
const maxNamedCircuits = 100

// circuitStates is how the circuits stand, for metrics.
func (s *Server) circuitStates() (c telemetry.Circuits) {
	others := maxNamedCircuits
	if len(s.cfg.HTTP.MetricsCircuits) == 0 {
		others = 0
	}
	for _, one := range s.rooms.circuits.States(others, s.cfg.HTTP.NamesCircuit) {
		state := telemetry.CircuitState{Key: one.Key, State: one.State.String(), Held: one.Held}
		one.EachTransition(func(from, to breaker.State, n int64) { state.Turns = append(state.Turns, circuitTurn(from, to, n)) })
		c.States = append(c.States, state)
	}
	unwell := s.rooms.circuits.Unwell()
	c.Open, c.HalfOpen, c.Longest = unwell.Open, unwell.HalfOpen, unwell.Longest
	s.rooms.circuits.EachTransition(func(from, to breaker.State, n int64) {
		c.Turns = append(c.Turns, circuitTurn(from, to, n))
	})
	return c
}

func circuitTurn(from, to breaker.State, n int64) telemetry.CircuitTurn {
	return telemetry.CircuitTurn{From: from.String(), To: to.String(), N: n}
}

// maxNamedThrottles is how many throttle keys are named in metrics.
const maxNamedThrottles = 1000

// throttlesHeld is what throttle keys have held back, for metrics.
func (s *Server) throttlesHeld() (list []telemetry.ThrottleHeld) {
	for _, h := range s.rooms.control.Gates().BlockedCounts(maxNamedThrottles) {
		list = append(list, telemetry.ThrottleHeld{Key: wire.ShowKey(h.Key), BlockedBy: h.Kind.String(), N: h.N})
	}
	return list
}

// setOffline also lets queues look: what they hold for deliveries that cannot go out
// now is given back.
func (s *Server) setOffline(offline bool) {
	s.link.Lock()
	defer s.link.Unlock()
	s.link.offline = offline
	if s.rooms.shards != nil {
		s.rooms.shards.SetOffline(offline)
	}
}

// start brings everything about, from the store to the first subscription. Nothing is
// taken before all that is stored is known, and nothing is delivered before fila
// hears the acks.
func (s *Server) start(ctx context.Context) error {
	snap, err := s.base.kept(ctx)
	if err != nil {
		return err
	}
	if err := s.build(snap); err != nil {
		return err
	}
	if err := s.base.recover(ctx, snap); err != nil {
		return err
	}
	r := &s.rooms
	// Both write, and a store wants to be recovered first.
	if err := r.control.Save(); err != nil {
		return err
	}
	if err := r.control.Start(s.cfg); err != nil {
		return err
	}
	s.metrics.SetGauges(r.admin.Gauges)
	s.metrics.SetNode(func() telemetry.Node {
		return telemetry.Node{Connected: s.doors.nc.IsConnected(), StoreBytes: s.base.bytes(), Permits: r.guard.Live()}
	})
	s.metrics.SetDisk(func() (free int64, low, known bool) {
		if d := r.shards.Disk(); d != nil {
			return d.Free, d.Low, true
		}
		return 0, false, false
	})
	s.metrics.SetStuck(func() int { return len(r.shards.Stuck()) })
	s.metrics.SetLimits(s.limits)
	s.metrics.SetCircuits(s.circuitStates)
	s.metrics.SetThrottles(s.throttlesHeld)
	s.metrics.SetSync(r.shards.CountHooks)
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
	if err := s.base.join(ctx); err != nil {
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
	if s.cfg.Cluster.Enabled { // any node answers, whoever gave a permit
		calls = r.guard.SharedVerbs()
	}
	if err := r.front.ServeGuard(r.shards, guardVerbs(calls)); err != nil {
		return err
	}
	return s.joinGuard()
}

// connected waits for the first connection to NATS, and until no other fila serves
// this prefix there.
func (s *Server) connected(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.killed, cancel)()
	if err := natsio.WaitConnected(ctx, s.doors.nc); err != nil {
		return err
	}
	return s.rooms.presence.Begin(ctx)
}

// stop takes the node down: stop taking, let leases settle if it is asked to be
// graceful, write the rest, close.
func (s *Server) stop(graceful bool) {
	s.draining.Store(true)
	s.stopPages()
	r := &s.rooms
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

// stopPages ends the pages, if they have begun. It may be called again.
func (s *Server) stopPages() {
	if s.doors.web == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	s.doors.web.Stop(ctx)
}

// leave gives up what other nodes go on with.
func (s *Server) leave() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(s.cfg.DrainTimeoutMs)*time.Millisecond)
	defer cancel()
	defer context.AfterFunc(s.killed, cancel)()
	s.base.leave(ctx)
}

// drain takes no new messages any more and, if it is asked to be graceful, waits for
// those that are on their way and with consumers.
func (s *Server) drain(graceful bool) {
	r := &s.rooms
	r.front.LeaveGuard()
	r.shards.Drain()
	if !graceful {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(s.cfg.DrainTimeoutMs)*time.Millisecond)
	defer cancel()
	defer context.AfterFunc(s.killed, cancel)()
	s.log.Info("stopping: no new messages, waiting for leases", "drain_timeout_ms", s.cfg.DrainTimeoutMs)
	select {
	case <-r.front.Detach(r.shards.Queues()...):
	case <-ctx.Done():
	}
	r.shards.Settle(ctx)
	r.guard.Drain(ctx)
}

// close ends what open has opened, as far as it is open.
func (s *Server) close() {
	d := &s.doors
	s.stopPages()
	// The last commit sends the last replies, so it comes before the flush.
	if err := s.base.close(); err != nil {
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
