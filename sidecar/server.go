package sidecar

import (
	"context"
	crand "crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
)

// Server is one sidecar. Make it with [New] and run it once.
type Server struct {
	cfg     Config
	version string
	core    *core
	queues  registry

	admin     sync.Mutex // creating and deleting queues; guards nextQueue
	nextQueue store.QueueID

	reloading reloading
	throttles throttles
	pauses    pauses

	embedded *server.Server
	service  micro.Service
	replies  []*nats.Subscription // ack and nack subjects
	http     *httpServer

	ready    chan struct{}
	started  atomic.Bool
	killed   chan struct{}
	killOnce sync.Once
	failure  chan error
	httpAddr string
	announce io.Writer
}

// New checks cfg and prepares a server; it opens nothing yet. version is what
// the NATS micro service reports, a semantic version.
func New(cfg Config, log *slog.Logger, version string) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	subjects, err := wire.NewSubjects(cfg.NATS.SubjectPrefix)
	if err != nil {
		return nil, fmt.Errorf("nats.subject_prefix: %w", err)
	}
	s := &Server{
		cfg:      cfg,
		version:  version,
		ready:    make(chan struct{}),
		killed:   make(chan struct{}),
		failure:  make(chan error, 1),
		announce: os.Stderr,
	}
	s.core = &core{
		cfg: cfg, log: log, clock: newClock(), subjects: subjects, metrics: newMetrics(), refusals: &refusals{}, pacing: defaultPacing,
		fatal: func(err error) {
			select {
			case s.failure <- err:
			default: // the first cause is the one that counts
			}
		},
	}
	for i := range cfg.Queues {
		if err := s.checkHooks(&cfg.Queues[i]); err != nil {
			return nil, err
		}
	}
	var seed [8]byte
	if _, err := crand.Read(seed[:]); err != nil {
		return nil, fmt.Errorf("random source: %w", err)
	}
	s.core.leaseIDs.Store(binary.LittleEndian.Uint64(seed[:]))
	return s, nil
}

// Ready is closed when every queue can be published to and consumed from.
func (s *Server) Ready() <-chan struct{} { return s.ready }

// ClientURL is the URL at which clients reach NATS. It is known once Ready is
// closed.
func (s *Server) ClientURL() string {
	if s.embedded != nil {
		return s.embedded.ClientURL()
	}
	return s.core.nc.ConnectedUrlRedacted()
}

// HTTPAddr is the bound address of the HTTP listener, empty if it is off. It is
// known once Ready is closed.
func (s *Server) HTTPAddr() string { return s.httpAddr }

// Kill makes a shutdown stop waiting: for leases, for messages on their way.
// What is confirmed stays on disk all the same.
func (s *Server) Kill() { s.killOnce.Do(func() { close(s.killed) }) }

// Run serves until ctx ends, and then shuts down in order: it stops taking,
// lets leases settle for up to drain_timeout, writes the rest and closes. It
// returns nil after that, or the error that kept it from starting or going on.
func (s *Server) Run(ctx context.Context) error {
	if err := s.open(); err != nil {
		return err
	}
	err := s.serve(ctx)
	if stopErr := s.stop(err == nil); err == nil {
		err = stopErr
	}
	return err
}

// open takes the data directory and the listeners. It leaves nothing open when
// it fails.
func (s *Server) open() (err error) {
	if err := os.MkdirAll(s.cfg.DataDir, 0o750); err != nil {
		return fmt.Errorf("data_dir: %w", err)
	}
	c := s.core
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	st, err := store.Open(s.cfg.StorePath(), store.Options{
		Locked:         s.listen,
		ReadCacheBytes: readCache(s.cfg.Store.ReadCacheBytes),
		Logger:         c.log,
		Now:            c.clock.Now,
		OnCommit: func(cs store.CommitStats) {
			c.metrics.commitDuration.Observe(cs.Duration.Seconds())
			c.metrics.commitBatch.Observe(float64(cs.Batches))
		},
	})
	if errors.Is(err, store.ErrLocked) {
		return fmt.Errorf("data_dir %s is in use by another fila process: stop that one, or give this one a data_dir of its own", s.cfg.DataDir)
	}
	if err != nil {
		return err
	}
	c.store = st
	if s.cfg.NATS.URL == "" {
		if s.embedded, err = startEmbedded(s.cfg.NATS.Embedded, c.log); err != nil {
			return err
		}
	}
	c.nc, err = connectNATS(s.cfg.NATS, s.embedded, c.log, s.onDisconnect, s.onReconnect)
	return err
}

// listen starts the HTTP listener as soon as the data directory is ours: whoever
// watches the process can reach it while a large file is read.
func (s *Server) listen() (err error) {
	if s.http != nil || s.cfg.HTTP.Addr == "" {
		return nil
	}
	h := newHTTP(s.cfg.HTTP.Addr, s.cfg.HTTP.Pprof, s.core.metrics, s.readiness, s.core.log)
	if s.httpAddr, err = h.start(); err != nil {
		return err
	}
	s.http = h
	return nil
}

// readCache translates "0: none" of the configuration for the store, where 0 is
// the default.
func readCache(bytes int64) int64 {
	if bytes == 0 {
		return -1
	}
	return bytes
}

// onDisconnect also lets queues look: what they hold for deliveries that cannot go
// out now is given back.
func (s *Server) onDisconnect() {
	s.core.offline.Store(true)
	s.pokeAll()
}

