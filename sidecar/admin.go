package sidecar

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/filaq/fila/wire"
)

// adminVerb carries out one admin request and returns the reply.
type adminVerb func(tail string, body []byte) (any, *wire.Error)

// serveAdmin registers the micro service: admin verbs, consume and fetch.
func (s *Server) serveAdmin() error {
	c := s.core
	service, err := micro.AddService(c.nc, micro.Config{
		Name: wire.ServiceName, Version: serviceVersion(s.version),
		Description: "fair scheduling, rate limits and durable queues for NATS",
		Metadata:    map[string]string{"subject_prefix": c.subjects.Prefix()},
	})
	if err != nil {
		return fmt.Errorf("NATS micro service: %w", err)
	}
	s.service = service
	verbs := map[string]adminVerb{
		wire.VerbQueueCreate:  s.queueCreate,
		wire.VerbQueueUpdate:  s.queueUpdate,
		wire.VerbQueueDelete:  s.queueDelete,
		wire.VerbQueueList:    s.queueList,
		wire.VerbQueueInspect: s.queueInspect,
		wire.VerbConfigSet:    s.configSet,
		wire.VerbConfigGet:    s.configGet,
		wire.VerbConfigDelete: s.configDelete,
		wire.VerbConfigList:   s.configList,
		wire.VerbRedrive:      s.redriveVerb,
		wire.VerbHookReset:    s.hookReset,

		wire.VerbThrottleSet:   s.throttleSet,
		wire.VerbThrottleClear: s.throttleClear,
		wire.VerbThrottleShow:  s.throttleShow,
		wire.VerbThrottleList:  s.throttleList,
		wire.VerbCircuitShow:   s.circuitShow,
		wire.VerbCircuitOpen:   s.circuitOpen,
		wire.VerbCircuitClose:  s.circuitClose,
		wire.VerbCircuitReset:  s.circuitReset,
		wire.VerbCircuitList:   s.circuitList,
		wire.VerbPause:         s.pauseVerb,
		wire.VerbResume:        s.resumeVerb,
		wire.VerbPauseList:     s.pauseList,
		wire.VerbConfigLog:     s.configLog,
		wire.VerbReload:        s.reloadVerb,
		wire.VerbExplain:       s.explainVerb,
		wire.VerbStoreBackup:   newBackups(s).verb,
		wire.VerbPeek:          s.peekVerb,
	}
	for _, verb := range slices.Sorted(maps.Keys(verbs)) {
		err := service.AddEndpoint(verb, s.adminHandler(verbs[verb]), micro.WithEndpointSubject(c.subjects.AdminWildcard(verb)),
			micro.WithEndpointPendingLimits(-1, -1))
		if err != nil {
			return fmt.Errorf("endpoint %s: %w", verb, err)
		}
	}
	for kind, e := range map[string]struct {
		subject string
		handle  func(q *queue, req micro.Request) *wire.Error
	}{
		wire.KindConsume: {c.subjects.ConsumeWildcard(), s.consume},
		wire.KindFetch:   {c.subjects.FetchWildcard(), s.fetch},
	} {
		err := service.AddEndpoint(kind, s.queueHandler(kind, e.handle), micro.WithEndpointSubject(e.subject),
			micro.WithEndpointPendingLimits(-1, -1))
		if err != nil {
			return fmt.Errorf("endpoint %s: %w", kind, err)
		}
	}
	return nil
}

var semantic = regexp.MustCompile(`^\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?$`)

// serviceVersion is version as the micro service wants it: a semantic version
// without a leading v. A build that has none is 0.0.0.
func serviceVersion(version string) string {
	if v := strings.TrimPrefix(version, "v"); semantic.MatchString(v) {
		return v
	}
	return "0.0.0"
}

func (s *Server) adminHandler(do adminVerb) micro.Handler {
	return micro.HandlerFunc(func(req micro.Request) {
		if s.foreign(req) {
			return
		}
		_, tail, ok := s.core.subjects.ParseAdmin(req.Subject())
		if !ok {
			s.respondError(req, wire.BadSubject(req.Subject()))
			return
		}
		if s.core.draining.Load() {
			s.respondError(req, wire.Draining(drainRetryAfter))
			return
		}
		reply, werr := do(tail, req.Data())
		if werr != nil {
			s.respondError(req, werr)
			return
		}
		data, err := json.Marshal(reply)
		if err != nil {
			s.respondError(req, wire.Internal(err.Error()))
			return
		}
		s.respond(req, data)
	})
}

