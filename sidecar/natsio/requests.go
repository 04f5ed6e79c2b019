package natsio

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

	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/sidecar/shard"
	"github.com/filaq/fila/wire"
)

// Verb carries out a request of an admin verb with the tail of its subject, and
// returns the reply.
type Verb func(tail string, body []byte) ([]byte, *wire.Error)

// ServeRequests registers the micro service, whose endpoints are the verbs by name, and
// consume and fetch of the queues of s. When it returns they can be reached.
func (f *Front) ServeRequests(s *shard.Shard, version string, verbs map[string]Verb) error {
	service, err := micro.AddService(f.Conn, micro.Config{
		Name: wire.ServiceName, Version: serviceVersion(version),
		Description: "fair scheduling, rate limits and durable queues for NATS",
		Metadata:    map[string]string{"subject_prefix": f.Subjects.Prefix(), "version": version},
	})
	if err != nil {
		return fmt.Errorf("NATS micro service: %w", err)
	}
	f.service = service
	for _, name := range slices.Sorted(maps.Keys(verbs)) {
		if err := f.serve(s, name, f.Subjects.AdminWildcard(name), f.verb(s, verbs[name])); err != nil {
			return err
		}
	}
	if err := f.serve(s, wire.KindConsume, f.Subjects.ConsumeWildcard(), f.queueRequest(s, wire.KindConsume, f.consume)); err != nil {
		return err
	}
	if err := f.serve(s, wire.KindFetch, f.Subjects.FetchWildcard(), f.queueRequest(s, wire.KindFetch, f.fetch)); err != nil {
		return err
	}
	return f.Flush()
}

// serve adds an endpoint. Requests whose reply would go to fila itself do not reach
// its handler.
func (f *Front) serve(s *shard.Shard, name, subject string, handle func(micro.Request)) error {
	handler := micro.HandlerFunc(func(req micro.Request) {
		if reply := req.Reply(); reply != "" && f.Subjects.Owns(reply) {
			s.Refuse("", wire.BadReplySubject(reply, ownReplyText))
			return
		}
		handle(req)
	})
	err := f.service.AddEndpoint(name, handler, micro.WithEndpointSubject(subject), micro.WithEndpointPendingLimits(-1, -1))
	if err != nil {
		return fmt.Errorf("endpoint %s: %w", name, err)
	}
	return nil
}

// StopRequests ends what ServeRequests has begun, if it has.
func (f *Front) StopRequests() {
	if f.service == nil {
		return
	}
	if err := f.service.Stop(); err != nil {
		f.Log.Debug("micro service", "error", err)
	}
}

var semantic = regexp.MustCompile(`^\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?$`)

// serviceVersion is version as the micro service wants it: a semantic version
// without a leading v. The version of a build that has none follows 0.0.0.
func serviceVersion(version string) string {
	for _, v := range []string{strings.TrimPrefix(version, "v"), "0.0.0-" + version} {
		if semantic.MatchString(v) {
			return v
		}
	}
	return "0.0.0"
}

// verb handles the requests of an admin verb.
func (f *Front) verb(s *shard.Shard, do Verb) func(micro.Request) {
	return func(req micro.Request) {
		_, tail, ok := f.Subjects.ParseAdmin(req.Subject())
		if !ok {
			f.respondError(req, wire.BadSubject(req.Subject()))
			return
		}
		if s.Draining() {
			f.respondError(req, wire.Draining())
			return
		}
		reply, err := do(tail, req.Data())
		if err != nil {
			f.respondError(req, err)
			return
		}
		f.respond(req, reply)
	}
}

// queueRequest handles requests whose subject names a queue and which the queue
// answers.
func (f *Front) queueRequest(s *shard.Shard, kind string, do func(q *shard.Queue, req micro.Request) *wire.Error) func(micro.Request) {
	return func(req micro.Request) {
		name, ok := f.Subjects.ParseTail(kind, req.Subject())
		if !ok {
			f.respondError(req, wire.BadSubject(req.Subject()))
			return
		}
		q := s.Queue(name)
		switch {
		case s.Draining():
			f.respondError(req, wire.Draining())
		case q == nil:
			f.respondError(req, wire.QueueNotFound(name))
		default:
			if err := do(q, req); err != nil {
				q.Metrics().Refused(err.ErrCode)
				f.respondError(req, err)
			}
		}
	}
}

func (f *Front) respond(req micro.Request, data []byte) {
	if req.Reply() == "" {
		return
	}
	if err := req.Respond(data); err != nil {
		f.Log.Debug("reply", "subject", req.Subject(), "error", err)
	}
}

func (f *Front) respondError(req micro.Request, e *wire.Error) {
	if req.Reply() == "" {
		return
	}
	headers := micro.Headers(e.Headers())
	if err := req.Error(strconv.Itoa(e.Code), e.Description, e.Body(), micro.WithHeaders(headers)); err != nil {
		f.Log.Debug("reply", "subject", req.Subject(), "error", err)
	}
}

// consume registers or ends a consumer.
func (f *Front) consume(q *shard.Queue, req micro.Request) *wire.Error {
	r, err := wire.ParseConsume(req.Data())
	if err != nil {
		return err
	}
	subject := f.Subjects.Deliver(r.Consumer, q.Name())
	encode := func(left bool) []byte {
		data, err := json.Marshal(wire.ConsumeReply{
			Deliver: subject, MaxInFlight: r.MaxInFlight, VisibilityTimeoutMs: q.Settings().VisibilityTimeoutMs, Left: left,
		})
		if err != nil {
			f.Log.Error("encode reply", "error", err)
		}
		return data
	}
	var change queue.Change = queue.Register{
		Consumer: r.Consumer, Subject: subject, MaxInFlight: r.MaxInFlight, TTL: int64(r.TTL()),
		Reply: req.Reply(), Answer: encode(false),
	}
	if r.Leave {
		change = queue.Leave{Consumer: r.Consumer, Reply: req.Reply(), Left: encode(true), NotThere: encode(false)}
	}
	return tell(q, change)
}

// fetch hands a request for messages to the queue.
func (f *Front) fetch(q *shard.Queue, req micro.Request) *wire.Error {
	r, err := wire.ParseFetch(req.Data())
	if err != nil {
		return err
	}
	if !isInbox(req.Reply()) {
		return wire.BadReplySubject(req.Reply(), "a fetch needs a reply subject under "+nats.InboxPrefix)
	}
	return tell(q, queue.Fetch{Inbox: req.Reply(), Batch: r.Batch, Expires: int64(r.Expires())})
}

func tell(q *shard.Queue, change queue.Change) *wire.Error {
	if !q.Tell(change) {
		return q.Gone()
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
