package natsio

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/bits"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/sidecar/shard"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// Verb is an endpoint for the requests of an admin verb.
type Verb struct {
	api.AnyVerb
	// Waits makes each request run in a goroutine of its own. Requests of other verbs run in
	// the order in which they arrive, one at a time.
	Waits bool
	// Do carries out a request with the tail of its subject, and returns the reply.
	Do func(by api.Sender, tail string, body []byte) ([]byte, *wire.Error)
}

// requestInfo is the header in which NATS names the sender of a request that came through a
// service import with share.
const requestInfo = "Nats-Request-Info"

// senderOf returns the sender of a request. The client is the user or the connection as NATS reports
// them, or the name that the client gives itself; empty if there is none.
func senderOf(h micro.Headers) (api.Sender, *wire.Error) {
	s, err := api.ParseSender(h.Get)
	var info struct{ User, Name string }
	if err := json.Unmarshal([]byte(h.Get(requestInfo)), &info); err != nil {
		info.User, info.Name = "", ""
	}
	client := wire.ShowKey(cmp.Or(info.User, info.Name, s.Client))
	s.Client = strings.ToValidUTF8(client[:min(len(client), wire.MaxClient)], "") // without half a character
	return s, err
}

// userOf returns the NATS user who has sent a request, as account/user; empty if NATS does not
// report it.
func userOf(h micro.Headers) string {
	text := h.Get(requestInfo)
	if text == "" {
		return ""
	}
	var info struct {
		Account string `json:"acc"`
		User    string `json:"user"`
	}
	if err := json.Unmarshal([]byte(text), &info); err != nil || info.User == "" {
		return ""
	}
	user := wire.ShowKey(info.Account + "/" + info.User)
	return strings.ToValidUTF8(user[:min(len(user), api.MaxGuardUserBytes)], "")
}

// schemaCommand prints a schema that the metadata of an endpoint names.
const schemaCommand = "fila schema show NAME"

// ServeRequests starts the micro service. Its endpoints are the verbs and, unless Attach
// subscribes per queue, the requests of consumers. They can be reached when it returns.
func (f *Front) ServeRequests(s *shard.Set, version string, verbs []Verb) error {
	service, err := micro.AddService(f.Conn, micro.Config{
		Name: wire.ServiceName, Version: serviceVersion(version),
		Description: "fair scheduling, rate limits and durable queues for NATS",
		Metadata:    map[string]string{"subject_prefix": f.Subjects.Prefix(), "version": version, "schemas": schemaCommand},
	})
	if err != nil {
		return fmt.Errorf("NATS micro service: %w", err)
	}
	f.service = service
	verbs = slices.SortedFunc(slices.Values(verbs), func(a, b Verb) int { return cmp.Compare(a.String(), b.String()) })
	for _, v := range verbs {
		name := v.String()
		for _, subject := range api.Wildcards(f.Subjects, v) {
			if err := f.serve(service, s, name, subject, schemasOf(v.String(), v.String()), f.verb(s, v)); err != nil {
				return err
			}
			name += "-bare"
		}
	}
	if f.Exact {
		return f.Flush()
	}
	for _, e := range []struct {
		kind, reply string
		parse       parseSubject
		do          queueVerb
	}{
		{wire.KindConsumer, wire.KindConsume, f.Subjects.ParseConsumer, f.consumer},
		{wire.KindConsume, wire.KindConsume, f.nameless(wire.KindConsume), f.consume},
		{wire.KindFetch, "", f.nameless(wire.KindFetch), f.fetch},
	} {
		if err := f.serve(service, s, e.kind, f.Subjects.Wildcard(e.kind), schemasOf(e.kind, e.reply), f.queueRequest(s, e.parse, e.do)); err != nil {
			return err
		}
	}
	return f.Flush()
}

// schemasOf returns the metadata of an endpoint: the names of its schemas, which are too long for
// the metadata themselves. reply may be empty: there is none, or it is a delivery.
func schemasOf(request, reply string) map[string]string {
	names := map[string]string{"request": request + ".request"}
	if reply != "" {
		names["reply"] = reply + ".reply"
	}
	return names
}