// queueHandler handles requests whose subject names a queue and which the
// queue's loop answers.
func (s *Server) queueHandler(kind string, do func(q *queue, req micro.Request) *wire.Error) micro.Handler {
	return micro.HandlerFunc(func(req micro.Request) {
		if s.foreign(req) {
			return
		}
		name, ok := s.core.subjects.ParseTail(kind, req.Subject())
		if !ok {
			s.respondError(req, wire.BadSubject(req.Subject()))
			return
		}
		q := s.queues.get(name)
		switch {
		case s.core.draining.Load():
			s.respondError(req, wire.Draining(drainRetryAfter))
		case q == nil:
			s.respondError(req, wire.QueueNotFound(name))
		default:
			if err := do(q, req); err != nil {
				s.core.metrics.queue(name).refused(err.ErrCode)
				s.respondError(req, err)
			}
		}
	})
}

// foreign refuses a request whose reply would go to fila itself.
func (s *Server) foreign(req micro.Request) bool {
	reply := req.Reply()
	if reply == "" || !s.core.subjects.Owns(reply) {
		return false
	}
	s.refuseUnknown("", wire.BadReplySubject(reply, ownReplyText))
	return true
}

func (s *Server) respond(req micro.Request, data []byte) {
	if req.Reply() == "" {
		return
	}
	if err := req.Respond(data); err != nil {
		s.core.log.Debug("reply", "subject", req.Subject(), "error", err)
	}
}

func (s *Server) respondError(req micro.Request, e *wire.Error) {
	if req.Reply() == "" {
		return
	}
	headers := micro.Headers(e.Headers())
	if err := req.Error(strconv.Itoa(e.Code), e.Description, e.Body(), micro.WithHeaders(headers)); err != nil {
		s.core.log.Debug("reply", "subject", req.Subject(), "error", err)
	}
}

// queue finds the queue that a request names.
func (s *Server) queue(name string) (*queue, *wire.Error) {
	if err := wire.CheckQueueName(name); err != nil {
		return nil, wire.BadQueueName(err)
	}
	if q := s.queues.get(name); q != nil {
		return q, nil
	}
	return nil, wire.QueueNotFound(name)
}

// ordinary finds a queue that is not a dead letter queue.
func (s *Server) ordinary(operation, name string) (*queue, *wire.Error) {
	q, err := s.queue(name)
	if err == nil && q.isDLQ() {
		return nil, wire.NotForDLQ(operation, name)
	}
	return q, err
}

func (s *Server) queueCreate(name string, body []byte) (any, *wire.Error) {
	if err := wire.CheckQueueName(name); err != nil {
		return nil, wire.BadQueueName(err)
	}
	if wire.IsDLQ(name) {
		return nil, wire.ReservedName(name)
	}
	settings, err := s.patch(wire.DefaultQueueSettings(name), body)
	if err != nil {
		return nil, err
	}
	return nilOnError(s.create(settings))
}

func (s *Server) queueUpdate(name string, body []byte) (any, *wire.Error) {
	q, err := s.ordinary("queue-update", name)
	if err != nil {
		return nil, err
	}
	for i := range s.cfg.Queues {
		if s.cfg.Queues[i].Name == name {
			s.core.log.Warn("a queue of the configuration file is changed at run time; the file wins at the next start", "queue", name)
		}
	}
	return nilOnError(s.update(q, func(old wire.QueueSettings) (wire.QueueSettings, *wire.Error) { return s.patch(old, body) }))
}

// patch changes settings as a request says. A retry policy must be one of the
// configuration file, unless the queue has it already.
func (s *Server) patch(old wire.QueueSettings, body []byte) (wire.QueueSettings, *wire.Error) {
	settings, err := old.Patch(body)
	if err != nil {
		return settings, err
	}
	if name := settings.RetryPolicy; name != old.RetryPolicy && !s.core.rules.Load().hasPolicy(name) {
		return old, wire.BadQueueSettings(&wire.SettingError{
			Field: "retry_policy", Value: strconv.Quote(name), Allowed: "allowed is the name of a [[retry_policy]] of the configuration file",
		})
	}
	return settings, nil
}

func nilOnError(settings wire.QueueSettings, err *wire.Error) (any, *wire.Error) {
	if err != nil {
		return nil, err
	}
	return settings, nil
}

