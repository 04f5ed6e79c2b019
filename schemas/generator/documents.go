package generator

import (
	"bytes"
	"reflect"
	"strings"

	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// Document is a schema in the directory schemas.
type Document struct {
	Name string // of the file, without .json: "queue-create.request"

	description string   // unless the type says it
	types       []any    // of the body: one, or several of which it has one
	headers     []string // of a header set
	required    []string // of the headers
	event       string   // the type of the event; types has its data
	adjust      func(b *builder, s *Schema)
}

// request reports whether clients send it.
func (d *Document) request() bool { return strings.HasSuffix(d.Name, ".request") }

// Documents returns all documents: of the verbs, of the other requests, of events, errors and
// headers.
func Documents() []Document {
	var all []Document
	for _, v := range api.Verbs() {
		request, reply := v.Shape()
		in, out := body(v.String()+".request", request), body(v.String()+".reply", reply)
		switch v {
		case api.VerbQueueCreate:
			in.types, in.adjust = []any{wire.DefaultQueueSettings("")}, patch
		case api.VerbQueueUpdate:
			in.types, in.adjust = []any{wire.QueueSettings{}}, patch
		case api.VerbThrottleSet:
			in.adjust = condition
		case api.VerbJobCreate:
			in.adjust = inSubject
		case api.VerbExplain:
			out.types = []any{api.ExplainMessage{}, api.ExplainKey{}, api.ExplainQueue{}}
		}
		all = append(all, in, out)
	}
	all = append(all,
		body("enqueue.reply", wire.EnqueueReply{}),
		body("enqueue-batch.reply", wire.BatchReply{}),
		body("ack-batch.reply", wire.BatchReply{}),
		Document{Name: "consume.request", types: []any{wire.ConsumeRequest{MaxInFlight: wire.DefaultMaxInFlight}}, adjust: named},
		body("consume.reply", wire.ConsumeReply{}),
		body("consumer.request", wire.ConsumerRequest{ConsumeRequest: wire.ConsumeRequest{MaxInFlight: wire.DefaultMaxInFlight}}),
		body("fetch.request", wire.FetchRequest{Batch: 1}),
		body("guard-check.request", api.GuardCheckRequest{}),
		body("guard-check.reply", api.GuardAnswer{}, api.GuardAnswers{}),
		body("guard-done.request", api.GuardDoneRequest{Attempt: 1}),
		body("guard-done.reply", api.GuardVerdict{}),
		body("guard-state.request", api.GuardStateRequest{Attempt: 1}),
		body("guard-state.reply", api.GuardStatus{}),
		Document{Name: "error", types: []any{wire.ErrorBody{}}, adjust: numbers},
	)
	for _, e := range events {
		d := Document{Name: "event." + e.typ, event: e.typ, types: []any{e.data}}
		all = append(all, d)
	}
	return append(all, headerSets...)
}

func body(name string, types ...any) Document { return Document{Name: name, types: types} }

var headerSets = []Document{
	{
		Name: "enqueue.headers", description: "Headers that fila understands on an enqueue. It delivers all others.",
		headers: []string{
			wire.HeaderMsgID, wire.HeaderDelay, wire.HeaderNotBefore, wire.HeaderTTL, wire.HeaderSchedule, wire.HeaderScheduleTarget,
			wire.HeaderScheduleZone, wire.HeaderScheduleTTL, wire.HeaderScheduleName, wire.HeaderScheduleMissed,
		},
	},
	{
		Name: "enqueue-batch.headers", description: "Headers of an enqueue of several messages.",
		headers: []string{wire.HeaderBatch, wire.HeaderBatchAtomic}, required: []string{wire.HeaderBatch},
	},
	{
		Name: "delivery.headers", description: "Headers that fila adds to the headers of the producer. With headers min there are only Fila-Id, Fila-Attempt and Fila-Route; in a batch of deliveries, Fila-Batch and for each message the others.",
		headers: []string{
			wire.HeaderID, wire.HeaderQueue, wire.HeaderKey, wire.HeaderAttempt, wire.HeaderEnqueuedAt, wire.HeaderDeadline, wire.HeaderRoute, wire.HeaderBatch,
			wire.HeaderDeadReason, wire.HeaderDeadError, wire.HeaderDeadErrorCode, wire.HeaderDeadAt, wire.HeaderDeadAttempts, wire.HeaderSourceQueue,
			wire.HeaderScheduledBy, wire.HeaderScheduledAt,
		},
	},
	{
		Name: "ack.headers", description: "Headers that fila understands on an ack or nack. The payload has priority.",
		headers: []string{wire.HeaderCost, wire.HeaderError, wire.HeaderErrorCode, wire.HeaderRetryAfterMs},
	},
	{
		Name: "fetch-end.headers", description: "The header of the empty message that ends a fetch: Status 404 or 408.",
		headers: []string{wire.HeaderStatus}, required: []string{wire.HeaderStatus},
	},
	{
		Name: "admin.headers", description: "Headers that fila understands on an admin request.",
		headers: []string{wire.HeaderClient, wire.HeaderOwner, wire.HeaderReason, wire.HeaderForce},
	},
	{
		Name: "guard-check.headers", description: "Headers that fila understands on a check of the guard.",
		headers: []string{wire.HeaderTimeoutMs, wire.HeaderDeadline},
	},
	{
		Name: "guard-refusal.headers", description: "Headers of a reply to a check of the guard that is not allowed.",
		headers: []string{
			wire.HeaderRetryAfter, wire.HeaderRetryAfterMs, wire.HeaderRateLimitLimit, wire.HeaderRateLimitRemaining, wire.HeaderRateLimitReset,
		},
	},
	{
		Name: "error.headers", description: "Headers of an error reply.",
		headers: []string{
			wire.HeaderServiceError, wire.HeaderServiceErrorCode, wire.HeaderRetryAfter, wire.HeaderRetryAfterMs,
			wire.HeaderRateLimitLimit, wire.HeaderRateLimitRemaining, wire.HeaderRateLimitReset,
		},
		required: []string{wire.HeaderServiceError, wire.HeaderServiceErrorCode},
	},
}

// patch makes the settings of a queue the body of queue-create or queue-update.
func patch(b *builder, _ *Schema) {
	b.defs["QueueSettings"].Required = nil
}

// inSubject makes fields of job-create optional that the subject may have instead.
func inSubject(b *builder, _ *Schema) {
	for _, name := range []string{"op", "queue"} {
		b.defs["JobCreateRequest"].Properties.schemas[name].Default = nil
	}
}

// named requires the name of a consumer, which the subject of other requests has.
func named(b *builder, _ *Schema) { b.defs["ConsumeRequest"].Required = []string{"consumer"} }

// condition allows 0 and an empty rate in the field if of throttle-set, for limits that are not set.
func condition(b *builder, _ *Schema) {
	s := b.object(reflect.ValueOf(api.ThrottleLimits{}))
	for _, p := range s.Properties.schemas {
		if p.Minimum != nil {
			p.Minimum = new(int64)
		}
	}
	b.defs["ThrottleCondition"] = s
	b.defs["ThrottleSetRequest"].Properties.schemas["if"].Ref = "#/$defs/ThrottleCondition"
	delete(b.defs, "ThrottleLimits")
}

// numbers adds the numbers of all errors.
func numbers(b *builder, _ *Schema) {
	p := b.defs["ErrorDetail"].Properties.schemas["err_code"]
	p.Type = nil
	for _, e := range wire.Catalog() {
		p.AnyOf = append(p.AnyOf, &Schema{Const: e.ErrCode, Title: e.Name, Description: e.Meaning})
	}
}

// head returns a schema without contents.
func head(name, description string) *Schema {
	return &Schema{
		Dialect: "https://json-schema.org/draft/2020-12/schema", ID: "https://github.com/filaq/fila/schemas/" + name + ".json",
		Title: name, Description: description,
	}
}

// schema returns the schema of a document.
func (d *Document) schema(c comments) *Schema {
	s := head(d.Name, d.description)
	switch {
	case d.headers != nil:
		s.Type, s.Properties, s.Required, s.Additional = "object", new(properties), d.required, &Schema{Type: "string"}
		for _, name := range d.headers {
			s.Properties.add(name, &Schema{Type: "string", Description: c[name]})
		}
		return s
	case d.event != "":
		d.describeEvent(s, c)
		return s
	}
	b := &builder{comments: c, request: d.request(), defs: make(map[string]*Schema)}
	for _, v := range d.types {
		name := reflect.TypeOf(v).Name()
		b.defs[name] = b.object(reflect.ValueOf(v))
		s.AnyOf = append(s.AnyOf, &Schema{Ref: "#/$defs/" + name})
	}
	if len(s.AnyOf) == 1 {
		s.Ref, s.AnyOf = s.AnyOf[0].Ref, nil
	}
	if d.adjust != nil {
		d.adjust(b, s)
	}
	s.Defs = b.defs
	return s
}

// describeEvent makes s the schema of an event.
func (d *Document) describeEvent(s *Schema, c comments) {
	b := &builder{comments: c, defs: make(map[string]*Schema)}
	e := b.object(reflect.ValueOf(wire.Event{}))
	s.Type, s.Properties, s.Required, s.Defs = e.Type, e.Properties, e.Required, b.defs
	e.Properties.schemas["type"].Const = d.event
	data := d.types[0]
	if data == nil {
		s.Description = c[d.event]
		e.Properties.remove("data")
		return
	}
	t := reflect.TypeOf(data)
	s.Description = c.of(t, "")
	s.Properties.schemas["data"] = b.ref(t)
	s.Required = append(s.Required, "data")
}

// Files returns the files of the directory schemas and the types of the worker libraries, by their path
// in the repository. root is the directory of the module, whose comments are the descriptions.
func Files(root string) (map[string][]byte, error) {
	c, err := readComments(root, "wire", "wire/api", "schemas/generator", "sidecar/rules", "sidecar/config", "cli/applycmd")
	if err != nil {
		return nil, err
	}
	contents, documents := map[string]any{"asyncapi": asyncAPI(), "apply": applySchema(c)}, make(map[string]*Schema)
	for _, d := range Documents() {
		documents[d.Name] = d.schema(c)
		contents[d.Name] = documents[d.Name]
	}
	files := make(map[string][]byte)
	for name, content := range contents {
		var b bytes.Buffer
		if err := encode(&b, content); err != nil {
			return nil, err
		}
		files["schemas/"+name+".json"] = b.Bytes()
	}
	for path, text := range sdkFiles(documents) {
		files[path] = []byte(text)
	}
	return files, nil
}