func (s *Server) onReconnect() {
	s.core.offline.Store(false)
	s.pokeAll()
}

// pokeAll lets every queue look again at what it may deliver.
func (s *Server) pokeAll() {
	for _, q := range s.queues.all() {
		q.mail.poke()
	}
}

// readiness says why the server is not ready, or nil.
func (s *Server) readiness() error {
	c := s.core
	switch {
	case c.draining.Load():
		return errors.New("draining")
	case !s.started.Load():
		return errors.New("starting")
	case c.store.Err() != nil:
		return c.store.Err()
	case c.offline.Load():
		return errors.New("not connected to NATS")
	}
	return nil
}

// serve recovers, starts and waits for the end.
func (s *Server) serve(ctx context.Context) error {
	if err := s.start(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		if failed := s.core.store.Err(); failed != nil {
			return storeFailed(failed) // whichever step of the start met it
		}
		return err
	}
	s.started.Store(true)
	close(s.ready)
	http := s.httpAddr
	if http == "" {
		http = "off"
	}
	dir, err := filepath.Abs(s.cfg.DataDir)
	if err != nil {
		dir = s.cfg.DataDir
	}
	if _, err := fmt.Fprintf(s.announce, "fila is ready: nats=%s http=%s data_dir=%s\n", s.ClientURL(), http, dir); err != nil {
		s.core.log.Debug("announce", "error", err)
	}
	select {
	case <-ctx.Done():
		return nil
	case <-s.core.store.Failed():
		return storeFailed(s.core.store.Err())
	case err := <-s.failure:
		return err
	}
}

func (s *Server) start(ctx context.Context) error {
	c := s.core
	snap, err := c.store.Snapshot()
	if err != nil {
		return err
	}
	if c.signer, err = wire.NewSigner(snap.Secret); err != nil {
		return err
	}
	s.nextQueue = snap.NextQueueID
	c.config = newRuntimeConfig(snap.Config)
	c.circuits = newCircuits(c)
	c.circuits.restore(snap.Config, c.clock.Now())
	if err := s.startThrottles(snap); err != nil {
		return err
	}
	c.hold = func(q *queue, key string, until int64) { s.holdKey(q, key, until) }
	loops, err := s.recover(snap)
	if err != nil {
		return err
	}
	s.queues.update(func(m map[string]*queue) {
		for _, r := range loops {
			m[r.q.name] = r.q
		}
	})
	if err := s.saveStart(); err != nil {
		return err
	}
	if err := s.startRules(); err != nil {
		return err
	}
	c.metrics.setDepth(s.gauges)
	c.metrics.setSync(s.countHooks)
	for _, r := range loops {
		r.q.start(r.loop)
	}
	if err := s.connected(ctx); err != nil {
		return err
	}
	// Acks before deliveries: the server must know the reply subjects when the
	// first message goes out.
	if err := s.subscribeReplies(); err != nil {
		return err
	}
	if err := s.flush(); err != nil {
		return err
	}
	c.serving.Store(true)
	s.pokeAll()
	for _, q := range s.queues.all() {
		if err := s.subscribe(q); err != nil {
			return err
		}
	}
	if err := s.declare(); err != nil {
		return err
	}
	if err := s.serveAdmin(); err != nil {
		return err
	}
	return s.flush()
}

// connected waits for the first connection to an external NATS.
func (s *Server) connected(ctx context.Context) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !s.core.nc.IsConnected() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		case <-s.killed:
			return errors.New("stopped")
		}
	}
	return nil
}

// flushTimeout bounds the wait for the server to have taken subscriptions.
const flushTimeout = 10 * time.Second

// flush waits until the NATS server has taken what was sent to it.
func (s *Server) flush() error {
	ctx, cancel := context.WithTimeout(context.Background(), flushTimeout)
	defer cancel()
	if err := s.core.nc.FlushWithContext(ctx); err != nil {
		return fmt.Errorf("flush to NATS: %w", err)
	}
	return nil
}

// subscribe starts the intake of a queue. Dead letter queues take nothing, but
// answer producers who try.
func (s *Server) subscribe(q *queue) error {
	handler := q.intake.onMessage
	if q.isDLQ() {
		handler = func(m *nats.Msg) { s.core.refuse(q, m.Reply, wire.NotForDLQ("enqueue", q.name)) }
	}
	sub, err := s.core.nc.Subscribe(s.core.subjects.Enqueue(q.name), handler)
	if err != nil {
		return fmt.Errorf("subscribe to enqueues of %s: %w", q.name, err)
	}
	q.sub = sub
	return unlimited(sub)
}

func (s *Server) subscribeReplies() error {
	c := s.core
	for subject, parse := range map[string]parseReply{
		c.subjects.AckWildcard():  wire.ParseAck,
		c.subjects.NackWildcard(): wire.ParseNack,
	} {
		sub, err := c.nc.Subscribe(subject, s.onReply(parse))
		if err != nil {
			return fmt.Errorf("subscribe to %s: %w", subject, err)
		}
		if err := unlimited(sub); err != nil {
			return err
		}
		s.replies = append(s.replies, sub)
	}
	return nil
}

// unlimited lifts the client library's limits: beyond them it drops messages
// silently. What is too much is refused by the intake, with an answer.
func unlimited(sub *nats.Subscription) error {
	if err := sub.SetPendingLimits(-1, -1); err != nil {
		return fmt.Errorf("pending limits of %s: %w", sub.Subject, err)
	}
	return nil
}
