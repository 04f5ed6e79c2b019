package sidecar

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/filaq/fila/sidecar/telemetry"
	"github.com/filaq/fila/sidecar/web"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// listen starts the HTTP listener as soon as the data directory is locked, so that health checks
// work while a large file is read. The parts that the pages ask are built later.
func (s *Server) listen() (err error) {
	d := &s.endpoints
	if d.http != nil || s.cfg.HTTP.Addr == "" {
		return nil
	}
	c := &s.cfg.HTTP
	queues := func(req api.QueueListRequest) (api.QueueList, *wire.Error) { return s.parts.admin.Queues(req) }
	pages, err := web.New(web.Options{
		Log: s.limited, HTTP: *c, Version: s.version, Serving: s.serving, Do: s.do, Queues: queues, Guard: s.askGuard, Here: s.here, Events: s.events, Needs: s.subjects.Wildcard(wire.KindEvent), Clustered: s.cfg.Cluster.Enabled,
	})
	if err != nil {
		return err
	}
	o := telemetry.HTTPOptions{
		Log: s.limited, Addr: c.Addr, Profiles: c.Pprof, Metrics: s.metrics, Ready: s.readiness, Wanted: s.wanted, Pages: pages, Cert: c.TLS.Cert, Key: c.TLS.Key,
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

// serving returns why verbs cannot be carried out for the pages, or nil.
func (s *Server) serving() error {
	switch {
	case s.draining.Load():
		return errors.New("it is stopping")
	case !s.started.Load():
		return errors.New("it is starting")
	}
	return nil
}

// do carries out a verb for the pages, like a request over NATS.
func (s *Server) do(by api.Sender, verb, tail string, body []byte) ([]byte, *wire.Error) {
	for _, v := range s.parts.admin.Verbs() {
		if v.String() == verb {
			return v.Do(by, tail, body)
		}
	}
	return nil, wire.BadSubject(verb)
}

// wanted answers for an autoscaler, in a cluster from the owner of the queue.
func (s *Server) wanted(queue string, horizon time.Duration) (reply api.QueueWanted, err error) {
	if err := s.serving(); err != nil {
		return reply, err
	}
	body, err := json.Marshal(api.QueueWantedRequest{HorizonMs: horizon.Milliseconds()})
	if err != nil {
		return reply, err
	}
	body, refused := s.do(api.Sender{Client: "scale"}, api.VerbQueueWanted.Name, queue, body)
	if refused != nil {
		return reply, refused
	}
	return reply, json.Unmarshal(body, &reply)
}

// askGuard carries out a guard verb for the pages.
func (s *Server) askGuard(verb, tail string, body []byte) ([]byte, *wire.Error) {
	verbs := s.parts.guard.Verbs()
	if s.cfg.Cluster.Enabled {
		verbs = s.parts.guard.SharedVerbs()
	}
	do, ok := verbs[verb]
	if !ok {
		return nil, wire.BadSubject(verb)
	}
	reply := do(tail, body, api.GuardOrigin{})
	if reply.Later != nil {
		reply = reply.Later()
	}
	return reply.Body, reply.Err
}

// here returns the state of this node for the pages.
func (s *Server) here() web.Node {
	n := web.Node{Store: s.storage.bytes()}
	var err error
	if n.State, err = s.readiness(); err != nil {
		n.State = err.Error()
	}
	n.Ready = err == nil
	if d := s.parts.shards.Disk(); d != nil {
		n.DiskKnown, n.DiskLow, n.DiskFree = true, d.Low, d.Free
	}
	return n
}

// events passes on all events under the subject prefix, including events of other nodes.
func (s *Server) events(each func(event []byte), refused func(error)) (stop func(), err error) {
	sub, err := s.endpoints.nc.SubscribeSync(s.subjects.Wildcard(wire.KindEvent))
	if err != nil {
		return nil, err
	}
	go func() {
		for {
			m, err := sub.NextMsg(time.Minute)
			switch {
			case err == nil:
				each(m.Data)
			case errors.Is(err, nats.ErrTimeout), errors.Is(err, nats.ErrSlowConsumer): // some events are lost
			default: // for instance, it was unsubscribed
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

// stopPages stops the pages, if they are running. It may be called again.
func (s *Server) stopPages() {
	if s.endpoints.web == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	s.endpoints.web.Stop(ctx)
}