// serve adds an endpoint. It refuses requests that fila may not answer.
func (f *Front) serve(service micro.Service, s *shard.Set, name, subject string, metadata map[string]string, handle func(micro.Request)) error {
	handler := micro.HandlerFunc(func(req micro.Request) {
		if err := f.checkReply(req.Subject(), req.Reply()); err != nil {
			s.Refuse("", err)
			return
		}
		if err := f.refusedHeaders(req.Headers()); err != nil {
			s.Refuse("", err) // counts it
			f.respondError(req, err)
			return
		}
		handle(req)
	})
	err := service.AddEndpoint(name, handler, micro.WithEndpointSubject(subject), micro.WithEndpointMetadata(metadata), micro.WithEndpointPendingLimits(-1, -1))
	if err != nil {
		return fmt.Errorf("endpoint %s: %w", name, err)
	}
	return nil
}

// StopRequests ends what ServeRequests started, after guard requests that are being answered.
func (f *Front) StopRequests() {
	if f.service == nil {
		return
	}
	f.calls.Lock()
	defer f.calls.Unlock()
	if f.watched != nil {
		close(f.watched)
		f.watched = nil
	}
	if err := f.service.Stop(); err != nil {
		f.Log.Debug("micro service", "error", err)
	}
}

var semantic = regexp.MustCompile(`^\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?$`)

// serviceVersion returns version as the micro service needs it: a semantic version without the
// leading v. Other versions are appended to 0.0.0.
func serviceVersion(version string) string {
	for _, v := range []string{strings.TrimPrefix(version, "v"), "0.0.0-" + version} {
		if semantic.MatchString(v) {
			return v
		}
	}
	return "0.0.0"
}

// maxVerbs bounds how many requests of one verb run at a time. Others wait.
const maxVerbs = 64

// verb returns the handler of an admin verb.
func (f *Front) verb(s *shard.Set, v Verb) func(micro.Request) {
	slots := make(chan struct{}, maxVerbs)
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
		answer := func(req micro.Request) {
			by, err := senderOf(req.Headers())
			var reply []byte
			if err == nil {
				reply, err = v.Do(by, tail, req.Data())
			}
			if err != nil {
				f.respondError(req, err)
				return
			}
			f.respond(req, reply)
		}
		if v.Waits || f.Exact { // in a cluster, another node may have to answer first
			go func() {
				slots <- struct{}{}
				defer func() { <-slots }()
				answer(late{req, f.Conn})
			}()
			return
		}
		answer(req)
	}
}

// late is a request that is answered after its handler has returned. It publishes the answer
// itself, because the service reads the request's error, for its counters, when the handler
// returns.
type late struct {
	micro.Request
	conn *nats.Conn
}

func (r late) Respond(data []byte, opts ...micro.RespondOpt) error {
	return r.publish(nats.Header{}, data, opts)
}

func (r late) Error(code, description string, data []byte, opts ...micro.RespondOpt) error {
	return r.publish(nats.Header{micro.ErrorHeader: {description}, micro.ErrorCodeHeader: {code}}, data, opts)
}

func (r late) publish(headers nats.Header, data []byte, opts []micro.RespondOpt) error {
	m := &nats.Msg{Subject: r.Reply(), Header: headers, Data: data}
	for _, opt := range opts {
		opt(m)
	}
	return r.conn.PublishMsg(m)
}

// queueVerb carries out a request of a consumer, whose name is empty if the subject does not
// contain it. The queue answers, unless the verb returns an error.
type queueVerb func(q *shard.Queue, consumer string, body []byte, reply string) *wire.Error

// parseSubject returns the parts of a subject.
type parseSubject func(subject string) (consumer, queue string, ok bool)

// nameless parses subjects that contain no consumer.
func (f *Front) nameless(kind string) parseSubject {
	return func(subject string) (string, string, bool) {
		queue, ok := f.Subjects.ParseTail(kind, subject)
		return "", queue, ok
	}
}

// queueRequest returns the handler of requests to any queue.
func (f *Front) queueRequest(s *shard.Set, parse parseSubject, do queueVerb) func(micro.Request) {
	return func(req micro.Request) {
		consumer, name, ok := parse(req.Subject())
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
			if err := do(q, consumer, req.Data(), req.Reply()); err != nil {
				q.Metrics().Refused(err.ErrCode)
				f.respondError(req, err)
			}
		}
	}
}

// directRequest returns the handler of requests to one queue, which are no endpoint.
func (f *Front) directRequest(q *shard.Queue, parse parseSubject, do queueVerb) nats.MsgHandler {
	return func(m *nats.Msg) {
		reply := m.Reply
		err := f.checkReply(m.Subject, reply)
		switch consumer, _, ok := parse(m.Subject); {
		case err != nil:
			reply = ""
		case !ok:
			err = wire.BadSubject(m.Subject)
		default:
			if err = f.refusedHeaders(m.Header); err != nil {
				break
			}
			err = do(q, consumer, m.Data, reply)
		}
		switch {
		case err == nil:
		case reply == "": // requests cause no event
			q.Metrics().Refused(err.ErrCode)
		default:
			q.Refuse(reply, err)
		}
	}
}