func (s *Server) queueDelete(name string, body []byte) (any, *wire.Error) {
	req, err := wire.ParseQueueDelete(body)
	if err != nil {
		return nil, err
	}
	q, err := s.ordinary("queue-delete", name)
	if err != nil {
		return nil, err
	}
	n, err := s.remove(q, req.Force)
	return wire.QueueDeleteReply{Deleted: n}, err
}

func (s *Server) queueList(_ string, body []byte) (any, *wire.Error) {
	req, err := wire.ParseList(body)
	if err != nil {
		return nil, err
	}
	all := s.queues.all()
	list := wire.QueueList{Total: len(all), Queues: []wire.QueueSummary{}}
	for _, q := range page(all, req.Offset, req.Limit) {
		if sum, ok := q.summary(); ok {
			list.Queues = append(list.Queues, sum)
		}
	}
	return list, nil
}

func (s *Server) queueInspect(name string, body []byte) (any, *wire.Error) {
	req, err := wire.ParseQueueInspect(body)
	if err != nil {
		return nil, err
	}
	q, err := s.queue(name)
	if err != nil {
		return nil, err
	}
	info, ok := q.inspect(req.Flows)
	if !ok {
		return nil, q.gone()
	}
	return info, nil
}

func (s *Server) redriveVerb(name string, body []byte) (any, *wire.Error) {
	req, err := wire.ParseRedrive(body)
	if err != nil {
		return nil, err
	}
	q, err := s.queue(name)
	if err != nil {
		return nil, err
	}
	if !q.isDLQ() {
		return nil, wire.OnlyForDLQ("redrive", name)
	}
	n, err := s.redrive(q, req.Count)
	if err != nil {
		return nil, err
	}
	if n == 0 {
		return wire.RedriveReply{}, nil
	}
	s.core.event(wire.EventRedriven, q.source.name, wire.Event{Queue: q.source.name, Data: map[string]any{"redriven": n}})
	return wire.RedriveReply{Redriven: n}, nil
}

func (s *Server) hookReset(name string, body []byte) (any, *wire.Error) {
	req, err := wire.ParseHookReset(body)
	if err != nil {
		return nil, err
	}
	q, err := s.ordinary("hook-reset", name)
	if err != nil {
		return nil, err
	}
	p := q.policy.Load()
	found := false
	for hook, g := range map[string]*guard{wire.HookOnEnqueue: p.onEnqueue, wire.HookOnFailure: p.onFailure} {
		if g != nil && (req.Hook == "" || req.Hook == hook) {
			g.hook.Reset()
			found = true
		}
	}
	if !found {
		return nil, wire.HookNotFound(name, req.Hook)
	}
	return wire.HookResetReply{Queue: name, Hooks: p.hooks()}, nil
}

// consume registers or ends a consumer.
func (s *Server) consume(q *queue, req micro.Request) *wire.Error {
	r, err := wire.ParseConsume(req.Data())
	if err != nil {
		return err
	}
	reply := wire.ConsumeReply{
		Deliver:             s.core.subjects.Deliver(r.Consumer, q.name),
		MaxInFlight:         r.MaxInFlight,
		VisibilityTimeoutMs: q.policy.Load().settings.VisibilityTimeoutMs,
	}
	encode := func(left bool) []byte {
		reply.Left = left
		data, err := json.Marshal(reply)
		if err != nil {
			s.core.log.Error("encode reply", "error", err)
		}
		return data
	}
	do := func(l *loop) { l.register(r, req.Reply(), encode(false)) }
	if r.Leave {
		do = func(l *loop) { l.leave(r.Consumer, req.Reply(), encode) }
	}
	if !q.tell(do) {
		return q.gone()
	}
	return nil
}

// fetch hands a request for messages to the queue.
func (s *Server) fetch(q *queue, req micro.Request) *wire.Error {
	r, err := wire.ParseFetch(req.Data())
	if err != nil {
		return err
	}
	if !isInbox(req.Reply()) {
		return wire.BadReplySubject(req.Reply(), "a fetch needs a reply subject under "+nats.InboxPrefix)
	}
	if !q.tell(func(l *loop) { l.fetch(r, req.Reply()) }) {
		return q.gone()
	}
	return nil
}

// isInbox reports whether a subject can be published to and lies under _INBOX.
func isInbox(subject string) bool {
	rest, ok := strings.CutPrefix(subject, nats.InboxPrefix)
	if !ok || strings.ContainsAny(rest, " \t\r\n*>") {
		return false
	}
	return !slices.Contains(strings.Split(rest, "."), "")
}
