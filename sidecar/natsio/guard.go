package natsio

import (
	"fmt"
	"maps"
	"slices"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/filaq/fila/sidecar/shard"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// ServeGuard adds the guard verbs to the micro service of ServeRequests. They can be reached when
// it returns.
func (f *Front) ServeGuard(s *shard.Set, verbs map[string]api.GuardVerb) error {
	f.watchStandstills()
	return f.serveGuard(f.service, s, f.Subjects, verbs, s.Draining)
}

// JoinGuard answers the guard verbs under a prefix that several filas serve as a queue group.
func (f *Front) JoinGuard(s *shard.Set, version string, common wire.Subjects, verbs map[string]api.GuardVerb) error {
	service, err := micro.AddService(f.Conn, micro.Config{
		Name: wire.GuardServiceName, Version: serviceVersion(version), QueueGroup: wire.GuardServiceName,
		Description: "the guard of several filas",
		Metadata:    map[string]string{"subject_prefix": common.Prefix(), "fila": f.Subjects.Prefix(), "version": version, "schemas": schemaCommand},
	})
	if err != nil {
		return fmt.Errorf("NATS micro service of the common guard: %w", err)
	}
	f.group = service
	// A fila that drains goes on answering until it has left the group.
	return f.serveGuard(service, s, common, verbs, func() bool { return false })
}

// LeaveGuard ends JoinGuard. Requests that have arrived are answered.
func (f *Front) LeaveGuard() {
	if f.group == nil {
		return
	}
	if err := f.group.Stop(); err != nil {
		f.Log.Debug("micro service of the common guard", "error", err)
	}
}

// origin returns what a guard request says besides its body.
func (f *Front) origin(verb string, req micro.Request) (from api.GuardOrigin, err *wire.Error) {
	if verb == api.GuardDone {
		return from, nil // the permit names the caller
	}
	from.User = userOf(req.Headers())
	if verb != api.GuardCheck {
		return from, nil
	}
	now := f.now()
	sent, sure := f.standstill.since(now)
	if from.Until, err = api.GuardUntil(req.Headers().Get, sent); err == nil && from.Until == 0 && !sure {
		from.Until = sent // without a stated timeout it may be a short one
	}
	return from, err
}

func (f *Front) serveGuard(service micro.Service, s *shard.Set, subjects wire.Subjects, verbs map[string]api.GuardVerb, draining func() bool) error {
	for _, name := range slices.Sorted(maps.Keys(verbs)) {
		do := verbs[name]
		handle := func(req micro.Request) {
			tail, ok := subjects.ParseGuard(name, req.Subject())
			switch {
			case !ok:
				f.respondError(req, wire.BadSubject(req.Subject()))
			case req.Reply() == "" && name != api.GuardDone: // nobody would receive the permit
			case draining() && name == api.GuardCheck:
				f.respondError(req, wire.Draining())
			default:
				from, err := f.origin(name, req)
				if err != nil {
					s.Refuse("", err) // counts it
					f.respondError(req, err)
					return
				}
				var traced func([]byte, *wire.Error)
				from.Trace, traced = f.traced(name, tail, req)
				f.guarded(s, req, tail, from, do, traced)
			}
		}
		if err := f.serve(service, s, "guard-"+name, subjects.Guard(name, ">"), schemasOf("guard-"+name, "guard-"+name), handle); err != nil {
			return err
		}
	}
	return f.Flush()
}

// guarded carries out a request. Later requests do not wait for one that has to wait. traced ends
// the span; it may be nil.
func (f *Front) guarded(s *shard.Set, req micro.Request, tail string, from api.GuardOrigin, do api.GuardVerb, traced func(reply []byte, err *wire.Error)) {
	f.calls.RLock()
	reply := do(tail, req.Data(), from)
	if reply.Later == nil {
		defer f.calls.RUnlock()
		if traced != nil {
			traced(reply.Body, reply.Err)
		}
		if reply.Err != nil {
			s.Refuse("", reply.Err) // counts it
			f.respondError(req, reply.Err)
			return
		}
		f.respond(req, reply.Body, micro.WithHeaders(reply.Headers))
		return
	}
	to := req.Reply() // the service uses req after the handler has returned
	go func() {
		defer f.calls.RUnlock()
		reply := reply.Later()
		if traced != nil {
			traced(reply.Body, reply.Err)
		}
		switch {
		case reply.Err != nil:
			s.Refuse(to, reply.Err)
		case to != "":
			if err := f.Conn.PublishMsg(&nats.Msg{Subject: to, Header: reply.Headers, Data: reply.Body}); err != nil {
				f.Log.Debug("reply", "subject", to, "error", err)
			}
		}
	}()
}