func (f *Front) respond(req micro.Request, data []byte, opts ...micro.RespondOpt) {
	if req.Reply() == "" {
		return
	}
	if limit := f.Conn.MaxPayload(); int64(len(data)) > limit {
		f.respondError(req, wire.ReplyTooLarge(len(data), limit))
		return
	}
	if err := req.Respond(data, opts...); err != nil {
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

// consumer carries out a request whose subject contains the consumer.
func (f *Front) consumer(q *shard.Queue, name string, body []byte, reply string) *wire.Error {
	r, err := wire.ParseConsumer(name, body)
	switch {
	case err != nil:
		return err
	case r.Fetch != nil:
		return f.fetchInto(q, name, r.Fetch, reply)
	}
	return f.register(q, &r.ConsumeRequest, reply)
}

// consume carries out a request whose body names the consumer.
func (f *Front) consume(q *shard.Queue, _ string, body []byte, reply string) *wire.Error {
	r, err := wire.ParseConsume(body)
	if err != nil {
		return err
	}
	return f.register(q, &r, reply)
}

// register registers a consumer or ends its registration.
func (f *Front) register(q *shard.Queue, r *wire.ConsumeRequest, reply string) *wire.Error {
	subject := f.Subjects.Deliver(r.Consumer, q.Name())
	encode := func(left bool) []byte {
		data, err := json.Marshal(wire.ConsumeReply{
			Deliver: subject, MaxInFlight: r.MaxInFlight, VisibilityTimeoutMs: q.Settings().VisibilityTimeoutMs, Left: left,
		})
		if err != nil {
			f.Log.Error("a reply cannot be encoded", "error", err)
		}
		return data
	}
	var change queue.Change = queue.Register{
		Consumer: r.Consumer, Subject: subject, MaxInFlight: r.MaxInFlight, TTL: int64(r.TTL()), Form: formOf(r),
		Confirm: queue.Confirmation{Subject: reply}, Answer: encode(false),
	}
	if !r.Leave {
		if err := q.RoomFor(r.Consumer); err != nil {
			return err
		}
	}
	if r.Leave {
		change = queue.Leave{Consumer: r.Consumer, Confirm: queue.Confirmation{Subject: reply}, Left: encode(true), NotThere: encode(false)}
	}
	return tell(q, change)
}

// fetch carries out a fetch whose subject contains no consumer.
func (f *Front) fetch(q *shard.Queue, _ string, body []byte, reply string) *wire.Error {
	return f.fetchInto(q, "", body, reply)
}

// fetchInto requests messages for an inbox. If the consumer is known, its name has to follow the
// reply prefix in the inbox.
func (f *Front) fetchInto(q *shard.Queue, consumer string, body []byte, inbox string) *wire.Error {
	r, err := wire.ParseFetch(body)
	if err != nil {
		return err
	}
	owner := ""
	if consumer != "" {
		owner = consumer + "."
	}
	if !f.answers(inbox, owner) {
		return wire.BadReplySubject(inbox, "a fetch needs a reply subject that begins with "+strings.Join(f.ReplyPrefixes, owner+" or ")+owner)
	}
	return tell(q, queue.Fetch{
		Inbox: inbox, Batch: r.Batch, Expires: int64(r.Expires()), Owner: consumer, Limits: q.FetchLimits(), Form: fetchForm(&r),
	})
}

// formOf returns the form of the deliveries to a registered consumer.
func formOf(r *wire.ConsumeRequest) queue.DeliveryForm {
	f := queue.DeliveryForm{MinHeaders: r.Headers == wire.HeadersMin, Batch: uint16(r.Batch), BatchWaitMs: uint16(r.BatchWaitMs)}
	if r.BatchBytes > 0 {
		f.BatchBytes = 1 << (bits.Len(uint(r.BatchBytes)) - 1)
	}
	return f
}

// fetchForm returns the form of the deliveries to a fetch.
func fetchForm(r *wire.FetchRequest) queue.DeliveryForm {
	f := queue.DeliveryForm{MinHeaders: r.Headers == wire.HeadersMin}
	if r.Batched {
		f.Batch = uint16(min(r.Batch, wire.MaxBatchMessages))
	}
	return f
}

func tell(q *shard.Queue, change queue.Change) *wire.Error {
	if !q.Tell(change) {
		return q.Gone()
	}
	return nil
}
